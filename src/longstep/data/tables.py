"""Tables on disk: columns, among them those of solutions, as CSV, Parquet or NPZ."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np

from .._util.storage import write_bytes
from ..engine.solution import Solution, Status
from ..families.names import Layout

Kind = TypeVar("Kind")


def write_table(path: "str | Path", columns: Mapping[str, np.ndarray]) -> None:
    """Write columns of numbers, booleans or strings to a .csv, .parquet or .npz file, atomically.

    Numbers keep their full precision. In CSV booleans are true and false; in NPZ each column is an array.

    >>> import tempfile
    >>> from longstep import write_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "past.csv")
    ...     write_table(path, {"mu[0]": np.array([0.1, 0.3]), "mu[1]": np.array([0.2, -1e-3])})
    ...     path.read_text().split()
    ['mu[0],mu[1]', '0.1,0.2', '0.3,-0.001']
    """
    path = Path(path)
    write = by_suffix(path, {".csv": _csv_bytes, ".parquet": _parquet_bytes, ".npz": _npz_bytes})
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "biufU":
            kind = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"column {name!r} must be a vector of numbers, booleans or strings, got {kind}")
    if len({len(array) for array in arrays.values()}) != 1:
        found = ", ".join(f"{name!r}: {len(array)}" for name, array in arrays.items()) or "no column"
        raise ValueError(f"a table needs columns of one common length, got {found}")
    write_bytes(path, write(arrays))


def variable_columns(layout: Layout, solution: Solution) -> dict[str, np.ndarray]:
    """A column for every entry of every variable, `u[0,1]`, with one row for each instance of a batch.

    The values are those of `layout.unpack`: symmetric matrices have both triangles, sparse ones their zeros.
    """
    count = np.size(solution.status)
    columns = {}
    for name, value in layout.unpack(solution).items():
        shape = layout.variables[name].shape
        for index, column in zip(np.ndindex(shape), value.reshape(count, -1).T, strict=True):
            label = f"{name}[{','.join(map(str, index))}]" if shape else name
            if label in columns:
                raise ValueError(f"two entries of the variables are called {label!r}: rename one of the variables")
            columns[label] = column
    return columns


def solution_columns(layout: Layout, solution: Solution) -> dict[str, np.ndarray]:
    """How every instance of a batch ended, and the variables, one row each.

    `outside` is there for learned solvers only. A variable called as one of the other columns has its own under
    `variable.objective`.
    """
    ended = [Status(int(s)).words for s in np.atleast_1d(solution.status)]
    columns = {
        "status": np.array(ended),
        "iterations": solution.iterations,
        "objective": solution.objective,
        "primal_residual": solution.primal_residual,
        "dual_residual": solution.dual_residual,
        "safeguarded": solution.safeguarded,
    }
    if solution.outside is not None:
        columns["outside"] = solution.outside
    columns = {name: np.atleast_1d(column) for name, column in columns.items()}
    variables = variable_columns(layout, solution)
    return columns | {f"variable.{name}" if name in columns else name: v for name, v in variables.items()}


def write_solutions(path: "str | Path", layout: Layout, solution: Solution) -> None:
    """Write `solution_columns` to a file, one row for each instance."""
    write_table(path, solution_columns(layout, solution))


def _csv_bytes(columns: Mapping[str, np.ndarray]) -> bytes:
    words = np.array(["false", "true"])
    cells = [(words[column.astype(int)] if column.dtype == bool else column).tolist() for column in columns.values()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(columns), *zip(*cells, strict=True)])
    return text.getvalue().encode()


def _parquet_bytes(columns: Mapping[str, np.ndarray]) -> bytes:
    pa = pyarrow()
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({n: pa.array(c.tolist() if c.dtype.kind == "U" else c) for n, c in columns.items()}), sink)
    return sink.getvalue().to_pybytes()


def _npz_bytes(columns: Mapping[str, np.ndarray]) -> bytes:
    # NumPy takes these for arguments of its own.
    if taken := {"file", "allow_pickle"}.intersection(columns):
        raise ValueError(f"NumPy cannot write a column called {min(taken)!r} to an .npz file: rename it, or write .csv")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def by_suffix(path: Path, kinds: Mapping[str, Kind]) -> Kind:
    """What belongs to the kind of file that a path's suffix names."""
    if path.suffix.lower() not in kinds:
        found = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise ValueError(f"{path} has {found}; use .csv, .parquet or .npz")
    return kinds[path.suffix.lower()]


def pyarrow() -> ModuleType:
    """The module, or an error that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    return pyarrow
