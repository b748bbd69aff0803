"""`longstep solve`: a table of parameters in, a table of solutions out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import UNSOLVED, AsJson, Columns, Quiet, SolverFile, load_library
from .data import read_parameters
from .output import Output
from .quick import FEW, Limits, compile_kept, solve_kept

if TYPE_CHECKING:
    from ..engine.solution import Solution


def solve(
    solver: SolverFile,
    parameters: Annotated[
        Path, typer.Option(help="The instances, one a row, columns named as in `info`: .csv, .parquet or .npz.")
    ],
    out: Annotated[Path, typer.Option(help="Where the solutions go, one row an instance: .csv, .parquet or .npz.")],
    columns: Columns = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Exactly this many steps for every instance, without a check on the way.")
    ] = None,
    eps_abs: Annotated[float, typer.Option(min=0, help="Absolute tolerance of residuals and gap.")] = 1e-4,
    eps_rel: Annotated[float, typer.Option(min=0, help="Relative tolerance of residuals and gap.")] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=0, help="The most steps.")] = 10_000,
    time_limit: Annotated[float | None, typer.Option(help="The most seconds for the whole batch.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Solve instances with a learned solver, all in one batch; a few of them in C, where there is a compiler.

    The table has for each instance its status, iterations, objective and residuals, whether the safeguard acted,
    whether the parameters lie outside what training saw, and the variables. CVXPY is not needed.

    Exit code 3: some instance was not solved. With --steps it is 0 all the same, because a fixed number of steps
    promises no tolerance; the column `status` says what was reached.
    """
    with Output(as_json, quiet) as output:
        limits = Limits(steps, eps_abs, eps_rel, max_iter, time_limit)
        solution = solve_kept(solver, parameters, columns, limits) or _solve_loaded(solver, parameters, columns, limits)
        import numpy as np

        from ..data.tables import write_solutions

        assert solution.layout is not None
        write_solutions(out, solution.layout, solution)
        unsolved = len(solution) - int(np.sum(solution.solved))
        outside = None
        seen = ""
        if solution.outside is not None:
            outside = int(np.sum(solution.outside))
            seen = f"; {outside} outside what training saw"
        safeguarded = int(np.sum(solution.safeguarded))
        output.document(
            {
                "instances": len(solution),
                "solved": len(solution) - unsolved,
                "statuses": _count_statuses(solution),
                "outside": outside,
                "safeguarded": safeguarded,
                "seconds": solution.time,
                "out": out,
            }
        )
        output.show(
            f"{len(solution)} instances in {solution.time:.3g} s: {solution.message}{seen}; {safeguarded} safeguarded. "
            f"Written: {out}"
        )
        if unsolved and steps is None:
            output.say(_advise(solution))
            raise typer.Exit(UNSOLVED)


def _solve_loaded(path: Path, parameters: Path, columns: list[str] | None, limits: Limits) -> "Solution":
    """Load the solver and solve: a few instances in C where that is the same, many in one batch of JAX."""
    ls = load_library()
    loaded = ls.Solver.load(path)
    x = read_parameters(loaded, parameters, columns)
    chosen = loaded
    if len(x) <= FEW:
        chosen = compile_kept(path, loaded)
    return chosen.solve_batch(x, **limits._asdict())


def _count_statuses(solution: "Solution") -> dict[str, int]:
    """Return how many instances ended how."""
    import numpy as np

    from ..engine.solution import Status

    counts = {status.words: int(np.sum(solution.status == status)) for status in Status}
    return {name: count for name, count in counts.items() if count}


def _advise(solution: "Solution") -> str:
    """Return what each status but "solved" means, of those there are."""
    import numpy as np

    from ..engine.solution import Status

    found = [status for status in Status if status != Status.SOLVED and np.any(solution.status == status)]
    return "\n".join(f"{status.words}: {status.message}" for status in found)
