"""A quadratic program without its equalities: what is left of it on their solutions."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from ..linalg.matrix import Matrix, make_matrix
from .base import Encoded
from .quadratic_program import QP, QPInstance

# Singular values below this part of the largest are those of equalities that repeat others.
_RANK = 1e-11
# Where the least eigenvalue of N'(P + C'C)N is above this part of the largest, it needs nothing to be definite.
_DEFINITE = 1e-7
_SHIFT = 1e-10


class Elimination(eqx.Module):
    """w = N v + Y b, where the columns of N span the null space of the equality rows E and Y is their pseudo-inverse.

    In v the program is: minimise ½v'(N'PN)v + (N'(q + P Y b))'v subject to l ≤ C N v + C Y b ≤ u, over the other rows
    C. All in equilibrated units. `apart` is I − E Y, which is zero unless equalities repeat each other; `equalities`
    and `others` are their places among the family's rows. `shift` is a multiple of the identity that makes
    N'PN + N'C'C N definite and is small beside it: zero where P and the other rows see every direction of v.
    """

    N: Matrix
    Y: Matrix
    P: Matrix
    A: Matrix
    cost: Matrix
    level: Matrix
    apart: Matrix | None
    equalities: Int[Array, " e"]
    others: Int[Array, " i"]
    order: Int[Array, " rows"]
    shift: Float[Array, ""]
    free: int = eqx.field(static=True)


class EliminatedInstance(QPInstance):
    """An instance (q, l, u) with what the equalities make of it: Y b, the cost of v, and the value C Y b at v = 0."""

    shift: Float[Array, "n *N"]
    cost: Float[Array, "v *N"]
    level: Float[Array, "i *N"]


class EliminatedQP(QP):
    """A QP whose equalities are eliminated: the same instances, parameters and units, and an `elimination`."""

    elimination: Elimination

    def __init__(self, family: QP):
        for name in QP.__dataclass_fields__:
            setattr(self, name, getattr(family, name))
        self.elimination = _eliminate(family)

    @override
    def decode(self, encoded: Encoded) -> EliminatedInstance:
        if isinstance(encoded, EliminatedInstance):
            return encoded
        # Of what the family itself decodes.
        instance = super().decode(encoded)
        e = self.elimination
        q, l, u = (jnp.asarray(a) for a in (instance.q, instance.l, instance.u))
        b = l[e.equalities]
        return EliminatedInstance(q, l, u, e.Y.mv(b), e.N.rmv(q) + e.cost.mv(b), e.level.mv(b))

    @property
    @override
    def decodes_freely(self) -> bool:
        return False

    @override
    def _made_again(self) -> "EliminatedQP":
        return EliminatedQP(super()._made_again())


def eliminated(family: QP) -> EliminatedQP:
    """The family without its equalities."""
    return family if isinstance(family, EliminatedQP) else EliminatedQP(family)


def solutions(E: Float[np.ndarray, "e n"]) -> tuple[Float[np.ndarray, "n v"], Float[np.ndarray, "n e"]]:
    """N and Y of equality rows E: an orthonormal basis of their null space, and their pseudo-inverse."""
    if not E.shape[0]:
        return np.eye(E.shape[1]), np.zeros((E.shape[1], 0))
    left, sizes, right = np.linalg.svd(E, full_matrices=True)
    rank = int((sizes > _RANK * sizes.max(initial=0.0)).sum())
    return right[rank:].T, right[:rank].T @ (left[:, :rank] / sizes[:rank]).T


def small_shift(P: Float[np.ndarray, "v v"], A: Float[np.ndarray, "i v"]) -> float:
    """What makes P + A'A definite where it is not by a margin: a small part of the largest diagonal entry of P, or of
    one; else zero."""
    values = np.linalg.eigvalsh(P + A.T @ A)
    if values.size == 0 or values[0] > _DEFINITE * values[-1]:
        return 0.0
    return _SHIFT * max(float(np.abs(np.diagonal(P)).max(initial=0.0)), 1.0)


def _eliminate(family: QP) -> Elimination:
    matrices = family.matrices
    dtype = family.dtype
    P = np.asarray(matrices.P.dense(), np.float64)
    A = np.asarray(matrices.A.dense(), np.float64)
    mask = np.asarray(family.equality)
    equalities = np.flatnonzero(mask)
    others = np.flatnonzero(~mask)
    E = A[equalities]
    C = A[others]
    N, Y = solutions(E)
    apart = None if N.shape[1] + equalities.size == P.shape[0] else make_matrix(np.eye(equalities.size) - E @ Y, dtype)
    reduced = N.T @ P @ N
    reduced = (reduced + reduced.T) / 2
    return Elimination(
        N=make_matrix(N, dtype),
        Y=make_matrix(Y, dtype),
        P=make_matrix(reduced, dtype),
        A=make_matrix(C @ N, dtype),
        cost=make_matrix(N.T @ P @ Y, dtype),
        level=make_matrix(C @ Y, dtype),
        apart=apart,
        equalities=jnp.asarray(equalities),
        others=jnp.asarray(others),
        order=jnp.asarray(np.argsort(np.concatenate([equalities, others]))),
        shift=jnp.asarray(small_shift(reduced, C @ N), dtype),
        free=N.shape[1],
    )
