"""The only two loops: a number of steps with everything recorded, and until a tolerance.

Both walk the schedule the same way: step k < H with θ^k, later steps with θ^H. In the step-varying phase θ and its
factor are picked from stacks inside the loop, so compile time does not grow with H; in the steady state they are
constants of the loop. Both can be guarded: an instance on which the step-varying phase fails goes on with safe
hyperparameters.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .algorithms.base import Algorithm, Theta
from .families.base import Family
from .linalg.factor import Factor, Picked
from .solution import Residuals, Status


class Safeguard(eqx.Module):
    """How a run notices that learned steps fail on an instance, and what it does instead.

    `block`: where the merit (objective, or residual) did not fall over a block, the instance returns to the block's
    start and takes a block of steps with the safe θ before it joins the schedule again; after the second time it keeps
    them. `step`: a step after which it grew more than tenfold is taken back, and the safe θ are kept from then on. Both
    need nothing but the instance itself; the steady state is the same for all.
    """

    rule: str = eqx.field(static=True)
    safe: dict[str, Float[Array, ""]]
    ends: Bool[Array, " H"]

    def block_ends(self) -> Int[Array, " H"]:
        """For every step, the number of steps after which the next judgement is due."""
        following = jnp.arange(1, self.ends.size + 1, dtype=jnp.int32)
        if self.rule == "step":
            return following
        return jax.lax.cummin(jnp.where(self.ends, following, self.ends.size), reverse=True)


class Plan(eqx.Module):
    """A schedule ready to run: H + 1 values of θ (the last one steady) and their factors.

    Steps that share all factored hyperparameters share one factor: `which[k]` is its place in the stack.
    """

    theta: dict[str, Float[Array, " H+1"]]
    factors: Any
    which: Int[Array, " H+1"]
    H: int = eqx.field(static=True)
    safeguard: Safeguard | None = None

    def at(self, k: Any, once: bool = False) -> tuple[Theta, Any]:
        """θ^k and its factor, for k ≤ H; the factor of a step that is taken `once` stays in the stack until then."""
        theta = {name: values[k] for name, values in self.theta.items()}
        if once and isinstance(self.factors, Factor):
            return theta, Picked(self.factors, self.which[k])
        return theta, jax.tree.map(lambda a: a[self.which[k]], self.factors)


class Problem(eqx.Module):
    """What is run: an algorithm with a plan, on the instances of a family.

    Where these are `encoded`, every step decodes them for itself: with many instances a few additions cost less than
    reading what they would give from memory.
    """

    algorithm: Algorithm
    family: Family
    plan: Plan
    given: Any
    encoded: bool = eqx.field(static=True, default=False)

    @property
    def instance(self) -> Any:
        """The instances."""
        return self.family.decode(self.given) if self.encoded else self.given

    def stepper(self, k: Any, safe: Theta | None = None, once: bool = False):
        """The map state ↦ next state of step k, with what does not depend on the state computed here, for many steps.

        Steps that are taken `once` compute it themselves. `safe` replaces θ^k, not its factors.
        """
        theta, factors = self.plan.at(k, once)
        theta = theta if safe is None else safe
        extra = None if once else self.algorithm.prepare_instance(self.family, self.instance, theta, factors)
        return lambda state: self.algorithm.step(self.family, self.instance, theta, factors, extra, state)

    def residuals(self, state: Any) -> Residuals:
        """Residuals of a state."""
        return self.algorithm.residuals(self.family, self.instance, state)


class Guard(eqx.Module):
    """What the safeguard knows of each instance: where its block began, the merit there, whether it takes safe steps
    now, and how often it failed."""

    anchor: Any
    merit: Float[Array, "*N"]
    safe: Bool[Array, "*N"]
    failures: Int[Array, "*N"]

    @property
    def acted(self) -> Bool[Array, "*N"]:
        """Where the safeguard acted."""
        return self.failures > 0

    def slim(self) -> "Guard":
        """Without what only a further step needs."""
        return Guard(None, self.merit, self.safe, self.failures)


def watch(problem: Problem, state: Any) -> Guard | None:
    """The guard at the start of a run; None where nothing is guarded."""
    safeguard = problem.plan.safeguard
    if safeguard is None:
        return None
    merit, _ = problem.algorithm.merit(problem.family, problem.residuals(state), safeguard.rule)
    anchor = state if safeguard.rule == "block" else None
    return Guard(anchor, merit, jnp.zeros(merit.shape, bool), jnp.zeros(merit.shape, jnp.int32))


def guarded(
    problem: Problem, state: Any, guard: Guard, first: Any, end: Any, observe: Callable[[Any], Any], record: Any
) -> tuple[Any, Guard, Any]:
    """Steps first … end − 1 of the step-varying phase, block by block, and the record with `observe` of each.

    What is observed after step k is the state that a run of exactly k steps returns: inside a block, that is the
    block's start for an instance which the safeguard would send back there. The safeguard itself judges where a block
    ends. All that depends on it is decided once a block: a branch costs a copy of the states, which is more than a
    step does.
    """
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    ends = safeguard.block_ends()
    recorded = bool(jax.tree.leaves(record))

    def one(k, carried, guard: Guard, watchful: bool):
        state, record = carried
        following = problem.stepper(k, once=True)(state)
        if watchful:
            following = _where(guard.safe, problem.stepper(problem.plan.H, safeguard.safe, once=True)(state), following)
        if not recorded:
            return following, record
        observed = observe(following)
        if guard.anchor is not None:
            failed, _ = fails(problem, following, guard)
            observed = _where(failed, observe(guard.anchor), observed)
        return following, _noted(record, k - first, observed)

    def block(carried):
        k, state, guard, record = carried
        stop = jnp.minimum(ends[k], end)

        def steps_of(watchful: bool):
            return lambda: jax.lax.fori_loop(k, stop, lambda k, c: one(k, c, guard, watchful), (state, record))

        following, record = jax.lax.cond(jnp.any(guard.safe), steps_of(True), steps_of(False))

        def judged():
            back = state if guard.anchor is None else guard.anchor
            after, then = settled(problem, following, guard, back)
            return after, then, _noted(record, stop - 1 - first, observe(after))

        state, guard, record = jax.lax.cond(stop == ends[k], judged, lambda: (following, guard, record))
        return stop, state, guard, record

    start = (jnp.asarray(first, jnp.int32), state, guard, record)
    _, state, guard, record = jax.lax.while_loop(lambda carried: carried[0] < end, block, start)
    return state, guard, record


def _noted(record: Any, k: Any, observed: Any) -> Any:
    return jax.tree.map(lambda rows, row: rows.at[k].set(row), record, observed)


def fails(problem: Problem, state: Any, guard: Guard) -> tuple[Bool[Array, "*N"], Float[Array, "*N"]]:
    """Where the merit of `state` did not fall, among the instances that take learned steps, and that merit."""
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    merit, rounding = problem.algorithm.merit(problem.family, problem.residuals(state), safeguard.rule)
    growth = 1.0 if safeguard.rule == "block" else 10.0
    # Written so that NaN fails.
    return ~(merit <= growth * guard.merit + rounding) & ~guard.safe, merit


def settled(problem: Problem, state: Any, guard: Guard, back: Any) -> tuple[Any, Guard]:
    """The safeguard's judgement of `state`: instances whose merit did not fall go `back` and take safe steps."""
    safeguard = problem.plan.safeguard
    assert safeguard is not None
    by_block = safeguard.rule == "block"
    failed, merit = fails(problem, state, guard)
    state = _where(failed, back, state)
    merit = jnp.where(failed, guard.merit, merit)
    failures = guard.failures + failed
    safe = failed | (failures >= (2 if by_block else 1))
    return state, Guard(state if by_block else None, merit, safe, failures)


def _where(condition: Bool[Array, "*N"], new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def steps(
    problem: Problem, state: Any, count: int, first: int, observe: Callable[[Any], Any]
) -> tuple[Any, Any, Guard | None]:
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

    start, guard = observe(state), watch(problem, state) if varying else None
    if guard is None:
        state, early = jax.lax.scan(vary, state, first + jnp.arange(varying), length=varying)
    else:
        empty = jax.tree.map(lambda a: jnp.zeros((varying, *a.shape), a.dtype), start)
        state, guard, early = guarded(problem, state, guard, first, first + varying, observe, empty)
    steady = problem.stepper(H)
    state, late = jax.lax.scan(stay, state, None, length=count - varying)
    return state, jax.tree.map(lambda a, b, c: jnp.concatenate([a[None], b, c]), start, early, late), guard


class Limits(eqx.Module):
    """When to stop: tolerances, and how many steps lie between two checks."""

    eps_abs: Float[ArrayLike, ""]
    eps_rel: Float[ArrayLike, ""]
    eps_infeasible: Float[ArrayLike, ""]
    check_every: Int[ArrayLike, ""]


class Progress(eqx.Module):
    """Where a run stands: `state` goes on until an instance ends, `best` is its best checked state.

    `previous` is the state one step before `state`, for certificates of infeasibility, which must hold at two checks
    in a row: `suspect` is what the last one found. `report` holds the best
    state's objective and ∞-norm residuals.
    """

    k: Int[Array, ""]
    state: Any
    guard: Guard | None
    previous: Any
    best: Any
    report: dict[str, Float[Array, "*N"]]
    best_violation: Float[Array, "*N"]
    status: Int[Array, "*N"]
    suspect: Int[Array, "*N"]
    iterations: Int[Array, "*N"]

    def slim(self) -> "Progress":
        """Without what only a further step needs."""
        guard = None if self.guard is None else self.guard.slim()
        return eqx.tree_at(lambda p: (p.best, p.guard), self, (None, guard), is_leaf=lambda x: x is None)


def begin(problem: Problem, state: Any, limits: Limits) -> Progress:
    """Judge the start: a good enough one needs no step."""
    residuals = problem.residuals(state)
    violation = _violation(residuals, limits)
    status = jnp.where(violation <= 1, _code(Status.SOLVED), _code(Status.RUNNING))
    return Progress(
        jnp.int32(0),
        state,
        watch(problem, state),
        state,
        state,
        _report(residuals),
        violation,
        status,
        jnp.zeros_like(status),
        jnp.zeros_like(status),
    )


def until(problem: Problem, progress: Progress, limits: Limits, first: Any, end: Any) -> Progress:
    """Steps until every instance has ended or `end` iterations are done; iteration k takes step first + k.

    Instances are checked every `check_every` steps, at the end of the step-varying phase and after the last step;
    those that have ended (solved, certified infeasible, failed) are frozen.
    """
    H = problem.plan.H

    def vary(p: Progress, stop: Any) -> tuple[Any, Any, Guard | None]:
        if p.guard is None:
            step = lambda k, state: problem.stepper(first + k, once=True)(state)  # noqa: E731
            return p.state, jax.lax.fori_loop(p.k, stop, step, p.state), None
        state, guard, _ = guarded(problem, p.state, p.guard, first + p.k, first + stop, lambda _: (), ())
        return p.state, state, guard

    if H:
        progress = _loop(problem, progress, limits, jnp.minimum(H - first, end), vary, False)
    step = problem.stepper(H)

    def stay(p: Progress, stop: Any) -> tuple[Any, Any, Guard | None]:
        previous = jax.lax.fori_loop(p.k, stop - 1, lambda _, state: step(state), p.state)
        return previous, step(previous), p.guard

    return _loop(problem, progress, limits, end, stay, True)


def _loop(problem: Problem, progress: Progress, limits: Limits, end: Any, advance: Any, steady: bool) -> Progress:
    """Blocks of steps, a check after each, in one phase of the schedule.

    `advance(progress, stop)` gives the states before the last of the steps up to `stop` (that matters in the steady
    state alone) and after it, and the guard.
    """

    def going(p: Progress):
        return (p.k < end) & jnp.any(p.status == Status.RUNNING)

    def block(p: Progress) -> Progress:
        stop = jnp.minimum(p.k + limits.check_every, end)
        previous, state, guard = advance(p, stop)
        p = eqx.tree_at(lambda p: p.guard, p, guard, is_leaf=lambda x: x is None)
        return _check(problem, p, previous, state, limits, stop, steady)

    return jax.lax.while_loop(going, block, progress)


def _check(problem: Problem, p: Progress, previous: Any, state: Any, limits: Limits, k: Any, steady: bool) -> Progress:
    """Judge the running instances at iteration k and freeze those that have ended."""
    running = p.status == Status.RUNNING

    residuals = problem.residuals(state)
    violation = _violation(residuals, limits)
    # NaN or ∞ in a residual or in the objective; what the safeguard watches may yet return from there.
    failed = ~jnp.isfinite(violation) & (steady or p.guard is None)
    status = jnp.where(failed, _code(Status.NUMERICAL_FAILURE), _code(Status.RUNNING))
    suspect = jnp.zeros_like(status)
    if steady:
        # While θ varies, differences of iterates say nothing about rays.
        primal, dual = problem.algorithm.infeasible(
            problem.family, problem.instance, previous, state, limits.eps_infeasible
        )
        suspect = jnp.where(dual, _code(Status.DUAL_INFEASIBLE), suspect)
        suspect = jnp.where(primal, _code(Status.PRIMAL_INFEASIBLE), suspect)
        status = jnp.where((suspect == p.suspect) & ~failed, jnp.maximum(status, suspect), status)
    status = jnp.where(violation <= 1, _code(Status.SOLVED), status)
    better = running & (violation < p.best_violation)
    return Progress(
        k=k,
        state=_where(running, state, p.state),
        guard=p.guard,
        previous=_where(running, previous, p.previous),
        best=_where(better, state, p.best),
        report=_where(better, _report(residuals), p.report),
        best_violation=jnp.where(better, violation, p.best_violation),
        status=jnp.where(running, status, p.status),
        suspect=suspect,
        iterations=jnp.where(running, k, p.iterations),
    )


def judge(problem: Problem, state: Any, limits: Limits, count: int, guard: Guard | None) -> Progress:
    """The end of a run of `count` steps without checks on the way, as `until` would report it; without the states."""
    p = begin(problem, state, limits)
    status = jnp.where(jnp.isfinite(p.best_violation), p.status, _code(Status.NUMERICAL_FAILURE))
    iterations = jnp.full_like(p.iterations, count)
    guard = None if guard is None else guard.slim()
    return Progress(
        jnp.int32(count), None, guard, None, None, p.report, p.best_violation, status, p.suspect, iterations
    )


def _violation(residuals: Residuals, limits: Limits) -> Float[Array, "*N"]:
    """The largest residual in units of its tolerance, ∞ where one of them is not finite or the objective overflowed."""
    violation = residuals.violation(limits.eps_abs, limits.eps_rel)
    # An objective of +∞ is a point outside the domain of an indicator, perhaps by rounding alone.
    overflowed = jnp.isnan(residuals.objective) | (residuals.objective == -jnp.inf)
    return jnp.where(jnp.isfinite(violation) & ~overflowed, violation, jnp.inf)


def _code(status: Status) -> Array:
    # Of one definite type: a loop fed its own result must not compile anew.
    return jnp.int32(status.value)


def _report(residuals: Residuals) -> dict[str, Float[Array, "*N"]]:
    return {
        "objective": residuals.objective,
        "primal_residual": residuals.primal_max,
        "dual_residual": residuals.dual_max,
    }
