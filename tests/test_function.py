"""A solver as a pure function: what `solve` returns, and derivatives against differences of solutions."""

import functools

import cvxpy as cp
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.linalg.least_norm import solve_least_norm

from .engine.test_finish import clarabel_optimum
from .helpers import case_of, random_conic, random_qp

TIGHT = {"eps_abs": 1e-11, "eps_rel": 1e-11, "max_iter": 50_000}


def assert_close(found, expected, tolerance=1e-6):
    """Within the tolerance, relative to the largest entry."""
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def moved(data, direction, step):
    return {name: value + step * direction[name] for name, value in data.items()}


@functools.cache
def example_qp():
    P, q, A, l, u = random_qp(0, equalities=3, free=1)
    return ls.QP(P, A, q=q, l=l, u=u), {"q": q, "l": l, "u": u}


@functools.cache
def qp_function():
    return ls.Solver(example_qp()[0], ladder=False).function(**TIGHT)


def test_derivatives_of_a_qp_are_differences_of_clarabel():
    family, data = example_qp()
    function = qp_function()
    rng = np.random.default_rng(1)
    direction = {name: rng.normal(size=value.size) for name, value in data.items()}
    direction["l"][:3] = direction["u"][:3]
    found, tangent = jax.jvp(function, (data,), (direction,))
    assert found.solved
    assert np.count_nonzero(found.y[3:]) >= 3
    # The solution is linear in the data, up to where the active set changes.
    ends = [clarabel_optimum(family, **moved(data, direction, step))[0] for step in (1e-3, -1e-3)]
    assert_close(tangent.x, (ends[0] - ends[1]) / 2e-3)
    assert_close(tangent.s, family.A @ np.asarray(tangent.x), 1e-12)
    # Stationarity holds along the way too, so these are the multipliers'.
    assert_close(family.P @ tangent.x + family.A.T @ np.asarray(tangent.y), -direction["q"], 1e-9)
    values = [clarabel_optimum(family, **moved(data, direction, step))[1] for step in (1e-4, -1e-4)]
    assert_close(tangent.objective, (values[0] - values[1]) / 2e-4)


def test_a_finish_is_tried_as_in_solve():
    family, data = example_qp()
    solver = ls.Solver(family, ladder=False, finish=5)
    found, pull = jax.vjp(solver.function(eps_abs=1e-9, eps_rel=1e-9), data)
    expected = solver.solve(data, eps_abs=1e-9, eps_rel=1e-9)
    assert expected.exact
    assert int(found.iterations) == expected.iterations == 5
    np.testing.assert_allclose(found.x, expected.x, atol=1e-12)
    np.testing.assert_allclose(found.y, expected.y, atol=1e-11)
    assert max(found.primal_residual, found.dual_residual) < 1e-9
    weights = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0 if a.dtype == np.int32 else a.dtype), found)
    weights = eqx.tree_at(lambda w: w.x, weights, np.ones(12))
    (plain,) = jax.vjp(qp_function(), data)[1](weights)
    for name, slope in pull(weights)[0].items():
        np.testing.assert_allclose(slope, plain[name], atol=1e-9)


def assert_forward_is_reverse(function, parameter, solution):
    """⟨w, J d⟩ = ⟨J'w, d⟩, by the two modes, for random w and d."""
    rng = np.random.default_rng(3)

    def draw(tree):
        return jax.tree.map(lambda a: rng.normal(size=np.shape(a)), tree)

    def pick(parameter):
        found = function.attach(parameter, solution)
        return found.x, found.y, found.s, found.objective

    direction = draw(parameter)
    out, tangent = jax.jvp(pick, (parameter,), (direction,))
    weights = draw(out)
    (pulled,) = jax.vjp(pick, parameter)[1](weights)
    total = lambda a, b: sum(map(np.vdot, jax.tree.leaves(a), jax.tree.leaves(b)))  # noqa: E731
    assert abs(total(weights, tangent)) > 1e-3
    np.testing.assert_allclose(total(weights, tangent), total(pulled, direction), rtol=1e-8)


KINDS = {
    "qp": case_of(ls.OSQP),
    "conic": case_of(ls.SCS),
    "composite": case_of(ls.ProximalGradient),
    "quadratic": case_of(ls.GradientDescent, ls.Quadratic),
    "smooth": case_of(ls.GradientDescent, ls.Smooth),
}


@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_every_kind_of_family(kind):
    """It is `solve`; vmap is a loop and `solve_batch`; forward mode is reverse mode."""
    case = KINDS[kind]
    solver = ls.Solver(case.family, algorithm=case.algorithm, ladder=False)
    limits = {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iter": 3000}
    function = solver.function(**limits)
    parameters = jax.tree.map(lambda a: np.asarray(a)[:3], case.parameters)
    one = jax.tree.map(lambda a: a[1], parameters)
    found = function(one)
    expected = solver.solve(one, **limits)
    assert int(found.iterations) == expected.iterations
    assert int(found.status) == expected.status
    for name in ("x", "y", "s", "objective", "primal_residual", "dual_residual"):
        if getattr(expected, name) is not None:
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10)
    mapped = jax.jit(jax.vmap(function))(parameters)
    batch = solver.solve_batch(parameters, **limits)
    np.testing.assert_array_equal(mapped.iterations, batch.iterations)
    np.testing.assert_allclose(mapped.x, batch.x, atol=1e-10)
    np.testing.assert_allclose(mapped.x[1], found.x, atol=1e-10)
    assert_forward_is_reverse(function, one, found)


def test_schedules_and_their_safeguard_are_those_of_a_batch():
    """Instances that the safeguard takes over, and others, under one vmap."""
    P = np.diag([1.0, 0.1, 0.02])
    schedule = ls.Schedule({"step": [0.9, 9.0, 40.0, 0.9, 30.0, 0.9]}, {"step": 1.0})
    solver = ls.Solver(ls.Quadratic(P), schedule)
    Q = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1e-3, 1.0]])
    batch = solver.solve_batch({"q": Q}, eps_abs=1e-9, eps_rel=0.0)
    assert 0 < batch.safeguarded.sum() < 4
    function = solver.function(eps_abs=1e-9, eps_rel=0.0)
    found, tangent = jax.jvp(jax.vmap(lambda q: function(q=q)), (Q,), (np.ones((4, 3)),))
    np.testing.assert_array_equal(found.iterations, batch.iterations)
    np.testing.assert_allclose(found.x, batch.x, atol=1e-12)
    np.testing.assert_allclose(tangent.x, -np.ones((4, 3)) @ np.linalg.inv(P), rtol=1e-12)


def test_vmap_and_grad_in_any_order():
    function = qp_function()
    Q = np.random.default_rng(2).normal(size=(2, 2, 12))

    def loss(q):
        return jnp.sum(jnp.sin(function(q=q).x))

    slope = jax.grad(loss)
    compiled = jax.jit(slope)
    np.testing.assert_allclose(compiled(Q[0, 0]), slope(Q[0, 0]), atol=1e-12)
    single = np.array([[compiled(q) for q in row] for row in Q])
    inside = jax.vmap(jax.vmap(slope))(Q)
    outside = jax.grad(lambda Q: jnp.sum(jax.vmap(jax.vmap(loss))(Q)))(Q)
    np.testing.assert_allclose(inside, single, atol=1e-10)
    np.testing.assert_allclose(outside, single, atol=1e-10)


def test_jacobians_and_second_derivatives():
    function = qp_function()
    q = example_qp()[1]["q"]
    found = function(q=q)
    jacobians = [by(lambda q: function.attach({"q": q}, found).x)(q) for by in (jax.jacfwd, jax.jacrev)]
    np.testing.assert_allclose(*jacobians, atol=1e-12)
    # The value's gradient by q is x: its Hessian is the Jacobian of the solution.
    curvature = jax.hessian(lambda q: function.attach({"q": q}, found).objective)(q)
    np.testing.assert_allclose(curvature, jacobians[0], atol=1e-10)


@pytest.mark.parametrize("cones", [ls.Cones(nonnegative=2, second_order=(4,)), ls.Cones(semidefinite=(3,))], ids=repr)
def test_derivatives_of_cone_programs_are_differences(cones):
    """Of points that Newton's method made exact on the host."""
    P, A, b, c = random_conic(11, cones, n=5)
    family = ls.Conic(P, A, cones, b=b, c=c)
    function = ls.Solver(family, ladder=False).function(**TIGHT)
    data = {"b": b, "c": c}
    rng = np.random.default_rng(1)
    direction = {name: rng.normal(size=value.size) for name, value in data.items()}
    found, tangent = jax.jvp(function, (data,), (direction,))
    assert found.solved
    exact = ls.Solver(family, ladder=False, finish=50)
    ends = [exact.solve(moved(data, direction, step), eps_abs=1e-12, eps_rel=1e-12) for step in (1e-4, -1e-4)]
    assert all(end.exact for end in ends)
    for name in ("x", "y", "s", "objective"):
        difference = (getattr(ends[0], name) - getattr(ends[1], name)) / 2e-4
        assert_close(getattr(tangent, name), difference)
    assert_forward_is_reverse(function, data, found)


def test_cone_programs_are_finished_as_in_solve():
    cones = ls.Cones(nonnegative=2, second_order=(4,))
    P, A, b, c = random_conic(11, cones, n=5)
    solver = ls.Solver(ls.Conic(P, A, cones, b=b, c=c), ladder=False, finish=30)
    costs = np.stack([c, 0.5 * c, 1.1 * c])
    limits = {"eps_abs": 1e-9, "eps_rel": 1e-9}
    found = jax.vmap(lambda c: solver.function(**limits)(c=c))(costs)
    expected = solver.solve_batch({"c": costs}, **limits)
    assert expected.exact.all()
    np.testing.assert_array_equal(found.iterations, expected.iterations)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-10)
    np.testing.assert_allclose(found.y, expected.y, atol=1e-10)
    assert found.solved.all()


def test_derivatives_of_cone_programs_are_diffcp_s():
    diffcp = pytest.importorskip("diffcp", reason="diffcp is not installed: pip install diffcp")
    cones = ls.Cones(zero=2, nonnegative=3, second_order=(4, 3))
    _, A, b, c = random_conic(4, cones, n=6)
    c = -A.T @ np.asarray(cones.project_dual(jnp.asarray(np.random.default_rng(0).normal(size=cones.size))))
    function = ls.Solver(ls.Conic(None, A, cones, b=b, c=c), ladder=False).function(**TIGHT)
    names = {"z": 2, "l": 3, "q": [4, 3]}
    options = {"solve_method": "SCS", "eps_abs": 1e-12, "eps_rel": 1e-12, "max_iters": 100_000}
    x, _, _, _, pull = diffcp.solve_and_derivative(sp.csc_matrix(A), b, c, names, **options)
    weights = np.random.default_rng(1).normal(size=6)
    found, pulled = jax.value_and_grad(lambda data: weights @ function(data).x)({"b": b, "c": c})
    np.testing.assert_allclose(found, weights @ x, rtol=1e-7)
    _, db, dc = pull(weights, np.zeros(cones.size), np.zeros(cones.size))
    assert_close(pulled["b"], db, 1e-5)
    assert_close(pulled["c"], dc, 1e-5)


def references(family, parameters):
    return ls.solve_references(family, parameters, cache=False, jobs=1, progress=False).x


def test_derivatives_of_a_lasso_are_differences():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(15, 10))
    family = ls.Composite(ls.Quadratic(F.T @ F, parameter=ls.Affine(q=-F.T)), ls.L1(3.0))
    function = ls.Solver(family).function(**TIGHT)
    b, direction = 3 * rng.normal(size=(2, 15))
    found, tangent = jax.jvp(function, (b,), (direction,))
    assert 2 <= np.count_nonzero(found.x) <= 8
    assert (tangent.x[found.x == 0] == 0).all()
    ends = references(family, np.stack([b + 1e-3 * direction, b - 1e-3 * direction]))
    assert_close(tangent.x, (ends[0] - ends[1]) / 2e-3)
    assert_forward_is_reverse(function, b, found)


def test_derivatives_of_a_smooth_family_are_differences():
    family = ls.Smooth(
        lambda z, p: jnp.sum(jnp.logaddexp(0.0, -p["A"] @ z)) + 0.5 * z @ z + p["b"] @ z, lipschitz=20.0, n=4
    )
    rng = np.random.default_rng(0)
    parameter, direction = ({"A": rng.normal(size=(8, 4)), "b": rng.normal(size=4)} for _ in range(2))
    function = ls.Solver(family).function(**TIGHT)
    found, tangent = jax.jvp(function, (parameter,), (direction,))
    pair = [moved(parameter, direction, step) for step in (1e-4, -1e-4)]
    ends = references(family, jax.tree.map(lambda *parts: np.stack(parts), *pair))
    assert_close(tangent.x, (ends[0] - ends[1]) / 2e-4)
    assert_forward_is_reverse(function, parameter, found)


def example_control():
    """A double integrator that is to be brought to rest with bounded forces, four steps ahead."""
    dynamics, force, ahead = np.array([[1.0, 0.2], [0.0, 1.0]]), np.array([0.02, 0.2]), 4
    free = np.vstack([np.linalg.matrix_power(dynamics, k + 1) for k in range(ahead)])
    forced = np.zeros((2 * ahead, ahead))
    for k in range(ahead):
        for j in range(k + 1):
            forced[2 * k : 2 * k + 2, j] = np.linalg.matrix_power(dynamics, k - j) @ force
    P = forced.T @ forced + 0.1 * np.eye(ahead)
    q = ls.Affine(q=forced.T @ free)
    family = ls.QP(P, np.eye(ahead), q=np.zeros(ahead), l=-np.ones(ahead), u=np.ones(ahead), parameter=q)
    return family, dynamics, force


def test_a_closed_loop_in_scan_is_differentiated():
    family, dynamics, force = example_control()
    solver = ls.Solver(family, ladder=False)
    function = solver.function(**TIGHT)

    @jax.jit
    def cost(start):
        def step(state, _):
            u = function(state).x[0]
            return dynamics @ state + force * u, jnp.sum(state**2) + 0.1 * u**2

        end, costs = jax.lax.scan(step, start, None, length=8)
        return jnp.sum(costs) + jnp.sum(end**2)

    def simulated(state):
        total = 0.0
        for _ in range(8):
            u = solver.solve(state, **TIGHT).x[0]
            total += np.sum(state**2) + 0.1 * u**2
            state = dynamics @ state + force * u
        return total + np.sum(state**2)

    # The first force is at its bound, later ones are not.
    start = np.array([3.0, 1.0])
    assert abs(function(start).x[0]) == pytest.approx(1.0)
    np.testing.assert_allclose(cost(start), simulated(start), rtol=1e-9)
    differences = [(simulated(start + step) - simulated(start - step)) / 2e-5 for step in 1e-5 * np.eye(2)]
    assert_close(jax.grad(cost)(start), differences)
    starts = start + np.array([[0.0, 0.0], [-4.0, 1.0]])
    np.testing.assert_allclose(jax.vmap(cost)(starts), [cost(each) for each in starts], rtol=1e-9)


def test_names_signs_and_shapes_are_those_of_the_problem():
    w, V = cp.Variable(3, name="w", nonneg=True), cp.Variable((2, 2), name="V")
    mean, C = cp.Parameter(3, name="mean"), cp.Parameter((2, 2), name="C", symmetric=True)
    cost = cp.sum_squares(w) / 2 + cp.sum_squares(V - C) / 2
    problem = cp.Problem(cp.Maximize(mean @ w - cost + 7 + cp.sum(mean)), [cp.sum(w) == 1, V <= 1])
    solver = ls.Solver(ls.from_cvxpy(problem).family, ladder=False)
    function = solver.function(**TIGHT)
    values = {"mean": np.array([1.0, 0.5, -3.0]), "C": np.array([[0.5, 0.2], [0.2, 3.0]])}
    found, expected = function(**values), solver.solve(values, **TIGHT)
    for name in ("w", "V"):
        np.testing.assert_allclose(found.variables[name], expected.variables[name], atol=1e-12)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-12)
    # d value/d mean = w + 1, d value/dC = V − C: and symmetric.
    slopes = jax.grad(lambda p: function.attach(p, found).objective)(values)
    np.testing.assert_allclose(slopes["mean"], expected.variables["w"] + 1, atol=1e-8)
    np.testing.assert_allclose(slopes["C"], expected.variables["V"] - values["C"], atol=1e-8)
    corner = jax.grad(lambda p: function.attach(p, found).variables["V"][0, 1])(values)["C"]
    np.testing.assert_allclose(corner, [[0.0, 0.5], [0.5, 0.0]], atol=1e-8)
    mapped = jax.vmap(lambda mean: function(mean=mean, C=values["C"]))(np.stack([values["mean"], np.zeros(3)]))
    assert mapped.variables["V"].shape == (2, 2, 2)
    np.testing.assert_allclose(mapped.variables["w"][0], found.variables["w"], atol=1e-9)


def test_a_bound_that_is_met_without_a_multiplier_counts_as_left():
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.full(2, np.inf))
    function = ls.Solver(family, ladder=False).function(**TIGHT)
    # x = max(−q, 0): at −q = (0, −1) the first bound is met and no multiplier holds it.
    jacobian = jax.jacfwd(lambda q: function(q=q).x)(np.array([0.0, 1.0]))
    np.testing.assert_allclose(jacobian, [[-1.0, 0.0], [0.0, 0.0]], atol=1e-9)


def test_rows_that_repeat_each_other_share_what_moves_them():
    # min ½‖x‖² − 2x₁ with x₁ ≤ u₁, x₁ ≤ u₂, both at 1: multipliers are not unique.
    A = np.array([[1.0, 0.0], [1.0, 0.0]])
    family = ls.QP(np.eye(2), A, q=[-2.0, 0.0], l=np.full(2, -np.inf), u=np.ones(2))
    function = ls.Solver(family, ladder=False).function(**TIGHT)
    assert (function(u=np.ones(2)).y > 0.1).all()
    by_u = jax.jacrev(lambda u: function(u=u).x)(np.ones(2))
    np.testing.assert_allclose(by_u, [[0.5, 0.5], [0.0, 0.0]], atol=1e-9)
    by_q = jax.jacrev(lambda q: function(q=q).y)(np.array([-2.0, 0.0]))
    np.testing.assert_allclose(by_q, [[-0.5, 0.0], [-0.5, 0.0]], atol=1e-9)


def test_a_vertex_of_a_linear_program_moves_with_its_bounds():
    A = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    family = ls.QP(None, A, q=[1.0, 2.0], l=np.array([1.0, 0.0, 0.0]), u=np.full(3, np.inf))
    function = ls.Solver(family, ladder=False).function(**TIGHT)
    # x = (l₁ − l₃, l₃).
    jacobian = jax.jacrev(lambda l: function(l=l).x)(np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(jacobian, [[1.0, 0.0, -1.0], [0.0, 0.0, 1.0]], atol=1e-9)


def test_single_precision():
    family, data = example_qp()
    function = ls.Solver(family.astype("float32"), ladder=False).function(eps_abs=1e-5, eps_rel=1e-5)
    value, slope = jax.value_and_grad(lambda q: jnp.sum(function(q=q).x))(data["q"].astype(np.float32))
    assert value.dtype == slope.dtype == np.float32
    assert_close(slope, jax.grad(lambda q: jnp.sum(qp_function()(q=q).x))(data["q"]), 1e-3)


def test_limits_and_statuses_are_told():
    A = np.array([[1.0, 1.0], [1.0, 1.0]])
    family = ls.QP(np.eye(2), A, q=np.ones(2), l=np.array([1.0, -np.inf]), u=np.array([np.inf, 0.0]), equalities=[])
    solver = ls.Solver(family, ladder=False)
    infeasible = solver.function()({})
    assert ls.Status(int(infeasible.status)) == ls.Status.PRIMAL_INFEASIBLE
    assert not infeasible.solved
    solver = ls.Solver(example_qp()[0], ladder=False)
    short = solver.function(eps_abs=1e-12, eps_rel=0.0, max_iter=7)({})
    assert (int(short.status), int(short.iterations)) == (ls.Status.ITERATION_LIMIT, 7)
    exact = solver.function(steps=4)({})
    assert int(exact.iterations) == 4
    with pytest.raises(AttributeError, match="the variables of this family have no names"):
        _ = exact.variables


def test_a_singular_matrix_is_solved_by_the_shortest_vector():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 5, 4))
    J = np.einsum("nik,njk->nij", root, rng.normal(size=(3, 5, 4)))
    J[1] = rng.normal(size=(5, 5))
    right = rng.normal(size=(3, 5))
    expected = np.einsum("nij,nj->ni", np.linalg.pinv(J, rcond=1e-12), right)
    np.testing.assert_allclose(jax.vmap(solve_least_norm)(J, right), expected, rtol=1e-8)
    transposed = jax.vmap(lambda J, r: jax.linear_transpose(lambda r: solve_least_norm(J, r), r)(r)[0])(J, right)
    expected = np.einsum("nij,ni->nj", np.linalg.pinv(J, rcond=1e-12), right)
    np.testing.assert_allclose(transposed, expected, rtol=1e-8)
    columns = jax.vmap(lambda r: solve_least_norm(J[0], r))(right)
    np.testing.assert_allclose(columns, right @ np.linalg.pinv(J[0], rcond=1e-12).T, rtol=1e-8)


def control():
    return ls.Solver(example_control()[0]).function()


def named():
    p = cp.Parameter(3, name="p")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(3, name="x") - p)))
    return ls.Solver(ls.from_cvxpy(problem).family).function()


def bare():
    return ls.Solver(ls.QP(np.eye(2), np.eye(2), l=np.zeros(2), u=np.ones(2))).function()


@pytest.mark.parametrize(
    ("make", "arguments", "keywords", "message"),
    [
        (control, [np.ones(3)], {}, r"the parameter must have shape \(2,\), got \(3,\)"),
        (control, [np.ones((5, 2))], {}, "for several, apply jax.vmap"),
        (control, [np.ones(2) * 1j], {}, "must be real numbers, got complex"),
        (control, [jnp.ones(2) * 1j], {}, "must be real numbers, got complex"),
        (named, [], {"r": np.ones(3)}, "'r' is no parameter of this problem; the problem's parameters are p"),
        (named, [{}], {}, "'p' has no value"),
        (named, [{"p": np.ones(4)}], {}, r"the value of 'p' must have shape \(3,\)"),
        (bare, [], {"q": np.ones(2), "b": np.ones(2)}, "unknown instance data b; this family has q, l, u"),
        (bare, [], {}, "an instance needs q: put it in the instance"),
        (bare, [np.ones(2)], {}, "this family has no parameter map"),
    ],
)
def test_what_does_not_fit_is_refused(make, arguments, keywords, message):
    with pytest.raises(ValueError, match=message):
        make()(*arguments, **keywords)


def test_the_parameter_is_given_once():
    with pytest.raises(TypeError, match="not both"):
        control()(np.ones(2), q=np.ones(2))
