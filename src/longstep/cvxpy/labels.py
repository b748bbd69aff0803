"""Which constraint of a CVXPY problem each row of its family belongs to, by CVXPY's own way back from multipliers."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_LONG_NUMBER = re.compile(r"\d+\.\d{5,}")
# Constraints are written out in full, constants included: more than this is not read.
_LONGEST = 60


class RowName(NamedTuple):
    """The constraint that a row belongs to, and the entry of it that the row is; "" where either is not known."""

    constraint: str
    entry: str


def name_rows(
    constraints: Mapping[int, str], count: int, invert: Callable[[Float[np.ndarray, " rows"]], Mapping[int, object]]
) -> list[RowName]:
    """Return the names of `count` rows; `invert` makes dual values by constraint id of one multiplier for each row.

    Every entry of a dual value is a multiple of one row's multiplier. The number of that row is read bit by bit: for
    each bit the rows that have it get a multiplier of one, all others zero.
    """
    numbers = np.arange(1, count + 1)
    found: dict[int, np.ndarray] = {}
    for bit in range(count.bit_length()):
        duals = invert(((numbers >> bit) & 1).astype(np.float64))
        for key in constraints:
            if key in duals:
                has = np.where(_flatten(duals[key]) != 0, 1 << bit, 0)
                found[key] = found.get(key, np.zeros(has.shape, int)) + has
    names = [RowName("", "")] * count
    for key, text in constraints.items():
        places = found.get(key, np.zeros(0, int))
        for index in np.ndindex(places.shape):
            # Zero is no row; a number beyond the last is a mixture of several.
            if 1 <= places[index] <= count:
                names[places[index] - 1] = RowName(text, _show_index(index))
    return names


def join_names(first: RowName, second: RowName | None) -> RowName:
    """Return the name of a row that bounds an expression from both sides, out of those of the sides."""
    if second is None or not second.constraint:
        return first
    return RowName(f"{first.constraint} and {second.constraint}", first.entry)


def make_distinct(texts: Sequence[str]) -> list[str]:
    """Return what constraints are called: on one line, cut where it is long, and numbered where two read the same."""
    short = []
    for text in texts:
        line = _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.4g}", " ".join(text.split()))
        if len(line) > _LONGEST:
            line = f"{line[: _LONGEST - 1]}…"
        short.append(line)
    seen: dict[str, int] = {}
    names = []
    for text in short:
        seen[text] = seen.get(text, 0) + 1
        name = text
        if seen[text] > 1:
            name = f"{text} ({seen[text]})"
        names.append(name)
    return names


def _flatten(value: object) -> np.ndarray:
    """Return a dual value as one array; of a cone with several parts, these one after another."""
    if isinstance(value, list | tuple):
        return np.concatenate([np.asarray(part, np.float64).ravel() for part in value])
    return np.asarray(value, np.float64)


def _show_index(index: tuple[int, ...]) -> str:
    if not index:
        return ""
    return f"[{','.join(map(str, index))}]"
