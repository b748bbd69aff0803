"""The working matrices of a constrained family: equilibrated once (Ruiz 2001), on the host, and put on the device."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from ..linalg.matrix import Matrix, is_one_to_one, make_host_matrix, make_matrix, to_csr
from ..linalg.systems import Structure, find_structure
from .convexity import is_dense

_SMALLEST = 1e-4
_LARGEST = 1e4


class Scaling(eqx.Module):
    """Diagonal scalings: P̄ = c·D P D, Ā = E A D, so x = D x̄, s = E⁻¹ s̄, y = E ȳ / c."""

    d: Float[Array, " n"]
    e: Float[Array, " m"]
    c: Float[Array, ""]

    @staticmethod
    def identity(n: int, m: int, dtype) -> "Scaling":
        """Return scalings that change nothing."""
        return Scaling(jnp.ones(n, dtype), jnp.ones(m, dtype), jnp.ones((), dtype))


def _clip_norms(norms: np.ndarray | float) -> np.ndarray:
    """Return norms fit to divide by: empty rows and columns stay as they are, extreme ones are cut."""
    return np.minimum(np.where(norms < _SMALLEST, 1.0, norms), _LARGEST)


def ruiz(
    P: sp.csr_array,
    A: sp.csr_array,
    blocks: np.ndarray,
    cost: np.ndarray | None,
    iterations: int = 10,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return scalings (d, e, c) that bring the columns of [P A'; A 0] near ∞-norm one (Ruiz 2001).

    `blocks` numbers the rows of A: rows with the same number share one scale, which keeps their cone
    what it is. `cost` is a typical linear term; with it (QP) the objective is scaled too, by max(mean column norm of
    P, ‖cost‖∞) as OSQP does, which takes the norm of a zero cost to be 1; None (Conic) leaves c = 1.
    """
    m, n = A.shape
    d = np.ones(n)
    e = np.ones(m)
    c = 1.0
    P = _take_magnitudes(P)
    A = _take_magnitudes(A)
    q = None
    if cost is not None:
        q = np.abs(cost).astype(float)
    for _ in range(iterations):
        column = np.maximum(_column_max(P), _column_max(A))
        row = _column_max(A.T)
        if m:
            shared = np.zeros(int(blocks.max()) + 1)
            np.maximum.at(shared, blocks, row)
            row = shared[blocks]
        step_d = 1 / np.sqrt(_clip_norms(column))
        step_e = 1 / np.sqrt(_clip_norms(row))
        P = _scale(P, step_d, step_d)
        A = _scale(A, step_e, step_d)
        d = d * step_d
        e = e * step_e
        if q is not None:
            q = q * step_d
            sizes = np.array([_column_max(P).mean(), _clip_norms(np.array(q.max(initial=0.0)))])
            step_c = 1 / float(_clip_norms(sizes.max()))
            P = P * step_c
            q = q * step_c
            c = c * step_c
    return d, e, c


def _take_magnitudes(M: sp.csr_array) -> np.ndarray | sp.csc_array:
    """Return |M|, as an array where products with an array are faster."""
    return np.abs(M.toarray()) if is_dense(M) else sp.csc_array(abs(M.tocsc()))


def _scale(M: np.ndarray | sp.csc_array, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | sp.csc_array:
    if isinstance(M, np.ndarray):
        return rows[:, None] * M * columns
    return sp.csc_array(sp.diags_array(rows) @ M @ sp.diags_array(columns))


def _column_max(M: np.ndarray | sp.sparray) -> np.ndarray:
    if isinstance(M, np.ndarray):
        return M.max(axis=0, initial=0.0)
    columns = sp.csc_array(M)
    if 0 in columns.shape or columns.nnz == 0:
        return np.zeros(columns.shape[1])
    return np.asarray(columns.max(axis=0).todense()).ravel()


class Matrices(eqx.Module):
    """The equilibrated P̄ = c·D P D and Ā = E A D, which algorithms use, with the scaling back to user's units.

    `free` is F'F of rows F of the equilibrated matrix that are not in Ā, or absent; `size_P` and `size_A` are the
    largest entries of the user's own P and A, or one if that is less, against which certificates of infeasibility are
    judged. `structure` is for those who solve with these matrices.
    """

    P: Matrix
    A: Matrix
    free: Matrix | None
    scaling: Scaling
    size_P: Float[Array, ""]
    size_A: Float[Array, ""]
    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True)
    structure: Structure

    @property
    def diagonal(self) -> bool:
        """Whether P̄ + Ā'WĀ is diagonal for every diagonal W."""
        return self.structure.diagonal


class Equilibrated:
    """P, A and the scalings on the host in float64, from which a family builds its working data."""

    def __init__(
        self, P: sp.csr_array, A: sp.csr_array, blocks: np.ndarray, cost: np.ndarray | None, *, equilibrate: bool
    ):
        m, n = A.shape
        self.d = np.ones(n)
        self.e = np.ones(m)
        self.c = 1.0
        if equilibrate:
            self.d, self.e, self.c = ruiz(P, A, blocks, cost)
            if is_one_to_one(A) and np.unique(blocks).size == m:
                # Bounds on all unknowns, and nothing else. Where the scaling of rows of their own converges to: then
                # A'A = I, which training makes use of.
                self.e = 1.0 / np.abs(A.data * self.d[A.indices])
        D = sp.diags_array(self.d)
        E = sp.diags_array(self.e)
        self.given_P = P
        self.given_A = A
        self.P = to_csr(self.c * (D @ P @ D))
        self.A = to_csr(E @ A @ D)

    def matrices(self, dtype: np.dtype, rows: np.ndarray, free: np.ndarray | None = None) -> Matrices:
        """Return the working matrices, with some rows of A, and the others, which are `free`, apart."""
        A = sp.csr_array(self.A[rows])
        F = None
        if free is not None and free.size:
            F = sp.csr_array(self.A[free])
        structure = find_structure(self.P, A, F, dtype)
        make = make_matrix
        if structure.on_host:
            make = make_host_matrix
        square = None
        if F is not None:
            square = make(sp.csr_array(F.T @ F), dtype)
        return Matrices(
            P=make(self.P, dtype),
            A=make(A, dtype),
            free=square,
            scaling=Scaling(jnp.asarray(self.d, dtype), jnp.asarray(self.e[rows], dtype), jnp.asarray(self.c, dtype)),
            size_P=jnp.asarray(_measure_largest(self.given_P), dtype),
            size_A=jnp.asarray(_measure_largest(self.given_A), dtype),
            n=self.P.shape[0],
            m=A.shape[0],
            structure=structure,
        )


def _measure_largest(M: sp.csr_array) -> float:
    """Return the largest entry, and at most one: large entries must not make a certificate easier to pass."""
    return min(1.0, float(np.max(np.abs(M.data), initial=0.0)))
