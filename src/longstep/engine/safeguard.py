"""The safeguard: what it knows of an instance, when learned steps have failed on it, and what follows."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.base import State
from ..algorithms.residuals import Residuals
from .problem import Problem

TreeT = TypeVar("TreeT")


class Guard(eqx.Module):
    """What the safeguard knows of each instance: where its block began, the merit there, whether it takes safe steps
    now, and how often it failed. `residuals` are those of the state that was judged last, where they are kept."""

    anchor: State
    merit: Float[Array, "*N"]
    safe: Bool[Array, "*N"]
    failures: Int[Array, "*N"]
    residuals: Residuals | None = None

    @property
    def acted(self) -> Bool[Array, "*N"]:
        """Where the safeguard acted."""
        return self.failures > 0

    def slim(self) -> "Guard":
        """Return it without what only a further step needs."""
        return Guard(None, self.merit, self.safe, self.failures)


def watch(problem: Problem, state: State) -> Guard | None:
    """Return the guard at the start of a run; None where nothing is guarded."""
    safeguard = problem.plan.safeguard
    if safeguard is None:
        return None
    merit, _ = safeguard.measure(problem.algorithm, problem.family, problem.residuals(state))
    return Guard(safeguard.keep_anchor(state), merit, jnp.zeros(merit.shape, bool), jnp.zeros(merit.shape, jnp.int32))


def find_failures(problem: Problem, residuals: Residuals, guard: Guard) -> tuple[Bool[Array, "*N"], Float[Array, "*N"]]:
    """Return where the merit of a state with these residuals did not fall, among the instances that take learned steps,
    and that merit."""
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    merit, rounding = safeguard.measure(problem.algorithm, problem.family, residuals)
    # Written so that NaN fails.
    return ~(merit <= safeguard.growth * guard.merit + rounding) & ~guard.safe, merit


def settle(problem: Problem, state: TreeT, guard: Guard, back: TreeT) -> tuple[TreeT, Guard, Residuals]:
    """Return the states, the guard and the residuals of the states after the safeguard's judgement: instances whose
    merit did not fall go `back` and take safe steps."""
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    residuals = problem.residuals(state)
    failed, merit = find_failures(problem, residuals, guard)
    state = choose(failed, back, state)
    residuals = jax.lax.cond(jnp.any(failed), lambda: problem.residuals(state), lambda: residuals)
    merit = jnp.where(failed, guard.merit, merit)
    failures = guard.failures + failed
    safe = failed | (failures >= safeguard.most_failures)
    return state, Guard(safeguard.keep_anchor(state), merit, safe, failures), residuals


def choose(condition: Bool[Array, "*N"], new: TreeT, old: TreeT) -> TreeT:
    """Return `new` where the condition holds for an instance, `old` elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
