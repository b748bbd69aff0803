"""The finish of cone programs: all digits by Newton's method, against Clarabel and where steps alone do not get on."""

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.engine.finisher import Exact, Finisher, can_finish
from longstep.families.point import Point

from ..helpers import CONES, random_conic

TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9}


def programs(cones, count=6):
    """Instances near one with a strictly complementary pair."""
    P, A, b, c = random_conic(3, cones)
    move = 0.05 * np.random.default_rng(4).normal(size=(count, len(c)))
    return ls.Conic(P, A, cones, b=b, c=c), {"c": c + move @ P}


@pytest.mark.parametrize("name", CONES)
def test_points_are_exact_and_clarabels(name):
    family, data = programs(CONES[name])
    solver = ls.Solver(family, finish=10)
    found = solver.solve_batch(data, **TIGHT, max_iter=200)
    assert np.all(found.exact)
    assert np.all(found.iterations <= 200)
    assert np.all((found.changes >= 0) & (found.changes <= 40))
    optima = ls.solve_references(family, data, cache=False, progress=False)
    # The multiple of the identity in P is small, and so are what digits Clarabel has of x.
    np.testing.assert_allclose(found.x, optima.x, atol=1e-5, rtol=1e-5)
    P, A, c = family.P.toarray(), family.A.toarray(), data["c"]
    b = np.broadcast_to(family.host.values["b"], found.s.shape)
    assert np.abs(found.x @ P + found.y @ A + c).max() < 1e-8
    assert np.abs(found.x @ A.T + found.s - b).max() < 1e-8
    assert np.abs(np.sum(found.y * found.s, axis=1)).max() < 1e-8
    if name == "second_order":
        start = 0
        for size in (5, 3, 3, 1, 4):
            for part in (found.s[:, start : start + size], found.y[:, start : start + size]):
                assert np.all(np.linalg.norm(part[:, 1:], axis=1) <= part[:, 0] + 1e-12)
            start += size


def test_one_instance_is_as_in_a_batch():
    family, data = programs(CONES["mixed"])
    solver = ls.Solver(family, finish=40)
    batch = solver.solve_batch(data, **TIGHT)
    one = solver.solve({"c": data["c"][2]}, **TIGHT)
    assert (one.exact, one.changes, one.iterations) == (True, batch.changes[2], batch.iterations[2])
    np.testing.assert_allclose(one.x, batch.x[2], atol=1e-12)
    warm = solver.solve({"c": data["c"][2]}, **TIGHT, warm_start=Point.of(one))
    assert warm.solved
    np.testing.assert_allclose(warm.x, one.x, atol=1e-8)


def stuck():
    """A portfolio with a norm for risk: some instances have many multipliers, and steps creep."""
    n = 20
    F = 0.1 * np.random.default_rng(9).standard_normal((n, 5))
    mu, held, w = cp.Parameter(n, name="mu"), cp.Parameter(n, name="held"), cp.Variable(n, name="w", nonneg=True)
    objective = mu @ w - 0.5 * cp.norm(F.T @ w) - 0.02 * cp.norm1(w - held)
    rng = np.random.default_rng(0)
    draws = [(0.05 + 0.1 * rng.standard_normal(n), rng.dirichlet(np.ones(n))) for _ in range(90)][60:]
    values = {"mu": np.stack([a for a, _ in draws]), "held": np.stack([b for _, b in draws])}
    return cp.Problem(cp.Maximize(objective), [cp.sum(w) == 1, w <= 0.3]), values


def test_instances_on_which_steps_creep_are_solved():
    problem, values = stuck()
    family = ls.from_cvxpy(problem).family
    parameters = family.layout.read_many(values)
    limits = {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 3000}
    steps, finished = (ls.Solver(family, finish=f).solve_batch(parameters, **limits) for f in (False, True))
    assert np.sum(~np.asarray(steps.solved)) > 3, "steps alone solve them: the test sees nothing"
    assert np.all(finished.solved)
    k = int(np.flatnonzero(~np.asarray(steps.solved))[0])
    for name, parameter in problem.param_dict.items():
        parameter.value = values[name][k]
    assert np.asarray(finished.objective)[k] == pytest.approx(problem.solve(solver="CLARABEL"), abs=1e-6)


def test_what_has_no_solution_is_not_called_exact():
    # x ≥ 1 and x ≤ 0.
    A = np.array([[-1.0], [1.0]])
    family = ls.Conic(np.eye(1), A, ls.Cones(nonnegative=2), b=np.array([-1.0, 2.0]), c=np.zeros(1))
    solver = ls.Solver(family, finish=3)
    found = solver.solve({"b": np.array([-1.0, 0.0])}, check_every=10)
    assert (found.status.name, found.exact, found.changes) == ("PRIMAL_INFEASIBLE", False, -1)
    assert solver.solve({}).exact


def test_tries_that_fail_are_few(monkeypatch):
    """Where Newton's steps lead nowhere, solves take as long as the steps, and a few tries, take."""
    family, data = programs(CONES["mixed"], count=1)
    solver = ls.Solver(family, finish=10)
    tried = []

    def fail(finisher, encoded, point, running, limits):
        tried.append(None)
        return Exact(np.zeros(running.shape, bool), np.full(running.shape, -1), {})

    monkeypatch.setattr(Finisher, "__call__", fail)
    found = solver.solve_batch(data, eps_abs=1e-300, eps_rel=0, max_iter=2000)
    assert found.status[0] == ls.Status.ITERATION_LIMIT
    # After 10, 20, 40, …, 1280 steps.
    assert len(tried) == 8


def test_who_has_a_finish():
    family, _ = programs(CONES["mixed"])
    assert can_finish(family)
    assert ls.Solver(family).finish is None
    assert ls.Solver(family, finish=True).finish == 4 * (family.n + family.m)
    assert not can_finish(family.astype("float32"))
    wide = ls.Conic(None, -np.eye(600), ls.Cones(nonnegative=600), b=np.zeros(600), c=np.ones(600))
    assert not can_finish(wide)
