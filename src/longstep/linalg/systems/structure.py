"""What the linear systems of a family have in common, found once from its matrices."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from ..._util.memory import require
from ..._util.progress import say
from ..matrix import is_diagonal, is_one_to_one
from .augmented import Augmented, Quasidefinite, may_be_sparse
from .operator import Pattern, Spectrum
from .registry import ALWAYS, choose

# Sparse factors of so many unknowns and rows may take long; how long is known only when there is one.
_MANY = 20_000


class Structure(eqx.Module):
    """What all K = P + shift·I + A'diag(weights)A + free_weight·F'F have in common, whatever shift and weights are.

    All are `diagonal`, or not. There is a `spectrum` of P where A'A = I and there is no F. Large sparse ones have an
    `augmented` form, with the rows of F behind those of A: the host then solves with them, and has P and A too.
    """

    spectrum: Spectrum | None
    augmented: Quasidefinite | None
    diagonal: bool = eqx.field(static=True)

    @property
    def on_host(self) -> bool:
        """Whether the host solves, by sparse factors."""
        return self.augmented is not None

    def describe(self, n: int, alike: bool) -> Pattern:
        """Return the pattern of operators on n unknowns, all of whose rows have the same weight, or not."""
        fill = None
        if self.augmented is not None:
            fill = self.augmented.fill
        return Pattern(n, diagonal=self.diagonal, spectral=alike and self.spectrum is not None, fill=fill)


def find_structure(P: sp.csr_array, A: sp.csr_array, F: sp.csr_array | None, dtype: np.dtype) -> Structure:
    """Return the structure of operators, in this precision; F is None where there are no rows in it."""
    rows = A
    if F is not None:
        rows = sp.csr_array(sp.vstack([A, F]))
    if is_diagonal(P) and bool((np.diff(rows.indptr) <= 1).all()):
        return Structure(None, None, diagonal=True)
    augmented = _augment(P, rows)
    spectrum = None
    if augmented is None and F is None and _is_orthogonal(A):
        values, vectors = np.linalg.eigh(P.toarray())
        spectrum = Spectrum(jnp.asarray(np.maximum(values, 0.0), dtype), jnp.asarray(vectors, dtype))
    return Structure(spectrum, augmented, diagonal=False)


def _augment(P: sp.csr_array, A: sp.csr_array) -> Quasidefinite | None:
    """Return the augmented form of P + shift·I + A'diag(weights)A where the back end for it is on the host: then its
    sparse factor is the cheapest to solve with. None elsewhere."""
    n = P.shape[0]
    if not may_be_sparse(n, P.nnz + A.nnz):
        return None
    if n + A.shape[0] > _MANY:
        say(f"longstep looks for a sparse factor of a family with {n} unknowns and {A.shape[0]} rows")
    augmented = Augmented(P, A)
    if not choose(Pattern(n, fill=augmented.fill), ALWAYS).on_host:
        return None
    return Quasidefinite(augmented)


def require_room(n: int, entries: int, advice: str) -> None:
    """Refuse operators on n unknowns whose dense factors do not fit into memory, unless sparse ones, of matrices with
    this number of `entries`, are worth a look."""
    if not may_be_sparse(n, entries):
        require(4 * 8 * n * n, f"a family with {n} unknowns, whose factors are dense {n}×{n} matrices,", advice)


def _is_orthogonal(A: sp.csr_array) -> bool:
    """Return whether A'A = I because A has one entry of ±1 in every row and column."""
    return is_one_to_one(A) and bool(np.allclose(np.abs(A.data), 1.0, rtol=1e-14))
