"""A compiled library as its header declares it: functions and layouts by cffi, and workspaces for the calls."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..engine.budget import Budget, Clock, check_tolerances
from ..engine.solution import Status
from ..errors import CompilerError
from .declarations import make_dtype, read_declarations

if TYPE_CHECKING:
    from ..families.point import Point

# What cffi points to; its fields are the header's, which Python's types do not know.
Pointer: TypeAlias = Any
# What the C code takes besides a parameter and a start, by the names that the header has for it.
SettingValues: TypeAlias = Mapping[str, float]

# Whole cache lines: vectors of a workspace then begin where those of another machine would.
_LINE = 64


def check_settings(
    *,
    eps_abs: float,
    eps_rel: float,
    eps_infeasible: float,
    max_iter: int,
    check_every: int,
    steps: int | None,
    time_limit: float | None = None,
) -> SettingValues:
    """Return what the C code takes, checked as the solver checks it."""
    budget = Budget(max_iter, steps, time_limit)
    check_tolerances(eps_abs, eps_rel, eps_infeasible, check_every)
    exactly = -1
    if budget.fixed:
        exactly = budget.max_iter
    return {
        "eps_abs": eps_abs,
        "eps_rel": eps_rel,
        "eps_infeasible": eps_infeasible,
        "max_iter": budget.max_iter,
        "check_every": check_every,
        "steps": exactly,
    }


def locate_factors(path: Path) -> Path:
    """Return the file with the factors of a library, which it has where they are large."""
    return path.with_suffix(".factors")


def locate_declarations(path: Path) -> Path:
    """Return the file with what the header of a library declares."""
    return path.with_suffix(".py")


class Library:
    """One compiled solver, as its header declares it.

    Calls release the interpreter; each needs a workspace of its own.
    """

    def __init__(self, path: Path):
        self.path = path
        self.ffi = read_declarations(locate_declarations(path))
        # The functions live as long as this does.
        self.calls: Any = self.ffi.dlopen(str(path))
        self.n: int = self.calls.LONGSTEP_UNKNOWNS
        self.m: int = self.calls.LONGSTEP_CONSTRAINTS
        self.size: int = self.calls.LONGSTEP_PARAMETERS
        self.refused: int = self.calls.LONGSTEP_BAD_INPUT
        self.dtype = make_dtype(self.ffi, "longstep_real")
        self.result = make_dtype(self.ffi, "longstep_result")
        self.workspace_bytes: int = self.calls.longstep_workspace_bytes()
        self.result_bytes: int = self.calls.longstep_result_bytes()
        if (self.workspace_bytes, self.result_bytes) != (self.ffi.sizeof("longstep_workspace"), self.result.itemsize):
            raise CompilerError(f"the compiler of {path} lays out structs as cffi does not. Set CC to another one")
        # Code without a finish does not count its changes.
        self.finishes = "changes" in (self.result.names or ())
        factors = locate_factors(path)
        if factors.exists():
            self.calls.longstep_place_factors(self.locate("real", _map_factors(factors, self.dtype)))

    def locate(self, kind: str, array: np.ndarray | None) -> Pointer:
        """Return a pointer of one of the header's types to an array, which it keeps; NULL for none."""
        if array is None:
            return self.ffi.NULL
        return self.ffi.from_buffer(f"longstep_{kind} *", array)  # type: ignore

    def read(self, results: np.ndarray) -> dict[str, Any]:
        """Return what result structs (N,) hold, by the names of a Solution's fields, which are the header's."""
        found: dict[str, Any] = {name: np.ascontiguousarray(results[name]) for name in self.result.names or ()}
        # C has no arrays without entries.
        found.update(y=found["y"][:, : self.m], s=found["s"][:, : self.m])
        found.update(safeguarded=found["safeguarded"] > 0, outside=found["outside"] > 0)
        if not self.finishes:
            found["changes"] = np.full(len(results), -1)
        return found


class Slot:
    """One workspace with the buffers around it, for one call at a time."""

    def __init__(self, library: Library):
        ffi = library.ffi
        self.library = library
        memory = np.zeros(library.workspace_bytes + _LINE, np.uint8)
        self.work = library.locate("workspace", memory[-memory.ctypes.data % _LINE :])
        self.settings: Pointer = ffi.new("longstep_settings *")
        self._set: SettingValues | None = None
        self.parameter = np.zeros(library.size, library.dtype)
        self._parameter_at = library.locate("real", self.parameter)
        # The result twice, in the same memory: its numbers one by one, and its vectors.
        self.result = np.zeros((), library.result)
        self.ended = library.locate("result", self.result)
        self.vectors = (self.result["x"], self.result["y"][: library.m], self.result["s"][: library.m])
        # Where a warm start goes: x, y and s in a row.
        sizes = (library.n, library.m, library.m)
        self._start = np.zeros(sum(sizes), library.dtype)
        self._parts = np.split(self._start, np.cumsum(sizes)[:-1])
        self._places = [library.locate("real", part) for part in self._parts]
        self._start_at: Pointer = ffi.new("longstep_start *")
        self._solve_from = library.calls.longstep_solve_from

    def set(self, settings: SettingValues) -> None:
        """Write the settings, where they are not those of the last call."""
        if settings is not self._set:
            self._set = None
            self.settings[0] = settings
            self._set = settings

    def load_start(self, point: object) -> Pointer:
        """Take x, y and s of a start, the latter two perhaps absent; return where they are, NULL for an odd start."""
        null = self.library.ffi.NULL
        given = (getattr(point, "x", None), getattr(point, "y", None), getattr(point, "s", None))
        if given[0] is None:
            return null
        places = list(self._places)
        for k, (value, part) in enumerate(zip(given, self._parts, strict=True)):
            if value is None:
                part[:] = 0
                places[k] = null
            elif type(value) is np.ndarray and value.shape == part.shape and value.dtype.kind == "f":
                part[:] = value
            else:
                return null
        if not np.isfinite(self._start).all():
            return null
        self._start_at[0] = places
        return self._start_at

    def solve(self, start: Pointer) -> None:
        """Solve the instance whose parameter is here, from a start that was loaded or NULL."""
        self._solve_from(self.work, self.settings, self._parameter_at, start, self.ended)

    def solve_timed(self, start: Pointer, clock: Clock) -> None:
        """Solve in chunks of steps that are short against any sensible limit, with a look at the clock between."""
        calls = self.library.calls
        clock.start()
        chunk = max(self.settings.check_every, 20)
        left = self.settings.max_iter
        status = calls.longstep_begin(self.work, self.settings, self._parameter_at, start)
        while status == Status.RUNNING and left > 0 and not clock.has_passed():
            status = calls.longstep_advance(self.work, self.settings, chunk)
            left -= chunk
        calls.longstep_finish(self.work, self.settings, self.ended)

    def solve_many(self, values: np.ndarray, start: "Point | None", results: np.ndarray) -> None:
        """Solve instances one after the other; their parameters (N, size) and starts (N, …) are of its numbers."""
        locate = self.library.locate
        places = [locate("real", part) for part in (values, *(getattr(start, name, None) for name in "xys"))]
        solve_many = self.library.calls.longstep_solve_many
        solve_many(self.work, self.settings, len(values), *places, locate("result", results))

    def read_rays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the certificate of the last solve, which was infeasible, and NaN for the other one."""
        x, y, _ = (np.zeros_like(self.result[name]) for name in "xys")
        self.library.calls.longstep_ray(self.work, self.library.locate("real", x), self.library.locate("real", y))
        absent = x
        if self.ended.status == Status.DUAL_INFEASIBLE:
            absent = y
        absent[:] = np.nan
        return x, y[: self.library.m]


@functools.cache
def _map_factors(path: Path, dtype: np.dtype) -> np.ndarray:
    """Return the numbers of a file as they lie there. They stay in memory, as the library that points to them does."""
    return np.memmap(path, dtype, "r")
