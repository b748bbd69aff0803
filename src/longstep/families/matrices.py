"""P and A of a constrained family: as the user gave them, and equilibrated."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from ..linalg.factor import Gram, Spectrum
from ..linalg.matrix import ArrayLike2D, Matrix, make_matrix, to_csr
from ..linalg.scaling import Scaling, ruiz
from ..memory import require
from .affine import Affine, WorkingMap
from .base import NamedFamily, check_convex, check_linear, check_square, is_diagonal, is_named
from .layout import Layout

_TOO_LARGE = (
    "longstep is for problems of up to some thousands of unknowns that are solved again and again; for one this large "
    "use a sparse solver (OSQP, SCS, Clarabel) or eliminate unknowns"
)


class Host:
    """The user's own data, on the host; compared by identity so that jit can hold it."""

    def __init__(
        self,
        P: sp.csr_array,
        A: sp.csr_array,
        values: dict[str, np.ndarray | None],
        equilibrate: bool,
        kinds: Any = None,
        layout: Layout | None = None,
    ):
        self.P, self.A, self.values, self.equilibrate, self.kinds = P, A, values, equilibrate, kinds
        self.layout = layout

    def hashed(self) -> tuple:
        """What defines the problem."""
        return self.P, self.A, self.values


class Matrices(eqx.Module):
    """The equilibrated P̄ = c·D P D and Ā = E A D, which algorithms use, with the scaling back to user's units.

    `fixed` is a further constant part of every Gram matrix, or absent; `size_P` and `size_A` are the largest entries
    of the user's own P and A, or one if that is less, against which certificates of infeasibility are judged.
    """

    P: Matrix
    A: Matrix
    fixed: Matrix | None
    scaling: Scaling
    size_P: Float[Array, ""]
    size_A: Float[Array, ""]
    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True)
    diagonal: bool = eqx.field(static=True)
    spectrum: Spectrum | None

    @property
    def factor_size(self) -> int:
        """How many numbers the factor of a Gram matrix has."""
        return self.n if self.diagonal else self.n**2

    def gram(self, shift: Any, weights: Any) -> Gram:
        """K = P̄ + shift·I + Ā'diag(weights)Ā."""
        return Gram(self.P, self.A, self.fixed, shift, weights, self.n, self.spectrum)


class ConstrainedFamily(NamedFamily):
    """What QP and Conic have in common: matrices, base values, and a parameter map in two forms."""

    m: eqx.AbstractVar[int]
    matrices: eqx.AbstractVar[Matrices]
    parameter: eqx.AbstractVar[Affine | None]
    mapped: eqx.AbstractVar[WorkingMap | None]
    host: eqx.AbstractVar[Host]

    @property
    def P(self) -> sp.csr_array:
        """The quadratic term, as given."""
        return self.host.P

    @property
    def A(self) -> sp.csr_array:
        """The constraint matrix, as given."""
        return self.host.A

    @property
    def layout(self) -> Layout | None:
        """What the entries of parameters and solutions are called, where that is known."""
        return self.host.layout

    def single(self, parameter: Any) -> Any:  # noqa: D102
        if self.host.layout is None or not is_named(parameter):
            return super().single(parameter)
        return self.host.layout.one(parameter)[None]

    def vectors(self, parameters: Any) -> Any:  # noqa: D102
        if self.host.layout is None or not is_named(parameters):
            return super().vectors(parameters)
        return self.host.layout.many(parameters)

    def maps(self, parameters: Any) -> bool:
        """Whether these are parameter vectors that the device map takes."""
        return self.mapped is not None and not is_named(parameters)


def check_matrices(P: ArrayLike2D | None, A: ArrayLike2D) -> tuple[sp.csr_array, sp.csr_array]:
    """P and A as float64 CSR; bad shapes, NaN and indefinite P are refused."""
    rows = to_csr(A)
    square = sp.csr_array((rows.shape[1], rows.shape[1])) if P is None else to_csr(P)
    check_square("P", square)
    check_linear("A", rows, square.shape[0])
    n = square.shape[0]
    require(4 * 8 * n * n, f"a family with {n} unknowns, whose factors are dense {n}×{n} matrices,", _TOO_LARGE)
    check_convex("P", square)
    return square, rows


class Equilibrated:
    """P, A and the scalings on the host in float64, from which a family builds its working data."""

    def __init__(self, host: Host, blocks: np.ndarray, cost: np.ndarray | None):
        self.host = host
        m, n = host.A.shape
        self.d, self.e, self.c = np.ones(n), np.ones(m), 1.0
        if host.equilibrate:
            self.d, self.e, self.c = ruiz(host.P, host.A, blocks, cost)
            if _one_to_one(host.A) and np.unique(blocks).size == m:
                # Where the scaling of rows of their own converges to: then A'A = I, which training makes use of.
                self.e = 1.0 / np.abs(host.A.data * self.d[host.A.indices])
        D, E = sp.diags_array(self.d), sp.diags_array(self.e)
        self.P, self.A = to_csr(self.c * (D @ host.P @ D)), to_csr(E @ host.A @ D)

    def matrices(
        self, dtype: np.dtype, rows: np.ndarray, fixed: sp.csr_array | None = None, *, alike: bool = False
    ) -> Matrices:
        """The working matrices, with some rows of A; `alike` says that algorithms give them all the same penalty."""
        A = sp.csr_array(self.A[rows])
        diagonal = _gram_is_diagonal(self.P, self.A)
        orthogonal = _one_to_one(A) and bool(np.allclose(np.abs(A.data), 1.0, rtol=1e-14))
        spectrum = None
        if alike and orthogonal and fixed is None and not diagonal:
            values, vectors = np.linalg.eigh(self.P.toarray())
            spectrum = Spectrum(jnp.asarray(np.maximum(values, 0.0), dtype), jnp.asarray(vectors, dtype))
        return Matrices(
            P=make_matrix(self.P, dtype),
            A=make_matrix(A, dtype),
            fixed=None if fixed is None else make_matrix(fixed, dtype),
            scaling=Scaling(jnp.asarray(self.d, dtype), jnp.asarray(self.e[rows], dtype), jnp.asarray(self.c, dtype)),
            size_P=jnp.asarray(_size(self.host.P), dtype),
            size_A=jnp.asarray(_size(self.host.A), dtype),
            n=self.P.shape[0],
            m=A.shape[0],
            diagonal=diagonal,
            spectrum=spectrum,
        )


def _one_to_one(A: sp.csr_array) -> bool:
    """Whether A has one entry in every row and column: bounds on all unknowns, and nothing else."""
    m, n = A.shape
    return m == n == A.nnz and bool((np.diff(A.indptr) == 1).all()) and np.unique(A.indices).size == n


def _size(M: sp.csr_array) -> float:
    """The largest entry, and at most one: large entries must not make a certificate easier to pass."""
    return min(1.0, float(np.max(np.abs(M.data), initial=0.0)))


def _gram_is_diagonal(P: sp.csr_array, A: sp.csr_array) -> bool:
    """Whether P + A'WA is diagonal for every diagonal W, so that a solve is a division."""
    one_entry_rows = bool((np.diff(A.indptr) <= 1).all())
    return one_entry_rows and is_diagonal(P)
