"""When a run stops: tolerances, what is known at a check, and how it ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._util.optional import map_given
from ..algorithms.base import State
from ..algorithms.residuals import Residuals
from . import ladder
from .ladder import Climb
from .problem import Problem
from .safeguard import Guard, choose, watch
from .solution import Status


class Limits(eqx.Module):
    """When to stop: tolerances, and how many steps lie between two checks."""

    eps_abs: Float[ArrayLike, ""]
    eps_rel: Float[ArrayLike, ""]
    eps_infeasible: Float[ArrayLike, ""]
    check_every: Int[ArrayLike, ""]

    @staticmethod
    def of(eps: float) -> "Limits":
        """Return limits of this tolerance, with a check after every step."""
        number = np.float64(eps)
        return Limits(number, number, number, np.int32(1))


class Progress(eqx.Module):
    """Where a run stands: `state` goes on until an instance ends, `best` is its best checked state.

    `previous` is the state one step before `state`, for certificates of infeasibility, which must hold at two checks
    in a row: `suspect` is what the last one found. `report` holds the best
    state's objective and ∞-norm residuals.
    """

    k: Int[Array, ""]
    state: State
    guard: Guard | None
    previous: State
    best: State
    report: dict[str, Float[Array, "*N"]]
    best_violation: Float[Array, "*N"]
    status: Int[Array, "*N"]
    suspect: Int[Array, "*N"]
    iterations: Int[Array, "*N"]
    climb: Climb | None = None

    def slim(self) -> "Progress":
        """Return it without what only a further step needs."""
        guard = map_given(Guard.slim, self.guard)
        return eqx.tree_at(lambda p: (p.best, p.guard, p.climb), self, (None, guard, None), is_leaf=lambda x: x is None)


def begin(problem: Problem, state: State, limits: Limits, residuals: Residuals | None = None) -> Progress:
    """Judge the start: a good enough one needs no step. Its `residuals` are computed where they are not given."""
    if residuals is None:
        residuals = problem.residuals(state)
    violation = _measure_violation(residuals, limits)
    status = jnp.where(violation <= 1, _encode_status(Status.SOLVED), _encode_status(Status.RUNNING))
    return Progress(
        k=jnp.int32(0),
        state=state,
        guard=watch(problem, state),
        previous=state,
        best=state,
        report=_extract_report(residuals),
        best_violation=violation,
        status=status,
        suspect=jnp.zeros_like(status),
        iterations=jnp.zeros_like(status),
        climb=ladder.begin(problem),
    )


def check(
    problem: Problem,
    p: Progress,
    previous: State,
    state: State,
    limits: Limits,
    k: Int[Array, ""],
    steady: bool | Bool[Array, ""],
) -> Progress:
    """Judge the running instances at iteration k, in the steady state or not, and freeze those that have ended."""
    running = p.status == Status.RUNNING

    residuals = problem.residuals(state)
    violation = _measure_violation(residuals, limits)
    # NaN or ∞ in a residual or in the objective; what the safeguard watches may yet return from there.
    failed = ~jnp.isfinite(violation) & (steady | jnp.bool_(p.guard is None))
    status = jnp.where(failed, _encode_status(Status.NUMERICAL_FAILURE), _encode_status(Status.RUNNING))

    def find_rays() -> tuple[Bool[Array, "*N"], Bool[Array, "*N"]]:
        eps = jnp.asarray(limits.eps_infeasible)
        return problem.algorithm.infeasible(problem.family, problem.instance, previous, state, eps)

    # While θ varies, differences of iterates say nothing about rays.
    never = jnp.zeros_like(running)
    if steady is True:
        primal, dual = find_rays()
    else:
        primal, dual = jax.lax.cond(steady, find_rays, lambda: (never, never))
    suspect = jnp.where(dual, _encode_status(Status.DUAL_INFEASIBLE), jnp.zeros_like(status))
    suspect = jnp.where(primal, _encode_status(Status.PRIMAL_INFEASIBLE), suspect)
    status = jnp.where((suspect == p.suspect) & ~failed, jnp.maximum(status, suspect), status)
    status = jnp.where(violation <= 1, _encode_status(Status.SOLVED), status)
    better = running & (violation < p.best_violation)
    return Progress(
        k=k,
        state=choose(running, state, p.state),
        guard=p.guard,
        previous=choose(running, previous, p.previous),
        best=choose(better, state, p.best),
        report=choose(better, _extract_report(residuals), p.report),
        best_violation=jnp.where(better, violation, p.best_violation),
        status=jnp.where(running, status, p.status),
        suspect=suspect,
        iterations=jnp.where(running, k, p.iterations),
        climb=p.climb,
    )


def judge(
    problem: Problem, state: State, limits: Limits, count: int, guard: Guard | None, residuals: Residuals | None
) -> Progress:
    """Return the end of a run of `count` steps without checks on the way, as `run_until` would report it; without the
    states."""
    p = begin(problem, state, limits, residuals)
    status = jnp.where(jnp.isfinite(p.best_violation), p.status, _encode_status(Status.NUMERICAL_FAILURE))
    iterations = jnp.full_like(p.iterations, count)
    return Progress(
        k=jnp.int32(count),
        state=None,
        guard=map_given(Guard.slim, guard),
        previous=None,
        best=None,
        report=p.report,
        best_violation=p.best_violation,
        status=status,
        suspect=p.suspect,
        iterations=iterations,
    )


def _measure_violation(residuals: Residuals, limits: Limits) -> Float[Array, "*N"]:
    """Return the largest residual in units of its tolerance, ∞ where one of them is not finite or the objective
    overflowed."""
    violation = residuals.violation(limits.eps_abs, limits.eps_rel)
    # An objective of +∞ is a point outside the domain of an indicator, perhaps by rounding alone.
    overflowed = jnp.isnan(residuals.objective) | (residuals.objective == -jnp.inf)
    return jnp.where(jnp.isfinite(violation) & ~overflowed, violation, jnp.inf)


def _encode_status(status: Status) -> Array:
    # Of one definite type: a loop fed its own result must not compile anew.
    return jnp.int32(status.value)


def _extract_report(residuals: Residuals) -> dict[str, Float[Array, "*N"]]:
    return {
        "objective": residuals.objective,
        "primal_residual": residuals.primal_max,
        "dual_residual": residuals.dual_max,
    }
