"""Back ends for the linear systems of a step, one file each, and the one function that chooses among them."""

import jax
import scipy.sparse as sp

from .augmented import Augmented as Augmented
from .augmented import Factors as Factors
from .augmented import Quasidefinite as Quasidefinite
from .augmented import may_be_sparse as may_be_sparse
from .base import Factored as Factored
from .base import LinearSystem as LinearSystem
from .base import Picked as Picked
from .base import refinements_for as refinements_for
from .base import respond as respond
from .base import solve as solve
from .cholesky import Cholesky
from .diagonal import Diagonal
from .inverse import Inverse
from .operator import Gram as Gram
from .operator import Pattern as Pattern
from .operator import Spectrum as Spectrum
from .response import Response
from .sparse import Sparse as Sparse
from .spectral import Spectral

BACK_ENDS: tuple[type[LinearSystem], ...] = (Diagonal, Spectral, Sparse, Inverse, Cholesky, Response)

# How often a cached system is solved: by a solver that is used, and in a step of training.
ALWAYS = 1e12
ONCE = 1.0


def choose(pattern: Pattern, solves: float) -> type[LinearSystem]:
    """The back end that makes one system of this pattern and solves it so many times at the least cost."""
    return min((b for b in BACK_ENDS if b.fits(pattern)), key=lambda b: cost(b, pattern, solves))


def cost(back_end: type[LinearSystem], pattern: Pattern, solves: float) -> float:
    """What it costs to make one system of this pattern and to solve it so many times, in operations."""
    if pattern.rows is None or back_end is Response:
        return back_end.flops(pattern, solves)
    # Where Ax is asked for, of right-hand sides A't, others take the products with A' and A too.
    return back_end.flops(pattern, solves) + 4.0 * pattern.rows * pattern.n * solves


def factorize(K: Gram, solves: float) -> LinearSystem:
    """What is cached for K, by the cheapest back end for so many solves. Carries no gradient."""
    return choose(K.pattern, solves).factor(jax.lax.stop_gradient(K))


def augment(P: sp.csr_array, A: sp.csr_array) -> Quasidefinite | None:
    """The augmented form of P + shift·I + A'diag(weights)A, where its sparse factor is the cheapest to solve with."""
    n = P.shape[0]
    if not may_be_sparse(n, P.nnz + A.nnz):
        return None
    augmented = Augmented(P, A)
    if choose(Pattern(n, fill=augmented.fill), ALWAYS) is not Sparse:
        return None
    return Quasidefinite(augmented)
