"""What the columns of a user's table are called, and which entries of the parameters they are."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

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
        listed = [given] if isinstance(given, str) else list(given)
        if len(listed) != len(labels):
            entries = f"{len(labels)} entries ({list_names(labels)})"
            raise SamplesError(f"columns: {parameter!r} has {entries}, but {len(listed)} columns are named")
        meant.update(zip(listed, labels, strict=True))
    if len(meant) < sum(1 if isinstance(given, str) else len(given) for given in columns.values()):
        raise SamplesError("columns: one column is named for two entries")
    return meant


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names in quotes, and how many there are more."""
    rest = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(repr, names[:most]), *rest]) or "none"
