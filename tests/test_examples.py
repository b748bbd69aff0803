"""The examples: their families against CVXPY, their solutions and duals against Clarabel, and each as a script."""

import re
import runpy
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.cli.modelfile import load_model

from .cvxpy.problems import set_values
from .cvxpy.test_model import assert_data_equal_cvxpy, assert_solution_equals_cvxpy, dense, solved

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = ("battery", "cart", "kalman", "nnls", "portfolio", "quadcopter", "svm")
every_example = pytest.mark.parametrize("name", NAMES)


def load(name):
    """The example's problem and sampler as the command line finds them, and its model: new ones at every call."""
    with load_model(FOLDER / f"{name}.py") as file:
        return file.problem, file.sample, ls.from_cvxpy(file.problem)


@cache
def solve(name):
    """The problem, solved by Clarabel, its model, the parameter and our solution; not to be changed by tests."""
    problem, sample, model = load(name)
    return problem, model, *solved(problem, model, sample(np.random.default_rng(1)))


def test_every_example_is_tested():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(NAMES)


@every_example
def test_instance_data_are_those_of_cvxpy(name):
    problem, sample, model = load(name)
    assert isinstance(model.family, ls.Conic if name == "kalman" else ls.QP)
    for seed in range(3):
        values = sample(np.random.default_rng(seed))
        set_values(problem, values)
        assert_data_equal_cvxpy(problem, model, model.stack(values))


@every_example
def test_every_draw_is_another_instance_that_has_an_optimum(name):
    problem, sample, model = load(name)
    draws = [model.stack(sample(np.random.default_rng([7, seed]))) for seed in range(5)]
    assert len(np.unique(draws, axis=0)) == len(draws)
    for x in draws:
        set_values(problem, model.layout.split(x))
        problem.solve(solver=cp.CLARABEL)
        assert problem.status == cp.OPTIMAL


@pytest.mark.slow
@every_example
def test_solutions_are_those_of_clarabel(name):
    problem, _, _, solution = solve(name)
    assert solution.variables.keys() == {v.name() for v in problem.variables()}
    for variable in problem.variables():
        np.testing.assert_allclose(solution.variables[variable.name()], dense(variable.value), atol=1e-5)
    np.testing.assert_allclose(solution.objective, problem.value, rtol=1e-6)


# With an empty or full battery that rests for hours the value of stored energy is not unique.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "battery"])
def test_duals_are_those_of_clarabel(name):
    assert_solution_equals_cvxpy(*solve(name), atol=1e-4)


@every_example
def test_variables_and_duals_meet_the_conditions_of_optimality(name):
    """Stationarity by CVXPY's own derivatives, signs and complementarity by its own expressions."""
    _, _, x, solution = solve(name)
    problem, _, model = load(name)
    set_values(problem, model.layout.split(x))
    for variable in problem.variables():
        variable.save_value(solution.variables[variable.name()])
    duals, sense = model.duals(solution), 1 if isinstance(problem.objective, cp.Minimize) else -1
    lagrangian = sense * problem.objective.expr
    for constraint in problem.constraints:
        dual, slack = duals[constraint.id], constraint.expr
        lagrangian += cp.sum(cp.multiply(dual, slack))
        assert np.abs(constraint.violation()).max() < 1e-5
        if isinstance(constraint, cp.constraints.Inequality):
            assert np.min(dual) > -1e-7
            assert np.abs(dual * slack.value).max() < 1e-5
    for variable, gradient in lagrangian.grad.items():
        slope = np.reshape(dense(gradient), variable.shape, order="F")
        at_bound = np.minimum(variable.value, slope) if variable.attributes["nonneg"] else slope
        assert np.abs(at_bound).max() < 1e-4


# The last line of each compares what the learned solver gives with what one would do without.
BETTER = {
    "battery": (r"(\S+) € with the battery, (\S+) € without", -1),
    "kalman": (r"(\S+) m after 50 steps, (\S+) m with squares", -1),
    "nnls": (r"wrong by (\d+)% on average, .* by (\d+)%", -1),
    "portfolio": (r"rebalanced: worth (\S+)% .*\nleft alone: worth (\S+)%", 1),
    "svm": (r"(\S+)% right; by the nearest station (\S+)%", 1),
}


@pytest.mark.slow
@every_example
def test_the_script_runs_to_its_end(name, capsys):
    less = {
        "cart": {"steps": 50},
        "kalman": {"drives": 30},
        "nnls": {"pixels": 50},
        "quadcopter": {"steps": 20},
        "svm": {"hours": 20},
    }
    main = runpy.run_path(str(FOLDER / f"{name}.py"))["main"]
    sizes = {"train": 6, "validation": 700, "test": 10}
    quick = {"horizon": 20, "iterations": 10, "candidates": 20, "cache": False, "progress": False}
    main(sizes=sizes, **quick, **less.get(name, {}))
    out = capsys.readouterr().out
    assert "with confidence 0.997" in out
    assert "solved after" in out
    assert "through CVXPY: optimal" in out
    if name in BETTER:
        pattern, sign = BETTER[name]
        found = re.search(pattern, out)
        assert found, out
        ours, without = map(float, found.groups())
        assert sign * ours > sign * without
