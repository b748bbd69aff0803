"""Coordinates for the solutions of equalities: bases in which a program without them may be cheap to solve."""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

# Coordinates are taken as long as the change to them is not worse conditioned than this.
_CONDITION = 1e4
# Unknowns are given by an equality in which their part is at least this of the largest.
_PIVOT = 0.1
# Operations with which unknowns may be sought that the equalities give.
_MOST_OPERATIONS = 1e9
# What is less than this part of the largest entry is rounding.
_ROUNDING = 1e-13


class Basis(NamedTuple):
    """Columns N that span the null space of the equalities, a solution S b of them, and the inequalities, if any, whose
    values are the first coordinates."""

    N: Float[np.ndarray, "n v"]
    S: Float[np.ndarray, "n e"]
    taken: Int[np.ndarray, " t"]


def make_row_bases(N: np.ndarray, Y: np.ndarray, C: np.ndarray) -> list[Basis]:
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
        bases.append(Basis(trim(N @ T), Y, rows))
    return bases


def make_sparse_bases(E: np.ndarray, C: np.ndarray, P: np.ndarray) -> list[Basis]:
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
    return [Basis(trim(N), trim(S), np.zeros(0, int))]


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


def trim(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix without entries that are rounding."""
    return np.where(np.abs(matrix) > _ROUNDING * np.abs(matrix).max(initial=0.0), matrix, 0.0)
