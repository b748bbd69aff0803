"""The only two loops: a number of steps with everything recorded, and until a tolerance.

Both walk the schedule the same way: step k < H with θ^k, later steps with θ^H. In the step-varying phase θ and its
factor are picked from stacks inside the loop, so compile time does not grow with H; in the steady state they are
constants of the loop. Both can be guarded: an instance on which the step-varying phase fails goes on with safe
hyperparameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..algorithms.base import Number, State, StateT, Trimmed
from ..algorithms.residuals import Residuals
from . import ladder
from .ladder import Climb
from .problem import Problem
from .safeguard import Guard, choose, find_failures, settle, watch
from .solution import Status
from .stopping import Limits, Progress, check

# What is observed of a state, and the record of it: the same arrays, with an axis of steps before theirs.
RecordT = TypeVar("RecordT")
# The states before and after the last step, the guard, and where instances stand on the ladder.
Advanced: TypeAlias = tuple[State, State, Guard | None, Climb | None]


def travel(problem: Problem, state: StateT, first: Number, stop: Number) -> StateT:
    """Return the state after steps first … stop − 1 of the step-varying phase, one at least."""

    def go(k: Number, state: StateT) -> StateT:
        return problem.stepper(k, once=True)(state)

    if not problem.shortens:
        return jax.lax.fori_loop(first, stop, go, state)

    return go(stop - 1, _hurry(problem, problem.algorithm.trim(state), first, stop - 1))


def _hurry(problem: Problem, trimmed: Trimmed, first: Number, stop: Number) -> Trimmed:
    """Return the trimmed state after short steps first … stop − 1 of the step-varying phase."""

    def take_short_step(k: Number, trimmed: Trimmed) -> Trimmed:
        return problem.shortcut(k, once=True)(trimmed)

    kernel = problem.kernel(trimmed)
    if kernel is None:
        return jax.lax.fori_loop(first, stop, take_short_step, trimmed)
    # The machine may have other devices too, for which a program may be.
    each = lambda first, stop, trimmed: jax.lax.fori_loop(first, stop, take_short_step, trimmed)  # noqa: E731
    bounds = jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)
    return jax.lax.platform_dependent(*bounds, trimmed, cuda=kernel, default=each)


def stay(problem: Problem, state: StateT, count: int) -> StateT:
    """Return the state after `count` steps with the steady state, one at least."""
    step = problem.stepper(problem.plan.H)
    if not problem.shortens:
        return jax.lax.fori_loop(0, count, lambda _, state: step(state), state)
    short = problem.shortcut(problem.plan.H)
    trimmed = problem.algorithm.trim(state)
    return step(jax.lax.fori_loop(0, count - 1, lambda _, trimmed: short(trimmed), trimmed))


def travel_guarded(
    problem: Problem,
    state: StateT,
    guard: Guard,
    first: Number,
    end: Number,
    observe: Callable[[StateT], RecordT],
    record: RecordT,
) -> tuple[StateT, Guard, RecordT, Residuals]:
    """Return the state and the guard after steps first … end − 1 of the step-varying phase, which go block by block;
    the record of `observe`, of the state before them, with which it comes, and of each; and the residuals of the state
    that was judged last.

    What is observed after step k is the state that a run of exactly k steps returns: inside a block, that is the
    block's start for an instance which the safeguard would send back there. The safeguard itself judges where a block
    ends. All that depends on it is decided once a block: a branch costs a copy of the states, which is more than a
    step does. Where a record is kept there is no branch: to compile both sides takes longer than it saves.
    """
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    ends = safeguard.list_judgements()
    recorded = bool(jax.tree.leaves(record))

    def take_step(k, carried, guard: Guard, at_anchor: RecordT):
        state, record = carried
        following = problem.stepper(k, once=True)(state)
        following = choose(guard.safe, problem.stepper(problem.plan.H, safeguard.safe, once=True)(state), following)
        if not recorded:
            return following, record
        observed = observe(following)
        if guard.anchor is not None:
            failed, _ = find_failures(problem, problem.residuals(following), guard)
            observed = choose(failed, at_anchor, observed)
        return following, _note(record, k - first + 1, observed)

    def block(carried):
        k, state, guard, record, residuals = carried
        stop = jnp.minimum(ends[k], end)
        # By the block rule the anchor is where the block begins.
        at_anchor = jax.tree.map(lambda rows: rows[k - first], record)

        def watch_each():
            step = lambda k, carried: take_step(k, carried, guard, at_anchor)  # noqa: E731
            return jax.lax.fori_loop(k, stop, step, (state, record))

        if recorded:
            following, record = watch_each()
        else:
            trust = lambda: (travel(problem, state, k, stop), record)  # noqa: E731
            following, record = jax.lax.cond(jnp.any(guard.safe), watch_each, trust)

        def judge_block():
            if guard.anchor is not None:
                # As it was observed, where there is a record.
                after, then, measured = settle(problem, following, guard, guard.anchor)
                return after, then, record, measured
            after, then, measured = settle(problem, following, guard, state)
            return after, then, _note(record, stop - first, observe(after)), measured

        on = lambda: (following, guard, record, residuals)  # noqa: E731
        return stop, *jax.lax.cond(stop == ends[k], judge_block, on)

    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(problem.residuals, state))
    start = (jnp.asarray(first, jnp.int32), state, guard, record, blank)
    return jax.lax.while_loop(lambda carried: carried[0] < end, block, start)[1:]


def _note(record: RecordT, k: Number, observed: RecordT) -> RecordT:
    return jax.tree.map(lambda rows, row: rows.at[k].set(row), record, observed)


def run_steps(
    problem: Problem, state: StateT, count: int, first: int, observe: Callable[[StateT], RecordT]
) -> tuple[StateT, RecordT, Guard | None]:
    """Return the last state, `observe` of all, and the guard, after `count` steps from `state`, iteration k taking step
    first + k.

    The record of observations has count + 1 rows, the start first. Written with loops of known length: without a
    safeguard it can be differentiated in both modes.
    """
    H = problem.plan.H
    varying = min(max(H - first, 0), count)

    def vary(state, k):
        state = problem.stepper(k, once=True)(state)
        return state, observe(state)

    def hold(state, _):
        state = steady(state)
        return state, observe(state)

    start = observe(state)
    looked = bool(jax.tree.leaves(start))
    early = start
    late = start
    guard = None
    if varying:
        guard = watch(problem, state)
    if guard is None and not looked:
        if varying:
            state = travel(problem, state, first, first + varying)
    elif guard is None:
        state, early = jax.lax.scan(vary, state, first + jnp.arange(varying), length=varying)
    else:
        record = jax.tree.map(lambda a: jnp.zeros((varying + 1, *a.shape), a.dtype).at[0].set(a), start)
        state, guard, record, residuals = travel_guarded(problem, state, guard, first, first + varying, observe, record)
        guard = replace(guard, residuals=residuals)
        early = jax.tree.map(lambda rows: rows[1:], record)
    climb = ladder.begin(problem)
    if climb is None and not looked:
        if count > varying:
            state = stay(problem, state, count - varying)
    elif climb is None:
        steady = problem.stepper(H)
        state, late = jax.lax.scan(hold, state, None, length=count - varying)
    else:

        def walk(carried, number):
            state, climb = ladder.step(problem, carried[0], carried[1], number)
            return (state, climb), observe(state)

        (state, _), late = jax.lax.scan(walk, (state, climb), jnp.arange(count - varying, dtype=jnp.int32))
    return state, jax.tree.map(lambda a, b, c: jnp.concatenate([a[None], b, c]), start, early, late), guard


def run_until(problem: Problem, progress: Progress, limits: Limits, first: Number, end: Number) -> Progress:
    """Return where a run stands when every instance has ended or `end` iterations are done; iteration k takes step
    first + k.

    Instances are checked every `check_every` steps, at the end of the step-varying phase and after the last step;
    those that have ended (solved, certified infeasible, failed) are frozen.
    """
    H = problem.plan.H
    go_on = _make_steady(problem, jnp.maximum(H - first, 0))

    def vary(p: Progress, stop: Int[Array, ""]) -> Advanced:
        if p.guard is None:
            return p.state, travel(problem, p.state, first + p.k, first + stop), None, p.climb
        state, guard, _, _ = travel_guarded(problem, p.state, p.guard, first + p.k, first + stop, lambda _: (), ())
        return p.state, state, guard, p.climb

    def is_running(p: Progress) -> Bool[Array, ""]:
        return (p.k < end) & jnp.any(p.status == Status.RUNNING)

    def block(p: Progress) -> Progress:
        stop = jnp.minimum(p.k + limits.check_every, end)
        if not H:
            return _check_after(problem, p, go_on(p, stop), limits, stop, True)
        varies = first + p.k < H
        stop = jnp.where(varies, jnp.minimum(stop, H - first), stop)
        # One check for both phases: most of what is compiled is in there.
        advanced = jax.lax.cond(varies, vary, go_on, p, stop)
        return _check_after(problem, p, advanced, limits, stop, ~varies)

    return jax.lax.while_loop(is_running, block, progress)


def _make_steady(problem: Problem, begin: Number) -> Callable[[Progress, Int[Array, ""]], Advanced]:
    """Return the steps up to a stop in the steady state, which begins at this iteration."""
    if problem.plan.ladder is None:
        step = problem.stepper(problem.plan.H)

        def hold(p: Progress, stop: Int[Array, ""]) -> Advanced:
            previous = jax.lax.fori_loop(p.k, stop - 1, lambda _, state: step(state), p.state)
            return previous, step(previous), p.guard, None

        return hold

    def walk(p: Progress, stop: Int[Array, ""]) -> Advanced:
        assert p.climb is not None

        def take_step(k, carried):
            _, state, climb = carried
            after, climb = ladder.step(problem, state, climb, k - begin)
            return state, after, climb

        previous, state, climb = jax.lax.fori_loop(p.k, stop, take_step, (p.state, p.state, p.climb))
        return previous, state, p.guard, climb

    return walk


def _check_after(
    problem: Problem,
    p: Progress,
    advanced: Advanced,
    limits: Limits,
    stop: Int[Array, ""],
    steady: bool | Bool[Array, ""],
) -> Progress:
    """Return where a run stands after the steps up to `stop`, with a check of it."""
    previous, state, guard, climb = advanced
    p = eqx.tree_at(lambda p: (p.guard, p.climb), p, (guard, climb), is_leaf=lambda x: x is None)
    return check(problem, p, previous, state, limits, stop, steady)
