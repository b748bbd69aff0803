"""The only two loops: a number of steps with everything recorded, and until a tolerance.

Both walk the schedule the same way: step k < H with θ^k, later steps with θ^H. In the step-varying phase θ and its
factor are picked from stacks inside the loop, so compile time does not grow with H; in the steady state they are
constants of the loop.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from .algorithms.base import Algorithm, Theta
from .families.base import Family
from .solution import Residuals, Status


class Plan(eqx.Module):
    """A schedule ready to run: H + 1 values of θ (the last one steady) and their factors.

    Steps that share all factored hyperparameters share one factor: `which[k]` is its place in the stack.
    """

    theta: dict[str, Float[Array, " H+1"]]
    factors: Any
    which: Int[Array, " H+1"]
    H: int = eqx.field(static=True)

    def at(self, k: Any) -> tuple[Theta, Any]:
        """θ^k and its factor, for k ≤ H."""
        theta = {name: values[k] for name, values in self.theta.items()}
        return theta, jax.tree.map(lambda a: a[self.which[k]], self.factors)


class Problem(eqx.Module):
    """What is run: an algorithm with a plan, on the instances of a family."""

    algorithm: Algorithm
    family: Family
    plan: Plan
    instance: Any

    def stepper(self, k: Any):
        """The map state ↦ next state of step k, with what does not depend on the state computed here."""
        theta, factors = self.plan.at(k)
        extra = self.algorithm.prepare_instance(self.family, self.instance, theta, factors)
        return lambda state: self.algorithm.step(self.family, self.instance, theta, factors, extra, state)

    def residuals(self, state: Any) -> Residuals:
        """Residuals of a state."""
        return self.algorithm.residuals(self.family, self.instance, state)


def steps(problem: Problem, state: Any, count: int, first: int, observe: Callable[[Any], Any]) -> tuple[Any, Any]:
    """`count` steps from `state`, iteration k taking step first + k; the last state, and `observe` of all states.

    The record of observations has count + 1 rows, the start first. Written with scan: it can be differentiated in
    both modes.
    """
    H = problem.plan.H
    varying = min(max(H - first, 0), count)

    def recorded(step):
        def advance(state, k):
            state = step(state, k)
            return state, observe(state)

        return advance

    start = observe(state)
    state, early = jax.lax.scan(
        recorded(lambda s, k: problem.stepper(k)(s)), state, first + jnp.arange(varying), length=varying
    )
    steady = problem.stepper(H)
    state, late = jax.lax.scan(recorded(lambda s, _: steady(s)), state, None, length=count - varying)
    return state, jax.tree.map(lambda a, b, c: jnp.concatenate([a[None], b, c]), start, early, late)


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
    previous: Any
    best: Any
    report: dict[str, Float[Array, "*N"]]
    best_violation: Float[Array, "*N"]
    status: Int[Array, "*N"]
    suspect: Int[Array, "*N"]
    iterations: Int[Array, "*N"]


def begin(problem: Problem, state: Any, limits: Limits) -> Progress:
    """Judge the start: a good enough one needs no step."""
    residuals = problem.residuals(state)
    violation = residuals.violation(limits.eps_abs, limits.eps_rel)
    status = jnp.where(violation <= 1, _code(Status.SOLVED), _code(Status.RUNNING))
    violation = jnp.where(jnp.isnan(violation), jnp.inf, violation)
    return Progress(
        jnp.int32(0),
        state,
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
    if H:
        progress = _loop(
            problem,
            progress,
            limits,
            jnp.minimum(H - first, end),
            lambda k, s: problem.stepper(first + k)(s),
            False,
        )
    steady = problem.stepper(H)
    return _loop(problem, progress, limits, end, lambda k, s: steady(s), True)


def _loop(problem: Problem, progress: Progress, limits: Limits, end: Any, take: Any, steady: bool) -> Progress:
    """Blocks of steps, a check after each, in one phase of the schedule."""

    def going(p: Progress):
        return (p.k < end) & jnp.any(p.status == Status.RUNNING)

    def block(p: Progress) -> Progress:
        last = jnp.minimum(p.k + limits.check_every, end) - 1
        previous = jax.lax.fori_loop(p.k, last, take, p.state)
        return _check(problem, p, previous, take(last, previous), limits, last + 1, steady)

    return jax.lax.while_loop(going, block, progress)


def _check(problem: Problem, p: Progress, previous: Any, state: Any, limits: Limits, k: Any, steady: bool) -> Progress:
    """Judge the running instances at iteration k and freeze those that have ended."""
    running = p.status == Status.RUNNING

    def keep(new: Any, old: Any, where: Any) -> Any:
        # Leaves without an instance axis (flags shared by the stack) always move on.
        return jax.tree.map(lambda a, b: jnp.where(where, a, b) if jnp.ndim(a) >= where.ndim else a, new, old)

    residuals = problem.residuals(state)
    violation = residuals.violation(limits.eps_abs, limits.eps_rel)
    failed = ~jnp.isfinite(violation)  # with NaN or ∞ in a residual
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
        state=keep(state, p.state, running),
        previous=keep(previous, p.previous, running),
        best=keep(state, p.best, better),
        report=keep(_report(residuals), p.report, better),
        best_violation=jnp.where(better, violation, p.best_violation),
        status=jnp.where(running, status, p.status),
        suspect=suspect,
        iterations=jnp.where(running, k, p.iterations),
    )


def judge(problem: Problem, state: Any, limits: Limits, count: int) -> Progress:
    """The end of a run of `count` steps without checks on the way, as `until` would report it; without the states."""
    p = begin(problem, state, limits)
    status = jnp.where(jnp.isfinite(p.best_violation), p.status, _code(Status.NUMERICAL_FAILURE))
    iterations = jnp.full_like(p.iterations, count)
    return Progress(jnp.int32(count), None, None, None, p.report, p.best_violation, status, p.suspect, iterations)


def _code(status: Status) -> Array:
    # Of one definite type: a loop fed its own result must not compile anew.
    return jnp.int32(status.value)


def _report(residuals: Residuals) -> dict[str, Float[Array, "*N"]]:
    return {
        "objective": residuals.objective,
        "primal_residual": residuals.primal_max,
        "dual_residual": residuals.dual_max,
    }
