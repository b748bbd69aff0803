"""Bounds from samples: published values, SciPy's intervals, a plain transcription, laws, and Monte Carlo."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given
from scipy import optimize, stats

from longstep.certificates.sample import (
    TOLERANCES,
    kl,
    kl_lower,
    kl_upper,
    quantile_bounds,
    quantile_curves,
    required_samples,
    risk_bounds,
    risk_lower,
    risk_upper,
    success_bounds,
    success_lower,
)

METHODS = ("kl", "exact")
risks = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-3, 0.5])
bounds = st.floats(0, 3) | st.floats(1e-8, 1e-2)


@st.composite
def counts(draw):
    N = draw(st.integers(1, 3000))
    return draw(st.integers(0, N)), N


def plain_kl(p, q):
    first = 0.0 if p == 0 else p * math.log(p / q)
    return first + (0.0 if p == 1 else (1 - p) * math.log((1 - p) / (1 - q)))


# The inverse of kl.


def test_published_values():
    c = math.log(2 / 1e-5) / 1000
    assert round(c, 7) == 0.0122061
    found = kl_upper(np.array([0, 1, 4, 5]) / 1000, c)
    np.testing.assert_allclose(found, [0.0121319, 0.0158582, 0.0230228, 0.0250603], atol=5.1e-8)
    np.testing.assert_array_equal(risk_bounds([0, 1, 4, 5], 1000, 1e-5, "kl")[1], found)


@given(risk=risks, bound=bounds)
def test_kl_is_inverted(risk, bound):
    upper, lower = kl_upper(risk, bound), kl_lower(risk, bound)
    assert 0 <= lower <= risk + 1e-15
    assert risk <= upper <= 1
    # At the ends of [0, 1] numbers are too far apart for kl, which has a pole there.
    if upper < 1 - 1e-5 and bound > 1e-8:
        assert abs(plain_kl(risk, upper) - bound) < 1e-9
    if lower > 1e-5 and bound > 1e-8:
        assert abs(plain_kl(risk, lower) - bound) < 1e-9


@given(risk=st.floats(0, 0.999), bound=st.floats(1e-6, 2))
def test_kl_upper_is_the_root_that_scipy_finds(risk, bound):
    # Otherwise the root is nearer to one than any number.
    assume(plain_kl(risk, 1 - 1e-16) > bound)
    root = optimize.brentq(lambda p: plain_kl(risk, p) - bound, max(risk, 1e-15), 1 - 1e-16, xtol=1e-14)
    assert abs(kl_upper(risk, bound) - root) < 1e-9


def test_kl_at_the_ends():
    assert kl_upper(0.0, 0.1) == pytest.approx(1 - math.exp(-0.1), abs=1e-15)
    assert kl_upper(1.0, 0.1) == 1
    assert kl_lower(0.0, 0.1) == 0
    assert kl_lower(1.0, 0.1) == pytest.approx(math.exp(-0.1), abs=1e-15)
    np.testing.assert_allclose(kl_upper([0.0, 0.3, 1.0], 0.0), [0.0, 0.3, 1.0], atol=1e-15)
    assert kl_upper(0.3, np.inf) == 1
    assert kl(0.0, 1.0) == kl(1.0, 0.0) == np.inf
    assert kl(0.0, 0.0) == kl(1.0, 1.0) == 0


@given(pair=st.tuples(risks, risks), bound=bounds)
def test_kl_bounds_grow_with_the_risk(pair, bound):
    small, large = sorted(pair)
    assert kl_upper(small, bound) <= kl_upper(large, bound) + 1e-15
    assert kl_lower(small, bound) <= kl_lower(large, bound) + 1e-15


@given(risk=risks, pair=st.tuples(bounds, bounds))
def test_kl_bounds_widen(risk, pair):
    small, large = sorted(pair)
    assert kl_upper(risk, small) <= kl_upper(risk, large)
    assert kl_lower(risk, small) >= kl_lower(risk, large)


def test_arrays_are_the_entries():
    risk, c = np.array([[0.0], [0.2], [1.0]]), np.array([0.01, 0.5])
    for function in (kl_upper, kl_lower):
        table = function(risk, c)
        assert table.shape == (3, 2)
        for i, j in np.ndindex(3, 2):
            assert table[i, j] == function(risk[i, 0], c[j])
    v, N = np.array([0, 3, 40]), np.array([10, 50, 40])
    for method in METHODS:
        np.testing.assert_array_equal(
            risk_upper(v, N, 0.1, method), [risk_upper(a, b, 0.1, method) for a, b in zip(v, N, strict=True)]
        )


# Risks.


@given(case=counts(), delta=st.floats(1e-8, 0.5))
def test_exact_bounds_are_scipys(case, delta):
    v, N = case
    interval = stats.binomtest(v, N).proportion_ci(1 - delta, "exact")
    np.testing.assert_allclose(risk_bounds(v, N, delta, "exact"), [interval.low, interval.high], atol=1e-9)
    upper = stats.binomtest(v, N, alternative="less").proportion_ci(1 - delta, "exact").high
    lower = stats.binomtest(v, N, alternative="greater").proportion_ci(1 - delta, "exact").low
    assert risk_upper(v, N, delta) == pytest.approx(upper, abs=1e-9)
    assert risk_lower(v, N, delta) == pytest.approx(lower, abs=1e-9)


@given(case=counts(), delta=st.floats(1e-8, 0.9))
def test_exact_bounds_lie_inside_kl_bounds_and_contain_the_fraction(case, delta):
    v, N = case
    kl_low, kl_high = risk_bounds(v, N, delta, "kl")
    low, high = risk_bounds(v, N, delta, "exact")
    assert kl_low <= low + 1e-12
    assert low <= v / N + 1e-12
    assert v / N <= high + 1e-12
    assert high <= kl_high + 1e-12


@pytest.mark.parametrize("method", METHODS)
@given(case=counts(), delta=st.floats(1e-8, 0.4))
def test_sides_and_successes(method, case, delta):
    v, N = case
    low, high = risk_bounds(v, N, delta, method)
    assert success_bounds(v, N, delta, method) == (1 - high, 1 - low)
    # A pair gives half of δ to each side, so a single claim is never weaker.
    assert risk_upper(v, N, delta / 2, method) == high
    assert risk_upper(v, N, delta, method) <= high
    assert success_lower(v, N, delta, method) == 1 - risk_upper(v, N, delta, method)
    assert risk_lower(v, N, delta, method) == pytest.approx(1 - risk_upper(N - v, N, delta, method), abs=1e-12)
    if v < N:
        assert risk_upper(v + 1, N, delta, method) > risk_upper(v, N, delta, method) or v + 1 == N
        assert risk_upper(v, N + 1, delta, method) < risk_upper(v, N, delta, method)


def test_kl_pair_is_the_formula():
    low, high = risk_bounds(7, 200, 0.03, "kl")
    assert plain_kl(7 / 200, low) == pytest.approx(math.log(2 / 0.03) / 200)
    assert plain_kl(7 / 200, high) == pytest.approx(math.log(2 / 0.03) / 200)


# Quantiles.


def test_four_violations_certify_and_five_do_not():
    for violations, certified in ((0, 1e-6), (4, 1e-6), (5, np.inf)):
        values = np.full((1000, 1), 1e-9)
        values[:violations] = 1.0
        curves = quantile_curves(values, tolerances=[1e-6])
        assert curves.upper == [certified]
        assert curves.lower == [0.0]


def test_confidence():
    values = np.ones((10, 6))
    assert quantile_curves(values).confidence() == pytest.approx(0.99698, abs=1e-12)
    assert quantile_curves(values).confidence(6) == pytest.approx(1 - 6 * 2 * 151e-5)
    shared = quantile_curves(values, joint=6)
    assert shared.confidence(6) == pytest.approx(0.99698, abs=1e-12)
    assert shared.confidence() == pytest.approx(1 - 2 * 151e-5 / 6)
    assert quantile_curves(values, delta=0.1).confidence() == 0
    assert len(TOLERANCES) == 151
    np.testing.assert_allclose(TOLERANCES[[0, 10, 150]], [1e-10, 1e-9, 1e5])


def plain_curves(values, level, delta):
    """One tolerance at a time, with the bounds from SciPy's root finder."""
    upper, lower = np.full(values.shape[1], np.inf), np.zeros(values.shape[1])

    def excess(p, risk):
        return plain_kl(risk, p) - math.log(2 / delta) / len(values)

    for k in range(values.shape[1]):
        for tolerance in np.logspace(-10, 5, 151):
            risk = np.mean([not value < tolerance for value in values[:, k]])
            above = 1.0 if risk == 1 else optimize.brentq(excess, risk + 1e-14, 1 - 1e-15, args=(risk,))
            below = 0.0 if risk == 0 else optimize.brentq(excess, 1e-15, risk - 1e-14, args=(risk,))
            if above < 1 - level:
                upper[k] = min(upper[k], tolerance)
            if below > level:
                lower[k] = max(lower[k], tolerance)
    return upper, lower


def test_curves_are_the_definition():
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(scale=[0.3, 2.0, 8.0, 8.0], size=(300, 4)) - [0, 5, 5, 20])
    values[:40, 3] = np.nan
    values[0, 1], values[1, 1] = np.inf, -1e-17
    for level, delta in ((0.9, 1e-3), (0.5, 1e-5)):
        curves = quantile_curves(values, level, delta)
        upper, lower = plain_curves(values, level, delta)
        np.testing.assert_array_equal(curves.upper, upper)
        np.testing.assert_array_equal(curves.lower, lower)
        assert np.isfinite(upper[:3]).all()
        assert (lower[:3] > 0).all()


def test_a_tolerance_that_is_met_exactly_is_violated():
    values = np.full((1000, 1), 1e-6)
    assert quantile_curves(values, tolerances=[1e-6, 1e-5]).upper == [1e-5]
    assert quantile_curves(values, tolerances=[1e-6, 1e-5]).lower == [1e-6]


def test_instances_that_blew_up_are_not_dropped():
    values = np.full((1000, 1), 1e-6)
    values[:5] = np.nan
    assert quantile_curves(values).upper == [np.inf]
    values[:5] = np.inf
    assert quantile_curves(values).upper == [np.inf]


@given(seed=st.integers(0, 200), level=st.sampled_from([0.5, 0.8, 0.95]), method=st.sampled_from(METHODS))
def test_larger_values_have_larger_curves(seed, level, method):
    rng = np.random.default_rng(seed)
    small = np.exp(3 * rng.normal(size=(120, 3)))
    large = small * np.exp(rng.random(small.shape) * rng.integers(0, 2, size=(1, 3)))
    one, two = (quantile_curves(values, level, 1e-3, method=method) for values in (small, large))
    assert (one.upper <= two.upper).all()
    assert (one.lower <= two.lower).all()
    # The wider confidence moves them apart.
    joint = quantile_curves(small, level, 1e-3, joint=50, method=method)
    assert (joint.upper >= one.upper).all()
    assert (joint.lower <= one.lower).all()
    assert (one.lower <= np.quantile(small, 1 - level, axis=0)).all()
    assert (one.upper >= np.quantile(small, level, axis=0)).all()


# Sizes of samples.


@pytest.mark.parametrize("success", [0.9, 0.975, 0.999])
@pytest.mark.parametrize("confidence", [0.9, 0.99999])
def test_samples_without_violations(success, confidence):
    N = math.ceil(math.log(1 - confidence) / math.log(success))
    assert required_samples(success, confidence) == N
    assert required_samples(success, confidence, method="kl") == N


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("success", "confidence", "expected"),
    [(0.9, 0.9, 0.05), (0.9, 0.99, 1 / 30), (0.975, 0.99999, 0.004), (0.8, 0.95, 0.15), (0.5, 0.6, 0.01)],
)
def test_samples_are_the_smallest_from_which_all_do(method, success, confidence, expected):
    N = required_samples(success, confidence, expected, method)
    rate = Fraction(expected).limit_denominator(1000)
    sizes = np.arange(1, 3 * N + 500)
    violations = np.array([math.floor(rate * int(size)) for size in sizes])
    enough = success_lower(violations, sizes, 1 - confidence, method) >= success
    assert sizes[~enough][-1] + 1 == N


def test_the_exact_bound_needs_fewer():
    assert required_samples(0.975, 0.99999, 0.01) == 1611
    assert required_samples(0.975, 0.99999, 0.01, "kl") == 1914


# Bad input.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kl_upper(1.2, 0.1), "risks"),
        (lambda: kl_upper(np.nan, 0.1), "risks"),
        (lambda: kl_upper(0.2, -0.1), "negative"),
        (lambda: risk_bounds(5, 4, 0.1), "violations ≤ instances"),
        (lambda: risk_bounds(0, 0, 0.1), "at least one"),
        (lambda: risk_bounds(0.5, 4, 0.1), "whole"),
        (lambda: risk_bounds(1, 4, 0.0), "delta"),
        (lambda: risk_bounds(1, 4, 0.1, "normal"), "'kl' or 'exact'"),
        (lambda: quantile_curves(np.ones(4)), "shape"),
        (lambda: quantile_curves(np.ones((4, 1)), 1.0), "level"),
        (lambda: quantile_curves(np.ones((4, 1)), tolerances=[2.0, 1.0]), "increase"),
        (lambda: quantile_curves(np.ones((4, 1)), tolerances=[0.0, 1.0]), "positive"),
        (lambda: quantile_curves(np.ones((4, 1)), joint=0), "joint"),
        (lambda: required_samples(0.9, 0.99, 0.1), "expect fewer"),
        (lambda: required_samples(1.0, 0.99), "success"),
        (lambda: required_samples(0.9, 0.99, 0.1 - 1e-9), "instances"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Monte Carlo: what holds with probability 1 − δ must not fail more often in simulated validation sets.

SETS = 2000


def allowed(probability):
    """No more failures than this, but for a false alarm once in 10⁸ checks."""
    return stats.binom.isf(1e-8, SETS, min(probability, 1.0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("N", [20, 200, 1000])
def test_bounds_fail_as_rarely_as_promised(method, N):
    rng = np.random.default_rng(N)
    for risk in (0.002, 0.025, 0.1, 0.5, 0.975):
        violations = rng.binomial(N, risk, size=SETS)
        for delta in (0.1, 0.02):
            above = risk_upper(violations, N, delta, method) < risk
            below = risk_lower(violations, N, delta, method) > risk
            lower, upper = risk_bounds(violations, N, delta, method)
            for failures in (above, below, (risk < lower) | (risk > upper)):
                assert np.sum(failures) <= allowed(delta)


@pytest.mark.parametrize("method", METHODS)
def test_shrunken_bounds_are_found_out(method):
    """The test above has the power to see bounds that are too narrow, and the exact ones are nearly as narrow."""
    rng = np.random.default_rng(5)
    N, risk, delta = 1000, 0.1, 0.1
    violations = rng.binomial(N, risk, size=SETS)
    upper = risk_upper(violations, N, delta, method)
    shrunken = violations / N + 0.4 * (upper - violations / N)
    assert np.sum(shrunken < risk) > allowed(delta)
    if method == "exact":
        assert np.sum(upper < risk) > 0.5 * delta * SETS


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("N", [60, 300, 1000])
@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_curves_fail_as_rarely_as_promised(method, N, spread):
    """A lognormal metric at two iteration counts. Tolerances lie beside the true quantiles, where failing is easy."""
    rng = np.random.default_rng(N)
    level, location = 0.8, np.array([0.0, -2.0])
    high, low = (np.exp(location + spread * stats.norm.ppf(q)) for q in (level, 1 - level))
    tolerances = np.sort(np.concatenate([[1e-6, 1e6], high * (1 - 1e-6), low * (1 + 1e-6)]))
    samples = np.exp(location[:, None, None] + spread * rng.normal(size=(2, N, SETS)))

    def failures(delta, joint):
        found = [quantile_curves(values, level, delta, tolerances, joint=joint, method=method) for values in samples]
        wrong = [(c.upper < high[i]) | (c.lower > low[i]) for i, c in enumerate(found)]
        return np.array(wrong), found[0]

    for delta in (0.1 / 12, 0.02):
        wrong, curves = failures(delta, 1)
        assert np.max(np.sum(wrong, axis=1)) <= allowed(1 - curves.confidence())
        together, curves = failures(delta, 2)
        assert np.sum(together.any(axis=0)) <= allowed(1 - curves.confidence(2))
    # Bounds that fail far too often would have been seen to break the first promise.
    assert np.min(np.sum(failures(0.9, 1)[0], axis=1)) > allowed(0.1)


# Order statistics.


def test_the_numbers_of_order_statistics():
    """Five iteration counts, both sides, confidence 0.997: nine violations in 1000, and 321 instances without one."""
    delta = 0.003 / 10
    for v, holds in ((9, True), (10, False)):
        assert (risk_upper(v, 1000, delta) <= 0.025) == holds
    values = np.arange(1.0, 1001)[:, None]
    upper, lower = quantile_bounds(values, 0.975, delta)
    assert np.sum(~(values < upper)) == 9
    assert np.sum(values < lower) == 9
    for count, found in ((321, True), (320, False)):
        upper, lower = quantile_bounds(np.ones((count, 2)), 0.975, delta)
        assert (np.isfinite(upper).all(), (lower > 0).all()) == (found, found)


@given(seed=st.integers(0, 100), ties=st.booleans())
def test_order_statistics_cover(seed, ties):
    """The probability that the bound fails, exactly: it does where too many of N draws lie beyond the true quantile."""
    rng = np.random.default_rng(seed)
    N, level, delta = int(rng.integers(20, 400)), rng.choice([0.5, 0.8, 0.95]), 10 ** rng.uniform(-3, -1)
    draws = rng.random((N, 200))
    if ties:
        draws = np.ceil(20 * draws) / 20
    upper, lower = quantile_bounds(draws, level, delta)
    true_upper = np.where(ties, np.floor(20 * upper) / 20, upper)  # P(φ < upper) for uniform or rounded φ
    fails = np.mean(true_upper < level - 1e-9)
    assert fails <= delta + 4 * np.sqrt(delta / 200)
    not_below = 1 - np.where(ties, np.ceil(20 * lower - 1e-9) / 20 - 1 / 20, lower)
    assert np.mean(not_below < level - 1e-9) <= delta + 4 * np.sqrt(delta / 200)


def test_what_blew_up_counts_in_order_statistics():
    values = np.full((1000, 1), 1e-6)
    values[:9] = np.nan
    assert quantile_bounds(values, 0.975, 3e-4)[0][0] < 1.1e-6
    values[9] = np.inf
    assert quantile_bounds(values, 0.975, 3e-4)[0] == [np.inf]
