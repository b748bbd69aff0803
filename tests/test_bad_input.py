"""Bad input: one clear error each, that says what is wrong, where, and what to do."""

import subprocess
import sys

import numpy as np
import pytest

import longstep as ls
from longstep.solution import Point
from longstep.storage import FileFormatError

I2 = np.eye(2)


def qp(**options):
    return ls.QP(I2, I2, **{"q": np.zeros(2), "l": -np.ones(2), "u": np.ones(2), **options})


def refused(match, function, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        function(*args, **kwargs)


def test_families():
    refused("P must be square", ls.QP, np.ones((2, 3)), I2)
    refused("A has 3 columns but P has 2", ls.QP, I2, np.ones((2, 3)))
    refused("P must be symmetric.*full matrix", ls.QP, np.array([[1.0, 2.0], [0.0, 1.0]]), I2)
    refused("P is indefinite.*not convex", ls.QP, np.diag([1.0, -0.1]), I2)
    ls.QP(np.diag([1.0, -1e-9]), I2)  # rounding is not indefiniteness
    refused("P is indefinite", ls.QP, np.diag([1.0, -2e-5]), I2)
    refused("P is indefinite", ls.Conic, np.diag([1.0, -0.1]), I2, ls.Cones(zero=2))
    refused("P has NaN", ls.QP, np.array([[np.nan, 0], [0, 1.0]]), I2)
    refused("A has NaN", ls.QP, I2, np.array([[np.inf, 0], [0, 1.0]]))
    refused(r"q must have shape \(2,\)", qp, q=np.zeros(3))
    refused("q is nan at instance 0, entry 1; it must be finite", qp, q=np.array([0.0, np.nan]))
    refused("row 1 in instance 0 admit no value: l = 1, u = 0", qp, l=[0.0, 1.0], u=[1.0, 0.0])
    refused("admit no value", qp, l=[np.inf, 0.0], u=[np.inf, 1.0])
    refused("equalities names a row outside", qp, equalities=[5])
    refused("as a mask must have 2 entries", qp, equalities=np.array([True]))
    refused("cannot be free and an equality", qp, equalities=[0], free=[0])
    refused("the cones take 3 rows but A has 2", ls.Conic, I2, I2, ls.Cones(zero=3))
    refused("dtype must be float32 or float64", qp, dtype="int32")
    refused("P is zero", ls.Quadratic, np.zeros((2, 2)))
    refused("lipschitz must be positive", ls.Smooth, lambda z, x: z @ z, -1.0, 2)
    refused("strong_convexity must lie in", ls.Smooth, lambda z, x: z @ z, 1.0, 2, strong_convexity=2.0)
    refused("smooth part must be", ls.Composite, qp(), ls.L1(1.0), error=TypeError)
    refused("must be a Prox", ls.Composite, ls.Quadratic(I2), 0.1, error=TypeError)


def test_small_things_that_users_write():
    """What a user of OSQP, SCS or CVXPY may well write: taken as meant, or refused in a sentence."""
    refused("at least one row", ls.QP, np.zeros((0, 0)), np.zeros((1, 0)))
    refused("finite weight ≥ 0", ls.L1, -1.0)
    refused("finite weight ≥ 0", ls.L1, np.nan)
    refused("high of Box has shape", ls.Composite, ls.Quadratic(I2), ls.Box(0.0, np.ones(3)))
    refused("a warm start is a Solution or a Point", ls.Solver(qp()).solve, {}, warm_start=np.zeros(2), error=TypeError)
    refused("eps_infeasible must lie in", ls.Solver(qp()).solve, {}, eps_infeasible=np.nan)
    refused("over 1,000,000,000", ls.Solver(qp()).solve, {}, max_iter=3 * 10**9)
    refused("q of an instance must be a vector", ls.Solver(qp()).solve_batch, [{"q": 1.0}, {"q": 2.0}])
    refused("one value per step", ls.Schedule, {"step": 0.5}, {"step": 0.5})
    refused("no parameters to solve for", ls.solve_references, ls.Quadratic(I2, q=np.ones(2)), [])
    no_base = ls.QP(np.eye(1), np.eye(1), q=[0.0], u=[-1.0], parameter=ls.Affine(l=[[1.0]], u=[[1.0]]))
    refused("admit no value: l = 3, u = 2", ls.Solver(no_base).solve, [3.0])
    assert ls.Cones(second_order=3) == ls.Cones(second_order=(3,))
    assert ls.QP(None, I2).P.shape == (2, 2)
    assert ls.Schedule({}, {"a": 1, "b": 2}) == ls.Schedule({}, {"b": 2, "a": 1})
    smooth = ls.Solver(ls.Smooth(lambda z, x: 0.5 * z @ z - x @ z, 1.0, 2))
    np.testing.assert_allclose(smooth.solve([1.0, 2.0]).x, [1.0, 2.0])
    np.testing.assert_allclose(smooth.solve_batch([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).x[2], [5.0, 6.0])


def test_instances():
    solver = ls.Solver(qp())
    refused("no parameter map.*Affine", solver.solve, np.zeros(2))
    refused("unknown instance data b; this family has q, l, u", solver.solve, {"b": np.zeros(2)})
    refused(r"q must have shape \(2,\).*got \(1, 3\)", solver.solve, {"q": np.zeros(3)})
    refused("l is nan", solver.solve, {"l": [np.nan, 0.0]})
    refused("row 0 in instance 0 admit no value: l = 2, u = 1", solver.solve, {"l": [2.0, 0.0]})
    refused("row 0 in instance 1 admit no value", solver.solve_batch, {"l": [[0.0, 0.0], [2.0, 0.0]]})
    refused(
        "given for some instances and not for others",
        solver.solve_batch,
        [{"q": np.ones(2)}, {"l": np.zeros(2)}],
    )
    refused("differ in their shapes", solver.solve_batch, [{"q": np.ones(2)}, {"q": np.ones(3)}])
    refused("needs at least one array with a leading axis", solver.solve_batch, {"q": np.ones(2)})
    refused("an instance needs q", ls.Solver(ls.QP(I2, I2, l=np.zeros(2), u=np.ones(2))).solve, {})
    equality = ls.Solver(qp(l=[0.0, 0.0], u=[0.0, 1.0]))
    refused(
        "row 0 is an equality in this family, but instance 0 has l = 0, u = 3",
        equality.solve,
        {"u": [3.0, 1.0]},
    )
    free = ls.Solver(qp(l=[-np.inf, 0.0], u=[np.inf, 1.0]))
    refused("row 0 is free of bounds.*free=…", free.solve, {"l": [0.0, 0.0]})
    conic = ls.Solver(ls.Conic(I2, I2, ls.Cones(nonnegative=2), c=np.zeros(2)))
    refused("b is inf at instance 0, entry 1", conic.solve, {"b": [1.0, np.inf]})


def test_parameters():
    refused("at least one matrix", ls.Affine)
    refused("one common number of columns", ls.Affine, q=np.ones((2, 3)), l=np.ones((2, 4)))
    refused("the matrix of q has 3 rows but q has 2 entries", qp, parameter=ls.Affine(q=np.ones((3, 1))))
    refused("Affine has a matrix for b, but this family has q, l, u", qp, parameter=ls.Affine(b=np.ones((2, 1))))
    solver = ls.Solver(qp(parameter=ls.Affine(q=np.ones((2, 3)))))
    refused(r"has 3 entries, got an array of shape \(2,\)", solver.solve, np.zeros(2))
    refused("parameter 1 has nan in entry 2", solver.solve_batch, np.array([[0, 0, 0.0], [0, 0, np.nan]]))
    crossing = ls.Solver(qp(parameter=ls.Affine(l=np.ones((2, 1)))))
    refused("row 0 in instance 0 admit no value: l = 4, u = 1", crossing.solve, np.array([5.0]))
    smooth = ls.Solver(ls.Smooth(lambda z, x: 0.5 * z @ z - x @ z, 1.0, 2))
    refused("the parameter is nan at instance 0, entry 1", smooth.solve, np.array([0.0, np.nan]))


def test_settings():
    solver = ls.Solver(qp())
    refused("eps_abs and eps_rel must be finite and not negative", solver.solve, {}, eps_abs=-1.0)
    refused("eps_abs and eps_rel", solver.solve, {}, eps_rel=np.nan)
    refused("number of steps must not be negative", solver.solve, {}, max_iter=-1)
    refused("check_every must be at least 1", solver.solve, {}, check_every=0)
    refused("time_limit must be positive", solver.solve, {}, time_limit=0.0)
    refused("chunk must be at least 1", solver.solve_batch, [{}], chunk=0)
    refused("not both", ls.Solver, qp(), ls.Schedule({}, {"alpha": 1.0}), alpha=1.0)
    refused("unknown hyperparameter rho; there are sigma, rho_eq, rho_ineq, alpha", ls.Solver, qp(), rho=1.0)
    refused("SCS solves Conic families, not QP", ls.Solver, qp(), algorithm=ls.SCS(), error=TypeError)
    bad = Point(np.array([np.nan, 0.0]))
    refused("x of the warm start has NaN", solver.solve, {}, warm_start=bad)
    refused("numerically singular", ls.Solver, ls.QP(np.zeros((2, 2)), np.ones((1, 2))), sigma=1e-30)


def test_datasets():
    family = ls.Quadratic(I2, parameter=ls.Affine(q=I2))
    same = np.ones((2, 2))
    refused(
        "splits must be disjoint",
        ls.Dataset.from_parameters,
        family,
        {"train": same, "test": same},
        cache=False,
    )
    refused("at least one instance", ls.Dataset.sample, family, lambda r: r.normal(size=2), {"train": 0})
    refused("which is no split", ls.Dataset.from_parameters, family, {"train": same}, references=["test"])
    data = ls.Dataset.from_parameters(family, {"train": same}, references=False)
    refused("there is no split 'test'; there are train", data.__getitem__, "test", error=KeyError)
    with pytest.raises(AttributeError, match="there is no split 'test'"):
        _ = data.test


def test_files(tmp_path):
    path = tmp_path / "solver.longstep"
    ls.Solver(qp()).save(path)
    whole = path.read_bytes()
    refused("there is no file", ls.Solver.load, tmp_path / "none.longstep", error=FileNotFoundError)
    (tmp_path / "text").write_text("hello")
    refused("damaged or is not a longstep file", ls.Solver.load, tmp_path / "text", error=FileFormatError)
    (tmp_path / "cut").write_bytes(whole[:-20])
    refused("damaged", ls.Solver.load, tmp_path / "cut", error=FileFormatError)
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    (tmp_path / "flipped").write_bytes(bytes(flipped))
    refused("does not match its hash", ls.Solver.load, tmp_path / "flipped", error=FileFormatError)
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(2)}, tmp_path / "foreign")
    refused("not one that longstep wrote", ls.Solver.load, tmp_path / "foreign", error=FileFormatError)
    newer = whole.replace(b'"version":"1"', b'"version":"9"')
    assert newer != whole
    (tmp_path / "newer").write_bytes(newer)
    refused("format version 9.*Upgrade longstep", ls.Solver.load, tmp_path / "newer", error=FileFormatError)
    refused("not the one", ls.Solver.load, path, family=qp(q=np.ones(2)), error=FileFormatError)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_float64_needs_jax_in_64_bit_mode():
    code = (
        "import longstep as ls, numpy as np, jax\n"
        "assert not jax.config.read('jax_enable_x64'), 'importing longstep must not switch it'\n"
        "s = ls.Solver(ls.QP(np.eye(1), np.eye(1), q=[-2.0], l=[0.0], u=[1.0], dtype='float32'))\n"
        "assert abs(float(s.solve({}).x[0]) - 1) < 1e-3\n"
        "try: ls.QP(np.eye(1), np.eye(1))\n"
        "except ValueError as e: print(e)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "JAX is in 32-bit mode" in out
    assert "jax_enable_x64" in out
