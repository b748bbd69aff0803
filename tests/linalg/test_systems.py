"""Laws of the back ends for linear systems: every one of them that fits a pattern."""

import itertools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

from longstep.linalg.matrix import make_matrix
from longstep.linalg.systems import (
    ALWAYS,
    BACK_ENDS,
    ONCE,
    Gram,
    Pattern,
    Picked,
    Quasidefinite,
    Spectrum,
    choose,
    factorize,
    refinements_for,
    respond,
    solve,
)
from longstep.linalg.systems.augmented import Augmented
from longstep.linalg.systems.inverse import Inverse
from longstep.linalg.systems.response import Response

N = 6


def operator(seed: int, pattern: Pattern, dtype=np.float64):
    """K of this pattern as a function of its shift and weights, and the same with NumPy."""
    rng = np.random.default_rng(seed)
    n = pattern.n
    root = rng.normal(size=(n, n))
    P = np.diag(rng.uniform(size=n)) if pattern.diagonal else root @ root.T / n
    A = rng.normal(size=(n + 2, n))
    F = rng.normal(size=(2, n))
    spectrum = None
    if pattern.diagonal:
        A = np.vstack([np.diag(rng.normal(size=n)), np.zeros((2, n))])
        F = np.zeros((0, n))
    if pattern.spectral:
        A, F = np.diag(rng.choice([-1.0, 1.0], n)), np.zeros((0, n))
        values, vectors = np.linalg.eigh(P)
        spectrum = Spectrum(jnp.asarray(values, dtype), jnp.asarray(vectors, dtype))
    free = make_matrix(F.T @ F, dtype) if len(F) else None
    augmented = None
    if pattern.fill is not None:
        augmented = Quasidefinite(Augmented(sp.csr_array(P), sp.csr_array(np.vstack([A, F]))))

    def make(shift, weights) -> Gram:
        matrices = make_matrix(P, dtype), make_matrix(A, dtype)
        known = pattern.diagonal, spectrum, free, 0.5, augmented, pattern.rows is not None
        return Gram(*matrices, jnp.asarray(shift), jnp.asarray(weights), n, *known)

    def dense(shift, weights):
        return P + shift * np.eye(n) + A.T @ np.diag(weights) @ A + 0.5 * F.T @ F

    return make, dense, len(A)


# As if the factor of the augmented form had so many.
FILL = 50
# As many as `operator` makes.
ROWS = N + 2
PATTERNS = [
    Pattern(N),
    Pattern(N, diagonal=True),
    Pattern(N, spectral=True),
    Pattern(N, fill=FILL),
    Pattern(N, rows=ROWS),
]
CASES = [
    pytest.param(back_end, pattern, id=f"{back_end.__name__}, {k}")
    for k, pattern in enumerate(PATTERNS)
    for back_end in BACK_ENDS
    if back_end.fits(pattern)
]


def test_every_back_end_fits_some_pattern_and_every_pattern_has_one():
    assert {case.values[0] for case in CASES} == set(BACK_ENDS)
    assert {case.values[1] for case in CASES} == set(PATTERNS)


@pytest.mark.parametrize(("back_end", "pattern"), CASES)
@given(seed=st.integers(0, 200))
@settings(max_examples=5)
def test_solves_are_exact(back_end, pattern, seed):
    make, dense, m = operator(seed, pattern)
    rng = np.random.default_rng(seed)
    weights = np.full(m, rng.uniform(0.5, 2)) if pattern.spectral else rng.uniform(0.5, 2, size=m)
    K, b = make(0.3, weights), rng.normal(size=(N, 3))
    np.testing.assert_allclose(K.dense(), dense(0.3, weights), atol=1e-12)
    np.testing.assert_allclose(K.mv(jnp.asarray(b)), dense(0.3, weights) @ b, atol=1e-12)
    system = back_end.factor(K)
    np.testing.assert_allclose(solve(K, system, jnp.asarray(b)), np.linalg.solve(dense(0.3, weights), b), atol=1e-10)
    np.testing.assert_allclose(
        solve(K, system, jnp.asarray(b[:, 0])), np.linalg.solve(dense(0.3, weights), b[:, 0]), atol=1e-10
    )
    assert float(system.error(K)) < 1e-11
    stack = jax.tree.map(lambda a: jnp.stack([jnp.zeros_like(a), a]), system)
    np.testing.assert_array_equal(
        solve(K, Picked(stack, jnp.int32(1)), jnp.asarray(b)), solve(K, system, jnp.asarray(b))
    )


@pytest.mark.parametrize(("back_end", "pattern"), CASES)
def test_it_keeps_as_many_bytes_as_it_says(back_end, pattern):
    make, _, m = operator(0, pattern)
    system = back_end.factor(make(0.3, np.ones(m)))
    if system.on_host:
        # What programs hold are the numbers of the operator; the factor, entries and their places, is the host's.
        assert back_end.bytes(pattern, 8) == back_end.bytes(pattern, 4) == 16 * FILL
        return
    leaves = jax.tree.leaves(system)
    assert sum(leaf.nbytes for leaf in leaves) == back_end.bytes(pattern, 8)
    assert sum(leaf.astype(np.float32).nbytes for leaf in leaves) == back_end.bytes(pattern, 4)


@pytest.mark.parametrize(("back_end", "pattern"), CASES)
def test_derivatives_of_solves(back_end, pattern):
    make, dense, m = operator(1, pattern)
    b, h = np.random.default_rng(1).normal(size=(N, 3)), 1e-6
    weights, shift = np.full(m, 0.8), 0.3

    def x(shift, weight):
        K = make(shift, weight * jnp.ones(m))
        return solve(K, back_end.factor(jax.lax.stop_gradient(K)), jnp.asarray(b))

    def exact(shift, weight):
        return np.linalg.solve(dense(shift, np.full(m, weight)), b)

    _, tangent = jax.jvp(x, (shift, weights[0]), (1.0, 1.0))
    slope = (exact(shift + h, weights[0] + h) - exact(shift - h, weights[0] - h)) / (2 * h)
    np.testing.assert_allclose(tangent, slope, atol=1e-6)
    gradient = jax.grad(lambda w: jnp.sum(x(shift, w) ** 2))(weights[0])
    slope = (np.sum(exact(shift, weights[0] + h) ** 2) - np.sum(exact(shift, weights[0] - h) ** 2)) / (2 * h)
    np.testing.assert_allclose(gradient, slope, rtol=1e-5)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("solves", [ONCE, N, ALWAYS])
def test_the_choice_is_the_cheapest_that_there_is_room_for(pattern, solves):
    costs = {b: b.cost(pattern, solves) for b in BACK_ENDS if b.fits(pattern)}
    assert costs[choose(pattern, solves)].flops == min(cost.flops for cost in costs.values())
    least = min(cost.bytes for cost in costs.values())
    for room in (0, least, *(cost.bytes for cost in costs.values())):
        chosen = costs[choose(pattern, solves, room)]
        assert chosen.bytes <= max(room, least)
        assert all(chosen.flops <= cost.flops for cost in costs.values() if cost.bytes <= max(room, least))


def test_rows_alone_are_asked_for_where_they_are_few():
    assert choose(Pattern(40, rows=62), ALWAYS) is Response
    assert choose(Pattern(40, rows=62), ONCE) is not Response
    assert choose(Pattern(40, rows=400), ALWAYS) is not Response
    assert choose(Pattern(40, rows=62), ALWAYS, room=8 * 40**2) is Inverse


def test_values_of_rows_and_their_derivatives():
    pattern = Pattern(N, rows=ROWS)
    make, dense, m = operator(3, pattern)
    A = np.asarray(make(0.0, np.ones(m)).A.dense())
    rng = np.random.default_rng(3)
    t, dt, weights, change = (
        rng.normal(size=(m, 4)),
        rng.normal(size=(m, 4)),
        rng.uniform(0.5, 2, m),
        rng.normal(size=m),
    )
    response = Response.factor(make(0.3, weights)).response
    assert response is not None

    def values(weights, t):
        return respond(make(0.3, weights), response, t)

    def exact(weights, t):
        return A @ np.linalg.solve(dense(0.3, weights), A.T @ t)

    np.testing.assert_allclose(values(weights, t), exact(weights, t), atol=1e-12)
    h = 1e-6
    _, tangent = jax.jvp(values, (jnp.asarray(weights), jnp.asarray(t)), (jnp.asarray(change), jnp.asarray(dt)))
    slope = (exact(weights + h * change, t + h * dt) - exact(weights - h * change, t - h * dt)) / (2 * h)
    np.testing.assert_allclose(tangent, slope, atol=1e-7)
    gradient = jax.grad(lambda weights: jnp.sum(values(weights, jnp.asarray(t)) * dt))(jnp.asarray(weights))
    np.testing.assert_allclose(
        gradient @ change,
        np.sum((exact(weights + h * change, t) - exact(weights - h * change, t)) * dt) / (2 * h),
        rtol=1e-6,
    )


def test_diagonal_systems_are_divisions_and_few_solves_need_no_inverse():
    large = Pattern(500)
    assert choose(Pattern(500, diagonal=True), ALWAYS).bytes(large, 8) == 8 * 500
    assert choose(large, ONCE) is not choose(large, ALWAYS)
    assert choose(Pattern(500, spectral=True), ONCE).flops(large, 0) < choose(large, ONCE).flops(large, 0)


def test_refinement_recovers_digits():
    """An inverse that is off by 1e-4 gives 1e-4; each refinement multiplies that by 1e-4 again."""
    rng = np.random.default_rng(2)
    make, _, m = operator(2, Pattern(N))
    K, x = make(0.1, np.ones(m)), rng.normal(size=N)
    exact = factorize(K, ALWAYS)
    assert isinstance(exact, Inverse)
    K_norm = float(jnp.linalg.norm(K.dense(), 2))
    rough = exact.inverse + 1e-4 / K_norm * rng.normal(size=(N, N))
    errors = [float(jnp.max(jnp.abs(solve(K, Inverse(rough, k), K.mv(jnp.asarray(x))) - x))) for k in range(4)]
    assert errors[0] > 1e-5
    for before, after in itertools.pairwise(errors[:3]):
        assert after < 1e-2 * before
    assert errors[3] < 1e-12
    assert Inverse(rough).refine(1e-4, 1e-11).refinements == 2


def test_refinement_counts():
    assert refinements_for(1e-12, 1e-11) == 0
    assert refinements_for(1e-6, 1e-11) == 1
    with pytest.raises(ValueError, match="numerically singular"):
        refinements_for(2.0, 1e-11)
