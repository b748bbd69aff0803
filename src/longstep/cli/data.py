"""A table of samples as parameters, or as a split, of a solver's family."""

from pathlib import Path
from typing import Any


def parameters_of(solver: Any, samples: Path) -> Any:
    """The instances of a file, one a row."""
    from ..data.samples import read_samples

    layout = solver.family.layout
    if layout is None:
        raise ValueError(
            "this solver knows no names for its parameters, because its family was not made from a CVXPY problem: a "
            "table has no columns for it. Use it from Python: longstep.Solver.load(…).solve_batch(…)"
        )
    return read_samples(samples, layout)


def split_of(
    solver: Any, samples: Path, name: str, metric: str | None, cache: Any, progress: bool, iid: bool = False
) -> Any:
    """The instances of a file as a split, with optima where the metric needs them."""
    from ..data.dataset import Dataset

    options = {"references": [name] if metric == "suboptimality" else [], "cache": cache, "progress": progress}
    return Dataset.from_parameters(solver.family, {name: parameters_of(solver, samples)}, iid=iid, **options)[name]
