"""Past parameters from a file: CSV, Parquet or NPZ."""

import csv
import itertools
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from ..errors import SamplesError
from ..families.names import Layout
from .columns import Columns, list_names, rename_columns
from .tables import by_suffix, pyarrow

# Rows of a CSV file that are held as text at a time.
_CHUNK = 8192


def read_samples(path: "str | Path", layout: Layout, columns: Columns = None) -> Float[np.ndarray, "N size"]:
    """Read past parameters from a .csv, .parquet or .npz file and return them, one instance a row.

    CSV and Parquet: the columns are named as `layout.columns`, in any order; other columns are ignored. Entries of a
    parameter that `layout.columns` leaves out (the lower triangle of a symmetric matrix, zeros outside a pattern) are
    not needed; where the file has them they must agree. Entries that a parameter does not have are refused. CSV is
    UTF-8 with commas or semicolons between cells, and numbers have a decimal point; blank lines are skipped. Names with
    a comma (`C[0,1]`) stand in quotes where commas are between the cells.

    `columns` is for files that call them otherwise: {"mu": ["AAPL", "MSFT"], "price": "EUR"} has for each such
    parameter its columns in the order of its entries, and "position" takes the columns of the file in their order for
    `layout.columns`, whatever they are called; a CSV file then needs no header.

    NPZ: one array for each parameter's name with a leading axis of instances (parameters without it are repeated), or
    one for each of `layout.columns`, or the single array `x` (N, size) where no parameter is called x.

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
    read = by_suffix(path, {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz})
    lines = None
    try:
        if not layout.size:
            raise SamplesError("the problem has no parameters, so that there is nothing to read")
        if path.stat().st_size == 0:
            raise _empty(layout)
        named, lines = read(path, layout, columns)
        if any(value.shape[:1] == (0,) for value in named.values()):
            raise SamplesError("there are no rows; one is needed for each instance")
        x = layout.stack(named)
        if x.ndim == 1:
            raise SamplesError("the arrays need a leading axis of instances; for one instance save value[None]")
    except ValueError as error:
        raise SamplesError(f"{path}: {error}{_line(str(error), lines)}") from None
    return np.ascontiguousarray(x)


# Named arrays with a leading axis of instances, and of a CSV file the line of every instance. The readers' messages
# lack the path, which `read_samples` adds.
_Read: TypeAlias = tuple[dict[str, np.ndarray], list[int] | None]
_Rows: TypeAlias = list[tuple[int, list[str]]]


def _read_csv(path: Path, layout: Layout, columns: Columns) -> _Read:
    lines = []
    parts = []
    before = 0
    reader = None
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = ""
            while not header.strip():
                if not (header := file.readline()):
                    raise _empty(layout)
                before += 1
            delimiter = _delimiter(header, layout, columns)
            names = _names(header, delimiter, strict=True)
            _check_quotes(names, before)
            names = rename_columns(names, layout, columns)
            labels = _labels(names, layout)
            place = {name: j for j, name in enumerate(names)}
            places = [place[label] for label in labels]
            rest: Iterable[str] = file
            if columns == "position" and _is_numbers(header, delimiter):
                before -= 1
                rest = itertools.chain([header], file)
            reader = csv.reader(rest, delimiter=delimiter, strict=True)
            while chunk := [(before + reader.line_num, row) for row in itertools.islice(reader, _CHUNK)]:
                rows = [(line, row) for line, row in chunk if len(row) > 1 or any(map(str.strip, row))]
                parts.append(_numbers(names, places, rows))
                lines += [line for line, _ in rows]
    except UnicodeDecodeError as error:
        raise SamplesError(f"not UTF-8 text ({error.reason}); save it as CSV in UTF-8") from None
    except csv.Error as error:
        line = before + (0 if reader is None else reader.line_num)
        raise SamplesError(f"line {line}: {error}; check the quotes up to there") from None
    values = np.concatenate(parts) if parts else np.zeros((0, len(labels)))
    return _named(layout, labels, values), lines


def _delimiter(header: str, layout: Layout, columns: Columns) -> str:
    """The one that finds more of the columns, and more cells where neither finds any."""
    wanted = set(layout.columns)
    if isinstance(columns, Mapping):
        for given in columns.values():
            wanted.update([given] if isinstance(given, str) else given)
    return max(",;", key=lambda d: (len(wanted.intersection(_names(header, d, strict=False))), header.count(d)))


def _names(header: str, delimiter: str, *, strict: bool) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter, strict=strict))]


def _is_numbers(line: str, delimiter: str) -> bool:
    """Tell whether a line has a number in every cell, as no header has."""
    try:
        list(map(float, _names(line, delimiter, strict=True)))
    except ValueError:
        return False
    return True


def _check_quotes(names: Sequence[str], line: int) -> None:
    """Refuse a header in which the comma of `C[0,1]` is taken for the end of a cell."""
    for first, second in itertools.pairwise(names):
        if re.search(r"\[\d+$", first) and re.fullmatch(r"\d+\]?", second):
            whole = f"{first},{second}"
            raise SamplesError(
                f'line {line}: {whole} is read as two columns; names with a comma need quotes: "{whole}". Or put '
                "semicolons between the cells"
            )


def _numbers(names: Sequence[str], places: Sequence[int], rows: _Rows) -> Float[np.ndarray, "rows places"]:
    """The numbers in the chosen places of some rows of cells."""
    try:
        if all(len(row) == len(names) for _, row in rows):
            cells = [row[j] for _, row in rows for j in places]
            values = np.array(list(map(float, cells)), np.float64)
            # Python alone reads 1_000 as a number.
            if np.isfinite(values).all() and "_" not in "".join(cells):
                return values.reshape(len(rows), len(places))
    except ValueError:
        pass
    raise SamplesError(next(_faults(names, places, rows)))


def _faults(names: Sequence[str], places: Sequence[int], rows: _Rows) -> Iterator[str]:
    """What is wrong with the rows, cell by cell: slow, and therefore only for rows that are known to be bad."""
    for line, row in rows:
        if len(row) != len(names):
            hint = "complete or remove it" if len(row) < len(names) else "write 1.5 and not 1,5, and quote other commas"
            yield f"line {line} has {len(row)} cells, but the header has {len(names)}; {hint}"
            continue
        for j in places:
            where = f"line {line}, column {names[j]!r}"
            text = row[j]
            try:
                if not np.isfinite(float(text.replace("_", "?"))):
                    yield f"{where}: {text!r} is not finite; correct it or remove the row"
            except ValueError:
                if text.strip():
                    yield f"{where}: {text[:40]!r} is not a number; write it as 1.5 or 1.5e-3"
                else:
                    yield f"{where}: the cell is empty; fill it in or remove the row"


def _read_parquet(path: Path, layout: Layout, columns: Columns) -> _Read:
    pa = pyarrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            own = file.schema_arrow.names
            names = rename_columns(own, layout, columns)
            labels = _labels(names, layout)
            place = {name: j for j, name in enumerate(names)}
            table = file.read(columns=[own[place[label]] for label in labels])
    except (pa.ArrowException, OSError) as error:
        raise _damaged("Parquet", error) from None
    numeric = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)
    values = np.empty((table.num_rows, len(labels)))
    for k, label in enumerate(labels):
        column = table.column(own[place[label]])
        if not any(is_kind(column.type) for is_kind in numeric):
            raise SamplesError(f"column {label!r} holds {column.type}, not numbers; convert it")
        # Missing values become NaN, which the layout refuses.
        values[:, k] = column.cast(pa.float64(), safe=False).to_numpy()
    return _named(layout, labels, values), None


def _read_npz(path: Path, layout: Layout, columns: Columns) -> _Read:
    try:
        # Opened here, because NumPy leaves what it opened itself open where it is no archive.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            names = rename_columns(file.files, layout, columns)
            own = dict(zip(names, file.files, strict=True))
            return _from_arrays(layout, names, lambda name: _real(own[name], file)), None
    except SamplesError:
        raise
    # For a .npy file by another name NumPy gives an array, and `with` refuses it by a TypeError.
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, TypeError, RuntimeError) as error:
        raise _damaged("NPZ", error) from None


def _from_arrays(layout: Layout, names: list[str], read: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    present = set(names)
    if present.issuperset(layout.parameters):
        return {name: read(name) for name in layout.parameters}
    if "x" in present and "x" not in layout.parameters and not present.intersection(layout.parameters):
        x = read("x")
        if x.ndim != 2 or x.shape[1] != layout.size:
            raise SamplesError(f"the array 'x' must have shape (N, {layout.size}), got {x.shape}")
        return layout.split(x)
    if present.intersection(layout.columns).difference(layout.parameters):
        labels = _labels(names, layout)
        columns = [read(label) for label in labels]
        if {c.shape for c in columns} != {(columns[0].size,)}:
            found = ", ".join(sorted({str(c.shape) for c in columns}))
            raise SamplesError(f"arrays that are columns must be vectors of one length, got {found}")
        return _named(layout, labels, np.stack(columns, axis=1))
    missing = [name for name in layout.parameters if name not in present]
    raise SamplesError(f"there is no array {list_names(missing)}; the file has {list_names(names, 10)}")


def _real(name: str, file: Mapping[str, np.ndarray]) -> np.ndarray:
    try:
        array = np.asarray(file[name])
    except ValueError as error:
        raise SamplesError(f"the array {name!r} cannot be read ({error}); save it as numbers") from None
    if array.dtype.kind not in "iuf":
        raise SamplesError(f"the array {name!r} holds {array.dtype}, not real numbers; convert it")
    return array


def _labels(names: Sequence[str], layout: Layout) -> list[str]:
    """The columns to read: all that are needed, in the layout's order, then those that say an entry again."""
    needed = layout.columns
    counts = Counter(names)
    if len(set(needed)) < len(needed):
        raise SamplesError("two entries of the parameters have the same name; rename one of the parameters")
    if missing := [label for label in needed if label not in counts]:
        hint = _hint_columns(names, layout)
        raise SamplesError(f"there is no column {list_names(missing)}; the file has {list_names(names, 10)}{hint}")
    again = set(counts).difference(needed)
    labels = needed + [name for name in counts if name in again and _entry(name, layout)]
    if twice := [label for label in labels if counts[label] > 1]:
        raise SamplesError(f"there is more than one column {list_names(twice)}; keep one")
    return labels


def _hint_columns(names: Sequence[str], layout: Layout) -> str:
    """What to do about columns that have other names, where that is likely to be all that is wrong."""
    if len(names) == layout.size:
        return ". If they are in the order of the parameters' entries, say columns='position' (--columns position)"
    name = next(iter(layout.parameters))
    return f". Columns with other names are named by columns={{{name!r}: […], …}} (--columns {name}=NAME,NAME,…)"


def _entry(label: str, layout: Layout) -> tuple[str, tuple[int, ...]] | None:
    """The parameter and the index in it that a column's name means; None for a column about something else."""
    match = re.fullmatch(r"(.*)\[(\d+(?:,\d+)*)\]", label)
    if match is None or match[1] not in layout.parameters:
        return None
    index = tuple(map(int, match[2].split(",")))
    shape = layout.parameters[match[1]].shape
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
        raise SamplesError(f"column {label!r} is no entry of the parameter {match[1]!r}, which has shape {shape}")
    return match[1], index


def _named(layout: Layout, labels: Sequence[str], values: Float[np.ndarray, "N labels"]) -> dict[str, np.ndarray]:
    """Columns as named arrays; entries that are there twice are kept as they are, for the layout to compare."""
    named = layout.split(values[:, : layout.size])
    for label, column in zip(labels[layout.size :], values.T[layout.size :], strict=True):
        if entry := _entry(label, layout):
            named[entry[0]][(slice(None), *entry[1])] = column
    return named


def _empty(layout: Layout) -> SamplesError:
    return SamplesError(f"the file is empty; it needs values for {list_names(layout.columns)}")


def _damaged(kind: str, error: Exception) -> SamplesError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return SamplesError(f"damaged, or no {kind} file ({reason}); write it again")


def _line(message: str, lines: list[int] | None) -> str:
    """Where in a CSV file the instance is that a message of the layout is about."""
    found = re.findall(r" of instance (\d+)", message)
    return f" (line {lines[int(found[-1])]})" if found and lines else ""
