"""The finish of composites by their support, against Clarabel and conditions of optimality written anew here."""

import clarabel
import jax
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.douglas_rachford import DouglasRachford
from longstep.algorithms.proximal import AcceleratedProximalGradient, ProximalGradient
from longstep.engine.finisher import can_finish, finish_cost
from longstep.research.experiments.lasso import Lasso
from longstep.training.finish import try_first

N = 16
TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9}


def make_columns(rng, rows):
    A = rng.normal(size=(rows, N))
    return A / np.linalg.norm(A, axis=0)


def make_gram(rng, kind):
    A = make_columns(rng, 2 * N if kind == "definite" else N // 2)
    if kind == "repeated columns":
        A[:, 1] = A[:, 0]
        A[:, 3] = -A[:, 2]
        A[:, 5] = 0.0
    return A.T @ A, A


def make_lasso(kind, weight=0.1, count=40, seed=0):
    """A lasso, instances, and the optima of some: of every fourth, with an entry of zero whose subgradient is at its
    bound."""
    rng = np.random.default_rng([seed, *kind.encode()])
    P, A = make_gram(rng, kind)
    q = -rng.normal(size=(count, len(A))) @ A
    weights = np.broadcast_to(weight, N)
    known = {}
    for k in range(3, count, 4):
        z = np.where(np.arange(N) % 5 == 4, rng.normal(size=N), 0.0)
        s = weights * np.where(z == 0, rng.uniform(-0.5, 0.5, N), np.sign(z))
        s[7] = weights[7]
        q[k] = -P @ z - s
        known[k] = z
    return ls.Composite(ls.Quadratic(P), ls.L1(weight)), {"q": q}, known


def worst_condition(family, q, x):
    """How far points of a lasso are from optimal: the distance of −(Px + q) to the subgradients of g."""
    s = -(x @ family.smooth.P.toarray() + q)
    weight = np.broadcast_to(family.g.weight, family.n)
    off = np.where(x != 0, np.abs(s - weight * np.sign(x)), np.maximum(np.abs(s) - weight, 0))
    return off.max(axis=1)


def clarabel_lasso(family, q):
    """The optimum by Clarabel, of −t ≤ z ≤ t."""
    n = family.n
    P = sp.block_diag([family.smooth.P, sp.csc_matrix((n, n))], format="csc")
    I = sp.eye(n)
    A = sp.csc_matrix(sp.bmat([[I, -I], [-I, -I]]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-10
    cost = np.concatenate([q, np.broadcast_to(family.g.weight, n)])
    cones = [clarabel.NonnegativeConeT(2 * n)]
    solved = clarabel.DefaultSolver(sp.csc_matrix(sp.triu(P)), cost, A, np.zeros(2 * n), cones, settings).solve()
    return np.array(solved.x)[:n], solved.obj_val


CASES = [
    ("definite", 0.1, ProximalGradient()),
    ("wide", np.linspace(0.0, 0.3, N), ProximalGradient()),
    ("wide", 0.1, DouglasRachford()),
    ("repeated columns", 0.1, ProximalGradient()),
    ("repeated columns", np.linspace(0.0, 0.3, N), DouglasRachford()),
]


@pytest.mark.parametrize(("kind", "weight", "form"), CASES)
def test_every_lasso_is_solved_exactly(kind, weight, form):
    family, data, known = make_lasso(kind, weight)
    solution = ls.Solver(family, algorithm=form, finish=5).solve_batch(data, **TIGHT, max_iter=5)
    assert solution.solved.all()
    # Some are solved by the steps.
    assert (solution.exact | (solution.dual_residual < 1e-9)).all()
    assert solution.exact.mean() > 0.8
    assert worst_condition(family, data["q"], solution.x).max() < 1e-9
    for k in range(3):
        x, objective = clarabel_lasso(family, data["q"][k])
        assert abs(solution.objective[k] - objective) < 1e-8
        if kind == "definite":
            assert np.abs(solution.x[k] - x).max() < 1e-7
    if kind == "definite":
        for k, z in known.items():
            np.testing.assert_allclose(solution.x[k], z, atol=1e-12)


def test_an_entry_whose_subgradient_is_at_its_bound_stays_zero():
    family, data, _ = make_lasso("definite")
    solution = ls.Solver(family, finish=3).solve_batch(data, **TIGHT, max_iter=3)
    slack = 0.1 - np.abs(solution.x @ family.smooth.P.toarray() + data["q"])
    assert solution.exact.all()
    assert np.abs(slack[3::4, 7]).max() < 1e-12
    assert np.abs(solution.x[3::4, 7]).max() < 1e-12


@pytest.mark.parametrize("steps", [0, 10])
def test_unseen_lassos_of_the_experiment_are_exact(steps):
    problem = Lasso(64, 128)
    rng = np.random.default_rng(5)
    measured = np.stack([problem.sample(rng) for _ in range(200)])
    solver = ls.Solver(problem.family, finish=steps)
    found = solver.solve_batch(measured, **TIGHT, max_iter=steps)
    assert found.exact.all()
    assert (found.iterations == steps).all()
    assert worst_condition(problem.family, -measured @ problem.A, found.x).max() < 1e-12
    # As many entries enter from nothing as the support has at least.
    support = np.count_nonzero(found.x, axis=1)
    if steps == 0:
        assert (found.changes >= support).all()
    expected = (found.changes + support / 3) * (6 * support**2 + 2 * 128 * support + 2 * 128) / (2 * 128**2)
    np.testing.assert_allclose(finish_cost(problem.family, found, singular=False), expected)
    np.testing.assert_allclose(finish_cost(problem.family, found, singular=True), expected + 36)


BOUNDS = {
    "nonnegative": ls.NonNegative(),
    "box": ls.Box(-0.2, 0.3),
    "some bounds": ls.Box(np.r_[-np.inf, np.zeros(N - 2), 0.1], np.r_[np.full(N - 2, 0.5), np.inf, 0.1]),
}


def clarabel_bounded(P, q, low, high):
    rows = np.vstack([np.eye(N)[np.isfinite(high)], -np.eye(N)[np.isfinite(low)]])
    right = np.concatenate([high[np.isfinite(high)], -low[np.isfinite(low)]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-10
    cones = [clarabel.NonnegativeConeT(len(right))]
    solved = clarabel.DefaultSolver(sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(rows), right, cones, settings).solve()
    return np.array(solved.x), solved.obj_val


BOUNDED = [
    ("definite", "nonnegative", ProximalGradient()),
    ("definite", "some bounds", DouglasRachford()),
    ("wide", "nonnegative", DouglasRachford()),
    ("wide", "box", ProximalGradient()),
    ("repeated columns", "some bounds", ProximalGradient()),
]


@pytest.mark.parametrize(("kind", "bounds", "form"), BOUNDED)
def test_bounds_on_the_unknowns_are_solved_for_exactly(kind, bounds, form):
    rng = np.random.default_rng(4)
    P, A = make_gram(rng, kind)
    q = -rng.normal(size=(40, len(A))) @ A
    g = BOUNDS[bounds]
    low = np.broadcast_to(getattr(g, "low", 0.0), N)
    high = np.broadcast_to(getattr(g, "high", np.inf), N)
    solver = ls.Solver(ls.Composite(ls.Quadratic(P), g), algorithm=form, finish=5)
    solution = solver.solve_batch({"q": q}, **TIGHT)
    assert solution.solved.all()
    assert solution.exact.mean() > 0.8
    # Where P is singular, the proximal steps of the first try do not always do.
    assert (solution.iterations <= 5).mean() > 0.6
    x = solution.x[solution.exact]
    q = q[solution.exact]
    assert np.all((x >= low) & (x <= high))
    slope = x @ P + q
    within = np.where(x == low, np.minimum(slope, 0.0), np.where(x == high, np.maximum(slope, 0.0), slope))
    assert np.abs(np.where(low == high, 0.0, within)).max() < 1e-8
    for k in range(3):
        found, objective = clarabel_bounded(P, q[k], low, high)
        assert abs(solution.objective[solution.exact][k] - objective) < 1e-7
        if kind == "definite":
            assert np.abs(x[k] - found).max() < 1e-6


def test_one_lasso_is_as_a_batch_and_says_how():
    family, data, _ = make_lasso("wide")
    solver = ls.Solver(family, algorithm=AcceleratedProximalGradient(), finish=4)
    batch = solver.solve_batch(data, **TIGHT)
    for k in (0, 3):
        one = solver.solve({"q": data["q"][k]}, **TIGHT)
        assert one.exact is True
        assert (one.iterations, one.changes) == (4, batch.changes[k])
        assert one.y is None
        np.testing.assert_allclose(one.x, batch.x[k], atol=1e-12)
    warm = solver.solve_batch({"q": data["q"] + 1e-4}, warm_start=batch, **TIGHT)
    assert (warm.iterations == 0).all()
    assert warm.changes.mean() < batch.changes.mean()


def test_what_has_no_minimum_is_not_called_exact():
    P = np.diag(np.r_[np.ones(N - 1), 0.0])
    solver = ls.Solver(ls.Composite(ls.Quadratic(P), ls.L1(0.1)), finish=0)
    q = np.ones((2, N))
    q[:, -1] = [0.05, 0.2]
    found = solver.solve_batch({"q": q}, max_iter=20)
    assert found.exact.tolist() == [True, False]
    assert not found.solved[1]


def test_who_has_a_finish():
    quadratic = ls.Quadratic(np.eye(3))
    assert can_finish(ls.Composite(quadratic, ls.L1(0.1)))
    assert can_finish(ls.Composite(quadratic, ls.NonNegative()))
    assert not can_finish(ls.Composite(quadratic, ls.L1(0.1)).astype("float32"))
    assert not can_finish(ls.Composite(quadratic, ls.Box(-np.inf, np.inf)))
    assert not can_finish(ls.Composite(quadratic, ls.Box(1.0, 1.0)))
    assert not can_finish(ls.Composite(quadratic, ls.CustomProx(lambda z: 0.0, lambda v, t: v)))
    smooth = ls.Smooth(lambda z, x: (z - x) @ (z - x) / 2, lipschitz=1.0, n=3)
    assert not can_finish(ls.Composite(smooth, ls.L1(0.1)))


def test_when_to_try_is_learned_and_saved(tmp_path):
    family, data, _ = make_lasso("wide")
    options = {"horizon": 4, "block": 4, "iterations": 2, "candidates": 4, "cache": False, "progress": False}
    training = ls.train(family, data, **options)
    solver = ls.Solver(family, training)
    assert solver.finish == training.record["finish"]
    assert try_first(solver, data).exact.all()
    solver.save(tmp_path / "a.longstep")
    loaded = ls.Solver.load(tmp_path / "a.longstep")
    assert (loaded.finish, loaded.content_hash()) == (solver.finish, solver.content_hash())


def test_functions_have_the_derivatives_of_exact_points():
    family, data, _ = make_lasso("wide")
    solver = ls.Solver(family, finish=3)
    q = data["q"][0]
    direction = np.random.default_rng(2).normal(size=N)
    found, tangent = jax.jvp(lambda q: solver.function(**TIGHT)(q=q), (q,), (direction,))
    assert found.solved
    assert int(found.iterations) == 3
    ends = [clarabel_lasso(family, q + step * direction)[0] for step in (1e-3, -1e-3)]
    np.testing.assert_allclose(tangent.x, (ends[0] - ends[1]) / 2e-3, atol=1e-4)
    many = jax.vmap(lambda q: solver.function(**TIGHT)(q=q))(data["q"])
    expected = solver.solve_batch(data, **TIGHT)
    np.testing.assert_array_equal(many.iterations, expected.iterations)
    np.testing.assert_allclose(many.x, expected.x, atol=1e-10)
