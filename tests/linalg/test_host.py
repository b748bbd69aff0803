"""Functions of the host inside compiled programs, and the factors and products that are such functions."""

import gc
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from longstep.linalg import host
from longstep.linalg.matrix import HostMatrix, make_host_matrix, make_matrix
from longstep.linalg.systems import Gram, Quasidefinite, augmented, solve
from longstep.linalg.systems.augmented import Augmented
from longstep.linalg.systems.sparse import Sparse


class Halves:
    def __call__(self, inputs, output):
        if np.isnan(inputs[0]).any():
            raise ValueError("there is a NaN at entry 3")
        output[...] = inputs[0] / 2


def like(array):
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (0, 2)])
def test_a_program_calls_a_function_of_the_host(dtype, shape):
    function = Halves()
    number = host.register(function)

    @jax.jit
    def twice(number, x):
        return jax.lax.fori_loop(0, 2, lambda _, x: host.call(number, (x,), like(x)), x)

    x = np.random.default_rng(0).normal(size=shape).astype(dtype)
    np.testing.assert_allclose(twice(number, x), x / 4)


def test_an_error_on_the_host_is_an_error_of_the_program():
    function = Halves()
    number = host.register(function)
    with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: there is a NaN at entry 3"):
        jax.jit(lambda n, x: host.call(n, (x,), like(x)))(number, np.full(4, np.nan)).block_until_ready()


def test_a_function_that_nobody_holds_is_missed_and_no_other_is_taken_for_it():
    function = Halves()
    number = host.register(function)
    del function
    gc.collect()
    host.register(Halves())
    with pytest.raises(jax.errors.JaxRuntimeError, match="KeyError"):
        host.call(number, (jnp.ones(2),), like(jnp.ones(2))).block_until_ready()


def test_calls_from_several_threads_end():
    """`jax.pure_callback` hangs here."""
    function = Halves()
    number = host.register(function)
    x = np.ones((10_000, 20))

    @jax.jit
    def many(number, x):
        return jax.lax.fori_loop(0, 50, lambda _, x: 2 * host.call(number, (x,), like(x)), x)

    found = []
    threads = [threading.Thread(target=lambda: found.append(np.asarray(many(number, x))), daemon=True) for _ in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 4
    for y in found:
        np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("columns", [(), (1,), (3,)])
def test_products_of_the_host_are_products(columns):
    rng = np.random.default_rng(1)
    M = sp.random_array((7, 5), density=0.4, rng=rng, format="csr")
    here = make_host_matrix(M, np.float64)
    assert isinstance(here, HostMatrix)
    there = make_matrix(M.toarray(), np.float64)
    x, y = rng.normal(size=(5, *columns)), rng.normal(size=(7, *columns))
    np.testing.assert_allclose(here.mv(x), there.mv(x), atol=1e-14)
    np.testing.assert_allclose(here.rmv(y), there.rmv(y), atol=1e-14)
    np.testing.assert_array_equal(here.dense(), M.toarray())
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(here.mv(x)))))
    np.testing.assert_allclose(gradient(x), jax.grad(lambda x: jnp.sum(jnp.sin(there.mv(x))))(x), atol=1e-14)
    _, tangent = jax.jvp(here.rmv, (y,), (2 * y,))
    np.testing.assert_allclose(tangent, 2 * there.rmv(y), atol=1e-14)


def sparse_operator(n=40, m=60):
    rng = np.random.default_rng(2)
    P = sp.diags_array(rng.uniform(size=n), format="csr")
    A = sp.random_array((m, n), density=0.1, rng=rng, format="csr")
    form = Quasidefinite(Augmented(P, A))

    def make(shift, weights):
        return Gram(make_matrix(P, np.float64), make_matrix(A, np.float64), shift, weights, n, augmented=form)

    return make, form.augmented


@pytest.mark.parametrize("shape", ["bounds", "differences", "dense row", "no rows", "empty rows"])
def test_rows_that_elimination_begins_with_are_joined_to_the_square(shape):
    rng = np.random.default_rng(6)
    n = 30
    half = sp.random_array((n, n), density=0.05, rng=rng, format="csr")
    P = sp.csr_array(half @ half.T)
    rows = {
        "bounds": sp.diags_array(rng.normal(size=n)),
        "differences": sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(n - 1, n)),
        "dense row": sp.vstack([np.ones((1, n)), sp.eye_array(n)]),
        "no rows": sp.csr_array((0, n)),
        "empty rows": sp.csr_array((3, n)),
    }
    A = sp.csr_array(rows[shape])
    form = Augmented(P, A)
    weights = rng.uniform(0.1, 10, A.shape[0])
    lower, diagonal, order = form.factorize(0.2, weights)
    L = lower.toarray() + np.eye(form.order)
    back = np.argsort(order)
    whole = (L @ np.diag(diagonal) @ L.T)[np.ix_(back, back)]
    dense = P.toarray() + 0.2 * np.eye(n) + A.T @ np.diag(weights) @ A
    np.testing.assert_allclose(np.linalg.inv(whole)[:n, :n], np.linalg.inv(dense), atol=1e-10)
    if shape == "differences":
        assert n < form.order < n + A.shape[0]
    else:
        # A dense row would fill the square.
        assert form.order == n + (shape == "dense row")
    assert form.fill < n * (n - 1) / 2


def test_factors_that_are_not_kept_any_more_are_made_again(monkeypatch):
    monkeypatch.setattr(augmented, "measure_available", lambda: 0)
    make, form = sparse_operator()
    rng = np.random.default_rng(3)
    operators = [make(jnp.float64(0.1), jnp.asarray(rng.uniform(0.1, 10, 60))) for _ in range(12)]
    systems = [Sparse.factor(K) for K in operators]
    b = rng.normal(size=(40, 3))
    for K, system in zip(operators, systems, strict=True):
        np.testing.assert_allclose(solve(K, system, b), np.linalg.solve(K.dense(), b), rtol=1e-9)
    assert len(form._factors) == augmented._KEPT < len(operators)


def test_threads_that_use_a_factor_keep_it_from_the_next_operator(monkeypatch):
    monkeypatch.setattr(augmented, "measure_available", lambda: 0)
    monkeypatch.setattr(augmented, "_KEPT", 1)
    make, form = sparse_operator()
    K = make(jnp.float64(0.1), jnp.ones(60))
    b = np.random.default_rng(4).normal(size=40)
    right = np.append(b, np.zeros(form.order - 40))
    with form.borrow(b"first", 0.1, np.ones(60)) as factor, form.borrow(b"second", 5.0, np.full(60, 7.0)):
        np.testing.assert_allclose(factor.solver.solve(right)[:40], np.linalg.solve(K.dense(), b), rtol=1e-9)
    with form.borrow(b"third", 5.0, np.full(60, 7.0)):
        assert len(form._factors) == 2


def test_many_columns_are_solved_on_several_threads_as_on_one(monkeypatch):
    make, _ = sparse_operator()
    K = make(jnp.float64(0.1), jnp.ones(60))
    system = Sparse.factor(K)
    b = np.random.default_rng(5).normal(size=(40, 9))
    one = np.asarray(solve(K, system, b))
    monkeypatch.setattr(augmented, "_LITTLE", 0)
    monkeypatch.setattr(augmented, "_count_cores", lambda: 4)
    np.testing.assert_array_equal(solve(K, system, b), one)
