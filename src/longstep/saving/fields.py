"""What a file of a solver holds besides the family: each field is looked at before it is used."""

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

import numpy as np

from ..engine.budget import MOST_STEPS
from ..engine.finisher import Patience
from ..engine.start import LearnedStart, check_start
from ..errors import FileFormatError
from ..families.base import Family
from ..families.parameter_range import Seen

Made = TypeVar("Made")


def make_or_refuse(path: Path, what: str, make: Callable[[], Made]) -> Made:
    """Return what `make` makes of the content of a file; content that nothing can be made of is the file's fault."""
    try:
        return make()
    except FileFormatError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path} is damaged: {what} in it cannot be made ({reason})") from None


def read_finish(path: Path, kept: object) -> int | None:
    """Return after how many steps the finish is first tried; None for never."""
    if kept is None or _is_steps(kept):
        return kept
    raise FileFormatError(f"{path} is damaged: its finish is {kept!r}, not a number of steps")


def read_patience(path: Path, kept: object) -> Patience | None:
    """Return the patience with loose tolerances; None where there is none."""
    if kept is None:
        return None
    if _is_patience(kept):
        return Patience(*kept)
    raise FileFormatError(f"{path} is damaged: its patience is {kept!r}, not a tolerance and a number of steps")


def _is_patience(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) == 2 and _is_number(value[0]) and _is_steps(value[1])


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


def read_record(path: Path, record: object, names: Collection[str]) -> dict[str, Any] | None:
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
ENDS = ("low", "second", "before", "high")


def read_seen(family: Family, kept: float | None, arrays: Mapping[str, np.ndarray]) -> Seen | None:
    """Return the range of parameters that training saw."""
    if kept is None:
        return None
    ends = {end: arrays[f"seen.{end}"] for end in ENDS if f"seen.{end}" in arrays}
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
START = ("weights", "offset", "rho", "low", "high")


def read_start(family: Family, starts_from_rows: bool, arrays: Mapping[str, np.ndarray]) -> LearnedStart | None:
    """Return the start from the parameter."""
    found = {name: arrays[f"start.{name}"] for name in START if f"start.{name}" in arrays}
    if not found:
        return None
    if any(array.dtype != np.float64 for array in found.values()):
        raise FileFormatError("the start in the file is not of numbers in float64")
    start = LearnedStart(**found)
    check_start(start, family, starts_from_rows)
    return start
