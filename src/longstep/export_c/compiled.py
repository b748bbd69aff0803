"""CompiledSolver: the generated C of a solver behind the solver's own `solve` and `solve_batch`."""

import functools
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from jaxtyping import PyTree
from typing_extensions import Unpack, override

from .._util.hashing import content_hash
from .._util.processes import require_threads
from ..algorithms.base import Algorithm
from ..engine.budget import Clock
from ..engine.history import History
from ..engine.measure import Measure
from ..engine.solution import INFEASIBLE, Solution, Status
from ..engine.start import read_start
from ..errors import NoCompilerError, NoRoomError
from ..families.point import Point
from ..schedules.schedule import Schedule
from ..streaming.sources import SourceLike
from ..streaming.stream import Options, SinkLike, stream
from ..streaming.tally import Tally
from .batch import Batch
from .build import build_library
from .code import Code, write_code
from .inputs import Inputs
from .library import Library, SettingValues, Slot, check_settings
from .problem import Generated
from .vectors import Constrained

_STATUS = tuple(Status)


class Compilable(Generated, Protocol):
    """What a compiled solver needs of the solver that it is made from."""

    @property
    def name(self) -> str:
        """Return a few words for tables and figures."""
        ...

    @property
    def record(self) -> Mapping[str, object] | None:
        """Return what is known of the schedule's training."""
        ...

    @property
    def solve(self) -> Callable[..., Solution]:
        """Return what solves one instance, with the options of `Solver.solve`."""
        ...

    @property
    def solve_batch(self) -> Callable[..., Solution]:
        """Return what solves many instances, with the options of `Solver.solve_batch`."""
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
        self.library = Library(build_library(self.code, cache))
        self._inputs = Inputs(self.family, self.code.problem, self.library.dtype)
        self._slots: list[Slot] = []
        # What was asked of the last solve, and what the C code takes for it.
        self._checked: tuple[tuple[float | None, ...], SettingValues] = ((), {})
        self._layout = self.family.layout
        self._made_with = (solver, precision, method, cache)

    @override
    def __reduce__(self) -> "tuple[type[CompiledSolver], tuple[Compilable, str, str, str | Path | bool]]":
        """Pickle what it was made with: a copy in another process is compiled there, or taken from the cache."""
        return CompiledSolver, self._made_with

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that was compiled."""
        return self.solver.schedule

    @property
    def algorithm(self) -> Algorithm:
        """Return the algorithm that was compiled."""
        return self.solver.algorithm

    @property
    def finish(self) -> int | None:
        """Return after how many steps the finish is first tried; None where the code has none."""
        return self.code.problem.finish

    @property
    def record(self) -> Mapping[str, object] | None:
        """Return what is known of the schedule's training."""
        return self.solver.record

    @property
    def name(self) -> str:
        """Return the name of the solver, and what it was compiled for."""
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
        """Return what measures residuals and objectives of points."""
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
        slot = self._take_slot()
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
            start = self.library.ffi.NULL
            if warm_start is not None:
                # What is odd is refused by the solver, or made into what it means.
                start = slot.load_start(warm_start) or slot.load_start(read_start(self.family, warm_start, ()))
            if time_limit is None:
                slot.solve(start)
            else:
                slot.solve_timed(start, clock)
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
        if len(values) == 0:
            raise ValueError("the batch is empty")
        batch = Batch(self.library, settings, values, self._load_starts(warm_start, len(values)))
        return self._read_solutions(batch, batch.solve(threads, clock), parameters, clock)

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
    ) -> SettingValues:
        """Return what the C code takes, checked as the solver checks it; what was asked last is checked already."""
        asked = (eps_abs, eps_rel, eps_infeasible, max_iter, check_every, steps, time_limit)
        last, settings = self._checked
        if asked == last:
            return settings
        if eps_infeasible is None:
            eps_infeasible = self.code.problem.eps_infeasible
        settings = check_settings(
            eps_abs=eps_abs,
            eps_rel=eps_rel,
            eps_infeasible=eps_infeasible,
            max_iter=max_iter,
            check_every=check_every,
            steps=steps,
            time_limit=time_limit,
        )
        least = self.code.least_eps
        if steps is None and eps_abs < least and eps_rel < least:
            raise ValueError(
                f"eps_abs = {eps_abs:g} and eps_rel = {eps_rel:g} are both less than {least:g}, which single precision "
                'does not reach. Loosen one of them, or use precision="double"'
            )
        self._checked = asked, settings
        return settings

    def _take_slot(self) -> Slot:
        """Return a slot that nobody else has: taken and put back in one operation each, so that threads share none."""
        try:
            return self._slots.pop()
        except IndexError:
            return Slot(self.library)

    def _load_starts(self, warm: "Solution | Point | None", count: int) -> Point | None:
        """Return the starts of a batch in this precision, checked by the solver, with the instances first."""
        if warm is None:
            return None
        # The solver has instances on the last axis.
        columns = read_start(self.family, warm, (count,))
        return columns.map(lambda a: np.ascontiguousarray(a.T, self.library.dtype))

    def _read_solution(self, slot: Slot, parameter: PyTree, clock: Clock) -> Solution:
        """Return what the slot's last solve ended with."""
        ended = slot.ended
        status = ended.status
        if status == self.library.refused:
            raise self._inputs.explain_refusal(self.family.batch_one(parameter))
        x, y, s = slot.vectors
        ray_x = ray_y = None
        if status in INFEASIBLE:
            ray_x, ray_y = slot.read_rays()
        changes = -1
        if self.library.finishes:
            changes = ended.changes
        seen = self.solver.seen
        outside = None
        if seen is not None and self.code.problem.mapped:
            outside = ended.outside > 0
        elif seen is not None:
            outside = bool(seen.find_outside(self.family.encode(self.family.batch_one(parameter)))[0])
        return Solution(
            x=x.copy(),
            y=y.copy(),
            s=s.copy(),
            objective=ended.objective,
            status=_STATUS[status],
            iterations=ended.iterations,
            safeguarded=ended.safeguarded > 0,
            primal_residual=ended.primal_residual,
            dual_residual=ended.dual_residual,
            ray_x=ray_x,
            ray_y=ray_y,
            time=clock.measure_elapsed(),
            outside=outside,
            changes=changes,
            layout=self._layout,
        )

    def _read_solutions(self, batch: Batch, results: np.ndarray, parameters: PyTree, clock: Clock) -> Solution:
        """Return what the solves of a batch ended with."""
        found = self.library.read(results)
        status = found["status"]
        refused = np.flatnonzero(status == self.library.refused)
        if refused.size:
            raise self._inputs.explain_refusal(self.family.select(self.family.vectors(parameters), refused[:1]))
        ray_x, ray_y = batch.find_rays(status)
        seen = self.solver.seen
        if seen is None:
            found["outside"] = None
        elif not self.code.problem.mapped:
            found["outside"] = np.asarray(seen.find_outside(self.family.encode(self.family.vectors(parameters))), bool)
        return Solution(**found, ray_x=ray_x, ray_y=ray_y, time=clock.measure_elapsed(), layout=self._layout)

    @override
    def __repr__(self) -> str:
        return f"CompiledSolver({self.solver!r}, {self.precision}, {self.code.linear.words})"


def compile_solver(solver: SolverT, backend: str, precision: str, method: str) -> CompiledSolver | SolverT:
    """Return a solver in C, as `Solver.compile` does; without a compiler or room on disk the solver itself."""
    if backend != "c":
        raise ValueError(f"the only backend is 'c', got {backend!r}")
    try:
        return CompiledSolver(solver, precision, method, cache=True)
    except (NoCompilerError, NoRoomError) as error:
        warnings.warn(f"{error}. The solver stays as it is, in JAX", stacklevel=3)
        return solver
