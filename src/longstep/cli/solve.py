"""`longstep solve`: a table of parameters in, a table of solutions out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .command import UNSOLVED, Json, Quiet, SolverFile, library
from .data import parameters_of
from .output import Output


def solve(
    solver: SolverFile,
    parameters: Annotated[
        Path, typer.Option(help="The instances, one a row, columns named as in `info`: .csv, .parquet or .npz.")
    ],
    out: Annotated[Path, typer.Option(help="Where the solutions go, one row an instance: .csv, .parquet or .npz.")],
    steps: Annotated[
        int | None, typer.Option(min=0, help="Exactly so many steps for every instance, without a check on the way.")
    ] = None,
    eps_abs: Annotated[float, typer.Option(min=0, help="Absolute tolerance of residuals and gap.")] = 1e-4,
    eps_rel: Annotated[float, typer.Option(min=0, help="Relative tolerance of residuals and gap.")] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=0, help="At most so many steps.")] = 10_000,
    time_limit: Annotated[float | None, typer.Option(help="At most so many seconds for the whole batch.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Solve instances with a learned solver, all in one batch.

    The table has for each instance its status, iterations, objective and residuals, whether the safeguard acted,
    whether the parameters lie outside what training saw, and the variables. CVXPY is not needed.

    Exit code 3: some instance was not solved. With --steps it is 0 all the same, because a fixed number of steps
    promises no tolerance; the column `status` says what was reached.
    """
    with Output(as_json, quiet) as output:
        ls = library()
        from ..data.tables import write_solutions

        loaded = ls.Solver.load(solver)
        x = parameters_of(loaded, parameters)
        limits = {"eps_abs": eps_abs, "eps_rel": eps_rel, "max_iter": max_iter, "time_limit": time_limit}
        solution = loaded.solve_batch(x, steps=steps, **limits)
        write_solutions(out, loaded.family.layout, solution)
        unsolved = int((~solution.solved).sum())
        outside = None if solution.outside is None else int(solution.outside.sum())
        safeguarded = int(solution.safeguarded.sum())
        output.document(
            {
                "instances": len(solution),
                "solved": len(solution) - unsolved,
                "statuses": _counts(ls, solution),
                "outside": outside,
                "safeguarded": safeguarded,
                "seconds": solution.time,
                "out": out,
            }
        )
        seen = "" if outside is None else f"; {outside} outside what training saw"
        output.show(
            f"{len(solution)} instances in {solution.time:.3g} s, compilation included: {solution.message}{seen}; "
            f"{safeguarded} safeguarded. Written: {out}"
        )
        if unsolved and steps is None:
            output.say(_advice(ls, solution))
            raise typer.Exit(UNSOLVED)


def _counts(ls: Any, solution: Any) -> dict[str, int]:
    """How many instances ended how."""
    counts = {status.words: int((solution.status == status).sum()) for status in ls.Status}
    return {name: count for name, count in counts.items() if count}


def _advice(ls: Any, solution: Any) -> str:
    """What each status but "solved" means, of those there are."""
    found = [status for status in ls.Status if status != ls.Status.SOLVED and (solution.status == status).any()]
    return "\n".join(f"{status.words}: {status.message}" for status in found)
