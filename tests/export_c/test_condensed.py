"""Condensed in C: the steps, checks and certificates of the JAX solver, in fewer unknowns."""

from functools import cache

import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.export_c.library import Slot, check_settings
from longstep.export_c.problem import extract_problem

from ..helpers import random_qp
from .compare import COMPILERS, assert_equal, distance
from .test_export import CHECKED, STRICT, run
from .test_ladder import PATIENCE, impatient, said_sizes  # noqa: F401

slow = pytest.mark.slow


def _family(seed=4, n=12, equalities=3, inequalities=10, free=0, zero=False, repeated=False, mapped=True, **options):
    P, q, A, l, u = random_qp(seed, n=n, equalities=equalities, inequalities=inequalities, free=free)
    if zero:
        # Of multipliers whose signs the bounds allow: there is an optimum.
        P, q = 0 * P, -A.T @ np.where(np.isfinite(u), 0.3, -0.2)
    if repeated:
        A, l, u = np.vstack([A, A[0] - 2 * A[1]]), np.append(l, l[0] - 2 * l[1]), np.append(u, u[0] - 2 * u[1])
    if not mapped:
        return ls.QP(P, A, q=q, l=l, u=u, **options)
    rows = np.zeros((len(A), 5))
    rows[: min(equalities, 3), : min(equalities, 3)] = np.eye(min(equalities, 3))
    rows[equalities : equalities + 2, 3:] = 0.1
    if repeated:
        rows[-1] = rows[0] - 2 * rows[1]
    move = ls.Affine(q=(0.0 if zero else 0.5) * np.eye(n)[:, :5], l=rows, u=rows)
    return ls.QP(P, A, q=q, l=l, u=u, parameter=move, **options)


def residuals(**options):
    """Least absolute values with an unknown for each residual r = Gx − b, which its equality gives."""
    rng = np.random.default_rng(3)
    k, n, one, none = 40, 82, np.eye(40), np.zeros((40, 2))
    A = np.block([[rng.normal(size=(k, 2)), -one, 0 * one], [none, one, -one], [none, -one, -one]])
    l = np.concatenate([rng.normal(size=k), np.full(2 * k, -np.inf)])
    u = np.concatenate([l[:k], np.zeros(2 * k)])
    rows = np.eye(3 * k)[:, :5] * (np.arange(3 * k) < 3)[:, None]
    move = ls.Affine(q=0.2 * np.eye(n)[:, :5], l=rows, u=rows)
    P = np.diag(np.repeat([0.1, 1.0, 0.0], [2, k, k]))
    return ls.QP(P, A, q=np.repeat([0.0, 0.0, 1.0], [2, k, k]), l=l, u=u, parameter=move, **options)


FAMILIES = {
    "equalities": {},
    "few inequalities": {"inequalities": 4},
    "many inequalities": {"inequalities": 25},
    "repeated": {"repeated": True},
    "no equalities": {"equalities": 0},
    "no inequalities": {"inequalities": 0},
    "free rows": {"free": 2},
    "as many equalities as unknowns": {"equalities": 12},
    "zero P": {"zero": True, "inequalities": 20},
    "zero P, few rows": {"zero": True, "inequalities": 5},
    "unmapped": {"mapped": False},
    "not equilibrated": {"equilibrate": False},
    "residuals": {},
}


@cache
def solvers(
    name="equalities", metric=False, ladder=False, safeguard="block", spread=0.2, precision="double", **options
):
    family = residuals(**options) if name == "residuals" else _family(**FAMILIES[name], **options)
    rng, H = np.random.default_rng(2), 6
    steady = {"rho": 0.3, "alpha": 1.6}
    steps = {"rho": 0.3 * 10 ** rng.uniform(-spread, spread, H), "alpha": rng.uniform(0.8, 1.8, H)}
    inequalities = int((~np.asarray(family.equality)).sum())
    rows = np.exp(rng.normal(size=inequalities)) if metric else None
    schedule = ls.Schedule(steps, steady if not ladder else {**steady, "rho": 100.0}, blocks=(2, 4), metric=rows)
    solver = ls.Solver(family, schedule, algorithm=Condensed(), ladder=ladder, safeguard=safeguard)
    return solver, solver.compile(precision=precision)


def instances(solver, count=3):
    family = solver.family
    moves = 0.2 * np.random.default_rng(5).normal(size=(count, 5))
    if family.parameter is not None:
        return list(moves)
    return [{"q": family.host.values["q"] + np.pad(move, (0, family.n - 5))} for move in moves]


def assert_alike(solver, compiled, x, rtol, **options):
    """The same end and, where it is solved or a number of steps, the same point: else C may return another one than the
    best of all that were checked, because it judges few of them in full."""
    ours, theirs = (s.solve(x, **options) for s in (compiled, solver))
    assert (ours.status, int(ours.iterations)) == (theirs.status, int(theirs.iterations))
    if rtol > 1e-6:
        # Inverses are accurate to 1e-2 only there, and x drifts, here and there, in directions that nothing sees.
        if "steps" in options or theirs.status == ls.Status.SOLVED:
            A = solver.family.host.A
            pairs = ((theirs.y, ours.y), (theirs.s, ours.s), (A @ theirs.x, A @ ours.x))
            assert max(distance(a, b) for a, b in pairs) < rtol
        return
    if "steps" in options or theirs.status == ls.Status.SOLVED:
        assert_equal(ours, theirs, rtol)
        return
    # What is said of the returned point is true of it.
    found = solver.solve(x, steps=0, warm_start=ls.Point(ours.x, ours.y, ours.s))
    assert ours.primal_residual == pytest.approx(found.primal_residual, rel=1e-4, abs=1e-8)
    assert ours.dual_residual == pytest.approx(found.dual_residual, rel=1e-4, abs=1e-8 * (1 + np.abs(ours.y).max()))


LIMITS = (
    {"max_iter": 4},
    {"max_iter": 25, "eps_abs": 1e-9, "eps_rel": 0.0, "check_every": 3},
    {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 3000},
    {"eps_abs": 1e-3, "eps_rel": 1e-3, "check_every": 1},
)
USUAL = ("equalities", "residuals", "many inequalities", "repeated", "zero P, few rows", "no inequalities")


@pytest.mark.parametrize("name", [name if name in USUAL else pytest.param(name, marks=slow) for name in FAMILIES])
def test_steps_and_statuses(name):
    solver, compiled = solvers(name)
    # A shift keeps the others definite.
    rtol = 1e-9 if solver._working.elimination.ridge == 0 else 2e-2
    for x in instances(solver):
        for options in ({"steps": 0}, {"steps": 5}, *LIMITS):
            assert_alike(solver, compiled, x, rtol, **options)


@pytest.mark.parametrize(
    ("metric", "ladder"), [(True, True), pytest.param(True, False, marks=slow), pytest.param(False, True, marks=slow)]
)
@pytest.mark.parametrize("name", ["equalities", pytest.param("many inequalities", marks=slow)])
def test_metric_and_ladder(name, metric, ladder):
    solver, compiled = solvers(name, metric, ladder)
    for x in instances(solver):
        for options in (*LIMITS, {"max_iter": PATIENCE + 27, "eps_abs": 1e-12, "eps_rel": 0.0}):
            assert_alike(solver, compiled, x, 1e-9, **options)
    xs = np.array(instances(solver))
    ours, theirs = (s.run(xs, PATIENCE + 15) for s in (compiled, solver))
    for field in ("primal", "dual"):
        a, b = getattr(ours, field), getattr(theirs, field)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * (1 + b.max()))


@pytest.mark.parametrize("name", [n if n in USUAL[:2] else pytest.param(n, marks=slow) for n in FAMILIES])
def test_warm_starts(name):
    solver, compiled = solvers(name)
    rtol = 1e-9 if solver._working.elimination.ridge == 0 else 2e-2
    rng = np.random.default_rng(0)
    x = instances(solver)[0]
    w, y, s = rng.normal(size=solver.family.n), rng.normal(size=solver.family.m), rng.normal(size=solver.family.m)
    for start in (solver.solve(x, max_iter=10), ls.Point(w), ls.Point(w, y, s)):
        for limit in ({"steps": 0}, {"steps": 3}, {"max_iter": 12}):
            options = {**limit, "warm_start": start}
            assert_alike(solver, compiled, x, rtol, **options)


def test_equalities_give_the_unknowns_that_leave_the_fewest_entries():
    solver, _ = solvers("residuals")
    condensed = extract_problem(solver).condensed
    assert not condensed.least
    E = extract_problem(solver).A.toarray()[condensed.equalities]
    np.testing.assert_allclose(E @ condensed.N, 0.0, atol=1e-12)
    np.testing.assert_allclose(condensed.left_inverse() @ condensed.N, np.eye(condensed.free), atol=1e-12)
    # Each residual is given by its row of G and nothing else; all others are coordinates.
    assert np.count_nonzero(condensed.N) == 40 * 2 + 42


@pytest.mark.parametrize("rule", ["block", pytest.param("step", marks=slow)])
def test_the_safeguard_acts_alike(rule):
    solver, compiled = solvers("many inequalities", safeguard=rule, spread=3.0)
    acted = []
    for x in instances(solver, 6):
        for options in ({"steps": 5}, {"max_iter": 4}, {"max_iter": 8, "eps_abs": 1e-10}, *LIMITS):
            assert_alike(solver, compiled, x, 1e-8, **options)
            acted.append(bool(compiled.solve(x, **options).safeguarded))
    assert any(acted)


@cache
def linear_program(equality):
    """min q'x over a box and a row; with an equality x₀ + x₁ + x₂ = b."""
    rows = np.vstack([np.eye(3), [1.0, 2.0, 0.0]] + ([[1.0, 1.0, 1.0]] * equality))
    equalities = [4 + k for k in range(equality)]
    solver = ls.Solver(ls.QP(None, rows, equalities=equalities, free=[]), algorithm=Condensed())
    return solver, solver.compile()


@pytest.mark.parametrize(
    ("equality", "l", "u", "q", "status"),
    [
        (0, [0, 0, 0, 5], [1, 1, 1, 9], [1, 1, 1], "PRIMAL_INFEASIBLE"),
        (1, [0, 0, 0, 0, 5], [1, 1, 1, 9, 5], [1, 1, 1], "PRIMAL_INFEASIBLE"),
        (2, [0, 0, 0, 0, 1, 2], [1, 1, 1, 9, 1, 2], [1, 1, 1], "PRIMAL_INFEASIBLE"),
        (0, [0, 0, 0, 0], [1, 1, np.inf, 9], [1, 1, -1], "DUAL_INFEASIBLE"),
        (1, [0, -np.inf, 0, -np.inf, 1], [1, 1, np.inf, 9, 1], [1, 1, -1], "DUAL_INFEASIBLE"),
        (1, [0, 0, 0, 0, 1], [1, 1, np.inf, 9, 1], [1, 2, -1], "SOLVED"),
        (2, [0, 0, 0, 0, 1, 1], [1, 1, np.inf, 9, 1, 1], [1, 2, -1], "SOLVED"),
    ],
)
def test_infeasible_and_unbounded_programs(equality, l, u, q, status):
    solver, compiled = linear_program(equality)
    data = {"q": np.array(q, float), "l": np.array(l, float), "u": np.array(u, float)}
    ours, theirs = compiled.solve(data), solver.solve(data)
    assert ours.status.name == theirs.status.name == status
    assert ours.iterations == theirs.iterations
    if status == "SOLVED":
        assert_equal(ours, theirs, 1e-6)
        return
    for name in ("ray_x", "ray_y"):
        a, b = getattr(theirs, name), getattr(ours, name)
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-7 * np.nanmax(np.abs(np.append(a, 0.0))))


@pytest.mark.parametrize("name", ["equalities", pytest.param("repeated", marks=slow)])
def test_single_precision(name):
    solver, compiled = solvers(name, metric=True, precision="float")
    for x in instances(solver):
        ours, theirs = (s.solve(x, eps_abs=1e-3, eps_rel=1e-3) for s in (compiled, solver))
        assert ours.status == theirs.status == ls.Status.SOLVED
        assert np.abs(ours.x - theirs.x).max() < 1e-2 * (1 + np.abs(theirs.x).max())


def test_bounds_of_an_equality_must_agree():
    """In C too, where nobody has looked at the instance before."""
    solver, compiled = solvers("unmapped")
    values = solver.family.host.values
    good = np.concatenate([values["q"], values["l"], values["u"]])
    bad = good.copy()
    bad[solver.family.n + solver.family.m] += 1.0
    library = compiled.library
    for parameter, status in ((good, ls.Status.SOLVED), (bad, 7)):
        slot = Slot(library)
        limits = {"eps_abs": 1e-4, "eps_rel": 1e-4, "eps_infeasible": 1e-4}
        slot.set(check_settings(**limits, max_iter=5000, check_every=5, steps=None))
        slot.parameter[:] = parameter
        slot.solve(library.ffi.NULL)
        assert slot.ended.status == status


@pytest.mark.parametrize(
    ("name", "precision", "climbs"),
    [
        ("equalities", "double", True),
        ("repeated", "double", False),
        *(
            pytest.param(name, "double", "zero" not in name, marks=slow)
            for name in FAMILIES
            if name not in ("equalities", "repeated")
        ),
        pytest.param("equalities", "float", False, marks=slow),
        pytest.param("unmapped", "float", False, marks=slow),
    ],
)
def test_it_builds_without_a_warning_and_states_its_memory(name, precision, climbs, tmp_path):
    solver = solvers(name, metric=climbs, ladder=climbs)[0]
    export = ls.generate_c(solver, tmp_path / "c", prefix="mpc", precision=precision)
    for compiler in COMPILERS:
        export.build(compiler=compiler, options=STRICT)
    assert said_sizes(export, tmp_path) == f"{export.ram} {export.result}"


@pytest.mark.parametrize("name", ["equalities", pytest.param("repeated", marks=slow)])
def test_sanitizers_find_nothing(name, tmp_path):
    solver = solvers(name)[0]
    program = ls.generate_c(solver, tmp_path / "c", prefix="mpc").build(options=CHECKED)
    for steps in (None, 0, 15):
        status, _, x = run(program, instances(solver)[0], tmp_path, steps)
        if steps is None:
            assert status == ls.Status.SOLVED
            assert np.abs(x - solver.solve(instances(solver)[0]).x).max() < 1e-9
