"""What a user pays, and what is kept and advised by it."""

import re
import shutil
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.evaluation import cost as evaluation
from longstep.evaluation.choice import choose_solver, choose_tries
from longstep.evaluation.cost import Cost, Costs, compare_costs, limit_steps, package_cost, solver_cost
from longstep.evaluation.timing import time_in_c
from longstep.export_c import CompiledSolver

from ..helpers import random_qp


def cost(name, iterations, done=True, eps=1e-3):
    iterations = np.asarray(iterations)
    return Cost(name, eps, iterations, np.broadcast_to(np.asarray(done), iterations.shape), 0.0)


def both(name, iterations, done=True):
    return [cost(name, iterations, done, eps) for eps in (1e-3, 1e-6)]


@pytest.mark.parametrize(
    ("kept", "ours", "theirs", "words"),
    [
        (
            "learned",
            ([10, 20], True),
            ([40, 90], True),
            r"To 1e-6 it takes 15 steps in the median and 20 at most; the next best, the osqp package, 65 ",
        ),
        ("learned", ([10, 20], [True, False]), ([40, 90], True), r"Use the osqp package: it solves 2 instances"),
        (
            "learned",
            ([10, 20, 30], [True, True, False]),
            ([40, 90, 40], [False, True, True]),
            r"Use the osqp package where the learned solver ends at its limit: it solves 2 instances that this does "
            r"not, and this 2 that it does not",
        ),
        (
            "learned",
            ([20, 20_000, 20_000], [True, False, False]),
            ([40, 20_000, 20_000], [True, False, False]),
            r"Use none of these as they are: 2 of 3 instances are not solved to 1e-3 within 20,000 steps.*units",
        ),
        ("learned", ([50, 99], True), ([40, 90], True), r"Use the osqp package, which takes no more steps here"),
        ("best constant with ladder", ([10, 20], True), ([40, 90], True), r"no learned schedule is better"),
    ],
)
def test_the_verdict(kept, ours, theirs, words):
    costs = Costs((*both(kept, *ours), *both("osqp package", *theirs)))
    assert re.search(words, costs.verdict), costs.verdict


def test_what_a_batch_is_filled_up_with_does_not_count():
    few = cost("kept", [10, 20, 900, 900, 900], [True, True, False, False, False]).take_first(2)
    assert (few.unsolved, np.median(few.steps), few.level) == (0, 15, cost("kept", [10, 20]).level)


def test_tolerances_that_nobody_reached_are_told():
    costs = Costs((*both("learned", [10, 20], [True, False]), *both("defaults", [10, 20], [True, False])))
    assert len(costs.unreached) == 2
    assert costs.unreached[0].startswith("1 of 2 instances did not reach 1e-3 within 20,000 steps")
    assert not Costs((*both("learned", [1, 2], [True, False]), *both("defaults", [1, 2]))).unreached


def instances():
    P, q, A, l, u = random_qp(3, equalities=2)
    family = ls.QP(P, A, q=q, l=l, u=u)
    return family, {"q": q + 0.1 * np.random.default_rng(0).normal(size=(6, len(q)))}


def test_none_is_kept_that_leaves_instances_unsolved():
    family, data = instances()
    hopeless = ls.Solver(family, rho_ineq=1e-6, rho_eq=1e-6, ladder=False)
    candidates = [hopeless, ls.Solver(family)]
    unsolved = [solver_cost("", solver, data, 1e-6).unsolved for solver in candidates]
    assert unsolved[0] > unsolved[1] == 0
    assert choose_solver(candidates, data) == 1


def test_others_are_not_waited_for_longer_than_makes_a_difference():
    family, data = instances()
    hopeless = ls.Solver(family, rho_ineq=1e-6, rho_eq=1e-6, ladder=False)
    costs = compare_costs({"kept": ls.Solver(family, finish=True), "hopeless": hopeless}, data)
    slowest = max(cost.steps.max() for cost in costs.of("kept"))
    for cost in costs.of("hopeless"):
        assert cost.unsolved == len(data["q"])
        assert cost.steps.max() == cost.most == max(10 * slowest, 500)
    # The package is run as it comes, and a kept solver that fails must see what others do in time.
    assert all(cost.most == 4000 for cost in costs.of("osqp package"))
    assert all(cost.most == 20_000 for cost in compare_costs({"kept": hopeless}, data).rows)
    # Where steps are dear, nobody waits for so many of them.
    large = ls.QP(np.eye(500), np.eye(500), l=-np.ones(500), u=np.ones(500), parameter=ls.Affine(q=np.eye(500)))
    assert (limit_steps(family), limit_steps(large)) == (20_000, 4000)


def test_who_solves_nothing_to_a_loose_tolerance_is_not_asked_for_a_tight_one(monkeypatch):
    family, data = instances()
    asked = []

    def measure(name, solver, parameters, eps, **options):
        asked.append((name, eps))
        done = np.full(6, name == "kept" or (name == "half" and eps > 1e-4))
        return Cost(name, eps, np.full(6, 10), done, 1.0, options["most"])

    monkeypatch.setattr(evaluation, "solver_cost", measure)
    monkeypatch.setattr(evaluation, "time_in_c", lambda *_: None)
    solver = ls.Solver(family)
    rows = compare_costs({"kept": solver, "half": solver, "none": solver}, data)
    assert asked == [("kept", 1e-3), ("kept", 1e-6), ("half", 1e-3), ("half", 1e-6), ("none", 1e-3)]
    assert [(cost.eps, cost.unsolved) for cost in rows.of("none")] == [(1e-3, 6), (1e-6, 6)]


def test_what_is_given_by_name_is_counted_in_any_shape(monkeypatch):
    # Matrices and scalars: some instances go on by themselves, and are found by their numbers.
    x, c, top = cp.Variable((2, 3)), cp.Parameter((2, 3), name="c"), cp.Parameter(name="top")
    model = ls.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + cp.vdot(c, x)), [x >= -1, cp.sum(x) <= top]))
    rng = np.random.default_rng(0)
    named = {"c": 3 * rng.normal(size=(7, 2, 3)), "top": rng.normal(size=7) - 3}
    family = model.family
    assert family.count(named) == 7
    np.testing.assert_array_equal(family.select(named, np.array([4, 1])), model.stack(named)[[4, 1]])
    monkeypatch.setattr(evaluation, "SOON", 5)
    solver = ls.Solver(family, finish=False)
    found = solver_cost("", solver, named, 1e-6)
    assert found.unsolved == 0
    np.testing.assert_array_equal(found.steps, solver_cost("", solver, model.stack(named), 1e-6).steps)


def test_what_is_exact_at_once_is_kept():
    family, data = instances()
    assert choose_solver([ls.Solver(family, finish=3), ls.Solver(family, rho_ineq=1.0)], data) == 0


@pytest.mark.parametrize(
    ("steps", "tries"),
    [
        ({1e-3: (10, 9), 1e-4: (10, 9), 1e-6: (10, 9)}, (7, 7, np.inf)),
        ({1e-3: (10, 9), 1e-4: (10, 9), 1e-6: (10, 11)}, (5, 7, 1e-5)),
        ({1e-3: (10, 9), 1e-4: (10, 11), 1e-6: (10, 10)}, (5, 7, 10**-3.5)),
        ({1e-3: (10, 11), 1e-4: (10, 9), 1e-6: (10, 7)}, (7, 5, 10**-3.5)),
        # Of equals one number for all tolerances, and the first.
        ({1e-3: (10, 10), 1e-4: (10, 9), 1e-6: (10, 9)}, (7, 7, np.inf)),
        ({1e-3: (10, 10), 1e-4: (10, 10), 1e-6: (10, 10)}, (5, 5, np.inf)),
        # A third that is between the others.
        ({1e-3: (10, 8, 9), 1e-4: (10, 8, 9), 1e-6: (7, 8, 9)}, (5, 7, 1e-5)),
        ({1e-3: (10, 9, 8), 1e-4: (10, 9, 8), 1e-6: (10, 7, 9)}, (7, 20, 1e-5)),
    ],
)
def test_when_the_finish_is_tried_is_told_by_tolerance(steps, tries):
    """Of steps that are taken where it is first tried after 5, after 7 and perhaps after 20, by tolerance."""
    marks = (5, 7, 20)[: len(steps[1e-3])]
    found = choose_tries(marks, lambda mark, eps, most: cost("", [steps[eps][marks.index(mark)]]))
    assert (found.tight, found.loose) == tries[:2]
    assert found.eps == pytest.approx(tries[2])


def test_what_is_tried_late_never_leaves_instances_unsolved():
    found = {5: cost("", [100, 100]), 7: cost("", [1, 1], [True, False])}
    assert choose_tries((5, 7), lambda mark, eps, most: found[mark]) == (5, 5, np.inf)


def test_nobody_waits_long_for_a_late_try():
    asked = []

    def measure(mark, eps, most):
        asked.append(most)
        return cost("", [1000])

    choose_tries((5, 7), measure)
    assert asked == [20_000, 2000] * 3


def test_costs_are_the_packages_own():
    family, data = instances()
    theirs, ours = package_cost(family, data, 1e-3), solver_cost("", ls.Solver(family), data, 1e-3)
    assert theirs is not None
    assert theirs.unsolved == ours.unsolved == 0
    assert theirs.steps.min() > 0
    assert package_cost(ls.Quadratic(np.eye(2), q=np.zeros(2)), np.zeros((1, 0)), 1e-3) is None


def test_the_package_gets_the_instances_as_they_are():
    """It reads updates as they lie in memory; data that a parameter map makes lie column by column."""
    import osqp
    import scipy.sparse as sp

    P, q, A, l, u = random_qp(3, equalities=2)
    rng = np.random.default_rng(1)
    family = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=rng.normal(size=(len(q), 3))))
    parameters = rng.normal(size=(6, 3))
    data = family.data(parameters)
    assert not data["q"][0].flags.c_contiguous
    found = package_cost(family, parameters, 1e-6)
    assert found is not None
    assert found.done.all()
    solver, options = osqp.OSQP(), {"eps_abs": 1e-6, "eps_rel": 1e-6, "warm_starting": False, "verbose": False}
    rows = [{name: np.array(data[name][k], order="C") for name in ("q", "l", "u")} for k in range(6)]
    solver.setup(sp.csc_matrix(sp.triu(family.P)), A=sp.csc_matrix(family.A), **rows[0], **options)
    for row, steps in zip(rows, found.steps, strict=True):
        solver.update(**row)
        solution = solver.solve(raise_error=True)
        assert np.max(np.abs(P @ solution.x + row["q"] + A.T @ solution.y)) < 1e-4
        assert solution.info.iter == steps


@pytest.mark.parametrize("free", [False, True])
def test_a_finish_counts_as_the_steps_that_cost_as_much(free):
    family, data = instances()
    if free:
        # With a row that has no bounds.
        d = {name: family.data(data)[name][0] for name in "lu"}
        A, l, u = (np.concatenate([part, part[:1]]) for part in (family.A.toarray(), d["l"], d["u"]))
        l[-1], u[-1] = -np.inf, np.inf
        family = ls.QP(family.P, A, q=np.zeros(family.n), l=l, u=u)
    solver = ls.Solver(family, finish=5)
    found = solver.solve_batch(data, eps_abs=1e-9, eps_rel=1e-9)
    assert np.all(found.exact)
    steps = solver_cost("", solver, data, 1e-9).steps
    assert np.all(steps > found.iterations)
    # As many as there are unknowns: a solve of the system of the active rows is one of their factorizations.
    assert np.all(steps <= found.iterations + family.n + 10 * np.maximum(found.changes, 1))


def test_the_verdict_tells_who_is_faster():
    rows = [Cost(name, eps, np.array(count), np.ones(2, bool), seconds)
            for name, count, seconds in (("learned", [10, 20], 2e-3), ("osqp package", [40, 90], 1e-4))
            for eps in (1e-3, 1e-6)]  # fmt: skip
    assert "In time the osqp package is ahead: 100 µs an instance, against 2 ms" in Costs(tuple(rows)).verdict
    assert "In time" not in Costs(tuple(replace(row, seconds=1.0) for row in rows)).verdict
    rows[:2] = [replace(row, seconds=2e-5, compiled=True) for row in rows[:2]]
    assert Costs(tuple(rows)).verdict.endswith(
        "An instance takes 20 µs with solver.compile(), 100 µs with the osqp package."
    )
    rows[:2] = [replace(row, seconds=2e-4) for row in rows[:2]]
    assert Costs(tuple(rows)).verdict.endswith("100 µs an instance, against 200 µs with solver.compile().")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_times_are_of_what_is_compiled_where_it_can_be(monkeypatch):
    P, q, A, l, u = random_qp(3, equalities=2)
    family = ls.QP(P, A, q=q, l=l, u=u)
    many = {"q": q + 0.1 * np.random.default_rng(0).normal(size=(20, len(q))), "l": l}
    solver = ls.Solver(family)
    calls = []
    solve = CompiledSolver.solve
    monkeypatch.setattr(
        CompiledSolver, "solve", lambda self, one, **rest: calls.append(one) or solve(self, one, **rest)
    )
    rows = compare_costs({"kept": solver, "other": ls.Solver(family, rho_ineq=1.0)}, many).rows
    assert [row.compiled for row in rows if row.name == "kept"] == [True, True]
    assert not any(row.compiled for row in rows if row.name != "kept")
    # Two to warm up and all instances, to two tolerances.
    assert len(calls) == 2 * (2 + 20)
    np.testing.assert_array_equal(calls[2]["q"], many["q"][0])
    np.testing.assert_array_equal(calls[-1]["q"], many["q"][19])
    few = {"q": many["q"][:5]}
    assert time_in_c(solver, few, [1e-3], 100) is None
    # Gradient methods have no C code.
    assert time_in_c(ls.Solver(ls.Quadratic(np.eye(2), q=np.zeros(2))), np.zeros((30, 0)), [1e-3], 100) is None


def test_the_verdict_divides_where_each_is_ahead_at_one_tolerance():
    done = np.ones(3, bool)
    counts = {"learned": ([20, 30, 40], [700, 800, 900]), "scs package": ([50, 60, 70], [500, 510, 520])}
    rows = [
        Cost(name, eps, np.array(steps), done, 1e-3)
        for name, pair in counts.items()
        for eps, steps in zip((1e-3, 1e-6), pair, strict=True)
    ]
    verdict = Costs(tuple(rows)).verdict
    assert verdict.startswith("Use the learned solver to 1e-3: 30 steps in the median and 40 at most, against 60 steps")
    assert "Use the scs package to 1e-6: 510 steps in the median and 520 at most, against 800 steps" in verdict


def test_a_candidate_that_is_slow_at_one_tolerance_may_be_kept(monkeypatch):
    """Fewer steps to 1e-6 for some more to 1e-3; what takes more than twice as many as another is dropped."""
    family = ls.QP(np.eye(1), np.eye(1), q=np.zeros(1), l=np.zeros(1), u=np.ones(1))
    steps = {"first": {1e-3: 150, 1e-6: 2600}, "second": {1e-3: 400, 1e-6: 600}, "third": {1e-3: 1100, 1e-6: 10}}
    solvers = {ls.Solver(family): found for found in steps.values()}

    def measure(name, solver, parameters, eps, *, most):
        count = solvers[solver][eps]
        return Cost(name, eps, np.array([min(count, most)]), np.array([count <= most]), 1.0, most)

    monkeypatch.setattr("longstep.evaluation.choice.solver_cost", measure)
    assert choose_solver(list(solvers), None) == 1
