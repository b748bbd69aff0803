"""CompiledSolver: the generated C of a solver behind the solver's own `solve` and `solve_batch`."""

import ctypes
import functools
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from .._util.hashing import content_hash
from ..engine.budget import Budget, Clock, check_tolerances
from ..engine.measure import Measure
from ..engine.solution import INFEASIBLE, History, Solution, Status
from ..families.point import Point
from .build import NoCompilerError, shared_library
from .code import Code, write_code
from .inputs import Inputs
from .library import BAD_INPUT, Library, Slot, Start

_STATUS = tuple(Status)


class CompiledSolver:
    """A solver in C, built by the machine's compiler; `Solver.compile` makes it.

    `solve` and `solve_batch` have the meaning, the defaults and the results of the solver's own, up to rounding, in the
    precision it was compiled for. One instance takes some microseconds more than its steps; a batch is spread over
    threads. `code` tells the linear algebra that was chosen and the bytes of constants (ROM) and workspace (RAM).
    """

    def __init__(self, solver: Any, precision: str, method: str, cache: "str | Path | bool"):
        self.solver = solver
        self.family = solver.family
        self.precision = precision
        self.code: Code = write_code(solver, "longstep", precision, method)
        self.library = Library(shared_library(self.code, cache), self.code)
        self._inputs = Inputs(self.family, self.code.problem, self.library.dtype)
        self._slots: list[Slot] = []
        self._layout = self.family.layout
        self._made_with = (solver, precision, method, cache)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process is compiled there, or taken from the cache."""
        return CompiledSolver, self._made_with

    @property
    def schedule(self) -> Any:
        """The schedule that was compiled."""
        return self.solver.schedule

    @property
    def algorithm(self) -> Any:
        """The algorithm that was compiled."""
        return self.solver.algorithm

    @property
    def finish(self) -> int | None:
        """After how many steps the finish is first tried; None where the code has none."""
        return self.code.problem.finish

    @property
    def record(self) -> dict[str, Any] | None:
        """What is known of the schedule's training."""
        return self.solver.record

    @property
    def name(self) -> str:
        """The solver, and what it was compiled for."""
        return f"{self.solver.name}, C, {self.precision}"

    def content_hash(self) -> str:
        """A SHA-256 of the code: all that the iterates depend on, but for the order in which a compiler adds."""
        return content_hash("c", self.precision, self.code.files)

    def run(self, parameters: Any, count: int, *, warm_start: "Solution | Point | None" = None) -> History:
        """Residuals and objectives of what `solve(…, steps=k)` returns for k = 0, 1, …, `count`, as `Solver.run`.

        Measured in float64 from the points themselves; every k is a solve of its own.
        """
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        solutions = [self.solve_batch(parameters, warm_start=warm_start, steps=k) for k in range(count + 1)]
        points = [Point.of(s).map(np.transpose) for s in solutions]
        return self._measure(parameters, points, np.asarray(solutions[-1].safeguarded))

    def seconds(self, parameters: Any, count: int) -> np.ndarray:
        """Wall-clock seconds (N,) of exactly `count` steps in one batch, an equal share for each instance."""
        solution = self.solve_batch(parameters, steps=count)
        return np.full(len(solution), solution.time / len(solution))

    @functools.cached_property
    def _measure(self) -> Measure:
        return Measure(self.solver.algorithm, self.family)

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
        """Solve one instance, as `Solver.solve` does."""
        clock = Clock(time_limit)
        settings = self._settings(eps_abs, eps_rel, eps_infeasible, max_iter, check_every, steps, time_limit)
        # Taken and put back in one operation each, so that threads never share one.
        slot = self._slots.pop() if self._slots else Slot(self.library)
        try:
            slot.set(*settings)
            if not self._inputs.load(parameter, slot.parameter):
                return self.solver.solve(
                    parameter, warm_start=warm_start, time_limit=time_limit, **_options(settings, steps)
                )
            at = None
            if warm_start is not None:
                at = slot.load_start(warm_start) or self._load_start(warm_start, slot)
            if time_limit is None:
                self.library.solve_from(slot.work, slot.settings_at, slot.parameter_at, at, slot.result_at)
            else:
                self._timed(slot, at, clock)
            return self._solution(slot, parameter, clock)
        finally:
            self._slots.append(slot)

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
        threads: int | None = None,
    ) -> Solution:
        """Solve many instances, as `Solver.solve_batch` does, on so many `threads` (by default one a core).

        A time limit is for the whole batch; instances that it leaves no time for keep their start.
        """
        clock = Clock(time_limit)
        settings = self._settings(eps_abs, eps_rel, eps_infeasible, max_iter, check_every, steps, time_limit)
        values = self._inputs.batch(parameters)
        if values is None:
            return self.solver.solve_batch(
                parameters, warm_start=warm_start, time_limit=time_limit, **_options(settings, steps)
            )
        count = len(values)
        if count == 0:
            raise ValueError("the batch is empty")
        start = [None] * 3 if warm_start is None else self._starts(warm_start, count)
        results = np.zeros((count, self.library.result_bytes), np.uint8)
        clock.start()

        def piece(first: int, last: int) -> None:
            slot = Slot(self.library)
            slot.set(*settings)
            if time_limit is None:
                at = [None if a is None else a[first:].ctypes.data for a in (values, *start, results)]
                self.library.solve_many(slot.work, slot.settings_at, int(last - first), *at)
                return
            for k in range(first, last):
                slot.parameter[:] = values[k]
                one = None if start[0] is None else Start.of(*(None if a is None else a[k] for a in start))
                self._timed(slot, None if one is None else ctypes.addressof(one), clock)
                results[k] = slot.result

        workers = min(threads or os.cpu_count() or 1, count)
        # More pieces than threads, because instances may take very different numbers of steps.
        edges = np.linspace(0, count, (min(count, 8 * workers) if workers > 1 else 1) + 1).astype(int)
        if workers == 1:
            piece(0, count)
        else:
            with ThreadPoolExecutor(workers, thread_name_prefix="longstep") as pool:
                list(pool.map(piece, edges[:-1], edges[1:]))
        return self._solutions(results, values, start, settings, parameters, clock)

    def _settings(
        self,
        eps_abs: float,
        eps_rel: float,
        eps_infeasible: float | None,
        max_iter: int,
        check_every: int,
        steps: int | None,
        time_limit: float | None,
    ) -> tuple[float, float, float, int, int, int]:
        """What the C code takes, checked as the solver checks it."""
        count = Budget(max_iter, steps, time_limit).max_iter
        eps = self.code.problem.eps_infeasible if eps_infeasible is None else eps_infeasible
        check_tolerances(eps_abs, eps_rel, eps, check_every)
        least = self.code.least_eps
        if steps is None and eps_abs < least and eps_rel < least:
            raise ValueError(
                f"eps_abs = {eps_abs:g} and eps_rel = {eps_rel:g} are both less than {least:g}, which single precision "
                'does not reach. Loosen one of them, or use precision="double"'
            )
        return eps_abs, eps_rel, eps, count, check_every, -1 if steps is None else count

    def _timed(self, slot: Slot, start: int | None, clock: Clock) -> None:
        """A solve in chunks of steps that are short against any sensible limit, with a look at the clock between."""
        library = self.library
        settings = slot.settings
        clock.start()
        chunk = max(settings.check_every, 20)
        left = settings.max_iter
        status = library.begin(slot.work, slot.settings_at, slot.parameter_at, start)
        while status == Status.RUNNING and left > 0 and not clock.over():
            status = library.advance(slot.work, slot.settings_at, chunk)
            left -= chunk
        library.finish(slot.work, slot.settings_at, slot.result_at)

    def _load_start(self, warm: "Solution | Point", slot: Slot) -> Any:
        """Refuse a start as the solver does, or take what it makes of it."""
        return slot.load_start(self.solver._start(warm, ()))

    def _starts(self, warm: "Solution | Point", count: int) -> list[np.ndarray | None]:
        point = self.solver._start(warm, (count,))
        dtype = self.library.dtype
        # The solver has instances on the last axis.
        return [None if a is None else np.ascontiguousarray(a.T, dtype) for a in (point.x, point.y, point.s)]

    def _solution(self, slot: Slot, parameter: Any, clock: Clock) -> Solution:
        status, iterations, safeguarded, outside, *more = slot.integers.tolist()
        if status == BAD_INPUT:
            raise self._inputs.refusal(self.family.single(parameter))
        x, y, s, rest = self.library.cuts
        out = slot.reals.copy()
        objective, primal, dual = out[rest:].tolist()
        ray_x, ray_y = self._rays(slot, status) if status in INFEASIBLE else (None, None)
        seen = self.solver.seen
        if seen is not None and not self.code.problem.mapped:
            outside = seen.outside(self.family.take(self.family.encode(self.family.single(parameter)), 0))
        return Solution(
            out[x],
            out[y],
            out[s],
            objective,
            _STATUS[status],
            iterations,
            safeguarded > 0,
            primal,
            dual,
            ray_x,
            ray_y,
            clock.elapsed(),
            None if seen is None else bool(outside),
            more[0] if more else -1,
            self._layout,
        )

    def _rays(self, slot: Slot, status: int) -> tuple[np.ndarray, np.ndarray]:
        """The certificate of the slot's last solve, and NaN for the other one."""
        x = np.zeros(self.library.n, self.library.dtype)
        y = np.zeros(self.library.rows, self.library.dtype)
        self.library.ray(slot.work, x.ctypes.data, y.ctypes.data)
        (y if status == Status.DUAL_INFEASIBLE else x)[:] = np.nan
        return x, y[: self.library.m]

    def _solutions(
        self, results: np.ndarray, values: np.ndarray, start: list, settings: tuple, parameters: Any, clock: Clock
    ) -> Solution:
        reals, integers = self.library.split(results)
        status, iterations, safeguarded, outside, *more = (np.ascontiguousarray(a) for a in integers.T)
        wrong = np.flatnonzero(status == BAD_INPUT)
        if wrong.size:
            raise self._inputs.refusal(self.family.select(self.family.vectors(parameters), wrong[:1]))
        x, y, s, rest = self.library.cuts
        ray_x = ray_y = None
        infeasible = np.flatnonzero(np.isin(status, INFEASIBLE))
        if infeasible.size:
            shapes = (len(status), self.library.n), (len(status), self.library.m)
            ray_x, ray_y = (np.full(shape, np.nan, self.library.dtype) for shape in shapes)
            slot = Slot(self.library)
            slot.set(*settings)
            # The workspace had other instances since; these few are solved again.
            for k in infeasible:
                slot.parameter[:] = values[k]
                one = None if start[0] is None else Start.of(*(None if a is None else a[k] for a in start))
                at = None if one is None else ctypes.addressof(one)
                self.library.solve_from(slot.work, slot.settings_at, slot.parameter_at, at, slot.result_at)
                ray_x[k], ray_y[k] = self._rays(slot, int(status[k]))
        seen = self.solver.seen
        if seen is not None and not self.code.problem.mapped:
            outside = seen.outside(self.family.encode(self.family.vectors(parameters)))
        return Solution(
            x=reals[:, x],
            y=reals[:, y],
            s=reals[:, s],
            objective=reals[:, rest],
            status=status,
            iterations=iterations,
            safeguarded=safeguarded > 0,
            primal_residual=reals[:, rest + 1],
            dual_residual=reals[:, rest + 2],
            ray_x=ray_x,
            ray_y=ray_y,
            time=clock.elapsed(),
            outside=None if seen is None else np.asarray(outside, bool),
            changes=more[0] if more else np.full(len(status), -1),
            layout=self._layout,
        )

    @override
    def __repr__(self) -> str:
        return f"CompiledSolver({self.solver!r}, {self.precision}, {self.code.linear.words})"


def compile_solver(solver: Any, backend: str, precision: str, method: str) -> Any:
    """`Solver.compile`."""
    if backend != "c":
        raise ValueError(f"the only backend is 'c', got {backend!r}")
    try:
        return CompiledSolver(solver, precision, method, cache=True)
    except NoCompilerError as error:
        warnings.warn(f"{error}. The solver stays as it is, in JAX", stacklevel=3)
        return solver


def _options(settings: tuple, steps: int | None) -> dict[str, Any]:
    """The settings as the solver takes them."""
    eps_abs, eps_rel, eps_infeasible, count, check_every, _ = settings
    rest = {"max_iter": count} if steps is None else {"steps": count}
    return {
        "eps_abs": eps_abs,
        "eps_rel": eps_rel,
        "eps_infeasible": eps_infeasible,
        "check_every": check_every,
        **rest,
    }
