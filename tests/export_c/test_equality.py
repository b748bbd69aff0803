"""The generated C takes the very steps of the JAX solver, and judges them alike."""

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

import longstep as ls
from longstep._util.threads import one_blas_thread

from ..helpers import CONES, random_conic, random_qp
from .compare import assert_equal, distance, example, varied

NAMES = ("battery", "kalman", "nnls", "portfolio", "quadcopter", "svm")


@cache
def compiled_example(name):
    solver = varied(example(name)[0])
    return solver, solver.compile()


slow = pytest.mark.slow
# What compiles a JAX program of its own is slow; a number of steps does, a limit on them does not.
CHECKED = (
    {"max_iter": 1},
    {"max_iter": 7},
    {"max_iter": 30, "eps_rel": 0, "eps_abs": 1e-8},
    {"eps_abs": 1e-6, "eps_rel": 1e-6, "check_every": 7},
)


@slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps", [1, 7, 30])
def test_steps_of_examples(name, steps):
    solver, compiled = compiled_example(name)
    # There it is the solver's own cached inverse that is accurate to 1e-10 only: see the next test.
    rtol = 1e-9 if name == "nnls" else 1e-10
    for parameter in example(name)[1]:
        assert_equal(compiled.solve(parameter, steps=steps), solver.solve(parameter, steps=steps), rtol)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("quadcopter", "nnls") else pytest.mark.slow)
        for name in NAMES
        if name != "kalman"
    ],
)
def test_examples_against_extended_precision(name):
    """The iteration as its authors write it, transcribed and computed with 64 bits of mantissa."""
    family, instances = example(name)
    solver = varied(family, safeguard=None)
    compiled = solver.compile()
    with one_blas_thread():
        points = list(extended_osqp(solver, instances[0], 25))
    for count, (x, y) in enumerate(points, start=1):
        if count not in (1, 7, 25):
            continue
        ours = compiled.solve(instances[0], steps=count)
        assert distance(x, ours.x) < 1e-10
        assert distance(y, ours.y) < 1e-10


def extended_osqp(solver, parameter, count):
    """x and y after each step."""
    family, wide = solver.family, np.longdouble
    matrices, scaling, rows = family.matrices, family.matrices.scaling, family.host.kinds.bounded
    d, e, c = (np.asarray(a) for a in (scaling.d, scaling.e, scaling.c))
    data = family.data(family.batch_one(parameter))
    q, l, u = ((v * data[k][0]).astype(wide) for k, v in (("q", c * d), ("l", 1.0), ("u", 1.0)))
    l, u = e * l[rows], e * u[rows]
    P = (c * d[:, None] * family.P.toarray() * d).astype(wide)
    A = (e[:, None] * family.A[rows].toarray() * d).astype(wide)
    fixed = 0 if matrices.free is None else 1e-6 * np.asarray(matrices.free.dense()).astype(wide)
    w, z, y = np.zeros(family.n, wide), np.zeros(len(rows), wide), np.zeros(len(rows), wide)
    for k in range(count):
        theta = {name: wide(value) for name, value in solver.schedule[k].items()}
        rho = np.where(np.asarray(family.equality), theta["rho_eq"], theta["rho_ineq"])
        rough = A.astype(float)
        K = np.asarray(P + fixed + theta["sigma"] * np.eye(family.n), float) + rough.T @ (
            rho.astype(float)[:, None] * rough
        )
        factor, rhs, next_w = cho_factor(K), theta["sigma"] * w - q + A.T @ (rho * z - y), 0 * w
        for _ in range(6):
            left = rhs - P @ next_w - theta["sigma"] * next_w - A.T @ (rho * (A @ next_w))
            left = left if matrices.free is None else left - fixed @ next_w
            next_w = next_w + cho_solve(factor, left.astype(float))
        relaxed = theta["alpha"] * (A @ next_w) + (1 - theta["alpha"]) * z
        w = theta["alpha"] * next_w + (1 - theta["alpha"]) * w
        next_z = np.minimum(np.maximum(relaxed + y / rho, l), u)
        y, z = y + rho * (relaxed - next_z), next_z
        dual = np.zeros(family.m)
        dual[rows] = y * e / c
        yield np.asarray(w * d, float), dual


@pytest.mark.parametrize("name", [n if n == "quadcopter" else pytest.param(n, marks=slow) for n in NAMES])
def test_examples(name):
    solver, compiled = compiled_example(name)
    instances = example(name)[1]
    for parameter in instances:
        for options in CHECKED:
            ours, theirs = compiled.solve(parameter, **options), solver.solve(parameter, **options)
            assert_equal(ours, theirs)
    assert ours.variables.keys() == theirs.variables.keys()
    for key, value in theirs.variables.items():
        np.testing.assert_allclose(ours.variables[key], value, atol=1e-9 * max(1, np.abs(value).max()))


@cache
def qp(method="auto", safeguard="block", free=2, equilibrate=True):
    P, q, A, l, u = random_qp(4, n=12, equalities=3, inequalities=10, free=free)
    move = ls.Affine(q=np.eye(12)[:, :5], l=np.eye(13 + free)[:, :5], u=np.eye(13 + free)[:, :5])
    family = ls.QP(P, sp.csc_array(A), q=q, l=l, u=u, parameter=move, equilibrate=equilibrate)
    solver = varied(family, safeguard=safeguard)
    return solver, solver.compile(method=method)


PARAMETERS = 0.3 * np.random.default_rng(8).normal(size=(4, 5))


@pytest.mark.parametrize("steps", [7, *(pytest.param(k, marks=slow) for k in (0, 1, 10, 30))])
def test_qp_steps(steps):
    solver, compiled = qp()
    for x in PARAMETERS:
        assert_equal(compiled.solve(x, steps=steps), solver.solve(x, steps=steps), 1e-11)


@pytest.mark.parametrize("method", ["sparse", "blocks", "inverse"])
def test_methods(method):
    """Free rows, infinite bounds and equalities, by every linear algebra."""
    solver, compiled = qp(method)
    for x in PARAMETERS:
        assert_equal(compiled.solve(x, steps=7), solver.solve(x, steps=7))
        assert_equal(compiled.solve(x, eps_abs=1e-8, eps_rel=1e-8), solver.solve(x, eps_abs=1e-8, eps_rel=1e-8))
    assert compiled.code.linear.method == method


@pytest.mark.parametrize(
    "options",
    [pytest.param({"safeguard": "step"}, marks=slow), pytest.param({"safeguard": None}, marks=slow),
     pytest.param({"free": 0, "equilibrate": False}, marks=slow)],
)  # fmt: skip
def test_kinds_of_qp(options):
    solver, compiled = qp(**options)
    for x in PARAMETERS:
        assert_equal(compiled.solve(x, max_iter=40), solver.solve(x, max_iter=40))


@cache
def conic(name, equilibrate=True, safeguard="block"):
    P, A, b, c = random_conic(1, CONES[name])
    family = ls.Conic(P, A, CONES[name], b=b, c=c, parameter=ls.Affine(c=P, b=A), equilibrate=equilibrate)
    solver = varied(family, safeguard=safeguard)
    return solver, solver.compile()


@pytest.mark.parametrize("name", [name if name == "mixed" else pytest.param(name, marks=slow) for name in CONES])
def test_cones(name):
    solver, compiled = conic(name)
    for x in 0.1 * np.random.default_rng(0).normal(size=(3, 10)):
        for options in ({"steps": 7}, *CHECKED):
            assert_equal(compiled.solve(x, **options), solver.solve(x, **options))


@slow
@pytest.mark.parametrize("options", [{"equilibrate": False}, {"safeguard": "step"}, {"safeguard": None}])
def test_kinds_of_conic(options):
    solver, compiled = conic("mixed", **options)
    for x in 0.1 * np.random.default_rng(1).normal(size=(2, 10)):
        assert_equal(compiled.solve(x, max_iter=20), solver.solve(x, max_iter=20))


@pytest.mark.parametrize("make", [qp, pytest.param(lambda: conic("mixed"), marks=slow)], ids=["qp", "conic"])
def test_warm_starts(make):
    solver, compiled = make()
    parameter = 0.1 * np.ones(solver.family.parameter.size)
    point = solver.solve(parameter, max_iter=30)
    near = ls.Point(point.x + 0.1, point.y - 0.1, point.s + 0.2)
    for start in (point, near):
        options = {"max_iter": 6, "warm_start": start}
        assert_equal(compiled.solve(parameter, **options), solver.solve(parameter, **options))


@slow
@pytest.mark.parametrize("make", [qp, lambda: conic("mixed")], ids=["qp", "conic"])
def test_partial_warm_starts(make):
    solver, compiled = make()
    parameter = 0.1 * np.ones(solver.family.parameter.size)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=solver.family.n), rng.normal(size=solver.family.m)
    for start in (ls.Point(x), ls.Point(x, y), ls.Point(x, None, y)):
        for limit in ({"max_iter": 6}, {"steps": 3}):
            options = {**limit, "warm_start": start}
            assert_equal(compiled.solve(parameter, **options), solver.solve(parameter, **options))


@slow
def test_warm_schedules():
    family = qp()[0].family
    schedule = qp()[0].schedule
    solver = ls.Solver(family, ls.Schedule(schedule.varying, schedule.steady, blocks=schedule.blocks, warm=True))
    compiled, start = solver.compile(), ls.Point(np.ones(12))
    ours, theirs = (s.solve(PARAMETERS[0], warm_start=start, max_iter=8) for s in (compiled, solver))
    assert_equal(ours, theirs)
    cold = qp()[1].solve(PARAMETERS[0], warm_start=start, max_iter=8)
    assert np.abs(cold.x - ours.x).max() > 1e-6


@pytest.mark.parametrize("kind", ["qp", "conic"])
@pytest.mark.parametrize("rule", ["block", pytest.param("step", marks=slow)])
def test_the_safeguard_acts_alike(kind, rule):
    family = (qp() if kind == "qp" else conic("mixed"))[0].family
    solver = varied(family, blocks=(3, 7), seed=5, spread=2.0, safeguard=rule)
    compiled, acted = solver.compile(), []
    for x in 0.3 * np.random.default_rng(2).normal(size=(5, family.parameter.size)):
        for options in ({"steps": 7}, {"max_iter": 6}, {"eps_abs": 1e-3, "eps_rel": 1e-3}):
            ours, theirs = compiled.solve(x, **options), solver.solve(x, **options)
            assert_equal(ours, theirs, 1e-9)
            acted.append(bool(ours.safeguarded))
    assert any(acted)


@slow
def test_the_last_check_before_failure_is_kept():
    """A steady state that overflows: the status and the best point are those of the solver."""
    family = ls.QP([[1.0]], [[1.0]], q=[1.0], l=[-1.0], u=[1.0])
    solver = ls.Solver(family)
    compiled = solver.compile()
    huge = {"q": [1e300], "l": [-1e308], "u": [1e308]}
    assert_equal(compiled.solve(huge, max_iter=50), solver.solve(huge, max_iter=50))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        ({"q": [1.0, 1.0], "l": [2.0, 0.0, 0.0], "u": [3.0, 1.0, 0.5]}, "PRIMAL_INFEASIBLE"),
        ({"q": [-1.0, -1.0], "l": [0.0, 0.0, 0.0], "u": [np.inf, np.inf, np.inf]}, "DUAL_INFEASIBLE"),
        ({"q": [1.0, 1.0], "l": [0.5, 0.0, 0.0], "u": [3.0, np.inf, 1e25]}, "SOLVED"),
        ({"q": [1.0, -1.0], "l": [-np.inf, 0.0, -1e20], "u": [3.0, np.inf, 7.0]}, "SOLVED"),
    ],
)
def test_infeasible_instances_and_infinite_bounds_of_a_linear_program(data, status):
    solver, compiled = linear_program()
    ours, theirs = compiled.solve(data), solver.solve(data)
    assert ours.status.name == status
    assert_equal(ours, theirs, 1e-9)
    if status == "PRIMAL_INFEASIBLE":
        # l ≤ Ax ≤ u has no point: A'y = 0 and u'y₊ + l'y₋ < 0.
        y = ours.ray_y / np.abs(ours.ray_y).max()
        assert np.abs(solver.family.A.T @ y).max() < 1e-3
        assert np.array(data["u"]) @ np.maximum(y, 0) + np.array(data["l"]) @ np.minimum(y, 0) < 0


@cache
def linear_program():
    solver = ls.Solver(ls.QP(None, [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], equalities=[], free=[]))
    return solver, solver.compile()


@pytest.mark.parametrize(
    ("b", "c", "status"),
    [
        ([-1.0, -1.0, 0.0], [1.0, 0.0], "PRIMAL_INFEASIBLE"),
        ([0.0, 1.0, 1.0], [-1.0, -1.0], "DUAL_INFEASIBLE"),
    ],
)
@slow
def test_infeasible_cone_programs(b, c, status):
    A = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0]])
    if status == "DUAL_INFEASIBLE":
        A = -np.abs(A)
    family = ls.Conic(None, A, ls.Cones(nonnegative=3))
    solver = ls.Solver(family)
    ours, theirs = (s.solve({"b": b, "c": c}, max_iter=5000) for s in (solver.compile(), solver))
    assert ours.status.name == status
    assert_equal(ours, theirs, 1e-8)


@slow
def test_diagonal_matrices_need_no_factor():
    family = ls.QP(sp.diags_array(np.arange(1.0, 31)), sp.eye_array(30), q=-np.ones(30), l=np.zeros(30), u=np.ones(30))
    solver = varied(family)
    compiled = solver.compile()
    assert compiled.code.linear.method == "diagonal"
    assert compiled.code.factor_bytes == 30 * 8
    assert_equal(compiled.solve({}, steps=15), solver.solve({}, steps=15))


@slow
def test_a_qp_without_constraints():
    family = ls.QP(np.diag([1.0, 2.0]), np.zeros((0, 2)), q=[1.0, -1.0], l=[], u=[])
    solver = ls.Solver(family)
    assert_equal(solver.compile().solve({}, eps_abs=1e-8), solver.solve({}, eps_abs=1e-8))


@pytest.mark.parametrize("make", [qp, lambda: conic("mixed")], ids=["qp", "conic"])
def test_single_precision(make):
    """Against the same family in float32, and against the optimum."""
    solver, _ = make()
    compiled = solver.compile(precision="float")
    parameter = 0.1 * np.ones(solver.family.parameter.size)
    exact = solver.solve(parameter, eps_abs=1e-9, eps_rel=1e-9, max_iter=50_000)
    ours = compiled.solve(parameter, eps_abs=1e-4, eps_rel=1e-4, max_iter=50_000)
    assert ours.x.dtype == np.float32
    assert ours.status == ls.Status.SOLVED
    reference = solver.solve(parameter, eps_abs=1e-4, eps_rel=1e-4, max_iter=50_000)
    assert np.abs(ours.x - exact.x).max() < 3 * np.abs(reference.x - exact.x).max() + 1e-3
    few, exactly = compiled.solve(parameter, steps=7), solver.solve(parameter, steps=7)
    assert np.abs(few.x - exactly.x).max() < 1e-3 * max(1, np.abs(exactly.x).max())
    with pytest.raises(ValueError, match="single precision does not reach"):
        compiled.solve(parameter, eps_abs=1e-8, eps_rel=1e-8)
    assert compiled.solve(parameter, eps_abs=1e-8, eps_rel=1e-8, steps=2).iterations == 2
