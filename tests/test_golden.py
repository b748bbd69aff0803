"""What earlier versions wrote loads, verifies and compiles; `golden/VERSION/README.md` says how it was made."""

import json
import shutil
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.base import Algorithm
from longstep.data.dataset import Split
from longstep.data.optima import Optima
from longstep.errors import CertificateError, NoCompilerError
from longstep.export_c import Export
from longstep.export_c.build import find_compiler

GOLDEN = Path(__file__).parent / "golden"
SOLVERS = sorted(GOLDEN.glob("*/*.longstep"))
CERTIFICATES = sorted([*GOLDEN.glob("*/*.tolerance.json"), *GOLDEN.glob("*/*.quantile.json")])
GUARANTEES = sorted(GOLDEN.glob("*/*.guarantee.json"))
EXPORTS = sorted(path.parent for path in GOLDEN.glob("*/*/manifest.json"))


def named(path):
    return f"{path.parent.name}-{path.name}"


def expected(path):
    """What is stored beside a file of that name."""
    return json.loads((path.parent / f"{path.name.split('.')[0]}.json").read_text())


def of_solver(path):
    """The solver that a document is about."""
    return ls.Solver.load(path.parent / f"{path.name.split('.')[0]}.longstep")


def promised_too_much(solver):
    """0.1 said of all algorithms that they converge wherever there is an optimum; SCS needs more."""
    needs_more = solver.algorithm.converges_on != Algorithm.converges_on
    return pytest.warns(UserWarning, match="too much") if needs_more else nullcontext()


def test_there_are_files():
    assert len(SOLVERS) >= 4
    assert len(CERTIFICATES) >= 6
    assert len(GUARANTEES) >= 4
    assert len(EXPORTS) >= 1


@pytest.mark.parametrize("path", SOLVERS, ids=named)
def test_solvers_load_and_give_the_same(path):
    solver, stored = ls.Solver.load(path), expected(path)
    parameters = np.array(stored["parameters"])
    solution = solver.solve_batch(parameters, eps_abs=1e-9, eps_rel=1e-9)
    assert solution.solved.all()
    np.testing.assert_array_equal(solution.iterations, stored["iterations"])
    np.testing.assert_allclose(solution.x, stored["x"], atol=1e-10)
    np.testing.assert_allclose(solution.x, stored["optimal_x"], atol=1e-5)
    np.testing.assert_allclose(solver.solve_batch(parameters, steps=10).x, stored["x_after_10"], atol=1e-10)


@pytest.mark.parametrize("path", SOLVERS, ids=named)
def test_solvers_keep_what_they_know(path):
    solver, stored = ls.Solver.load(path), expected(path)
    assert solver.content_hash() == stored["content_hash"]
    assert solver.schedule.to_json() == stored["schedule"]
    assert len(solver.record["instance_hashes"]) == 20
    assert solver.solve_batch(np.array(stored["outside"]), steps=1).outside.all()
    assert not solver.solve_batch(solver.seen.low[None], steps=1).outside.any()


def test_families_of_functions_cannot_be_checked_any_more(tmp_path):
    family = ls.Smooth(lambda z, x: ((z - x) ** 2).sum(), 2.0, 3)
    with pytest.warns(UserWarning, match="cannot be checked"):
        solver = ls.Solver.load(GOLDEN / "0.1" / "functions" / "smooth.longstep", family=family)
    assert solver.schedule.steady == {"step": 0.3}
    # What is saved now is checked again.
    solver.save(tmp_path / "now.longstep")
    ls.Solver.load(tmp_path / "now.longstep", family=family)
    with pytest.raises(ValueError, match="not the one"):
        ls.Solver.load(tmp_path / "now.longstep", family=ls.Smooth(lambda z, x: (z**2).sum(), 2.0, 3))


def test_names_are_kept():
    path = GOLDEN / "0.1" / "qp.longstep"
    solver, stored = ls.Solver.load(path), expected(path)
    solution = solver.solve({"returns": stored["parameters"][0]}, eps_abs=1e-9, eps_rel=1e-9)
    weights = solution.variables["weights"]
    assert abs(weights.sum() - 1) < 1e-7
    assert set(weights.round(9)) <= set(np.round(stored["x"][0], 9))


@pytest.mark.parametrize("path", CERTIFICATES, ids=named)
@pytest.mark.filterwarnings("ignore:the certificate was made with:UserWarning")
def test_certificates_load_and_verify(path):
    certificate, stored = ls.Certificate.load(path), expected(path)
    solver = of_solver(path)
    values = np.array(stored["values"])
    optima = Optima(np.zeros((len(values), solver.family.n)), None, None, values, np.zeros(len(values)))
    split = Split("validation", solver.family, np.array(stored["validation"]), optima)
    with promised_too_much(solver):
        found = certificate.verify(solver, split)
    assert found.claims == certificate.claims
    with pytest.raises(CertificateError, match="other data"):
        certificate.verify(solver, split.select(range(10)))


@pytest.mark.parametrize("path", GUARANTEES, ids=named)
def test_guarantees_load_and_verify(path):
    guarantee, solver = ls.Guarantee.load(path), of_solver(path)
    with promised_too_much(solver):
        found = guarantee.verify(solver)
    # Its rates were those without the safeguard, which may be worse with it.
    stated = json.loads(path.read_text())["rates"]
    np.testing.assert_allclose(found.unguarded, stated)
    assert str(guarantee).count("safeguard does not act") == len(stated)
    with promised_too_much(solver), pytest.raises(CertificateError, match="unguarded"):
        replace(guarantee, unguarded=(*guarantee.unguarded, 0.5)).verify(solver)


@pytest.mark.parametrize("folder", EXPORTS, ids=named)
def test_exports_open_build_and_solve(folder, tmp_path):
    # The program is built into the folder.
    copy = shutil.copytree(folder, tmp_path / "c")
    export = Export.open(copy)
    try:
        find_compiler()
    except NoCompilerError:
        pytest.skip("no compiler")
    program, stored = export.build(), expected(folder.parent / "qp.longstep")
    for parameter, x in zip(stored["parameters"], stored["x_after_10"], strict=True):
        (tmp_path / "parameter").write_text(" ".join(map(repr, parameter)))
        command = [program, tmp_path / "parameter", "10"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        np.testing.assert_allclose(np.array(lines[2:], float), x, atol=1e-9)
