"""The ladder: multiples of the steady state's penalties, factored in advance, to which a slow instance may climb."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.base import Extra, Number, State
from .problem import Problem
from .safeguard import choose

TreeT = TypeVar("TreeT")


class Climb(eqx.Module):
    """Where each instance stands: the place of its θ in the plan, how often it has moved, the larger of its relative
    residuals at the last look and at the last mark, as logarithms, and what its θ prepares."""

    place: Int[Array, "*N"]
    moves: Int[Array, "*N"]
    level: Float[Array, "*N"]
    mark: Float[Array, "*N"]
    extra: Extra


def begin(problem: Problem) -> Climb | None:
    """Return where instances begin, which is on the steady state; None where the plan has no ladder."""
    if problem.plan.ladder is None:
        return None
    shape = problem.family.batch(problem.instance)
    level = jnp.full(shape, jnp.inf, problem.family.dtype)
    climb = Climb(jnp.full(shape, problem.plan.H, jnp.int32), jnp.zeros(shape, jnp.int32), level, level, None)
    return _prepare(problem, climb)


def step(problem: Problem, state: State, climb: Climb, number: Int[Array, ""]) -> tuple[State, Climb]:
    """Return the states after step `number` of the steady state, from 0, and where instances stand: before every tenth
    step there is a look at the balance of the residuals.

    As OSQP's adaptive rho, with factors that are there already: where √(relative primal / relative dual residual) is
    far from one and the residuals hardly fell since the last look, an instance goes to the rung nearest to that times
    its own. It moves `most` times at most: then θ is constant, and the steady state's theorem holds. An instance that
    gets on badly, or is not done after many steps, goes on from there with the fallback, on a ladder of its own.
    """
    ladder = problem.plan.ladder
    assert ladder is not None
    due = (number > 0) & (number % ladder.every == 0)
    climb = jax.lax.cond(due, lambda: _move(problem, state, climb, number), lambda: climb)
    return _take_step(problem, state, climb), climb


def _move(problem: Problem, state: State, climb: Climb, number: Int[Array, ""]) -> Climb:
    ladder = problem.plan.ladder
    assert ladder is not None
    primal, dual = problem.algorithm.balance(problem.family, problem.instance, state, problem.residuals(state))
    wanted = 0.5 * (primal - dual)
    level = jnp.maximum(primal, dual)
    place = climb.place
    logs = ladder.logs
    last = ladder.last
    # The steady state itself is the rung with logarithm 0 of the first ladder.
    rung = jnp.where(place == problem.plan.H, ladder.first, place - problem.plan.H - 1)
    second = rung > last
    low = jnp.where(second, last + 1, 0)
    high = jnp.where(second, logs.size - 1, last)
    target = logs[rung] + wanted
    index = jnp.arange(logs.size).reshape((-1,) + (1,) * place.ndim)
    gap = jnp.where((index >= low) & (index <= high), jnp.abs(logs.reshape(index.shape) - target), jnp.inf)
    nearest = jnp.argmin(gap, axis=0).astype(jnp.int32)
    goes = (jnp.abs(wanted) > ladder.threshold) & (climb.moves < ladder.most) & (nearest != rung)
    # Who gets on well stays: the balance is a guess, and progress is not.
    goes &= (number >= ladder.wait) & jnp.isfinite(wanted) & ~(level < climb.level - ladder.progress)
    moved = jnp.where(goes, nearest + problem.plan.H + 1, place)
    moves = climb.moves + goes
    mark = climb.mark
    if ladder.second is not None:
        at_mark = jnp.any(number == jnp.array(ladder.marks, jnp.int32))
        stuck = at_mark & ~(level < mark - ladder.enough) & (number > ladder.marks[0])
        leaves = (stuck | (number == ladder.patience)) & ~second
        moved = jnp.where(leaves, ladder.second + problem.plan.H + 1, moved)
        moves = jnp.where(leaves, 0, moves)
        mark = jnp.where(at_mark, level, mark)
    after = Climb(moved.astype(jnp.int32), moves.astype(jnp.int32), level, mark, climb.extra)
    return jax.lax.cond(jnp.any(after.place != place), lambda: _prepare(problem, after), lambda: after)


def _prepare(problem: Problem, climb: Climb) -> Climb:
    """Return where instances stand, with what each one's θ prepares."""

    def prepare(place: Number) -> Extra:
        theta, factors = problem.plan.at(place)
        return problem.algorithm.prepare_instance(problem.family, problem.instance, theta, factors)

    shape = jax.eval_shape(prepare, jnp.int32(0))
    if shape is None:
        return climb
    blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shape)
    return Climb(climb.place, climb.moves, climb.level, climb.mark, _choose_by_place(climb.place, prepare, blank))


def _take_step(problem: Problem, state: State, climb: Climb) -> State:
    """Return the next states, each with its own θ."""

    def take(place: Number) -> State:
        theta, factors = problem.plan.at(place)
        return problem.algorithm.step(problem.family, problem.instance, theta, factors, climb.extra, state)

    return _choose_by_place(climb.place, take, state)


def _choose_by_place(place: Int[Array, "*N"], make: Callable[[Number], TreeT], blank: TreeT) -> TreeT:
    """Return make(place) for every instance, made in a batch once for every rung that some instance stands on."""
    if place.ndim == 0:
        return make(place)

    def choose_here(k: Number, found: TreeT) -> TreeT:
        here: Bool[Array, " N"] = place == k
        return jax.lax.cond(jnp.any(here), lambda: choose(here, make(k), found), lambda: found)

    low = jnp.min(place)
    high = jnp.max(place)
    # Mostly all stand on one: then nothing is chosen.
    return jax.lax.cond(low == high, lambda: make(low), lambda: jax.lax.fori_loop(low, high + 1, choose_here, blank))
