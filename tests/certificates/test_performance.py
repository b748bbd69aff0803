"""Exact worst cases: theorems that give them in closed form, a program of our own, and functions that attain them."""

import itertools
import math
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.certificates import performance
from longstep.certificates.performance import worst_case, worst_case_curve
from longstep.certificates.rates import interval_rate

pytest.importorskip("PEPit", reason="performance estimation needs PEPit: pip install PEPit")
cvxpy = pytest.importorskip("cvxpy", reason="performance estimation needs CVXPY: pip install cvxpy")

RHO = 1 + math.sqrt(2)
# The answers are proved bounds: never below the theorem (but for rounding), and this close above it.
CLOSE = 2e-5
gradient, heavy = ls.GradientDescent(), ls.HeavyBall()
proximal, accelerated = ls.ProximalGradient(), ls.AcceleratedProximalGradient()


def steps_of(values, steady=0.1):
    return ls.Schedule({"step": values}, {"step": steady})


def momentum_schedule(steps, momentum):
    return ls.Schedule({"step": steps, "momentum": momentum}, {"step": steps[-1], "momentum": 0.0})


def assert_is(found, theory):
    assert theory * (1 - 1e-9) <= found <= theory * (1 + CLOSE) + 1e-7


# Gradient descent.


@pytest.mark.parametrize("K", [1, 3, 5])
@pytest.mark.parametrize("h", [0.4, 1.0, 1.5, 1.9])
def test_constant_steps_on_convex_functions(K, h):
    """Drori and Teboulle 2014: L/2·max(1/(2Kh + 1), (1 − h)^2K), which is L/(4Kh + 2) for h ≤ 1."""
    L = 3.0
    found = worst_case(gradient, ls.Schedule({}, {"step": h / L}), K, L=L)
    assert_is(found, L / 2 * max(1 / (2 * K * h + 1), (1 - h) ** (2 * K)))


@pytest.mark.parametrize("K", [1, 4])
def test_gradients_of_convex_functions(K):
    """L²/(K + 1)² with steps 1/L (Taylor, Hendrickx and Glineur 2017)."""
    found = worst_case(gradient, ls.Schedule({}, {"step": 0.5}), K, L=2.0, criterion="gradient")
    assert_is(found, 4.0 / (K + 1) ** 2)


@pytest.mark.parametrize("K", [1, 3, 6])
@pytest.mark.parametrize("t", [0.3, 0.8, 1.7 / 2])
def test_distances_on_strongly_convex_functions(K, t):
    L, mu = 2.0, 0.3
    found = worst_case(gradient, ls.Schedule({}, {"step": t}), K, L=L, mu=mu, criterion="distance")
    assert_is(found, max(abs(1 - t * mu), abs(1 - t * L)) ** (2 * K))


@pytest.mark.parametrize("power", [1, 2, 3])
def test_silver_steps_on_convex_functions(power):
    """L/(4ρᵏ − 2) is attained; Altschuler and Parrilo (2023) prove at most L/(1 + √(4ρ^2k − 3))."""
    L = 2.5
    found = worst_case(gradient, ls.silver(L, power), 2**power - 1, L=L)
    assert_is(found, L / (4 * RHO**power - 2))
    assert found < L / (1 + math.sqrt(4 * RHO ** (2 * power) - 3))


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize("kappa", [4.0, 60.0])
def test_silver_steps_on_strongly_convex_functions(power, kappa):
    """((1 − v)/(1 + v))² after 2ᵏ steps, v_k from the recursion of the steps (Altschuler and Parrilo 2023, part I)."""
    v = 1 / kappa
    for _ in range(power):
        v *= 1 - v + math.sqrt(1 + (1 - v) ** 2)
    schedule = ls.silver_strongly_convex(1.0, 1 / kappa, power)
    found = worst_case(gradient, schedule, 2**power, L=1.0, mu=1 / kappa, criterion="distance")
    assert_is(found, ((1 - v) / (1 + v)) ** 2)
    if power:
        constant = max(1 - schedule.steady["step"] / kappa, schedule.steady["step"] - 1) ** (2 ** (power + 1))
        assert found < constant


def test_steps_that_are_best_for_quadratics_may_diverge_on_other_functions():
    L, mu, K = 1.0, 0.1, 8
    schedule = ls.chebyshev(L, mu, K)
    assert interval_rate(L, mu, schedule, K)[-1] ** 2 < 1e-3
    assert worst_case(gradient, schedule, K, L=L, mu=mu, criterion="distance") > 1


# With momentum, and with a proximal operator.


def plain_heavy_ball(t, beta, mu, criterion):
    """The estimation problem of z⁺ = z − t∇f(z) + β(z − z⁻), L = 1, in coordinates of (z⁰, ∇f(z⁰), …)."""
    K = len(t)
    n = K + 2  # unknown vectors; also the number of points, the last one the optimum
    gradients = [*np.eye(n)[1:], np.zeros(n)]
    points = [np.eye(n)[0]]
    for k in range(K):
        points.append(points[k] - t[k] * gradients[k] + beta[k] * (points[k] - points[max(k - 1, 0)]))
    points.append(np.zeros(n))
    G = cvxpy.Variable((n, n), PSD=True)
    f = [*cvxpy.Variable(n - 1), 0.0]
    constraints = [G[0, 0] <= 1]
    for a, b in itertools.permutations(range(n), 2):
        x, g = points[a] - points[b], gradients[a] - gradients[b]
        square = np.outer(g, g) / 2 + mu / (2 * (1 - mu)) * np.outer(x - g, x - g)
        inner = np.outer(gradients[b], x)
        constraints.append(f[a] >= f[b] + cvxpy.sum(cvxpy.multiply(square + (inner + inner.T) / 2, G)))
    last = points[K]
    goal = {"objective": f[K], "distance": last @ G @ last, "gradient": G[n - 1, n - 1]}[criterion]
    problem = cvxpy.Problem(cvxpy.Maximize(goal), constraints)
    return problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)


@pytest.mark.parametrize("criterion", ["objective", "distance", "gradient"])
def test_heavy_ball_against_a_program_of_our_own(criterion):
    t, beta, L, mu = np.array([0.7, 1.4, 0.9]), np.array([0.5, 0.4, -0.2]), 2.0, 0.1
    found = worst_case(heavy, momentum_schedule(t / L, beta), 3, L=L, mu=mu, criterion=criterion)
    power = {"objective": 1, "distance": 0, "gradient": 2}[criterion]
    assert found == pytest.approx(L**power * plain_heavy_ball(t, beta, mu / L, criterion), rel=1e-6)


def test_without_momentum_both_are_the_same():
    t = [0.4, 1.3, 0.8]
    for plain, with_momentum in ((gradient, heavy), (proximal, accelerated)):
        one = worst_case(plain, steps_of(t), 3, L=1.2, mu=0.1)
        assert worst_case(with_momentum, momentum_schedule(t, np.zeros(3)), 3, L=1.2, mu=0.1) == pytest.approx(one)


@pytest.mark.parametrize("K", [1, 3, 5])
def test_proximal_gradient(K):
    """L/(4K) with steps 1/L; (1 − tμ)^2K for the distance (Taylor, Hendrickx and Glineur 2018)."""
    L, schedule = 2.0, ls.Schedule({}, {"step": 0.5})
    assert_is(worst_case(proximal, schedule, K, L=L), L / (4 * K))
    found = worst_case(proximal, schedule, K, L=L, mu=0.3, criterion="distance")
    assert_is(found, (1 - 0.5 * 0.3) ** (2 * K))


@pytest.mark.parametrize("K", [1, 2, 5])
def test_accelerated_proximal_gradient(K):
    """2L/(K² + 5K + 2) with steps 1/L and momentum (k − 1)/(k + 2) (Taylor, Hendrickx and Glineur 2017)."""
    L = 2.0
    schedule = momentum_schedule(np.full(K, 1 / L), [max(k - 1, 0) / (k + 2) for k in range(K)])
    assert_is(worst_case(accelerated, schedule, K, L=L), 2 * L / (K**2 + 5 * K + 2))


def huber(z, x):
    """Slope 1 up to the radius x[0] around x[1], linear beyond; in one dimension."""
    distance = jnp.abs(z - x[1])
    return jnp.sum(jnp.where(distance <= x[0], distance**2 / 2, x[0] * (distance - x[0] / 2)))


@pytest.mark.parametrize("algorithm", [gradient, heavy, proximal, accelerated], ids=lambda a: type(a).__name__)
def test_the_librarys_iterations_do_no_worse(algorithm):
    """Huber functions, for proximal methods plus 0.1|z|, with their optimum at distance 1 from the start."""
    weight = 0.1 if isinstance(algorithm, ls.ProximalGradient) else 0.0
    radius = np.concatenate([np.geomspace(weight + 0.01, 1, 60), [10.0]])
    parameters = np.stack([radius, np.full(61, 1 + weight)], axis=1)
    family = ls.Smooth(huber, 1.0, 1)
    if weight:
        family = ls.Composite(family, ls.L1(weight))
    K = 4
    schedule = ls.Schedule({"step": [0.9, 1.6, 0.7, 1.1]}, {"step": 1.0})
    if algorithm in (heavy, accelerated):
        schedule = momentum_schedule([0.9, 1.6, 0.7, 1.1], [0.3, 0.5, 0.2, 0.4])
    solution = ls.Solver(family, schedule, algorithm=algorithm, safeguard=None).solve_batch(parameters, steps=K)
    z = solution.x[:, 0]
    gap = np.array([huber(a, x) - huber(1.0, x) for a, x in zip(z, parameters, strict=True)]) + weight * (abs(z) - 1)
    errors = {"objective": gap, "distance": (z - 1) ** 2, "gradient": solution.dual_residual**2}
    for criterion, error in errors.items():
        bound = worst_case(algorithm, schedule, K, L=1.0, criterion=criterion)
        assert 0.1 * bound < np.max(error) <= bound * (1 + 1e-9)


# The library around it.


def test_units_and_the_steady_state():
    schedule = ls.Schedule({"step": [0.9, 0.2]}, {"step": 0.5})
    for criterion, power in (("objective", 1), ("distance", 0), ("gradient", 2)):
        one = worst_case(gradient, schedule, 4, L=1.0, mu=0.1, criterion=criterion)
        whole = worst_case(gradient, steps_of([0.9, 0.2, 0.5, 0.5]), 4, L=1.0, mu=0.1, criterion=criterion)
        scaled = steps_of(np.array([0.9, 0.2, 0.5, 0.5]) / 50)
        assert whole == one
        assert worst_case(gradient, scaled, 4, L=50.0, mu=5.0, criterion=criterion) == pytest.approx(50**power * one)


def test_curve():
    schedule = ls.Schedule({}, {"step": 1.0})
    curve = worst_case_curve(gradient, schedule, [1, 2, 4], L=1.0)
    np.testing.assert_allclose(curve, [1 / 6, 1 / 10, 1 / 18], rtol=CLOSE)


def test_nothing_is_claimed_that_is_not_proved(monkeypatch):
    """With steps of many times 2/L the solver returns nonsense, at times as optimal. Wrong multipliers prove none."""
    wild = steps_of(np.random.default_rng(0).uniform(1, 12, 10))
    with pytest.raises(RuntimeError, match="accurately enough"):
        worst_case(gradient, wild, 10, L=1.0, mu=0.01)
    estimation = performance._Estimation(0.0)
    error = performance._gradient(estimation, [{"step": 1.0}])["objective"]()
    lower, upper = estimation.solve(error, 1e-8)
    assert 1 / 6 - 1e-6 < lower < 1 / 6 + 1e-6
    assert 1 / 6 <= upper < 1 / 6 + 1e-6
    for constraint in estimation.problem.list_of_constraints:
        monkeypatch.setattr(constraint, "eval_dual", lambda: 0.9 * upper)
    assert estimation.bound(error, np.ones(3)) == np.inf


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"algorithm": ls.OSQP()}, TypeError, "GradientDescent, HeavyBall"),
        ({"algorithm": heavy}, ValueError, "momentum, step; the schedule has step"),
        ({"criterion": "residual"}, ValueError, "criterion"),
        ({"mu": 2.0}, ValueError, "mu < L"),
        ({"L": 0.0}, ValueError, "mu < L"),
        ({"steps": 0}, ValueError, "at least 1"),
        ({"schedule": steps_of([-1.0, 1.0])}, ValueError, "positive"),
    ],
)
def test_bad_input_is_refused(change, error, message):
    given = {"algorithm": gradient, "schedule": steps_of([1.0, 1.0]), "steps": 2, "L": 1.0, **change}
    with pytest.raises(error, match=message):
        worst_case(**given)


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PEPit", None)
    with pytest.raises(ImportError, match=r"pip install .longstep\[worst-cases\]"):
        worst_case(gradient, steps_of([1.0]), 1, L=1.0)
