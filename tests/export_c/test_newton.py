"""The finish of cone programs in C: the points of JAX, optimal by their definition, and memory said beforehand."""

import subprocess

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls

from ..engine.test_newton import TIGHT, programs, stuck
from ..helpers import CONES, is_optimal
from .test_export import CHECKED, STRICT, needs, run

NAMES = ("mixed", *(pytest.param(name, marks=pytest.mark.slow) for name in ("zero", "nonnegative")))
NAMES += tuple(pytest.param(name, marks=pytest.mark.slow) for name in ("second_order", "semidefinite", "all"))


def assert_optimal(family, data, found):
    P, A = family.P.toarray(), family.A.toarray()
    for k in range(len(found)):
        b = data["b"][k] if "b" in data else family.host.values["b"]
        assert is_optimal(P, A, b, data["c"][k], family.cones, found[k]) == ""


@pytest.mark.parametrize("name", NAMES)
def test_c_finishes_as_jax_does(name):
    family, data = programs(CONES[name])
    solver = ls.Solver(family, finish=10)
    compiled = solver.compile()
    ours, theirs = (s.solve_batch(data, **TIGHT, max_iter=200) for s in (compiled, solver))
    assert ours.exact.all()
    np.testing.assert_array_equal(ours.exact, theirs.exact)
    np.testing.assert_array_equal(ours.iterations, theirs.iterations)
    # The last step is one that rounding decides on.
    assert np.abs(ours.changes - theirs.changes).max() <= 1
    for part in ("x", "y", "s"):
        np.testing.assert_allclose(getattr(ours, part), getattr(theirs, part), rtol=1e-10, atol=1e-10)
    assert_optimal(family, data, ours)
    assert compiled.library.workspace_bytes == compiled.code.ram
    assert compiled.library.result_bytes == compiled.code.result


def test_instances_on_which_steps_creep_are_exact():
    """Many multipliers: the linear systems are nearly singular."""
    problem, values = stuck()
    family = ls.from_cvxpy(problem).family
    parameters = family.layout.read_many(values)
    compiled = ls.Solver(family, finish=60).compile()
    found = compiled.solve_batch(parameters, eps_abs=1e-9, eps_rel=1e-9, max_iter=2000)
    assert np.all(found.exact)
    assert np.max(found.iterations) <= 240
    data = family.data(family.vectors(parameters))
    assert_optimal(family, data, found)
    for name, parameter in problem.param_dict.items():
        parameter.value = values[name][0]
    assert found.objective[0] == pytest.approx(problem.solve(solver=cp.CLARABEL), abs=1e-6)


def test_a_try_that_fails_changes_nothing():
    """x₁ ≥ 1 and x₁ ≤ 0, or bounds that meet: the steps go on as if nothing had been tried."""
    A = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.0]])
    cones = ls.Cones(nonnegative=2, second_order=(3,))
    family = ls.Conic(np.eye(2), A, cones, b=np.array([-1.0, 2.0, 5.0, 1.0, 1.0]), c=np.ones(2))
    b = np.array([[-1.0, 0.0, 5.0, 1.0, 1.0], [-1.0, 2.0, 5.0, 1.0, 1.0]])
    without, tried = (
        ls.Solver(family, finish=k).compile().solve_batch({"b": b}, **TIGHT, check_every=5) for k in (False, 5)
    )
    assert tried.exact.tolist() == [False, True]
    assert tried.status[0] == without.status[0] == ls.Status.PRIMAL_INFEASIBLE
    assert tried.iterations[0] == without.iterations[0]
    np.testing.assert_allclose(tried.ray_y[0], without.ray_y[0], rtol=1e-12)
    np.testing.assert_allclose(tried.x, without.x, atol=1e-8)


def test_one_instance_in_pieces_and_what_has_no_finish():
    family, data = programs(CONES["mixed"])
    solver = ls.Solver(family, finish=10)
    compiled = solver.compile()
    first = {"c": data["c"][0]}
    cold = compiled.solve(first, **TIGHT)
    assert (cold.exact, cold.iterations) == (True, 10)
    # A factorization costs more than a look: warm starts are not tried at once.
    warm = compiled.solve({"c": data["c"][1]}, **TIGHT, warm_start=cold)
    assert (warm.exact, warm.iterations) == (True, 10)
    timed = compiled.solve(first, **TIGHT, time_limit=60.0)
    assert (timed.exact, timed.changes) == (True, cold.changes)
    assert compiled.solve(first, steps=20).exact is False
    assert solver.compile(precision="float").solve(first, eps_abs=1e-4, eps_rel=1e-4).exact is False


@pytest.mark.parametrize("compiler", [pytest.param(name, marks=needs(name)) for name in ("gcc", "clang")])
def test_it_builds_without_a_warning_and_sanitizers_find_nothing(compiler, tmp_path):
    family, data = programs(CONES["mixed"])
    export = ls.generate_c(ls.Solver(family, finish=10), tmp_path / "c", prefix="cone")
    program = export.build(compiler=compiler, options=CHECKED if compiler == "gcc" else (*STRICT, "-Wconversion"))
    b = family.host.values["b"]
    for k in range(3):
        status, iterations, _ = run(program, np.concatenate([b, data["c"][k]]), tmp_path)
        assert (status, iterations) == (ls.Status.SOLVED, 10)


@needs("valgrind")
@pytest.mark.slow
def test_valgrind_finds_nothing(tmp_path):
    """Nothing is read before it is written, in a workspace that is new."""
    family, data = programs(CONES["mixed"])
    ls.generate_c(ls.Solver(family, finish=10), tmp_path, prefix="cone")
    values = np.concatenate([family.host.values["b"], data["c"][0]])
    (tmp_path / "new.c").write_text(
        '#include "cone.h"\n#include <stdlib.h>\n'
        f"int main(void) {{ double p[] = {{{', '.join(map(repr, values.tolist()))}}}; cone_settings s; int done;\n"
        "cone_workspace *w = malloc(sizeof *w); cone_result *r = malloc(sizeof *r); cone_defaults(&s);\n"
        "s.eps_abs = s.eps_rel = 1e-9; done = cone_solve(w, &s, p, r) == CONE_SOLVED && r->changes > 0;\n"
        "done &= r->x[0] < 1e9; free(w); free(r); return !done; }\n"
    )
    call = ["gcc", "-std=c99", "-O1", "-g", "new.c", "cone.c", "-lm", "-o", "new"]
    subprocess.run(call, cwd=tmp_path, check=True)
    subprocess.run(
        ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "./new"], cwd=tmp_path, check=True
    )
