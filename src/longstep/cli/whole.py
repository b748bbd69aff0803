"""Instances by the solver itself, loaded with JAX: a stream where the results go to Parquet, else one batch."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .command import load_library
from .data import parse_columns, read_parameters
from .quick import FEW, SolveLimits, compile_kept, write_batch

if TYPE_CHECKING:
    from ..export_c import CompiledSolver
    from ..solver import Solver
    from ..streaming.tally import Tally


class Results(NamedTuple):
    """Where the results go, and what of them."""

    out: Path
    variables: list[str] | None
    float32: bool
    keep: list[str]
    shard: tuple[int, int] | None
    rows: int | None
    compiled: bool
    progress: bool

    @property
    def is_streamed(self) -> bool:
        """Whether the results can be written part by part."""
        return self.out.suffix.lower() in (".parquet", "")

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for that only a stream, or a solver that is loaded, can do."""
        return not (self.keep or self.shard or self.rows or self.compiled or not self.out.suffix)


def parse_shard(option: str | None) -> tuple[int, int] | None:
    """Return I and K of --shard I/K."""
    if option is None:
        return None
    number, _, count = option.partition("/")
    if not (number.isdecimal() and count.isdecimal()):
        raise ValueError(f"--shard is I/K, such as 1/8 for the first of eight, got {option!r}")
    return int(number), int(count)


def solve_loaded(
    path: Path, parameters: Path, columns: list[str] | None, limits: SolveLimits, results: Results
) -> "Tally":
    """Load the solver and solve: a few instances in C where that is the same, many by the loaded solver."""
    ls = load_library()
    loaded: Solver = ls.Solver.load(path)
    chosen = loaded
    if results.compiled:
        chosen = _compile(loaded)
    if _can_stream(parameters, limits, results):
        from ..data.rows import has_more_rows

        if not results.is_plain or has_more_rows(parameters, FEW):
            return _solve_stream(chosen, parameters, columns, limits, results)
    x = read_parameters(loaded, parameters, columns)
    if len(x) <= FEW and not results.compiled:
        chosen = compile_kept(path, loaded)
    return write_batch(chosen.solve_batch(x, **limits._asdict()), results)


def _can_stream(parameters: Path, limits: SolveLimits, results: Results) -> bool:
    """Tell whether it is a stream; refused where what is asked for needs one and something stands against it."""
    against = None
    if not results.is_streamed:
        against = f"--out must be a .parquet file or a folder, got {results.out}"
    elif parameters.suffix.lower() == ".npz":
        against = f"--parameters must be .parquet, .csv or .npy, got {parameters}"
    elif limits.time_limit is not None:
        against = "leave --time-limit out, because results would depend on the clock"
    wants = {"--keep": results.keep, "--shard": results.shard, "--rows": results.rows}
    asked = [name for name, value in wants.items() if value]
    if parameters.is_dir():
        asked.append("a folder of parameters")
    if against is not None and asked:
        raise ValueError(f"{asked[0]} is for streams: {against}")
    return against is None


def _solve_stream(
    solver: "Solver | CompiledSolver",
    parameters: Path,
    columns: list[str] | None,
    limits: SolveLimits,
    results: Results,
) -> "Tally":
    """Solve part by part, and return how the instances ended."""
    return solver.map(
        parameters,
        results.out,
        variables=results.variables,
        dtype="float32" if results.float32 else None,
        columns=parse_columns(columns),
        keep=results.keep,
        rows=results.rows,
        shard=results.shard,
        progress=results.progress,
        steps=limits.steps,
        eps_abs=limits.eps_abs,
        eps_rel=limits.eps_rel,
        max_iter=limits.max_iter,
    )


def _compile(solver: "Solver") -> "CompiledSolver":
    """Return the solver in C; refused where there is no compiler."""
    from ..errors import CompilerError
    from ..export_c import CompiledSolver

    try:
        return CompiledSolver(solver, "double", "auto", cache=True)
    except CompilerError as error:
        raise ValueError(f"--compiled: {error}. Leave it out to solve with JAX") from None
