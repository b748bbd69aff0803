"""What one instance takes in C, as a package takes it: one after the other, called from Python."""

import time
from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import PyTree

from ..errors import CompilerError
from ..export_c import CompiledSolver
from ..solver import Solver

# Fewer instances tell little of the time, and of more a part is enough.
_LEAST = 20
_MOST = 50
# Larger families take long to compile.
_LARGEST = 600
# Before an instance counts, so many have been solved.
_WARM = 2


def time_in_c(solver: Solver, parameters: PyTree, tolerances: Iterable[float], most: int) -> dict[float, float] | None:
    """Return the mean seconds of one instance in C, by tolerance, with `most` steps at most.

    None where there is no C of it: for want of a compiler, of room on disk or of code for the algorithm, where the
    family is large, or where instances are too few to compile for.
    """
    family = solver.family
    count = family.count(parameters)
    if count < _LEAST or family.sparse or family.n > _LARGEST:
        return None
    try:
        compiled = CompiledSolver(solver, "double", "auto", cache=True)
    except (CompilerError, MemoryError, ValueError):
        return None
    some = [_pick(parameters, k) for k in np.linspace(0, count - 1, min(count, _MOST)).astype(int)]
    found = {}
    for eps in tolerances:
        seconds = []
        for one in [*some[:_WARM], *some]:
            begin = time.perf_counter()
            compiled.solve(one, eps_abs=eps, eps_rel=eps, max_iter=most)
            seconds.append(time.perf_counter() - begin)
        found[eps] = float(np.mean(seconds[_WARM:]))
    return found


def _pick(parameters: PyTree, k: int) -> PyTree:
    """Return one of several parameters: arrays, or the data by name, of which some may be the same for all."""
    if isinstance(parameters, Mapping):
        return {name: value[k] if np.ndim(value) == 2 else value for name, value in parameters.items()}
    return parameters[k]
