"""A QP without its equalities as C computes with it: coordinates in which most of the rows are the coordinates."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from ..families.elimination import small_shift, solutions
from .factors import factorize_blocks
from .ordering import LANES, choose_method, order_columns
from .products import product_cost

# Coordinates are taken as long as the change to them is not worse conditioned than this.
_CONDITION = 1e4
# Unknowns are given by an equality in which their part is at least this of the largest.
_PIVOT = 0.1
# Operations with which unknowns may be sought that the equalities give.
_MOST_OPERATIONS = 1e9
# How many steps a solve takes for each instance that it loads, and how often it looks at the point, to tell which
# coordinates are cheap.
_STEPS = 20
_LOOKS = 4
# Rows beside those of the identity are multiplied alone where they have more entries than this part of all.
_FULL = 0.3
# What is less than this part of the largest entry is rounding.
_ROUNDING = 1e-13
# Up to this condition number of the equalities, their multipliers come from a sparse factor of EE'; with one refinement
# beyond the second one.
_WELL = 1e5
_VERY_WELL = 1e2


class Program(Protocol):
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
    def data(self) -> "dict[str, Vector]":
        """Return q, l and u."""
        ...


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
    equalities repeat each other. `least` says whether still is the least point on the equalities, normal
    to N's columns.
    `bounds` are norms with which directions are told not to be certificates.
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
        pattern = sp.csr_array(sp.eye_array(self.free) + abs(sp.csr_array(self.P)) + _gram_pattern(self.A))
        rows = sp.csr_array(self.A[self.alike :] if self.multiplies_apart else self.A)
        step = choose_method(pattern, "auto", LANES["double"]).cost + product_cost(rows) + product_cost(rows.T.tocsr())
        look = product_cost(sp.csr_array(self.N)) + product_cost(sp.csr_array(self.P))
        load = sum(product_cost(vector.matrix) for vector in self.data.values())
        return _STEPS * step + _LOOKS * look + load

    @property
    def multiplies_apart(self) -> bool:
        """Whether the rows of A beside those of the identity have so many entries that they are multiplied alone."""
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


class _Basis(NamedTuple):
    """Columns N that span the null space of the equalities, a solution S b of them, and the inequalities, if any, whose
    values are the first coordinates."""

    N: Float[np.ndarray, "n v"]
    S: Float[np.ndarray, "n e"]
    taken: Int[np.ndarray, " t"]


def condense(problem: Program) -> Condensation:
    """Choose coordinates and orders for a problem in all its unknowns and rows: the cheapest of some."""
    P = problem.P.toarray()
    A = problem.A.toarray()
    equalities = np.flatnonzero(problem.equality)
    others = np.flatnonzero(~problem.equality)
    E = A[equalities]
    C = A[others]
    N, Y = solutions(E)
    apart = None if N.shape[1] + len(E) == len(P) else np.eye(len(E)) - E @ Y
    definite = small_shift(N.T @ P @ N, C @ N) == 0
    order = np.arange(len(E))
    normal = None
    if apart is None and len(E):
        order, normal = _factor_normal(E)
    E = E[order]
    Y = Y[:, order]
    equalities = equalities[order]
    # Where the shift is needed it is one of these coordinates, and rounding stays, as all that keeps directions apart.
    bases = [_Basis(N, Y, np.zeros(0, int))]
    if definite:
        bases = [_trim_basis(basis) for basis in bases] + _row_bases(N, Y, C)
    if definite and normal is not None:
        bases += _sparse_bases(E, C, P)
    q = problem.data["q"]
    l = problem.data["l"]

    def make(basis: _Basis) -> Condensation:
        N, S, taken = basis
        inner = np.concatenate([taken, np.setdiff1d(np.arange(len(C)), taken)]).astype(int)
        rows = C[inner] @ N
        reduced = N.T @ P @ N
        if definite:
            rows = _trim(rows)
            reduced = _trim(reduced)
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


def _trim_basis(basis: _Basis) -> _Basis:
    return basis._replace(N=_trim(basis.N))


def _row_bases(N: np.ndarray, Y: np.ndarray, C: np.ndarray) -> list[_Basis]:
    """Return bases whose coordinates are the values of as many inequalities as are independent, by some choices."""
    A = C @ N
    if not A.size:
        return []
    _, R, pivots = scipy.linalg.qr(A.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    rank = int((sizes > 1e-9 * sizes.max(initial=0.0)).sum())
    backward = np.arange(len(A))[::-1]
    forward = np.arange(len(A))
    bases = []
    choices = [np.asarray(pivots, int)[:rank], *(_choose_independent(A, order, rank) for order in (backward, forward))]
    for rows in choices:
        if rows.size == 0 or np.linalg.cond(A[rows]) > _CONDITION:
            continue
        T = np.hstack([np.linalg.pinv(A[rows]), scipy.linalg.null_space(A[rows])])
        bases.append(_Basis(_trim(N @ T), Y, rows))
    return bases


def _sparse_bases(E: np.ndarray, C: np.ndarray, P: np.ndarray) -> list[_Basis]:
    """Return the basis whose coordinates are the unknowns that are left when every equality gives one, that by which
    fewest entries arise (Markowitz 1957); none where that is ill conditioned or takes long."""
    e, n = E.shape
    if e * e * n > _MOST_OPERATIONS:
        return []
    given = _choose_given(E, np.count_nonzero(C, axis=0) + np.count_nonzero(P, axis=0))
    free = np.setdiff1d(np.arange(n), given)
    if not 0 < e == given.size < n or np.linalg.cond(E[:, given]) > _CONDITION:
        return []
    N = np.zeros((n, n - e))
    N[free, np.arange(n - e)] = 1.0
    N[given] = -np.linalg.solve(E[:, given], E[:, free])
    if np.linalg.cond(N) > _CONDITION:
        return []
    S = np.zeros((n, e))
    S[given] = np.linalg.inv(E[:, given])
    return [_Basis(_trim(N), _trim(S), np.zeros(0, int))]


def _choose_given(E: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the unknowns that the equalities give, one each, by elimination: those by which fewest entries arise.
    `entries` counts what each unknown has elsewhere. They are fewer than the equalities where these are dependent."""
    left = E / np.maximum(np.abs(E).max(axis=1, initial=0.0, keepdims=True), np.finfo(float).tiny)
    waiting = np.ones(len(E), bool)
    given = []
    for _ in range(len(E)):
        size = np.abs(left)
        present = size > _ROUNDING
        fill = (present.sum(axis=1, keepdims=True) - 1.0) * (present.sum(axis=0) - 1.0 + entries)
        stable = present & waiting[:, None] & (size >= _PIVOT * size.max(axis=1, keepdims=True))
        fill = np.where(stable, fill, np.inf)
        row, column = np.unravel_index(np.argmin(fill), fill.shape)
        if not np.isfinite(fill[row, column]):
            break
        left[row] /= left[row, column]
        others = np.flatnonzero(present[:, column])
        others = others[others != row]
        left[others] -= np.outer(left[others, column], left[row])
        left[others, column] = 0.0
        waiting[row] = False
        given.append(column)
    return np.array(given, int)


def _gram_pattern(A: np.ndarray) -> sp.csr_array:
    pattern = sp.csr_array(abs(sp.csr_array(A)))
    return sp.csr_array(pattern.T @ pattern)


def _choose_independent(A: np.ndarray, order: np.ndarray, rank: int) -> np.ndarray:
    """Return `rank` rows in this order, each well apart from the span of those before it; none if there are fewer."""
    taken = []
    basis = np.zeros((0, A.shape[1]))
    for row in order:
        left = A[row] - basis.T @ (basis @ A[row])
        left -= basis.T @ (basis @ left)
        size = np.linalg.norm(left)
        if len(taken) < rank and size > 1e-2 * np.linalg.norm(A[row]) > 0:
            taken.append(row)
            basis = np.vstack([basis, left / size])
    if len(taken) < rank:
        return np.zeros(0, int)
    return np.sort(np.array(taken, int))


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
    matrix = sum(_trim(matrix @ v.matrix[at].toarray()) for matrix, v, at in terms)
    return Vector(offset, sp.csr_array(matrix), np.ones(len(offset)))


def _bound_directions(
    problem: Program,
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


def _trim(matrix: np.ndarray) -> np.ndarray:
    return np.where(np.abs(matrix) > _ROUNDING * np.abs(matrix).max(initial=0.0), matrix, 0.0)


def _count_entries(matrix: np.ndarray) -> int:
    return int(np.count_nonzero(_trim(matrix)))
