"""Bad input: one clear error each, that says what is wrong, where, and what to do."""

import copy
import importlib.util
import json
import pickle
import subprocess
import sys
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep._util import storage
from longstep.certificates.claiming import check_tolerances
from longstep.data.references import solve_references
from longstep.engine.finisher import Patience
from longstep.errors import FileFormatError
from longstep.families.names import Block, Layout
from longstep.families.parameter_range import Seen
from longstep.families.point import Point
from longstep.research.demo import require_packages

I2 = np.eye(2)


def qp(**options):
    return ls.QP(I2, I2, **{"q": np.zeros(2), "l": -np.ones(2), "u": np.ones(2), **options})


def refused(match, function, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match or None):
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
    refused("numerically singular .* raise sigma", ls.Solver, ls.QP(np.zeros((2, 2)), np.ones((1, 2))), sigma=1e-30)


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
        "with ls.enable_float64():\n"
        "    wide = ls.Solver(ls.QP(np.eye(1), np.eye(1), q=[-2.0], l=[0.0], u=[1.0]))\n"
        "    assert wide.solve({}).x.dtype == np.float64\n"
        "assert not jax.config.read('jax_enable_x64'), 'the block must restore what was'\n"
        "for call in (wide.solve, lambda x: wide.solve_batch([x]), lambda x: wide.run([x], 3)):\n"
        "    try: call({})\n"
        "    except ValueError as e: print(e)\n"
        "ls.enable_float64()\n"
        "assert wide.solve({}).x.dtype == np.float64\n"
        "with ls.enable_float64(): pass\n"
        "assert jax.config.read('jax_enable_x64'), 'what was is on'\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.count("JAX is in 32-bit mode") == 4
    assert out.count("longstep.enable_float64()") == 4


def test_complex_and_masked_numbers_are_refused():
    mapped = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    solver, smooth = ls.Solver(mapped), ls.Solver(ls.Smooth(lambda z, x: jnp.sum((z - x) ** 2), 2.0, 2))
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    odd = {"complex": np.array([1.0, 2.0j]), "masked": masked, "text": np.array(["a", "b"])}
    odd["dates"] = np.array(["2026-01-01", "2026-01-02"], "datetime64[D]")
    for words, value in odd.items():
        for call in (solver.solve, solver.compile().solve, smooth.solve):
            refused(words, call, value)
        for call in (solver.solve_batch, solver.compile().solve_batch, smooth.solve_batch):
            refused(words, call, np.ma.stack([value, value]) if words == "masked" else np.stack([value, value]))
        refused(words, solver.solve, {"q": value})
        refused(words, solver.solve_batch, [{"q": value}] * 2)
        refused(words, ls.QP, np.eye(2), np.eye(2), q=value)
        refused(words, ls.QP, np.diag(value) if words == "complex" else np.ma.stack([value, value]), np.eye(2))
        refused(words, ls.L1, value)
        refused(words, ls.Dataset.from_parameters, mapped, {"train": [{"q": value}] * 2}, cache=False)
    refused("complex", ls.QP, np.eye(2), sp.csr_array(np.eye(2) * 1j))
    # A mask that hides nothing, and numbers of several kinds in one list, are numbers.
    assert solver.solve(np.ma.masked_array([1.0, 2.0], [False, False])).solved
    assert solver.solve([np.float32(1), 2, True][:2]).solved


def test_complex_and_masked_numbers_are_refused_elsewhere():
    """Starts, schedules, distributions, tolerances and limits: what is lost changes what is solved or promised."""
    solver = ls.Solver(ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2)))
    compiled, q = solver.compile(), {"q": np.ones(2)}
    pairs = {"complex": np.array([1.0, 2.0j]), "masked": np.ma.masked_array([1.0, 2.0], [False, True])}
    for each in (solver, compiled):
        refused("masked", each.solve, q, warm_start=Point(pairs["masked"]))
        refused("masked", each.solve, q, warm_start=Point(np.ones(2), pairs["masked"], np.ones(2)))
    mapped = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    refused("masked", ls.QP, np.eye(2), np.eye(2), equalities=np.ma.masked_array([0, 1], [False, True]))
    for words, pair in pairs.items():
        stack = np.ma.stack([pair, pair]) if words == "masked" else np.stack([pair, pair])
        refused(words, ls.Dataset.sample, mapped, lambda rng, pair=pair: pair, {"train": 2}, cache=False)
        refused(words, solve_references, mapped, stack, cache=False, progress=False)
        refused(words, check_tolerances, pair)
        refused(words, ls.Schedule, {"step": pair}, {"step": 1.0})
        refused(words, ls.Schedule, {"step": [1.0]}, {"step": 1.0}, metric=pair)
        refused(words, ls.Gaussian, pair, np.eye(2))
        refused(words, ls.Gaussian, np.zeros(2), np.diag(pair) if words == "complex" else np.ma.stack([pair, pair]))
    numbers = {"masked": (np.ma.masked, np.ma.masked_array(1.0, True)), "complex": (1 + 1j, np.complex128(1j))}
    numbers["text"] = ("1", b"1")
    for words, number in ((words, number) for words, each in numbers.items() for number in each):
        refused(words, ls.Schedule, {"step": [1.0]}, {"step": number})
        refused(words, ls.Schedule, {"step": [1.0]}, {"step": 1.0}, fallback={"step": number})
        refused(words, ls.Solver, solver.family, alpha=number)
        refused(words, ls.Quadratic, np.eye(2), lower_bound=number)
        refused(words, ls.train, solver.family, {"q": np.ones((4, 2))}, fixed={"alpha": number})
        for each in (solver, compiled):
            for name in ("eps_abs", "eps_rel", "eps_infeasible", "max_iter", "steps", "check_every", "time_limit"):
                refused(words, each.solve, q, **{name: number})
    assert compiled.solve(q, warm_start=Point(np.ma.masked_array([1.0, 2.0])), eps_abs=np.float32(1e-3)).solved


def test_an_objective_that_overflows_is_no_solution():
    """Lasso with data of 1e154: residuals are finite, and the objective is ∞ − ∞."""
    lasso = ls.Composite(ls.Quadratic(np.eye(4), parameter=ls.Affine(q=np.eye(4))), ls.L1(0.1))
    for size in (1e154, 1e200):
        assert not ls.Solver(lasso, finish=0).solve(size * np.ones(4), max_iter=50).solved
    assert ls.Solver(lasso).solve(1e154 * np.ones(4), max_iter=50).status == ls.Status.NUMERICAL_FAILURE
    assert ls.Solver(lasso).solve(1e150 * np.ones(4), max_iter=50).solved
    # A point that leaves the domain of an indicator by rounding is still one.
    inside = ls.Composite(ls.Quadratic(np.eye(4), parameter=ls.Affine(q=np.eye(4))), ls.Box(0.0, 1.0))
    assert ls.Solver(inside).solve(np.ones(4), warm_start=ls.Point(np.full(4, -1e-9))).solved
    huge = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[-np.inf], u=[np.inf])
    for solver in (ls.Solver(huge), ls.Solver(huge).compile()):
        found = solver.solve({"q": [1e200]}, max_iter=50)
        assert not found.solved or np.isfinite(found.objective)


def crafted(path, change, arrays=None):
    """The file with other metadata or arrays, and the hash that fits them."""
    held, metadata = storage.read(path, "solver", 1)
    metadata = change(metadata) if change else metadata
    storage.write(path.with_name("crafted"), "solver", 1, held | (arrays or {}), metadata)
    return path.with_name("crafted")


WRONG_ARRAYS = {
    "an index of A": {"A.indices": np.array([0, 10**9], np.int64)},
    "a negative index": {"A.indices": np.array([0, -5], np.int64)},
    "too few rows": {"A.indptr": np.array([0, 2], np.int64)},
    "rows backwards": {"A.indptr": np.array([0, 2, 1], np.int64)},
    "rows beyond the end": {"P.indptr": np.array([0, 1, 10**12], np.int64)},
    "an absurd shape": {"parameter.q.shape": np.array([2, 10**15], np.int64)},
    "a negative shape": {"A.shape": np.array([-1, 2], np.int64)},
    "indices that are numbers": {"A.indices": np.array([0.5, 1.0])},
    "data that are not": {"A.data": np.array([1, 2], np.int64)},
    "NaN in P": {"P.data": np.array([np.nan, 1.0])},
    "a matrix for q": {"q": np.zeros((2, 2))},
    "another length of l": {"l": np.zeros(3)},
    "a flat matrix": {"A.shape": np.array([4], np.int64)},
    "a wrong range": {"seen.low": np.zeros(7)},
}
WRONG_METADATA = {
    "no family": lambda m: {k: v for k, v in m.items() if k != "family_hash"},
    "no algorithm": lambda m: {k: v for k, v in m.items() if k != "algorithm"},
    "an unknown algorithm": lambda m: m | {"algorithm": ["x"]},
    "a schedule that is none": lambda m: m | {"schedule": "{}"},
    "a schedule of another kind": lambda m: m | {"schedule": 5},
    "deep JSON": lambda m: m | {"schedule": "[" * 100_000},
    "a safeguard that is none": lambda m: m | {"safeguard": "maybe"},
    "factors of another kind": lambda m: m | {"factors": {"a": 1}},
    "a record that is none": lambda m: m | {"training": [1]},
    "a family of another type": lambda m: m | {"family": m["family"] | {"type": "Moon"}},
    "a family that is text": lambda m: m | {"family": "QP"},
    "a family without its fields": lambda m: m | {"family": {"type": "QP"}},
    "another precision": lambda m: m | {"family": m["family"] | {"dtype": "complex128"}},
    "a patience that is a number": lambda m: m | {"patience": 3},
    "a patience without steps": lambda m: m | {"patience": [1e-3, None]},
    "a patience of no number": lambda m: m | {"patience": [float("nan"), 3]},
    "a finish of a googol": lambda m: m | {"finish": 10**100},
    "a range that is text": lambda m: m | {"seen": "x"},
    "a range of less than nothing": lambda m: m | {"seen": -1},
    "a layout that is none": lambda m: m | {"family": m["family"] | {"layout": {"parameters": 3}}},
    "an equilibration that is neither": lambda m: m | {"family": m["family"] | {"equilibrate": {"a": 1}}},
    "a warm start that is neither": lambda m: m | {"schedule": json.dumps(json.loads(m["schedule"]) | {"warm": {}})},
}
# Of a layout, of its parameter p and of its variable x.
WRONG_LAYOUTS = [
    *[{"sign": value} for value in (0, 5, True, 1.0, "x", None)],
    *[{"constant": value} for value in (np.nan, np.inf, "x", None, [1.0, 2.0])],
    *[{"offset": value} for value in ([np.nan, 0.0], [0.0], "x", {}, [[0.0], [0.0]])],
    *[{"parameters": value} for value in ([], [3], None)],
    *[
        {kind: {key: value}}
        for kind in ("parameters", "variables")
        for key, values in {
            "name": (None, 3, ["p"]),
            "place": ([0.5, 0.5], [-5, 0], ["a", "b"], None, [0, 10**30], {}),
            "lower": ([np.nan, 0.0], "x", [0.0], {}),
            "definite": ("x", 1, True, 5, None),
        }.items()
        for value in values
    ],
]


WRONG_RECORDS = [
    *[{"proximal": value} for value in ("x", None, [1], {}, True, 10**400, np.nan, np.inf, -1, 0)],
    *[{"instance_hashes": value} for value in (5, None, [[1]], [None], "abc", {})],
    *[{"constant": value} for value in (5, None, {"step": 1.0}, {"alpha": "x"}, {"alpha": 10**400}, {"ladder": 1.0})],
    *[{"finish": value} for value in (None, "x", -1, 1.5, 10**400)],
    *[{"patience": value} for value in (None, 3, [1e-3], [1e-3, -1], ["x", 3], [10**400, 3], [1e-3, 10**400])],
    *[{"versions": value} for value in (3, {"jax": 3}, ["a"])],
    *[{"seconds": value} for value in ("long", None, [], 10**400)],
    {"kept": 3}, {"instances": "many"}, {"seed": {}},
]  # fmt: skip


@pytest.mark.parametrize("record", WRONG_RECORDS, ids=lambda record: str(record)[:40])
def test_crafted_records(tmp_path, record):
    """Whatever is read of a record of training later is looked at when it is loaded."""
    solver = ls.Solver(qp())
    solver.record = {"constant": {"alpha": 1.6}, "instance_hashes": ["a"], "proximal": 1e-4, "finish": 10}
    solver.record["patience"] = [1e-3, 50]
    solver.save(tmp_path / "solver.longstep")
    assert ls.Solver.load(tmp_path / "solver.longstep").record == solver.record
    path = crafted(tmp_path / "solver.longstep", lambda m: m | {"training": m["training"] | record})
    refused("in its record|a constant for", ls.Solver.load, path, error=FileFormatError)


@pytest.mark.parametrize("what", [*WRONG_ARRAYS, *WRONG_METADATA])
def test_crafted_files(tmp_path, what):
    """Every array and field is looked at before it is used: a wrong index would end the process."""
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    solver = ls.Solver(family)
    solver.seen = Seen.of(family.encode(np.random.default_rng(0).normal(size=(9, 2))))
    solver.save(tmp_path / "solver.longstep")
    path = crafted(tmp_path / "solver.longstep", WRONG_METADATA.get(what), WRONG_ARRAYS.get(what))
    refused("", ls.Solver.load, path, error=FileFormatError)


@pytest.mark.parametrize("changes", WRONG_LAYOUTS, ids=lambda changes: str(changes)[:60])
def test_crafted_layouts(tmp_path, changes):
    """Names and places are the family's too: they make the user's objective and the values of his variables."""
    layout = Layout([Block("p", np.arange(2))], [Block("x", np.arange(2), np.zeros(2))], constant=1.0)
    mapped = ls.Affine(q=np.eye(2))
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=mapped, layout=layout)
    ls.Solver(family).save(tmp_path / "solver.longstep")

    def change(metadata):
        changed = dict(metadata["family"]["layout"])
        for key, value in changes.items():
            one = isinstance(value, dict) and key in ("parameters", "variables")
            changed[key] = [changed[key][0] | value] if one else value
        return metadata | {"family": metadata["family"] | {"layout": changed}}

    refused("", ls.Solver.load, crafted(tmp_path / "solver.longstep", change), error=FileFormatError)
    # Not for its hash alone.
    with pytest.raises((ArithmeticError, AttributeError, LookupError, TypeError, ValueError)):
        Layout.from_json(change({"family": {"layout": layout.to_json()}})["family"]["layout"])


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "BF16"])
def test_numbers_that_numpy_lacks_are_refused(tmp_path, dtype):
    size = 2 if dtype == "BF16" else 1
    metadata = {"longstep": "solver", "version": "1", "metadata": "{}", "hash": "0"}
    header = {"__metadata__": metadata, "a": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}
    text = json.dumps(header).encode()
    (tmp_path / "odd.longstep").write_bytes(len(text).to_bytes(8, "little") + text + bytes(2 * size))
    refused("damaged", ls.Solver.load, tmp_path / "odd.longstep", error=FileFormatError)


@pytest.mark.parametrize("name", ["P", "A", "parameter.q"])
@pytest.mark.parametrize("columns", [2**26, 2**31, 2**62])
def test_shapes_are_refused_before_they_fill_the_memory(tmp_path, name, columns):
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    ls.Solver(family).save(tmp_path / "solver.longstep")
    path = crafted(tmp_path / "solver.longstep", None, {f"{name}.shape": np.array([2, columns], np.int64)})
    tracemalloc.start()
    refused("do not fit its shape", ls.Solver.load, path, error=FileFormatError)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_wide_shapes_are_refused_where_memory_is_short(tmp_path, monkeypatch):
    wide = sp.csr_array(([1.0, 1.0], ([0, 1], [0, 2**19])), shape=(2, 2**19 + 1))
    ls.Solver(ls.Quadratic(np.eye(2), parameter=ls.Affine(q=wide))).save(tmp_path / "solver.longstep")
    assert ls.Solver.load(tmp_path / "solver.longstep").family.parameter.size == 2**19 + 1
    monkeypatch.setattr("longstep._util.memory.measure_available", lambda: 2**20)
    refused("needs 32 MiB", ls.Solver.load, tmp_path / "solver.longstep", error=FileFormatError)


def test_files_are_the_same_every_time(tmp_path):
    for k in range(5):
        ls.Solver(qp()).save(tmp_path / str(k))
    assert len({(tmp_path / str(k)).read_bytes() for k in range(5)}) == 1


def test_a_forked_process_says_that_it_would_hang():
    code = (
        "import os, signal, sys, warnings\nwarnings.simplefilter('ignore')\nimport jax\n"
        "jax.config.update('jax_enable_x64', True)\nimport longstep as ls, numpy as np\n"
        "family = lambda: ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0])\n"
        "make = lambda: ls.Solver(family())\nq = {'q': [-0.5]}\n"
        "if sys.argv[1] == 'late':\n"
        "    solver = make(); compiled = solver.compile(); function = solver.function()\n"
        "    assert solver.solve(q).solved\n"
        "if child := os.fork():\n    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "signal.alarm(60)\n"  # whatever hangs is ended by it
        "if sys.argv[1] == 'early':\n    assert make().solve(q).solved\n    os._exit(0)\n"
        "assert compiled.solve(q).solved and compiled.solve(q, time_limit=9).solved\n"
        "assert compiled.solve_batch({'q': [[-0.5]] * 9}, threads=3).solved.all()\n"
        "quadratic = lambda: ls.Quadratic(np.eye(1), q=[1.0])\n"
        "conic = lambda: ls.Conic(np.eye(1), np.eye(1), ls.Cones(nonnegative=1))\n"
        "smooth = lambda: ls.Smooth(lambda z, x: (z @ z), 2.0, 1)\n"
        "calls = (make, family, quadratic, conic, smooth, lambda: solver.solve(q), lambda: solver.function(),\n"
        "         lambda: solver.solve_batch({'q': [[1.0]]}), lambda: function(q),\n"
        "         lambda: solver.run({'q': [[1.0]]}, 2), lambda: function.attach(q, None),\n"
        "         lambda: compiled.run({'q': [[1.0]]}, 2), lambda: solver.compile(),\n"
        "         lambda: ls.train(solver.family, {'q': [[1.0]] * 9}, horizon=2, cache=False, progress=False))\n"
        "for k, call in enumerate(calls):\n"
        "    try: call()\n    except RuntimeError as error: assert 'forked' in str(error), k\n"
        "    else: os._exit(k + 1)\n"
        "os._exit(0)\n"
    )
    for when in ("early", "late"):
        subprocess.run([sys.executable, "-c", code, when], check=True, timeout=120)


def test_a_fork_after_the_users_own_jax_is_refused_as_well():
    code = (
        "import os, signal, sys, warnings\nwarnings.simplefilter('ignore')\nimport jax, jax.numpy as jnp\n"
        "jax.config.update('jax_enable_x64', True)\nimport longstep as ls, numpy as np\njnp.ones(3).sum()\n"
        "if child := os.fork():\n    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "signal.alarm(60)\n"
        "try: ls.Solver(ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[0.0], u=[1.0]))\n"
        "except RuntimeError as error: os._exit('forked' not in str(error))\n"
        "os._exit(2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_the_demo_asks_for_its_packages_first(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused("the demo needs osqp and matplotlib: pip install", require_packages, error=ImportError)


def test_identities_are_names_and_fields():
    class Mine(ls.OSQP):
        """With a field of its own."""

        power: float = 1.0

    family = qp()
    hashes = [ls.Solver(family, algorithm=a).content_hash() for a in (ls.OSQP(), Mine(), Mine(2.0), Mine(2.0))]
    assert len(set(hashes)) == 3
    assert hashes[2] == hashes[3]


def make_mine(numbers):
    if numbers == 10:

        class Mine(ls.OSQP):
            @property
            def numbers_per_step(self):
                return 10.0

    else:

        class Mine(ls.OSQP):
            @property
            def numbers_per_step(self):
                return 20.0

    return Mine()


def test_algorithms_of_the_user_are_told_apart_by_what_they_do():
    assert make_mine(10).identity() == make_mine(10).identity()
    assert make_mine(10).identity() != make_mine(20).identity()


@pytest.mark.parametrize("copied", [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy], ids=["pickle", "copy"])
def test_solvers_go_to_other_processes(copied):
    mapped = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    steady = {"rho_eq": 1.0, "rho_ineq": 0.3, "sigma": 1e-3, "alpha": 1.6}
    schedule = ls.Schedule({name: [value] for name, value in steady.items()}, steady)
    solver = ls.Solver(mapped, schedule, ladder="late", finish=3)
    solver.record, solver.patience = {"seconds": 1.0}, Patience(1e-3, 5)
    solver.seen = Seen.of(mapped.encode(np.random.default_rng(0).normal(size=(9, 2))))
    x = np.array([0.3, -0.7])
    solver.solve(x)
    other = copied(solver)
    assert other.content_hash() == solver.content_hash()
    np.testing.assert_array_equal(other.solve(x).x, solver.solve(x).x)
    assert (other.record, other.patience, other.finish) == (solver.record, (1e-3, 5), 3)
    assert other.solve(100 * x).outside
