"""Past parameters from a file: CSV, Parquet, NPZ or NPY."""

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from ..errors import SamplesError
from ..families.names import Layout
from .columns import Columns, describe_damage, describe_empty, name_arrays, name_values, rename_columns
from .csv_file import scan_csv
from .parquet_file import choose_columns, open_parquet, read_numbers
from .rows import ArrayRows
from .tables import choose_by_suffix


def read_samples(path: "str | Path", layout: Layout, columns: Columns = None) -> Float[np.ndarray, "N size"]:
    """Read past parameters from a .csv, .parquet, .npz or .npy file and return them, one instance a row.

    CSV and Parquet: the columns are named as `layout.columns`, in any order; other columns are ignored. Entries of a
    parameter that `layout.columns` leaves out (the lower triangle of a symmetric matrix, zeros outside a pattern) are
    not needed; where the file has them they must agree. Entries that a parameter does not have are refused. CSV is
    UTF-8 with commas or semicolons between cells, and numbers have a decimal point; blank lines are skipped. Names with
    a comma (`C[0,1]`) stand in quotes where commas are between the cells.

    `columns` is for files that call them otherwise: {"mu": ["AAPL", "MSFT"], "price": "EUR"} has for each such
    parameter its columns in the order of its entries, and "position" takes the columns of the file in their order for
    `layout.columns`, whatever they are called; a CSV file then needs no header.

    NPZ: one array for each parameter's name with a leading axis of instances (parameters without it are repeated), or
    one for each of `layout.columns`, or the single array `x` (N, size) where no parameter is called x. NPY: that array.

    >>> import tempfile
    >>> from longstep.families.names import Block
    >>> layout = Layout([Block("mu", np.array([0, 1])), Block("price", np.array(2))], [])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "past.csv")
    ...     _ = path.write_text("time,price,mu[0],mu[1]\\nMonday,3,0.1,0.2\\nTuesday,4,0.3,-1e-3\\n")
    ...     read_samples(path, layout)
    array([[ 1.e-01,  2.e-01,  3.e+00],
           [ 3.e-01, -1.e-03,  4.e+00]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "past.csv")
    ...     _ = path.write_text("EUR,AAPL,MSFT\\n3,0.1,0.2\\n")
    ...     read_samples(path, layout, columns={"mu": ["AAPL", "MSFT"], "price": "EUR"})
    array([[0.1, 0.2, 3. ]])
    """
    path = Path(path)
    if path.is_dir():
        raise SamplesError(f"{path} is a folder; name a file in it")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    kinds = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz, ".npy": _read_npy}
    read = choose_by_suffix(path, kinds, ".csv, .parquet, .npz or .npy")
    lines = None
    try:
        if not layout.size:
            raise SamplesError("the problem has no parameters, so that there is nothing to read")
        if path.stat().st_size == 0:
            raise describe_empty(layout)
        named, lines = read(path, layout, columns)
        if any(value.shape[:1] == (0,) for value in named.values()):
            raise SamplesError("there are no rows; one is needed for each instance")
        x = layout.stack(named)
        if x.ndim == 1:
            raise SamplesError("the arrays need a leading axis of instances; for one instance save value[None]")
    except ValueError as error:
        raise SamplesError(f"{path}: {error}{_locate_line(str(error), lines)}") from None
    return np.ascontiguousarray(x)


# Named arrays with a leading axis of instances, and of a CSV file the line of every instance. The readers' messages
# lack the path, which `read_samples` adds.
_Read: TypeAlias = tuple[dict[str, np.ndarray], list[int] | None]


def _read_csv(path: Path, layout: Layout, columns: Columns) -> _Read:
    chunks = list(scan_csv(path, layout, columns))
    if not chunks:
        return name_values(layout, layout.columns, np.zeros((0, layout.size))), []
    values = np.concatenate([chunk.values for chunk in chunks])
    return name_values(layout, chunks[0].labels, values), [line for chunk in chunks for line in chunk.lines]


def _read_parquet(path: Path, layout: Layout, columns: Columns) -> _Read:
    with open_parquet(path) as file:
        chosen = choose_columns(file.schema_arrow, layout, columns)
        table = file.read(columns=chosen.names)
    return name_values(layout, chosen.labels, read_numbers(table, chosen)), None


def _read_npz(path: Path, layout: Layout, columns: Columns) -> _Read:
    try:
        # Opened here, because NumPy leaves what it opened itself open where it is no archive.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            names = rename_columns(file.files, layout, columns)
            own = dict(zip(names, file.files, strict=True))
            return name_arrays(layout, names, lambda name: _read_array(own[name], file)), None
    except SamplesError:
        raise
    # For a .npy file by another name NumPy gives an array, and `with` refuses it by a TypeError.
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, TypeError, RuntimeError) as error:
        raise describe_damage("NPZ", error) from None


def _read_npy(path: Path, layout: Layout, columns: Columns) -> _Read:
    rows = ArrayRows(path, layout)
    return layout.split(np.array(rows.array, np.float64)), None


def _read_array(name: str, file: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return an array of a file; refuse one that is not of real numbers."""
    try:
        array = np.asarray(file[name])
    except ValueError as error:
        raise SamplesError(f"the array {name!r} cannot be read ({error}); save it as numbers") from None
    if array.dtype.kind not in "iuf":
        raise SamplesError(f"the array {name!r} holds {array.dtype}, not real numbers; convert it")
    return array


def _locate_line(message: str, lines: list[int] | None) -> str:
    """Return where in a CSV file the instance is that a message of the layout is about."""
    found = re.findall(r" of instance (\d+)", message)
    if not (found and lines):
        return ""
    return f" (line {lines[int(found[-1])]})"
