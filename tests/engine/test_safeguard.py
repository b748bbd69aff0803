"""The safeguard: whatever the schedule is, what it watches never grows over a block."""

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

import longstep as ls
from longstep.engine.jitted import assemble
from longstep.engine.loop import run_steps
from longstep.engine.rules import BlockRule

from ..helpers import case_of

GRADIENT, LASSO = case_of(ls.GradientDescent, ls.Quadratic), case_of(ls.ProximalGradient)
CONIC = case_of(ls.SCS)
WATCHED = [GRADIENT, case_of(ls.HeavyBall), LASSO, case_of(ls.OSQP), CONIC]
cases = pytest.mark.parametrize("case", WATCHED, ids=repr)


def wild_schedule(case, seed, blocks):
    """Hyperparameters two decades to either side of the defaults."""
    rng, H = np.random.default_rng(seed), sum(blocks)
    varying = {}
    for h in case.hyperparameters:
        varying[h.name] = h.default * 10 ** rng.uniform(-2, 2, size=H) if h.default else rng.normal(size=H)
        if h.role == "relaxation":
            varying[h.name] = rng.uniform(0.01, 1.99, size=H)
    return ls.Schedule(varying, {h.name: h.default for h in case.hyperparameters}, blocks=blocks)


def merits(solver, parameters, count):
    """What the safeguard watches after every step (count + 1, N), and which instances it took over."""
    problem = assemble(solver._key, solver._leaves, solver.family.encode(parameters))
    rule = solver.plan.safeguard or BlockRule({}, jnp.zeros(0, bool))

    def observe(state):
        return rule.measure(solver.algorithm, solver.family, problem.residuals(state))

    state = solver.algorithm.init(solver.family, problem.instance, None)
    _, (merit, rounding), guard = run_steps(problem, state, count, 0, observe)
    return np.asarray(merit), np.asarray(rounding), None if guard is None else np.asarray(guard.acted)


@pytest.mark.slow
@cases
@given(seed=st.integers(0, 10_000))
@settings(max_examples=8)
def test_over_a_block_the_merit_does_not_grow(case, seed):
    solver = ls.Solver(case.family, wild_schedule(case, seed, [3, 3, 3]), algorithm=case.algorithm)
    merit, rounding, _ = merits(solver, case.parameters, 9)
    # Once an instance is safe its steps are the plain method's: objectives fall, residuals may swing.
    if case.family.m:
        free = ls.Solver(case.family, solver.schedule, algorithm=case.algorithm, safeguard=None)
        bad = merits(free, case.parameters, 3)[0]
        failed = ~(bad[3] <= bad[0] + rounding[0])
        np.testing.assert_allclose(merit[3][failed], merit[0][failed], rtol=1e-9)
        np.testing.assert_allclose(merit[3][~failed], bad[3][~failed], rtol=1e-9)
    else:
        for a, b in ((0, 3), (3, 6), (6, 9)):
            assert (merit[b] <= merit[a] + rounding[a] + rounding[b]).all()


@cases
def test_a_disastrous_block_is_undone(case):
    """Steps that blow up are taken back; instances that they do not touch run as if nothing was there."""
    schedule = wild_schedule(case, 0, [2, 2])
    name = next(h.name for h in case.hyperparameters if h.role in ("step", "relaxation"))
    L = getattr(case.family, "lipschitz", None)
    values = dict(schedule.varying)
    values[name] = np.full(4, 1.0 if L is None else 1e6 / L)
    schedule = ls.Schedule(values, schedule.steady, blocks=[2, 2])
    guarded = ls.Solver(case.family, schedule, algorithm=case.algorithm)
    result = guarded.solve_batch(case.parameters, eps_abs=1e-6, eps_rel=1e-6, max_iter=20_000)
    assert result.solved.all()
    if L is not None:
        assert result.safeguarded.all()
        assert guarded.run(case.parameters, 4).safeguarded.all()
        short = guarded.solve_batch(case.parameters, steps=1)  # in the middle of a block
        assert short.safeguarded.all()
        np.testing.assert_allclose(short.x, 0.0)


def test_after_a_safe_block_an_instance_joins_the_schedule_again_once():
    case = GRADIENT
    L = case.family.lipschitz
    bad, good = [1e4 / L] * 2, [1.5 / L, 0.7 / L]
    runs = {}
    for name, row in {"once": [*bad, *bad, *good, *good], "twice": [*bad, *good, *bad, *good, *good]}.items():
        schedule = ls.Schedule({"step": row}, {"step": 1 / L}, blocks=[2] * (len(row) // 2))
        runs[name] = ls.Solver(case.family, schedule).run(case.parameters, len(row))
        assert runs[name].safeguarded.all()

    def plain(*row):
        schedule = ls.Schedule({"step": row}, {"step": 1 / L})
        return ls.Solver(case.family, schedule, safeguard=None).run(case.parameters, len(row)).objective[:, -1]

    safe = [1 / L] * 2
    # The second block of `once` is as bad as the first one, but safe steps take its place.
    np.testing.assert_allclose(runs["once"].objective[:, 8], plain(*safe, *good, *good))
    np.testing.assert_allclose(runs["twice"].objective[:, 6], plain(*safe))
    np.testing.assert_allclose(runs["twice"].objective[:, 10], plain(*safe, *safe, *safe))


def test_the_step_rule_takes_back_single_steps():
    case = GRADIENT
    L = case.family.lipschitz
    schedule = ls.Schedule({"step": [1 / L, 1e4 / L, 1 / L]}, {"step": 1 / L}, blocks=[3])
    solver = ls.Solver(case.family, schedule, safeguard="step")
    history = solver.run(case.parameters, 3)
    assert history.safeguarded.all()
    # The second step is taken back, the third is safe: two steps of 1/L in all.
    plain = ls.Solver(case.family, step=1 / L).run(case.parameters, 2)
    np.testing.assert_allclose(history.objective[:, 2], plain.objective[:, 1])
    np.testing.assert_allclose(history.objective[:, 3], plain.objective[:, 2])
    bounded = ls.Quadratic(case.family.P, parameter=case.family.parameter, lower_bound=-1e3)
    assert ls.Solver(bounded, schedule, safeguard="step").run(case.parameters, 3).safeguarded.all()


@pytest.mark.parametrize("rule", ["block", "step"])
def test_a_plain_run_never_triggers_it(rule):
    """The published rule fired on monotone runs, because it compared with a mean optimal value."""
    for case in WATCHED:
        if case.family.m:
            continue
        safe = {h.name: np.full(20, h.default) for h in case.hyperparameters}
        schedule = ls.Schedule(safe, {n: v[0] for n, v in safe.items()}, blocks=[5] * 4)
        history = ls.Solver(case.family, schedule, algorithm=case.algorithm, safeguard=rule).run(case.parameters, 20)
        assert not history.safeguarded.any()


def test_single_and_batch_agree_when_it_acts():
    case = LASSO
    schedule = ls.Schedule(
        {"step": np.array([30.0, 30.0, 1.0, 1.0]) / case.family.lipschitz}, {"step": 0.1 / case.family.lipschitz}
    )
    schedule = ls.Schedule(schedule.varying, schedule.steady, blocks=[2, 2])
    solver = ls.Solver(case.family, schedule)
    batch = solver.solve_batch(case.parameters, steps=6)
    assert batch.safeguarded.any()
    for k, parameter in enumerate(case.parameters):
        one = solver.solve(parameter, steps=6)
        assert bool(one.safeguarded) == bool(batch.safeguarded[k])
        np.testing.assert_allclose(one.x, batch.x[k], atol=1e-12)


def test_going_back_to_the_start_is_starting_again_in_a_batch_too():
    """SCS's first step differs from the others: an instance that is taken back to the start takes it again."""
    case = CONIC
    for seed in range(20):
        solver = ls.Solver(case.family, wild_schedule(case, seed, [2, 3]), algorithm=case.algorithm)
        if solver.run(case.parameters, 2).safeguarded.any():
            break
    batch = solver.solve_batch(case.parameters, steps=9)
    assert batch.safeguarded.any()
    for k, parameter in enumerate(case.parameters):
        np.testing.assert_allclose(solver.solve(parameter, steps=9).x, batch.x[k], rtol=1e-8, atol=1e-10)


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="safeguard must be 'block', 'step' or None"):
        ls.Solver(GRADIENT.family, safeguard="always")
