"""The finish in C: the same sets and points as in JAX, and memory said beforehand."""

import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.condensed import Condensed

from ..engine.test_finish import CASES, make_instances, worst_condition
from .test_export import CHECKED, run

TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9}


@pytest.mark.parametrize("case", CASES)
def test_c_finishes_as_jax_does(case):
    family, data = make_instances(case)
    solver = ls.Solver(family, algorithm=Condensed(), finish=5)
    compiled = solver.compile()
    ours, theirs = compiled.solve_batch(data, **TIGHT), solver.solve_batch(data, **TIGHT)
    assert ours.exact.all()
    assert theirs.exact.all()
    assert worst_condition(family, data, ours).max() < 1e-9
    np.testing.assert_array_equal(ours.iterations, theirs.iterations)
    np.testing.assert_allclose(ours.objective, theirs.objective, rtol=1e-9, atol=1e-9)
    if case in ("definite", "dependent equalities"):
        # Where bounds only touch, rounding decides whether they are in the set.
        clear = np.arange(len(ours)) % 4 != 3
        np.testing.assert_array_equal(ours.changes[clear], theirs.changes[clear])
        np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(ours.y, theirs.y, rtol=1e-8, atol=1e-8)
    assert compiled.library.workspace_bytes == compiled.code.ram
    assert compiled.library.result_bytes == compiled.code.result


def test_one_instance_warm_starts_and_what_has_no_finish():
    family, data = make_instances("definite")
    solver = ls.Solver(family, algorithm=Condensed(), finish=5)
    compiled = solver.compile()
    first = {name: value[0] for name, value in data.items()}
    cold = compiled.solve(first, **TIGHT)
    assert (cold.exact, cold.iterations) == (True, 5)
    near = first | {"q": first["q"] + 1e-3}
    warm = compiled.solve(near, warm_start=cold, **TIGHT)
    assert (warm.exact, warm.iterations) == (True, 0)
    np.testing.assert_allclose(warm.x, solver.solve(near, **TIGHT).x, atol=1e-10)
    # The steps alone are what they were.
    steps = {"steps": 7}
    np.testing.assert_allclose(compiled.solve(first, **steps).x, solver.solve(first, **steps).x, atol=1e-10)
    assert compiled.solve(first, **steps).exact is False
    single = solver.compile(precision="float").solve(first, eps_abs=1e-4, eps_rel=1e-4)
    assert single.exact is False


def test_a_try_that_fails_changes_nothing():
    """Instances without a solution: the steps go on as if nothing had been tried."""
    family, data = make_instances("definite")
    data["l"][:, 5], data["u"][:, 5] = 500.0, 600.0
    compiled = {k: ls.Solver(family, algorithm=Condensed(), finish=k).compile() for k in (False, 5)}
    without, tried = (c.solve_batch(data, max_iter=400, check_every=5) for c in compiled.values())
    assert not tried.exact.any()
    np.testing.assert_array_equal(tried.status, without.status)
    np.testing.assert_array_equal(tried.iterations, without.iterations)
    np.testing.assert_allclose(tried.x, without.x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["repeated rows", pytest.param("singular", marks=pytest.mark.slow)])
def test_sanitizers_find_nothing(case, tmp_path):
    family, data = make_instances(case)
    solver = ls.Solver(family, algorithm=Condensed(), finish=5)
    program = ls.generate_c(solver, tmp_path / "c", prefix="mpc").build(options=CHECKED)
    for k in range(4):
        parameter = np.concatenate([data[name][k] for name in "qlu"])
        status, iterations, _ = run(program, parameter, tmp_path)
        assert status == ls.Status.SOLVED
        assert iterations <= 5
