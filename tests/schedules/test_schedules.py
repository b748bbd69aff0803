"""Schedules, domains and the classical steps."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import longstep as ls
from longstep.schedules.classical import leja_order
from longstep.schedules.domain import Fixed, Interval, Positive, Real

DOMAINS = [Positive(), Interval(0.0, 2.0), Interval(0.0, 0.3, margin=3e-4), Real()]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: d.describe())
@given(nu=st.floats(-20, 20))
def test_constrain_lands_inside_and_unconstrain_inverts(domain, nu):
    theta = domain.constrain(np.asarray(nu))
    assert domain.contains(theta)
    again = domain.constrain(domain.unconstrain(theta))
    np.testing.assert_allclose(again, theta, rtol=1e-6, atol=1e-9)
    ahead, behind = domain.constrain(np.asarray(nu + 1e-5)), domain.constrain(np.asarray(nu - 1e-5))
    np.testing.assert_allclose(domain.slope(np.asarray(nu)), (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("domain", [*DOMAINS, Fixed(0.0)], ids=lambda d: d.describe())
def test_nan_is_never_admissible(domain):
    assert not domain.contains(np.nan)


def test_interval_keeps_its_margin():
    domain = Interval(0.0, 2.0, margin=1e-3)
    assert domain.contains(1e-3)
    assert domain.contains(2 - 1e-3)
    assert not domain.contains(1.9999)
    assert not domain.contains(0.0)
    assert Fixed(0.0).contains(0.0)


def make():
    return ls.Schedule({"rho": [1.0, 2.0, 3.0], "alpha": [1.0, 1.5, 1.7]}, {"rho": 0.5, "alpha": 1.6})


def test_schedule_is_indexable():
    s = make()
    assert len(s) == 3
    assert s.rho[1] == 2.0
    assert s["alpha"][-1] == 1.7
    assert s[0] == {"rho": 1.0, "alpha": 1.0}
    assert s[3] == s[1000] == s.steady == {"rho": 0.5, "alpha": 1.6}
    assert [t["rho"] for t in s] == [1.0, 2.0, 3.0]
    with pytest.raises(AttributeError, match="has rho, alpha"):
        _ = s.sigma
    with pytest.raises(KeyError, match="has rho, alpha"):
        s["sigma"]
    with pytest.raises(IndexError, match="numbered from 0"):
        s[-1]


def test_schedule_is_a_value():
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != ls.Schedule({}, {"rho": 0.5, "alpha": 1.6})
    assert ls.Schedule.from_json(make().to_json()) == make()
    with pytest.raises(ValueError, match="read-only"):
        make().rho[0] = 5.0


def test_schedule_prints_itself():
    text = repr(make())
    assert text.splitlines()[0] == "Schedule(3 steps, then steady)"
    assert text.splitlines()[-1].split() == ["3…", "0.5", "1.6"]
    long = ls.Schedule({"step": np.arange(1.0, 51.0)}, {"step": 1.0})
    assert len(repr(long).splitlines()) < 20


def test_schedule_refuses_nonsense():
    with pytest.raises(ValueError, match="differ"):
        ls.Schedule({"rho": [1.0]}, {"alpha": 1.0})
    with pytest.raises(ValueError, match="one value per step"):
        ls.Schedule({"rho": [1.0], "alpha": [1.0, 2.0]}, {"rho": 1.0, "alpha": 1.0})
    with pytest.raises(ValueError, match="needs a steady state"):
        ls.Schedule({"rho": [1.0]}, {})
    assert len(ls.Schedule({}, {})) == 0
    with pytest.raises(ValueError, match="has the hyperparameters step"):
        ls.Solver(FAMILY, ls.Schedule({}, {}))


FAMILY = ls.Quadratic(np.diag([1.0, 4.0]), q=np.ones(2))


def test_steady_state_outside_its_range_is_refused_with_the_range():
    # 2/L = 0.5, with a margin of 1e-3 of that.
    with pytest.raises(ValueError, match=r"step = 0.5 is outside \[0.0005, 0.4995\]"):
        ls.Solver(FAMILY, ls.Schedule({}, {"step": 0.5}))
    ls.Solver(FAMILY, ls.Schedule({"step": [5.0]}, {"step": 0.4995}))
    with pytest.raises(ValueError, match="step = -1 at step 0 is not admissible"):
        ls.Solver(FAMILY, ls.Schedule({"step": [-1.0]}, {"step": 0.1}))
    with pytest.raises(ValueError, match=r"momentum = 0.5 is outside \{0\}"):
        ls.Solver(FAMILY, ls.Schedule({}, {"step": 0.1, "momentum": 0.5}), algorithm=ls.HeavyBall())
    qp = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0])
    with pytest.raises(ValueError, match=r"alpha = 2 is outside \[0.001, 1.999\]"):
        ls.Solver(qp, alpha=2.0)
    with pytest.raises(ValueError, match="GradientDescent has the hyperparameters step; the schedule has rho"):
        ls.Solver(FAMILY, ls.Schedule({}, {"rho": 0.1}))


def product(steps, lam):
    return np.prod([1 - t * lam for t in steps], axis=0)


def test_chebyshev_is_minimax():
    """The error polynomial equals the scaled Chebyshev polynomial: largest value 1/T_B((L+mu)/(L−mu))."""
    L, mu, B = 5.0, 0.2, 8
    schedule = ls.chebyshev(L, mu, B)
    lam = np.linspace(mu, L, 20_001)
    expected = 1 / np.cosh(B * np.arccosh((L + mu) / (L - mu)))
    np.testing.assert_allclose(np.max(np.abs(product(schedule.step, lam))), expected, rtol=1e-6)
    assert schedule.steady["step"] == 2 / (L + mu)
    ls.Solver(ls.Quadratic(np.diag([mu, L])), schedule)


def test_silver_steps():
    r = np.sqrt(2)
    np.testing.assert_allclose(ls.silver(2.0, 3).step * 2, [r, 2, r, 2 + r, r, 2, r])
    assert len(ls.silver(1.0, 6)) == 63
    # One step of the strongly convex schedule is 2/(L + mu); two steps follow from the recursion by hand.
    L, mu = 10.0, 1.0
    np.testing.assert_allclose(ls.silver_strongly_convex(L, mu, 0).step, [2 / (L + mu)])
    xi = 1 - mu / L
    growth = xi + np.sqrt(1 + xi**2)
    psi = lambda t: (1 + L / mu * t) / (1 + t) / L  # noqa: E731
    np.testing.assert_allclose(ls.silver_strongly_convex(L, mu, 1).step, [psi(mu / L / growth), psi(mu / L * growth)])
    assert len(ls.silver_strongly_convex(L, mu, 5)) == 32


def test_silver_beats_constant_steps_on_the_worst_smooth_function():
    """On the Huber function that is worst for constant steps, silver's rate K^-1.27 shows against K^-1."""
    K = 63

    def descend(steps, slope):
        z = 1.0
        for t in steps:
            z = z - t * np.clip(z, -slope, slope)
        return slope * abs(z) - slope**2 / 2 if abs(z) > slope else z**2 / 2

    slopes = np.logspace(-4, 0, 4001)
    worst = lambda steps: max(descend(steps, s) for s in slopes)  # noqa: E731
    silver, constant = worst(ls.silver(1.0, 6).step), worst(np.ones(K))
    assert constant == pytest.approx(1 / (4 * K + 2), rel=0.02)
    # Theory (Altschuler and Parrilo): at most 1/(1 + sqrt(4 ρ^{2k} − 3)), ρ = 1 + √2, K = 2^k − 1.
    assert silver <= 1 / (1 + np.sqrt(4 * (1 + np.sqrt(2)) ** 12 - 3)) + 1e-9
    assert silver < constant / 3


@given(seed=st.integers(0, 200), n=st.integers(1, 30))
def test_leja_order_is_a_permutation(seed, n):
    points = np.random.default_rng(seed).uniform(0.1, 5, n)
    ordered = leja_order(points)
    np.testing.assert_allclose(np.sort(ordered), np.sort(points))
    assert ordered[0] == points.max()


def test_leja_order_keeps_partial_products_small():
    schedule = ls.chebyshev(1.0, 1e-3, 32)
    lam = np.linspace(1e-3, 1, 2001)
    growth = lambda steps: max(np.max(np.abs(product(steps[: k + 1], lam))) for k in range(32))  # noqa: E731
    assert growth(schedule.step) < 1e3
    assert growth(np.sort(schedule.step)[::-1]) > 1e12


def test_classical_steps_refuse_bad_constants():
    with pytest.raises(ValueError, match="strong convexity"):
        ls.chebyshev(1.0, 0.0, 4)
    with pytest.raises(ValueError, match="0 < L"):
        ls.silver(-1.0, 4)
    with pytest.raises(ValueError, match="at least one step"):
        ls.silver(1.0, 0)
