"""Matrices that act on columns: dense, or as gathers when that is cheaper."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.custom_derivatives import linear_call
from jaxtyping import Array, Float, Int, PyTree
from typing_extensions import override

from . import host
from .real import read_plain_array, real_array

ArrayLike2D: TypeAlias = np.ndarray | sp.spmatrix | sp.sparray | jax.Array | list

TreeT = TypeVar("TreeT")

# Of instances, which are on the host until a compiled program takes them.
AnyArray: TypeAlias = Array | np.ndarray

# A gathered entry costs about as much as this many dense ones (measured on batches of 100–1000 columns).
_GATHER_COST = 6
# Rows with more entries than this go to a dense block: the gathers are unrolled, so the code grows with them.
LONGEST = 16
# Up to so many entries a matrix is dense: its products take a microsecond, and gathers a second to compile.
_SMALL = 20_000


def along(v: Float[Array, " n"], x: Float[AnyArray, "rows *N"]) -> Float[Array, "n *one"]:
    """Return a vector shared by all instances, shaped to broadcast against the stack `x`."""
    return v.reshape(v.shape + (1,) * (x.ndim - 1))


def product(a: Float[Array, "*S m n"], b: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return a @ b in full precision, of a matrix or a stack: accelerators otherwise round float32 factors to three
    digits."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def inner(a: Float[AnyArray, "n *N"], b: Float[AnyArray, "n *N"]) -> Float[Array, "*N"]:
    """Return inner products column by column."""
    return jnp.sum(a * b, axis=0)


def max_norm(v: Float[AnyArray, "n *N"]) -> Float[Array, "*N"]:
    """Return ∞-norms column by column; 0 for no rows."""
    return jnp.max(jnp.abs(v), axis=0, initial=0.0)


def two_norm(v: Float[Array, "n *N"]) -> Float[Array, "*N"]:
    """Return 2-norms column by column, with gradient 0 (not NaN) at 0."""
    square = jnp.sum(v * v, axis=0)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))


def squared_norm_bound(A: Float[Array, "m n"], iterations: int = 4) -> Float[Array, ""]:
    """Return a bound of ‖A‖² that is certain, by power iterations on K = |A||A|'.

    λmax(AA') ≤ λmax(K) ≤ max_i (Kw)_i/w_i for every w > 0 (Collatz 1942; Wielandt 1950), where plain power iterations
    would give a bound from below. From w = 1 it falls at every iteration, to ‖|A|‖². For A ≥ 0 without rows of zeros
    that is ‖A‖²: for images four iterations leave less than one per cent. Where signs vary it may be far above.
    """
    A = jnp.abs(A)
    # Rows of zeros add nothing to K.
    used = jnp.any(A > 0, axis=1)

    def iterate(w: Float[Array, " m"], _: None) -> tuple[Float[Array, " m"], Float[Array, ""]]:
        following = product(A, product(A.T, w))
        ratio = jnp.max(following / jnp.where(used, w, 1.0))
        return following / jnp.where(ratio > 0, ratio, 1.0), ratio

    _, ratios = jax.lax.scan(iterate, used.astype(A.dtype), length=iterations)
    return ratios[-1]


class Matrix(eqx.Module):
    """A linear map on columns."""

    @abstractmethod
    def mv(self, x: Float[Array, "n *N"]) -> Float[Array, "m *N"]:
        """Return the product with x."""

    @abstractmethod
    def rmv(self, y: Float[Array, "m *N"]) -> Float[Array, "n *N"]:
        """Return the product of the transpose with y."""

    @abstractmethod
    def dense(self) -> Float[Array, "m n"]:
        """Return the matrix as an array."""


class DenseMatrix(Matrix):
    """A matrix as one array."""

    array: Float[Array, "m n"]

    @override
    def mv(self, x):
        return product(self.array, x)

    @override
    def rmv(self, y):
        # XLA's CPU products in double precision take two to three times as long with a transpose on the left. Behind
        # the barrier it is a copy, which is nothing beside a product with many columns.
        transpose = self.array.T if y.ndim == 1 else jax.lax.optimization_barrier(self.array.T)
        return product(transpose, y)

    @override
    def dense(self):
        return self.array


class Identity(Matrix):
    """The identity of n columns."""

    n: int = eqx.field(static=True)
    dtype: np.dtype = eqx.field(static=True)

    @override
    def mv(self, x):
        return x

    @override
    def rmv(self, y):
        return y

    @override
    def dense(self):
        return jnp.eye(self.n, dtype=self.dtype)


class _Rows(eqx.Module):
    """y_i = Σ_k value[k,i]·x[index[k,i]] for short rows, a dense block for the few long ones."""

    index: Int[Array, "k m"]
    value: Float[Array, "k m"]
    long: Int[Array, " h"]
    block: Float[Array, "h n"]

    # Compiled on its own, it is traced once for all the programs that it is a part of.
    @jax.jit
    def __call__(self, x: Float[Array, "n *N"]) -> Float[Array, "m *N"]:
        y = jnp.zeros((self.index.shape[1], *x.shape[1:]), x.dtype)
        for index, value in zip(self.index, self.value, strict=True):
            y = y + along(value, x) * x.at[index].get(mode="promise_in_bounds")
        if self.long.shape[0]:
            y = y.at[self.long].set(product(self.block, x), unique_indices=True)
        return y


class SparseMatrix(Matrix):
    """A sparse matrix as gathers, in both directions, so that neither needs a scatter, nor do their derivatives."""

    forward: _Rows
    backward: _Rows

    @property
    def width(self) -> int:
        """The most entries that a row has."""
        if self.forward.long.shape[0]:
            return self.forward.block.shape[1]
        return self.forward.index.shape[0]

    @override
    def mv(self, x):
        return linear_call(lambda A, x: A[0](x), lambda A, y: A[1](y), (self.forward, self.backward), x)

    @override
    def rmv(self, y):
        return linear_call(lambda A, y: A[1](y), lambda A, x: A[0](x), (self.forward, self.backward), y)

    @override
    def dense(self):
        n = self.backward.index.shape[1]
        return self.forward(jnp.eye(n, dtype=self.forward.value.dtype))


class MappableMatrix(Matrix):
    """A sparse matrix whose products `vmap` knows; their transposes scatter."""

    forward: _Rows
    backward: _Rows

    @override
    def mv(self, x):
        return self.forward(x)

    @override
    def rmv(self, y):
        return self.backward(y)

    @override
    def dense(self):
        return SparseMatrix(self.forward, self.backward).dense()


class _Product:
    """x ↦ Mx for a sparse matrix on the host."""

    def __init__(self, matrix: sp.csr_array):
        self.matrix = matrix

    def __call__(self, inputs: Sequence[np.ndarray], output: np.ndarray) -> None:
        output[:] = self.matrix @ inputs[0]


class HostMatrix(Matrix):
    """A large sparse matrix whose products the host makes: for one column, or few, many times faster than gathers, and
    rows of any length are as good as short ones."""

    forward: _Product = eqx.field(static=True)
    backward: _Product = eqx.field(static=True)
    forward_number: Int[Array, ""]
    backward_number: Int[Array, ""]

    def __init__(self, matrix: sp.csr_array):
        # Programs have the numbers of these two; they are kept here.
        self.forward = _Product(matrix)
        self.backward = _Product(sp.csr_array(matrix.T))
        self.forward_number = host.register(self.forward)
        self.backward_number = host.register(self.backward)

    @override
    def mv(self, x):
        return _multiply_linearly(self.forward.matrix.shape, self.forward_number, self.backward_number, x)

    @override
    def rmv(self, y):
        return _multiply_linearly(self.backward.matrix.shape, self.backward_number, self.forward_number, y)

    @override
    def dense(self):
        return jnp.asarray(self.forward.matrix.toarray())


def _multiply_linearly(
    shape: tuple[int, int], number: Int[Array, ""], transposed: Int[Array, ""], x: Float[Array, "n *N"]
) -> Float[Array, "m *N"]:
    """Return the product of x with the host's matrix of this shape and number; the other is that of its transpose."""

    def multiply(numbers, x):
        return host.call(numbers[0], (x,), jax.ShapeDtypeStruct((shape[0], *x.shape[1:]), x.dtype))

    def multiply_back(numbers, y):
        return host.call(numbers[1], (y,), jax.ShapeDtypeStruct((shape[1], *y.shape[1:]), y.dtype))

    return linear_call(multiply, multiply_back, (number, transposed), x)


def make_mappable(tree: TreeT) -> TreeT:
    """Return a tree, such as a family, all of whose matrices `vmap` knows."""

    def convert(node: PyTree) -> PyTree:
        if not isinstance(node, SparseMatrix):
            return node
        return MappableMatrix(node.forward, node.backward)

    return jax.tree.map(convert, tree, is_leaf=lambda node: isinstance(node, SparseMatrix))


def _tabulate_rows(matrix: sp.csr_array, dtype) -> tuple[_Rows, float]:
    """Return the gather table of a matrix and its cost in dense multiplications per column."""
    m, n = matrix.shape
    counts = np.diff(matrix.indptr)
    long = np.flatnonzero(counts > LONGEST)
    short = np.where(counts > LONGEST, 0, counts)
    k = int(short.max(initial=0))
    index = np.zeros((k, m), np.int32)
    value = np.zeros((k, m))
    row = np.repeat(np.arange(m), counts)
    slot = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)
    keep = counts[row] <= LONGEST
    index[slot[keep], row[keep]] = matrix.indices[keep]
    value[slot[keep], row[keep]] = matrix.data[keep]
    table = _Rows(
        index=jnp.asarray(index),
        value=jnp.asarray(value, dtype),
        long=jnp.asarray(long.astype(np.int32)),
        block=jnp.asarray(matrix[long].toarray(), dtype),
    )
    return table, float(_GATHER_COST * k * m + long.size * n)


def to_csr(matrix: ArrayLike2D) -> sp.csr_array:
    """Return any dense or sparse matrix as canonical float64 CSR on the host."""
    if sp.issparse(matrix):
        read_plain_array("a sparse matrix", matrix.data)  # type: ignore
    else:
        matrix = np.atleast_2d(real_array("a matrix", matrix))
    csr = sp.csr_array(matrix, dtype=np.float64)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr


def is_diagonal(matrix: sp.csr_array) -> bool:
    """Return whether nothing lies off the diagonal."""
    return abs(matrix - sp.diags_array(matrix.diagonal())).nnz == 0


def is_one_to_one(matrix: sp.csr_array) -> bool:
    """Return whether there is one entry in every row and column."""
    m, n = matrix.shape
    return m == n == matrix.nnz and bool((np.diff(matrix.indptr) == 1).all()) and np.unique(matrix.indices).size == n


def make_matrix(matrix: ArrayLike2D, dtype) -> Matrix:
    """Return the form of a matrix that is cheapest to apply to columns."""
    csr = to_csr(matrix)
    m, n = csr.shape
    forward, cost = _tabulate_rows(csr, dtype)
    backward, cost_back = _tabulate_rows(sp.csr_array(csr.T), dtype)
    if m * n > _SMALL and cost + cost_back < 2 * m * n:
        return SparseMatrix(forward, backward)
    return DenseMatrix(jnp.asarray(csr.toarray(), dtype))


def make_host_matrix(matrix: ArrayLike2D, dtype) -> Matrix:
    """Return a matrix that stays on the host."""
    return HostMatrix(to_csr(matrix).astype(dtype))
