"""A QP without its equalities as C computes with it: coordinates in which most of the rows are the coordinates."""

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from ..families.elimination import choose_ridge, solutions
from .bases import Basis, make_row_bases, make_sparse_bases, trim
from .factors import factorize_blocks
from .ordering import LANES, choose_method, order_columns
from .products import product_cost
from .vectors import Vector

# How many steps a solve takes for each instance that it loads, and how often it looks at the point, to tell which
# coordinates are cheap.
_STEPS = 20
_LOOKS = 4
# Rows beside those of the identity are multiplied alone where they have more entries than this part of all.
_FULL = 0.3
# Up to this condition number of the equalities, their multipliers come from a sparse factor of EE'; with one refinement
# beyond the second one.
_WELL = 1e5
_VERY_WELL = 1e2


class FullProgram(Protocol):
    """A quadratic program in all its unknowns and rows, in equilibrated units."""

    @property
    def P(self) -> sp.csr_array:
        """Return the quadratic term."""
        ...

    @property
    def A(self) -> sp.csr_array:
        """Return the rows."""
        ...

    @property
    def d(self) -> Float[np.ndarray, " n"]:
        """Return the units of the unknowns."""
        ...

    @property
    def e(self) -> Float[np.ndarray, " rows"]:
        """Return the units of the rows."""
        ...

    @property
    def c(self) -> float:
        """Return the unit of the objective."""
        ...

    @property
    def equality(self) -> Bool[np.ndarray, " rows"]:
        """Tell which rows are equalities."""
        ...

    @property
    def data(self) -> dict[str, Vector]:
        """Return q, l and u."""
        ...


@dataclass(frozen=True)
class Normal:
    """L and 1/D of EE' = LDL', with the equalities in the order of elimination: from a slope to their multipliers."""

    first: Int[np.ndarray, " starts"]
    row: Int[np.ndarray, " entries"]
    value: Float[np.ndarray, " entries"]
    inverse: Float[np.ndarray, " e"]
    refinements: int


@dataclass(frozen=True)
class Condensation:
    """w = still + N v, where still, cost and level are affine in the parameter.

    The inequalities in the order `inner` have the values level + A v; of A the first `alike` rows are those of the
    identity. P is N'PN. `Y` maps slopes to the equalities' multipliers where `normal` does not; `apart` is I − EY where
    equalities repeat each other. `least` says whether still is the least point on the equalities, normal to N's
    columns. `bounds` are norms with which directions are told not to be certificates.
    """

    N: Float[np.ndarray, "n v"]
    P: Float[np.ndarray, "v v"]
    A: Float[np.ndarray, "i v"]
    alike: int
    equalities: Int[np.ndarray, " e"]
    inner: Int[np.ndarray, " i"]
    definite: bool
    normal: Normal | None
    Y: Float[np.ndarray, "n e"]
    apart: Float[np.ndarray, "e e"] | None
    least: bool
    data: dict[str, Vector]
    bounds: dict[str, float]

    @property
    def free(self) -> int:
        """The number of coordinates."""
        return self.N.shape[1]

    @property
    def slots(self) -> int:
        """How many inequalities can be active and independent of each other."""
        return min(self.A.shape)

    @property
    def rows_are_coordinates(self) -> bool:
        """Whether the rows of a point, once the equalities hold, are all that is needed for its coordinates."""
        return self.alike == self.free and (self.normal is not None or not self.equalities.size)

    @property
    def cost(self) -> float:
        """What a solve costs, in multiplications of a long product, as far as it depends on the coordinates."""
        if self.free == 0:
            return 0.0
        pattern = sp.csr_array(sp.eye_array(self.free) + abs(sp.csr_array(self.P)) + _find_gram_pattern(self.A))
        rows = sp.csr_array(self.A[self.alike :] if self.multiplies_apart else self.A)
        step = choose_method(pattern, "auto", LANES["double"]).cost + product_cost(rows) + product_cost(rows.T.tocsr())
        look = product_cost(sp.csr_array(self.N)) + product_cost(sp.csr_array(self.P))
        load = sum(product_cost(vector.matrix) for vector in self.data.values())
        return _STEPS * step + _LOOKS * look + load

    @property
    def multiplies_apart(self) -> bool:
        """Whether the rows of A beside those of the identity have enough entries that they are multiplied alone."""
        others = self.A[self.alike :]
        return self.alike > 0 and bool(np.count_nonzero(others) > _FULL * others.size)

    def left_inverse(self) -> sp.csr_array:
        """Return M with M N = I. Where unknowns are the coordinates it takes those, and is no projection."""
        if self.least:
            return sp.csr_array(np.linalg.pinv(self.N))
        alone = np.flatnonzero(np.count_nonzero(self.N, axis=1) == 1)
        # Of several with the same coordinate, the one with the largest part of it.
        alone = alone[np.argsort(-np.abs(self.N[alone]).max(axis=1), kind="stable")]
        columns = np.argmax(self.N[alone] != 0, axis=1)
        found, first = np.unique(columns, return_index=True)
        rows = alone[first]
        return sp.csr_array((1 / self.N[rows, found], (found, rows)), shape=self.N.T.shape)

    def reorder(self, order: Int[np.ndarray, " v"]) -> "Condensation":
        """Return the same with the coordinates in another order."""
        if (order == np.arange(self.free)).all():
            return self
        A = self.A[:, order]
        inner = self.inner
        level = self.data["level"]
        alike = 0
        if self.alike == self.free:
            rows = np.concatenate([order, np.arange(self.free, len(A))])
            A = A[rows]
            inner = inner[rows]
            level = _take_rows(level, rows)
            alike = self.alike
        return dataclasses.replace(
            self,
            N=self.N[:, order],
            P=self.P[order][:, order],
            A=A,
            inner=inner,
            alike=alike,
            data={**self.data, "cost": _take_rows(self.data["cost"], order), "level": level},
        )


def _take_rows(vector: Vector, rows: np.ndarray) -> Vector:
    return Vector(vector.offset[rows], sp.csr_array(vector.matrix[rows]), vector.scale[rows])


def condense(problem: FullProgram) -> Condensation:
    """Choose coordinates and orders for a problem in all its unknowns and rows: the cheapest of some."""
    P = problem.P.toarray()
    A = problem.A.toarray()
    equalities = np.flatnonzero(problem.equality)
    others = np.flatnonzero(~problem.equality)
    E = A[equalities]
    C = A[others]
    N, Y = solutions(E)
    apart = None if N.shape[1] + len(E) == len(P) else np.eye(len(E)) - E @ Y
    definite = choose_ridge(N.T @ P @ N, C @ N) == 0
    order = np.arange(len(E))
    normal = None
    if apart is None and len(E):
        order, normal = _factor_normal(E)
    E = E[order]
    Y = Y[:, order]
    equalities = equalities[order]
    # Where the shift is needed it is one of these coordinates, and rounding stays, as all that keeps directions apart.
    bases = [Basis(N, Y, np.zeros(0, int))]
    if definite:
        bases = [Basis(trim(N), Y, np.zeros(0, int)), *make_row_bases(N, Y, C)]
    if definite and normal is not None:
        bases += make_sparse_bases(E, C, P)
    q = problem.data["q"]
    l = problem.data["l"]

    def make(basis: Basis) -> Condensation:
        N, S, taken = basis
        inner = np.concatenate([taken, np.setdiff1d(np.arange(len(C)), taken)]).astype(int)
        rows = C[inner] @ N
        reduced = N.T @ P @ N
        if definite:
            rows = trim(rows)
            reduced = trim(reduced)
        rows[: taken.size] = np.eye(N.shape[1])[: taken.size]
        data = {
            "still": _combine([(S, l, equalities)]),
            "cost": _combine([(N.T, q, np.arange(len(P))), (N.T @ P @ S, l, equalities)]),
            "level": _combine([(C[inner] @ S, l, equalities)]),
        }
        return Condensation(
            N=N,
            P=(reduced + reduced.T) / 2,
            A=rows,
            alike=taken.size,
            equalities=equalities,
            inner=others[inner],
            definite=definite,
            normal=normal,
            Y=Y,
            apart=apart,
            least=S is Y or not len(E),
            data=data,
            bounds=_bound_directions(problem, N, P, Y, C[inner], equalities, others[inner]),
        )

    return min(map(make, bases), key=lambda made: made.cost)


def _find_gram_pattern(A: np.ndarray) -> sp.csr_array:
    pattern = sp.csr_array(abs(sp.csr_array(A)))
    return sp.csr_array(pattern.T @ pattern)


def _factor_normal(E: np.ndarray) -> tuple[np.ndarray, Normal | None]:
    """Return the order of the equalities and the factor of EE'; no factor where it would lose too many digits."""
    condition = np.linalg.cond(E)
    if condition > _WELL:
        return np.arange(len(E)), None
    pattern = sp.csr_array(abs(sp.csr_array(E)) @ abs(sp.csr_array(E)).T)
    blocks = order_columns(pattern)
    order = blocks.order
    pieces = factorize_blocks((E @ E.T)[order][:, order], blocks)
    first = np.cumsum([0, *(rows.size for rows in blocks.rows)])
    return order, Normal(
        first=first,
        row=np.concatenate(blocks.rows).astype(int),
        value=np.concatenate([piece.C.ravel() for piece in pieces]),
        inverse=np.concatenate([piece.M.ravel() for piece in pieces]),
        refinements=int(condition > _VERY_WELL),
    )


def _combine(terms: list[tuple[np.ndarray, Vector, np.ndarray]]) -> Vector:
    """Return the sum of matrix·(places of a datum), as an affine function of the parameter."""
    each = [matrix @ np.where(np.isfinite(v.offset[at]), v.offset[at], 0.0) for matrix, v, at in terms]
    offset = np.sum(each, axis=0)
    matrix = sum(trim(matrix @ v.matrix[at].toarray()) for matrix, v, at in terms)
    return Vector(offset, sp.csr_array(matrix), np.ones(len(offset)))


def _bound_directions(
    problem: FullProgram,
    N: np.ndarray,
    P: np.ndarray,
    Y: np.ndarray,
    C: np.ndarray,
    equalities: np.ndarray,
    inner: np.ndarray,
) -> dict[str, float]:
    """Return norms in the user's units: of what v and y of size one give at most, and of N'(a slope of size one)."""
    d = problem.d
    e = problem.e
    rows = e[equalities][:, None]

    def sums(M: np.ndarray) -> float:
        return float(np.abs(M).sum(axis=1).max(initial=0.0))

    return {
        "W_OF_V": sums(d[:, None] * N),
        "DUAL_OF_V": sums(rows * (Y.T @ P @ N)),
        "DUAL_OF_Y": max(sums(rows * (Y.T @ C.T)), float(e[inner].max(initial=0.0))),
        "FREE_OF_SLOPE": sums(N.T * d),
        "SLOPE_OF_V": sums((P @ N) / (d * problem.c)[:, None]),
    }
