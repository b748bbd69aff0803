"""The solver as a user meets it: statuses, limits, warm starts, edge cases, precision."""

import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.data.references import solve_references
from longstep.engine import jitted
from longstep.families.point import Point
from longstep.research.experiments import quadcopter

from .helpers import CONES, random_conic, random_qp

TIGHT = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": 50_000}


def simple(**options):
    return ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=-np.ones(2), u=np.ones(2), **options)


@pytest.mark.parametrize("equilibrate", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_qp_solutions_agree_with_clarabel(seed, equilibrate):
    P, q, A, l, u = random_qp(seed, equalities=3, free=2)
    family = ls.QP(sp.csc_array(P), sp.coo_array(A), q=q, l=l, u=u, equilibrate=equilibrate)
    reference = ls.solve_references(family, [{}], cache=False, jobs=1, progress=False)
    solution = ls.Solver(family).solve({}, **TIGHT)
    assert solution.status == ls.Status.SOLVED
    np.testing.assert_allclose(solution.x, reference.x[0], atol=1e-5)
    np.testing.assert_allclose(solution.y, reference.y[0], atol=1e-4)
    np.testing.assert_allclose(solution.s, A @ solution.x, atol=1e-6)
    np.testing.assert_allclose(solution.objective, reference.value[0], atol=1e-5)
    # Residuals are in the user's units: computed here from the user's own data.
    dual = np.max(np.abs(P @ solution.x + q + A.T @ solution.y))
    primal = np.max(np.abs(A @ solution.x - solution.s))
    np.testing.assert_allclose(solution.dual_residual, dual, atol=1e-12)
    np.testing.assert_allclose(solution.primal_residual, primal, atol=1e-12)


@pytest.mark.parametrize("kind", CONES)
def test_conic_solutions_agree_with_clarabel(kind):
    P, A, b, c = random_conic(11, CONES[kind])
    family = ls.Conic(P, A, CONES[kind], b=b, c=c)
    reference = ls.solve_references(family, [{}], cache=False, jobs=1, progress=False)
    # As a batch of one: with two of the tests' three flags together, not with either, XLA compiles the loop of a single
    # instance so that it stalls at 1e-5 with power cones; without them it takes the same steps.
    solution = ls.Solver(family).solve_batch([{}], **TIGHT)[0]
    assert solution.status == ls.Status.SOLVED
    np.testing.assert_allclose(solution.objective, reference.value[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(solution.x, reference.x[0], atol=1e-4)
    dual = np.max(np.abs(P @ solution.x + c + A.T @ solution.y))
    primal = np.max(np.abs(A @ solution.x + solution.s - b))
    np.testing.assert_allclose([solution.primal_residual, solution.dual_residual], [primal, dual], atol=1e-11)


def test_a_start_outside_its_bounds_is_not_called_solved():
    """At the zero start Aw = z = 0 and, with q = 0, the dual residual vanishes too; but z violates l ≤ z."""
    family = ls.QP(np.eye(1), np.eye(1), q=[0.0], l=[1.0], u=[2.0])
    solution = ls.Solver(family).solve({}, **TIGHT)
    assert solution.iterations > 0
    np.testing.assert_allclose(solution.x, 1.0, atol=1e-6)
    wrong = Point(np.zeros(1), np.zeros(1), np.zeros(1))
    assert ls.Solver(family).solve({}, warm_start=wrong, max_iter=0).status == ls.Status.ITERATION_LIMIT
    one_sided = ls.QP(np.eye(1), np.eye(1), q=[1.0], l=[0.0], u=[np.inf])
    # x = −2, y = +1 has zero dual residual, but a dual on an infinite bound means nothing.
    wrong = Point(np.array([-2.0]), np.array([1.0]), np.array([-2.0]))
    assert ls.Solver(one_sided).solve({}, warm_start=wrong, max_iter=0).status == ls.Status.ITERATION_LIMIT


def infeasible_qp():
    A = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    return ls.QP(np.eye(2), A, q=np.ones(2), l=np.array([1.0, -np.inf, -3]), u=np.array([np.inf, 0.0, 3]))


def unbounded_qp():
    P = np.diag([1.0, 0.0])
    return ls.QP(P, np.eye(2), q=np.array([1.0, -1.0]), l=np.array([-1.0, 0.0]), u=np.array([1.0, np.inf]))


def test_infeasible_qp():
    family = infeasible_qp()
    solution = ls.Solver(family).solve({})
    assert solution.status == ls.Status.PRIMAL_INFEASIBLE
    ray = solution.ray_y / np.max(np.abs(solution.ray_y))
    assert np.max(np.abs(family.A.T @ ray)) < 1e-3
    l, u = family.host.values["l"], family.host.values["u"]
    support = sum(u[i] * max(r, 0) if r > 0 else l[i] * r if r < 0 else 0.0 for i, r in enumerate(ray))
    assert support < -1e-3
    assert "certifies" in solution.message
    assert np.isnan(solution.ray_x).all()


def test_unbounded_qp():
    family = unbounded_qp()
    solution = ls.Solver(family).solve({})
    assert solution.status == ls.Status.DUAL_INFEASIBLE
    ray = solution.ray_x / np.max(np.abs(solution.ray_x))
    assert np.max(np.abs(family.P @ ray)) < 1e-3
    assert family.host.values["q"] @ ray < -1e-3


@pytest.mark.parametrize("equilibrate", [True, False])
def test_infeasible_and_unbounded_cone_programs(equilibrate):
    # ‖x‖ ≤ −1 has no solution; min x₁ over a half-space of the cone's axis is unbounded.
    cones = ls.Cones(second_order=(3,))
    A = -np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    family = ls.Conic(np.zeros((2, 2)), A, cones, c=np.ones(2), equilibrate=equilibrate)
    infeasible = ls.Solver(family).solve({"b": np.array([-1.0, 0.0, 0.0])})
    assert infeasible.status == ls.Status.PRIMAL_INFEASIBLE
    ray = infeasible.ray_y
    assert np.max(np.abs(A.T @ ray)) <= 1e-5 * abs(ray[0])
    assert -ray[0] < 0
    half = ls.Conic(np.zeros((2, 2)), -np.eye(2), ls.Cones(nonnegative=2), b=np.zeros(2), equilibrate=equilibrate)
    unbounded = ls.Solver(half).solve({"c": np.array([-1.0, 1.0])})
    assert unbounded.status == ls.Status.DUAL_INFEASIBLE
    assert unbounded.ray_x[0] > 0
    assert ls.Solver(half).solve({"c": np.array([1.0, 1.0])}).status == ls.Status.SOLVED


def test_infeasible_semidefinite_program():
    # tr X = −1 with X ⪰ 0.
    A = np.vstack([[1.0, 0.0, 1.0], -np.eye(3)])
    family = ls.Conic(np.zeros((3, 3)), A, ls.Cones(zero=1, semidefinite=(2,)), c=np.zeros(3))
    assert ls.Solver(family).solve({"b": [-1.0, 0, 0, 0]}).status == ls.Status.PRIMAL_INFEASIBLE
    assert ls.Solver(family).solve({"b": [1.0, 0, 0, 0]}).status == ls.Status.SOLVED


def test_a_batch_may_mix_outcomes():
    family = ls.QP(np.diag([1.0, 0.0]), np.eye(2), l=np.zeros(2), u=np.array([1.0, np.inf]), equalities=[])
    solution = ls.Solver(family).solve_batch({"q": np.array([[1.0, 1.0], [0.0, -1.0], [-0.5, 2.0]])})
    assert [ls.Status(s).name for s in solution.status] == ["SOLVED", "DUAL_INFEASIBLE", "SOLVED"]
    np.testing.assert_allclose(solution[2].x, [0.5, 0.0], atol=1e-3)
    assert solution.message == "2 solved, 1 dual infeasible"
    assert np.isnan(solution.ray_x[0]).all()
    assert np.isfinite(solution.ray_x[1]).all()


def test_limits_and_the_best_point():
    solver = ls.Solver(quadcopter.family())
    x = quadcopter.sample_many(1, seed=4)[0]
    short = solver.solve(x, eps_abs=1e-12, eps_rel=0.0, max_iter=23)
    assert short.status == ls.Status.ITERATION_LIMIT
    assert short.iterations == 23
    assert "Raise max_iter" in short.message
    timed = solver.solve(x, eps_abs=0.0, eps_rel=0.0, max_iter=10**7, time_limit=0.3)
    assert timed.status == ls.Status.TIME_LIMIT
    assert 0 < timed.iterations < 10**7
    # The best point so far is at least as good as that of a shorter run.
    assert timed.primal_residual + timed.dual_residual <= short.primal_residual + short.dual_residual


def test_the_best_point_is_kept_when_a_schedule_blows_up():
    family = ls.Quadratic(np.diag([1.0, 2.0]), q=-np.ones(2))
    schedule = ls.Schedule({"step": [0.9] * 5 + [1e3] * 15}, {"step": 1e-3})
    solution = ls.Solver(family, schedule).solve({}, eps_abs=1e-9, eps_rel=0.0, max_iter=20, check_every=1)
    assert solution.status == ls.Status.ITERATION_LIMIT
    assert solution.dual_residual < 1.0


def test_numerical_failure_is_said():
    family = ls.Quadratic(np.diag([1.0, 2.0]), q=-np.ones(2))
    schedule = ls.Schedule({"step": [1e200] * 4}, {"step": 0.5})
    solution = ls.Solver(family, schedule, safeguard=None).solve({})
    assert solution.status == ls.Status.NUMERICAL_FAILURE
    assert np.isfinite(solution.x).all()


def test_exact_steps():
    solver = ls.Solver(quadcopter.family())
    X = quadcopter.sample_many(3, seed=1)
    fixed = solver.solve_batch(X, steps=30, eps_abs=1e-2, eps_rel=1e-2)
    history = solver.run(X, 30)
    assert (fixed.iterations == 30).all()
    np.testing.assert_allclose(fixed.primal_residual, history.primal_max[:, 30], rtol=1e-6, atol=1e-12)
    assert fixed.solved.all()
    assert not solver.solve_batch(X, steps=2).solved.any()
    with pytest.raises(ValueError, match="cannot have a time_limit"):
        solver.solve(X[0], steps=3, time_limit=1.0)


def test_run_records_every_iterate():
    solver = ls.Solver(quadcopter.family(), rho_ineq=1.0)
    X = quadcopter.sample_many(3, seed=2)
    history = solver.run(X, 12)
    assert history.primal.shape == (3, 13)
    for k in (0, 5, 12):
        one = solver.solve_batch(X, steps=k)
        np.testing.assert_allclose(one.objective, history.objective[:, k], atol=1e-9)


def counting_schedule(solver, H=8):
    """A harmful step-varying phase, to see whether it is taken."""
    steady = solver.schedule.steady
    return {k: np.full(H, v * (100.0 if k.startswith("rho") else 1.0)) for k, v in steady.items()}, steady


@pytest.mark.slow
def test_warm_start_begins_in_the_steady_state():
    family = quadcopter.family()
    plain = ls.Solver(family)
    X = quadcopter.sample_many(4, seed=3)
    done = plain.solve_batch(X, **TIGHT)
    again = plain.solve_batch(X, warm_start=done, eps_abs=1e-6, eps_rel=1e-6)
    assert (again.iterations == 0).all()
    varying, steady = counting_schedule(plain)
    near = Point(done.x + 0.5, 0 * done.y)
    expected = plain.solve_batch(X, warm_start=near, steps=4)
    cold_only = ls.Solver(family, ls.Schedule(varying, steady)).solve_batch(X, warm_start=near, steps=4)
    np.testing.assert_allclose(cold_only.x, expected.x, atol=1e-12)
    trained = ls.Solver(family, ls.Schedule(varying, steady, warm=True)).solve_batch(X, warm_start=near, steps=4)
    assert np.max(np.abs(trained.x - expected.x)) > 1e-6
    one = plain.solve(X[0], warm_start=done[0], eps_abs=1e-6, eps_rel=1e-6)
    assert one.iterations == 0
    with pytest.raises(ValueError, match="x of the warm start must have shape"):
        plain.solve(X[0], warm_start=done)


def test_conic_warm_start_from_its_own_solution():
    P, A, b, c = random_conic(2, CONES["mixed"])
    solver = ls.Solver(ls.Conic(P, A, CONES["mixed"], b=b, c=c))
    done = solver.solve({}, **TIGHT)
    again = solver.solve({}, warm_start=done, eps_abs=1e-6, eps_rel=1e-6)
    assert again.iterations == 0
    primal_only = solver.solve({}, warm_start=Point(done.x), eps_abs=1e-6, eps_rel=1e-6)
    assert primal_only.status == ls.Status.SOLVED


def test_no_rows_and_no_quadratic_term():
    no_rows = ls.QP(np.diag([1.0, 2.0]), np.zeros((0, 2)), q=np.array([1.0, -2.0]), l=[], u=[])
    np.testing.assert_allclose(ls.Solver(no_rows).solve({}, **TIGHT).x, [-1.0, 1.0], atol=1e-6)
    no_rows = ls.Conic(np.diag([1.0, 2.0]), np.zeros((0, 2)), ls.Cones(), b=[], c=np.array([1.0, -2.0]))
    np.testing.assert_allclose(ls.Solver(no_rows).solve({}, **TIGHT).x, [-1.0, 1.0], atol=1e-6)
    linear = ls.QP(np.zeros((2, 2)), np.eye(2), q=np.array([1.0, -2.0]), l=np.zeros(2), u=np.ones(2))
    np.testing.assert_allclose(ls.Solver(linear).solve({}, **TIGHT).x, [0.0, 1.0], atol=1e-6)
    linear = ls.Conic(
        np.zeros((2, 2)), np.vstack([np.ones((1, 2)), -np.eye(2)]), ls.Cones(zero=1, nonnegative=2),
        b=np.array([1.0, 0, 0]), c=np.array([1.0, 2.0]),
    )  # fmt: skip
    np.testing.assert_allclose(ls.Solver(linear).solve({}, **TIGHT).x, [1.0, 0.0], atol=1e-6)
    all_free = ls.QP(np.eye(2), np.ones((1, 2)), q=np.ones(2), l=[-np.inf], u=[np.inf])
    solution = ls.Solver(all_free).solve({}, **TIGHT)
    np.testing.assert_allclose(solution.x, -np.ones(2), atol=1e-6)
    np.testing.assert_allclose(solution.s, [-2.0], atol=1e-6)
    np.testing.assert_allclose(solution.y, [0.0])


def test_huge_bounds_are_infinite():
    family = simple()
    solution = ls.Solver(family).solve({"q": [1.0, 1.0], "l": [-1e20, -1e30], "u": [1e21, np.inf]}, **TIGHT)
    np.testing.assert_allclose(solution.x, [-1.0, -1.0], atol=1e-6)


@pytest.mark.parametrize("make", [infeasible_qp, unbounded_qp], ids=["infeasible", "unbounded"])
def test_infeasibility_is_found_from_equal_families_in_float32(make):
    wide = make()
    family = ls.QP(wide.P, wide.A, **wide.host.values, dtype="float32")
    assert ls.Solver(family).solve({}).status == ls.Solver(wide).solve({}).status


def test_float32_solves_and_says_what_it_reaches():
    X = quadcopter.sample_many(20, seed=5)
    wide, narrow = (ls.Solver(quadcopter.family(dtype=d)) for d in ("float64", "float32"))
    a, b = wide.solve_batch(X, eps_abs=1e-3, eps_rel=1e-3), narrow.solve_batch(X, eps_abs=1e-3, eps_rel=1e-3)
    assert b.x.dtype == np.float32
    assert a.solved.all()
    assert b.solved.all()
    np.testing.assert_allclose(a.objective, b.objective, rtol=2e-2, atol=0.1)
    hopeless = narrow.solve_batch(X, eps_abs=1e-12, eps_rel=0.0, max_iter=300)
    assert (hopeless.status == ls.Status.ITERATION_LIMIT).all()
    assert np.isfinite(hopeless.x).all()
    P, A, b_, c = random_conic(2, CONES["mixed"])
    conic = ls.Conic(P, A, CONES["mixed"], b=b_, c=c, dtype="float32")
    assert ls.Solver(conic).solve({}, eps_abs=1e-3, eps_rel=1e-3).status == ls.Status.SOLVED


def test_batches_of_any_size():
    solver = ls.Solver(quadcopter.family())
    X = quadcopter.sample_many(333, seed=6)
    whole = solver.solve_batch(X)
    assert len(whole) == 333
    pieces = solver.solve_batch(X, chunk=50)
    np.testing.assert_allclose(pieces.x, whole.x, atol=1e-9)
    np.testing.assert_array_equal(pieces.iterations, whole.iterations)
    assert whole[5].status == ls.Status.SOLVED
    assert "solved after" in repr(whole[5])
    with pytest.raises(IndexError):
        whole[333]
    with pytest.raises(ValueError, match="empty"):
        solver.solve_batch(X[:0])


def test_shared_factors_are_made_once():
    P, q, A, l, u = random_qp(0)
    family, n = ls.QP(P, A, q=q, l=l, u=u), len(q)
    default = ls.Solver(family).schedule.steady
    same = {name: [value] * 6 for name, value in default.items()}
    alphas = ls.Schedule(same | {"alpha": np.linspace(1, 1.9, 6)}, default)
    assert ls.Solver(family, alphas).plan.factors.inverse.shape == (1, n, n)
    rhos = ls.Schedule(same | {"rho_ineq": [1, 2, 3, 1, 2, 0.1]}, default)
    assert ls.Solver(family, rhos).plan.factors.inverse.shape == (4, n, n)


@pytest.mark.parametrize("make", ["qp", "conic", "quadratic"])
def test_equal_families_share_compiled_programs(make):
    """What is made again of the same numbers compiles nothing; of others it has its own optimum."""

    def draw(seed):
        rng = np.random.default_rng(seed)
        P, A, move = np.diag(1 + rng.random(3)), rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
        if make == "qp":
            return ls.QP(P, A, q=np.ones(3), l=-np.ones(2), u=np.ones(2), parameter=ls.Affine(q=move))
        if make == "conic":
            cones = ls.Cones(nonnegative=2)
            return ls.Conic(P, A, cones, b=np.ones(2), c=np.ones(3), parameter=ls.Affine(c=move))
        return ls.Quadratic(P, q=np.ones(3), parameter=ls.Affine(q=move))

    def solve(family):
        return ls.Solver(family).solve_batch(np.eye(2), eps_abs=1e-9, eps_rel=1e-9)

    def count():
        return sum(f._cache_size() for f in (jitted.solve_until, jitted.begin_solve, jitted.advance))

    none = count()
    first = solve(draw(0))
    before = count()
    assert before > none
    np.testing.assert_array_equal(solve(draw(0)).x, first.x)
    assert count() == before
    other = draw(1)
    assert other.content_hash() != draw(0).content_hash()
    found = solve(other)
    assert np.abs(found.x - first.x).max() > 1e-3
    optima = solve_references(other, np.eye(2), cache=False, progress=False)
    np.testing.assert_allclose(found.x, optima.x, atol=1e-6)


def test_equilibration_changes_the_way_and_not_the_answer():
    X = quadcopter.sample_many(5, seed=7)
    a = ls.Solver(quadcopter.family(equilibrate=True)).solve_batch(X, **TIGHT)
    b = ls.Solver(quadcopter.family(equilibrate=False)).solve_batch(X, **TIGHT)
    assert a.solved.all()
    assert b.solved.all()
    np.testing.assert_allclose(a.x, b.x, atol=1e-4)
    assert a.iterations.mean() < b.iterations.mean()


def test_a_diagonal_family_needs_no_matrix():
    family = ls.QP(
        sp.diags_array(np.arange(1.0, 5001.0)),
        sp.eye_array(5000),
        q=-np.ones(5000),
        l=np.zeros(5000),
        u=np.ones(5000),
    )
    solver = ls.Solver(family, ladder=False)
    assert solver.plan.factors.inverse.shape == (1, 5000)
    np.testing.assert_allclose(solver.solve({}, **TIGHT).x, 1 / np.arange(1.0, 5001.0), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("equilibrate", [True, False])
def test_feasible_problems_are_never_called_infeasible(equilibrate):
    """Whatever the units: P, A and the data scaled by 1e-8 to 1e8."""
    rng = np.random.default_rng(0)
    wrong = (ls.Status.PRIMAL_INFEASIBLE, ls.Status.DUAL_INFEASIBLE)
    P, q, A, l, u = random_qp(0, n=5, equalities=1, inequalities=5)
    cones = ls.Cones(nonnegative=3, second_order=(3,))
    P2, A2, b, c = random_conic(0, cones, n=4)
    for _ in range(5):
        s, t, r = 10.0 ** rng.uniform(-8, 8, 3)
        family = ls.QP(s * P, t * A, q=r * q, l=r * l, u=r * u, equilibrate=equilibrate)
        assert ls.Solver(family).solve({}, max_iter=500).status not in wrong, (s, t, r)
        conic = ls.Conic(s * P2, A2, cones, b=r * b, c=t * c, equilibrate=equilibrate)
        assert ls.Solver(conic).solve({}, max_iter=500).status not in wrong, (s, t, r)


@pytest.mark.parametrize(
    ("P", "A", "data"),
    [
        (1.0, 1e-5, {"q": [0.0], "l": [1.0], "u": [np.inf]}),
        (1e-5, 1.0, {"q": [-1.0], "l": [-np.inf], "u": [np.inf]}),
        (1e-6, 1.0, {"q": [-1.0], "l": [0.0], "u": [np.inf]}),
    ],
)
def test_far_optima_are_not_infeasible(P, A, data):
    family = ls.QP([[P]], [[A]], **data)
    assert ls.Solver(family).solve({}).status in (ls.Status.SOLVED, ls.Status.ITERATION_LIMIT)


@pytest.mark.parametrize("size", [1e6, 1e8])
def test_large_cone_data_are_not_infeasible(size):
    family = ls.Conic([[1.0]], [[-1.0]], ls.Cones(nonnegative=1))
    unbounded_looking = ls.Solver(family).solve({"b": [0.0], "c": [-size]}, max_iter=50_000)
    infeasible_looking = ls.Solver(family).solve({"b": [-size], "c": [0.0]}, max_iter=50_000)
    for solution in (unbounded_looking, infeasible_looking):
        assert solution.status == ls.Status.SOLVED
        np.testing.assert_allclose(solution.x, size, rtol=1e-3)
