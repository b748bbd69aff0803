"""CompiledSolver: the generated C of a solver behind the solver's own `solve` and `solve_batch`."""

import ctypes
import functools
import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from jaxtyping import PyTree
from typing_extensions import Unpack, override

from .._util.hashing import content_hash
from .._util.processes import require_threads
from ..algorithms.base import Algorithm
from ..engine.budget import Budget, Clock, check_tolerances
from ..engine.history import History
from ..engine.measure import Measure
from ..engine.solution import INFEASIBLE, Solution, Status
from ..engine.start import read_start
from ..errors import NoCompilerError
from ..families.point import Point
from ..schedules.schedule import Schedule
from ..streaming.sources import SourceLike
from ..streaming.stream import Options, SinkLike, stream
from ..streaming.tally import Tally
from .build import build_library
from .code import Code, write_code
from .inputs import Inputs
from .library import BAD_INPUT, Form, Library, Settings, Slot, Start
from .problem import Generated
from .vectors import Constrained

_STATUS = tuple(Status)
# The x, y and s of starts (N, …), each None where it is absent.
_Starts: TypeAlias = tuple[np.ndarray | None, ...]


class Compilable(Generated, Protocol):
    """What a compiled solver needs of the solver that it is made from."""

    @property
    def name(self) -> str:
        """A few words for tables and figures."""
        ...

    @property
    def record(self) -> Mapping[str, object] | None:
        """What is known of the schedule's training."""
        ...

    @property
    def solve(self) -> Callable[..., Solution]:
        """Solves one instance, with the options of `Solver.solve`."""
        ...

    @property
    def solve_batch(self) -> Callable[..., Solution]:
        """Solves many instances, with the options of `Solver.solve_batch`."""
        ...


SolverT = TypeVar("SolverT", bound=Compilable)


class CompiledSolver:
    """A solver in C, built by the machine's compiler; `Solver.compile` makes it.

    `solve` and `solve_batch` have the meaning, the defaults and the results of the solver's own, up to rounding, in the
    precision it was compiled for. One instance takes some microseconds more than its steps; a batch is spread over
    threads. `code` tells the linear algebra that was chosen and the bytes of constants (ROM) and workspace (RAM).
    """

    def __init__(self, solver: Compilable, precision: str, method: str, cache: "str | Path | bool"):
        require_threads()
        self.solver = solver
        self.precision = precision
        self.code: Code = write_code(solver, "longstep", precision, method, loaded=True)
        family = solver.family
        assert isinstance(family, Constrained)
        self.family: Constrained = family
        self.library = Library(build_library(self.code, cache), _form_of(self.code))
        self._inputs = Inputs(self.family, self.code.problem, self.library.dtype)
        self._slots: list[Slot] = []
        self._layout = self.family.layout
        self._made_with = (solver, precision, method, cache)

    @override
    def __reduce__(self) -> "tuple[type[CompiledSolver], tuple[Compilable, str, str, str | Path | bool]]":
        """Pickle what it was made with: a copy in another process is compiled there, or taken from the cache."""
        return CompiledSolver, self._made_with

    @property
    def schedule(self) -> Schedule:
        """The schedule that was compiled."""
        return self.solver.schedule

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that was compiled."""
        return self.solver.algorithm

    @property
    def finish(self) -> int | None:
        """After how many steps the finish is first tried; None where the code has none."""
        return self.code.problem.finish

    @property
    def record(self) -> Mapping[str, object] | None:
        """What is known of the schedule's training."""
        return self.solver.record

    @property
    def name(self) -> str:
        """The solver, and what it was compiled for."""
        return f"{self.solver.name}, C, {self.precision}"

    def content_hash(self) -> str:
        """Return a SHA-256 of the code: all that the iterates depend on, but for the order in which a compiler adds."""
        parts: list[object] = ["c", self.precision, self.code.files]
        if self.code.apart:
            parts.append(self.code.values)
        return content_hash(*parts)

    def run(self, parameters: PyTree, count: int, *, warm_start: "Solution | Point | None" = None) -> History:
        """Return the residuals and objectives of `solve(…, steps=k)` for k = 0, 1, …, `count`, as `Solver.run` does.

        Measured in float64 from the points themselves; every k is a solve of its own.
        """
        require_threads()
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        solutions = [self.solve_batch(parameters, warm_start=warm_start, steps=k) for k in range(count + 1)]
        points = [Point.of(s).map(np.transpose) for s in solutions]
        return self._measure(parameters, points, np.asarray(solutions[-1].safeguarded))

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return wall-clock seconds (N,) of exactly `count` steps in one batch, an equal share for each instance."""
        solution = self.solve_batch(parameters, steps=count)
        return np.full(len(solution), solution.time / len(solution))

    @functools.cached_property
    def _measure(self) -> Measure:
        return Measure(self.solver.algorithm, self.family)

    def solve(
        self,
        parameter: PyTree,
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
        settings = self._check_settings(eps_abs, eps_rel, eps_infeasible, max_iter, check_every, steps, time_limit)
        # Taken and put back in one operation each, so that threads never share one.
        slot = self._slots.pop() if self._slots else Slot(self.library)
        try:
            slot.set(settings)
            if not self._inputs.load(parameter, slot.parameter):
                return self.solver.solve(
                    parameter,
                    warm_start=warm_start,
                    eps_abs=eps_abs,
                    eps_rel=eps_rel,
                    max_iter=max_iter,
                    steps=steps,
                    time_limit=time_limit,
                    check_every=check_every,
                    eps_infeasible=eps_infeasible,
                )
            at = None
            if warm_start is not None:
                # What is odd is refused by the solver, or made into what it means.
                at = slot.load_start(warm_start) or slot.load_start(read_start(self.family, warm_start, ()))
            if time_limit is None:
                self.library.solve_from(slot.work, slot.settings_at, slot.parameter_at, at, slot.result_at)
            else:
                self._solve_timed(slot, at, clock)
            return self._read_solution(slot, parameter, clock)
        finally:
            self._slots.append(slot)

    def solve_batch(
        self,
        parameters: PyTree,
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
        """Solve many instances, as `Solver.solve_batch` does, on `threads` threads, by default one a core.

        A time limit is for the whole batch; instances that it leaves no time for keep their start.
        """
        clock = Clock(time_limit)
        settings = self._check_settings(eps_abs, eps_rel, eps_infeasible, max_iter, check_every, steps, time_limit)
        values = self._inputs.stack(parameters)
        if values is None:
            return self.solver.solve_batch(
                parameters,
                warm_start=warm_start,
                eps_abs=eps_abs,
                eps_rel=eps_rel,
                max_iter=max_iter,
                steps=steps,
                time_limit=time_limit,
                check_every=check_every,
                eps_infeasible=eps_infeasible,
            )
        count = len(values)
        if count == 0:
            raise ValueError("the batch is empty")
        starts = self._load_starts(warm_start, count)
        results = np.zeros((count, self.library.result_bytes), np.uint8)
        clock.start()

        def solve_piece(first: int, last: int) -> None:
            slot = Slot(self.library)
            slot.set(settings)
            if time_limit is None:
                at = [None if a is None else a[first:].ctypes.data for a in (values, *starts, results)]
                self.library.solve_many(slot.work, slot.settings_at, int(last - first), *at)
                return
            for k in range(first, last):
                slot.parameter[:] = values[k]
                start = _pick_start(starts, k)
                self._solve_timed(slot, _locate(start), clock)
                results[k] = slot.result

        workers = min(threads or os.cpu_count() or 1, count)
        if workers == 1:
            solve_piece(0, count)
        else:
            # More pieces than threads, because instances may take very different numbers of steps.
            edges = np.linspace(0, count, min(count, 8 * workers) + 1).astype(int)
            with ThreadPoolExecutor(workers, thread_name_prefix="longstep") as pool:
                list(pool.map(solve_piece, edges[:-1], edges[1:]))
        return self._read_solutions(results, values, starts, settings, parameters, clock)

    def map(self, source: SourceLike, sink: SinkLike, **options: Unpack[Options]) -> Tally:
        """Solve all instances of a source in constant memory, as `Solver.map` does and with its options."""
        return stream(self, source, sink, **options)

    def _check_settings(
        self,
        eps_abs: float,
        eps_rel: float,
        eps_infeasible: float | None,
        max_iter: int,
        check_every: int,
        steps: int | None,
        time_limit: float | None,
    ) -> Settings:
        """Return what the C code takes, checked as the solver checks it."""
        budget = Budget(max_iter, steps, time_limit)
        eps = self.code.problem.eps_infeasible if eps_infeasible is None else eps_infeasible
        check_tolerances(eps_abs, eps_rel, eps, check_every)
        least = self.code.least_eps
        if steps is None and eps_abs < least and eps_rel < least:
            raise ValueError(
                f"eps_abs = {eps_abs:g} and eps_rel = {eps_rel:g} are both less than {least:g}, which single precision "
                'does not reach. Loosen one of them, or use precision="double"'
            )
        exactly = budget.max_iter if budget.fixed else -1
        return Settings(eps_abs, eps_rel, eps, budget.max_iter, check_every, exactly)

    def _solve_timed(self, slot: Slot, start: int | None, clock: Clock) -> None:
        """Solve in chunks of steps that are short against any sensible limit, with a look at the clock between."""
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

    def _load_starts(self, warm: "Solution | Point | None", count: int) -> _Starts:
        """Return the starts of a batch in this precision, checked by the solver."""
        if warm is None:
            return None, None, None
        point = read_start(self.family, warm, (count,))
        dtype = self.library.dtype
        # The solver has instances on the last axis.
        parts = (point.x, point.y, point.s)
        return tuple(None if a is None else np.ascontiguousarray(a.T, dtype) for a in parts)

    def _read_solution(self, slot: Slot, parameter: PyTree, clock: Clock) -> Solution:
        """Return what the slot's last solve ended with."""
        status, iterations, safeguarded, outside, *more = slot.integers.tolist()
        if status == BAD_INPUT:
            raise self._inputs.explain_refusal(self.family.single(parameter))
        x, y, s, rest = self.library.cuts
        out = slot.reals.copy()
        objective, primal, dual = out[rest:].tolist()
        ray_x = ray_y = None
        if status in INFEASIBLE:
            ray_x, ray_y = self._read_rays(slot, status)
        seen = self.solver.seen
        if seen is not None and not self.code.problem.mapped:
            outside = bool(seen.outside(self.family.encode(self.family.single(parameter)))[0])
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

    def _read_rays(self, slot: Slot, status: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the certificate of the slot's last solve, and NaN for the other one."""
        x = np.zeros(self.library.n, self.library.dtype)
        y = np.zeros(self.library.rows, self.library.dtype)
        self.library.ray(slot.work, x.ctypes.data, y.ctypes.data)
        absent = y if status == Status.DUAL_INFEASIBLE else x
        absent[:] = np.nan
        return x, y[: self.library.m]

    def _read_solutions(
        self,
        results: np.ndarray,
        values: np.ndarray,
        starts: _Starts,
        settings: Settings,
        parameters: PyTree,
        clock: Clock,
    ) -> Solution:
        """Return what the solves of a batch ended with."""
        found = self.library.read(results)
        status = found["status"]
        wrong = np.flatnonzero(status == BAD_INPUT)
        if wrong.size:
            raise self._inputs.explain_refusal(self.family.select(self.family.vectors(parameters), wrong[:1]))
        ray_x = ray_y = None
        infeasible = np.flatnonzero(np.isin(status, INFEASIBLE))
        if infeasible.size:
            shapes = (len(status), self.library.n), (len(status), self.library.m)
            ray_x, ray_y = (np.full(shape, np.nan, self.library.dtype) for shape in shapes)
            slot = Slot(self.library)
            slot.set(settings)
            # The workspace had other instances since; these few are solved again.
            for k in infeasible.tolist():
                slot.parameter[:] = values[k]
                start = _pick_start(starts, k)
                self.library.solve_from(slot.work, slot.settings_at, slot.parameter_at, _locate(start), slot.result_at)
                ray_x[k], ray_y[k] = self._read_rays(slot, int(status[k]))
        seen = self.solver.seen
        if seen is None:
            found["outside"] = None
        elif not self.code.problem.mapped:
            found["outside"] = np.asarray(seen.outside(self.family.encode(self.family.vectors(parameters))), bool)
        return Solution(**found, ray_x=ray_x, ray_y=ray_y, time=clock.elapsed(), layout=self._layout)

    @override
    def __repr__(self) -> str:
        return f"CompiledSolver({self.solver!r}, {self.precision}, {self.code.linear.words})"


def _form_of(code: Code) -> Form:
    """Return what a library must know of the code that it was built from."""
    problem = code.problem
    return Form(
        prefix=code.prefix,
        precision=code.precision,
        n=problem.n,
        m=problem.constraints,
        size=problem.size,
        finish=problem.finish is not None,
        apart=code.linear.factors.size if code.apart else 0,
    )


def compile_solver(solver: SolverT, backend: str, precision: str, method: str) -> CompiledSolver | SolverT:
    """Return a solver in C, as `Solver.compile` does; without a compiler the solver itself, with a warning."""
    if backend != "c":
        raise ValueError(f"the only backend is 'c', got {backend!r}")
    try:
        return CompiledSolver(solver, precision, method, cache=True)
    except NoCompilerError as error:
        warnings.warn(f"{error}. The solver stays as it is, in JAX", stacklevel=3)
        return solver


def _pick_start(starts: _Starts, k: int) -> Start | None:
    """Return the start of instance k; None where there is none."""
    if starts[0] is None:
        return None
    return Start.of(*(None if a is None else a[k] for a in starts))


def _locate(start: Start | None) -> int | None:
    """Return the address of a start, which must be kept as long as it is used; None for none."""
    return None if start is None else ctypes.addressof(start)
