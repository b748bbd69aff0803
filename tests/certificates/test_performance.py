"""Exact worst cases: theorems in closed form, PEPit, a program of our own, and functions that attain them."""

import itertools
import math

import clarabel
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.gradient import estimate_gradient_steps
from longstep.certificates import performance
from longstep.certificates.performance import Criterion, worst_case, worst_case_curve
from longstep.certificates.rates import interval_rate

RHO = 1 + math.sqrt(2)
# The answers are proved bounds: never below the theorem (but for rounding), and this close above it.
CLOSE = 2e-5
# Steps times L that were learned for a lasso of 64 rows and 128 columns from ten instances.
LEARNED = np.array([
    3.4192, 0.1144, 0.9863, 1.4395, 52.643, 1.2549, 5.4864, 1.5463, 11.2192, 2.8161,
    3.1788, 0.1205, 0.9933, 1.4394, 20.4307, 1.3037, 5.6927, 2.6746, 9.6211, 3.7454,
])  # fmt: skip
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
    cvxpy = pytest.importorskip("cvxpy")
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


def by_pepit(algorithm, t, beta, L, mu, criterion):
    """The same worst case as PEPit models and solves it."""
    pytest.importorskip("PEPit")
    from PEPit import PEP
    from PEPit.functions import ConvexFunction, SmoothStronglyConvexFunction
    from PEPit.primitive_steps import proximal_step

    problem = PEP()
    f = problem.declare_function(SmoothStronglyConvexFunction, L=L, mu=mu)
    g = problem.declare_function(ConvexFunction)
    composite = algorithm.family_type is ls.Composite
    optimum = (f + g if composite else f).stationary_point()
    z = previous = problem.set_initial_point()
    problem.set_initial_condition((z - optimum) ** 2 <= 1)
    least, value = f(optimum), 0.0
    for step, momentum in zip(t, beta, strict=True):
        y = z + momentum * (z - previous)
        previous = z
        if composite:
            z, _, value = proximal_step(y - step * f.gradient(y), g, step)
        else:
            z = y - step * f.gradient(z)
    if composite:
        least = least + g(optimum)
    if criterion == "objective":
        problem.set_performance_metric(f(z) + value - least)
    elif criterion == "distance":
        problem.set_performance_metric((z - optimum) ** 2)
    elif composite:
        problem.set_performance_metric((L * (z - proximal_step(z - f.gradient(z) / L, g, 1 / L)[0])) ** 2)
    else:
        problem.set_performance_metric(f.gradient(z) ** 2)
    return problem.solve(verbose=0, solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("criterion", ["objective", "distance", "gradient"])
@pytest.mark.parametrize("algorithm", [gradient, heavy, proximal, accelerated], ids=lambda a: type(a).__name__)
def test_as_pepit_finds_it(algorithm, criterion):
    L, mu, K = 2.5, 0.2, 4
    t, beta = LEARNED[:K] / L, np.zeros(K)
    schedule = steps_of(t)
    if algorithm in (heavy, accelerated):
        beta = np.array([0.0, 0.5, -0.3, 0.8])
        schedule = momentum_schedule(t, beta)
    found = worst_case(algorithm, schedule, K, L=L, mu=mu, criterion=criterion)
    assert found == pytest.approx(by_pepit(algorithm, t, beta, L, mu, criterion), rel=CLOSE)


# Learned steps, many of them far beyond 2/L.


class Smoothed:
    """f with f*(y) = ‖y‖²/2 + maxᵢ(bᵢ'y + cᵢ), b₀ = c₀ = 0 ≥ cᵢ: convex with curvature at most 1, least and 0 at 0.

    f(x) = min ‖x − Σ aᵢbᵢ‖²/2 − Σ aᵢcᵢ over a ≥ 0 with Σ aᵢ = 1, and ∇f(x) = x − Σ aᵢbᵢ at the minimiser.
    """

    def __init__(self, b, c):
        self.b, self.c = np.concatenate([0 * b[:1], b]), np.append(0.0, np.minimum(c, 0))

    def __call__(self, x):
        unit, n = np.linalg.norm(x), self.c.size
        b, c, x = self.b / unit, self.c / unit**2, x / unit
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
        rows = sp.csc_matrix(np.concatenate([np.ones((1, n)), -np.eye(n)]))
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
        data = (sp.csc_matrix(np.triu(b @ b.T)), -(b @ x + c), rows, np.eye(n + 1)[0])
        a = np.maximum(clarabel.DefaultSolver(*data, cones, settings).solve().x, 0)
        a /= np.sum(a)
        slope = x - a @ b
        return unit**2 * (slope @ slope / 2 - a @ c), unit * slope


def worst_function(t):
    """f that is about the worst for gradient descent with steps t and L = 1, and the start, from the Gram matrix.

    In the conjugate of an f through (xᵢ, gᵢ, Fᵢ) the pieces are bᵢ = xᵢ − gᵢ, cᵢ = ‖gᵢ‖²/2 − Fᵢ; F is the largest that
    the inequalities allow. Whatever the Gram matrix, this is a function of the class.
    """
    estimation = performance._Estimation(0.0, len(t) + 2)
    gram = estimation.solve(*estimate_gradient_steps(estimation, [{"step": s} for s in t])["objective"]()).gram
    lengths = np.sqrt(np.diag(gram))
    values, vectors = np.linalg.eigh(gram / np.outer(lengths, lengths))
    root = lengths[:, None] * vectors * np.sqrt(np.where(values > 1e-6, values, 0))
    x, g = (np.array([point[k] for point in estimation.f]) @ root for k in (0, 1))
    products = np.sum(g * x, axis=1)
    squares = np.sum((g[:, None] - g) ** 2, axis=2) / 2
    # What is far from the optimum is known less accurately.
    slack = 1e-7 * np.maximum.outer(np.sum(x**2, axis=1), np.sum(x**2, axis=1))
    F = products - np.sum(g**2, axis=1) / 2
    for _ in t:
        F = np.minimum(F, np.min(F - g @ x.T + products[:, None] - squares + slack, axis=1))
    return Smoothed(x - g, np.sum(g**2, axis=1) / 2 - F), x[0] / max(1.0, np.linalg.norm(x[0]))


@pytest.mark.parametrize("K", [1, 5, 10, 15, pytest.param(20, marks=pytest.mark.slow)])
def test_learned_steps(K):
    """The bound of proximal gradient, 3 after one step and 10¹¹ after 20, is nearly attained by some f, and g = 0."""
    f, z = worst_function(LEARNED[:K])
    for t in LEARNED[:K]:
        z = z - t * f(z)[1]
    bound = worst_case(proximal, steps_of(LEARNED / 5.7), K, L=5.7) / 5.7
    assert 0.98 * bound < f(z)[0] <= bound


@pytest.mark.parametrize("criterion", ["objective", "distance", "gradient"])
def test_wild_steps(criterion):
    """With all steps beyond 2/L the worst function is the steepest quadratic: it multiplies iterates by t − 1."""
    t = np.random.default_rng(0).uniform(2.5, 12, 20)
    theory = np.prod((t - 1) ** 2) / (2 if criterion == "objective" else 1)
    assert theory > 1e25
    assert_is(worst_case(gradient, steps_of(t), 20, L=1.0, criterion=criterion), theory)


def huber(z, x):
    """Slope 1 up to the radius x[0] around x[1], linear beyond; in one dimension."""
    distance = jnp.abs(z - x[1])
    return jnp.sum(jnp.where(distance <= x[0], distance**2 / 2, x[0] * (distance - x[0] / 2)))


@pytest.mark.parametrize("algorithm", [gradient, heavy, proximal, accelerated], ids=lambda a: type(a).__name__)
def test_the_librarys_iterations_do_no_worse(algorithm):
    """Huber functions, for proximal methods plus 0.1|z|, with their optimum at distance 1 from the start."""
    weight = 0.1 if algorithm.family_type is ls.Composite else 0.0
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
    errors: dict[Criterion, np.ndarray] = {
        "objective": gap,
        "distance": (z - 1) ** 2,
        "gradient": solution.dual_residual**2,
    }
    for criterion, error in errors.items():
        bound = worst_case(algorithm, schedule, K, L=1.0, criterion=criterion)
        assert 0.1 * bound < np.max(error) <= bound * (1 + 1e-9)


# The library around it.


def test_units_and_the_steady_state():
    schedule = ls.Schedule({"step": [0.9, 0.2]}, {"step": 0.5})
    powers: dict[Criterion, int] = {"objective": 1, "distance": 0, "gradient": 2}
    for criterion, power in powers.items():
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
    seen, bound = [], performance._Program.prove_bound

    def spy(program, multipliers):
        seen.append((program, multipliers))
        return bound(program, multipliers)

    monkeypatch.setattr(performance._Program, "prove_bound", spy)
    estimation = performance._Estimation(0.0, 5)
    found = estimation.solve(*estimate_gradient_steps(estimation, [{"step": 1.0}])["objective"]())
    assert 1 / 6 - 1e-6 < found.lower < 1 / 6 + 1e-9
    assert 1 / 6 <= found.upper < 1 / 6 + 1e-6
    program, multipliers = seen[-1]
    assert bound(program, multipliers) * program.unit == found.upper
    smaller = np.append(np.ones(multipliers.size - 1), 1 - 1e-5)
    for wrong in (smaller * multipliers, 0 * multipliers, -multipliers):
        assert bound(program, wrong) == np.inf


class FailingSolver:
    def __init__(self, P, q, A, b, cones, settings):
        self.x, self.z = np.full(q.size, np.nan), np.full(b.size, np.nan)

    def solve(self):
        return self


def test_what_is_not_proved_is_an_error(monkeypatch):
    for place, name, broken in (
        (performance._Program, "prove_bound", lambda *_: np.inf),
        (clarabel, "DefaultSolver", FailingSolver),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, broken)
            with pytest.raises(RuntimeError, match="after 2 steps was not found accurately enough"):
                worst_case(gradient, steps_of([1.0, 1.0]), 2, L=1.0)


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
