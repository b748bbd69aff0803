"""Laws that hold for every algorithm on every family of the registry."""

import functools

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import longstep as ls
from longstep.engine import jitted
from longstep.engine.factorization import factorize_theta
from longstep.engine.loop import run_steps
from longstep.engine.plan import Plan
from longstep.engine.problem import Problem
from longstep.families.point import Point
from longstep.schedules.domain import Fixed, Interval
from longstep.solver import Solver

from ..helpers import CASES


# Unscaled families differ from the others in their data alone: their laws are for `make test-slow`.
def marks_of(case):
    return [pytest.mark.slow] if case.family.m and not case.family.equilibrated else []


cases = pytest.mark.parametrize("case", [pytest.param(c, marks=marks_of(c), id=c.name) for c in CASES])


@functools.cache
def optima(case):
    return ls.solve_references(case.family, case.parameters, cache=False, jobs=1, progress=False)


def columns(case):
    """The optima as a warm start for stacked instances."""
    o = optima(case)
    return Point(*(None if a is None else jnp.asarray(a.T, case.family.dtype) for a in (o.x, o.y, o.s)))


def draw_theta(data, case, steady=False):
    """An admissible θ, two decades around the default."""
    theta = {}
    for h in case.hyperparameters:
        domain = h.steady if steady else h.varying
        if isinstance(domain, Interval):
            low, high = domain.ends
            theta[h.name] = low + (high - low) * data.draw(st.floats(0.02, 0.98), label=h.name)
        elif isinstance(domain, Fixed):
            theta[h.name] = domain.value
        elif h.role == "momentum":
            theta[h.name] = data.draw(st.floats(-0.5, 0.95), label=h.name)
        else:
            theta[h.name] = h.default * 10 ** data.draw(st.floats(-2, 2), label=h.name)
    return {name: jnp.asarray(value) for name, value in theta.items()}


@eqx.filter_jit
def one_step(algorithm, family, instance, theta, state):
    factors = factorize_theta(algorithm, family, theta)
    extra = algorithm.prepare_instance(family, instance, theta, factors)
    return algorithm.step(family, instance, theta, factors, extra, state)


@cases
@given(data=st.data())
def test_optimum_is_a_fixed_point_for_every_theta(case, data):
    theta = draw_theta(data, case)
    state = case.algorithm.init(case.family, case.instances, columns(case))
    before = case.algorithm.extract(case.family, case.instances, state)
    for _ in range(2):
        state = one_step(case.algorithm, case.family, case.instances, theta, state)
    after = case.algorithm.extract(case.family, case.instances, state)
    # Clarabel's cone optima are good to about 1e-9, and a step moves a point by its residual times the penalties.
    tolerance = 1e-5 if isinstance(case.family, ls.Conic) else 1e-9
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, float(jnp.max(jnp.abs(a)))))


@cases
@given(data=st.data())
@settings(max_examples=3)
def test_steady_state_converges_from_random_starts(case, data):
    theta = draw_theta(data, case, steady=True)
    # At the far ends of a domain convergence is sure but slow: come closer to the default, for the sake of time.
    for h in case.hyperparameters:
        theta[h.name] = h.default * (theta[h.name] / h.default) ** 0.25 if h.default else theta[h.name]
    solver = Solver(case.family, ls.Schedule({}, {k: float(v) for k, v in theta.items()}), algorithm=case.algorithm)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    m, N = case.family.m, len(case.parameters)
    draws = [rng.normal(size=(N, rows)) if rows else None for rows in (case.family.n, m, m)]
    result = solver.solve_batch(
        case.parameters, warm_start=Point(*draws), eps_abs=1e-6, eps_rel=0.0, max_iter=20_000, check_every=20
    )
    assert result.solved.all(), result
    reference = optima(case).value
    np.testing.assert_allclose(result.objective, reference, atol=1e-3 * max(1.0, np.max(np.abs(reference))))


@cases
def test_jit_equals_eager(case):
    solver = Solver(case.family, algorithm=case.algorithm)
    instances = case.instances
    problem = Problem(case.algorithm, case.family, solver.plan, instances)
    state = case.algorithm.init(case.family, instances, None)
    stepped = case.algorithm.init(case.family, instances, None)
    with jax.disable_jit():
        for k in range(3):
            state = problem.stepper(min(k, solver.plan.H))(state)
    stepped, _, _ = eqx.filter_jit(run_steps)(problem, stepped, 3, 0, lambda s: ())
    # Another order of rounding, as large as the accuracy to which each step is solved.
    own = case.algorithm.solve_tolerance(2.2e-16) if isinstance(case.family, ls.Conic) else 0.0
    tolerance = 10 * max(1e-12, own)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(stepped), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@cases
def test_batch_equals_loop(case):
    solver = Solver(case.family, algorithm=case.algorithm)
    options = {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 5000}
    batch = solver.solve_batch(case.parameters, **options)
    for k, parameter in enumerate(case.parameters):
        one = solver.solve(parameter, **options)
        assert one.status == batch.status[k]
        assert one.iterations == batch.iterations[k]
        np.testing.assert_allclose(one.x, batch.x[k], atol=1e-9)
        np.testing.assert_allclose(one.objective, batch[k].objective, atol=1e-9)


def schedule_arrays(case, H):
    """Admissible step-varying values near the defaults, as arrays of H + 1 entries."""
    rng = np.random.default_rng(0)
    out = {}
    for h in case.hyperparameters:
        values = h.default * np.exp(0.3 * rng.normal(size=H + 1))
        values = 0.3 * rng.random(H + 1) if h.role == "momentum" else values
        out[h.name] = np.clip(values, 0.1, 1.9) if h.role == "relaxation" else values
    return {name: jnp.asarray(v) for name, v in out.items()}


@cases
def test_gradient_equals_finite_difference(case):
    """d/dθ of a loss after five steps, with factors made without gradient."""
    H, instances = 5, case.instances

    @jax.jit
    def loss(theta):
        each = [{n: v[k] for n, v in theta.items()} for k in range(H + 1)]
        factors = [factorize_theta(case.algorithm, case.family, t) for t in each]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *factors) if factors[0] is not None else None
        problem = Problem(case.algorithm, case.family, Plan(theta, stacked, jnp.arange(H + 1), H), instances)
        state = case.algorithm.init(case.family, instances, None)
        state, _, _ = run_steps(problem, state, H, 0, lambda s: ())
        point = case.algorithm.extract(case.family, instances, state)
        return sum(jnp.sum((leaf - 0.1) ** 2) for leaf in jax.tree.leaves(point))

    theta = schedule_arrays(case, H)
    gradient = jax.jit(jax.grad(loss))(theta)
    for name, values in theta.items():
        for k in (0, 2, 4):
            size = 1e-4 * max(1e-3, abs(float(values[k])))
            move = jnp.zeros_like(values).at[k].set(size)
            slope = float(loss({**theta, name: values + move}) - loss({**theta, name: values - move})) / (2 * size)
            scale = float(loss(theta)) / max(abs(float(values[k])), 1e-3)
            assert abs(float(gradient[name][k]) - slope) <= 1e-4 * abs(slope) + 1e-7 * scale, (name, k)


@cases
def test_gradient_is_a_solve_not_a_factorization(case):
    """The derivative's program factors no more often than the function's own."""
    theta = {h.name: jnp.asarray([h.default]) for h in case.hyperparameters}
    instances = case.instances

    def loss(theta):
        factors = factorize_theta(case.algorithm, case.family, {name: values[0] for name, values in theta.items()})
        stacked = jax.tree.map(lambda a: a[None], factors)
        problem = Problem(case.algorithm, case.family, Plan(theta, stacked, jnp.zeros(1, int), 0), instances)
        state, _, _ = run_steps(problem, case.algorithm.init(case.family, instances, None), 2, 0, lambda s: ())
        return jnp.sum(case.algorithm.extract(case.family, instances, state).x)

    def count(function):
        text = str(jax.make_jaxpr(function)(theta))
        return text.count("cholesky"), text.count("triangular_solve[")

    forward = count(loss)
    assert count(jax.grad(loss)) == forward
    assert all(n > 0 for n in forward) == (case.algorithm.pattern(case.family) is not None)


@cases
def test_compilations_are_bounded(case):
    """New data, tolerances, limits and schedules of one length reuse the compiled program."""
    solver = Solver(case.family, algorithm=case.algorithm, ladder=False)
    default = solver.schedule.steady

    def size():
        return sum(
            f._cache_size() for f in (jitted.solve_until, jitted.begin_solve, jitted.advance, jitted.extract_best)
        )

    solver.solve_batch(case.parameters)
    solver.solve(case.parameters[0])
    solver.solve(case.parameters[0], time_limit=10.0, eps_abs=0.0, eps_rel=0.0, max_iter=0)
    before = size()
    solver.solve(case.parameters[0], time_limit=10.0, eps_abs=0.0, eps_rel=0.0, max_iter=100)
    for k in range(3):
        solver.solve_batch(case.parameters * (1 + 0.01 * k), eps_abs=10.0**-k, max_iter=10 + k)
        solver.solve(case.parameters[0] * (1 + 0.01 * k), eps_rel=10.0**-k)
    other = default | {h.name: 0.9 * h.default for h in case.hyperparameters if h.role in ("step", "relaxation")}
    assert other != default
    Solver(case.family, ls.Schedule({}, other), algorithm=case.algorithm).solve(case.parameters[0])
    assert size() == before


@cases
def test_save_then_load_is_the_identity(case, tmp_path):
    solver = Solver(case.family, algorithm=case.algorithm)
    solver.save(tmp_path / "s.longstep")
    loaded = Solver.load(tmp_path / "s.longstep", family=case.family if case.has_functions else None)
    assert loaded.schedule == solver.schedule
    assert loaded.family.content_hash() == case.family.content_hash()
    a, b = (s.solve_batch(case.parameters, max_iter=50) for s in (solver, loaded))
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.status, b.status)
    if case.has_functions:
        with pytest.raises(ValueError, match=r"pass it: Solver\.load"):
            Solver.load(tmp_path / "s.longstep")
