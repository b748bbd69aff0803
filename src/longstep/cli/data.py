"""A table of samples as parameters, or as a split, of a solver's family."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ..data.columns import Columns
    from ..data.dataset import Split
    from ..solver import Solver


def parse_columns(options: list[str] | None) -> "Columns":
    """Return what --columns says of a table, as `read_samples` takes it."""
    if not options:
        return None
    if options == ["position"]:
        return "position"
    found: dict[str, list[str]] = {}
    for option in options:
        name, equals, listed = option.partition("=")
        if not equals:
            raise ValueError(f"--columns is `position` or NAME=COLUMN,COLUMN,…, got {option!r}")
        found[name.strip()] = [column.strip() for column in listed.split(",")]
    return found


def read_parameters(solver: "Solver", samples: Path, columns: list[str] | None) -> "np.ndarray":
    """Return the instances of a file, one a row."""
    from ..data.samples import read_samples

    layout = solver.family.layout
    if layout is None:
        raise ValueError(
            "this solver knows no names for its parameters, because its family was not made from a CVXPY problem: a "
            "table has no columns for it. Use it from Python: longstep.Solver.load(…).solve_batch(…)"
        )
    return read_samples(samples, layout, parse_columns(columns))


def read_split(
    solver: "Solver",
    samples: Path,
    columns: list[str] | None,
    name: str,
    metric: str | None,
    cache: "Path | bool",
    progress: bool,
    iid: bool = False,
) -> "Split":
    """Return the instances of a file as a split, with optima where the metric needs them."""
    from ..data.dataset import Dataset

    splits = {name: read_parameters(solver, samples, columns)}
    references = []
    if metric == "suboptimality":
        references.append(name)
    return Dataset.from_parameters(
        solver.family, splits, iid=iid, references=references, cache=cache, progress=progress
    )[name]
