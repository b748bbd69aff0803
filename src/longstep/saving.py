"""Saving and loading solvers: the family's data, the algorithm's name and the schedule. Factors are made again."""

import functools
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeGuard, TypeVar

import numpy as np
import scipy.sparse as sp

from ._util import memory, storage
from ._util.optional import map_given
from .algorithms.base import Algorithm
from .algorithms.registry import BY_NAME
from .cones.product import Cones
from .engine.budget import MOST_STEPS
from .engine.finisher import Patience
from .engine.rungs import LadderUse
from .engine.start import LearnedStart, check_start
from .errors import FileFormatError
from .families.affine import Affine
from .families.base import Family
from .families.composite import Composite
from .families.conic import Conic
from .families.names import Layout
from .families.parameter_range import Seen
from .families.quadratic_program import QP
from .families.smooth import Quadratic
from .linalg.matrix import LONGEST, ArrayLike2D
from .linalg.prox import L1, Box, NonNegative, Prox, Zero
from .schedules.schedule import Schedule

VERSION = 1
_KIND = "solver"
Made = TypeVar("Made")
# Columns that a matrix may have in the smallest file, and one more for every byte of a larger one: without a bound a
# few bytes that name a shape would fill the memory. A file has the range of every entry of a parameter that was seen.
_COLUMNS = 2**20
# Bytes that are needed, about, to build what a family keeps of a column, and of an entry of a dense block.
_COLUMN_BYTES = 64
_ENTRY_BYTES = 24
_PROXES: dict[str, type[Prox]] = {p.__name__: p for p in (Zero, L1, NonNegative, Box)}


@dataclass(frozen=True)
class Parts:
    """What a solver is made of, and all that a file holds of it; `record`, `seen` and `start` are its training's."""

    family: Family
    algorithm: Algorithm
    schedule: Schedule
    safeguard: Literal["block", "step"] | None
    factors: Literal["float32", "float64"] | None
    ladder: LadderUse
    finish: int | None
    patience: Patience | None
    record: dict[str, Any] | None
    seen: Seen | None
    start: LearnedStart | None


# What a file says of a family besides its arrays; how Schedule and Cones are told is their own matter.
Description: TypeAlias = dict[str, Any]


def save_parts(parts: Parts, path: Path) -> None:
    """Write the parts of a solver atomically. A family made of Python functions is stored by its hash alone."""
    name = type(parts.algorithm).__name__
    if BY_NAME.get(name) is not type(parts.algorithm):
        raise TypeError(f"{name} is not one of longstep's algorithms, so a file could not name it")
    arrays: dict[str, np.ndarray] = {}
    metadata = {
        "algorithm": name,
        "schedule": parts.schedule.to_json(),
        "safeguard": parts.safeguard,
        "factors": parts.factors,
        "ladder": parts.ladder,
        "finish": parts.finish,
        "patience": parts.patience,
        "training": parts.record,
        "seen": None,
        "family": _describe(parts.family, arrays),
        "family_hash": parts.family.content_hash(),
        "functions": "source",
    }
    if fields := parts.algorithm.fields():
        metadata["algorithm_fields"] = fields
    if parts.seen is not None:
        metadata["seen"] = parts.seen.lone
        arrays |= {f"seen.{end}": getattr(parts.seen, end) for end in _ENDS}
    if parts.start is not None:
        arrays |= {f"start.{name}": getattr(parts.start, name) for name in _START}
    storage.write(path, _KIND, VERSION, arrays, metadata)


def load_parts(path: Path, family: Family | None) -> Parts:
    """Read the parts of a solver; `family` is needed where the file has none, and must be the one it was saved with."""
    arrays, metadata = storage.read(path, _KIND, VERSION)
    description: Description | None = metadata.get("family")
    if family is not None:
        known = family
    elif description is not None:
        known = checked(path, "the family", lambda: _build(description, arrays))
    else:
        raise ValueError(
            f"{path} was saved with a family made of Python functions, which no file holds. "
            "Make the same family and pass it: Solver.load(path, family=family)"
        )
    if description is None and metadata.get("functions") != "source":
        # 0.1 hashed functions by their bytecode, which every Python writes differently.
        warnings.warn(
            f"{path} is of longstep 0.1: whether the family passed is the one it was saved with cannot be checked",
            stacklevel=4,
        )
    elif known.content_hash() != metadata.get("family_hash"):
        raise FileFormatError(f"the family passed is not the one {path} was saved with: their data differ")
    return checked(path, "the solver", lambda: _build_parts(path, known, metadata, arrays))


def checked(path: Path, what: str, make: Callable[[], Made]) -> Made:
    """Return what `make` makes of the content of a file; content that nothing can be made of is the file's fault."""
    try:
        return make()
    except FileFormatError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path} is damaged: {what} in it cannot be made ({reason})") from None


def _build_parts(path: Path, family: Family, metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Parts:
    algorithm = BY_NAME.get(metadata["algorithm"])
    if algorithm is None:
        raise FileFormatError(f"{path} names the algorithm {metadata['algorithm']!r}, which this longstep lacks")
    schedule = Schedule.from_json(metadata["schedule"])
    return Parts(
        family=family,
        algorithm=algorithm(**metadata.get("algorithm_fields", {})),
        schedule=schedule,
        safeguard=metadata.get("safeguard", "block"),
        factors=metadata.get("factors"),
        # Files of 0.1 have none.
        ladder=metadata.get("ladder", False),
        finish=_read_finish(path, metadata.get("finish")),
        patience=_read_patience(path, metadata.get("patience")),
        record=_read_record(path, metadata.get("training"), schedule.names),
        seen=_read_seen(family, metadata.get("seen"), arrays),
        start=_read_start(family, algorithm.starts_from_rows, arrays),
    )


def _read_finish(path: Path, kept: object) -> int | None:
    if kept is None or _is_steps(kept):
        return kept
    raise FileFormatError(f"{path} is damaged: its finish is {kept!r}, not a number of steps")


def _read_patience(path: Path, kept: object) -> Patience | None:
    if kept is None:
        return None
    if _is_patience(kept):
        return Patience(*kept)
    raise FileFormatError(f"{path} is damaged: its patience is {kept!r}, not a tolerance and a number of steps")


def _is_patience(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) == 2 and _is_number(value[0]) and _is_steps(value[1])


def _read_switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, neither true nor false")
    return value


def _is_steps(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_STEPS


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


# What is read of a record of training later, and what it must be; all else is the user's to look at.
_RECORD: dict[str, Callable[[Any], bool]] = {
    "finish": _is_steps,
    "patience": _is_patience,
    "proximal": lambda value: _is_number(value) and 0 < value <= 1,
    "instance_hashes": _is_texts,
    "constant": lambda values: isinstance(values, dict) and all(map(_is_number, values.values())),
    "method": lambda value: isinstance(value, str),
    "kept": lambda value: isinstance(value, str),
    "instances": _is_steps,
    "seconds": _is_number,
    "seed": _is_number,
    "versions": lambda values: isinstance(values, dict) and _is_texts([*values.values()]),
}


def _read_record(path: Path, record: object, names: Collection[str]) -> dict[str, Any] | None:
    """Return the record of training, of which whatever anyone reads is what it must be."""
    if record is None:
        return None
    if not isinstance(record, dict):
        raise FileFormatError(f"{path} is damaged: its record of training is a {type(record).__name__}")
    for name, fits in _RECORD.items():
        if name in record and not fits(record[name]):
            raise FileFormatError(f"{path} is damaged: {name} in its record of training is {str(record[name])[:50]!r}")
    if foreign := set(record.get("constant", ())) - set(names):
        raise FileFormatError(f"{path} is damaged: its record has a constant for {', '.join(sorted(foreign))}")
    return record


# What a file keeps of the range that training saw.
_ENDS = ("low", "second", "before", "high")


def _read_seen(family: Family, kept: float | None, arrays: Mapping[str, np.ndarray]) -> Seen | None:
    if kept is None:
        return None
    ends = {end: arrays[f"seen.{end}"] for end in _ENDS if f"seen.{end}" in arrays}
    size = len(ends["low"])
    if (mapped := getattr(family, "parameter", None)) is not None:
        size = mapped.size
    if any(end.dtype != np.float64 or end.shape != (size,) or np.isnan(end).any() for end in ends.values()):
        raise FileFormatError("the range that training saw does not fit the family's parameters")
    if not _is_number(kept) or kept < 0:
        raise FileFormatError(f"the range that training saw has {str(kept)[:50]!r} where there should be a number")
    if "second" not in ends:
        return Seen.of_box(ends["low"], ends["high"], float(kept))
    return Seen(**ends, lone=int(kept))


# The arrays of a start from the parameter.
_START = ("weights", "offset", "rho", "low", "high")


def _read_start(family: Family, starts_from_rows: bool, arrays: Mapping[str, np.ndarray]) -> LearnedStart | None:
    found = {name: arrays[f"start.{name}"] for name in _START if f"start.{name}" in arrays}
    if not found:
        return None
    if any(array.dtype != np.float64 for array in found.values()):
        raise FileFormatError("the start in the file is not of numbers in float64")
    start = LearnedStart(**found)
    check_start(start, family, starts_from_rows)
    return start


class _Writer:
    """Puts arrays under a prefix and remembers what is absent."""

    def __init__(self, arrays: dict[str, np.ndarray], prefix: str = ""):
        self.arrays = arrays
        self.prefix = prefix

    def vector(self, name: str, value: np.ndarray | None) -> None:
        if value is not None:
            self.arrays[self.prefix + name] = np.asarray(value)

    def matrix(self, name: str, value: ArrayLike2D) -> None:
        csr = sp.csr_array(value)
        self.vector(f"{name}.data", csr.data)
        self.vector(f"{name}.indices", csr.indices.astype(np.int64))
        self.vector(f"{name}.indptr", csr.indptr.astype(np.int64))
        self.vector(f"{name}.shape", np.array(csr.shape, np.int64))

    def parameter(self, value: Affine | None) -> None:
        if value is not None:
            for name, matrix in value.matrices.items():
                self.matrix(f"parameter.{name}", matrix)


class _Reader:
    """Takes arrays by name, checked."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.most_columns = _COLUMNS + sum(array.nbytes for array in arrays.values())

    def vector(self, name: str) -> np.ndarray | None:
        found = self.arrays.get(name)
        if found is not None and (found.ndim != 1 or found.dtype.kind not in "fb"):
            raise FileFormatError(f"{name} in the file is not a vector of numbers, but {found.dtype} {found.shape}")
        return found

    def matrix(self, name: str) -> sp.csr_array:
        """Return a sparse matrix whose every index was looked at: SciPy trusts them, and reads beyond its end."""
        data, indices, indptr, shape = (self.arrays[f"{name}.{p}"] for p in ("data", "indices", "indptr", "shape"))
        kinds = (data.dtype.kind, indices.dtype.kind, indptr.dtype.kind, shape.dtype.kind)
        if kinds != ("f", "i", "i", "i") or any(a.ndim != 1 for a in (data, indices, indptr, shape)) or len(shape) != 2:
            raise FileFormatError(f"{name} in the file is not a sparse matrix")
        rows, columns = (int(size) for size in shape)
        fits = len(indptr) == rows + 1 and len(data) == len(indices) and 0 <= columns <= self.most_columns
        if not fits or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
            raise FileFormatError(f"the rows of {name} in the file do not fit its shape {rows}×{columns}")
        if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
            raise FileFormatError(f"{name} in the file has an entry outside its {columns} columns")
        dense = int((np.diff(indptr) > LONGEST).sum()) * columns
        memory.require(_COLUMN_BYTES * columns + _ENTRY_BYTES * dense, f"{name}, {rows}×{columns},", "")
        return sp.csr_array((data, indices, indptr), shape=(rows, columns))

    def parameter(self, names: list[str]) -> Affine | None:
        if not names:
            return None
        return Affine(**{name: self.matrix(f"parameter.{name}") for name in names})


@functools.singledispatch
def _describe(family: Family, arrays: dict[str, np.ndarray]) -> Description | None:
    """Return the family as JSON, its arrays put aside; None for one that a file cannot hold."""
    return None


@_describe.register
def _(family: QP, arrays: dict[str, np.ndarray]) -> Description:
    writer = _put_constrained(family, arrays, ("q", "l", "u"))
    writer.vector("equalities", family.host.kinds.equality)
    writer.vector("free", family.host.kinds.is_free)
    return {**_describe_common(family), "type": "QP", "equilibrate": family.host.equilibrate}


@_describe.register
def _(family: Conic, arrays: dict[str, np.ndarray]) -> Description:
    _put_constrained(family, arrays, ("b", "c"))
    cones = family.cones.to_json()
    return {**_describe_common(family), "type": "Conic", "equilibrate": family.host.equilibrate, "cones": cones}


@_describe.register
def _(family: Quadratic, arrays: dict[str, np.ndarray]) -> Description:
    writer = _Writer(arrays)
    writer.matrix("P", family.P)
    writer.vector("q", family.host.q)
    writer.parameter(family.parameter)
    return {**_describe_common(family), "type": "Quadratic", "lower_bound": family.lower_bound}


@_describe.register
def _(family: Composite, arrays: dict[str, np.ndarray]) -> Description | None:
    smooth = _describe(family.smooth, arrays)
    name = type(family.g).__name__
    if smooth is None or _PROXES.get(name) is not type(family.g):
        arrays.clear()
        return None
    values = {key: np.asarray(value).tolist() for key, value in vars(family.g).items()}
    return {"type": "Composite", "smooth": smooth, "prox": name, "values": values}


def _put_constrained(family: "QP | Conic", arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> _Writer:
    writer = _Writer(arrays)
    writer.matrix("P", family.P)
    writer.matrix("A", family.A)
    for name in names:
        writer.vector(name, family.host.values[name])
    writer.parameter(family.parameter)
    return writer


def _describe_common(family: QP | Conic | Quadratic) -> Description:
    layout = family.layout
    parameter = []
    if family.parameter is not None:
        parameter = list(family.parameter.matrices)
    return {"layout": map_given(Layout.to_json, layout), "dtype": str(family.dtype), "parameter": parameter}


def _build(description: Description, arrays: Mapping[str, np.ndarray]) -> Family:
    """Return the family that a file describes."""
    reader = _Reader(arrays)
    kind = description["type"]
    if kind == "Composite":
        prox = _PROXES[description["prox"]](**description["values"])
        smooth = _build(description["smooth"], arrays)
        if not isinstance(smooth, Quadratic):
            raise FileFormatError("the smooth part of the family in the file is no quadratic")
        return Composite(smooth, prox)
    common: dict[str, Any] = {
        "parameter": reader.parameter(description["parameter"]),
        "dtype": description["dtype"],
    }
    if kind == "Quadratic":
        lower = description["lower_bound"]
        return Quadratic(reader.matrix("P"), q=reader.vector("q"), lower_bound=lower, **common)
    if description.get("layout") is not None:
        common["layout"] = Layout.from_json(description["layout"])
    common["equilibrate"] = _read_switch("equilibrate", description["equilibrate"])
    if kind == "QP":
        bounds = {name: reader.vector(name) for name in ("q", "l", "u", "equalities", "free")}
        return QP(reader.matrix("P"), reader.matrix("A"), **bounds, **common)
    if kind == "Conic":
        cones = Cones(**description["cones"])
        b = reader.vector("b")
        c = reader.vector("c")
        return Conic(reader.matrix("P"), reader.matrix("A"), cones, b=b, c=c, **common)
    raise FileFormatError(f"the file holds a family of type {kind!r}, which this longstep lacks")
