"""Programs with exponential and power cones: solved, refused, infeasible, saved, learned."""

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.cvxpy import from_cvxpy

from ..helpers import CONES, random_conic

TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000}


@pytest.mark.parametrize("kind", ["exponential", "power", "all"])
@pytest.mark.parametrize("equilibrate", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_duals_are_clarabels_and_lie_in_the_dual_cone(kind, equilibrate):
    """A dual projected onto a cone that is not its own would lie in the wrong one."""
    cones = CONES[kind]
    P, A, b, c = random_conic(3, cones, n=5)
    family = ls.Conic(P, A, cones, b=b, c=c, equilibrate=equilibrate)
    reference = ls.solve_references(family, [{}], cache=False, jobs=1, progress=False)
    solution = ls.Solver(family).solve({}, **TIGHT)
    assert solution.solved, solution.message
    np.testing.assert_allclose(solution.x, reference.x[0], atol=1e-5)
    # What is not active in s and y may be shared out in more than one way; their product with A is not.
    np.testing.assert_allclose(A.T @ solution.y, A.T @ reference.y[0], atol=1e-4)
    np.testing.assert_allclose(cones.project_dual(solution.y), solution.y, atol=1e-7)
    np.testing.assert_allclose(cones.project(solution.s), solution.s, atol=1e-7)
    assert abs(solution.s @ solution.y) < 1e-6


@pytest.mark.parametrize("equilibrate", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_infeasible_and_unbounded_exponential_programs(equilibrate):
    # (x, 1, −1) is in no exponential cone; of (x, 1, e) it is all x ≤ 1, so that −x has an infimum and x has none.
    A = np.array([[-1.0], [0.0], [0.0]])
    family = ls.Conic(np.zeros((1, 1)), A, ls.Cones(exponential=1), equilibrate=equilibrate)
    solver = ls.Solver(family)
    infeasible = solver.solve({"b": [0.0, 1.0, -1.0], "c": [0.0]})
    assert infeasible.status == ls.Status.PRIMAL_INFEASIBLE
    ray = infeasible.ray_y
    np.testing.assert_allclose(family.cones.project_dual(ray), ray, atol=1e-9 * np.abs(ray).max())
    assert ray @ [0.0, 1.0, -1.0] < 0
    assert solver.solve({"b": [0.0, 1.0, np.e], "c": [1.0]}).status == ls.Status.DUAL_INFEASIBLE
    solution = solver.solve({"b": [0.0, 1.0, np.e], "c": [-1.0]}, **TIGHT)
    assert solution.status == ls.Status.SOLVED
    np.testing.assert_allclose(solution.x, 1.0, atol=1e-6)


def logistic_utility():
    z, b, p = cp.Variable(2, name="z"), cp.Parameter(3, name="b"), cp.Parameter(name="p")
    A = np.array([[1.0, -0.5], [0.3, 0.8], [-0.7, 0.2]])
    cost = cp.sum(cp.logistic(A @ z - b)) - cp.sum(cp.entr(z)) + 0.2 * cp.exp(z[0]) - cp.log(z[1] + p)
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(z) <= 2])
    return problem, lambda r: {"b": r.normal(size=3), "p": 0.5 + r.random()}


def test_a_problem_with_both_cones_is_learned(tmp_path):
    """Few steps of a small problem, with a logarithm and a mean to weighted powers."""
    z, mean, p = cp.Variable(2, name="z"), cp.Variable(name="mean"), cp.Parameter(2, name="p")
    cost = p @ z - cp.log(z[0]) - mean + cp.sum_squares(z)
    model = from_cvxpy(cp.Problem(cp.Minimize(cost), [cp.PowCone3D(z[0], z[1], mean, 0.3)]))
    assert model.family.cones == ls.Cones(exponential=1, power=(0.3,))
    H, parameters = 2, {"p": 0.3 * np.random.default_rng(0).normal(size=(4, 2))}
    data = ls.Dataset.from_parameters(model.family, {"train": model.stack(parameters)}, cache=False, jobs=1)
    options = {"horizon": H, "block": H, "iterations": 5, "starts": 1, "candidates": 5, "metric": False}
    learned = ls.train(model.family, data, **options, cache=False, progress=False).schedule
    # The defaults as a schedule of as many steps, which is the same program.
    steady = ls.Solver(model.family).schedule.steady
    defaults = ls.Schedule({name: np.full(H, value) for name, value in steady.items()}, steady)
    ls.Solver(model.family, learned, safeguard=None).save(tmp_path / "learned.longstep")
    solvers = ls.Solver.load(tmp_path / "learned.longstep"), ls.Solver(model.family, defaults, safeguard=None)
    errors = [np.log(solver.run(data.train.parameters, H).worst[:, -1]).mean() for solver in solvers]
    assert errors[0] < errors[1] - 0.3


@pytest.mark.slow
def test_a_problem_with_logarithms_is_learned_and_saved(tmp_path):
    problem, sample = logistic_utility()
    model = from_cvxpy(problem)
    assert model.family.cones.exponential > 0
    names = {"train": 6, "validation": 4}
    data = ls.Dataset.sample(model.family, lambda r: model.stack(sample(r)), names, cache=False, progress=False)
    trained = ls.train(
        model.family,
        data.train,
        horizon=3,
        block=3,
        iterations=15,
        starts=1,
        candidates=10,
        cache=False,
        progress=False,
    )
    solver, vanilla = ls.Solver(model.family, trained.schedule), ls.Solver(model.family)
    parameters = data.train.parameters
    errors = [np.log(s.run(parameters, 3).worst[:, -1]).mean() for s in (solver, vanilla)]
    assert errors[0] < errors[1]
    solver.save(tmp_path / "solver.longstep")
    loaded = ls.Solver.load(tmp_path / "solver.longstep")
    assert loaded.family.cones == model.family.cones
    held_out = data.validation.parameters
    solution = loaded.solve_batch(held_out, **TIGHT)
    assert solution.solved.all()
    np.testing.assert_array_equal(solution.x, solver.solve_batch(held_out, **TIGHT).x)
    np.testing.assert_allclose(solution.x, data.validation.optima.x, atol=1e-5)
    values = model.layout.split(held_out[0])
    for parameter in problem.parameters():
        parameter.value = values[parameter.name()]
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(model.unpack(solution, 0)["z"], problem.var_dict["z"].value, atol=1e-4)
    best = problem.value
    problem.solve(solver=model.cvxpy_solver(loaded), **TIGHT)
    assert problem.status == "optimal"
    np.testing.assert_allclose(problem.value, best, atol=1e-6)
