"""Projections: property tests against the definition, and derivatives at the awkward points."""

import json
import pickle
import subprocess
import sys

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import longstep as ls
from longstep.cones.second_order import project_second_order
from longstep.cones.semidefinite import project_semidefinite, to_symmetric, to_triangle

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
    for _ in range(cones.exponential):
        x, y, z = v[i : i + 3]
        ok = ok and (y * np.exp(x / y) <= z + tol if y > 0 else y >= -tol and x <= tol and z >= -tol)
        i += 3
    for a in cones.power:
        x, y, z = v[i : i + 3]
        ok = ok and x >= -tol and y >= -tol and abs(z) <= max(x, 0) ** a * max(y, 0) ** (1 - a) + tol
        i += 3
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
    with pytest.raises(ValueError, match="non-negative integers"):
        ls.Cones(exponential=-1)
    for exponents in (0.0, 1.0, (0.5, -0.1), np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            ls.Cones(power=exponents)
    with pytest.raises(TypeError, match=r"no cone 'octahedral'; the cones are zero, .*, power"):
        ls.Cones(octahedral=3)


@pytest.mark.parametrize("kind", CONES)
def test_a_product_survives_json_and_pickle_and_says_what_it_is(kind):
    cones = CONES[kind]
    assert ls.Cones(**json.loads(json.dumps(cones.to_json()))) == cones
    assert pickle.loads(pickle.dumps(cones)) == cones
    assert eval(repr(cones), {"Cones": ls.Cones}) == cones
    assert hash(cones) == hash(ls.Cones(**cones.to_json()))
    assert len({repr(other) for other in CONES.values() if other == cones}) == 1


def test_products_are_told_apart_and_old_ones_are_what_they_were():
    """Files and hashes from before there were more than four kinds hold for what has no others."""
    old = CONES["mixed"]
    assert old.to_json() == {"zero": 3, "nonnegative": 5, "second_order": [4, 3], "semidefinite": [3]}
    assert old.hashed() == (3, 5, (4, 3), (3,))
    hashes = {c.hashed() for c in (*CONES.values(), ls.Cones(power=(0.3, 0.5)), ls.Cones(exponential=1))}
    assert len(hashes) == len(CONES) + 2


def test_rows_of_curved_cones_share_one_scale():
    assert CONES["all"].blocks().tolist() == [0, 1, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 8, 8, 8]
    assert CONES["all"].equalities.tolist() == [True] + [False] * 20


def test_every_row_of_a_product_goes_to_clarabel_once():
    for cones in CONES.values():
        _, order = cones.clarabel()
        assert sorted(order) == list(range(cones.size))


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
