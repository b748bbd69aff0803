"""SolveBatches: a solver in a worker of Ray Data or Dask, loaded once and called with one batch after the other."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from typing_extensions import Unpack, override

from ._util.precision import enable_float64
from .data.columns import Columns, list_names, name_arrays, rename_columns
from .data.tables import make_arrow
from .errors import SamplesError
from .solver import Solver
from .streaming.stream import BatchSolver, LimitOptions, Precision, Work, unite_columns

# A dict of arrays, or a table of pandas or of Arrow.
TableT = TypeVar("TableT")


class SolveBatches:
    """A function from batches of parameters to batches of solutions that has its solver from a file.

    Made once in each worker, of `fn_constructor_args`, by `ray.data.Dataset.map_batches`; a worker that is lost is made
    again, and its batches are solved again:

        import ray
        from longstep.workers import SolveBatches

        ray.data.read_parquet("in").map_batches(
            SolveBatches, fn_constructor_args=["mpc.longstep"], fn_constructor_kwargs={"variables": ["u"]},
            batch_size=8192, compute=ray.data.ActorPoolStrategy(size=2),
        ).write_parquet("out")

    With `num_gpus=1` and a larger `batch_size` each worker has a GPU. Dask takes an instance of it:
    `table.map_partitions(SolveBatches("mpc.longstep"), meta=…)`.

    A batch is a dict of arrays, a DataFrame of pandas or a table of Arrow, with a column for each entry of the
    parameters (or, in a dict, an array for each parameter); other columns are ignored, but those to `keep`. The result
    is of the same kind and has the columns of `Solver.map`; `variables`, `dtype`, `columns`, `keep` and the limits are
    as there. `compiled` solves in C. JAX is switched to 64 bits in the worker.
    """

    def __init__(
        self,
        path: "str | Path",
        *,
        variables: Sequence[str] | None = None,
        dtype: Precision = None,
        columns: Columns = None,
        keep: Sequence[str] = (),
        compiled: bool = False,
        **limits: Unpack[LimitOptions],
    ):
        options = {"variables": variables, "dtype": dtype, "columns": columns, "keep": keep, "compiled": compiled}
        self._make_again = functools.partial(type(self), **options, **limits)
        self._path = path
        enable_float64()
        solver: BatchSolver = Solver.load(path)
        if compiled:
            solver = solver.compile()
        if solver.family.layout is None:
            raise ValueError(f"{path} knows no names for its parameters: a table has no columns for it. Use Solver.map")
        self.layout = solver.family.layout
        self.columns: Columns = columns
        self.keep = list(keep)
        chosen = None
        if variables is not None:
            chosen = tuple(variables)
        self.work = Work(solver, limits, chosen, dtype)

    def __call__(self, batch: TableT) -> TableT:
        """Return the results of a batch, one row for each of its rows."""
        arrays, restore = _open_table(batch)
        names = rename_columns(list(arrays), self.layout, self.columns)
        own = dict(zip(names, arrays, strict=True))
        if missing := [name for name in self.keep if name not in arrays]:
            raise SamplesError(
                f"there is no column {list_names(missing)} to keep; the batch has {list_names(names, 10)}"
            )
        x = self.layout.stack(name_arrays(self.layout, names, lambda name: np.asarray(arrays[own[name]])))
        kept = {name: np.asarray(arrays[name]) for name in self.keep}
        return restore(unite_columns(kept, self.work.columns(self.work.solve(x))))

    @override
    def __reduce__(self) -> "tuple[Callable[..., SolveBatches], tuple[str | Path]]":
        """Pickle what it was made with: a copy in another process loads the file there."""
        return self._make_again, (self._path,)


def _open_table(batch: TableT) -> tuple[Mapping[str, np.ndarray], Callable[[Mapping[str, np.ndarray]], TableT]]:
    """Return the columns of a table, and the function that makes a table of the same kind."""
    if isinstance(batch, Mapping):
        return batch, dict  # type: ignore
    make = type(batch)
    if hasattr(batch, "to_pandas") and hasattr(make, "from_pydict"):
        return {name: batch[name].to_numpy() for name in batch.column_names}, make_arrow  # type: ignore
    if hasattr(batch, "iloc"):
        columns = {name: batch[name].to_numpy() for name in batch.columns}  # type: ignore
        return columns, functools.partial(make, index=batch.index)  # type: ignore
    raise TypeError(f"a batch is a dict of arrays, a DataFrame or a table of Arrow, got {make.__name__}")
