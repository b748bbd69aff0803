"""RowPairs of a compiled QP: two that bound the same expression from both sides become one."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class RowPairs:
    """Which of CVXPY's rows the family has, and which of them bounds the same expression from the other side.

    CVXPY writes l ≤ a'x ≤ u as a'x ≤ u and −a'x ≤ −l. ADMM on the two has two multipliers and two penalties for what
    is one constraint, and converges more slowly.
    """

    own: Int[np.ndarray, " rows"]
    opposite: Int[np.ndarray, " rows"]
    count: int

    @staticmethod
    def separate(count: int) -> "RowPairs":
        """Return every row as it is."""
        return RowPairs(np.arange(count), np.full(count, -1), count)

    @staticmethod
    def pair(A: sp.csr_array, u: np.ndarray, M: sp.csr_array, equalities: int) -> "RowPairs":
        """Return pairs among the rows (Ax ≤ u + Mv) behind the equalities, where both bounds move alike with a gap.

        Bounds that move apart might cross for some parameter, which is for the solver to find out.
        """
        first: dict[bytes, int] = {}
        own = list(range(equalities))
        opposite = [-1] * equalities
        place = {}
        for i in range(equalities, A.shape[0]):
            j = first.get(_make_key(A, i, -1.0))
            if j is not None and u[i] + u[j] > 0 and abs(M[[i]] + M[[j]]).sum() == 0:
                opposite[place[j]] = i
                del first[_make_key(A, j, 1.0)]
                continue
            place[i] = len(own)
            own.append(i)
            opposite.append(-1)
            first.setdefault(_make_key(A, i, 1.0), i)
        return RowPairs(np.array(own, int), np.array(opposite, int), A.shape[0])

    @property
    def two_sided(self) -> np.ndarray:
        """Which rows have another side."""
        return self.opposite >= 0

    def expand(self, y: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " count"]:
        """Return multipliers of CVXPY's rows: positive ones belong to upper bounds, negative ones to lower."""
        full = np.zeros(self.count)
        both = self.two_sided
        full[self.own] = np.where(both, np.maximum(y, 0.0), y)
        full[self.opposite[both]] = np.maximum(-y[both], 0.0)
        return full


def _make_key(A: sp.csr_array, row: int, sign: float) -> bytes:
    entries = slice(A.indptr[row], A.indptr[row + 1])
    # −0 and 0 are the same number.
    return A.indices[entries].tobytes() + (sign * A.data[entries] + 0.0).tobytes()
