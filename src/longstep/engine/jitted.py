"""The compiled programs of a solver: what jit sees, and nothing else.

A solver passes its arrays as a flat tuple and its structure as one static, hashed key, so that solvers of one family
share compiled code and a call costs no traversal of the family.
"""

import functools
from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

import jax
from jaxtyping import Array, Bool
from typing_extensions import override

from ..algorithms.base import Algorithm, Number
from ..algorithms.residuals import Residuals
from ..families.base import Encoded, Family
from ..families.point import Point
from .finish import Outcome
from .loop import run_steps, run_until
from .plan import Plan
from .problem import Problem
from .safeguard import Guard, settle
from .separable import SetFinish
from .stopping import Limits, Progress, begin, judge

TreeT = TypeVar("TreeT")


class Key(Generic[TreeT]):
    """The structure of a tree as a static argument of jit: hashed once, equal for equal structures."""

    def __init__(self, structure: Hashable):
        self.structure = structure
        self.hash = hash(structure)

    @override
    def __hash__(self) -> int:
        return self.hash

    @override
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Key) and self.structure == other.structure)

    def unflatten(self, leaves: tuple) -> TreeT:
        """Return the tree with these arrays."""
        return jax.tree.unflatten(self.structure, leaves)


def flatten(tree: TreeT) -> tuple[Key[TreeT], tuple]:
    """Return what jit sees of a tree: its structure, hashed, and its arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return Key(structure), tuple(leaves)


SolverKey: TypeAlias = Key[tuple[Algorithm, Family, Plan]]


@functools.partial(jax.jit, static_argnums=0)
def solve_until(
    key: SolverKey,
    leaves: tuple,
    encoded: Encoded,
    start: Point | None,
    limits: Limits,
    first: Number,
    max_iter: Number,
) -> tuple[Progress, Point]:
    """Return a whole solve in one dispatch: with many small solves the way into JAX costs more than the steps."""
    progress = begin_solve(key, leaves, encoded, start, limits)
    progress = advance(key, leaves, encoded, progress, limits, first, max_iter)
    point = extract_best(key, leaves, encoded, progress)
    return progress.slim(), point


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def take_steps(
    key: SolverKey, count: int, first: int, leaves: tuple, encoded: Encoded, start: Point | None, limits: Limits
) -> tuple[Progress, Point]:
    """Take exactly `count` steps; return them and what they reached."""
    problem = assemble(key, leaves, encoded)
    state = problem.algorithm.init(problem.family, problem.instance, start)
    state, _, guard = run_steps(problem, state, count, first, lambda state: ())
    residuals = None
    varying = problem.plan.H - first
    if guard is not None and guard.anchor is not None and count < varying:
        state, guard, residuals = settle(problem, state, guard, guard.anchor)
    elif guard is not None and count <= varying:
        residuals = guard.residuals
    progress = judge(problem, state, limits, count, guard, residuals)
    return progress, problem.algorithm.extract(problem.family, problem.instance, state)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def record_steps(
    key: SolverKey, count: int, first: int, leaves: tuple, encoded: Encoded, start: Point | None
) -> tuple[Residuals, Bool[Array, "*N"] | None]:
    """Return the residuals of `count` steps and of the start, and which instances the safeguard took over."""
    problem = assemble(key, leaves, encoded)
    state = problem.algorithm.init(problem.family, problem.instance, start)
    _, history, guard = run_steps(problem, state, count, first, problem.residuals)
    return history, _find_acted(guard)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def visit_points(
    key: SolverKey, count: int, first: int, leaves: tuple, encoded: Encoded, start: Point | None
) -> tuple[Point, Bool[Array, "*N"] | None]:
    """Return the points after 0, 1, …, `count` steps, stacked, and which instances the safeguard took over."""
    problem = assemble(key, leaves, encoded)
    state = problem.algorithm.init(problem.family, problem.instance, start)
    extract = lambda state: problem.algorithm.extract(problem.family, problem.instance, state)  # noqa: E731
    _, points, guard = run_steps(problem, state, count, first, extract)
    return points, _find_acted(guard)


def _find_acted(guard: Guard | None) -> Bool[Array, "*N"] | None:
    """Return where the safeguard acted; None without one."""
    if guard is None:
        return None
    return guard.acted


@functools.partial(jax.jit, static_argnums=0)
def begin_solve(key: SolverKey, leaves: tuple, encoded: Encoded, start: Point | None, limits: Limits) -> Progress:
    """Return where a solve begins."""
    problem = assemble(key, leaves, encoded)
    return begin(problem, problem.algorithm.init(problem.family, problem.instance, start), limits)


@functools.partial(jax.jit, static_argnums=0)
def advance(
    key: SolverKey, leaves: tuple, encoded: Encoded, progress: Progress, limits: Limits, first: Number, end: Number
) -> Progress:
    """Return the solve at iteration `end`, or where it ended before."""
    return run_until(assemble(key, leaves, encoded), progress, limits, first, end)


@functools.partial(jax.jit, static_argnums=0)
def extract_best(key: SolverKey, leaves: tuple, encoded: Encoded, progress: Progress) -> Point:
    """Return the best point so far, in the user's units."""
    p = assemble(key, leaves, encoded)
    return p.algorithm.extract(p.family, p.instance, progress.best)


@functools.partial(jax.jit, static_argnums=0)
def extract_current(key: SolverKey, leaves: tuple, encoded: Encoded, progress: Progress) -> Point:
    """Return the point where the iteration stands, in the user's units."""
    p = assemble(key, leaves, encoded)
    return p.algorithm.extract(p.family, p.instance, progress.state)


@functools.partial(jax.jit, static_argnums=0)
def seek_exact(key: Key[SetFinish], leaves: tuple, encoded: Encoded, point: Point) -> Outcome:
    """Return the exact points from the active sets of these."""
    return key.unflatten(leaves).seek(encoded, point)


@functools.partial(jax.jit, static_argnums=0)
def extract_rays(key: SolverKey, leaves: tuple, encoded: Encoded, progress: Progress) -> Point:
    """Return the certificates of infeasible and unbounded instances."""
    p = assemble(key, leaves, encoded)
    return p.algorithm.rays(p.family, p.instance, progress.previous, progress.state)


def assemble(key: SolverKey, leaves: tuple, encoded: Encoded) -> Problem:
    """Return the problem from its arrays, its structure and its encoded parameters."""
    algorithm, family, plan = key.unflatten(leaves)
    if family.decodes_freely:
        return Problem(algorithm, family, plan, encoded, encoded=True)
    return Problem(algorithm, family, plan, family.decode(encoded))
