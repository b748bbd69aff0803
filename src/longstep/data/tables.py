"""Tables on disk: columns, among them those of solutions, as CSV, Parquet or NPZ."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from .._util.nearest import suggest
from .._util.storage import write_bytes
from ..engine.solution import Solution, Status
from ..families.names import Layout

if TYPE_CHECKING:
    import pyarrow as pa

KindT = TypeVar("KindT")
_WORDS = np.array([status.words for status in Status])


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
    write = choose_by_suffix(path, {".csv": _encode_csv, ".parquet": _encode_parquet, ".npz": _encode_npz})
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "biufU":
            kind = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"column {name!r} must be a vector of numbers, booleans or strings, got {kind}")
    if len({len(array) for array in arrays.values()}) != 1:
        found = ", ".join(f"{name!r}: {len(array)}" for name, array in arrays.items()) or "no column"
        raise ValueError(f"a table needs columns of one common length, got {found}")
    write_bytes(path, write(arrays))


def make_variable_columns(
    layout: Layout | None, solution: Solution, variables: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Return a column for every entry of every variable, `u[0,1]`, with one row for each instance of a batch.

    The values are those of `layout.unpack`: symmetric matrices have both triangles, sparse ones their zeros. Without a
    layout the only variable is the point, `x`. `variables` names those that are wanted, or single entries of them.
    """
    count = np.size(solution.status)
    values = {"x": np.atleast_2d(solution.x)}
    if layout is not None:
        values = layout.unpack(solution)
    columns: dict[str, np.ndarray] = {}
    for name, labels in _label_entries(layout, np.shape(solution.x)[-1]).items():
        whole = variables is None or name in variables
        wanted = variables or ()
        for label, column in zip(labels, values[name].reshape(count, -1).T, strict=True):
            if label in columns:
                raise ValueError(f"two entries of the variables are called {label!r}: rename one of the variables")
            if whole or label in wanted:
                columns[label] = column
    return columns


def check_variables(layout: Layout | None, n: int, variables: Sequence[str] | None) -> None:
    """Refuse names that are neither variables, where points have n entries, nor entries of variables."""
    labels = _label_entries(layout, n)
    known = set(labels).union(*labels.values())
    for name in variables or ():
        if name not in known:
            near = suggest(name, known)
            raise ValueError(f"there is no variable {name!r}{near or ';'} The variables are {', '.join(labels)}")


def _label_entries(layout: Layout | None, n: int) -> dict[str, list[str]]:
    """Return for every variable the names of its entries: `u[0,1]`, or `u` alone of a scalar."""
    shapes: dict[str, tuple[int, ...]] = {"x": (n,)}
    if layout is not None:
        shapes = {name: block.shape for name, block in layout.variables.items()}
    labels = {}
    for name, shape in shapes.items():
        labels[name] = [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(shape)]
        if not shape:
            labels[name] = [name]
    return labels


def make_solution_columns(
    layout: Layout | None,
    solution: Solution,
    variables: Sequence[str] | None = None,
    dtype: DTypeLike | None = None,
) -> dict[str, np.ndarray]:
    """Return how every instance of a batch ended, and the variables (those that are named), one row each.

    `outside` is there for learned solvers only. A variable called as one of the other columns has its own under
    `variable.objective`. `dtype` is that of all real numbers; None leaves them as they are.
    """
    columns = {
        "status": _WORDS[np.atleast_1d(solution.status).astype(int)],
        "iterations": solution.iterations,
        "objective": solution.objective,
        "primal_residual": solution.primal_residual,
        "dual_residual": solution.dual_residual,
        "safeguarded": solution.safeguarded,
    }
    if solution.outside is not None:
        columns["outside"] = solution.outside
    columns = {name: np.atleast_1d(column) for name, column in columns.items()}
    points = make_variable_columns(layout, solution, variables)
    taken = set(columns)
    for name, column in points.items():
        key = name
        if name in taken:
            key = f"variable.{name}"
        columns[key] = column
    if dtype is not None:
        for name, column in columns.items():
            if column.dtype.kind == "f":
                columns[name] = column.astype(dtype)
    return columns


def write_solutions(
    path: "str | Path",
    layout: Layout,
    solution: Solution,
    variables: Sequence[str] | None = None,
    dtype: DTypeLike | None = None,
) -> None:
    """Write `make_solution_columns` to a file, one row for each instance."""
    write_table(path, make_solution_columns(layout, solution, variables, dtype))


def _encode_csv(columns: Mapping[str, np.ndarray]) -> bytes:
    cells = [_list_cells(column) for column in columns.values()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([list(columns), *zip(*cells, strict=True)])
    return text.getvalue().encode()


def _list_cells(column: np.ndarray) -> list[Any]:
    """Return the cells of a column of a CSV file: true and false for booleans."""
    if column.dtype == bool:
        return np.array(["false", "true"])[column.astype(int)].tolist()
    return column.tolist()


def _encode_parquet(columns: Mapping[str, np.ndarray]) -> bytes:
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(make_arrow(columns), sink)
    return sink.getvalue().to_pybytes()


def make_arrow(columns: "Mapping[str, np.ndarray | pa.Array]") -> "pa.Table":
    """Return columns as a table of Arrow."""
    pa = import_pyarrow()
    plain = {}
    for name, column in columns.items():
        plain[name] = column
        if isinstance(column, np.ndarray):
            plain[name] = _make_arrow_column(column)
    return pa.table(plain)


def _make_arrow_column(column: np.ndarray) -> "pa.Array":
    """Return a column of Arrow; of text it takes lists."""
    pa = import_pyarrow()
    if column.dtype.kind == "U":
        return pa.array(column.tolist())
    return pa.array(column)


def _encode_npz(columns: Mapping[str, np.ndarray]) -> bytes:
    # NumPy takes these for arguments of its own.
    if taken := {"file", "allow_pickle"}.intersection(columns):
        raise ValueError(f"NumPy cannot write a column called {min(taken)!r} to an .npz file: rename it, or write .csv")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def choose_by_suffix(path: Path, kinds: Mapping[str, KindT], known: str = ".csv, .parquet or .npz") -> KindT:
    """Return what belongs to the kind of file that a path's suffix names."""
    if path.suffix.lower() not in kinds:
        found = "no suffix"
        if path.suffix:
            found = f"the suffix {path.suffix!r}"
        raise ValueError(f"{path} has {found}; use {known}")
    return kinds[path.suffix.lower()]


def import_pyarrow() -> ModuleType:
    """Return the module, or raise an error that says how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install pyarrow") from None
    return pyarrow
