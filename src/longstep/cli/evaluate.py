"""`longstep evaluate`: a learned solver beside what one would use without it."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from .command import AsJson, Cache, ColumnOptions, Quiet, SolverFile, choose_cache, load_library
from .data import read_split
from .output import Output

if TYPE_CHECKING:
    from ..evaluation.method import Method
    from ..solver import Solver


def evaluate(
    solver: SolverFile,
    samples: Annotated[Path, typer.Option(help="Instances that training never saw: .csv, .parquet or .npz.")],
    columns: ColumnOptions = None,
    iterations: Annotated[int, typer.Option(min=1, help="How many steps are measured.")] = 60,
    metric: Annotated[
        str | None, typer.Option(help="residual, residual_max, primal, dual, gap or suboptimality.")
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare a learned solver with the best constant hyperparameters and the package's defaults, step by step."""
    with Output(as_json, quiet) as output:
        ls = load_library(cache)
        from ..report.tables import comparison

        loaded = ls.Solver.load(solver)
        test = read_split(loaded, samples, columns, "test", metric, choose_cache(cache), output.progress)
        found = [
            ls.evaluate(method, test, iterations, metric=metric, name=name, progress=output.progress)
            for name, method in _list_methods(ls, loaded).items()
        ]
        table = comparison(found)
        output.document({"table": table.to_json(), "evaluations": [each.to_json() for each in found]})
        output.show(table)


def _list_methods(ls: ModuleType, solver: "Solver") -> "dict[str, Method]":
    """Return the solver, the best constant where training left it in the record, and the defaults."""
    from ..evaluation.scheduled import vanilla

    if solver.record is None:
        return {"this solver": solver, "defaults": vanilla(solver.family)}
    methods: dict[str, Method] = {"learned": solver}
    if (constant := solver.record.get("constant")) is not None:
        methods["best constant"] = ls.Solver(solver.family, algorithm=solver.algorithm, safeguard=None, **constant)
    return methods | {"defaults": vanilla(solver.family)}
