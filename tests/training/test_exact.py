"""Exact training: closed forms, brute force, optimality, and the ridge family's published and measured figures."""

import itertools

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import minimize

import longstep as ls
from longstep.algorithms.gradient import step_size
from longstep.schedules.classical import leja_order
from longstep.training.closed_form.exact import (
    block_steps,
    exact_schedule,
    expected_losses,
    momentum_schedule,
    one_step,
    polynomial_steps,
    worst_case_rates,
)
from longstep.training.closed_form.spectrum import EPS, ErrorSpectrum, Gaussian

TOLERANCES = np.array([1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8])


def spectrum(seed, n=12, low=0.05):
    """Random eigenvalues in [low, 2] and weights over three decades."""
    rng = np.random.default_rng(seed)
    return rng.uniform(low, 2.0, n), 10 ** rng.uniform(-3, 0, n)


def loss(values, weights, steps, power=1):
    return np.sum(values ** (power - 1) * weights * np.prod(1 - np.outer(steps, values), axis=0) ** 2)


def random_quadratic(eigenvalues, seed=0, **kwargs):
    n = len(eigenvalues)
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    P = (Q * eigenvalues) @ Q.T
    return ls.Quadratic((P + P.T) / 2, **kwargs), Q


# One step.


@given(seed=st.integers(0, 1000), N=st.integers(1, 5))
def test_one_step_is_the_best_step(seed, N):
    rng = np.random.default_rng(seed)
    g, e = rng.normal(size=(N, 4)), rng.normal(size=(N, 4))
    g = np.where(np.sum(g * e) < 0, -g, g)
    t = one_step(g, e)
    assert t >= 0
    after = lambda t: np.sum((e - t * g) ** 2)  # noqa: E731
    assert after(t) <= min(after(t * 1.001), after(t * 0.999), after(t + 1e-6))
    np.testing.assert_allclose(one_step(1e-200 * g, e), t * 1e200, rtol=1e-12)


def test_one_step_without_a_gradient_or_with_a_wrong_optimum():
    assert one_step(np.zeros((2, 3)), np.ones((2, 3))) == 0.0
    assert one_step(np.ones((2, 3)), -np.ones((2, 3))) == 0.0
    with pytest.raises(ValueError, match="one shape"):
        one_step(np.ones((2, 3)), np.ones((3, 2)))


def test_one_step_is_the_polynomial_of_degree_one():
    family, _ = random_quadratic(np.array([0.2, 0.5, 1.0, 3.0]))
    errors = np.random.default_rng(1).normal(size=(6, 4))
    eigen = ErrorSpectrum(family)
    expected = polynomial_steps(eigen.eigenvalues, eigen.weights(errors), 1)
    np.testing.assert_allclose(one_step(errors @ family.P.toarray(), errors), expected[0], rtol=1e-12)


# Steps for quadratics, against closed forms and brute force.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("power", [1, 2])
def test_published_closed_forms(seed, power):
    values, weights = spectrum(seed)
    a, b, c, d, e, f = (np.sum(values ** (i + power - 1) * weights) for i in range(1, 7))
    two = np.roots([b * d - c**2, -(a * d - b * c), a * c - b**2])
    d0 = a * c * e - b**2 * e - a * d**2 + 2 * b * c * d - c**3
    d1 = c**2 * d - b * d**2 - b * c * e + a * d * e + b**2 * f - a * c * f
    d2 = -c * d**2 + c**2 * e + b * d * e - a * e**2 - b * c * f + a * d * f
    d3 = d**3 - 2 * c * d * e + b * e**2 + c**2 * f - b * d * f
    three = np.roots([d3, d2, d1, d0])
    np.testing.assert_allclose(polynomial_steps(values, weights, 1, power), [a / b], rtol=1e-13)
    np.testing.assert_allclose(np.sort(polynomial_steps(values, weights, 2, power)), np.sort(two), rtol=1e-10)
    np.testing.assert_allclose(np.sort(polynomial_steps(values, weights, 3, power)), np.sort(three), rtol=1e-6)


@pytest.mark.parametrize(("count", "power"), [(1, 1), (2, 2), (3, 1), (4, 1), (4, 2)])
def test_brute_force_finds_nothing_better(count, power):
    values, weights = spectrum(count, n=8)
    best = loss(values, weights, polynomial_steps(values, weights, count, power), power)
    rng = np.random.default_rng(0)
    found = [
        minimize(
            lambda nu: np.log(loss(values, weights, np.exp(nu), power)), rng.uniform(-1, 3, count), method="L-BFGS-B"
        ).fun
        for _ in range(6)
    ]
    assert np.log(best) <= min(found) + 1e-10
    np.testing.assert_allclose(min(found), np.log(best), atol=1e-4)


@given(seed=st.integers(0, 10_000), count=st.integers(1, 11), power=st.integers(1, 2))
def test_steps_are_distinct_positive_and_inside_the_spectrum(seed, count, power):
    values, weights = spectrum(seed)
    steps = polynomial_steps(values, weights, count, power)
    assert steps.shape == (count,)
    assert np.all((steps * values.max() > 1 - 1e-12) & (steps * values.min() < 1 + 1e-12))
    assert np.min(np.diff(np.sort(steps)), initial=1.0) > 1e-9


@given(seed=st.integers(0, 10_000), count=st.integers(1, 8), power=st.integers(1, 2))
def test_no_other_steps_are_better(seed, count, power):
    values, weights = spectrum(seed)
    steps = polynomial_steps(values, weights, count, power)
    best = loss(values, weights, steps, power)
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 2.0):
        assert best <= loss(values, weights, steps * np.exp(scale * rng.normal(size=count)), power) * (1 + 1e-9)
    assert best <= loss(values, weights, 1 / rng.uniform(values.min(), values.max(), count), power) * (1 + 1e-9)
    if count > 1:
        assert best <= loss(values, weights, polynomial_steps(values, weights, count - 1, power), power) * (1 + 1e-9)


@given(seed=st.integers(0, 10_000), count=st.integers(1, 5), power=st.integers(1, 2))
def test_the_order_has_the_lowest_losses_on_the_way(seed, count, power):
    values, weights = spectrum(seed)
    steps = polynomial_steps(values, weights, count, power)
    total = lambda order: np.sum(np.log(expected_losses(values, weights, np.array(order), power=power)))  # noqa: E731
    best = min(map(total, itertools.permutations(steps)))
    assert total(steps) == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_long_blocks_come_in_leja_order():
    values, weights = spectrum(0, n=60)
    steps = polynomial_steps(values, weights, 16)
    np.testing.assert_array_equal(steps, 1 / leja_order(1 / steps))


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-200, 1e-20, 1e30]), unit=st.sampled_from([1e-6, 1e4]))
def test_units_do_not_matter(seed, scale, unit):
    values, weights = spectrum(seed)
    steps = polynomial_steps(values, weights, 5)
    np.testing.assert_allclose(polynomial_steps(values * unit, weights * scale, 5) * unit, steps, rtol=1e-8)


@pytest.mark.parametrize("momentum", [False, True])
def test_few_distinct_eigenvalues_are_solved_exactly_with_few_steps(momentum):
    values = np.array([0.5, 2.0, 0.5, 1.0, 2.0, 7.0])
    weights = np.array([1.0, 3.0, 2.0, 1.0, 0.5, 0.0])
    steps = polynomial_steps(values, weights, 10)
    np.testing.assert_allclose(np.sort(steps), [0.5, 1.0, 2.0], rtol=1e-12)
    t, beta = momentum_schedule(values, weights, 10)
    assert len(t) == len(beta) == 3
    assert expected_losses(values, weights, t, beta)[-1] < 1e-28
    family = ls.Quadratic(np.diag(values))
    errors = np.sqrt(weights)[None]
    assert len(exact_schedule(family, errors, momentum=momentum)) == 3


# Blocks and momentum.


@given(seed=st.integers(0, 10_000), power=st.integers(1, 2))
def test_blocks_are_optimal_for_what_is_left(seed, power):
    values, weights = spectrum(seed)
    steps, after = block_steps(values, weights, [3, 1, 4], power)
    assert [len(steps), len(after)] == [8, 3]
    left = weights
    for (a, b), w in zip([(0, 3), (3, 4), (4, 8)], after, strict=True):
        np.testing.assert_allclose(steps[a:b], polynomial_steps(values, left, b - a, power), rtol=1e-6)
        left = left * np.prod(1 - np.outer(steps[a:b], values), axis=0) ** 2
        np.testing.assert_allclose(w, left, rtol=1e-9, atol=1e-28 * np.sum(weights))


@given(seed=st.integers(0, 10_000), power=st.integers(1, 2))
def test_momentum_is_optimal_after_every_step(seed, power):
    values, weights = spectrum(seed, n=20)
    t, beta = momentum_schedule(values, weights, 12, power)
    assert beta[0] == 0
    assert np.all(t > 0)
    assert np.all(beta >= 0)
    losses = expected_losses(values, weights, t, beta, power=power)
    best = [loss(values, weights, polynomial_steps(values, weights, k, power), power) for k in range(1, 13)]
    np.testing.assert_allclose(losses[1:], best, rtol=1e-7)
    blocks, _ = block_steps(values, weights, [4, 4, 4], power)
    assert np.all(losses <= expected_losses(values, weights, blocks, power=power) * (1 + 1e-9))


@given(seed=st.integers(0, 10_000))
def test_worst_case_rates_are_those_of_the_iteration(seed):
    values, weights = spectrum(seed)
    P = random_quadratic(values, seed)[0].P.toarray()
    for t, beta in (momentum_schedule(values, weights, 6), (polynomial_steps(values, weights, 6), np.zeros(6))):
        z, previous, norms = np.eye(12), np.eye(12), [1.0]
        for k in range(6):
            z, previous = z - t[k] * P @ z + beta[k] * (z - previous), z
            norms.append(np.linalg.norm(z, 2))
        np.testing.assert_allclose(worst_case_rates(values, t, beta), norms, rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(worst_case_rates(values, t), worst_case_rates(values, t, beta))


@given(seed=st.integers(0, 10_000), block=st.integers(1, 6))
def test_progressive_training_is_at_least_as_good_as_chebyshev(seed, block):
    """In root mean square: the first block beats the steps themselves, all blocks beat their rate (Young)."""
    values, weights = spectrum(seed)
    mu, L = values.min(), values.max()
    chebyshev = ls.chebyshev(L, mu, block).step
    rate = 1 / np.cosh(block * np.arccosh((L + mu) / (L - mu)))
    _, after = block_steps(values, weights, [block] * 4)
    rms = np.sqrt([np.sum(w) / np.sum(weights) for w in after])
    assert rms[0] <= np.sqrt(loss(values, weights, chebyshev) / np.sum(weights)) * (1 + 1e-9)
    assert np.all(rms <= rate ** np.arange(1, len(rms) + 1) * (1 + 1e-9) + 100 * EPS)


# Weights.


def test_gaussian_weights_against_monte_carlo():
    rng = np.random.default_rng(3)
    n, d, N = 5, 3, 200_000
    M, root = rng.normal(size=(n, d)), rng.normal(size=(d, d))
    values = np.array([0.2, 0.7, 1.0, 2.0, 5.0])
    source = Gaussian(rng.normal(size=d), root @ root.T)
    family, _ = random_quadratic(values, q=rng.normal(size=n), parameter=ls.Affine(q=M))
    x = source.mean + rng.normal(size=(N, d)) @ root.T
    optima = -np.linalg.solve(family.P.toarray(), family.data(x)["q"].T).T
    eigen = ErrorSpectrum(family)
    np.testing.assert_allclose(eigen.eigenvalues, values)
    np.testing.assert_allclose(eigen.weights(source), eigen.weights(-optima), rtol=0.02)
    np.testing.assert_allclose(np.sum(eigen.weights(-optima)), np.mean(np.sum(optima**2, axis=1)))


def test_without_a_parameter_map_the_gaussian_is_that_of_the_linear_term():
    family = ls.Quadratic(np.diag([1.0, 4.0]), q=[5.0, 5.0])
    source = Gaussian([2.0, 0.0], np.diag([1.0, 3.0]))
    np.testing.assert_allclose(ErrorSpectrum(family).weights(source), [5.0, 3 / 16])


@pytest.mark.parametrize("diagonal", [True, False])
def test_directions_without_curvature_carry_no_weight(diagonal):
    values = np.array([0.0, 1e-14, 1.0, 2.0])
    family = ls.Quadratic(np.diag(values)) if diagonal else random_quadratic(values)[0]
    assert family.strong_convexity == 0
    for source in (Gaussian(np.ones(4), np.eye(4)), np.ones((2, 4))):
        weights = ErrorSpectrum(family).weights(source)
        assert np.all(weights[:2] == 0)
        assert np.all(weights[2:] > 0)
        schedule = exact_schedule(family, source)
        np.testing.assert_allclose(np.sort(schedule.step), [0.5, 1.0])
        assert schedule.steady["step"] == pytest.approx(0.5)
    np.testing.assert_allclose(np.sort(polynomial_steps(values, np.ones(4), 4)), [0.5, 1.0])


def test_components_that_are_rounding_carry_no_weight():
    """A parameter map of low rank leaves most eigenvectors without error."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(10, 40)) / 4
    family = ls.Quadratic(A.T @ A + 0.01 * np.eye(40), parameter=ls.Affine(q=-A.T))
    weights = ErrorSpectrum(family).weights(Gaussian(np.zeros(10), np.eye(10)))
    assert np.count_nonzero(weights) == 10
    assert np.max(exact_schedule(family, Gaussian(np.zeros(10), np.eye(10))).step) < 50


def test_a_gaussian_is_checked():
    with pytest.raises(ValueError, match=r"mean \(d,\) and a covariance \(d, d\), got \(2,\) and \(3, 3\)"):
        Gaussian(np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="not symmetric"):
        Gaussian(np.zeros(2), [[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="smallest eigenvalue is -1"):
        Gaussian(np.zeros(2), [[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="NaN"):
        Gaussian([np.nan, 0.0], np.eye(2))
    low_rank = np.random.default_rng(0).normal(size=(30, 2))
    Gaussian(np.zeros(30), low_rank @ low_rank.T)
    with pytest.raises(ValueError, match="read-only"):
        Gaussian(np.zeros(2), np.eye(2)).mean[0] = 1.0


def test_bad_arguments_are_refused():
    family = ls.Quadratic(np.diag([1.0, 4.0]))
    with pytest.raises(ValueError, match="linear term of this family has 2 entries, the Gaussian 3"):
        exact_schedule(family, Gaussian(np.zeros(3), np.eye(3)))
    with pytest.raises(ValueError, match=r"shape \(N, 2\) with N ≥ 1, got \(4, 3\)"):
        exact_schedule(family, np.ones((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        exact_schedule(family, np.full((1, 2), np.nan))
    with pytest.raises(ValueError, match="'distance' or 'metric'"):
        exact_schedule(family, np.ones((1, 2)), objective="speed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        exact_schedule(family, np.ones((1, 2)), horizon=0)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        polynomial_steps(np.ones(2), np.ones(2), 0)
    with pytest.raises(ValueError, match="one length"):
        polynomial_steps(np.ones(2), np.ones(3), 1)
    with pytest.raises(ValueError, match="nonnegative"):
        momentum_schedule(np.ones(2), -np.ones(2), 1)


# Schedules.


@pytest.mark.parametrize("momentum", [False, True])
def test_nothing_to_solve_gives_the_constant(momentum):
    family = ls.Quadratic(np.diag([1.0, 4.0]))
    schedule = exact_schedule(family, np.zeros((3, 2)), momentum=momentum)
    assert len(schedule) == 0
    assert schedule.steady["step"] == step_size(family).default


@given(seed=st.integers(0, 1000), horizon=st.integers(1, 9), block=st.integers(1, 5), objective=st.integers(0, 1))
def test_horizon_and_blocks(seed, horizon, block, objective):
    values, weights = spectrum(seed)
    family = ls.Quadratic(np.diag(values))
    name = ("distance", "metric")[objective]
    schedule = exact_schedule(family, np.sqrt(weights)[None], horizon=horizon, block=block, objective=name)
    lengths = [block] * (horizon // block) + [horizon % block] * (horizon % block > 0)
    expected, _ = block_steps(values, weights, lengths, objective + 1)
    np.testing.assert_allclose(schedule.step, expected, rtol=1e-6)
    assert len(schedule) == horizon


def test_blocks_of_several_lengths():
    values, weights = spectrum(1)
    family = ls.Quadratic(np.diag(values))
    schedule = exact_schedule(family, np.sqrt(weights)[None], horizon=8, block=[1, 3])
    expected, _ = block_steps(values, weights, [1, 3, 3, 1])
    np.testing.assert_allclose(schedule.step, expected, rtol=1e-6)
    assert list(schedule.blocks) == [1, 3, 3, 1]


@pytest.mark.parametrize("momentum", [False, True])
def test_the_solver_follows_the_expected_course(momentum):
    """Instances that make up the weights: their mean squared distance is the loss, step by step."""
    values = np.linspace(0.1, 3.0, 12)
    family, _ = random_quadratic(values)
    errors = np.random.default_rng(5).normal(size=(7, 12))
    schedule = exact_schedule(family, errors, horizon=9, block=4, momentum=momentum)
    algorithm = ls.HeavyBall() if momentum else ls.GradientDescent()
    solver = ls.Solver(family, schedule, algorithm=algorithm)
    q = errors @ family.P.toarray()
    weights = ErrorSpectrum(family).weights(errors)
    expected = expected_losses(ErrorSpectrum(family).eigenvalues, weights, *schedule.varying.values())
    for k in (1, 5, 9):
        x = np.asarray(solver.solve_batch({"q": q}, max_iter=k, eps_abs=0.0, eps_rel=0.0).x)
        np.testing.assert_allclose(np.mean(np.sum((x + errors) ** 2, axis=1)), expected[k], rtol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("momentum", "block"), [(True, 1), (False, 10), (False, 60)])
@pytest.mark.parametrize("condition", [1e2, 1e8])
def test_rounding_errors_do_not_spoil_the_schedule(dtype, momentum, block, condition):
    """Long polynomials and recurrences are unstable on wide spectra; the schedule must not rely on them."""
    n, N = 120, 20
    values = np.logspace(0, np.log10(condition), n) / condition
    family, _ = random_quadratic(values, dtype=dtype)
    errors = np.random.default_rng(1).normal(size=(N, n))
    schedule = exact_schedule(family, errors, horizon=80, block=block, momentum=momentum)
    t = schedule.step.astype(dtype)
    beta = (schedule.momentum if momentum else np.zeros(len(t))).astype(dtype)
    P = family.P.toarray().astype(dtype)
    q = (errors @ family.P.toarray()).astype(dtype)
    z = previous = np.zeros((N, n), dtype)
    for k in range(len(t)):
        z, previous = z - t[k] * (z @ P + q) + beta[k] * (z - previous), z
    reached = np.sum((z + errors) ** 2) / N
    eigen = ErrorSpectrum(family)
    promised = expected_losses(eigen.eigenvalues, eigen.weights(errors), t, beta)
    assert promised[-1] < 0.6 * promised[0]
    assert len(schedule) == 80 or promised[-1] < 1e-9 * promised[0]
    assert reached <= 1.1 * promised[-1] + 1e4 * np.finfo(dtype).eps ** 2 * promised[0]


@pytest.mark.parametrize("momentum", [False, True])
def test_weights_of_very_different_size(momentum):
    # The second weight is rounding beside the first in the measure λω, but not in the loss.
    tiny = exact_schedule(ls.Quadratic(np.diag([1.0, 1e-10])), [[1.0, 1e-10]], momentum=momentum)
    assert tiny.step[0] == pytest.approx(1.0)
    assert len(tiny) == 50
    # Coefficients of a recurrence that cannot be computed to enough digits are not used.
    values, weights = np.logspace(-6, 0, 8), np.logspace(0, -20, 8)
    wide = exact_schedule(ls.Quadratic(np.diag(values)), np.sqrt(weights)[None], momentum=momentum)
    losses = expected_losses(values, weights, *wide.varying.values())
    assert losses[-1] < 0.01 * losses[0]


@given(seed=st.integers(0, 10_000), momentum=st.booleans(), metric=st.booleans())
def test_no_spectrum_makes_a_schedule_that_harms(seed, momentum, metric):
    """Repeated and vanishing eigenvalues, zero weights, any condition number, both precisions."""
    rng = np.random.default_rng(seed)
    n, dtype = int(rng.integers(1, 40)), str(rng.choice(["float32", "float64"]))
    values = 10 ** (rng.uniform(-11, 0, n) * rng.choice([0.1, 0.5, 1.0]))
    if rng.random() < 0.3:
        values = rng.choice(values[: 1 + n // 3], n)
    values[rng.random(n) < 0.1] = 0
    values[0] = 1.0
    weights = 10 ** rng.uniform(-rng.choice([1, 3, 20]), 0, n) * (rng.random(n) < 0.8)
    weights[values == 0] = 0
    weights[0] += 0.1
    schedule = exact_schedule(
        ls.Quadratic(np.diag(values), dtype=dtype),
        np.sqrt(weights)[None],
        horizon=int(rng.integers(1, 90)),
        block=int(rng.integers(1, 30)),
        momentum=momentum,
        objective="metric" if metric else "distance",
    )
    assert len(schedule) > 0
    t, beta = schedule.step, schedule.momentum if momentum else np.zeros(len(schedule))
    z = previous = np.sqrt(weights).astype(dtype)
    for k in range(len(t)):
        rounded = t[k].astype(dtype) * values.astype(dtype)
        z, previous = z - rounded * z + beta[k].astype(dtype) * (z - previous), z
    scale = values if metric else 1.0
    assert np.sum(scale * z.astype(np.float64) ** 2) < np.sum(scale * weights)


def test_a_schedule_ends_where_the_error_is_rounding():
    values = np.linspace(0.5, 1.0, 30)
    family = ls.Quadratic(np.diag(values))
    for dtype, longest in (("float64", 40), ("float32", 20)):
        family = ls.Quadratic(np.diag(values), dtype=dtype)
        for momentum in (False, True):
            schedule = exact_schedule(family, np.ones((1, 30)), horizon=200, momentum=momentum)
            left = expected_losses(values, np.ones(30), *schedule.varying.values())
            assert len(schedule) < longest
            assert left[-1] < 1e4 * np.finfo(dtype).eps ** 2 * left[0]


# Ridge regression, 500×1000.


class Ridge:
    """P = A'A + 0.02·I with b ~ N(0, I), and 200 fresh instances in the eigenbasis."""

    def __init__(self):
        A = np.random.RandomState(42).randn(500, 1000) / np.sqrt(500)
        A /= np.linalg.norm(A, axis=0)
        self.family = ls.Quadratic(A.T @ A + 0.02 * np.eye(1000), parameter=ls.Affine(q=-A.T))
        eigen = ErrorSpectrum(self.family)
        self.values, self.weights = eigen.eigenvalues, eigen.weights(Gaussian(np.zeros(500), np.eye(500)))
        self.live = self.weights > 0
        b = np.random.default_rng(142).normal(size=(500, 200))
        self.errors = (eigen.coordinates(-A.T @ b) / self.values[:, None])[self.live]

    def counts(self, steps, momentum=None, total=105):
        """First touches of the tolerances by the geometric mean suboptimality, and from where it stays below."""
        rest = total - len(steps)
        steps = np.append(steps, np.full(rest, step_size(self.family).default))
        momentum = np.zeros(total) if momentum is None else np.append(momentum, np.zeros(rest))
        values = self.values[self.live][:, None]
        z, previous, curve = self.errors, self.errors, [self.mean(self.errors)]
        for t, beta in zip(steps, momentum, strict=True):
            z, previous = z - t * values * z + beta * (z - previous), z
            curve.append(self.mean(z))
        return self.reached(np.array(curve))

    def mean(self, z):
        suboptimality = 0.5 * np.sum(self.values[self.live][:, None] * z**2, axis=0)
        return np.exp(np.mean(np.log(np.maximum(suboptimality, 1e-16))))

    @staticmethod
    def reached(curve):
        below = curve[None] <= TOLERANCES[:, None]
        first = np.where(below.any(axis=1), below.argmax(axis=1), np.inf)
        return first, len(curve) - np.logical_and.accumulate(below[:, ::-1], axis=1).sum(axis=1)

    def conjugate_gradients(self, total=40):
        values = self.values[self.live][:, None]
        z, r = self.errors, -values * self.errors
        p, curve = r, [self.mean(z)]
        for _ in range(total):
            alpha = np.sum(r * r, axis=0) / np.sum(values * p * p, axis=0)
            z, new = z + alpha * p, r - alpha * values * p
            p, r = new + np.sum(new * new, axis=0) / np.sum(r * r, axis=0) * p, new
            curve.append(self.mean(z))
        return self.reached(np.array(curve))


@pytest.fixture(scope="module")
def ridge():
    return Ridge()


def lengths(block, horizon=50):
    return [min(block, horizon - k) for k in range(0, horizon, block)]


def test_ridge_oracle(ridge):
    """Expected suboptimality ½Σλω of steps trained for distance, with penalty ½·0.01‖z‖²."""
    values = ridge.values - 0.01
    weights = ridge.weights * (ridge.values / values) ** 2
    np.testing.assert_allclose(values.max(), 5.735742556, rtol=2e-10)
    for block, expected in ((1, 7.8309e-3), (2, 5.5313e-5), (3, 1.12295e-6)):
        _, after = block_steps(values, weights, lengths(block, 48))
        assert 0.5 * np.sum(values * after[-1]) == pytest.approx(expected, rel=1e-5)
    steps, after = block_steps(values, weights, lengths(10))
    expected = [0.211228, 4.19144e-4, 1.16502e-6, 3.1984e-9, 9.879e-12]
    np.testing.assert_allclose([0.5 * np.sum(values * w) for w in after], expected, rtol=4e-5)
    np.testing.assert_allclose(expected_losses(values, weights, steps, power=2)[10::10] / 2, expected, rtol=4e-5)


# First touches in the table of the method's description; the steady state from 50 on depends on the draw of A.
TABLE = {
    1: [30, 44, 65, np.inf, np.inf, np.inf],
    2: [20, 28, 36, 44, 93, np.inf],
    3: [15, 21, 27, 33, 48, 91],
    10: [11, 16, 20, 25, 30, 38],
}


@pytest.mark.parametrize("block", TABLE)
def test_ridge_table(ridge, block):
    steps, _ = block_steps(ridge.values, ridge.weights, lengths(block))
    first, stays = ridge.counts(steps)
    assert np.all(first <= np.array(TABLE[block]) + 1)
    if block == 10:
        assert np.all(stays <= np.array(TABLE[block]) + 1)
        # Optimal blocks of the same length for suboptimality are at least as good in it.
        metric, _ = block_steps(ridge.values, ridge.weights, lengths(block), 2)
        assert np.all(ridge.counts(metric)[1] <= np.array(TABLE[block]) + 1)


def test_ridge_momentum_is_as_good_as_conjugate_gradients(ridge):
    for power, table in ((1, [11, 14, 18, 21, 28, 34]), (2, [10, 13, 17, 20, 27, 33])):
        schedule = momentum_schedule(ridge.values, ridge.weights, 50, power)
        first, stays = ridge.counts(*schedule, total=60)
        assert np.all(first <= np.array(table) + 1)
        np.testing.assert_array_equal(first, stays)
    gradients, _ = ridge.conjugate_gradients()
    assert np.all(first <= gradients + 1)
    assert np.all(gradients <= first)


def test_ridge_blocks_beat_chebyshev_steps(ridge):
    chebyshev = np.tile(ls.chebyshev(ridge.values.max(), ridge.values.min(), 10).step, 5)
    steps, _ = block_steps(ridge.values, ridge.weights, lengths(10))
    ours, theirs = (expected_losses(ridge.values, ridge.weights, s) for s in (steps, chebyshev))
    assert np.all(ours[10::10] <= theirs[10::10])


def test_ridge_loss_does_not_rise_inside_the_first_block(ridge):
    steps, _ = block_steps(ridge.values, ridge.weights, [10])
    assert np.all(expected_losses(ridge.values, ridge.weights, steps)[1:] < np.sum(ridge.weights))


def test_ridge_schedule_from_the_gaussian(ridge):
    schedule = exact_schedule(ridge.family, Gaussian(np.zeros(500), np.eye(500)), momentum=True, objective="metric")
    t, beta = momentum_schedule(ridge.values, ridge.weights, 50, 2)
    np.testing.assert_allclose(schedule.step, t, rtol=1e-9)
    np.testing.assert_allclose(schedule.momentum, beta, rtol=1e-9)
    ls.Solver(ridge.family, schedule, algorithm=ls.HeavyBall())


def test_the_steady_state_knows_where_errors_are():
    """Ridge with more unknowns than measurements: along half of the eigenvectors no instance has an error."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(100, 200)) / 10
    A /= np.linalg.norm(A, axis=0)
    family = ls.Quadratic(A.T @ A + 0.02 * np.eye(200), parameter=ls.Affine(q=-A.T))
    data = ls.Dataset.sample(
        family, lambda rng: rng.normal(size=100), {"train": 10, "test": 50}, cache=False, progress=False
    )
    trained = ls.train(family, data, horizon=50, block=1, cache=False, progress=False)
    usual = ls.Schedule(trained.schedule.varying, {"step": 2 / (family.lipschitz + family.strong_convexity)})
    schedules = (trained.schedule, trained.constant, usual)
    learned, flat, before = (
        ls.evaluate(ls.Solver(family, each), data.test, 500, timed=False).reached(1e-8)[1] for each in schedules
    )
    assert learned <= flat
    assert learned < 0.5 * before


def test_single_steps_end_in_the_better_constant():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(12, 20, 4))
    lipschitz = 4 * max(np.linalg.norm(r, 2) ** 2 for r in rows) / 80 + 0.1
    family = ls.Smooth(
        lambda z, x: jnp.mean(jnp.logaddexp(0.0, -x @ z)) + 0.05 * z @ z, lipschitz, 4, strong_convexity=0.1
    )
    data = ls.Dataset.from_parameters(family, {"train": rows}, cache=False, progress=False)
    trained = ls.train(family, data, horizon=10, block=1, loss="distance", cache=False, progress=False)
    # L is four times too large here: the default, 2/(L + μ), is not the best constant.
    assert trained.schedule.steady["step"] == trained.constant.steady["step"]
