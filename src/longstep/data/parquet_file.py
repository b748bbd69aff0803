"""Parquet files of parameters: which of their columns are read, and the numbers in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import SamplesError
from ..families.names import Layout
from .columns import Columns, choose_labels, describe_damage, rename_columns
from .tables import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BUFFER = 2**18


class Chosen(NamedTuple):
    """The columns to read: their labels as the layout has them, and their names in the file."""

    labels: list[str]
    names: list[str]


@contextmanager
def open_parquet(path: Path) -> "Iterator[pq.ParquetFile]":
    """Open a file for as long as the block runs; what pyarrow cannot read in it is refused, without the path."""
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    try:
        # Otherwise whole columns of a row group are held, and of all that were read before.
        with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise describe_damage("Parquet", error) from None


def choose_columns(schema: "pa.Schema", layout: Layout, columns: Columns) -> Chosen:
    """Return the columns of a file that hold parameters; refused where one is missing or holds no numbers."""
    pa = import_pyarrow()
    own = schema.names
    names = rename_columns(own, layout, columns)
    labels = choose_labels(names, layout)
    place = {name: j for j, name in enumerate(names)}
    numeric = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)
    for label in labels:
        kind = schema.field(place[label]).type
        if not any(is_kind(kind) for is_kind in numeric):
            raise SamplesError(f"column {label!r} holds {kind}, not numbers; convert it")
    return Chosen(labels, [own[place[label]] for label in labels])


def read_numbers(table: "pa.Table", chosen: Chosen) -> Float[np.ndarray, "rows labels"]:
    """Return the numbers of the chosen columns; missing values become NaN, which layouts refuse."""
    pa = import_pyarrow()
    values = np.empty((table.num_rows, len(chosen.names)))
    for k, name in enumerate(chosen.names):
        values[:, k] = table.column(name).cast(pa.float64(), safe=False).to_numpy()
    return values
