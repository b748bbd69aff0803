"""The stream: parts of a source are read, solved and written, one after the other."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypedDict

import numpy as np
from typing_extensions import Unpack

from .._util.hashing import content_hash
from .._util.nearest import suggest
from .._util.progress import Bar
from .._util.version import __version__
from ..data.columns import Columns
from ..data.tables import check_variables, make_arrow, make_solution_columns
from ..engine.budget import Budget, check_tolerances
from ..engine.solution import Solution
from ..errors import FileFormatError, SamplesError
from ..families.base import Family
from ..families.reading import Parameters
from .aside import Behind
from .parts import PartFolder
from .sources import Source, SourceLike, StreamPart, open_source
from .tally import Tally, add_tallies

if TYPE_CHECKING:
    import pyarrow as pa

Precision: TypeAlias = Literal["float32", "float64"] | None
# What takes the results of a part: the columns of its table, by name.
Consumer: TypeAlias = Callable[[dict[str, np.ndarray]], object]
SinkLike: TypeAlias = "str | Path | Consumer"


class LimitOptions(TypedDict, total=False):
    """When a solve ends, as `Solver.solve_batch` takes it, but for a time limit: results must not depend on clocks."""

    eps_abs: float
    eps_rel: float
    max_iter: int
    steps: int | None
    check_every: int
    eps_infeasible: float | None


class Options(LimitOptions, total=False):
    """The options of `Solver.map`."""

    variables: Sequence[str] | None
    dtype: Precision
    columns: Columns
    keep: Sequence[str]
    rows: int | None
    shard: tuple[int, int] | None
    progress: bool


class BatchSolver(Protocol):
    """What solves the parts: a `Solver`, or one in C."""

    @property
    def family(self) -> Family:
        """What it solves."""
        ...

    @property
    def solve_batch(self) -> Callable[..., Solution]:
        """Solves many instances, with the options of `Solver.solve_batch`."""
        ...

    def content_hash(self) -> str:
        """Return a hash of all that a solution depends on."""
        ...


@dataclasses.dataclass(frozen=True)
class Work:
    """What is done with a part: how it is solved, and which columns are made of that."""

    solver: BatchSolver
    limits: LimitOptions
    variables: tuple[str, ...] | None
    dtype: Precision

    def __post_init__(self):
        if self.dtype not in ("float32", "float64", None):
            raise ValueError(f"dtype must be 'float32', 'float64' or None, got {self.dtype!r}")
        check_variables(self.solver.family.layout, self.solver.family.n, self.variables)
        _check_limits(self.limits)

    def solve(self, parameters: Parameters) -> Solution:
        """Solve a batch."""
        return self.solver.solve_batch(parameters, **self.limits)

    def columns(self, solution: Solution) -> dict[str, np.ndarray]:
        """Return the columns of the table of results."""
        return make_solution_columns(self.solver.family.layout, solution, self.variables, self.dtype)


def stream(
    solver: BatchSolver,
    source: SourceLike,
    sink: SinkLike,
    *,
    variables: Sequence[str] | None = None,
    dtype: Precision = None,
    columns: Columns = None,
    keep: Sequence[str] = (),
    rows: int | None = None,
    shard: tuple[int, int] | None = None,
    progress: bool = True,
    **limits: Unpack[LimitOptions],
) -> Tally:
    """Solve all instances of a source in constant memory and hand the results to a sink, as `Solver.map` does."""
    begin = time.perf_counter()
    if isinstance(variables, str):
        raise TypeError(f"variables is a list of names, such as [{variables!r}]")
    chosen = None
    if variables is not None:
        chosen = tuple(variables)
    work = Work(solver, limits, chosen, dtype)
    opened = open_source(source, solver.family, columns, keep, rows)
    if isinstance(sink, str | Path):
        settings = _list_settings(work, columns, keep, opened)
        tally = _fill(work, opened, PartFolder(Path(sink), settings), shard, progress)
    else:
        tally = _feed(work, opened, sink, shard, progress)
    return dataclasses.replace(tally, seconds=time.perf_counter() - begin)


def _check_limits(limits: LimitOptions) -> None:
    """Refuse, before anything is read, what `solve_batch` would refuse."""
    for name in limits:
        if name not in LimitOptions.__annotations__:
            near = suggest(name, LimitOptions.__annotations__)
            raise TypeError(f"map has no option {name!r}{near or ';'} It has {', '.join(LimitOptions.__annotations__)}")
    Budget(limits.get("max_iter", 0), limits.get("steps"), None)
    eps_infeasible = limits.get("eps_infeasible")
    if eps_infeasible is None:
        eps_infeasible = 0.0
    check_tolerances(
        limits.get("eps_abs", 0.0), limits.get("eps_rel", 1.0), eps_infeasible, limits.get("check_every", 1)
    )


def _list_settings(work: Work, columns: Columns, keep: Sequence[str], source: Source) -> Mapping[str, object]:
    """Return all that the results of a part depend on beside its rows."""
    return {
        "longstep": __version__,
        "solver": work.solver.content_hash(),
        "limits": dict(work.limits),
        "variables": work.variables,
        "dtype": work.dtype,
        "columns": columns,
        "keep": list(keep),
        "rows": getattr(source, "size", None),
    }


def _feed(work: Work, source: Source, sink: Consumer, shard: tuple[int, int] | None, progress: bool) -> Tally:
    """Hand the results of every part to a function."""
    first, last = _find_span(source, shard)
    tallies = []
    with Bar("solving", source.instances, progress) as advance:
        for part in source.read(first, last):
            solution = _solve(work, part)
            kept = {name: array.to_numpy(zero_copy_only=False) for name, array in part.kept.items()}
            sink(unite_columns(kept, work.columns(solution)))
            tallies.append(Tally.of_solution(solution))
            advance(len(solution))
    return add_tallies(tallies)


def _fill(work: Work, source: Source, folder: PartFolder, shard: tuple[int, int] | None, progress: bool) -> Tally:
    """Fill a folder with the parts of this shard that it lacks; where none is missing any more, join them."""
    first, last = _find_span(source, shard)
    if (found := _find_finished(source, folder)) is not None:
        return found
    folder.begin()
    done: dict[int, tuple[str, Tally]] = {}
    try:
        with Bar("solving", _count_instances(source, first, last), progress) as advance, Behind() as behind:
            for part in source.read(first, last):
                key = _make_key(part, folder)
                tally = _finish_part(work, part, key, folder, behind)
                done[part.number] = (key, tally)
                advance(tally.instances)
    except SamplesError as error:
        kept = f"The {len(folder.list_numbers())} finished parts are kept in {folder.folder}"
        raise SamplesError(f"{error}. {kept}: mend it and run the same again, which goes on after them") from None
    own = add_tallies(tally for _, tally in done.values())
    total = source.parts
    if total is None:
        total = len(done)
    if not folder.list_numbers().issuperset(range(total)):
        # A shard that is run twice may find that the others have joined its parts meanwhile.
        return _find_finished(source, folder) or dataclasses.replace(own, complete=False)
    others = _verify_others(source, folder, done, shard)
    everything = [value for _, value in sorted((done | others).items())]
    try:
        folder.join([key for key, _ in everything], [tally for _, tally in everything])
    except FileNotFoundError:
        # Another run of the last shard may have joined them, and taken them away, at the same time.
        if _find_finished(source, folder) is None:
            raise
    return own


def _finish_part(work: Work, part: StreamPart, key: str, folder: PartFolder, behind: Behind) -> Tally:
    """Return the tally of a part, which is written while the next is solved, if it was not there before."""
    found = folder.find(part.number, key)
    if found is not None:
        return dataclasses.replace(found, reused=found.instances)
    solution = _solve(work, part)
    tally = Tally.of_solution(solution)

    def write() -> None:
        folder.write(part.number, key, make_arrow(unite_columns(part.kept, work.columns(solution))), tally)

    behind.submit(write)
    return tally


def _find_finished(source: Source, folder: PartFolder) -> Tally | None:
    """Return the tally of a joined file that is of this very source already."""
    joined = folder.find_joined()
    if joined is None or source.parts is None:
        return None
    keys, tally = joined
    if len(keys) != source.parts:
        return None
    if any(_make_key(part, folder) != keys[part.number] for part in source.read(0, None)):
        return None
    folder.clean()
    return dataclasses.replace(tally, reused=tally.instances)


def _verify_others(
    source: Source, folder: PartFolder, done: Mapping[int, object], shard: tuple[int, int] | None
) -> dict[int, tuple[str, Tally]]:
    """Return the keys and tallies of the other shards' parts, which must be of the rows that the source has now."""
    others: dict[int, tuple[str, Tally]] = {}
    if source.parts is None or shard is None:
        return others
    for first, last in ((0, min(done, default=0)), (max(done, default=-1) + 1, source.parts)):
        for part in source.read(first, last):
            key = _make_key(part, folder)
            tally = folder.find(part.number, key)
            if tally is None:
                raise FileFormatError(
                    f"{folder.locate(part.number)} was made of other rows than the source has now, or is damaged: run "
                    f"its shard again ({_find_shard(part.number, source.parts, shard[1])}/{shard[1]})"
                )
            others[part.number] = (key, tally)
    return others


def _find_span(source: Source, shard: tuple[int, int] | None) -> tuple[int, int | None]:
    """Return the parts of a shard: its first, and the one after its last."""
    if shard is None:
        return 0, source.parts
    number, count = shard
    if not 1 <= number <= count:
        raise ValueError(f"shards are counted from 1: 1/{max(count, 1)} is the first, got {number}/{count}")
    if source.parts is None:
        raise ValueError("batches cannot be divided into shards: give each run its own batches, and its own sink")
    return source.parts * (number - 1) // count, source.parts * number // count


def _find_shard(part: int, parts: int, count: int) -> int:
    """Return the number of the shard that has a part."""
    return next(number for number in range(1, count + 1) if part < parts * number // count)


def _count_instances(source: Source, first: int, last: int | None) -> int | None:
    """Return how many instances some parts have, where that is known."""
    if source.instances is None or source.parts is None or last is None:
        return None
    return source.instances * (last - first) // source.parts


def _make_key(part: StreamPart, folder: PartFolder) -> str:
    """Return a hash of all that a part is made of: the settings, its rows, and the columns that are kept."""
    kept = {name: _list_values(array) for name, array in part.kept.items()}
    return content_hash(folder.settings_hash, part.parameters, kept)[:32]


def _list_values(array: "pa.Array") -> object:
    """Return the values of a column as what can be hashed: an array where they are numbers, else their text."""
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "biuf" and not array.null_count:
        return values
    return repr(array.to_pylist())


def _solve(work: Work, part: StreamPart) -> Solution:
    """Solve a part; what is wrong with its parameters is said with their place in the source."""
    try:
        return work.solve(part.parameters)
    except (ValueError, TypeError) as error:
        raise SamplesError(f"{part.where} of the source: {error}") from error


def unite_columns(kept: Mapping[str, object], columns: Mapping[str, np.ndarray]) -> dict:
    """Return the kept columns before the others; refused where a name is in both."""
    if both := set(kept).intersection(columns):
        raise ValueError(f"the column {min(both)!r} to keep is called as one of the results: rename it in the source")
    return {**kept, **columns}
