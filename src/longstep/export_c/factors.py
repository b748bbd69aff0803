"""The numbers of a block factorization, and how accurate a solve with them is in some precision."""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from jaxtyping import Float

from .ordering import Blocks

# Orders up to which extended precision takes little time.
_EXTENDED = 256
# Orders up to which the accuracy of solves is measured on all of an inverse, and how often it is probed beyond.
_WHOLE = 1000
_PROBES = 8


@dataclass(frozen=True)
class Piece:
    """C and M of one block; M has one axis where it is diagonal."""

    C: Float[np.ndarray, "r j"]
    M: Float[np.ndarray, "..."]

    def apply_M(self, b: Float[np.ndarray, "j N"]) -> Float[np.ndarray, "j N"]:
        """Return M·b."""
        if self.M.ndim == 1:
            return self.M[:, None] * b
        return self.M @ b


def factorize_blocks(K: Float[np.ndarray, "n n"], blocks: Blocks) -> list[Piece]:
    """Return the pieces of K, which is in the order of elimination."""
    root = scipy.linalg.cholesky(K, lower=True)
    whole = len(blocks.rows) == 1
    pieces = []
    for s, rows in enumerate(blocks.rows):
        a = blocks.start[s]
        b = blocks.start[s + 1]
        L = root[a:b, a:b]
        if blocks.diagonal[s]:
            own = np.diag(L)
            pieces.append(Piece(root[rows, a:b] / own, 1 / own**2))
        elif b - a == 1:
            pieces.append(Piece(root[rows, a:b] / L, 1 / L**2))
        else:
            inverse = scipy.linalg.solve_triangular(L, np.eye(b - a), lower=True)
            matrix = K if whole else L @ L.T
            pieces.append(Piece(root[rows, a:b] @ inverse, _polish(inverse.T @ inverse, matrix)))
    return pieces


def _polish(inverse: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a matrix after one step of Newton's method in extended precision."""
    if len(matrix) > _EXTENDED:
        return inverse
    X = inverse.astype(np.longdouble)
    return (X + X @ (np.eye(len(X)) - matrix.astype(np.longdouble) @ X)).astype(np.float64)


def solve_error(K: Float[np.ndarray, "n n"], blocks: Blocks, pieces: list[Piece], dtype: np.dtype) -> float:
    """Return max |K·K⁻¹ − I| of solves with these pieces in this precision."""
    right = make_probes(len(K))
    x = right.astype(dtype)
    rounded = [Piece(piece.C.astype(dtype), piece.M.astype(dtype)) for piece in pieces]
    for s, piece in enumerate(rounded):
        x[blocks.rows[s]] -= piece.C @ x[blocks.start[s] : blocks.start[s + 1]]
    for s, piece in reversed(list(enumerate(rounded))):
        a = blocks.start[s]
        b = blocks.start[s + 1]
        x[a:b] = piece.apply_M(x[a:b]) - piece.C.T @ x[blocks.rows[s]]
    return float(np.abs(K @ x.astype(np.float64) - right).max())


def make_probes(n: int) -> Float[np.ndarray, "n N"]:
    """Return right-hand sides whose residuals are as large as entries of K·K⁻¹ − I: the identity; for large systems
    vectors of random signs, whose residuals are as large as the rows are."""
    if n <= _WHOLE:
        return np.eye(n)
    return np.random.default_rng(0).choice([-1.0, 1.0], (n, _PROBES))
