"""`longstep solve`: a table of parameters in, a table of solutions out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import UNSOLVED, AsJson, ColumnOptions, Quiet, SolverFile
from .output import Output
from .quick import SolveLimits, solve_kept
from .whole import Results, parse_shard, solve_loaded

if TYPE_CHECKING:
    from ..streaming.tally import Tally


def solve(
    solver: SolverFile,
    parameters: Annotated[
        Path,
        typer.Option(
            help="The instances, one a row, columns named as in `info`: .csv, .parquet, .npz or .npy, or a folder of "
            ".parquet files."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Where the solutions go, one row an instance: .parquet, a folder of such, .csv or .npz."),
    ],
    columns: ColumnOptions = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Exactly this many steps for every instance, without a check on the way.")
    ] = None,
    eps_abs: Annotated[float, typer.Option(min=0, help="Absolute tolerance of residuals and gap.")] = 1e-4,
    eps_rel: Annotated[float, typer.Option(min=0, help="Relative tolerance of residuals and gap.")] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=0, help="The most steps.")] = 10_000,
    time_limit: Annotated[float | None, typer.Option(help="The most seconds for the whole batch.")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(help="A variable to write, u, or an entry of one, u[0]; may be given several times. All if none."),
    ] = None,
    float32: Annotated[bool, typer.Option("--float32", help="Write real numbers in single precision.")] = False,
    keep: Annotated[
        list[str] | None, typer.Option(help="A further column of .parquet parameters to write beside the results.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="I/K", help="Solve the I-th of K equal shares; the last to end joins them.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="How many instances are read and written at a time.")] = None,
    compiled: Annotated[bool, typer.Option("--compiled", help="Solve in C, on all cores.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Solve instances with a learned solver: a few in C, where there is a compiler; many in batches.

    The table has for each instance its status, iterations, objective and residuals, whether the safeguard acted,
    whether the parameters lie outside what training saw, and the variables. CVXPY is not needed.

    With a .parquet file or a folder as --out, instances go through memory some ten thousand at a time, however many
    there are, and finished parts are kept on the way: killed and started again, the same command goes on where it was.

    Exit code 3: some instance was not solved. With --steps it is 0 all the same, because a fixed number of steps
    promises no tolerance; the column `status` says what was reached.
    """
    with Output(as_json, quiet) as output:
        limits = SolveLimits(steps, eps_abs, eps_rel, max_iter, time_limit)
        results = Results(out, variable, float32, keep or [], parse_shard(shard), rows, compiled, output.progress)
        tally = None
        if results.is_plain:
            tally = solve_kept(solver, parameters, columns, limits, results)
        if tally is None:
            tally = solve_loaded(solver, parameters, columns, limits, results)
        output.document(_list_fields(tally, out))
        output.show(_describe(tally, shard, out))
        if tally.solved < tally.instances and steps is None:
            output.say(_advise(tally))
            raise typer.Exit(UNSOLVED)


def _list_fields(tally: "Tally", out: Path) -> dict[str, object]:
    """Return the result for machines."""
    return {
        "instances": tally.instances,
        "solved": tally.solved,
        "statuses": tally.statuses,
        "outside": tally.outside,
        "safeguarded": tally.safeguarded,
        "seconds": tally.seconds,
        "reused": tally.reused,
        "complete": tally.complete,
        "out": out,
    }


def _describe(tally: "Tally", shard: str | None, out: Path) -> str:
    """Return the result for people."""
    seen = ""
    if tally.outside is not None:
        seen = f"; {tally.outside} outside what training saw"
    before = ""
    if tally.reused:
        before = f" ({tally.reused} of them in an earlier run)"
    written = f"Written: {out}"
    if not tally.complete:
        written = f"Shard {shard} is finished; {out} is there when the other shards are"
    return (
        f"{tally.instances} instances in {tally.seconds:.3g} s{before}: {tally.message}{seen}; {tally.safeguarded} "
        f"safeguarded. {written}"
    )


def _advise(tally: "Tally") -> str:
    """Return what each status but "solved" means, of those there are."""
    from ..engine.solution import Status

    found = [status for status in Status if status != Status.SOLVED and status.words in tally.statuses]
    return "\n".join(f"{status.words}: {status.message}" for status in found)
