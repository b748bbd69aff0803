"""A whole solve as one program that JAX can trace, the finish included."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..families.base import Encoded, Family
from ..families.conic import Conic
from ..families.point import Point
from . import jitted
from .budget import Budget
from .newton import TracedNewton
from .safeguard import choose
from .separable import SetFinish, make_finish
from .solution import Status
from .stopping import Limits, Progress


class TracedEnd(NamedTuple):
    """What a solve ended with; instances, if several, on the last axis."""

    point: Point
    primal_residual: Float[Array, "*N"]
    dual_residual: Float[Array, "*N"]
    status: Int[Array, "*N"]
    iterations: Int[Array, "*N"]


@dataclass(frozen=True, eq=False)
class TracedSolve:
    """A solver's compiled programs with its limits: a pure function of encoded parameters.

    Where there is a `finish`, it is tried after `after` steps and then, as `walk` does, after twice as many and so on.
    Solves begin where `predict` says; None is zero.
    """

    key: jitted.SolverKey
    leaves: tuple
    limits: Limits
    budget: Budget
    finish: SetFinish | TracedNewton | None
    after: int
    predict: Callable[[Encoded], Point | None]

    def __call__(self, encoded: Encoded) -> TracedEnd:
        """Solve one instance, or a stack."""
        most = self.budget.max_iter
        start = self.predict(encoded)
        if self.budget.fixed:
            progress, point = jitted.take_steps(self.key, most, 0, self.leaves, encoded, start, self.limits)
            return _end(progress, point)
        if self.finish is None:
            progress, point = jitted.solve_until(self.key, self.leaves, encoded, start, self.limits, 0, most)
            return _end(progress, point)
        return self._walk(self.finish, encoded, start)

    def _walk(self, finish: SetFinish | TracedNewton, encoded: Encoded, start: Point | None) -> TracedEnd:
        most = self.budget.max_iter
        progress = jitted.begin_solve(self.key, self.leaves, encoded, start, self.limits)
        nothing = jitted.extract_current(self.key, self.leaves, encoded, progress)
        blank = jnp.zeros_like(progress.best_violation)
        exact = _Exact(nothing, blank, blank, jnp.zeros(blank.shape, bool))

        def go_on(carried: "_Walk") -> Bool[Array, ""]:
            return (carried.progress.k < most) & jnp.any(carried.progress.status == Status.RUNNING)

        def advance(carried: "_Walk") -> "_Walk":
            stop = jnp.minimum(carried.attempt, most)
            progress = jitted.advance(self.key, self.leaves, encoded, carried.progress, self.limits, 0, stop)
            due = (carried.attempt <= most) & jnp.any(progress.status == Status.RUNNING)
            progress, exact = jax.lax.cond(
                due,
                lambda: self._attempt(finish, encoded, progress, carried.exact),
                lambda: (progress, carried.exact),
            )
            return _Walk(progress, exact, jnp.maximum(2 * carried.attempt, 1))

        first = _Walk(progress, exact, jnp.int32(self.after))
        walked = jax.lax.while_loop(go_on, advance, first)
        best = jitted.extract_best(self.key, self.leaves, encoded, walked.progress)
        end = _end(walked.progress, best)
        found = TracedEnd(walked.exact.point, walked.exact.primal, walked.exact.dual, end.status, end.iterations)
        return choose(walked.exact.exact, found, end)

    def _attempt(
        self, finish: SetFinish | TracedNewton, encoded: Encoded, progress: Progress, exact: "_Exact"
    ) -> tuple[Progress, "_Exact"]:
        """Return the run with the running instances solved that have exact points, and these."""
        current = jitted.extract_current(self.key, self.leaves, encoded, progress)
        running = progress.status == Status.RUNNING
        if isinstance(finish, TracedNewton):
            outcome = finish.seek(encoded, current, running)
        else:
            outcome = finish.seek(encoded, current)
        residuals = outcome.residuals
        within = residuals.violation(self.limits.eps_abs, self.limits.eps_rel) <= 1
        good = outcome.exact & within & running
        status = jnp.where(good, jnp.int32(Status.SOLVED), progress.status)
        found = _Exact(outcome.point, residuals.primal_max, residuals.dual_max, good)
        kept = choose(good, found, exact)
        progress = eqx.tree_at(lambda p: p.status, progress, status)
        return progress, eqx.tree_at(lambda e: e.exact, kept, exact.exact | good)


def make_traced(family: Family, proximal: float) -> SetFinish | TracedNewton:
    """Return the finish of a family that has one, as a program that JAX can trace."""
    if isinstance(family, Conic):
        return TracedNewton(family)
    return make_finish(family, proximal)


class _Exact(eqx.Module):
    """Exact points, their residuals, and which instances have one."""

    point: Point
    primal: Float[Array, "*N"]
    dual: Float[Array, "*N"]
    exact: Bool[Array, "*N"]


class _Walk(NamedTuple):
    """Where a run with a finish stands, and after how many steps that is tried next."""

    progress: Progress
    exact: _Exact
    attempt: Int[Array, ""]


def _end(progress: Progress, point: Point) -> TracedEnd:
    status = jnp.where(progress.status == Status.RUNNING, jnp.int32(Status.ITERATION_LIMIT), progress.status)
    report = progress.report
    return TracedEnd(point, report["primal_residual"], report["dual_residual"], status, progress.iterations)


def batch_columns(family: Family, solve: Callable[[Encoded], TracedEnd]) -> Callable[[Encoded], TracedEnd]:
    """Return the solve of one encoded parameter which, under `vmap`, solves all instances as columns.

    They share every product with a matrix then. Mapped alone, every instance would walk its own way through the stack
    of factors, and have a copy of each. Mapped several times, the instances of all axes are one stack.
    """

    @custom_vmap
    def solve_one(encoded: Encoded) -> TracedEnd:
        return solve(encoded)

    @custom_vmap
    def solve_many(leading: Encoded) -> TracedEnd:
        return jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), solve(family.stack(leading)))

    @solve_one.def_vmap
    def _(count: int, batched: PyTree, encoded: Encoded) -> tuple[TracedEnd, PyTree]:
        found = solve_many(_repeat(count, batched[0], encoded))
        return found, jax.tree.map(lambda _: True, found)

    @solve_many.def_vmap
    def _(count: int, batched: PyTree, leading: Encoded) -> tuple[TracedEnd, PyTree]:
        every = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), _repeat(count, batched[0], leading))
        found = jax.tree.map(lambda a: a.reshape(count, -1, *a.shape[1:]), solve_many(every))
        return found, jax.tree.map(lambda _: True, found)

    return solve_one


def _repeat(count: int, batched: PyTree, tree: PyTree) -> PyTree:
    """Return the tree with a leading axis for every array; what has none is the same for all."""

    def repeat(has: bool, a: Array) -> Array:
        if has:
            return a
        return jnp.broadcast_to(a, (count, *a.shape))

    return jax.tree.map(repeat, batched, tree)
