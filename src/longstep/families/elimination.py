"""A quadratic program without its equalities: what is left of it on their solutions."""

from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from ..linalg.matrix import Matrix, along, make_matrix
from .affine import WorkingMap
from .base import Encoded
from .quadratic_program import QP, QPInstance

ArrayT = TypeVar("ArrayT")

# Singular values below this part of the largest are those of equalities that repeat others.
_RANK = 1e-11
# Where the least eigenvalue of N'(P + C'C)N is above this part of the largest, it needs nothing to be definite.
_DEFINITE = 1e-7
_RIDGE = 1e-10
# Coordinates begin at the minimiser where the condition number of N'PN is below this power of 1/ε: 8000, in single
# precision 50.
_WELL = 0.25


class Elimination(eqx.Module):
    """w = N v + Y b, where the columns of N span the null space of the equality rows E and Y is their pseudo-inverse.

    In v the program is: minimise ½v'(N'PN)v + (N'(q + P Y b))'v subject to l ≤ C N v + C Y b ≤ u, over the other rows
    C. All in equilibrated units. `apart` is I − E Y, which is zero unless equalities repeat each other; `equalities`
    and `others` are their places among the family's rows. `ridge` is the multiple of the identity that makes
    N'PN + N'C'C N definite and is small beside it: zero where P and the other rows see every direction of v, which are
    then `seen`. `inverse` is that of N'PN, if it is well-conditioned: v = 0 is then put at the minimiser on the
    equalities' solutions, where the cost of v is none.
    """

    E: Matrix
    N: Matrix
    Y: Matrix
    P: Matrix
    A: Matrix
    cost: Matrix
    level: Matrix
    apart: Matrix | None
    equalities: Int[Array, " e"]
    others: Int[Array, " i"]
    inverse: Matrix | None
    order: Int[Array, " rows"]
    ridge: Float[Array, ""]
    seen: bool = eqx.field(static=True)
    free: int = eqx.field(static=True)

    @property
    def centred(self) -> bool:
        """Whether v = 0 is the minimiser on the equalities' solutions."""
        return self.inverse is not None


class EliminatedInstance(QPInstance):
    """An instance (q, l, u) with what the equalities make of it.

    The `offset` is the point at v = 0, `cost` that of v, `level` the values of the inequalities at v = 0, `origin` the
    coordinates of Y b. `low` and `high` are the bounds of the inequalities; None where all instances have the same.
    """

    offset: Float[Array, "n *N"]
    cost: Float[Array, "v *N"]
    level: Float[Array, "i *N"]
    origin: Float[Array, "v *N"]
    low: Float[Array, "i *N"] | None
    high: Float[Array, "i *N"] | None


class EliminatedQP(QP):
    """A QP whose equalities are eliminated: the same instances, parameters and units, and an `elimination`.

    `reduced` maps parameters to what the equalities make of them, where that costs less than by way of (q, l, u);
    `low` and `high` are the bounds that all parameters have in common.
    """

    elimination: Elimination
    reduced: WorkingMap | None
    low: Float[Array, " i"] | None
    high: Float[Array, " i"] | None

    def __init__(self, family: QP):
        for name in QP.__dataclass_fields__:
            setattr(self, name, getattr(family, name))
        self.elimination = _eliminate(family)
        self.reduced = _reduce(self)
        self.low = _find_common(self, "l")
        self.high = _find_common(self, "u")

    @override
    def decode(self, encoded: Encoded) -> EliminatedInstance:
        if isinstance(encoded, EliminatedInstance):
            return encoded
        # Of what the family itself decodes.
        instance = super().decode(encoded)
        q, l, u = (jnp.asarray(a) for a in (instance.q, instance.l, instance.u))
        others = self.elimination.others
        low = None
        high = None
        given = isinstance(encoded, QPInstance)
        if given or self.low is None:
            low = l[others]
        if given or self.high is None:
            high = u[others]
        if given or self.reduced is None:
            return EliminatedInstance(q, l, u, **self._place(q, l)._asdict(), low=low, high=high)
        return EliminatedInstance(q, l, u, **self.reduced(encoded), low=low, high=high)

    def _place(self, q: Float[Array, "n *N"], l: Float[Array, "rows *N"]) -> "Placed[Array]":
        """Return what the equalities make of an instance."""
        e = self.elimination
        b = l[e.equalities]
        offset = e.Y.mv(b)
        cost = e.N.rmv(q) + e.cost.mv(b)
        level = e.level.mv(b)
        if e.inverse is None:
            return Placed(offset, cost, level, jnp.zeros_like(cost))
        origin = e.inverse.mv(cost)
        return Placed(offset - e.N.mv(origin), jnp.zeros_like(cost), level - e.A.mv(origin), origin)

    def bounds(self, instance: EliminatedInstance) -> tuple[Float[Array, "i *one"], Float[Array, "i *two"]]:
        """Return the bounds of the inequalities, shaped to broadcast against their values."""
        low = instance.low
        high = instance.high
        if low is None:
            assert self.low is not None
            low = along(self.low, instance.level)
        if high is None:
            assert self.high is not None
            high = along(self.high, instance.level)
        return low, high

    @property
    @override
    def decodes_freely(self) -> bool:
        return False

    @override
    def _make_again(self) -> "EliminatedQP":
        return EliminatedQP(super()._make_again())


class Placed(NamedTuple, Generic[ArrayT]):
    """What the equalities make of an instance, here or on the host; see `EliminatedInstance`."""

    offset: ArrayT
    cost: ArrayT
    level: ArrayT
    origin: ArrayT


def eliminate_equalities(family: QP) -> EliminatedQP:
    """Return the family without its equalities."""
    if isinstance(family, EliminatedQP):
        return family
    return EliminatedQP(family)


def solutions(E: Float[np.ndarray, "e n"]) -> tuple[Float[np.ndarray, "n v"], Float[np.ndarray, "n e"]]:
    """Return N and Y of equality rows E: an orthonormal basis of their null space, and their pseudo-inverse."""
    if not E.shape[0]:
        return np.eye(E.shape[1]), np.zeros((E.shape[1], 0))
    left, sizes, right = np.linalg.svd(E, full_matrices=True)
    rank = int((sizes > _RANK * sizes.max(initial=0.0)).sum())
    return right[rank:].T, right[:rank].T @ (left[:, :rank] / sizes[:rank]).T


def choose_ridge(P: Float[np.ndarray, "v v"], A: Float[np.ndarray, "i v"]) -> float:
    """Return the multiple of I that makes P + A'A definite where it is not by a margin: a small part of the largest
    diagonal entry of P, or of one; else zero."""
    values = np.linalg.eigvalsh(P + A.T @ A)
    if values.size == 0 or values[0] > _DEFINITE * values[-1]:
        return 0.0
    return _RIDGE * max(float(np.abs(np.diagonal(P)).max(initial=0.0)), 1.0)


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
    apart = None
    if N.shape[1] + equalities.size != P.shape[0]:
        apart = make_matrix(np.eye(equalities.size) - E @ Y, dtype)
    reduced = N.T @ P @ N
    reduced = (reduced + reduced.T) / 2
    ridge = choose_ridge(reduced, C @ N)
    return Elimination(
        E=make_matrix(E, dtype),
        N=make_matrix(N, dtype),
        Y=make_matrix(Y, dtype),
        P=make_matrix(reduced, dtype),
        A=make_matrix(C @ N, dtype),
        cost=make_matrix(N.T @ P @ Y, dtype),
        level=make_matrix(C @ Y, dtype),
        apart=apart,
        equalities=jnp.asarray(equalities),
        others=jnp.asarray(others),
        inverse=_invert_well(reduced, dtype),
        order=jnp.asarray(np.argsort(np.concatenate([equalities, others]))),
        ridge=jnp.asarray(ridge, dtype),
        seen=ridge == 0.0,
        free=N.shape[1],
    )


def _invert_well(R: Float[np.ndarray, "v v"], dtype: np.dtype) -> Matrix | None:
    """Return the inverse of a well-conditioned matrix, None for others."""
    values = np.linalg.eigvalsh(R)
    if values.size == 0 or values[0] <= float(np.finfo(dtype).eps) ** _WELL * values[-1]:
        return None
    inverse = np.linalg.inv(R)
    return make_matrix((inverse + inverse.T) / 2, dtype)


def _reduce(family: EliminatedQP) -> WorkingMap | None:
    """Return the map from parameters to what the equalities make of them; None without a map, or where it has more
    entries than the matrices by whose way an instance comes there otherwise."""
    e = family.elimination
    mapped = family.mapped
    if mapped is None:
        return None
    assert family.parameter is not None
    size = family.parameter.size
    free = e.free
    direct = size * (family.n + 2 * free + e.others.size)
    if direct > e.equalities.size * (family.n + free + e.others.size) + family.n * free:
        return None
    q, q_moves = _extract_affine(family, "q", np.arange(family.n))
    b, b_moves = _extract_affine(family, "l", np.asarray(e.equalities))
    offsets = _place_exactly(e, q[:, None], b[:, None])
    moves = _place_exactly(e, q_moves, b_moves)
    return WorkingMap(
        {name: jnp.asarray(value[:, 0], family.dtype) for name, value in offsets._asdict().items()},
        {name: make_matrix(value, family.dtype) for name, value in moves._asdict().items() if value.any()},
    )


def _extract_affine(
    family: QP, name: str, rows: Int[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, "rows size"]]:
    """Return some of q or l in equilibrated units as base values, and what each entry of the parameter adds."""
    parameter = family.parameter
    assert parameter is not None
    s = family.matrices.scaling
    d, e, c = (np.asarray(a, np.float64) for a in (s.d, s.e, s.c))
    kept = rows
    scale = c * d
    if name != "q":
        kept = family.host.kinds.bounded[rows]
        scale = e
    base = family.host.values[name]
    values = np.zeros(rows.size)
    if base is not None:
        values = base[kept]
    moves = np.zeros((rows.size, parameter.size))
    if name in parameter.matrices:
        moves = parameter.matrices[name][kept].toarray()
    return scale[rows] * values, scale[rows, None] * moves


def _place_exactly(e: Elimination, q: Float[np.ndarray, "n k"], b: Float[np.ndarray, "e k"]) -> Placed[np.ndarray]:
    """Return what the equalities make of instances, in double precision on the host."""
    N, Y, A, cost_of, level_of = (np.asarray(M.dense(), np.float64) for M in (e.N, e.Y, e.A, e.cost, e.level))
    cost = N.T @ q + cost_of @ b
    if e.inverse is None:
        return Placed(Y @ b, cost, level_of @ b, np.zeros_like(cost))
    origin = np.linalg.solve(np.asarray(e.P.dense(), np.float64), cost)
    return Placed(Y @ b - N @ origin, np.zeros_like(cost), level_of @ b - A @ origin, origin)


def _find_common(family: QP, name: str) -> Float[Array, " i"] | None:
    """Return the bounds of the inequalities, `l` or `u`, that all parameters have in common, if there are such."""
    if family.mapped is None:
        return None
    others = np.flatnonzero(~np.asarray(family.equality))
    values, moves = _extract_affine(family, name, others)
    if moves.any():
        return None
    return jnp.asarray(values, family.dtype)
