"""CSV files of parameters, some thousand rows at a time, and what is wrong with them by line and column."""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from ..errors import SamplesError
from ..families.names import Layout
from .columns import Columns, choose_labels, describe_empty, list_given, rename_columns

# Rows that are held as text at a time.
_CHUNK = 8192
# Rows of cells, each with its line.
_CellRows: TypeAlias = list[tuple[int, list[str]]]


class Lines(NamedTuple):
    """Some rows: the labels of the columns that were read, their numbers, and the line of each row."""

    labels: list[str]
    values: Float[np.ndarray, "rows labels"]
    lines: list[int]


def scan_csv(path: Path, layout: Layout, columns: Columns) -> Iterator[Lines]:
    """Yield the rows of a file in order; the messages of its errors lack the path."""
    before = 0
    reader = None
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = ""
            while not header.strip():
                if not (header := file.readline()):
                    raise describe_empty(layout)
                before += 1
            delimiter = _find_delimiter(header, layout, columns)
            names = _split_cells(header, delimiter, strict=True)
            _check_quotes(names, before)
            names = rename_columns(names, layout, columns)
            labels = choose_labels(names, layout)
            place = {name: j for j, name in enumerate(names)}
            places = [place[label] for label in labels]
            rest: Iterable[str] = file
            if columns == "position" and _is_numbers(header, delimiter):
                before -= 1
                rest = itertools.chain([header], file)
            reader = csv.reader(rest, delimiter=delimiter, strict=True)
            while chunk := [(before + reader.line_num, row) for row in itertools.islice(reader, _CHUNK)]:
                rows = [(line, row) for line, row in chunk if len(row) > 1 or any(map(str.strip, row))]
                yield Lines(labels, _convert_cells(names, places, rows), [line for line, _ in rows])
    except UnicodeDecodeError as error:
        raise SamplesError(f"not UTF-8 text ({error.reason}); save it as CSV in UTF-8") from None
    except csv.Error as error:
        line = before
        if reader is not None:
            line += reader.line_num
        raise SamplesError(f"line {line}: {error}; check the quotes up to there") from None


def _find_delimiter(header: str, layout: Layout, columns: Columns) -> str:
    """Return the one of , and ; that finds more of the columns, and more cells where neither finds any."""
    wanted = set(layout.columns)
    if isinstance(columns, Mapping):
        for given in columns.values():
            wanted.update(list_given(given))
    return max(",;", key=lambda d: (len(wanted.intersection(_split_cells(header, d, strict=False))), header.count(d)))


def _split_cells(header: str, delimiter: str, *, strict: bool) -> list[str]:
    """Return the cells of a line without the space around them."""
    return [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter, strict=strict))]


def _is_numbers(line: str, delimiter: str) -> bool:
    """Tell whether a line has a number in every cell, as no header has."""
    try:
        list(map(float, _split_cells(line, delimiter, strict=True)))
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


def _convert_cells(names: Sequence[str], places: Sequence[int], rows: _CellRows) -> Float[np.ndarray, "rows places"]:
    """Return the numbers in the chosen places of some rows of cells; refuse the first that is none."""
    try:
        if all(len(row) == len(names) for _, row in rows):
            cells = [row[j] for _, row in rows for j in places]
            values = np.array(list(map(float, cells)), np.float64)
            # Python alone reads 1_000 as a number.
            if np.isfinite(values).all() and "_" not in "".join(cells):
                return values.reshape(len(rows), len(places))
    except ValueError:
        pass
    raise SamplesError(next(_list_faults(names, places, rows)))


def _list_faults(names: Sequence[str], places: Sequence[int], rows: _CellRows) -> Iterator[str]:
    """Yield what is wrong with rows, cell by cell: slow, and therefore only for rows that are known to be bad."""
    for line, row in rows:
        if len(row) != len(names):
            hint = "complete or remove it"
            if len(row) > len(names):
                hint = "write 1.5 and not 1,5, and quote other commas"
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
