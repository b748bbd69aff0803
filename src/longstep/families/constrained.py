"""What families with constraints have in common: P and A as the user gave them, and a parameter map in two forms."""

from abc import abstractmethod
from typing import Generic, TypeVar

import equinox as eqx
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array
from typing_extensions import override

from .._util.effort import EIGEN, SPEED, announce
from .._util.hashing import ByContent
from .._util.optional import map_given
from ..linalg.matrix import ArrayLike2D, is_one_to_one, to_csr
from ..linalg.systems import require_room
from .affine import WorkingMap
from .base import Encoded, InstanceT, NamedFamily
from .convexity import check_convex, check_linear, check_square, is_dense
from .equilibration import Matrices
from .names import Layout
from .reading import Parameters, is_named
from .traced import trace_data, trace_vector

_TOO_LARGE = (
    "Eliminate unknowns, write what is dense as a product of thin matrices with unknowns of their own, or use a "
    "machine with more memory"
)


class Host(ByContent):
    """The user's own data, on the host."""

    def __init__(
        self,
        P: sp.csr_array,
        A: sp.csr_array,
        values: dict[str, np.ndarray | None],
        equilibrate: bool,
        layout: Layout | None = None,
    ):
        self.P = P
        self.A = A
        self.values = values
        self.equilibrate = equilibrate
        self.layout = layout

    @property
    def problem(self) -> tuple:
        """What defines the problem."""
        return self.P, self.A, self.values

    @override
    def hashed(self) -> tuple:
        return *self.problem, self.equilibrate, map_given(Layout.to_json, self.layout)


HostT = TypeVar("HostT", bound=Host)


class ConstrainedFamily(NamedFamily[InstanceT], Generic[InstanceT, HostT]):
    """What QP and Conic have in common: matrices, base values, and a parameter map in two forms."""

    matrices: eqx.AbstractVar[Matrices]
    mapped: eqx.AbstractVar[WorkingMap | None]
    host: eqx.AbstractVar[HostT]

    @property
    def P(self) -> sp.csr_array:
        """The quadratic term, as given."""
        return self.host.P

    @property
    def A(self) -> sp.csr_array:
        """The constraint matrix, as given."""
        return self.host.A

    @property
    @override
    def layout(self) -> Layout | None:
        """What the entries of parameters and solutions are called, where that is known."""
        return self.host.layout

    @property
    @override
    def sparse(self) -> bool:
        return self.matrices.structure.on_host

    @override
    def batch_one(self, parameter: Parameters) -> Parameters:
        if self.host.layout is None or not is_named(parameter):
            return super().batch_one(parameter)
        return self.host.layout.read_one(parameter)[None]

    @override
    def vectors(self, parameters: Parameters) -> Parameters:
        return super().vectors(self._stack_named(parameters))

    @override
    def count(self, parameters: Parameters) -> int:
        return super().count(self._stack_named(parameters))

    @override
    def select(self, parameters: Parameters, index: np.ndarray) -> Parameters:
        return super().select(self._stack_named(parameters), index)

    def _stack_named(self, parameters: Parameters) -> Parameters:
        """Return values given by the names of a layout, which have shapes of their own, as vectors."""
        if self.host.layout is None or not is_named(parameters):
            return parameters
        return self.host.layout.read_many(parameters)

    @override
    def trace(self, parameter: Parameters) -> Encoded:
        values = self.host.values
        vector = trace_vector(parameter, self.parameter, self.mapped, self.host.layout, values, self.dtype)
        if vector is not None:
            return vector
        return self.scale_traced(trace_data(parameter, values, self.sizes, self.dtype))

    @abstractmethod
    def scale_traced(self, data: dict[str, Array]) -> Encoded:
        """Return the data of one instance in equilibrated units, as `encode` has them; pure."""

    def maps(self, parameters: Parameters) -> bool:
        """Return whether these are parameter vectors that the device map takes."""
        return self.mapped is not None and not is_named(parameters)


# Entries a second in what goes over all of them, and how many times that is done.
_ENTRIES = 2e8
_PASSES = 100
# What a dense factor takes, in operations for every cubed unknown.
_FACTOR = 1 / 3


def _estimate(P: sp.csr_array, A: sp.csr_array) -> float:
    """Return how many seconds the check of P and the equilibration take, about."""
    seconds = _PASSES * (P.nnz + A.nnz) / _ENTRIES
    if is_dense(P) and P.shape[0] > 1:
        seconds += (EIGEN if is_one_to_one(A) else _FACTOR) * P.shape[0] ** 3 / SPEED
    return seconds


def check_matrices(P: ArrayLike2D | None, A: ArrayLike2D) -> tuple[sp.csr_array, sp.csr_array]:
    """Return P and A as float64 CSR; bad shapes, NaN and indefinite P are refused."""
    rows = to_csr(A)
    square = sp.csr_array((rows.shape[1], rows.shape[1]))
    if P is not None:
        square = to_csr(P)
    check_square("P", square)
    check_linear("A", rows, square.shape[0])
    n = square.shape[0]
    require_room(n, square.nnz + rows.nnz, _TOO_LARGE)
    announce(f"checks and scales a family with {n} unknowns", _estimate(square, rows))
    check_convex("P", square)
    return square, rows
