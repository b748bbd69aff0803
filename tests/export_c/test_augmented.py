"""Systems in the augmented form in C: the steps and statuses of the solver with sparse factors, in the bytes stated."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.export_c import code
from longstep.export_c.kept import is_intact
from longstep.export_c.library import locate_factors
from longstep.export_c.panels import choose_panels
from longstep.linalg.systems import Augmented

from ..helpers import CONES, random_conic
from .compare import assert_equal, distance, varied
from .test_equality import PARAMETERS, conic, qp
from .test_export import CHECKED, STRICT, needs, run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from growth import FAMILIES

slow = pytest.mark.slow
SMALL = {"portfolio": 500, "mpc": 60, "mesh": 40}


def make_family(name, n):
    """A family of the benchmark of growth with about n unknowns, and three instances."""
    rng = np.random.default_rng(1)
    family, draw = FAMILIES[name](n, rng)
    return family, [draw(rng) for _ in range(3)]


@pytest.mark.parametrize("name", FAMILIES)
def test_c_takes_the_steps_of_the_solver_with_sparse_factors(name, sparse_factors):
    family, instances = make_family(name, SMALL[name])
    assert family.sparse
    solver = varied(family)
    assert solver.plan.on_host
    compiled = solver.compile(method="augmented")
    assert compiled.code.linear.method == "augmented"
    for parameter in instances:
        for options in ({"max_iter": 12}, {"eps_abs": 1e-6, "eps_rel": 1e-6}):
            ours = compiled.solve(parameter, **options)
            theirs = solver.solve(parameter, **options)
            assert distance(theirs.x, ours.x) < 1e-11
            # Multipliers are penalties of a hundred times what rounding leaves of a difference.
            assert_equal(ours, theirs, 1e-8)


@pytest.mark.parametrize("name", ["nonnegative", *(pytest.param(n, marks=slow) for n in ("second_order", "mixed"))])
def test_c_takes_the_steps_of_scs(name, sparse_factors):
    P, A, b, c = random_conic(1, CONES[name])
    family = ls.Conic(P, A, CONES[name], b=b, c=c, parameter=ls.Affine(c=P, b=A))
    assert family.sparse
    solver = varied(family)
    compiled = solver.compile(method="augmented")
    assert compiled.code.linear.method == "augmented"
    for x in 0.1 * np.random.default_rng(0).normal(size=(3, 10)):
        for options in ({"max_iter": 12}, {"eps_abs": 1e-6, "eps_rel": 1e-6}):
            assert_equal(compiled.solve(x, **options), solver.solve(x, **options), 1e-9)


def test_free_rows_ladders_and_warm_starts():
    """Beside dense factors: what else a step has is the same."""
    solver = ls.Solver(qp()[0].family, rho_ineq=1e-3, ladder=True)
    compiled = solver.compile(method="augmented")
    start = solver.solve(PARAMETERS[0], max_iter=30)
    for x in PARAMETERS:
        for options in ({"eps_abs": 1e-7, "eps_rel": 1e-7}, {"max_iter": 6, "warm_start": start}):
            assert_equal(compiled.solve(x, **options), solver.solve(x, **options), 1e-9)


@slow
@pytest.mark.parametrize("name", FAMILIES)
def test_families_of_a_thousand_unknowns(name):
    family, instances = make_family(name, 1000)
    solver = ls.Solver(family)
    compiled = solver.compile()
    # The matrix of long horizons is a band: its blocks are cheaper.
    assert compiled.code.linear.method == ("blocks" if name == "mpc" else "augmented")
    if name == "mpc":
        compiled = solver.compile(method="augmented")
    assert compiled.code.apart
    for options in ({"steps": 40}, {}):
        assert_equal(compiled.solve(instances[0], **options), solver.solve(instances[0], **options), 1e-9)


def test_infeasible_instances_have_the_same_status(sparse_factors):
    A = sp.csr_array(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]))
    solver = ls.Solver(ls.QP(None, A, equalities=[], free=[]))
    compiled = solver.compile(method="augmented")
    none = {"q": [1.0, 1.0], "l": [2.0, 0.0, 0.0], "u": [3.0, 1.0, 0.5]}
    falling = {"q": [-1.0, -1.0], "l": [0.0, 0.0, 0.0], "u": [np.inf, np.inf, np.inf]}
    for data, status in ((none, ls.Status.PRIMAL_INFEASIBLE), (falling, ls.Status.DUAL_INFEASIBLE)):
        ours = compiled.solve(data)
        assert ours.status == status
        assert_equal(ours, solver.solve(data), 1e-9)


def test_single_precision():
    solver = qp()[0]
    compiled = solver.compile(precision="float", method="augmented")
    parameter = 0.1 * np.ones(solver.family.parameter.size)
    exact = solver.solve(parameter, eps_abs=1e-9, eps_rel=1e-9, max_iter=50_000)
    ours = compiled.solve(parameter, eps_abs=1e-4, eps_rel=1e-4, max_iter=50_000)
    assert ours.solved
    assert distance(exact.x, ours.x) < 1e-2


@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("name", FAMILIES)
def test_panels_have_the_entries_of_L(name, lanes):
    family, _ = make_family(name, 3 * SMALL[name])
    lower, _, _ = Augmented(family.P, family.A).factorize(0.1, np.ones(family.m))
    panels = choose_panels(lower, lanes)
    np.testing.assert_array_equal(np.sort(panels.order), np.arange(lower.shape[0]))
    values = np.append(lower.data, 0.0)[panels.source]
    L = np.zeros(lower.shape)
    at = 0
    for s, shape in enumerate(panels.shapes):
        own = panels.first[s]
        for c, rows in enumerate(shape.triangle(lanes)):
            stored = values[at : at + len(rows)]
            inside = [i for i in rows if c < i < shape.columns]
            L[own + np.array(inside, int), own + c] = [stored[i - rows[0]] for i in inside]
            assert np.count_nonzero(stored) == np.count_nonzero(L[:, own + c])
            at += len(rows)
        for c in range(shape.columns):
            L[panels.rows[s], own + c] = values[at : at + shape.rows]
            assert not values[at + shape.rows : at + shape.pad(lanes)].any()
            at += shape.pad(lanes)
    assert at == values.size
    np.testing.assert_array_equal(L, lower.toarray()[np.ix_(panels.order, panels.order)])
    assert len(panels.rows) < lower.shape[0]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """A solver, instances, and its export."""
    family, instances = make_family("mpc", 60)
    solver = varied(family)
    folder = tmp_path_factory.mktemp("augmented") / "c"
    return solver, instances, ls.generate_c(solver, folder, prefix="mpc", method="augmented")


@pytest.mark.parametrize("compiler", [pytest.param(name, marks=needs(name)) for name in ("gcc", "clang")])
def test_the_folder_builds_without_a_warning_and_sanitizers_find_nothing(compiler, export, tmp_path):
    solver, instances, folder = export
    assert "augmented" in folder.method
    program = folder.build(compiler=compiler, options=STRICT)
    theirs = solver.solve(instances[0])
    status, iterations, found = run(program, instances[0], tmp_path)
    assert (status, iterations) == (theirs.status, theirs.iterations)
    assert distance(theirs.x, found) < 1e-9
    checked = folder.build(compiler=compiler, options=CHECKED)
    for steps in (None, 0, 15):
        run(checked, instances[1], tmp_path, steps)


@needs("valgrind")
@slow
def test_valgrind_finds_nothing(export, tmp_path):
    _, instances, folder = export
    program = folder.build(options=("-O2", "-g"))
    run(program, instances[0], tmp_path, before=("valgrind", "--quiet", "--error-exitcode=9"))


def test_memory_is_as_stated(export, tmp_path):
    _, _, folder = export
    (tmp_path / "size.c").write_text(
        '#include "mpc.h"\n#include <stdio.h>\n'
        'int main(void) { printf("%zu %zu", sizeof(mpc_workspace), sizeof(mpc_result)); return 0; }\n'
    )
    subprocess.run(["cc", "-std=c99", f"-I{folder.folder}", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout
    assert said == f"{folder.ram} {folder.result}"
    call = ["cc", "-std=c99", "-O0", "-c", "mpc.c", "-o", tmp_path / "mpc.o"]
    subprocess.run(call, cwd=folder.folder, check=True)
    # Constants, and alignment between them.
    sections = subprocess.run(["size", "-A", tmp_path / "mpc.o"], capture_output=True, text=True, check=True).stdout
    constants = sum(int(line.split()[1]) for line in sections.splitlines() if line.startswith(".rodata"))
    assert folder.rom <= constants < folder.rom + 4096


def test_large_factors_lie_beside_the_library(export, monkeypatch, tmp_path):
    solver, instances, folder = export
    monkeypatch.setattr(code, "_MANY", 10)
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    compiled = solver.compile(method="augmented")
    assert compiled.code.apart
    assert compiled.code.rom == folder.rom
    assert_equal(compiled.solve(instances[0]), solver.solve(instances[0]), 1e-9)
    path = compiled.library.path
    assert is_intact(path)
    factors = locate_factors(path)
    assert factors.stat().st_size == compiled.code.linear.factors.nbytes
    # In another file: the numbers of this one are in use.
    other = tmp_path / "other.so"
    for suffix in (".so", ".py", ".sha256", ".factors"):
        other.with_suffix(suffix).write_bytes(path.with_suffix(suffix).read_bytes())
    assert is_intact(other)
    locate_factors(other).write_bytes(b"\0" * 8)
    assert not is_intact(other)
    locate_factors(other).unlink()
    assert not is_intact(other)


def test_diagonal_systems_are_inverted_as_such():
    family = ls.QP(sp.eye_array(9), sp.eye_array(9), q=-np.ones(9), l=np.zeros(9), u=np.ones(9))
    assert ls.Solver(family).compile(method="augmented").code.linear.method == "diagonal"


def test_condensed_steps_have_no_augmented_form():
    solver = ls.Solver(qp()[0].family, algorithm=Condensed())
    with pytest.raises(ValueError, match="'augmented' is for the steps of OSQP and SCS"):
        solver.compile(method="augmented")


def test_small_families_are_not_looked_at():
    assert qp()[1].code.linear.method != "augmented"
    assert conic("mixed")[1].code.linear.method != "augmented"
