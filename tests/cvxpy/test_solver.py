"""`problem.solve(solver=learned)`: longstep as a solver of CVXPY, against Clarabel."""

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.error import SolverError

import longstep as ls
from longstep.cvxpy import from_cvxpy

from .problems import PROBLEMS, mpc, nnls, portfolio, set_values

TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000}
CLARABEL = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def learned(problem, **options):
    model = from_cvxpy(problem)
    return model.cvxpy_solver(ls.Solver(model.family), **options)


def flat(value):
    """Any value or dual value of CVXPY as one vector: arrays, sparse matrices and lists of them."""
    parts = value if isinstance(value, list | tuple) else [value]
    return np.concatenate([np.ravel(p.toarray() if hasattr(p, "toarray") else p) for p in parts])


def state(problem):
    """All that a solve sets."""
    values = {v.name(): flat(v.value) for v in problem.variables()}
    return problem.value, values, [flat(c.dual_value) for c in problem.constraints]


# CVXPY says it of Clarabel, whose tolerances are tight here, and of every status but OPTIMAL.
says_inaccurate = pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")


@pytest.mark.slow
@says_inaccurate
@pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)
def test_values_duals_and_status_are_set(make):
    problem, sample = make()
    solver = learned(problem, **TIGHT)
    for seed in (0, 3):
        set_values(problem, sample(np.random.default_rng(seed)))
        problem.solve(**CLARABEL)
        value, values, duals = state(problem)
        for variable in problem.variables():
            variable.save_value(None)
        assert problem.solve(solver=solver) == problem.value
        assert problem.status == cp.OPTIMAL
        assert problem.solver_stats.solver_name == "LONGSTEP"
        assert problem.solver_stats.num_iters > 0
        ours = state(problem)
        np.testing.assert_allclose(ours[0], value, atol=1e-5)
        np.testing.assert_allclose(problem.objective.value, value, atol=1e-5)
        for name in values:
            np.testing.assert_allclose(ours[1][name], values[name], atol=1e-5)
        for one, other in zip(ours[2], duals, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@says_inaccurate
def test_it_is_the_solution_of_the_family_itself():
    problem, sample = mpc()
    model, values = from_cvxpy(problem), sample(np.random.default_rng(0))
    solver = ls.Solver(model.family)
    set_values(problem, values)
    problem.solve(solver=model.cvxpy_solver(solver), steps=25)
    named = model.unpack(solver.solve(model.stack(values), steps=25))
    for variable in problem.variables():
        np.testing.assert_array_equal(variable.value, named[variable.name()])
    assert problem.solver_stats.num_iters == 25


def test_an_unmet_tolerance_is_said_and_the_point_is_kept():
    problem, sample = mpc()
    set_values(problem, sample(np.random.default_rng(0)))
    with pytest.warns(UserWarning, match="may be inaccurate"):
        problem.solve(solver=learned(problem), max_iter=5)
    assert problem.status == cp.USER_LIMIT
    assert np.isfinite(problem.value)
    assert all(np.isfinite(v.value).all() for v in problem.variables())


def test_infeasible_and_unbounded_instances():
    x, low, cost = cp.Variable(2, name="x"), cp.Parameter(2, name="low"), cp.Parameter(2, name="cost")
    problem = cp.Problem(cp.Minimize(cost @ x), [x >= low, x[0] <= 1])
    solver = learned(problem)
    for bound, price, status, value in (
        ([0.0, 0.0], [1.0, 1.0], cp.OPTIMAL, 0.0),
        ([2.0, 0.0], [1.0, 1.0], cp.INFEASIBLE, np.inf),
        ([0.0, 0.0], [1.0, -1.0], cp.UNBOUNDED, -np.inf),
    ):
        low.value, cost.value = np.array(bound), np.array(price)
        problem.solve(solver=solver)
        assert problem.status == status
        assert problem.value == pytest.approx(value, abs=1e-3)
        assert (x.value is None) == (status != cp.OPTIMAL)


def test_a_numerical_failure_raises():
    problem, sample = nnls()
    model = from_cvxpy(problem, dtype="float32", equilibrate=False)
    set_values(problem, {"b": 1e30 * sample(np.random.default_rng(0))["b"]})
    with pytest.raises(SolverError, match="LONGSTEP"):
        problem.solve(solver=model.cvxpy_solver(ls.Solver(model.family)))


def test_the_same_problem_built_again_is_solved():
    solver = learned(portfolio()[0], **TIGHT)
    problem, sample = portfolio()
    set_values(problem, sample(np.random.default_rng(1)))
    value = problem.solve(**CLARABEL)
    assert problem.solve(solver=solver) == pytest.approx(value, abs=1e-6)


def test_another_problem_is_refused():
    solver = learned(portfolio()[0])
    for other, part in ((portfolio(seed=1), "constraints"), (nnls(), "sizes, parameters, variables")):
        problem, sample = other
        set_values(problem, sample(np.random.default_rng(0)))
        with pytest.raises(SolverError, match=rf"learned for another problem: they differ in their {part}"):
            problem.solve(solver=solver)
    renamed, sample = portfolio()
    mu = renamed.param_dict["mu"]
    mu._name = "returns"
    set_values(renamed, {"returns": np.ones(8), "held": np.ones(8)})
    with pytest.raises(SolverError, match="they differ in their parameters"):
        renamed.solve(solver=solver)


def test_parameters_as_constants_are_refused():
    problem, sample = nnls()
    set_values(problem, sample(np.random.default_rng(0)))
    with pytest.raises(SolverError, match="ignore_dpp"):
        problem.solve(solver=learned(problem), ignore_dpp=True)


def test_the_solver_must_be_of_the_family():
    model, other = from_cvxpy(portfolio()[0]), from_cvxpy(portfolio(seed=1)[0])
    with pytest.raises(ValueError, match="for another family"):
        model.cvxpy_solver(ls.Solver(other.family))
    with pytest.raises(ValueError, match="for another family"):
        model.cvxpy_solver(ls.Solver(from_cvxpy(portfolio()[0], form="conic").family))
    single = from_cvxpy(portfolio()[0], dtype="float32", equilibrate=False)
    assert model.cvxpy_solver(ls.Solver(single.family))


def test_last_bits_do_not_make_another_family():
    model = from_cvxpy(nnls()[0])
    f = model.family
    values = {k: v for k, v in f.host.values.items()}
    moved = ls.QP(f.P * (1 + 1e-15), f.A, **values, equalities=f.host.kinds.equality, parameter=f.parameter)
    assert moved.problem_hash() != f.problem_hash()
    assert model.cvxpy_solver(ls.Solver(moved))
    changed = ls.QP(f.P * (1 + 1e-6), f.A, **values, equalities=f.host.kinds.equality, parameter=f.parameter)
    with pytest.raises(ValueError, match="for another family"):
        model.cvxpy_solver(ls.Solver(changed))


def test_options():
    problem, sample = nnls()
    set_values(problem, sample(np.random.default_rng(0)))
    with pytest.raises(SolverError, match=r"no option rho; it has eps_abs, eps_rel, max_iter, steps, time_limit"):
        problem.solve(solver=learned(problem), rho=1.0)
    with pytest.raises(SolverError, match="no option polish"):
        learned(problem, polish=True)
    with pytest.warns(UserWarning, match="may be inaccurate"):
        problem.solve(solver=learned(problem, steps=7), steps=3)
    assert problem.solver_stats.num_iters == 3


def test_verbose_says_how_it_ended(capsys):
    problem, sample = nnls()
    set_values(problem, sample(np.random.default_rng(0)))
    problem.solve(solver=learned(problem), verbose=True)
    assert "Solved: the residuals" in capsys.readouterr().out


@pytest.mark.parametrize("warm", [False, True])
def test_a_warm_start_only_with_a_schedule_for_it(warm):
    """CVXPY asks for a warm start by default; from a cold schedule it would skip the learned steps."""
    problem, sample = nnls()
    model = from_cvxpy(problem)
    schedule = ls.Solver(model.family).schedule
    schedule = ls.Schedule({}, {name: schedule.steady[name] for name in schedule.steady}, warm=warm)
    solver = model.cvxpy_solver(ls.Solver(model.family, schedule), eps_abs=1e-8, eps_rel=1e-8)
    set_values(problem, sample(np.random.default_rng(0)))
    counts = []
    for _ in range(2):
        problem.solve(solver=solver)
        counts.append(problem.solver_stats.num_iters)
    assert (counts[1] < counts[0]) == warm
    problem.solve(solver=solver, warm_start=False)
    assert problem.solver_stats.num_iters == counts[0]


@says_inaccurate
def test_saved_and_loaded(tmp_path):
    problem, sample = mpc()
    set_values(problem, sample(np.random.default_rng(0)))
    model = from_cvxpy(problem)
    ls.Solver(model.family, rho_ineq=0.5).save(tmp_path / "mpc.longstep")
    again, _ = mpc()
    set_values(again, sample(np.random.default_rng(0)))
    loaded = ls.Solver.load(tmp_path / "mpc.longstep")
    values = [
        p.solve(solver=from_cvxpy(p).cvxpy_solver(s, steps=30))
        for p, s in ((problem, ls.Solver(model.family, rho_ineq=0.5)), (again, loaded))
    ]
    assert values[0] == values[1]


def test_it_does_not_solve_without_a_solver():
    problem, sample = nnls()
    set_values(problem, sample(np.random.default_rng(0)))
    with pytest.raises(SolverError, match="has no solver"):
        problem.solve(solver=type(learned(problem))())


def test_a_compiled_solver_sets_the_same_values():
    problem, sample = portfolio()
    model = from_cvxpy(problem)
    solver = ls.Solver(model.family)
    set_values(problem, sample(np.random.default_rng(0)))
    found = []
    for chosen in (solver, solver.compile()):
        problem.solve(solver=model.cvxpy_solver(chosen, **TIGHT))
        found.append(state(problem))
    (value, values, duals), (again, others, more) = found
    np.testing.assert_allclose(again, value, atol=1e-8)
    for name in values:
        np.testing.assert_allclose(others[name], values[name], atol=1e-7)
    for one, other in zip(duals, more, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_tolerances_are_those_that_cvxpy_asks_its_own_solvers_for():
    """CVXPY calls OSQP with 1e-5; its own objects tell what it reached."""
    problem, sample = portfolio()
    model = from_cvxpy(problem)
    set_values(problem, sample(np.random.default_rng(0)))
    solver = ls.Solver(model.family)
    problem.solve(solver=model.cvxpy_solver(solver))
    through = problem.solver_stats.num_iters
    assert through == solver.solve(model.parameters_now(), eps_abs=1e-5, eps_rel=1e-5).iterations
    assert through > solver.solve(model.parameters_now()).iterations
    problem.solve(solver=model.cvxpy_solver(solver, eps_abs=1e-3, eps_rel=1e-3))
    assert problem.solver_stats.num_iters < through
    single = from_cvxpy(problem, dtype="float32")
    problem.solve(solver=single.cvxpy_solver(ls.Solver(single.family)))
    assert problem.status == cp.OPTIMAL
