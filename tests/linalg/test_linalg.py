"""Matrices, factors, scalings and proximal operators."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given

import longstep as ls
from longstep.families.equilibration import ruiz
from longstep.linalg.matrix import DenseMatrix, SparseMatrix, make_matrix, squared_norm_bound, two_norm


@pytest.mark.parametrize("density", [0.0, 0.02, 0.2, 1.0])
@pytest.mark.parametrize("long_row", [False, True])
def test_matrix_products(density, long_row):
    rng = np.random.default_rng(0)
    M = rng.normal(size=(160, 190)) * (rng.random((160, 190)) < density)
    if long_row:
        M[7] = rng.normal(size=190)
    matrix = make_matrix(sp.coo_array(M), np.float64)
    assert isinstance(matrix, SparseMatrix if density < 0.1 else DenseMatrix)
    x, X, y = rng.normal(size=190), rng.normal(size=(190, 5)), rng.normal(size=(160, 5))
    np.testing.assert_allclose(matrix.mv(jnp.asarray(x)), M @ x, atol=1e-12)
    np.testing.assert_allclose(matrix.mv(jnp.asarray(X)), M @ X, atol=1e-12)
    np.testing.assert_allclose(matrix.rmv(jnp.asarray(y)), M.T @ y, atol=1e-12)
    np.testing.assert_allclose(matrix.dense(), M, atol=0)


def test_small_matrices_are_dense():
    assert isinstance(make_matrix(sp.eye_array(100), np.float64), DenseMatrix)
    assert isinstance(make_matrix(sp.eye_array(200), np.float64), SparseMatrix)


@given(seed=st.integers(0, 500))
def test_ruiz_brings_columns_and_rows_to_one(seed):
    rng = np.random.default_rng(seed)
    scale_n, scale_m = 10 ** rng.uniform(-2, 2, 9), 10 ** rng.uniform(-2, 2, 14)
    root = rng.normal(size=(9, 9)) * scale_n
    A = scale_m[:, None] * rng.normal(size=(14, 9)) * scale_n
    P, A = sp.csr_array(root.T @ root), sp.csr_array(A)
    d, e, _ = ruiz(P, A, np.arange(14), None, iterations=40)
    assert (d > 0).all()
    assert (e > 0).all()
    scaled_P, scaled_A = abs(np.diag(d) @ P @ np.diag(d)), abs(np.diag(e) @ A @ np.diag(d))
    np.testing.assert_allclose(np.maximum(scaled_P.max(0), scaled_A.max(0)), 1, atol=0.05)
    np.testing.assert_allclose(scaled_A.max(1), 1, atol=0.05)


def test_ruiz_keeps_cones():
    rng = np.random.default_rng(0)
    cones = ls.Cones(zero=2, nonnegative=3, second_order=(4,), semidefinite=(3,))
    A = sp.csr_array(10 ** rng.uniform(-3, 3, (cones.size, 5)))
    _, e, _ = ruiz(sp.csr_array((5, 5)), A, cones.blocks(), None)
    assert len(set(e[5:9])) == 1
    assert len(set(e[9:])) == 1
    assert len(set(e[:5])) == 5


def test_norms_have_finite_gradients_at_zero():
    assert float(jnp.sum(jax.grad(two_norm)(jnp.zeros(3)))) == 0.0


PROXES = [ls.L1(0.7), ls.NonNegative(), ls.Box(-0.5, np.array([0.2, 1.0, np.inf])), ls.Zero()]


@pytest.mark.parametrize("g", PROXES, ids=lambda g: type(g).__name__)
@given(seed=st.integers(0, 500), t=st.floats(0.05, 5))
def test_prox_minimises_its_definition(g, seed, t):
    v = np.random.default_rng(seed).normal(size=3) * 2
    p = np.asarray(g.prox(jnp.asarray(v), t))

    def value(z):
        return t * float(g.value(jnp.asarray(z))) + 0.5 * np.sum((z - v) ** 2)

    rng = np.random.default_rng(seed + 1)
    assert np.isfinite(value(p))
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(5):
            assert value(p) <= value(p + size * rng.normal(size=3)) + 1e-12
    # Firmly nonexpansive: ‖p − p'‖² ≤ (p − p')·(v − v').
    w = rng.normal(size=3)
    other = np.asarray(g.prox(jnp.asarray(w), t))
    assert np.sum((p - other) ** 2) <= (p - other) @ (v - w) + 1e-12


def test_custom_prox():
    g = ls.CustomProx(lambda z: 0.5 * jnp.sum(z**2, axis=0), lambda v, t: v / (1 + t))
    best = scipy.optimize.minimize(lambda z: 0.5 * z @ z * 2 + 0.5 * np.sum((z - 1) ** 2), np.zeros(2)).x
    np.testing.assert_allclose(g.prox(jnp.ones(2), 2.0), best, atol=1e-5)


def test_box_refuses_crossed_bounds():
    with pytest.raises(ValueError, match="low ≤ high"):
        ls.Box(1.0, 0.0)


def test_sparse_products_have_the_dense_derivative():
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(240, 130)) * (rng.random((240, 130)) < 0.01)
    A = make_matrix(dense, np.dtype("float64"))
    assert isinstance(A, SparseMatrix)
    x, y = jnp.asarray(rng.normal(size=(130, 3))), jnp.asarray(rng.normal(size=(240, 3)))
    np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(y * A.mv(x) ** 2))(x), 2 * dense.T @ (y * (dense @ x)))
    np.testing.assert_allclose(jax.grad(lambda y: jnp.sum(x * A.rmv(y) ** 2))(y), 2 * dense @ (x * (dense.T @ y)))
    np.testing.assert_allclose(jax.jvp(A.mv, (x,), (x,))[1], dense @ x)


@pytest.mark.parametrize("seed", range(3))
def test_squared_norms_are_bounded_from_above(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 9)) * (rng.random((6, 9)) < 0.5)
    A[3] = 0
    exact = np.linalg.norm(A, 2) ** 2
    bounds = [float(squared_norm_bound(jnp.asarray(A), k)) for k in (1, 2, 4, 100)]
    assert exact <= bounds[3] <= bounds[2] <= bounds[1] <= bounds[0]
    np.testing.assert_allclose(bounds[3], np.linalg.norm(np.abs(A), 2) ** 2, rtol=1e-6)
    positive = rng.random((20, 30))
    exact = np.linalg.norm(positive, 2) ** 2
    assert exact <= squared_norm_bound(jnp.asarray(positive)) <= 1.001 * exact
    assert squared_norm_bound(jnp.zeros((2, 3))) == 0
