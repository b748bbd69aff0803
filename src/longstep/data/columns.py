"""What the columns of a user's table are called, and which entries of the parameters they are."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from .._util.nearest import suggest
from ..errors import SamplesError
from ..families.names import Layout

# None: as `layout.columns` calls them. A mapping: the columns of each parameter's entries, in the order of the entries.
# "position": the columns of the file in their order are `layout.columns`, whatever they are called.
Columns: TypeAlias = Mapping[str, str | Sequence[str]] | Literal["position"] | None


def rename_columns(names: Sequence[str], layout: Layout, columns: Columns) -> list[str]:
    """Return the names of a table's columns as the layout calls them; columns about something else keep theirs."""
    if columns is None:
        return list(names)
    if isinstance(columns, str):
        if columns != "position":
            raise ValueError(
                f"columns must be 'position', or a dict such as {{'price': 'EUR'}} that has the columns of a "
                f"parameter's entries, got {columns!r}"
            )
        if len(names) != layout.size:
            whole = list_names(layout.columns)
            raise SamplesError(
                f"there are {len(names)} columns, but the parameters have {layout.size} entries ({whole}): by position "
                "there must be one for each, and no other"
            )
        return layout.columns
    meant = _list_aliases(layout, columns)
    if missing := [name for name in meant if name not in names]:
        raise SamplesError(f"there is no column {list_names(missing)}; the file has {list_names(names, 10)}")
    return [meant.get(name, name) for name in names]


def _list_aliases(layout: Layout, columns: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """Return for the file's name of a column that of the layout."""
    meant: dict[str, str] = {}
    for parameter, given in columns.items():
        if parameter not in layout.parameters:
            near = suggest(parameter, layout.parameters)
            whole = ", ".join(layout.parameters)
            raise SamplesError(f"columns: {parameter!r} is no parameter{near or ';'} The parameters are {whole}")
        labels = layout.parameters[parameter].labels
        listed = list_given(given)
        if len(listed) != len(labels):
            entries = f"{len(labels)} entries ({list_names(labels)})"
            raise SamplesError(f"columns: {parameter!r} has {entries}, but {len(listed)} columns are named")
        meant.update(zip(listed, labels, strict=True))
    if len(meant) < sum(len(list_given(given)) for given in columns.values()):
        raise SamplesError("columns: one column is named for two entries")
    return meant


def list_given(given: str | Sequence[str]) -> list[str]:
    """Return the columns that a user names for a parameter: one, or several."""
    if isinstance(given, str):
        return [given]
    return list(given)


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names in quotes, and how many there are more."""
    words = [repr(name) for name in names[:most]]
    if len(names) > most:
        words.append(f"{len(names) - most} more")
    return ", ".join(words) or "none"


def choose_labels(names: Sequence[str], layout: Layout) -> list[str]:
    """Return the columns to read: all that are needed, in the layout's order, then those that say an entry again."""
    needed = layout.columns
    counts = Counter(names)
    if len(set(needed)) < len(needed):
        raise SamplesError("two entries of the parameters have the same name; rename one of the parameters")
    if missing := [label for label in needed if label not in counts]:
        hint = _hint_columns(names, layout)
        raise SamplesError(f"there is no column {list_names(missing)}; the file has {list_names(names, 10)}{hint}")
    again = set(counts).difference(needed)
    labels = needed + [name for name in counts if name in again and find_entry(name, layout)]
    if twice := [label for label in labels if counts[label] > 1]:
        raise SamplesError(f"there is more than one column {list_names(twice)}; keep one")
    return labels


def _hint_columns(names: Sequence[str], layout: Layout) -> str:
    """Return what to do about columns that have other names, where that is likely to be all that is wrong."""
    if len(names) == layout.size:
        return ". If they are in the order of the parameters' entries, say columns='position' (--columns position)"
    name = next(iter(layout.parameters))
    return f". Columns with other names are named by columns={{{name!r}: […], …}} (--columns {name}=NAME,NAME,…)"


def find_entry(label: str, layout: Layout) -> tuple[str, tuple[int, ...]] | None:
    """Return the parameter and the index in it that a column's name means; None for a column about something else."""
    match = re.fullmatch(r"(.*)\[(\d+(?:,\d+)*)\]", label)
    if match is None or match[1] not in layout.parameters:
        return None
    index = tuple(map(int, match[2].split(",")))
    shape = layout.parameters[match[1]].shape
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
        raise SamplesError(f"column {label!r} is no entry of the parameter {match[1]!r}, which has shape {shape}")
    return match[1], index


def name_values(layout: Layout, labels: Sequence[str], values: Float[np.ndarray, "N labels"]) -> dict[str, np.ndarray]:
    """Return columns as named arrays; entries that are there twice are kept as they are, for the layout to compare."""
    named = layout.split(values[:, : layout.size])
    for label, column in zip(labels[layout.size :], values.T[layout.size :], strict=True):
        if entry := find_entry(label, layout):
            named[entry[0]][(slice(None), *entry[1])] = column
    return named


def name_arrays(layout: Layout, names: list[str], read: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    """Return the values of the parameters: arrays by their names, one array `x`, or one for each column."""
    present = set(names)
    if present.issuperset(layout.parameters):
        return {name: read(name) for name in layout.parameters}
    if "x" in present and "x" not in layout.parameters and not present.intersection(layout.parameters):
        x = read("x")
        if x.ndim != 2 or x.shape[1] != layout.size:
            raise SamplesError(f"the array 'x' must have shape (N, {layout.size}), got {x.shape}")
        return layout.split(x)
    if present.intersection(layout.columns).difference(layout.parameters):
        labels = choose_labels(names, layout)
        columns = [read(label) for label in labels]
        if {c.shape for c in columns} != {(columns[0].size,)}:
            found = ", ".join(sorted({str(c.shape) for c in columns}))
            raise SamplesError(f"arrays that are columns must be vectors of one length, got {found}")
        return name_values(layout, labels, np.stack(columns, axis=1))
    missing = [name for name in layout.parameters if name not in present]
    raise SamplesError(f"there is no array {list_names(missing)}; the file has {list_names(names, 10)}")


def describe_empty(layout: Layout) -> SamplesError:
    """Return the error about a file with nothing in it."""
    return SamplesError(f"the file is empty; it needs values for {list_names(layout.columns)}")


def describe_damage(kind: str, error: Exception) -> SamplesError:
    """Return the error about a file that its library could not read."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return SamplesError(f"damaged, or no {kind} file ({reason}); write it again")
