"""A QP without its equalities as C computes with it: coordinates in which most of the rows are the coordinates."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from jaxtyping import Float, Int

from ..families.elimination import small_shift, solutions
from .factors import factorize_blocks
from .ordering import columns_alone

# Rows are taken for coordinates as long as the change of coordinates is not worse conditioned than this.
_CONDITION = 1e4
# What is less than this part of the largest entry is rounding.
_ROUNDING = 1e-13
# Up to this condition number of the equalities, their multipliers come from a sparse factor of EE'; with one refinement
# beyond the second one.
_WELL = 1e5
_VERY_WELL = 1e2


@dataclass(frozen=True)
class Vector:
    """One of the data of an instance in equilibrated units: scale·(base + M p), or scale·(its own part of p)."""

    offset: Float[np.ndarray, " k"]
    matrix: sp.csr_array
    scale: Float[np.ndarray, " k"]


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
    equalities repeat each other. `bounds` are norms with which directions are told not to be certificates.
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

    def ordered(self, order: Int[np.ndarray, " v"]) -> "Condensation":
        """The same with the coordinates in another order."""
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
            level = _rows(level, rows)
            alike = self.alike
        return dataclasses.replace(
            self,
            N=self.N[:, order],
            P=self.P[order][:, order],
            A=A,
            inner=inner,
            alike=alike,
            data={**self.data, "cost": _rows(self.data["cost"], order), "level": level},
        )


def _rows(vector: Vector, rows: np.ndarray) -> Vector:
    return Vector(vector.offset[rows], sp.csr_array(vector.matrix[rows]), vector.scale[rows])


def condense(problem: Any) -> Condensation:
    """Choose coordinates and orders for a problem in all its unknowns and rows."""
    P = problem.P.toarray()
    A = problem.A.toarray()
    equalities = np.flatnonzero(problem.equality)
    others = np.flatnonzero(~problem.equality)
    E = A[equalities]
    C = A[others]
    N, Y = solutions(E)
    apart = None if N.shape[1] + len(E) == len(P) else np.eye(len(E)) - E @ Y
    definite = small_shift(N.T @ P @ N, C @ N) == 0
    # Where the shift is needed it is one of these coordinates.
    T, taken = _coordinates(N, C @ N) if definite else (np.eye(N.shape[1]), np.zeros(0, int))
    inner = np.concatenate([taken, np.setdiff1d(np.arange(len(C)), taken)]).astype(int)
    order, normal = _normal(E) if apart is None and len(E) else (np.arange(len(E)), None)
    E = E[order]
    Y = Y[:, order]
    apart = None if apart is None else apart[order][:, order]
    equalities = equalities[order]
    C = C[inner]
    # Where a small shift is all that keeps directions apart, rounding stays too.
    N = _trimmed(N @ T) if definite else N
    rows = _trimmed(C @ N) if definite else C @ N
    rows[: taken.size] = np.eye(N.shape[1])[: taken.size]
    reduced = N.T @ P @ N
    q = problem.data["q"]
    l = problem.data["l"]
    data = {
        "still": _mapped([(Y, l, equalities)]),
        "cost": _mapped([(N.T, q, np.arange(len(P))), (N.T @ P @ Y, l, equalities)]),
        "level": _mapped([(C @ Y, l, equalities)]),
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
        data=data,
        bounds=_bounds(problem, N, P, Y, C, equalities, others[inner]),
    )


def _coordinates(N: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """T and rows of A with A[rows] T = [I 0]: of some choices of rows, the one that leaves the fewest numbers."""
    best = (np.eye(N.shape[1]), np.zeros(0, int))
    least = _entries(N) + A.size
    _, R, pivots = scipy.linalg.qr(A.T, mode="economic", pivoting=True) if A.size else (None, np.zeros((0, 0)), [])
    sizes = np.abs(np.diag(R))
    rank = int((sizes > 1e-9 * sizes.max(initial=0.0)).sum())
    backward = np.arange(len(A))[::-1]
    forward = np.arange(len(A))
    for rows in (np.asarray(pivots, int)[:rank], _independent(A, backward, rank), _independent(A, forward, rank)):
        if rows.size == 0 or np.linalg.cond(A[rows]) > _CONDITION:
            continue
        T = np.hstack([np.linalg.pinv(A[rows]), scipy.linalg.null_space(A[rows])])
        numbers = _entries(N @ T) + (len(A) - rows.size) * rows.size
        if numbers < least:
            best = (T, rows)
            least = numbers
    return best


def _independent(A: np.ndarray, order: np.ndarray, rank: int) -> np.ndarray:
    """Rows in this order, each of which is well apart from the span of those before it."""
    taken = []
    basis = np.zeros((0, A.shape[1]))
    for row in order:
        left = A[row] - basis.T @ (basis @ A[row])
        left -= basis.T @ (basis @ left)
        size = np.linalg.norm(left)
        if len(taken) < rank and size > 1e-2 * np.linalg.norm(A[row]) > 0:
            taken.append(row)
            basis = np.vstack([basis, left / size])
    return np.sort(np.array(taken, int)) if len(taken) == rank else np.zeros(0, int)


def _normal(E: np.ndarray) -> tuple[np.ndarray, Normal | None]:
    """The order of the equalities and the factor of EE'; none where it would lose too many digits."""
    condition = np.linalg.cond(E)
    if condition > _WELL:
        return np.arange(len(E)), None
    pattern = sp.csr_array(abs(sp.csr_array(E)) @ abs(sp.csr_array(E)).T)
    blocks = columns_alone(pattern)
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


def _mapped(terms: list[tuple[np.ndarray, Vector, np.ndarray]]) -> Vector:
    """The sum of matrix·(places of a datum), as an affine function of the parameter."""
    each = [matrix @ np.where(np.isfinite(v.offset[at]), v.offset[at], 0.0) for matrix, v, at in terms]
    offset = np.sum(each, axis=0)
    matrix = sum(_trimmed(matrix @ v.matrix[at].toarray()) for matrix, v, at in terms)
    return Vector(offset, sp.csr_array(matrix), np.ones(len(offset)))


def _bounds(problem: Any, N: np.ndarray, P: np.ndarray, Y: np.ndarray, C: np.ndarray, eq: Any, inner: Any) -> dict:
    """So large, in the user's units, is at most what v and y of size one give; and N'(a slope) for a slope of one."""
    d = problem.d
    e = problem.e
    sums = lambda M: float(np.abs(M).sum(axis=1).max(initial=0.0))  # noqa: E731
    return {
        "W_OF_V": sums(d[:, None] * N),
        "DUAL_OF_V": sums(e[eq][:, None] * (Y.T @ P @ N)),
        "DUAL_OF_Y": max(sums(e[eq][:, None] * (Y.T @ C.T)), float(e[inner].max(initial=0.0))),
        "FREE_OF_SLOPE": sums(N.T * d),
        "SLOPE_OF_V": sums((P @ N) / (d * problem.c)[:, None]),
    }


def _trimmed(matrix: np.ndarray) -> np.ndarray:
    return np.where(np.abs(matrix) > _ROUNDING * np.abs(matrix).max(initial=0.0), matrix, 0.0)


def _entries(matrix: np.ndarray) -> int:
    return int(np.count_nonzero(_trimmed(matrix)))
