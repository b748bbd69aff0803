"""Reference optima of many instances: in parallel, with a progress bar, cached on disk, resumable."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import PyTree

from .._util import storage
from .._util.hashing import content_hash
from .._util.progress import Bar
from ..families.base import Family
from ..families.composite import Composite
from ..families.reading import Parameters
from ..families.smooth import Smooth
from ..linalg.real import check_real
from .exact import MANY, find_exact
from .optima import Optima
from .reference_solvers import make_worker, widen

if TYPE_CHECKING:
    import joblib

# Part of every cache key: raise it when the meaning of a stored optimum changes.
_CACHE_VERSION = 1
_CHUNK = 16
# Chunks that are sent at a time to engines that give nothing back before all are done.
_ROUND = 64
# Seconds of work for which other processes are not worth starting: each imports this package first.
_WORTH = 5.0


def solve_references(
    family: Family,
    parameters: Parameters,
    *,
    accuracy: float = 1e-8,
    cache: "str | Path | bool" = True,
    jobs: int = -1,
    progress: bool = True,
) -> Optima:
    """Return trusted optima of N parameters; one that misses the accuracy (a relative KKT error) raises an error.

    QP and Conic go to Clarabel (a QP is then solved exactly on its active rows), Quadratic to the normal equations,
    Composite to accelerated proximal gradient and Newton on the active coordinates, Smooth to Newton. Of thousands of
    instances, those of QPs and composites go to the finish first (`longstep.data.exact`). Finished chunks are kept in
    `cache` (True: the folder in LONGSTEP_CACHE, else the user’s cache folder; False: none), so a second call is instant
    and an interrupted one goes on where it was. `jobs` and any `joblib.parallel_config` around the call say where the
    work is done.
    """
    check_real("the parameters", parameters)
    count = family.count(parameters)
    if count == 0:
        raise ValueError("there are no parameters to solve for")
    folder = storage.cache_folder(cache, "references")
    ranges = {start: (start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)}
    files: dict[int, Path] = {}
    if folder is not None:
        key = content_hash("references", _CACHE_VERSION, family.content_hash(), accuracy)
        for start, chunk in ranges.items():
            part = family.select(parameters, np.arange(*chunk))
            files[start] = folder / f"{content_hash(key, _list_leaves(part))}.optima"
    parts: dict[int, Optima] = {}
    for start, path in files.items():
        found = _load(path)
        if found is not None:
            parts[start] = found
    missing = [chunk for start, chunk in ranges.items() if start not in parts]
    with Bar("reference optima", count, progress and bool(missing)) as advance:
        advance(sum(map(len, parts.values())))
        for start, optima in _solve(family, parameters, missing, accuracy, jobs):
            parts[start] = optima
            if start in files:
                _store(files[start], optima)
            advance(len(optima))
    return Optima.join([parts[start] for start in ranges])


def _solve(
    family: Family, parameters: Parameters, ranges: list[tuple[int, int]], accuracy: float, jobs: int
) -> Iterator[tuple[int, Optima]]:
    """Yield the optima of ranges of parameters with the first number of each, as they are done.

    By the finish where there are many; else, and where it fails, by a reference solver.
    """
    done = set[int]()
    if sum(end - start for start, end in ranges) >= MANY:
        for start, optima in find_exact(widen(family), parameters, ranges, accuracy):
            done.add(start)
            yield start, optima
    left = [(start, end) for start, end in ranges if start not in done]
    for (start, _), optima in zip(left, _compute(family, parameters, left, accuracy, jobs), strict=True):
        yield start, optima


def _compute(
    family: Family, parameters: Parameters, ranges: list[tuple[int, int]], accuracy: float, jobs: int
) -> Iterator[Optima]:
    """Yield the optima of ranges of parameters, in order, as they are done."""
    if not ranges:
        return
    import joblib

    work, place = make_worker(family)

    def make_arguments(start: int, end: int) -> tuple[PyTree, int, float]:
        return place(family.select(parameters, np.arange(start, end))), start, accuracy

    # What runs JAX stays in this process, whose precision switch it needs; the rest may run anywhere.
    options = {}
    if isinstance(family, Composite | Smooth):
        options["require"] = "sharedmem"
    backend, _ = joblib.parallel.get_active_backend(**options)
    if isinstance(backend, joblib.parallel.BACKENDS[joblib.parallel.DEFAULT_BACKEND]):
        # The first tells whether the others are worth processes of their own.
        begin = perf_counter()
        yield work(*make_arguments(*ranges[0]))
        if (perf_counter() - begin) * (len(ranges) - 1) < _WORTH:
            jobs = 1
        ranges = ranges[1:]
    tasks = (joblib.delayed(work)(*make_arguments(*r)) for r in ranges)
    if len(ranges) <= 1:
        jobs = 1
    if jobs == 1 or getattr(backend, "supports_return_generator", False):
        yield from joblib.Parallel(n_jobs=jobs, return_as="generator", **options)(tasks)
    else:
        yield from _compute_rounds(joblib.Parallel(n_jobs=jobs, **options), tasks)


def _compute_rounds(parallel: "joblib.Parallel", tasks: Iterator[tuple]) -> Iterator[Optima]:
    """Yield the results of tasks in rounds, for back ends (Ray's) that return lists: what is finished is kept."""
    while some := list(itertools.islice(tasks, _ROUND)):
        yield from parallel(some)


def _list_leaves(part: Parameters) -> tuple[list[np.ndarray], str]:
    """Return the arrays of parameters, and their structure in words."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(part)], str(jax.tree.structure(part))


def _load(path: Path) -> Optima | None:
    """Return the optima of a file; None where it is not there, or damaged."""
    try:
        arrays, _ = storage.read(path, "optima", _CACHE_VERSION)
    except (FileNotFoundError, storage.FileFormatError):
        return None  # a damaged entry is computed again
    if not {"x", "value", "error"} <= arrays.keys():
        return None
    return Optima(arrays["x"], arrays.get("y"), arrays.get("s"), arrays["value"], arrays["error"])


def _store(path: Path, optima: Optima) -> None:
    arrays = {name: value for name, value in vars(optima).items() if value is not None}
    storage.keep(path, lambda: storage.write(path, "optima", _CACHE_VERSION, arrays, {}))
