"""The augmented form of a family's operators, and their sparse factors, on the host."""

import contextlib
import functools
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Bool, Float, Int

from ..._util.memory import measure_available
from .. import host

try:
    from qdldl import Solver as LDL
except ImportError:  # where little but JAX is installed
    LDL: Any = None

# Below this many unknowns a dense factor is as fast, and needs no analysis.
_LEAST = 1000
# Matrices with a larger part of n² entries have factors that are dense.
_SPARSE = 0.05
# Factors may take this part of the memory that is free when the first is made; so many are kept in any case.
_MEMORY = 0.25
_KEPT = 8
# Work of so many entries is done before another thread has begun.
_LITTLE = 100_000


class Factors(NamedTuple):
    """L below its diagonal and D, with LDL' the matrix whose rows and columns are in this order."""

    lower: sp.csc_matrix
    diagonal: Float[np.ndarray, " order"]
    order: Int[np.ndarray, " order"]


class Augmented:
    """The matrices of K = P + shift·I + A'diag(w)A on the host, and the factors of the latest operators.

    What is factored is [[P + shift·I + B'diag(w_B)B, C'], [C, −diag(1/w_C)]], of which A has the rows B and C: it is
    nearly as sparse as P and A are, and has an LDL' in every order of its rows (Vanderbei 1995). OSQP and SCS have all
    rows in C. The rows B are those that elimination would begin with, as it does with bounds: they add no entry to L,
    and nobody asks for their part of a solution.
    """

    def __init__(self, P: sp.csr_array, A: sp.csr_array):
        self.n = P.shape[0]
        self.m = A.shape[0]
        self._lock = threading.Lock()
        self._factors: OrderedDict[bytes, _Factor] = OrderedDict()
        self._lay_out(P, A, np.diff(A.indptr) <= 1)
        begun = self._find_leaves()
        if begun.size:
            joined = ~self._kept
            joined[begun] = True
            self._lay_out(P, A, joined)

    def _lay_out(self, P: sp.csr_array, A: sp.csr_array, joined: Bool[np.ndarray, " m"]) -> None:
        """Make the pattern of the matrix with these rows in B, its fixed entries, and what the weights of B add."""
        n = self.n
        B = sp.csr_array(A[joined])
        C = sp.coo_array(A[~joined])
        self._kept = ~joined
        self.order = n + C.shape[0]
        square = sp.coo_array(sp.triu(P))
        product = _list_products(B)
        every = np.arange(self.order)
        rows = np.concatenate([square.coords[0], C.coords[1], product.row, every])
        columns = np.concatenate([square.coords[1], n + C.coords[0], product.column, every])
        # Entries by columns, and in each by rows, each place once.
        places, at = np.unique(columns.astype(np.int64) * self.order + rows, return_inverse=True)
        fixed = np.concatenate([square.data, C.data])
        self._fixed = np.bincount(at[: fixed.size], fixed, places.size)
        added = at[fixed.size : fixed.size + product.row.size]
        self._added = sp.csr_array((product.value, (added, product.factor)), shape=(places.size, B.shape[0]))
        self._rows = places % self.order
        self._starts = np.searchsorted(places, np.arange(self.order + 1) * self.order)
        # A diagonal entry is the last of its column in the upper triangle.
        self._last = self._starts[1:] - 1

    def _find_leaves(self) -> Int[np.ndarray, " leaves"]:
        """Return the rows of A in C that are eliminated before all that they have to do with."""
        lower, _, order = self.factorize(1.0, np.ones(self.m))
        filled = np.flatnonzero(np.diff(lower.indptr))
        parents = lower.indices[lower.indptr[filled]]
        leaves = order[np.setdiff1d(np.arange(self.order), parents)]
        return np.flatnonzero(self._kept)[leaves[leaves >= self.n] - self.n]

    def factorize(self, shift: float, weights: Float[np.ndarray, " m"]) -> Factors:
        """Return the factors of an operator; all have the same order, and L the same places of entries."""
        if LDL is None:
            raise ImportError("sparse factors are made by qdldl, which is not installed: pip install qdldl")
        return Factors(*LDL(self._assemble(shift, weights), upper=True).factors())

    @functools.cached_property
    def fill(self) -> int:
        """How many entries L has below its diagonal."""
        return int(self.factorize(1.0, np.ones(self.m)).lower.nnz)

    @functools.cached_property
    def bytes_of_factor(self) -> float:
        """What one factor takes: L's numbers and their places, the matrix itself and some vectors."""
        return 16.0 * (self.fill + self._fixed.size + 4 * self.order)

    def _assemble(self, shift: float, weights: Float[np.ndarray, " m"]) -> sp.csc_matrix:
        """Return the upper triangle of the augmented matrix."""
        data = self._fixed + self._added @ weights[~self._kept]
        data[self._last[: self.n]] += shift
        data[self._last[self.n :]] -= 1.0 / weights[self._kept]
        return sp.csc_matrix((data, self._rows, self._starts), shape=(self.order, self.order))

    @contextlib.contextmanager
    def borrow(self, key: bytes, shift: float, weights: np.ndarray) -> "Iterator[_Factor]":
        """Lend the factor of an operator, made again where it is not kept any more."""
        with self._lock:
            factor = self._factors.pop(key, None)
            if factor is None:
                factor = self._make(shift, weights)
            self._factors[key] = factor
            factor.borrowed += 1
        try:
            yield factor
        finally:
            with self._lock:
                factor.borrowed -= 1

    def _make(self, shift: float, weights: np.ndarray) -> "_Factor":
        """Factor an operator, into the place of one that was not used for longest where there may be no more: the order
        of its rows is then there already."""
        matrix = self._assemble(shift, weights)
        idle = next((key for key, factor in self._factors.items() if not factor.borrowed), None)
        if idle is None or len(self._factors) < self._most:
            return _Factor(LDL(matrix, upper=True))
        factor = self._factors.pop(idle)
        factor.solver.update(matrix, upper=True)
        return factor

    @functools.cached_property
    def _most(self) -> int:
        return max(_KEPT, int(_MEMORY * measure_available() / self.bytes_of_factor))


class _Products(NamedTuple):
    """The entries of B'diag(w)B on and above the diagonal: sums of value·w[factor] over one row and column."""

    row: Int[np.ndarray, " products"]
    column: Int[np.ndarray, " products"]
    factor: Int[np.ndarray, " products"]
    value: Float[np.ndarray, " products"]


def _list_products(B: sp.csr_array) -> _Products:
    """Return the product of any two entries that are in one row."""
    lengths = np.diff(B.indptr)
    factor = np.repeat(np.arange(B.shape[0]), lengths**2)
    # In each row: all entries with the first of them, then with the second, and so on.
    number = np.arange(factor.size) - np.repeat(np.cumsum(lengths**2) - lengths**2, lengths**2)
    left = B.indptr[factor] + number // lengths[factor]
    right = B.indptr[factor] + number % lengths[factor]
    above = B.indices[left] <= B.indices[right]
    left = left[above]
    right = right[above]
    return _Products(B.indices[left], B.indices[right], factor[above], B.data[left] * B.data[right])


class _Factor:
    """What qdldl keeps, and how many threads use it now."""

    def __init__(self, solver: Any):
        self.solver = solver
        self.borrowed = 0


class _Prepare:
    """(shift, weights) ↦ the key of their factor, which is made."""

    def __init__(self, augmented: Augmented):
        self.augmented = augmented

    def __call__(self, inputs: Sequence[np.ndarray], output: np.ndarray) -> None:
        shift, weights = inputs
        digest = hashlib.blake2b(shift.tobytes() + weights.tobytes(), digest_size=8).digest()
        with self.augmented.borrow(digest, float(shift), weights.astype(np.float64)):
            output[:] = np.frombuffer(digest, np.uint32)


class _Solve:
    """(key, shift, weights, b) ↦ K⁻¹b, column by column, on as many threads as there are cores."""

    def __init__(self, augmented: Augmented):
        self.augmented = augmented

    def __call__(self, inputs: Sequence[np.ndarray], output: np.ndarray) -> None:
        key, shift, weights, b = inputs
        n = self.augmented.n
        columns = b.reshape(n, -1)
        found = output.reshape(n, -1)
        with self.augmented.borrow(key.tobytes(), float(shift), weights.astype(np.float64)) as factor:

            def solve(some: range) -> None:
                right = np.zeros(self.augmented.order)
                for j in some:
                    right[:n] = columns[:, j]
                    found[:, j] = factor.solver.solve(right)[:n]

            count = columns.shape[1]
            threads = _count_cores() if self.augmented.fill * count > _LITTLE else 1
            if min(threads, count) == 1:
                solve(range(count))
            else:
                list(_open_threads().map(solve, [range(i, count, threads) for i in range(threads)]))


@functools.cache
def _count_cores() -> int:
    return os.cpu_count() or 1


@functools.cache
def _open_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_count_cores(), thread_name_prefix="longstep-columns")


class Quasidefinite(eqx.Module):
    """The augmented form of a family's operators, as programs know it."""

    augmented: Augmented = eqx.field(static=True)
    prepare: _Prepare = eqx.field(static=True)
    solve: _Solve = eqx.field(static=True)
    prepare_number: Int[Array, ""]
    solve_number: Int[Array, ""]

    def __init__(self, augmented: Augmented):
        self.augmented = augmented
        # Programs have the numbers of these two; they are kept here.
        self.prepare = _Prepare(augmented)
        self.solve = _Solve(augmented)
        self.prepare_number = host.register(self.prepare)
        self.solve_number = host.register(self.solve)

    @property
    def rows(self) -> int:
        """How many rows A has."""
        return self.augmented.m

    @property
    def fill(self) -> int:
        """How many entries L has below its diagonal."""
        return self.augmented.fill


def may_be_sparse(n: int, entries: int) -> bool:
    """Return whether sparse factors of n unknowns, whose matrices have `entries` entries, are worth a look."""
    return LDL is not None and n >= _LEAST and entries <= _SPARSE * n**2 and jax.default_backend() == "cpu"
