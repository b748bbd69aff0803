"""Methods from theory: iterates against plain NumPy, and against what theory promises of them."""

import math

import numpy as np
import pytest
import scipy.linalg

import longstep as ls
from longstep.engine.problem import Problem
from longstep.evaluation import scheduled
from longstep.research.baselines import classical
from longstep.research.baselines.momentum import Nesterov

from ...helpers import CONES, random_conic, random_qp, softplus_objective

COUNT, N = 40, 3
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(9, 6))
STRONG = ls.Quadratic(ROOT.T @ ROOT + 0.05 * np.eye(6), parameter=ls.Affine(q=-ROOT.T))
FLAT = ls.Quadratic(ROOT[:4].T @ ROOT[:4], parameter=ls.Affine(q=-ROOT[:4].T))
WEIGHT = 0.4
LASSO = ls.Composite(STRONG, ls.L1(WEIGHT))


def parameters(family):
    return np.random.default_rng(1).normal(size=(N, family.parameter.size))


def transcription(family, b, steps, momenta, prox=lambda v, t: v):
    """z after 0 … K steps of y = z + β(z − z⁻), z⁺ = prox(y − t∇f(y)), from zero: (N, K + 1, n)."""
    smooth = getattr(family, "smooth", family)
    P, q = smooth.P.toarray(), smooth.data(b)["q"]
    z = before = np.zeros_like(q)
    out = [z]
    for t, beta in zip(steps, momenta, strict=True):
        y = z + beta * (z - before)
        z, before = prox(y - t * (y @ P + q), t), z
        out.append(z)
    return np.stack(out, axis=1)


def check_iterates(method, steps, momenta, prox=lambda v, t: v, penalty=lambda z: 0.0):
    """The objectives and gradients of all iterates, and the points after some of them."""
    family, b = method.family, parameters(method.family)
    expected = transcription(family, b, steps[:COUNT], momenta[:COUNT], prox)
    smooth = getattr(family, "smooth", family)
    P, q = smooth.P.toarray(), smooth.data(b)["q"]
    history = method.run(b, COUNT)
    assert history.objective.shape == history.dual.shape == (N, COUNT + 1)
    objective = 0.5 * np.einsum("nki,ij,nkj->nk", expected, P, expected) + np.einsum("nki,ni->nk", expected, q)
    np.testing.assert_allclose(history.objective, objective + penalty(expected), rtol=1e-12, atol=1e-12)
    if family is smooth:
        gradient = np.linalg.norm(expected @ P + q[:, None], axis=-1)
        np.testing.assert_allclose(history.dual, gradient, rtol=1e-11, atol=1e-12)
    for k in (3, COUNT):
        point = method.solver(k).solve_batch(b, steps=k).x
        np.testing.assert_allclose(point, expected[:, k], rtol=1e-12, atol=1e-12)
    assert not history.safeguarded.any()


def soft(v, t):
    return np.sign(v) * np.maximum(np.abs(v) - WEIGHT * t, 0)


def penalty(z):
    return WEIGHT * np.abs(z).sum(axis=-1)


def spectrum(family):
    values = np.linalg.eigvalsh(getattr(family, "smooth", family).P.toarray())
    return values[-1], values[0]


def test_nesterov_strongly_convex_is_the_transcription():
    L, mu = spectrum(STRONG)
    root = math.sqrt(3 * L / mu + 1)
    check_iterates(
        classical.nesterov_strongly_convex(STRONG),
        np.full(COUNT, 4 / (3 * L + mu)),
        np.full(COUNT, (root - 2) / (root + 2)),
    )


def test_nesterov_convex_is_the_transcription():
    L, _ = spectrum(FLAT)
    # y¹ = z¹, y² = z² + 1/4·(z² − z¹), y³ = z³ + 2/5·(z³ − z²), …
    momenta = [0.0, 0.0, 1 / 4, 2 / 5, *[(k - 1) / (k + 2) for k in range(4, COUNT)]]
    check_iterates(classical.nesterov_convex(FLAT), np.full(COUNT, 1 / L), momenta)


def test_fista_is_the_transcription():
    L, _ = spectrum(LASSO)
    momenta, t = [0.0], 1.0
    for _ in range(COUNT):
        following = 0.5 + 0.5 * math.sqrt(1 + 4 * t * t)
        momenta.append((t - 1) / following)
        t = following
    check_iterates(classical.fista(LASSO), np.full(COUNT, 1 / L), momenta, soft, penalty)


def test_vanilla_is_the_transcription():
    L, mu = spectrum(STRONG)
    check_iterates(scheduled.vanilla(STRONG), np.full(COUNT, 2 / (L + mu)), np.zeros(COUNT))
    check_iterates(scheduled.vanilla(LASSO), np.full(COUNT, 2 / (L + mu)), np.zeros(COUNT), soft, penalty)


def test_silver_steps_are_the_transcription():
    L, _ = spectrum(FLAT)

    def valuation(i):  # how often two divides i
        return (i & -i).bit_length() - 1

    steps = [(1 + (1 + math.sqrt(2)) ** (valuation(i) - 1)) / L for i in range(1, COUNT + 1)]
    check_iterates(classical.silver_steps(FLAT), steps, np.zeros(COUNT))


def silver_block(kappa, length):
    """h^{(length)} in units of 1/L, straight from the recursion's definition."""
    if length == 1:
        return [(1 + kappa * (1 / kappa)) / (1 + 1 / kappa)], 1 / kappa
    half, v = silver_block(kappa, length // 2)
    xi = 1 - v
    u, v = v / (xi + math.hypot(1, xi)), v * (xi + math.hypot(1, xi))
    a, b = ((1 + kappa * w) / (1 + w) for w in (u, v))
    return [*half[:-1], a, *half[:-1], b], v


@pytest.mark.parametrize("power", [0, 1, 3, 4])
def test_silver_steps_for_strongly_convex_functions_are_the_transcription(power):
    L, mu = spectrum(STRONG)
    block, _ = silver_block(L / mu, 2**power)
    steps = [block[k % len(block)] / L for k in range(COUNT)]
    check_iterates(classical.silver_steps_strongly_convex(STRONG, power), steps, np.zeros(COUNT))


def test_two_silver_steps_are_the_optimal_pair():
    # Altschuler's thesis (2018): 2/(m + S) and 2/(2M + m − S) with S = √(M² + (M − m)²).
    L, mu = spectrum(STRONG)
    S = math.sqrt(L**2 + (L - mu) ** 2)
    steps = classical.silver_steps_strongly_convex(STRONG, 1).schedule_for(4).step
    np.testing.assert_allclose(steps, [2 / (mu + S), 2 / (2 * L + mu - S)] * 2, rtol=1e-12)


def test_silver_blocks_are_as_long_as_they_help():
    method = classical.silver_steps_strongly_convex(STRONG)
    L, mu = spectrum(STRONG)
    wanted = (L / mu) ** (math.log(2) / math.log(1 + math.sqrt(2)))
    length = int(method.name.rsplit(" ", 1)[1])
    assert wanted <= length < 2 * wanted
    # A block contracts by max |Π(1 − hλ)| over the spectrum: per step clearly more than shorter ones, and hardly less
    # than longer ones.
    grid = np.geomspace(mu, L, 20_000)

    def rate(n):
        block, _ = silver_block(L / mu, n)
        return -np.max(np.sum(np.log(np.abs(1 - np.outer(grid / L, block))), axis=1)) / n

    assert rate(length) > 1.03 * rate(length // 2) > 1.1 * rate(length // 4)
    assert rate(4 * length) < 1.01 * rate(length)


@pytest.mark.parametrize("block", [1, 4, 10])
def test_chebyshev_steps_contract_by_the_chebyshev_polynomial(block):
    method = classical.chebyshev_steps(STRONG, block)
    P, b = STRONG.P.toarray(), parameters(STRONG)
    L, mu = spectrum(STRONG)
    values, vectors = np.linalg.eigh(P)
    optimum = np.linalg.solve(P, -STRONG.data(b)["q"].T).T
    T = np.polynomial.Chebyshev.basis(block)
    factor = T((L + mu - 2 * values) / (L - mu)) / T((L + mu) / (L - mu))
    for blocks in (1, 3):
        point = method.solver(blocks * block).solve_batch(b, steps=blocks * block).x
        np.testing.assert_allclose(
            (point - optimum) @ vectors, (-optimum @ vectors) * factor**blocks, rtol=1e-8, atol=1e-11
        )
    steps = method.schedule_for(2 * block).step
    np.testing.assert_array_equal(steps[:block], steps[block:])


@pytest.mark.parametrize("method", [classical.nesterov_convex(STRONG), classical.fista(LASSO)], ids=lambda m: m.name)
def test_accelerated_methods_keep_the_promised_bound(method):
    family, b = method.family, parameters(method.family)
    optima = ls.solve_references(family, b, cache=False, progress=False)
    gap = method.run(b, 200).objective - optima.value[:, None]
    k = np.arange(1, 201)
    bound = 2 * family.lipschitz * np.sum(optima.x**2, axis=1)[:, None] / (k + 1) ** 2
    assert np.all(gap[:, 1:] <= bound + 1e-10)


def test_silver_steps_keep_the_promised_bound():
    # f − f* ≤ L‖z⁰ − z*‖²/(1 + √(4ρ^{2k} − 3)) after 2^k − 1 steps (Altschuler and Parrilo 2023).
    method, b = classical.silver_steps(FLAT), parameters(FLAT)
    optima = ls.solve_references(FLAT, b, cache=False, progress=False)
    gap = method.run(b, 63).objective - optima.value[:, None]
    for k in range(1, 7):
        bound = FLAT.lipschitz * np.sum(optima.x**2, axis=1) / (1 + math.sqrt(4 * (1 + math.sqrt(2)) ** (2 * k) - 3))
        assert np.all(gap[:, 2**k - 1] <= bound + 1e-12)


def test_momentum_stays_on_however_long_the_run():
    method = classical.nesterov(STRONG)
    for count in (0, 1, 5, 300):
        schedule = method.schedule_for(count)
        assert len(schedule) == count
        assert np.all(schedule.momentum > 0)


def all_methods():
    smooth = ls.Smooth(softplus_objective, 5.0, 6, strong_convexity=0.1)
    P, q, A, l, u = random_qp(3, n=8, equalities=2, inequalities=7)
    qp = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(8)))
    P, A, b, c = random_conic(5, CONES["mixed"])
    conic = ls.Conic(P, A, CONES["mixed"], b=b, c=c, parameter=ls.Affine(c=P))
    rng = np.random.default_rng(2)
    yield scheduled.vanilla(STRONG), parameters(STRONG)
    yield classical.nesterov_convex(STRONG), parameters(STRONG)
    yield classical.nesterov_convex(FLAT), parameters(FLAT)
    yield classical.silver_steps(STRONG), parameters(STRONG)
    yield classical.nesterov(STRONG), parameters(STRONG)
    yield classical.silver_steps_strongly_convex(STRONG), parameters(STRONG)
    yield classical.silver_steps_strongly_convex(STRONG, 1), parameters(STRONG)
    yield classical.chebyshev_steps(STRONG, 5), parameters(STRONG)
    yield classical.chebyshev_steps(STRONG), parameters(STRONG)
    yield scheduled.vanilla(LASSO), parameters(STRONG)
    yield classical.fista(LASSO), parameters(STRONG)
    rows = rng.normal(size=(N, 9, 6))
    yield scheduled.vanilla(smooth), rows
    yield classical.nesterov(smooth), rows
    yield scheduled.vanilla(qp), rng.normal(size=(N, 8))
    yield scheduled.vanilla(conic), 0.1 * rng.normal(size=(N, 10))
    yield classical.unit_scalings(conic), 0.1 * rng.normal(size=(N, 10))
    yield classical.unit_scalings(conic, alpha=1.0), 0.1 * rng.normal(size=(N, 10))


METHODS = list(all_methods())


@pytest.mark.parametrize(("method", "b"), METHODS, ids=lambda v: v.name if hasattr(v, "name") else "")
def test_runs_have_their_shape_and_longer_ones_begin_as_shorter_ones(method, b):
    for name, value in vars(method.run(b, 25)).items():
        assert value.shape == ((N,) if name == "safeguarded" else (N, 26)), name
        assert np.isfinite(value).all()
    for count in (1, 9, 25):
        short, long = method.schedule_for(count), method.schedule_for(400)
        assert [short[k] for k in range(count)] == [long[k] for k in range(count)]


def test_content_hashes_tell_methods_apart():
    hashes = [method.content_hash() for method, _ in METHODS]
    assert len(set(hashes)) == len(hashes)
    again = [method.content_hash() for method, _ in all_methods()]
    assert again == hashes


def test_seconds_are_one_positive_number_an_instance():
    seconds = classical.nesterov(STRONG).seconds(parameters(STRONG), 5)
    assert seconds.shape == (N,)
    assert np.all(seconds > 0)


def test_best_constant_is_what_training_found():
    data = ls.Dataset.sample(STRONG, lambda rng: rng.normal(size=9), {"train": 4}, cache=False, progress=False)
    training = ls.train(STRONG, data, horizon=3, block=3, cache=False, progress=False)
    method, step = scheduled.best_constant(STRONG, training), training.constant.steady["step"]
    assert step != pytest.approx(2 / sum(spectrum(STRONG)), rel=1e-3)
    check_iterates(method, np.full(COUNT, step), np.zeros(COUNT))
    assert method.content_hash() != scheduled.vanilla(STRONG).content_hash()


def test_unit_scalings_are_scs_with_all_r_one():
    family = next(method.family for method, _ in METHODS if method.name == "unit scalings")
    b = 0.1 * np.random.default_rng(4).normal(size=(N, 10))
    expected = ls.Solver(family, r_w=1.0, r_yz=1.0, r_ynz=1.0, r_tau=1.0, ladder=False).run(b, 12)
    np.testing.assert_array_equal(classical.unit_scalings(family).run(b, 12).primal, expected.primal)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9])
def test_the_optimum_is_a_fixed_point_of_nesterovs_step(beta):
    b = parameters(STRONG)
    x = scipy.linalg.solve(STRONG.P.toarray(), -STRONG.data(b)["q"].T)
    schedule = ls.Schedule({"step": [0.01], "momentum": [beta]}, {"step": 0.01, "momentum": 0.0})
    solver = ls.Solver(STRONG, schedule, algorithm=Nesterov())
    instances = STRONG.instances(b)
    problem = Problem(solver.algorithm, STRONG, solver.plan, instances)
    state = solver.algorithm.init(STRONG, instances, ls.Point(x))
    np.testing.assert_allclose(problem.stepper(0)(state).z, x, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (classical.nesterov_strongly_convex, "use nesterov_convex"),
        (classical.silver_steps_strongly_convex, "use silver_steps"),
        (classical.chebyshev_steps, "needs strong convexity"),
    ],
)
def test_strong_convexity_is_asked_for_where_it_is_needed(make, message):
    with pytest.raises(ValueError, match=message):
        make(FLAT)


def test_wrong_families_and_lengths_are_refused():
    with pytest.raises(TypeError, match="AcceleratedProximalGradient solves Composite"):
        classical.fista(STRONG)
    with pytest.raises(TypeError, match="Nesterov solves Differentiable"):
        classical.nesterov(LASSO)
    with pytest.raises(TypeError, match="SCS solves Conic"):
        classical.unit_scalings(STRONG)
    with pytest.raises(ValueError, match="not be negative, got -1"):
        classical.silver_steps(STRONG).run(parameters(STRONG), -1)
