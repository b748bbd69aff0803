"""The only two loops: a number of steps with everything recorded, and until a tolerance.

Both walk the schedule the same way: step k < H with θ^k, later steps with θ^H. In the step-varying phase θ and its
factor are picked from stacks inside the loop, so compile time does not grow with H; in the steady state they are
constants of the loop. Both can be guarded: an instance on which the step-varying phase fails goes on with safe
hyperparameters.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..algorithms.base import State, StateT
from . import ladder
from .ladder import Climb
from .plan import Number, Problem
from .safeguard import Guard, choose, fails, settle, watch
from .solution import Status
from .stopping import Limits, Progress, check

# What is observed of a state, and the record of it: the same arrays, with an axis of steps before theirs.
RecordT = TypeVar("RecordT")
# The states before and after the last step, the guard, and where instances stand on the ladder.
Advanced: TypeAlias = tuple[State, State, Guard | None, Climb | None]


def guarded(
    problem: Problem,
    state: StateT,
    guard: Guard,
    first: Number,
    end: Number,
    observe: Callable[[StateT], RecordT],
    record: RecordT,
) -> tuple[StateT, Guard, RecordT]:
    """Steps first … end − 1 of the step-varying phase, block by block, and the record of `observe`, of the state before
    them, with which it comes, and of each.

    What is observed after step k is the state that a run of exactly k steps returns: inside a block, that is the
    block's start for an instance which the safeguard would send back there. The safeguard itself judges where a block
    ends. All that depends on it is decided once a block: a branch costs a copy of the states, which is more than a
    step does. Where a record is kept there is no branch: to compile both sides takes longer than it saves.
    """
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    ends = safeguard.block_ends()
    recorded = bool(jax.tree.leaves(record))

    def one(k, carried, guard: Guard, at_anchor: RecordT, watchful: bool):
        state, record = carried
        following = problem.stepper(k, once=True)(state)
        if watchful:
            following = choose(guard.safe, problem.stepper(problem.plan.H, safeguard.safe, once=True)(state), following)
        if not recorded:
            return following, record
        observed = observe(following)
        if guard.anchor is not None:
            failed, _ = fails(problem, following, guard)
            observed = choose(failed, at_anchor, observed)
        return following, _noted(record, k - first + 1, observed)

    def block(carried):
        k, state, guard, record = carried
        stop = jnp.minimum(ends[k], end)
        # By the block rule the anchor is where the block begins.
        at_anchor = jax.tree.map(lambda rows: rows[k - first], record)

        def steps_of(watchful: bool):
            def step(k, carried):
                return one(k, carried, guard, at_anchor, watchful)

            return lambda: jax.lax.fori_loop(k, stop, step, (state, record))

        watched = steps_of(True)
        following, record = watched() if recorded else jax.lax.cond(jnp.any(guard.safe), watched, steps_of(False))

        def judged():
            if guard.anchor is not None:
                # As it was observed, where there is a record.
                return *settle(problem, following, guard, guard.anchor), record
            after, then = settle(problem, following, guard, state)
            return after, then, _noted(record, stop - first, observe(after))

        state, guard, record = jax.lax.cond(stop == ends[k], judged, lambda: (following, guard, record))
        return stop, state, guard, record

    start = (jnp.asarray(first, jnp.int32), state, guard, record)
    _, state, guard, record = jax.lax.while_loop(lambda carried: carried[0] < end, block, start)
    return state, guard, record


def _noted(record: RecordT, k: Number, observed: RecordT) -> RecordT:
    return jax.tree.map(lambda rows, row: rows.at[k].set(row), record, observed)


def steps(
    problem: Problem, state: StateT, count: int, first: int, observe: Callable[[StateT], RecordT]
) -> tuple[StateT, RecordT, Guard | None]:
    """`count` steps from `state`, iteration k taking step first + k: the last state, `observe` of all, the guard.

    The record of observations has count + 1 rows, the start first. Written with scan: without a safeguard it can be
    differentiated in both modes.
    """
    H = problem.plan.H
    varying = min(max(H - first, 0), count)

    def vary(state, k):
        state = problem.stepper(k, once=True)(state)
        return state, observe(state)

    def stay(state, _):
        state = steady(state)
        return state, observe(state)

    start = observe(state)
    guard = watch(problem, state) if varying else None
    if guard is None:
        state, early = jax.lax.scan(vary, state, first + jnp.arange(varying), length=varying)
    else:
        record = jax.tree.map(lambda a: jnp.zeros((varying + 1, *a.shape), a.dtype).at[0].set(a), start)
        state, guard, record = guarded(problem, state, guard, first, first + varying, observe, record)
        early = jax.tree.map(lambda rows: rows[1:], record)
    climb = ladder.begin(problem)
    if climb is None:
        steady = problem.stepper(H)
        state, late = jax.lax.scan(stay, state, None, length=count - varying)
    else:

        def walk(carried, number):
            state, climb = ladder.step(problem, carried[0], carried[1], number)
            return (state, climb), observe(state)

        (state, _), late = jax.lax.scan(walk, (state, climb), jnp.arange(count - varying, dtype=jnp.int32))
    return state, jax.tree.map(lambda a, b, c: jnp.concatenate([a[None], b, c]), start, early, late), guard


def until(problem: Problem, progress: Progress, limits: Limits, first: Number, end: Number) -> Progress:
    """Steps until every instance has ended or `end` iterations are done; iteration k takes step first + k.

    Instances are checked every `check_every` steps, at the end of the step-varying phase and after the last step;
    those that have ended (solved, certified infeasible, failed) are frozen.
    """
    H = problem.plan.H
    stay = _stay(problem, jnp.maximum(H - first, 0))

    def vary(p: Progress, stop: Int[Array, ""]) -> Advanced:
        if p.guard is None:
            step = lambda k, state: problem.stepper(first + k, once=True)(state)  # noqa: E731
            return p.state, jax.lax.fori_loop(p.k, stop, step, p.state), None, p.climb
        state, guard, _ = guarded(problem, p.state, p.guard, first + p.k, first + stop, lambda _: (), ())
        return p.state, state, guard, p.climb

    def going(p: Progress) -> Bool[Array, ""]:
        return (p.k < end) & jnp.any(p.status == Status.RUNNING)

    def block(p: Progress) -> Progress:
        stop = jnp.minimum(p.k + limits.check_every, end)
        if not H:
            return _checked(problem, p, stay(p, stop), limits, stop, True)
        varies = first + p.k < H
        stop = jnp.where(varies, jnp.minimum(stop, H - first), stop)
        # One check for both phases: most of what is compiled is in there.
        advanced = jax.lax.cond(varies, vary, stay, p, stop)
        return _checked(problem, p, advanced, limits, stop, ~varies)

    return jax.lax.while_loop(going, block, progress)


def _stay(problem: Problem, begin: Number) -> Callable[[Progress, Int[Array, ""]], Advanced]:
    """Return the steps up to a stop in the steady state, which begins at this iteration."""
    if problem.plan.ladder is None:
        step = problem.stepper(problem.plan.H)

        def stay(p: Progress, stop: Int[Array, ""]) -> Advanced:
            previous = jax.lax.fori_loop(p.k, stop - 1, lambda _, state: step(state), p.state)
            return previous, step(previous), p.guard, None

        return stay

    def walk(p: Progress, stop: Int[Array, ""]) -> Advanced:
        assert p.climb is not None

        def one(k, carried):
            _, state, climb = carried
            after, climb = ladder.step(problem, state, climb, k - begin)
            return state, after, climb

        previous, state, climb = jax.lax.fori_loop(p.k, stop, one, (p.state, p.state, p.climb))
        return previous, state, p.guard, climb

    return walk


def _checked(
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
