"""A few instances in C, from the cache, in a process that never imports JAX."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .data import parse_columns

if TYPE_CHECKING:
    from ..engine.solution import Solution
    from ..export_c import CompiledSolver
    from ..solver import Solver
    from ..streaming.tally import Tally

# So many instances take no longer in C on one thread than JAX takes to start.
FEW = 100


class SolveLimits(NamedTuple):
    """When a solve ends, as `Solver.solve_batch` takes it."""

    steps: int | None
    eps_abs: float
    eps_rel: float
    max_iter: int
    time_limit: float | None


class Written(Protocol):
    """Which of the results are written, and where to."""

    @property
    def out(self) -> Path:
        """The file."""
        ...

    @property
    def variables(self) -> list[str] | None:
        """The variables to write; None for all."""
        ...

    @property
    def float32(self) -> bool:
        """Whether real numbers are written in single precision."""
        ...


def solve_kept(
    path: Path, parameters: Path, columns: list[str] | None, limits: SolveLimits, written: Written
) -> "Tally | None":
    """Write the solutions by the library that is kept for a solver file, and return how they ended.

    None where there is none, for many instances, with a time limit, and where the data are to be refused: then the
    solver itself is asked.
    """
    from ..export_c.kept import find_kept

    kept = find_kept(path, True)
    if kept is None or limits.time_limit is not None:
        return None
    from ..data.rows import has_more_rows
    from ..data.samples import read_samples

    if has_more_rows(parameters, FEW):
        return None
    x = read_samples(parameters, kept.layout, parse_columns(columns))
    if len(x) > FEW:
        return None
    steps, eps_abs, eps_rel, max_iter, _ = limits
    solution = kept.solve_batch(x, steps=steps, eps_abs=eps_abs, eps_rel=eps_rel, max_iter=max_iter)
    if solution is None:
        return None
    return write_batch(solution, written)


def write_batch(solution: "Solution", written: Written) -> "Tally":
    """Write the solutions of one batch, and return how they ended."""
    import dataclasses

    from ..data.tables import check_variables, write_solutions
    from ..streaming.tally import Tally

    assert solution.layout is not None
    check_variables(solution.layout, solution.x.shape[-1], written.variables)
    dtype = "float32" if written.float32 else None
    write_solutions(written.out, solution.layout, solution, written.variables, dtype)
    return dataclasses.replace(Tally.of_solution(solution), seconds=solution.time)


def compile_kept(path: Path, solver: "Solver") -> "Solver | CompiledSolver":
    """Return a solver in C, and keep what it takes to call it again; the solver itself where C would not be the same.

    It would not where there is no compiler, where C lacks the family or the finish, and in single precision.
    """
    import numpy as np

    from ..errors import CompilerError
    from ..export_c import CompiledSolver
    from ..export_c.kept import KeptSolver, keep

    layout = solver.family.layout
    if layout is None or solver.family.dtype != np.float64 or solver.factors is not None:
        return solver
    try:
        compiled = CompiledSolver(solver, "double", "auto", cache=True)
    except (CompilerError, ValueError):
        return solver
    if compiled.finish != solver.finish:
        return solver
    eps = compiled.code.problem.eps_infeasible
    keep(path, KeptSolver(compiled.library, layout, eps, solver.seen is not None), True)
    return compiled
