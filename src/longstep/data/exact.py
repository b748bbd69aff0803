"""Reference optima by the finish, from no active set at all: for where there are many.

What is compiled for it costs as much as some thousand optima by other means, and then an optimum costs a few changes of
the active set. Each is checked as those of other solvers are, by the conditions of optimality on the user's own data.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from ..engine.finish import ACCURACY, PROXIMAL
from ..engine.finisher import Exact, Finisher, finishes_by_sets
from ..engine.stopping import Limits
from ..families.base import Family
from ..families.composite import Composite
from ..families.point import Point
from ..families.quadratic_program import QP
from ..families.reading import Parameters
from .optima import Optima, measure_qp_error

# Instances from which on it costs less (`benchmarks/references.py`).
MANY = 2000
# Instances at a time.
_PIECE = 512
# Where a piece takes more changes for each instance than this, or more of it than this part fails, the others are left
# to a reference solver.
_MOST_CHANGES = 50
_MOST_FAILED = 0.1


def find_exact(
    family: Family, parameters: Parameters, ranges: list[tuple[int, int]], accuracy: float
) -> Iterator[tuple[int, Optima]]:
    """Yield (start, optima) of those ranges of parameters whose instances all have exact points.

    The points are within the accuracy too. There are none where the family has no finish by active sets. The family is
    in float64.
    """
    if not isinstance(family, QP | Composite) or not finishes_by_sets(family):
        return
    # The switch is never on while a caller has the results: it is the thread's.
    with jax.enable_x64(True):
        finisher = Finisher(family, PROXIMAL)
    length = max(end - start for start, end in ranges)
    each = max(_PIECE // length, 1)
    for first in range(0, len(ranges), each):
        some = ranges[first : first + each]
        index = np.concatenate([np.arange(*pair) for pair in some])
        chosen = family.select(parameters, index)
        with jax.enable_x64(True):
            found = _finish(family, finisher, chosen, len(index))
            optima = _verify(family, chosen, found)
        good = found.exact & (optima.error <= accuracy)
        begin = 0
        for start, end in some:
            part = np.arange(begin, begin + end - start)
            begin += end - start
            if good[part].all():
                yield start, optima.select(part)
        if np.mean(~good) > _MOST_FAILED or np.mean(found.changes) > _MOST_CHANGES:
            return


def _finish(family: QP | Composite, finisher: Finisher, parameters: Parameters, count: int) -> Exact:
    """Return what the finish finds from zero."""
    zero = Point(jnp.zeros((family.n, count)))
    if isinstance(family, QP):
        zero = Point(zero.x, jnp.zeros((family.m, count)), jnp.zeros((family.m, count)))
    return finisher(family.encode(parameters), zero, np.ones(count, bool), Limits.of(ACCURACY))


def _verify(family: QP | Composite, parameters: Parameters, found: Exact) -> Optima:
    """Return points with their relative errors, as the reference solvers measure them."""
    x = found.fields["x"].T
    if isinstance(family, Composite):
        scale = 1 + np.abs(np.asarray(family.instances(parameters).q)).max(axis=0)
        return Optima(x, None, None, found.fields["objective"], found.fields["dual_residual"] / scale)
    y = found.fields["y"].T
    data = family.data(parameters)
    P = sp.csc_array(family.P)
    A = sp.csc_array(family.A)
    rows = zip(data["q"], data["l"], data["u"], x, y, strict=True)
    error = np.array([measure_qp_error(P, A, *row) for row in rows])
    value = 0.5 * np.sum(x * (P @ x.T).T, axis=1) + np.sum(data["q"] * x, axis=1)
    return Optima(x, y, (A @ x.T).T, value, error)
