"""Ruiz equilibration of (P, A), once per family, on the host."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

_SMALLEST, _LARGEST = 1e-4, 1e4


class Scaling(eqx.Module):
    """Diagonal scalings: P̄ = c·D P D, Ā = E A D, so x = D x̄, s = E⁻¹ s̄, y = E ȳ / c."""

    d: Float[Array, " n"]
    e: Float[Array, " m"]
    c: Float[Array, ""]

    @staticmethod
    def identity(n: int, m: int, dtype) -> "Scaling":
        """No scaling."""
        return Scaling(jnp.ones(n, dtype), jnp.ones(m, dtype), jnp.ones((), dtype))


def _limit(norms: np.ndarray | float) -> np.ndarray:
    """Norms fit to divide by: empty rows and columns stay as they are, extreme ones are cut."""
    return np.minimum(np.where(norms < _SMALLEST, 1.0, norms), _LARGEST)


def ruiz(
    P: sp.csr_array,
    A: sp.csr_array,
    blocks: np.ndarray,
    cost: np.ndarray | None,
    iterations: int = 10,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Scalings (d, e, c) that bring the columns of [P A'; A 0] near ∞-norm one (Ruiz 2001).

    `blocks` numbers the rows of A: rows with the same number share one scale, which keeps a second-order or
    semidefinite cone a cone. `cost` is a typical linear term; with it (QP) the objective is scaled too, by
    max(mean column norm of P, ‖cost‖∞) as OSQP does, which takes the norm of a zero cost to be 1; None (Conic)
    leaves c = 1.
    """
    m, n = A.shape
    d, e, c = np.ones(n), np.ones(m), 1.0
    P, A = abs(P.tocsc()), abs(A.tocsc())
    q = None if cost is None else np.abs(cost).astype(float)
    for _ in range(iterations):
        column = np.maximum(_column_max(P), _column_max(A))
        row = _column_max(sp.csc_array(A.T))
        if m:
            shared = np.zeros(int(blocks.max()) + 1)
            np.maximum.at(shared, blocks, row)
            row = shared[blocks]
        step_d, step_e = 1 / np.sqrt(_limit(column)), 1 / np.sqrt(_limit(row))
        P = sp.csc_array(sp.diags_array(step_d) @ P @ sp.diags_array(step_d))
        A = sp.csc_array(sp.diags_array(step_e) @ A @ sp.diags_array(step_d))
        d, e = d * step_d, e * step_e
        if q is not None:
            q = q * step_d
            sizes = np.array([_column_max(P).mean(), _limit(np.array(q.max(initial=0.0)))])
            step_c = 1 / float(_limit(sizes.max()))
            P, q, c = P * step_c, q * step_c, c * step_c
    return d, e, c


def _column_max(M: sp.csc_array) -> np.ndarray:
    if 0 in M.shape or M.nnz == 0:
        return np.zeros(M.shape[1])
    return np.asarray(M.max(axis=0).todense()).ravel()
