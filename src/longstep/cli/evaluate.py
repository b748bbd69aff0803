"""`longstep evaluate`: a learned solver beside what one would use without it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .command import Cache, Json, Quiet, SolverFile, cache_option, library
from .data import split_of
from .output import Output


def evaluate(
    solver: SolverFile,
    samples: Annotated[Path, typer.Option(help="Instances that training never saw: .csv, .parquet or .npz.")],
    iterations: Annotated[int, typer.Option(min=1, help="How many steps are measured.")] = 60,
    metric: Annotated[
        str | None, typer.Option(help="residual, residual_max, primal, dual, gap or suboptimality.")
    ] = None,
    cache: Cache = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a learned solver with the best constant hyperparameters and the package's defaults, step by step."""
    with Output(as_json, quiet) as output:
        ls = library(cache)
        from ..report.tables import comparison

        loaded = ls.Solver.load(solver)
        test = split_of(loaded, samples, "test", metric, cache_option(cache), output.progress)
        found = [
            ls.evaluate(method, test, iterations, metric=metric, name=name, progress=output.progress)
            for name, method in _methods(ls, loaded).items()
        ]
        table = comparison(found)
        output.document({"table": table.to_json(), "evaluations": [each.to_json() for each in found]})
        output.show(table)


def _methods(ls: Any, solver: Any) -> dict[str, Any]:
    """The solver, the best constant where training left it in the record, and the defaults."""
    from ..evaluation.scheduled import vanilla

    if solver.record is None:
        return {"this solver": solver, "defaults": vanilla(solver.family)}
    methods: dict[str, Any] = {"learned": solver}
    if (constant := solver.record.get("constant")) is not None:
        options = {"algorithm": solver.algorithm, "safeguard": None}
        methods["best constant"] = ls.Solver(solver.family, **options, **constant)
    return methods | {"defaults": vanilla(solver.family)}
