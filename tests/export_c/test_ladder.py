"""A metric and a ladder in C: the steps, the rungs and the judgements of the JAX solver."""

import dataclasses
import re
import subprocess
from functools import cache

import numpy as np
import pytest

import longstep as ls
from longstep.engine import rungs

from ..helpers import CONES, random_conic, random_qp
from .compare import COMPILERS, assert_equal
from .test_export import STRICT

slow = pytest.mark.slow
# So few that a test reaches the defaults' rungs soon.
PATIENCE = 40


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """The defaults' rungs are reached after some steps: with the real patience a test takes thousands."""
    made = rungs.Rungs.make_ladder

    def sooner(self, dtype, late=False):
        return dataclasses.replace(made(self, dtype, late), patience=PATIENCE, marks=(10, 20))

    monkeypatch.setattr(rungs.Rungs, "make_ladder", sooner)


def qp_family(dtype):
    """In single precision without equalities, whose penalties and the rungs' are too far apart there."""
    rows = (3, 10) if dtype == "float64" else (0, 13)
    P, q, A, l, u = random_qp(4, n=12, equalities=rows[0], inequalities=rows[1], free=2)
    move = ls.Affine(q=np.eye(12)[:, :5], l=np.eye(15)[:, :5], u=np.eye(15)[:, :5])
    return ls.QP(P, A, q=q, l=l, u=u, parameter=move, dtype=dtype)


def conic_family(dtype):
    cones = CONES["mixed"]
    P, A, b, c = random_conic(1, cones)
    return ls.Conic(P, A, cones, b=b, c=c, parameter=ls.Affine(c=P, b=A), dtype=dtype)


@cache
def solvers(kind, metric, ladder, varying, precision="double"):
    """A steady state that is far from balance, so that instances climb; in single precision not so far."""
    dtype = "float64" if precision == "double" else "float32"
    family = qp_family(dtype) if kind == "qp" else conic_family(dtype)
    algorithm = ls.Solver(family).algorithm
    steady = ls.Solver(family).schedule.steady
    far = algorithm.scaled(family, steady, 300.0 if precision == "double" else 5.0)
    rng = np.random.default_rng(3)
    steps = {name: np.full(varying, value) * rng.uniform(0.8, 1.2, varying) for name, value in steady.items()}
    rows = None
    if metric:
        groups = algorithm.metric_groups(family)
        rows = np.exp(rng.normal(size=groups.max() + 1))[groups]
    solver = ls.Solver(family, ls.Schedule(steps, far, metric=rows), ladder=ladder)
    return solver, solver.compile(precision=precision)


def instances(solver):
    return 0.2 * np.random.default_rng(5).normal(size=(3, solver.family.parameter.size))


CASES = [("qp", True, True), ("qp", False, True), ("conic", True, True)]
MORE = [("qp", True, False), ("conic", False, True), ("conic", True, False)]


@pytest.mark.parametrize(("kind", "metric", "ladder"), [*CASES, *(pytest.param(*c, marks=slow) for c in MORE)])
def test_steps_and_statuses(kind, metric, ladder):
    """Past the patience too, where the steps are those of the defaults and without the metric."""
    solver, compiled = solvers(kind, metric, ladder, 5)
    for x in instances(solver):
        for options in (
            {"max_iter": 37, "eps_abs": 1e-9, "eps_rel": 0.0, "check_every": 4},
            {"max_iter": PATIENCE + 27, "eps_abs": 1e-12, "eps_rel": 0.0},
            {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 4000},
        ):
            assert_equal(compiled.solve(x, **options), solver.solve(x, **options), 1e-9)
    count = PATIENCE + 20
    ours, theirs = compiled.run(instances(solver), count), solver.run(instances(solver), count)
    scale = 1 + np.abs(theirs.primal).max() + np.abs(theirs.dual).max()
    np.testing.assert_allclose(ours.primal, theirs.primal, atol=1e-10 * scale, rtol=1e-6)
    np.testing.assert_allclose(ours.dual, theirs.dual, atol=1e-10 * scale, rtol=1e-6)


@pytest.mark.parametrize(("kind", "metric"), [("qp", True), pytest.param("conic", True, marks=slow)])
def test_warm_starts(kind, metric):
    solver, compiled = solvers(kind, metric, True, 5)
    x = instances(solver)[0]
    point = solver.solve(x, max_iter=20)
    start = ls.Point(point.x + 0.3, point.y + 0.3, point.s + 0.3)
    for options in ({"max_iter": 15}, {"max_iter": PATIENCE + 15, "eps_abs": 1e-12, "eps_rel": 0.0}):
        ours, theirs = (s.solve(x, warm_start=start, **options) for s in (compiled, solver))
        # Its multipliers are hundreds.
        assert_equal(ours, theirs, 1e-8)


@pytest.mark.parametrize("kind", ["qp", "conic"])
def test_the_ladder_is_climbed(kind):
    """Other steps are taken with it: else the tests above would compare nothing."""
    (_, climbing), (_, standing) = (solvers(kind, True, ladder, 5) for ladder in (True, False))
    assert climbing.solver.plan.ladder.second is not None
    for count in (PATIENCE, PATIENCE + 20):
        pairs = [
            (climbing.solve(x, steps=count).x, standing.solve(x, steps=count).x) for x in instances(climbing.solver)
        ]
        assert max(np.abs(a - b).max() for a, b in pairs) > 1e-6


@slow
def test_single_precision():
    solver, compiled = solvers("qp", True, True, 5, "float")
    for x in instances(solver):
        ours, theirs = (s.solve(x, eps_abs=1e-3, eps_rel=1e-3) for s in (compiled, solver))
        assert ours.status == theirs.status == ls.Status.SOLVED
        assert np.abs(ours.x - theirs.x).max() < 2e-2 * (1 + np.abs(theirs.x).max())


@pytest.mark.parametrize(
    ("kind", "precision"), [("qp", "double"), ("conic", "double"), pytest.param("qp", "float", marks=slow)]
)
def test_memory_and_warnings(kind, precision, tmp_path):
    """Built without a warning; the workspace has the bytes that are stated, and so have constants."""
    both, neither = (solvers(kind, has, has, 5, precision)[0] for has in (True, False))
    export = ls.generate_c(both, tmp_path / "c", prefix="mpc", precision=precision)
    for compiler in COMPILERS:
        export.build(compiler=compiler, options=STRICT)
    assert said_sizes(export, tmp_path) == f"{export.ram} {export.result}"
    data = (export.folder / "mpc_data.h").read_text()
    rows = int(re.findall(r"#define ROWS (\d+)", data)[0])
    # Ones behind it, for the rungs that do without.
    assert re.findall(r"static const real metric\[(\d+)\]", data) == [str(2 * rows)]
    plain = ls.generate_c(neither, tmp_path / "d", prefix="mpc", precision=precision)
    assert export.rom > plain.rom + 2 * rows * (8 if precision == "double" else 4)
    assert export.ram == plain.ram + 8 + 2 * (8 if precision == "double" else 4)


def said_sizes(export, tmp_path):
    (tmp_path / "size.c").write_text(
        '#include "mpc.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%zu %zu", sizeof(mpc_workspace), sizeof(mpc_result)); return 0; }\n'
    )
    subprocess.run(["cc", "-std=c99", f"-I{export.folder}", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    return subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout


def test_a_solver_without_them_has_no_trace_of_them():
    compiled = solvers("qp", False, False, 5)[1]
    for text in compiled.code.files.values():
        assert not re.search("metric|rung|climb|LADDER|METRIC", text)
