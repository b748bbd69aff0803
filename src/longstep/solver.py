"""Solver: a family, an algorithm and a schedule, with every factorization made in advance."""

import functools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .algorithms.base import Algorithm
from .algorithms.gradient import GradientDescent
from .algorithms.osqp import OSQP
from .algorithms.proximal import ProximalGradient
from .algorithms.scs import SCS
from .families.base import Family
from .families.composite import Composite
from .families.conic import Conic
from .families.qp import QP
from .families.smooth import Differentiable
from .linalg.factor import Inverse, inverse_error, refinements_for
from .run import Limits, Plan, Problem, Progress, begin, judge, until
from .run import steps as run_steps
from .schedules.schedule import Schedule, check_schedule, constant
from .solution import Point, Residuals, Solution, Status


@functools.singledispatch
def default_algorithm(family: Family) -> Algorithm:
    """OSQP for QP, SCS for Conic, proximal gradient for Composite, gradient descent for Smooth and Quadratic."""
    raise TypeError(f"no algorithm is known for {type(family).__name__}")


default_algorithm.register(QP, lambda family: OSQP())
default_algorithm.register(Conic, lambda family: SCS())
default_algorithm.register(Composite, lambda family: ProximalGradient())
default_algorithm.register(Differentiable, lambda family: GradientDescent())


class Solver:
    """Solves instances of one family with one schedule. Everything that depends on θ is computed here, once.

    Without a schedule it uses the algorithm's defaults, which are those of the C packages; keyword values replace
    them: `Solver(family, rho_ineq=1.0)`.

    >>> import numpy as np
    >>> from longstep import QP, Solver
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> solver = Solver(family)
    >>> solution = solver.solve({"q": [-0.5, 3.0]}, eps_abs=1e-8, eps_rel=1e-8)
    >>> solution.status.name, bool(np.allclose(solution.x, [0.5, 0.0], atol=1e-6))
    ('SOLVED', True)
    """

    def __init__(
        self,
        family: Family,
        schedule: Schedule | None = None,
        *,
        algorithm: Algorithm | None = None,
        **values: float,
    ):
        self.family = family
        self.algorithm = default_algorithm(family) if algorithm is None else algorithm
        self.algorithm.check_family(family)
        hyperparameters = self.algorithm.hyperparameters(family)
        if schedule is not None and values:
            raise ValueError(f"give a schedule or constant values ({', '.join(values)}), not both")
        self.schedule = constant(hyperparameters, **values) if schedule is None else schedule
        check_schedule(self.schedule, hyperparameters, type(self.algorithm).__name__)
        self.plan = make_plan(self.algorithm, family, self.schedule)
        leaves, structure = jax.tree.flatten((self.algorithm, family, self.plan))
        self._leaves, self._key = tuple(leaves), _Key(structure)
        # Bound methods of Equinox modules are pytrees and cost a traversal of the family at every call.
        self._encode, self._take, self._select, self._count, self._single = (
            functools.partial(getattr(type(family), name), family)
            for name in ("encode", "take", "select", "count", "single")
        )

    def solve(
        self,
        parameter: Any,
        *,
        warm_start: "Solution | Point | None" = None,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
        time_limit: float | None = None,
        check_every: int = 5,
        eps_infeasible: float | None = None,
    ) -> Solution:
        """Solve one instance, given by its parameter or, for families with named data, as a dict of them.

        Stops when primal residual, dual residual and gap are within eps_abs + eps_rel·(their scale) in the
        ∞-norm and the user's units, or at `max_iter` steps or `time_limit` seconds with the best point so far.
        A `warm_start` begins in the steady state, because the step-varying phase is made for a zero start,
        unless the schedule says `warm`. The time that JAX takes to compile a new shape is not held against the
        limit.

        `steps=K` takes exactly K steps instead, with no check on the way: the same work for every instance. The
        status then says whether the last point meets the tolerances.
        """
        clock, budget = _Clock(time_limit), _Budget(max_iter, steps, time_limit)
        limits = self._limits(eps_abs, eps_rel, eps_infeasible, check_every)
        encoded = self._take(self._encode(self._single(parameter)), 0)
        start = None if warm_start is None else self._start(warm_start, ())
        return _solution(self._solve(encoded, start, limits, budget, clock), clock.elapsed())

    def solve_batch(
        self,
        parameters: Any,
        *,
        warm_start: "Solution | Point | None" = None,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
        time_limit: float | None = None,
        check_every: int = 5,
        eps_infeasible: float | None = None,
        chunk: int = 512,
    ) -> Solution:
        """Solve many instances at once; like `solve`, with a leading axis of instances in and out.

        They run as columns of shared matrix products, `chunk` at a time, on as many threads as there are cores.
        A time limit is for the whole batch.
        """
        clock, budget = _Clock(time_limit), _Budget(max_iter, steps, time_limit)
        limits = self._limits(eps_abs, eps_rel, eps_infeasible, check_every)
        count = self._count(parameters)
        if count == 0:
            raise ValueError("the batch is empty")
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        start = None if warm_start is None else self._start(warm_start, (count,))

        def piece(index: int, width: int) -> "_Ended":
            # Padding with the last instance keeps the number of compiled shapes small.
            padded = np.minimum(np.arange(index, index + width), count - 1)
            encoded = self._encode(self._select(parameters, padded))
            part = None if start is None else jax.tree.map(lambda a: a[..., padded], start)
            return self._solve(encoded, part, limits, budget, clock)

        workers = (os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
        pieces = _pieces(count, chunk, workers)
        if workers > 1 and len(pieces) > 1:
            # The compiled program releases the interpreter, and pieces that fit the cache beat one wide product.
            parts = list(_threads(workers).map(lambda p: piece(*p), pieces))
        else:
            parts = [piece(*p) for p in pieces]
        kept = [min(width, count - index) for index, width in pieces]
        return _solution(_concatenate(parts, kept), clock.elapsed())

    def run(self, parameters: Any, count: int, *, warm_start: "Solution | Point | None" = None) -> Residuals:
        """Exactly `count` steps on a batch; residuals and objectives of all iterates, arrays (N, count + 1).

        Column k is the iterate after k steps; column 0 is the start.
        """
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        start = None if warm_start is None else self._start(warm_start, (self._count(parameters),))
        encoded = self._encode(parameters)
        history = _recorded(self._key, int(count), self._first(start), self._leaves, encoded, start)
        return jax.tree.map(lambda a: np.asarray(a).T, history)

    def save(self, path: "str | Path") -> None:
        """Write the family, the algorithm and the schedule to one file, atomically. See `longstep.files`."""
        from .files import save_solver

        save_solver(self, Path(path))

    @staticmethod
    def load(path: "str | Path", *, family: Family | None = None) -> "Solver":
        """Read a solver that `save` wrote. A family made of Python functions must be passed again."""
        from .files import load_solver

        return load_solver(Path(path), family)

    def __repr__(self) -> str:
        f = self.family
        rows = f", m={m}" if (m := getattr(f, "m", None)) is not None else ""
        return (
            f"Solver({type(f).__name__}(n={f.n}{rows}, {f.dtype}), {type(self.algorithm).__name__}, "
            f"{len(self.schedule)} step-varying steps)"
        )

    def _first(self, start: Point | None) -> int:
        return 0 if start is None or self.schedule.warm else len(self.schedule)

    def _limits(self, eps_abs: float, eps_rel: float, eps_infeasible: float | None, check_every: int) -> Limits:
        if not (0 <= eps_abs < np.inf and 0 <= eps_rel < np.inf):
            raise ValueError(f"eps_abs and eps_rel must be finite and not negative, got {eps_abs} and {eps_rel}")
        if check_every < 1:
            raise ValueError(f"check_every must be at least 1, got {check_every}")
        eps = self.algorithm.eps_infeasible if eps_infeasible is None else eps_infeasible
        number = self.family.dtype.type
        return Limits(number(eps_abs), number(eps_rel), number(eps), np.int32(check_every))

    def _start(self, warm: "Solution | Point", batch: tuple[int, ...]) -> Point:
        """A warm start as columns, checked."""
        m = getattr(self.family, "m", 0)

        def convert(name: str, value: Any, rows: int) -> Any:
            if value is None:
                return None
            array = np.asarray(value, np.float64)
            if array.shape != (*batch, rows):
                raise ValueError(f"{name} of the warm start must have shape {(*batch, rows)}, got {array.shape}")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} of the warm start has NaN or infinite entries")
            return np.ascontiguousarray(np.moveaxis(array, -1, 0), self.family.dtype)

        x = convert("x", warm.x, self.family.n)
        return Point(x, convert("y", warm.y, m), convert("s", warm.s, m))

    def _solve(self, encoded: Any, start: Point | None, limits: Limits, budget: "_Budget", clock: "_Clock") -> "_Ended":
        first, max_iter = self._first(start), budget.max_iter
        if budget.fixed:
            progress, point = _exactly(self._key, max_iter, first, self._leaves, encoded, start, limits)
        elif clock.limit is None:
            progress, point = _whole(self._key, self._leaves, encoded, start, limits, first, max_iter)
        else:
            progress, k = _open(self._key, self._leaves, encoded, start, limits), 0
            # No step yet: this compiles, where it must, before the clock is started.
            progress = _on(self._key, self._leaves, encoded, progress, limits, first, 0)
            clock.start()
            # Chunks of steps that are short against any sensible limit, with a look at the clock between them.
            while k < max_iter and not clock.over() and np.any(np.asarray(progress.status) == Status.RUNNING):
                k = min(k + max(int(np.asarray(limits.check_every)), 20), max_iter)
                progress = _on(self._key, self._leaves, encoded, progress, limits, first, k)
            point = _close(self._key, self._leaves, encoded, progress)
        left = Status.TIME_LIMIT if int(progress.k) < max_iter else Status.ITERATION_LIMIT
        status = np.asarray(progress.status)
        status = np.where(status == Status.RUNNING, left, status)
        rays = None
        if np.isin(status, (Status.PRIMAL_INFEASIBLE, Status.DUAL_INFEASIBLE)).any():
            rays = _rays(self._key, self._leaves, encoded, progress)
        # Everything has its instances, if several, on the last axis here.
        return {
            "x": np.asarray(point.x),
            "y": None if point.y is None else np.asarray(point.y),
            "s": None if point.s is None else np.asarray(point.s),
            **{name: np.asarray(value) for name, value in progress.report.items()},
            "status": status,
            "iterations": np.asarray(progress.iterations),
            "ray_x": None if rays is None else np.where(status == Status.DUAL_INFEASIBLE, rays.x, np.nan),
            "ray_y": None if rays is None else np.where(status == Status.PRIMAL_INFEASIBLE, rays.y, np.nan),
        }


_Ended: TypeAlias = dict[str, Any]


@functools.cache
def _threads(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="longstep")


class _Budget:
    """How many steps: up to max_iter, or exactly so many."""

    def __init__(self, max_iter: int, steps: int | None, time_limit: float | None):
        if steps is not None and time_limit is not None:
            raise ValueError("steps=… takes exactly that many steps and cannot have a time_limit; use max_iter=…")
        self.fixed, self.max_iter = steps is not None, int(max_iter if steps is None else steps)
        if self.max_iter < 0:
            raise ValueError(f"the number of steps must not be negative, got {self.max_iter}")


class _Clock:
    def __init__(self, limit: float | None):
        if limit is not None and not limit > 0:
            raise ValueError(f"time_limit must be positive seconds or None, got {limit}")
        self.begin, self.limit, self.deadline = time.perf_counter(), limit, np.inf

    def start(self) -> None:
        if self.limit is not None and self.deadline == np.inf:
            self.deadline = time.perf_counter() + self.limit

    def elapsed(self) -> float:
        return time.perf_counter() - self.begin

    def over(self) -> bool:
        return time.perf_counter() >= self.deadline


class _Key:
    """The structure of a solver as a static argument of jit: hashed once, equal for equal structures."""

    def __init__(self, structure: Any):
        self.structure, self.hash = structure, hash(structure)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Key) and self.structure == other.structure)


# One dispatch for a whole solve: with many small solves the way into JAX costs more than the steps.
@functools.partial(jax.jit, static_argnums=0)
def _whole(key: _Key, leaves: tuple, encoded: Any, start: Any, limits: Limits, first: Any, max_iter: Any) -> Any:
    progress = _open(key, leaves, encoded, start, limits)
    progress = _on(key, leaves, encoded, progress, limits, first, max_iter)
    point = _close(key, leaves, encoded, progress)
    return eqx.tree_at(lambda p: p.best, progress, None), point


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _exactly(key: _Key, count: int, first: int, leaves: tuple, encoded: Any, start: Any, limits: Limits) -> Any:
    problem = _problem(key, leaves, encoded)
    state = problem.algorithm.init(problem.family, problem.instance, start)
    state, _ = run_steps(problem, state, count, first, lambda state: ())
    return judge(problem, state, limits, count), problem.algorithm.extract(problem.family, problem.instance, state)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _recorded(key: _Key, count: int, first: int, leaves: tuple, encoded: Any, start: Any) -> Residuals:
    problem = _problem(key, leaves, encoded)
    state = problem.algorithm.init(problem.family, problem.instance, start)
    return run_steps(problem, state, count, first, problem.residuals)[1]


@functools.partial(jax.jit, static_argnums=0)
def _open(key: _Key, leaves: tuple, encoded: Any, start: Any, limits: Limits) -> Progress:
    problem = _problem(key, leaves, encoded)
    return begin(problem, problem.algorithm.init(problem.family, problem.instance, start), limits)


@functools.partial(jax.jit, static_argnums=0)
def _on(key: _Key, leaves: tuple, encoded: Any, progress: Progress, limits: Limits, first: Any, end: Any) -> Progress:
    return until(_problem(key, leaves, encoded), progress, limits, first, end)


@functools.partial(jax.jit, static_argnums=0)
def _close(key: _Key, leaves: tuple, encoded: Any, progress: Progress) -> Point:
    p = _problem(key, leaves, encoded)
    return p.algorithm.extract(p.family, p.instance, progress.best)


@functools.partial(jax.jit, static_argnums=0)
def _rays(key: _Key, leaves: tuple, encoded: Any, progress: Progress) -> Point:
    p = _problem(key, leaves, encoded)
    return p.algorithm.rays(p.family, p.instance, progress.previous, progress.state)


def _problem(key: _Key, leaves: tuple, encoded: Any) -> Problem:
    algorithm, family, plan = jax.tree.unflatten(key.structure, leaves)
    return Problem(algorithm, family, plan, family.decode(encoded))


def _solution(ended: _Ended, seconds: float) -> Solution:
    """Columns to leading axis; a ray that no instance has is None."""
    status = ended["status"]

    def lead(value: Any) -> Any:
        return value if value is None or value.ndim == status.ndim else np.moveaxis(value, 0, -1)

    fields: dict[str, Any] = {name: lead(value) for name, value in ended.items()}
    fields["status"] = Status(int(status)) if status.ndim == 0 else status
    return Solution(**fields, time=seconds)


def make_plan(algorithm: Algorithm, family: Family, schedule: Schedule) -> Plan:
    """Factor once for every distinct set of factored hyperparameters, in float64 whatever the family's precision."""
    table = schedule.stacked()
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    keys = np.stack([table[name] for name in factored], axis=1) if factored else np.zeros((len(schedule) + 1, 0))
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    factors = None
    if factored:
        # A local switch: the process-wide one is the user's.
        with jax.enable_x64(True):
            exact = jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, family)
            thetas = [dict(zip(factored, map(jnp.float64, key), strict=True)) for key in distinct]
            pairs = [_factor(algorithm, exact, theta, jnp.zeros((), family.dtype)) for theta in thetas]
            factors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(factor for factor, _ in pairs))
            error = max(float(e) for _, e in pairs)
        if isinstance(factors, Inverse):
            count = refinements_for(error, algorithm.solve_tolerance(float(np.finfo(family.dtype).eps)))
            factors = Inverse(factors.inverse, count)
    theta = {name: jnp.asarray(values, family.dtype) for name, values in table.items()}
    return Plan(theta, factors, jnp.asarray(which.ravel(), jnp.int32), len(schedule))


@eqx.filter_jit
def _factor(algorithm: Any, family: Any, theta: Any, like: Any) -> tuple[Any, Any]:
    """One factor in the precision of `like`, and the error of its inverse in that precision."""
    factor = algorithm.prepare(family, theta)
    factor = jax.tree.map(lambda a: a.astype(like.dtype), factor)
    return factor, inverse_error(algorithm.gram(family, theta), factor)


def _pieces(count: int, largest: int, workers: int) -> list[tuple[int, int]]:
    """(start, width) of equal pieces, one shape for all of them, widths rounded up so that few shapes are compiled."""
    number = -(-count // largest)
    if count >= 128:
        number = -(-number // workers) * workers
    width = -(-count // number)
    width = 1 << (width - 1).bit_length() if width <= 64 else -(-width // 16) * 16
    return [(start, width) for start in range(0, count, width)]


def _concatenate(parts: list[_Ended], kept: list[int]) -> _Ended:
    """The pieces of a batch together, padding dropped."""

    def join(name: str) -> Any:
        values = [part[name] for part in parts]
        shape = next((v.shape[:-1] for v in values if v is not None), None)
        if shape is None:
            return None
        # Only some pieces may have rays.
        values = [np.full((*shape, k), np.nan) if v is None else v[..., :k] for v, k in zip(values, kept, strict=True)]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=-1)

    return {name: join(name) for name in parts[0]}
