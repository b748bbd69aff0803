"""Files of parameters that are larger than memory: Parquet (a file or a folder of them), CSV and NPY, in pieces."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float

from ..errors import SamplesError
from ..families.names import Layout
from .columns import Columns, describe_damage, list_names, name_values
from .csv_file import scan_csv
from .parquet_file import Chosen, choose_columns, open_parquet, read_numbers
from .tables import choose_by_suffix, import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class RowPiece(NamedTuple):
    """Some instances: their parameters, one a row, and the columns of the file that go with them as they are."""

    x: Float[np.ndarray, "rows size"]
    kept: "dict[str, pa.Array]"


class FileRows(Protocol):
    """The rows of a file, or of a folder of files; what cannot be used is refused by a `SamplesError` that says where.

    What can be known from the beginning (missing columns, files without an end) is refused when it is opened.
    """

    def count(self) -> int:
        """Return the number of rows."""
        ...

    def read(self, first: int, last: int, size: int) -> Iterator[RowPiece]:
        """Yield the rows from `first` up to `last`, not included, `size` at a time; the last piece may have less."""
        ...


def open_rows(path: "str | Path", layout: Layout | None, columns: Columns = None, keep: Sequence[str] = ()) -> FileRows:
    """Return the rows of a .parquet, .csv or .npy file, or of the Parquet files of a folder by their names.

    Columns are found as `read_samples` finds them; an NPY file has one array (N, size), without names. `keep` are
    further columns of Parquet files that go along with the instances. Without a layout only NPY files can be read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    suffix = path.suffix.lower()
    if keep and not (path.is_dir() or suffix == ".parquet"):
        raise ValueError(f"{path} is no Parquet file, and only those have columns to keep ({list_names(keep)})")
    if suffix == ".npy" and path.is_file():
        return ArrayRows(path, layout)
    if layout is None:
        raise ValueError(
            "this solver knows no names for its parameters, because its family was not made from a CVXPY problem: a "
            "table has no columns for it. Give the parameters as an array (N, size) in an .npy file, or as batches"
        )
    if path.is_dir():
        return ParquetRows(_list_files(path), layout, columns, keep)
    if suffix == ".parquet":
        return ParquetRows([path], layout, columns, keep)
    return choose_by_suffix(path, {".csv": CsvRows}, ".parquet, .csv or .npy, or a folder of Parquet files")(
        path, layout, columns
    )


def has_more_rows(path: Path, most: int) -> bool:
    """Tell, without reading it, whether a file or folder has more rows than that; what is damaged has none."""
    if path.is_dir():
        return True
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            with open_parquet(path) as file:
                return file.metadata.num_rows > most
        if kind == ".npy":
            return len(np.load(path, mmap_mode="r", allow_pickle=False)) > most
        if kind == ".csv":
            with path.open("rb") as lines:
                return sum(1 for _ in itertools.islice(lines, most + 2)) > most + 1
    except (OSError, ValueError, EOFError, TypeError):
        return False
    return False


class ParquetRows:
    """Rows of Parquet files, one after the other. All their footers are read first: no late file lacks a column."""

    def __init__(self, files: Sequence[Path], layout: Layout, columns: Columns, keep: Sequence[str]):
        self.files = files
        self.layout = layout
        self.keep = list(keep)
        self.chosen: list[Chosen] = []
        # Of every file the number of the row that it begins with, and at the end the number of all rows.
        self.starts = [0]
        kinds: dict[str, pa.DataType] = {}
        for k, path in enumerate(files):
            try:
                with open_parquet(path) as file:
                    schema = file.schema_arrow
                    self.starts.append(self.starts[-1] + file.metadata.num_rows)
                self.chosen.append(choose_columns(schema, layout, columns))
                _check_kept(schema, self.keep, kinds)
            except SamplesError as error:
                raise SamplesError(f"{path}{_number_file(k, len(files))}: {error}") from None

    def count(self) -> int:
        """Return the number of rows, which the footers tell."""
        return self.starts[-1]

    def read(self, first: int, last: int, size: int) -> Iterator[RowPiece]:
        """Yield the rows from `first` up to `last`, `size` at a time."""
        parts = (part for k in range(len(self.files)) for part in self._read_file(k, first, last, size))
        return _regroup(parts, size)

    def _read_file(self, k: int, first: int, last: int, size: int) -> Iterator[RowPiece]:
        """Yield the rows of one file that lie between `first` and `last`, in pieces of any size."""
        first = max(first - self.starts[k], 0)
        last = min(last, self.starts[k + 1]) - self.starts[k]
        if first >= last:
            return
        path = self.files[k]
        place = first
        try:
            with open_parquet(path) as file:
                groups, place = _find_groups(file, first, last)
                wanted = [*dict.fromkeys([*self.chosen[k].names, *self.keep])]
                for batch in file.iter_batches(batch_size=size, row_groups=groups, columns=wanted):
                    begin = max(first - place, 0)
                    part = batch.slice(begin, max(last - place - begin, 0))
                    if part.num_rows:
                        yield self._convert(k, part, place + begin)
                    place += batch.num_rows
        except SamplesError as error:
            raise SamplesError(f"{path}, after {place} good rows: {error}") from None

    def _convert(self, k: int, batch: "pa.RecordBatch", first: int) -> RowPiece:
        """Return the parameters in a batch of columns, checked, and the columns that are kept."""
        table = import_pyarrow().Table.from_batches([batch])
        chosen = self.chosen[k]
        x = _check(self.layout, chosen.labels, read_numbers(table, chosen), range(first, first + len(table)), "row")
        return RowPiece(x, {name: table.column(name).combine_chunks() for name in self.keep})


class CsvRows:
    """Rows of a CSV file. To count them, and to begin in the middle, the file is read from its beginning."""

    def __init__(self, path: Path, layout: Layout, columns: Columns):
        self.path = path
        self.layout = layout
        self.columns: Columns = columns

    def count(self) -> int:
        """Return the number of rows."""
        return sum(len(piece.x) for piece in self._scan())

    def read(self, first: int, last: int, size: int) -> Iterator[RowPiece]:
        """Yield the rows from `first` up to `last`, `size` at a time."""

        def cut() -> Iterator[RowPiece]:
            place = 0
            for piece in self._scan():
                if place >= last:
                    return
                x = piece.x[max(first - place, 0) : last - place]
                place += len(piece.x)
                if len(x):
                    yield RowPiece(x, {})

        return _regroup(cut(), size)

    def _scan(self) -> Iterator[RowPiece]:
        try:
            for labels, values, lines in scan_csv(self.path, self.layout, self.columns):
                yield RowPiece(_check(self.layout, labels, values, lines, "line"), {})
        except SamplesError as error:
            raise SamplesError(f"{self.path}: {error}") from None


class ArrayRows:
    """Rows of an NPY file, which stays on disk."""

    def __init__(self, path: Path, layout: Layout | None):
        self.path = path
        self.layout = layout
        try:
            self.array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise SamplesError(f"{path}: {describe_damage('NPY', error)}") from None
        if self.array.ndim != 2 or self.array.dtype.kind not in "iuf":
            found = f"{self.array.dtype} of shape {self.array.shape}"
            raise SamplesError(f"{path} must hold real numbers in an array (N, size), got {found}")
        if layout is not None and self.array.shape[1] != layout.size:
            wanted = f"{layout.size} columns ({list_names(layout.columns)})"
            raise SamplesError(f"{path} must have {wanted}, got an array of shape {self.array.shape}")

    def count(self) -> int:
        """Return the number of rows."""
        return len(self.array)

    def read(self, first: int, last: int, size: int) -> Iterator[RowPiece]:
        """Yield the rows from `first` up to `last`, `size` at a time."""
        last = min(last, len(self.array))
        for begin in range(first, last, size):
            end = min(begin + size, last)
            values = np.array(self.array[begin:end], np.float64)
            if self.layout is not None:
                try:
                    values = _check(self.layout, self.layout.columns, values, range(begin, end), "row")
                except SamplesError as error:
                    raise SamplesError(f"{self.path}: {error}") from None
            yield RowPiece(values, {})


def _list_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder by name, without those that are hidden or about the others."""
    files = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))
    if not files:
        raise SamplesError(f"the folder {folder} has no .parquet files; name one that has, or a file")
    return files


def _number_file(k: int, count: int) -> str:
    """Return which of several files it is, in words."""
    if count == 1:
        return ""
    return f" (file {k + 1} of {count})"


def _check_kept(schema: "pa.Schema", keep: Sequence[str], kinds: "dict[str, pa.DataType]") -> None:
    """Refuse a file that lacks a column to keep, or has it in another type than the files before."""
    for name in keep:
        if name not in schema.names:
            raise SamplesError(f"there is no column {name!r} to keep; the file has {list_names(schema.names, 10)}")
        kind = schema.field(name).type
        if kinds.setdefault(name, kind) != kind:
            raise SamplesError(f"column {name!r} holds {kind}, but {kinds[name]} in the files before; convert it")


def _find_groups(file: "pq.ParquetFile", first: int, last: int) -> tuple[list[int], int]:
    """Return the row groups that hold the rows from `first` up to `last`, and the number of the row they begin with."""
    groups = []
    before = 0
    place = 0
    for k in range(file.num_row_groups):
        rows = file.metadata.row_group(k).num_rows
        if place + rows <= first:
            before = place + rows
        elif place < last:
            groups.append(k)
        place += rows
    return groups, before


def _check(
    layout: Layout, labels: Sequence[str], values: Float[np.ndarray, "rows labels"], places: Sequence[int], word: str
) -> Float[np.ndarray, "rows size"]:
    """Return rows as parameters; one that is refused is named by its place in the file."""
    try:
        return layout.stack(name_values(layout, labels, values))
    except ValueError as error:
        text = re.sub(r"of instance (\d+)", lambda found: f"in {word} {places[int(found[1])]}", str(error))
        raise SamplesError(text) from None


def _regroup(pieces: Iterable[RowPiece], size: int) -> Iterator[RowPiece]:
    """Yield the same rows in pieces of one size; the last one may be smaller."""
    held: list[RowPiece] = []
    count = 0
    for piece in pieces:
        held.append(piece)
        count += len(piece.x)
        if count < size:
            continue
        whole = _join(held)
        begins = range(0, count - size + 1, size)
        for begin in begins:
            yield _slice(whole, begin, begin + size)
        rest = _slice(whole, begins[-1] + size, count)
        held = [rest]
        count = len(rest.x)
    if count:
        yield _join(held)


def _join(pieces: list[RowPiece]) -> RowPiece:
    if len(pieces) == 1:
        return pieces[0]
    kept = {name: import_pyarrow().concat_arrays([piece.kept[name] for piece in pieces]) for name in pieces[0].kept}
    return RowPiece(np.concatenate([piece.x for piece in pieces]), kept)


def _slice(piece: RowPiece, begin: int, end: int) -> RowPiece:
    return RowPiece(piece.x[begin:end], {name: array.slice(begin, end - begin) for name, array in piece.kept.items()})
