"""Exponential and power cones in C: projections by the laws that hold in Python, and programs as JAX solves them."""

import ctypes
import subprocess

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.export_c import emit
from longstep.export_c.build import SAFE
from longstep.export_c.cones import write_shared
from longstep.export_c.source import name_functions

from ..cones.test_curved import CURVED, awkward, inside, inside_dual, middle
from ..engine.test_newton import TIGHT, programs
from ..helpers import CONES, is_optimal
from .test_export import CHECKED, STRICT, needs, run

_EACH = """
void project_exponentials(long count, real *z);
void project_exponentials(long count, real *z)
{
    for (long i = 0; i < count; ++i) project_exponential(z + 3 * i, 0);
}
void project_powers(long count, real a, real *z);
void project_powers(long count, real a, real *z)
{
    for (long i = 0; i < count; ++i) project_power(z + 3 * i, a, 0);
}
"""


def projector(folder, precision, compiler, options):
    """The projections of the generated code as functions of arrays of points, each a column."""
    real = emit.REALS[precision]
    parts = [f"#include <float.h>\n#include <math.h>\n#include <stdint.h>\ntypedef {precision} longstep_real;"]
    parts += [
        name_functions(precision),
        emit.read_part("prelude.c"),
        *write_shared(ls.Cones(exponential=1), precision),
        _EACH,
    ]
    parts[3] += emit.read_part("exponential.c") + emit.read_part("power.c")
    (folder / "project.c").write_text("\n".join(parts))
    call = [compiler, "-std=c99", *STRICT, "-Wno-unused-function", *options, "-fPIC", "-shared", "project.c"]
    subprocess.run([*call, "-lm", "-o", f"{precision}.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / f"{precision}.so"))

    def project(kind, V):
        points = np.ascontiguousarray(np.asarray(V, real.dtype).T)
        count, at = ctypes.c_long(len(points)), ctypes.c_void_p(points.ctypes.data)
        if kind == "exponential":
            library.project_exponentials(count, at)
        else:
            number = ctypes.c_double if precision == "double" else ctypes.c_float
            library.project_powers(count, number(CURVED[kind].power[0]), at)
        return points.T

    return project


BUILDS = [
    pytest.param(name, options, marks=needs(name), id=f"{name}{'' if options else '-O2'}")
    for name in ("gcc", "clang")
    for options in ((), tuple(option for option in SAFE if name == "gcc" or "peel" not in option))
]


@pytest.mark.parametrize(("compiler", "options"), BUILDS)
def test_projections_on_all_magnitudes(compiler, options, tmp_path):
    """In the cone, the rest in the polar cone, at right angles (Moreau 1962); in single precision as in double."""
    double, single = (projector(tmp_path, p, compiler, options) for p in ("double", "float"))
    for kind in CURVED:
        V = awkward(20_000)
        size = np.abs(V).max(axis=0)
        V, size = V[:, size >= 1e-280], size[size >= 1e-280]
        p = double(kind, V) / size
        d = p - V / size
        assert np.isfinite(p).all()
        assert np.abs(np.sum(p * d, axis=0)).max() < 2e-14
        assert inside(kind, p + 1e-13 * middle(kind)).all()
        assert inside_dual(kind, d + 1e-13 * middle(kind)).all()
        near = (size < 1e30) & (size > 1e-30)
        V = V[:, near].astype(np.float32)
        found, wide = single(kind, V) / size[near], double(kind, V.astype(float)) / size[near]
        np.testing.assert_allclose(found, wide, atol=1e-6)
        odd = double(kind, np.array([[np.nan, 1.0, np.inf], [1.0, 2.0, 1.0], [0.5, 3.0, 0.5]]))
        assert np.isnan(odd[:, 0]).any()
        assert np.isfinite(odd[:, 1]).all()
        assert not np.isfinite(odd[:, 2]).all()


@pytest.fixture(scope="module")
def entropy():
    """The distribution of largest entropy with given moments, its solver in C, and instances."""
    rng, n = np.random.default_rng(10), 8
    A = rng.standard_normal((3, n))
    moments, x = cp.Parameter(3, name="moments"), cp.Variable(n, name="x")
    problem = cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), [A @ x == moments, cp.sum(x) == 1])
    family = ls.from_cvxpy(problem).family
    return problem, ls.Solver(family, finish=10).compile(), rng.dirichlet(np.ones(n), size=30) @ A.T


def test_entropies_are_exact(entropy):
    problem, compiled, moments = entropy
    family = compiled.family
    found = compiled.solve_batch(moments, **TIGHT)
    assert np.all(found.exact)
    data = family.data(moments)
    for k in range(len(found)):
        instance = family.P.toarray(), family.A.toarray(), data["b"][k], data["c"][k]
        assert is_optimal(*instance, family.cones, found[k], 1e-9) == ""
    for k in range(2):
        problem.param_dict["moments"].value = moments[k]
        assert found.objective[k] == pytest.approx(problem.solve(solver=cp.CLARABEL), abs=1e-7)


def test_entropies_in_single_precision(entropy):
    _, compiled, moments = entropy
    exact = compiled.solve_batch(moments, **TIGHT)
    single = compiled.solver.compile(precision="float")
    found = single.solve_batch(moments, eps_abs=1e-4, eps_rel=1e-4, max_iter=5000)
    assert np.all(found.solved)
    np.testing.assert_allclose(found.objective, exact.objective, atol=2e-3)
    few, exactly = (each.solve_batch(moments, steps=20) for each in (single, compiled))
    np.testing.assert_allclose(few.x, exactly.x, atol=1e-3)


def test_infeasible_and_unbounded_programs():
    """(x, 1, −1) is in no exponential cone; of (x, 1, e) it is all x ≤ 1, so that −x has an infimum and x has none."""
    A = np.array([[-1.0], [0.0], [0.0]])
    compiled = ls.Solver(ls.Conic(np.zeros((1, 1)), A, ls.Cones(exponential=1)), finish=7).compile()
    infeasible = compiled.solve({"b": [0.0, 1.0, -1.0], "c": [0.0]})
    assert infeasible.status == ls.Status.PRIMAL_INFEASIBLE
    ray = infeasible.ray_y
    assert inside_dual("exponential", ray / np.abs(ray).max() + 1e-9 * middle("exponential")[:, 0])
    assert ray @ [0.0, 1.0, -1.0] < 0
    assert compiled.solve({"b": [0.0, 1.0, np.e], "c": [1.0]}).status == ls.Status.DUAL_INFEASIBLE
    solution = compiled.solve({"b": [0.0, 1.0, np.e], "c": [-1.0]}, **TIGHT)
    assert solution.exact
    np.testing.assert_allclose(solution.x, 1.0, atol=1e-8)


@pytest.mark.parametrize("precision", ["double", "float"])
@pytest.mark.parametrize("compiler", [pytest.param(name, marks=needs(name)) for name in ("gcc", "clang")])
def test_it_builds_without_a_warning_and_sanitizers_find_nothing(compiler, precision, tmp_path):
    family, data = programs(CONES["all"])
    export = ls.generate_c(ls.Solver(family, finish=10), tmp_path / "c", prefix="cone", precision=precision)
    options = CHECKED if compiler == "gcc" else (*STRICT, "-Wconversion", "-Wdouble-promotion")
    program = export.build(compiler=compiler, options=options)
    for k in range(3):
        status, iterations, _ = run(program, np.concatenate([family.host.values["b"], data["c"][k]]), tmp_path)
        assert status == ls.Status.SOLVED
        assert iterations == 10 or precision == "float"


def test_cones_without_c_code_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(type(CONES["power"].parts[0]), "c_part", None)
    family, _ = programs(CONES["power"])
    with pytest.raises(ValueError, match="C code is not written for the power cone, of which this family has 4"):
        ls.generate_c(ls.Solver(family), tmp_path / "code")
    assert not (tmp_path / "code").exists()
