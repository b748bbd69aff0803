"""Solver.compile: the wrapper around the library, batches, threads, time limits, names, and what it refuses."""

import dataclasses
import errno
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import longstep as ls
from longstep._util import storage
from longstep.errors import CompilerError, NoRoomError
from longstep.evaluation.timing import time_in_c
from longstep.export_c import CompiledSolver, build
from longstep.export_c import code as longstep_code
from longstep.export_c.kept import KeptSolver, find_kept, is_intact, keep
from longstep.export_c.library import Slot, check_settings, locate_factors
from longstep.families.names import Block, Layout
from longstep.families.parameter_range import Seen

from .compare import assert_equal, example
from .test_equality import PARAMETERS, conic, linear_program, qp


def test_a_batch_is_a_loop():
    _, compiled = qp()
    batch = compiled.solve_batch(PARAMETERS, eps_abs=1e-6, eps_rel=1e-6)
    assert len(batch) == 4
    for threads in (1, 3):
        again = compiled.solve_batch(PARAMETERS, eps_abs=1e-6, eps_rel=1e-6, threads=threads)
        np.testing.assert_array_equal(again.x, batch.x)
    for k, x in enumerate(PARAMETERS):
        one = compiled.solve(x, eps_abs=1e-6, eps_rel=1e-6)
        assert_equal(batch[k], one, 1e-15)
    warm = compiled.solve_batch(PARAMETERS, warm_start=batch, eps_abs=1e-5, eps_rel=1e-5)
    assert warm.iterations.max() == 0
    partial = compiled.solve_batch(PARAMETERS, warm_start=ls.Point(batch.x), max_iter=3)
    one = compiled.solve(PARAMETERS[1], warm_start=ls.Point(batch.x[1]), max_iter=3)
    assert_equal(partial[1], one, 1e-15)


def test_batches_of_data_and_their_rays():
    solver, compiled = linear_program()
    data = {"q": np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, 2.0]]), "l": np.array([[0.5, 0, 0], [0, 0, 0], [2, 0, 0]])}
    data["u"] = np.array([[3.0, 1, 1], [np.inf] * 3, [3, 0.5, 0.5]])
    ours, theirs = compiled.solve_batch(data), solver.solve_batch(data)
    np.testing.assert_array_equal(ours.status, theirs.status)
    assert set(ours.status) == {ls.Status.SOLVED, ls.Status.DUAL_INFEASIBLE, ls.Status.PRIMAL_INFEASIBLE}
    np.testing.assert_allclose(ours.ray_x, theirs.ray_x, rtol=1e-6)
    np.testing.assert_allclose(ours.ray_y, theirs.ray_y, rtol=1e-6)


def test_threads_do_not_share_workspaces():
    _, compiled = qp()
    expected = [compiled.solve(x, eps_abs=1e-9, eps_rel=1e-9).x for x in PARAMETERS]
    wrong = []

    def work(k):
        for _ in range(200):
            if not np.array_equal(compiled.solve(PARAMETERS[k], eps_abs=1e-9, eps_rel=1e-9).x, expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_as_many_threads_as_there_are_calls_have_workspaces():
    """One that takes the last workspace while another looks for it gets a new one."""
    _, compiled = qp()

    class Emptied(list):
        def __bool__(self):
            return True

    compiled._slots = Emptied()
    assert compiled.solve(PARAMETERS[0]).solved
    compiled._slots = []


@pytest.mark.parametrize("precision", ["double", "float"])
@pytest.mark.parametrize("make", [qp, linear_program, lambda: conic("mixed")])
def test_the_header_is_what_python_knows_of_the_code(make, precision):
    solver = make()[0]
    compiled = solver.compile(precision=precision)
    library = compiled.library
    for name, said in (("workspace", library.workspace_bytes), ("result", library.result_bytes)):
        assert library.ffi.sizeof(f"longstep_{name}") == said
    for status in ls.Status:
        assert getattr(library.calls, f"LONGSTEP_{status.name}") == status
    slot = Slot(library)
    library.calls.longstep_defaults(slot.settings)
    limits = {"eps_abs": 1e-4, "eps_rel": 1e-4, "eps_infeasible": compiled.code.problem.eps_infeasible}
    expected = check_settings(**limits, max_iter=10_000, check_every=5, steps=None)
    assert {name: getattr(slot.settings, name) for name in expected} == pytest.approx(expected)
    assert [name for name, _ in library.ffi.typeof("longstep_settings").fields] == list(expected)
    found = library.read(np.zeros(2, library.result))
    assert set(found) <= {field.name for field in dataclasses.fields(ls.Solution)}
    assert (library.n, library.m, library.size) == (solver.family.n, solver.family.m, len(slot.parameter))


def test_time_limits():
    _, compiled = qp()
    x = PARAMETERS[0]
    enough = compiled.solve(x, time_limit=60.0, eps_abs=1e-8, eps_rel=1e-8)
    assert_equal(enough, compiled.solve(x, eps_abs=1e-8, eps_rel=1e-8), 1e-14)
    short = compiled.solve(x, time_limit=1e-9, eps_abs=0, eps_rel=0)
    assert short.status == ls.Status.TIME_LIMIT
    assert short.iterations == 0
    never = compiled.solve(x, time_limit=0.05, eps_abs=0, eps_rel=0, max_iter=10**9)
    assert never.status == ls.Status.TIME_LIMIT
    assert never.iterations > 100
    assert max(never.primal_residual, never.dual_residual) < 1e-8
    assert compiled.solve(x, time_limit=60.0, eps_abs=0, eps_rel=0, max_iter=33).status == ls.Status.ITERATION_LIMIT
    batch = compiled.solve_batch(PARAMETERS, time_limit=60.0, max_iter=30, eps_abs=1e-12)
    np.testing.assert_array_equal(batch.x, compiled.solve_batch(PARAMETERS, max_iter=30, eps_abs=1e-12).x)


def test_names_in_and_out():
    family, instances = example("battery")
    compiled = ls.Solver(family).compile()
    named = compiled.solve(instances[0])
    vector = compiled.solve(family.layout.read_one(instances[0]))
    np.testing.assert_array_equal(named.x, vector.x)
    assert named.variables["stored"].shape == (24,)
    batch = compiled.solve_batch(instances)
    np.testing.assert_array_equal(batch.x[0], named.x)
    with pytest.raises(ValueError, match="'price' has no value"):
        compiled.solve({k: v for k, v in instances[0].items() if k != "price"})
    with pytest.raises(ValueError, match="less than its bound"):
        compiled.solve({**instances[0], "load": -np.ones(24)})
    with pytest.raises(ValueError, match="must have shape"):
        compiled.solve({**instances[0], "price": np.ones(3)})
    with pytest.raises(ValueError, match="must be finite"):
        compiled.solve({**instances[0], "price": np.full(24, np.nan)})


def test_named_values_without_attributes_take_the_short_way():
    family, instances = example("quadcopter")
    compiled = ls.Solver(family).compile()
    state = instances[0]["s0"]
    np.testing.assert_array_equal(compiled.solve({"s0": list(state)}).x, compiled.solve(state).x)
    with pytest.raises(ValueError, match="must be finite"):
        compiled.solve({"s0": np.where(np.arange(12) == 3, np.inf, state)})
    with pytest.raises(ValueError, match="must be real numbers, got text"):
        compiled.solve({"s0": ["a"] * 12})


def test_outside_is_what_training_did_not_see():
    family = qp()[0].family
    solver = ls.Solver(family)
    solver.seen = Seen.of(family.encode(PARAMETERS))
    compiled = solver.compile()
    assert compiled.solve(PARAMETERS[0]).outside == np.False_
    assert compiled.solve(100 + PARAMETERS[0]).outside == np.True_
    batch = compiled.solve_batch(np.stack([PARAMETERS[0], 100 + PARAMETERS[1]]))
    np.testing.assert_array_equal(batch.outside, [False, True])
    assert qp()[1].solve(PARAMETERS[0]).outside is None


@pytest.mark.slow
def test_instances_by_their_data_are_solved_all_the_same():
    solver, compiled = qp()
    q = np.ones(12)
    np.testing.assert_array_equal(compiled.solve({"q": q}, max_iter=20).x, solver.solve({"q": q}, max_iter=20).x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps_abs": -1.0}, "must be finite and not negative"),
        ({"check_every": 0}, "check_every must be at least 1"),
        ({"eps_infeasible": 2.0}, "eps_infeasible must lie in"),
        ({"max_iter": -1}, "must not be negative"),
        ({"steps": 3, "time_limit": 1.0}, "cannot have a time_limit"),
        ({"time_limit": 0.0}, "must be positive seconds"),
        ({"warm_start": 3}, "a warm start is a Solution or a Point"),
        ({"warm_start": ls.Point(np.ones(3))}, "must have shape"),
    ],
)
def test_wrong_settings(options, message):
    solver, compiled = qp()
    for each in (compiled, solver):
        with pytest.raises((ValueError, TypeError), match=message):
            each.solve(PARAMETERS[0], **options)


def test_wrong_parameters():
    _, compiled = qp()
    with pytest.raises(ValueError, match="has 5 entries"):
        compiled.solve(np.ones(4))
    with pytest.raises(ValueError, match="must be finite"):
        compiled.solve(np.array([1.0, np.nan, 0, 0, 0]))
    with pytest.raises(ValueError, match="must be finite"):
        compiled.solve_batch(np.full((2, 5), np.inf))
    with pytest.raises(ValueError, match="batch is empty"):
        compiled.solve_batch(np.zeros((0, 5)))
    lp = linear_program()[1]
    with pytest.raises(ValueError, match="admit no value"):
        lp.solve({"q": [0.0, 0.0], "l": [1.0, 0, 0], "u": [0.0, 0, 0]})
    with pytest.raises(ValueError, match="needs q"):
        lp.solve({"l": [1.0, 0, 0], "u": [2.0, 0, 0]})


def test_bounds_that_can_cross_are_checked():
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0], parameter=ls.Affine(u=[[1.0]]))
    compiled = ls.Solver(family).compile()
    assert compiled.solve([1.0]).solved
    with pytest.raises(ValueError, match="admit no value"):
        compiled.solve([-2.0])


def test_other_algorithms_are_refused():
    quadratic = ls.Quadratic(np.eye(2), q=np.zeros(2))
    with pytest.raises(ValueError, match="C code is written for OSQP on QP"):
        ls.Solver(quadratic).compile()
    with pytest.raises(ValueError, match="the only backend is 'c'"):
        qp()[0].compile("fortran")
    with pytest.raises(ValueError, match="precision must be"):
        qp()[0].compile(precision="half")
    with pytest.raises(ValueError, match="method must be one of"):
        qp()[0].compile(method="magic")


def test_without_a_compiler_the_solver_stays(monkeypatch):
    solver = qp()[0]
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.warns(UserWarning, match="no C compiler was found"):
        assert solver.compile() is solver


def test_a_compiler_that_fails_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CompilerError, match="the compiler failed"):
        qp()[0].compile()


def test_what_is_kept_of_a_file_is_used_only_as_it_was_written(tmp_path):
    """A digit that is another one would put values of variables in wrong places."""
    layout = Layout([Block("p", np.arange(2))], [Block("x", np.arange(2))])
    mapped = ls.Affine(q=np.eye(2))
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=mapped, layout=layout)
    solver, path = ls.Solver(family), tmp_path / "solver.longstep"
    solver.save(path)
    keep(path, KeptSolver(CompiledSolver(solver, "double", "auto", tmp_path).library, layout, 1e-6, False), tmp_path)
    assert find_kept(path, tmp_path) is not None
    (file,) = (tmp_path / "c").glob("*.json")
    text = file.read_text()
    for changed in (text.replace('"place": [0, 1]', '"place": [1, 0]'), "[" * 100_000, "[]", text[:-5], "{}"):
        assert changed != text
        file.write_text(changed)
        assert find_kept(path, tmp_path) is None


def test_libraries_are_kept_by_content(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0])
    first = ls.Solver(family).compile()
    (library,) = (tmp_path / "c").glob("*.so")
    stamp = library.stat().st_mtime_ns
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = ls.Solver(family).compile()
    assert isinstance(second, CompiledSolver)
    assert second.library.path == first.library.path == library
    assert library.stat().st_mtime_ns == stamp
    other = ls.Solver(family, alpha=1.0).compile()
    assert other.library.path != library


def test_a_damaged_library_is_built_again(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0])
    library = ls.Solver(family).compile().library.path
    whole = library.read_bytes()
    # In a process of its own: loading what is left would end it by a signal.
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\nimport longstep as ls, numpy as np\n"
        "s = ls.Solver(ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0])).compile()\n"
        "assert s.solve({'q': [-0.5]}).solved\n"
    )
    for damaged in (whole[: len(whole) // 2], whole[:-100] + bytes(100), b""):
        library.unlink()
        library.write_bytes(damaged)
        assert not is_intact(library)
        subprocess.run([sys.executable, "-c", code], check=True)
        assert is_intact(library)
        assert library.read_bytes() != damaged


def test_damaged_factors_are_made_again(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    monkeypatch.setattr(longstep_code, "_MANY", 0)
    compiled = qp()[0].compile(method="augmented")
    library, factors = compiled.library.path, locate_factors(compiled.library.path)
    whole = factors.read_bytes()
    assert len(whole) > 100
    # The compiler would give the same again.
    machine_code = library.read_bytes()
    monkeypatch.setattr(build, "_compile", lambda files, command: machine_code)
    for damaged in (whole[: len(whole) // 2], whole[:-8] + bytes(8), whole + bytes(8), b"", None):
        factors.unlink()
        if damaged is not None:
            factors.write_bytes(damaged)
        assert not is_intact(library)
        assert build.build_library(compiled.code, True) == library
        assert is_intact(library)
        assert factors.read_bytes() == whole
    library.unlink()
    library.write_bytes(b"no library")
    assert build.build_library(compiled.code, True) == library
    assert is_intact(library)


def test_a_cache_that_cannot_be_written_is_said_once(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(storage, "_warned", False)
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0], parameter=ls.Affine(q=np.eye(1)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert ls.Solver(family).compile().solve([-0.5]).solved
        data = ls.Dataset.sample(family, lambda rng: rng.normal(size=1), {"train": 3}, progress=False)
        quick = {"horizon": 2, "block": 2, "iterations": 2, "candidates": 2, "progress": False}
        ls.train(family, data, **quick)
    texts = [str(w.message) for w in said if issubclass(w.category, RuntimeWarning)]
    (text,) = texts
    assert "cannot be kept in the cache" in text
    assert "LONGSTEP_CACHE" in text


def test_a_full_disk_ends_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    monkeypatch.setattr(storage, "_warned", False)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "replace", full)
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0], parameter=ls.Affine(q=np.eye(1)))
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        data = ls.Dataset.sample(family, lambda rng: rng.normal(size=1), {"train": 3}, progress=False)
    assert len(data.train) == 3
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def forget_folders(monkeypatch, tmp_path, *folders):
    """Neither the cache nor a temporary folder can be written, but for these."""
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(storage, "_warned", True)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "file"), *map(str, folders)])


def test_with_no_folder_to_build_in_the_solver_stays(monkeypatch, tmp_path):
    """Evaluations, and so `learn`, go on without the times in C."""
    forget_folders(monkeypatch, tmp_path)
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0], parameter=ls.Affine(q=np.eye(1)))
    solver = ls.Solver(family)
    with pytest.warns(
        UserWarning, match=r"no room to build C \(No usable temporary.*set TMPDIR.*stays as it is, in JAX"
    ):
        assert solver.compile() is solver
    with pytest.raises(NoRoomError):
        CompiledSolver(solver, "double", "auto", cache=True)
    assert time_in_c(solver, np.zeros((20, 1)), [1e-3], 100) is None


@pytest.mark.parametrize("where", ["solver.so", "compiler"])
def test_a_disk_that_fills_while_c_is_built_ends_nothing(monkeypatch, tmp_path, where):
    folder = tmp_path / "temporary"
    folder.mkdir()
    forget_folders(monkeypatch, tmp_path, folder)
    full = os.strerror(errno.ENOSPC)
    if where == "compiler":
        (tmp_path / "cc").write_text(f"#!/bin/sh\ncase $1 in -*O2) echo 'cannot write: {full}' >&2; exit 1;; esac\n")
        (tmp_path / "cc").chmod(0o755)
        monkeypatch.setenv("CC", str(tmp_path / "cc"))
    else:

        def refuse(*_):
            raise OSError(errno.ENOSPC, full)

        monkeypatch.setattr(storage.os, "replace", refuse)
    solver = qp()[0]
    with pytest.warns(UserWarning, match=f"no room to build C .{full}"):
        assert solver.compile() is solver


def bounded_program(seed):
    """A linear program with bounds, of no particular size."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(5, 25), rng.integers(3, 20)
    A = np.vstack([rng.normal(size=(m, n)), np.eye(n)])
    inside = A @ rng.uniform(-1, 1, n)
    l, u = inside - rng.exponential(1.0, m + n), inside + rng.exponential(1.0, m + n)
    return ls.QP(np.zeros((n, n)), A, q=rng.normal(size=n), l=l, u=u, parameter=ls.Affine(q=np.eye(n)))


@pytest.mark.parametrize("seed", range(3))
def test_linear_programs_are_solved_in_c_as_well(seed):
    family = bounded_program(seed)
    x = np.random.default_rng(seed).normal(size=(5, family.n))
    solver, limits = ls.Solver(family), {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 20_000}
    ours, found = (each.solve_batch(x, **limits) for each in (solver, solver.compile()))
    assert np.sum(ours.solved) >= 4
    np.testing.assert_array_equal(found.solved, ours.solved)
    for k, q in enumerate(family.data(x)["q"]):
        if found.solved[k]:
            optimum = linprog(q, np.vstack([family.A.toarray(), -family.A.toarray()]),
                              np.r_[family.data(x)["u"][k], -family.data(x)["l"][k]], bounds=(None, None))  # fmt: skip
            assert found.objective[k] == pytest.approx(optimum.fun, abs=1e-4 * (1 + abs(optimum.fun)))


def test_objectives_have_the_users_sign_and_constants():
    """The smallest case: maximised, with constants, one of them a parameter."""
    x, price = cp.Variable(name="x"), cp.Parameter(name="price")
    problem = cp.Problem(cp.Maximize(3.0 + 2 * price - cp.square(x - price)), [x <= 0.5])
    solver = ls.Solver(ls.from_cvxpy(problem).family)
    for each in (solver, solver.compile()):
        for value, expected in ((1.0, 4.75), (-3.0, -3.0)):
            found = each.solve({"price": value}, eps_abs=1e-9, eps_rel=1e-9)
            assert found.objective == pytest.approx(expected, abs=1e-6)


def test_objectives_are_the_users_own():
    x, c, price = cp.Variable(2, name="x"), cp.Parameter(2, name="c"), cp.Parameter(name="price")
    problem = cp.Problem(cp.Maximize(3.0 + 2 * price - cp.sum_squares(x - 1) + c @ x), [x <= 0.5, cp.sum(x) >= -1])
    model = ls.from_cvxpy(problem)
    solver = ls.Solver(model.family)
    values = {"c": [[1.0, -2.0], [0.3, 0.1], [-4.0, 2.0]], "price": [1.0, 2.0, -3.0]}
    expected = []
    for k in range(3):
        c.value, price.value = np.array(values["c"][k]), values["price"][k]
        expected.append(problem.solve(solver=cp.CLARABEL))
        assert problem.solve(solver=model.cvxpy_solver(solver, eps_abs=1e-8, eps_rel=1e-8)) == pytest.approx(
            expected[k]
        )
    tight = {"eps_abs": 1e-9, "eps_rel": 1e-9}
    for each in (solver, solver.compile()):
        np.testing.assert_allclose(each.solve_batch(values, **tight).objective, expected, atol=1e-6)
        for k in range(3):
            one = {name: value[k] for name, value in values.items()}
            assert each.solve(one, **tight).objective == pytest.approx(expected[k], abs=1e-6)
    single = solver.compile(precision="float").solve_batch(values, eps_abs=1e-5, eps_rel=1e-5)
    np.testing.assert_allclose(single.objective, expected, atol=1e-3)


def test_solutions_are_plain_and_go_to_json():
    solver, compiled = qp()
    for each in (solver, compiled):
        found = each.solve(PARAMETERS[0])
        numbers = ("objective", "iterations", "safeguarded", "primal_residual", "dual_residual", "outside", "time")
        assert (
            json.loads(json.dumps({name: getattr(found, name) for name in numbers}))["iterations"] == found.iterations
        )
        assert type(each.solve_batch(PARAMETERS)[0].objective) is float


def test_compiled_solvers_go_to_other_processes():
    solver, compiled = qp()
    # Used before: with what it keeps of that.
    solver.solve(PARAMETERS[0])
    copy = pickle.loads(pickle.dumps(compiled))
    np.testing.assert_array_equal(copy.solve(PARAMETERS[0]).x, compiled.solve(PARAMETERS[0]).x)


def test_warm_starts_take_the_short_way_and_are_checked_all_the_same(monkeypatch):
    solver, compiled = qp()
    first = compiled.solve(PARAMETERS[0], eps_abs=1e-8, eps_rel=1e-8)
    monkeypatch.setattr("longstep.export_c.compiled.read_start", None)
    again = compiled.solve(PARAMETERS[0], warm_start=first)
    assert again.iterations == 0
    np.testing.assert_allclose(again.x, first.x, atol=1e-12)
    monkeypatch.undo()
    for bad, message in ((ls.Point(first.x[:3]), "must have shape"), (ls.Point(np.nan * first.x), "NaN")):
        with pytest.raises(ValueError, match=message):
            compiled.solve(PARAMETERS[0], warm_start=bad)
    with pytest.raises(TypeError, match="a Solution or a Point"):
        compiled.solve(PARAMETERS[0], warm_start=first.x)
    apart = ls.Point(*(np.repeat(getattr(first, name), 2)[::2] for name in "xys"))
    assert compiled.solve(PARAMETERS[0], warm_start=apart).iterations == 0
    alone = compiled.solve(PARAMETERS[0], warm_start=ls.Point(first.x), steps=3)
    np.testing.assert_allclose(alone.x, solver.solve(PARAMETERS[0], warm_start=ls.Point(first.x), steps=3).x, atol=1e-9)


def test_outside_is_the_same_in_c():
    family = qp()[0].family
    solver = ls.Solver(family)
    rng = np.random.default_rng(0)
    for N in (1, 2, 3, 10):
        solver.seen = Seen.of(family.encode(np.round(rng.normal(size=(N, 5)), 1)))
        compiled = solver.compile()
        further = np.round(rng.normal(size=(200, 5)) * rng.choice([0.5, 1, 2], size=(200, 1)), 1)
        expected = solver.seen.find_outside(family.encode(further))
        np.testing.assert_array_equal(compiled.solve_batch(further, steps=0).outside, expected)
