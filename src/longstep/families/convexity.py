"""What matrices of a family must be: square, symmetric, convex, of the right width."""

import numpy as np
import scipy.sparse as sp

from .._util.effort import EIGEN, SPEED, announce
from ..linalg.matrix import is_diagonal

# Up to so many unknowns all eigenvalues take little time.
_SMALL = 1000


def check_square(name: str, matrix: sp.csr_array) -> None:
    """Refuse a quadratic term that is not square, finite, symmetric and positive semidefinite."""
    n = matrix.shape[0]
    if matrix.shape != (n, n) or n == 0:
        raise ValueError(f"{name} must be square, with at least one row, got shape {matrix.shape}")
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} has NaN or infinite entries")
    given = matrix.toarray() if is_dense(matrix) else matrix
    asymmetry = float(abs(given - given.T).max())
    size = max(float(abs(given).max()) if matrix.nnz else 0.0, 1e-300)
    if asymmetry > 1e-9 * size:
        raise ValueError(
            f"{name} must be symmetric, but it differs from its transpose by up to {asymmetry:.2e}. "
            f"A triangle alone is not enough: pass the full matrix, or ({name} + {name}.T)/2 if only the "
            "symmetric part is meant"
        )


def check_convex(name: str, matrix: sp.csr_array) -> None:
    """Refuse an indefinite matrix (λmin < −1e-5·λmax). Large ones are factored, which sparsity makes cheap."""
    if matrix.shape[0] <= _SMALL or is_diagonal(matrix):
        spectrum(name, matrix)
        return
    from scipy.sparse.linalg import eigsh

    largest = float(eigsh(matrix, k=1, which="LA", return_eigenvectors=False, tol=1e-2)[0])
    shifted = matrix + 1e-5 * max(largest, 0.0) * sp.eye_array(matrix.shape[0])
    if largest <= 0 or not _is_definite(sp.csc_array(shifted)):
        raise ValueError(
            f"{name} is indefinite: it has an eigenvalue below −1e-5 times its largest, {largest:.3e}. "
            "The problem is not convex"
        )


def is_dense(matrix: sp.csr_array | sp.csc_array) -> bool:
    """Return whether arithmetic with it is faster as an array."""
    return matrix.nnz > 0.1 * matrix.shape[0] * matrix.shape[1]


def _is_definite(matrix: sp.csc_array) -> bool:
    if not is_dense(matrix):
        try:
            import qdldl
        except ImportError:  # where little but JAX is installed
            pass
        else:
            try:
                _, pivots, _ = qdldl.Solver(sp.csc_matrix(matrix)).factors()
            except (RuntimeError, ValueError):
                return False
            return bool((pivots > 0).all())
    try:
        np.linalg.cholesky(matrix.toarray())
    except np.linalg.LinAlgError:
        return False
    return True


def spectrum(name: str, matrix: sp.csr_array) -> np.ndarray:
    """Return the eigenvalues in ascending order; indefinite (λmin < −1e-5·λmax) is refused."""
    if is_diagonal(matrix):
        values = np.sort(matrix.diagonal())
    else:
        n = matrix.shape[0]
        announce(f"computes the eigenvalues of {name}, {n}×{n}", EIGEN * n**3 / SPEED)
        values = np.linalg.eigvalsh(matrix.toarray())
    if values.size and values[0] < -1e-5 * max(values[-1], 0.0):
        raise ValueError(
            f"{name} is indefinite: its smallest eigenvalue is {values[0]:.3e}, its largest {values[-1]:.3e}. "
            "The problem is not convex"
        )
    return values


def check_linear(name: str, matrix: sp.csr_array, n: int) -> None:
    """Refuse a constraint matrix of the wrong width or with NaN."""
    if matrix.shape[1] != n:
        raise ValueError(f"{name} has {matrix.shape[1]} columns but P has {n}: they must agree")
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} has NaN or infinite entries")
