"""A compiled library behind ctypes: workspaces with their buffers, and the calls."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import emit

# `<prefix>_status` has the values of `Status`, and two more.
BAD_INPUT = 7
BAD_TOLERANCE = 8


class Start(ctypes.Structure):
    """`<prefix>_start`, which keeps the arrays that it points to."""

    _fields_ = (("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("s", ctypes.c_void_p))
    kept: tuple[np.ndarray | None, ...]

    @staticmethod
    def of(*arrays: np.ndarray | None) -> "Start":
        """Return the start at x, y and s; the latter two may be absent."""
        start = Start(*(None if a is None else a.ctypes.data for a in arrays))
        start.kept = arrays
        return start


class Settings(NamedTuple):
    """What the C code takes besides a parameter and a start; `steps` is −1 where it stops at tolerances."""

    eps_abs: float
    eps_rel: float
    eps_infeasible: float
    max_iter: int
    check_every: int
    steps: int


class SettingsStructure(ctypes.Structure):
    """`<prefix>_settings`; a subclass for each precision has the fields."""

    eps_abs: float
    eps_rel: float
    eps_infeasible: float
    max_iter: int
    check_every: int
    steps: int


@dataclass(frozen=True)
class Form:
    """What a library must know of the code that it was built from: names, numbers and the sizes of its vectors.

    `apart` numbers of its factors lie in a file beside it.
    """

    prefix: str
    precision: str
    n: int
    m: int
    size: int
    finish: bool
    apart: int = 0


def locate_factors(path: Path) -> Path:
    """Return the file with the factors of a library, which it has where they are large."""
    return path.with_suffix(".factors")


@functools.cache
def _map_factors(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    """Return the numbers of a file as they lie there. They stay in memory, as the library that points to them does."""
    return np.memmap(path, dtype, "r", shape=(count,))


class Library:
    """The functions of one compiled solver. Calls release the interpreter; each needs a workspace of its own."""

    solve_from: Callable[..., int]
    begin: Callable[..., int]
    advance: Callable[..., int]
    finish: Callable[..., int]
    solve_many: Callable[..., None]
    ray: Callable[..., None]

    def __init__(self, path: Path, form: Form):
        self.form = form
        self.dtype = emit.REALS[form.precision].dtype
        self.settings_type = _make_settings_type(_REALS[form.precision])
        self.n = form.n
        self.m = form.m
        self.size = form.size
        self.rows = max(self.m, 1)
        self.reals = self.n + 2 * self.rows + 3
        # Status, iterations, safeguarded and outside, and with a finish the changes.
        self.integers = 4 + form.finish
        n = self.n
        m = self.m
        rows = self.rows
        self.cuts = slice(0, n), slice(n, n + m), slice(n + rows, n + rows + m), n + 2 * rows
        self.path = path
        pointer = ctypes.c_void_p
        # Kept: the functions live as long as the library does.
        self._library = library = ctypes.CDLL(str(path))
        arguments = {
            "solve_from": [pointer] * 5,
            "begin": [pointer] * 4,
            "advance": [pointer, pointer, ctypes.c_int32],
            "finish": [pointer] * 3,
            "solve_many": [pointer, pointer, ctypes.c_int32, *[pointer] * 5],
            "ray": [pointer] * 3,
        }
        for name, types in arguments.items():
            function = getattr(library, f"{form.prefix}_{name}")
            function.argtypes = types
            function.restype = None if name in ("solve_many", "ray") else ctypes.c_int
            setattr(self, name, function)
        if form.apart:
            place = getattr(library, f"{form.prefix}_place_factors")
            place.argtypes = [pointer]
            place.restype = None
            place(_map_factors(locate_factors(path), self.dtype, form.apart).ctypes.data)
        sizes = [getattr(library, f"{form.prefix}_{name}") for name in ("workspace_bytes", "result_bytes")]
        for function in sizes:
            function.restype = ctypes.c_size_t
        self.workspace_bytes, self.result_bytes = (int(function()) for function in sizes)

    def split(self, results: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the real numbers and the integers of result structs (N, bytes)."""
        width = self.reals * self.dtype.itemsize
        reals = np.ascontiguousarray(results[..., :width]).view(self.dtype)
        return reals, np.ascontiguousarray(results[..., width : width + 4 * self.integers]).view(np.int32)

    def read(self, results: np.ndarray) -> dict[str, Any]:
        """Return what result structs (N, bytes) hold, by the names of a Solution's fields."""
        reals, integers = self.split(results)
        status, iterations, safeguarded, outside, *more = (np.ascontiguousarray(a) for a in integers.T)
        x, y, s, rest = self.cuts
        return {
            "x": reals[:, x],
            "y": reals[:, y],
            "s": reals[:, s],
            "objective": reals[:, rest],
            "status": status,
            "iterations": iterations,
            "safeguarded": safeguarded > 0,
            "primal_residual": reals[:, rest + 1],
            "dual_residual": reals[:, rest + 2],
            "outside": np.asarray(outside, bool),
            "changes": more[0] if more else np.full(len(status), -1),
        }


class Slot:
    """One workspace with the buffers around it, for one call at a time."""

    def __init__(self, library: Library):
        # Whole cache lines: vectors of the workspace then begin where those of another machine would.
        self.memory = np.zeros(library.workspace_bytes + 64, np.uint8)
        base = self.memory.ctypes.data
        self.work = ctypes.c_void_p(base + (-base) % 64)
        self.settings = library.settings_type()
        self.settings_at = ctypes.c_void_p(ctypes.addressof(self.settings))
        self.parameter = np.zeros(library.size, library.dtype)
        self.parameter_at = ctypes.c_void_p(self.parameter.ctypes.data)
        self.result = np.zeros(library.result_bytes, np.uint8)
        self.result_at = ctypes.c_void_p(self.result.ctypes.data)
        width = library.reals * library.dtype.itemsize
        self.reals = self.result[:width].view(library.dtype)
        self.integers = self.result[width : width + 4 * library.integers].view(np.int32)
        # Where a warm start goes: x, y and s in a row.
        sizes = (library.n, library.m, library.m)
        self.start = np.zeros(sum(sizes), library.dtype)
        self.start_parts = np.split(self.start, np.cumsum(sizes)[:-1])
        self._addresses = [part.ctypes.data for part in self.start_parts]
        self.start_struct = Start(*self._addresses)
        self.start_at = ctypes.addressof(self.start_struct)
        self._last: Settings | None = None

    def load_start(self, point: object) -> int | None:
        """Take x, y and s of a start, the latter two perhaps absent; return their address, None for an odd start."""
        given = (getattr(point, "x", None), getattr(point, "y", None), getattr(point, "s", None))
        if given[0] is None:
            return None
        for value, part in zip(given, self.start_parts, strict=True):
            if value is None:
                part[:] = 0
            elif type(value) is np.ndarray and value.shape == part.shape and value.dtype.kind == "f":
                part[:] = value
            else:
                return None
        if not np.isfinite(self.start).all():
            return None
        s = self.start_struct
        s.x, s.y, s.s = (None if v is None else a for v, a in zip(given, self._addresses, strict=True))
        return self.start_at

    def set(self, settings: Settings) -> None:
        """Write the settings, where they are not those of the last call."""
        if settings != self._last:
            for name, value in zip(Settings._fields, settings, strict=True):
                setattr(self.settings, name, value)
            self._last = settings


_REALS = {"double": ctypes.c_double, "float": ctypes.c_float}


def _make_settings_type(real: type[ctypes.c_double] | type[ctypes.c_float]) -> type[SettingsStructure]:
    """Return `<prefix>_settings` with real numbers of this type."""
    types = {float: real, int: ctypes.c_int32}
    fields = [(name, types[kind]) for name, kind in Settings.__annotations__.items()]
    return type("Settings", (SettingsStructure,), {"_fields_": fields})
