"""The data of the finish of cone programs as C: the rows of A, the lower triangle of P, and the rules of the search."""

import scipy.sparse as sp

from ..cones.product import Cones
from ..engine import newton
from ..engine.finish import ACCURACY
from ..engine.finisher import Patience
from . import emit
from .problem import ExportedProblem

# What the finish is written as: before and behind what is for some cones alone.
_FIRST = ("newton_sums.c", "newton_cones.c")
_LAST = ("newton_weights.c", "newton_system.c", "newton.c")
# Which numbers make derivatives of projections: eigenvalues, eigenvectors, and bases with eigenvalues.
_ARRAYS = ("VALUES", "VECTORS", "BASES")


def write_newton(problem: ExportedProblem, A: sp.csr_array, P: sp.csr_array, precision: str) -> list[str]:
    """Return what the finish computes with, in parts, of A and P in the order of elimination; [] without a finish."""
    if problem.finish is None:
        return []
    patience = problem.patience or Patience(0.0, problem.finish)
    sizes = {
        "FINISH_AFTER": problem.finish,
        "PATIENCE": patience.steps,
        "FINISH_BY_SETS": 0,
        "NEWTON_STEPS": newton.STEPS,
    }
    scalars = {
        "PATIENCE_EPS": patience.eps,
        "FINISH_ACCURACY": ACCURACY,
        "NEWTON_PROXIMAL": newton.PROXIMAL,
        "NEWTON_MOST_PROXIMAL": newton.MOST_PROXIMAL,
        "NEWTON_LESS": newton.LESS,
        "NEWTON_MORE": newton.MORE,
        "NEWTON_WORSE": newton.WORSE,
        "NEWTON_CLOSE": newton.CLOSE,
    }
    rows = sp.csr_array(A)
    rows.sort_indices()
    lower = sp.csc_array(sp.tril(P))
    lower.sort_indices()
    return [
        emit.defines(sizes),
        emit.defines(emit.numbers(scalars, precision)),
        *_write_entries("row", "column", rows, precision),
        *_write_entries("lower", "row", lower, precision),
    ]


def read_newton(cones: Cones) -> str:
    """Return the code of the finish."""
    own = dict.fromkeys(cone.c_finish for cone in cones.parts if cone.c_finish is not None)
    return "".join(emit.read_part(name) for name in (*_FIRST, *own, *_LAST))


def _write_entries(name: str, across: str, matrix: sp.csr_array | sp.csc_array, precision: str) -> tuple[str, ...]:
    """Return the entries of a matrix, where those of each line begin, and where each is in its line."""
    return (
        emit.integers("int32_t", f"{name}_first", matrix.indptr),
        emit.integers("index_t", f"{name}_{across}", matrix.indices),
        emit.reals(f"{name}_value", matrix.data, precision),
    )


def count_derivatives(problem: ExportedProblem) -> dict[str, int]:
    """Return how many numbers make the derivatives of projections, by array. C has no arrays without entries."""
    assert problem.cones is not None
    counts = [cone.count_c_derivatives() for cone in problem.cones.parts]
    return {f"LONGSTEP_{name}_": max(sum(count.get(name, 0) for count in counts), 1) for name in _ARRAYS}


def measure_matrix(cones: Cones | None) -> int:
    """Return the numbers of the matrix that projections work on; 1 without."""
    if cones is None:
        return 1
    return max((cone.c_matrix for cone in cones.parts), default=1)
