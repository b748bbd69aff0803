"""The back ends that there are, and the one function that chooses among them: a new one is a line here."""

import math

import jax

from .base import LinearSystem
from .cholesky import Cholesky
from .diagonal import Diagonal
from .inverse import Inverse
from .operator import Gram, Pattern
from .response import Response
from .sparse import Sparse
from .spectral import Spectral

BACK_ENDS: tuple[type[LinearSystem], ...] = (Diagonal, Spectral, Sparse, Inverse, Cholesky, Response)

# How often a cached system is solved: by a solver that is used, and in a step of training.
ALWAYS = 1e12
ONCE = 1.0


def choose(pattern: Pattern, solves: float, room: float = math.inf, itemsize: int = 8) -> type[LinearSystem]:
    """Return the back end for operators of this pattern that are solved with `solves` times each: of those that keep at
    most `room` bytes for one, that of the fewest operations; where none does, that of the fewest bytes."""
    costs = {back_end: back_end.cost(pattern, solves, itemsize) for back_end in BACK_ENDS if back_end.fits(pattern)}
    within = [back_end for back_end, cost in costs.items() if cost.bytes <= room]
    if within:
        return min(within, key=lambda back_end: costs[back_end].flops)
    return min(costs, key=lambda back_end: costs[back_end])


def factorize(K: Gram, solves: float) -> LinearSystem:
    """Return what is cached for K by the back end of the fewest operations for `solves` solves. Carries no gradient."""
    return factorize_by(choose(K.pattern, solves), K)


def factorize_by(back_end: type[LinearSystem], K: Gram) -> LinearSystem:
    """Return what a back end caches for K. Carries no gradient."""
    return back_end.factor(jax.lax.stop_gradient(K))
