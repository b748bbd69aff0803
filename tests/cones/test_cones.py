"""Projections: property tests against the definition, and derivatives at the awkward points."""

import subprocess
import sys

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import longstep as ls
from longstep.cones.product import project_second_order, project_semidefinite, to_symmetric, to_triangle

from ..helpers import CONES

vectors = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed).normal(size=200))


def inside(cones, v, tol=1e-9):
    """Membership in K by its definition, row by row."""
    i = cones.zero
    ok = np.all(np.abs(v[:i]) <= tol) and np.all(v[i : i + cones.nonnegative] >= -tol)
    i += cones.nonnegative
    for k in cones.second_order:
        ok = ok and np.linalg.norm(v[i + 1 : i + k]) <= v[i] + tol
        i += k
    for k in cones.semidefinite:
        rows = k * (k + 1) // 2
        X = np.zeros((k, k))
        X[np.tril_indices(k)] = 0
        entries = [(r, c) for c in range(k) for r in range(c, k)]
        for value, (r, c) in zip(v[i : i + rows], entries, strict=True):
            X[r, c] = X[c, r] = value / (1 if r == c else np.sqrt(2))
        ok = ok and np.linalg.eigvalsh(X)[0] >= -tol
        i += rows
    return bool(ok)


@pytest.mark.parametrize("kind", CONES)
@given(v=vectors)
def test_projection_is_moreaus(kind, v):
    """v = Π_K(v) − Π_K*(−v), the parts orthogonal, the first in K: this characterises the projection."""
    cones = CONES[kind]
    v = v[: cones.size]
    p, d = np.asarray(cones.project(jnp.asarray(v))), np.asarray(cones.project_dual(jnp.asarray(-v)))
    np.testing.assert_allclose(p - d, v, atol=1e-10)
    assert abs(p @ d) < 1e-9
    assert inside(cones, p)


@pytest.mark.parametrize("kind", CONES)
def test_stack_equals_columns(kind):
    cones = CONES[kind]
    V = jnp.asarray(np.random.default_rng(0).normal(size=(cones.size, 7)))
    together = cones.project(V)
    for k in range(7):
        np.testing.assert_allclose(together[:, k], cones.project(V[:, k]), atol=1e-12)


@given(v=vectors)
def test_triangle_keeps_inner_products(v):
    X = to_symmetric(jnp.asarray(v[:15]), 5)
    np.testing.assert_allclose(to_triangle(X), v[:15], atol=1e-14)
    np.testing.assert_allclose(jnp.sum(X * X), v[:15] @ v[:15], rtol=1e-12)


def directional(function, X, D, size=1e-6):
    return (function(X + size * D) - function(X - size * D)) / (2 * size)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 1.0, 2.0],
        [-1.0, -1.0, 3.0],
        [2.0, 2.0, 2.0],
        [-1.0, -1.0, -1.0],
        [1.0, 1.0, -1.0],
        [5.0, -5.0, 0.3],
    ],
)
def test_semidefinite_derivative_with_equal_eigenvalues(values):
    rng = np.random.default_rng(3)
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    X, D = jnp.asarray(Q @ np.diag(values) @ Q.T), rng.normal(size=(3, 3))
    D = jnp.asarray(D + D.T)
    _, tangent = jax.jvp(project_semidefinite, (X,), (D,))
    np.testing.assert_allclose(tangent, directional(project_semidefinite, X, D), atol=1e-6)
    gradient = jax.grad(lambda X: jnp.sum(project_semidefinite(X) * D))(X)
    np.testing.assert_allclose(jnp.sum(gradient * D), jnp.sum(tangent * D), atol=1e-9)


@pytest.mark.parametrize("X", [np.zeros((3, 3)), np.diag([1.0, 0.0, -1.0])])
def test_semidefinite_derivative_is_finite_at_kinks(X):
    jacobian = jax.jacobian(project_semidefinite)(jnp.asarray(X))
    assert np.isfinite(jacobian).all()


@pytest.mark.parametrize(
    "v",
    [
        [1.0, 0.2, 0.3],
        [-1.0, 0.2, 0.3],
        [0.1, 0.8, -0.5],
        [1e-6, 1.1e-6, 0.0],
        [1e-6, 0.9e-6, 0.0],
        [1.0, 0.0, 0.0],
        [-1.0, 0.0, 0.0],
    ],
)
def test_second_order_derivative(v):
    v, d = jnp.asarray(v)[None], jnp.asarray([[0.3, -0.7, 0.4]])
    _, tangent = jax.jvp(project_second_order, (v,), (d,))
    np.testing.assert_allclose(tangent, directional(project_second_order, v, d, 1e-10), atol=1e-5)


def test_second_order_derivative_is_finite_at_the_apex():
    assert np.isfinite(jax.jacobian(project_second_order)(jnp.zeros((1, 4)))).all()
    assert np.isfinite(jax.jacobian(project_second_order)(jnp.asarray([[1.0, 1.0, 0.0]]))).all()


def test_sizes_must_be_sensible():
    with pytest.raises(ValueError, match="non-negative integers"):
        ls.Cones(zero=-1)
    with pytest.raises(ValueError, match="at least 1"):
        ls.Cones(second_order=(3, 0))


@pytest.mark.slow
def test_semidefinite_cones_of_several_sizes_do_not_block_each_other():
    """Independent batched eigendecompositions in one program can wait for each other for ever on few cores."""
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "import longstep as ls, numpy as np\n"
        "cones = ls.Cones(semidefinite=(30, 20, 12))\n"
        "m = cones.size\n"
        "family = ls.Conic(np.eye(m), -np.eye(m), cones, b=np.zeros(m), parameter=ls.Affine(c=np.eye(m)))\n"
        "x = np.random.default_rng(0).normal(size=(64, m))\n"
        "solver = ls.Solver(family)\n"
        "for _ in range(3):\n"
        "    assert np.isfinite(solver.run(x, 40).dual).all()\n"
        "    assert np.isfinite(solver.run(x, 5, warm_start=ls.Point(x, x, x)).dual).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
