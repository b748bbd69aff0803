"""The finish: from an active set to the exact point of a quadratic program.

After a few steps of a good schedule the active set of an instance is often right long before the digits are. With the
equalities eliminated (w = N v + Y b) a QP is: minimise ½v'Rv + c'v subject to l ≤ a + A v ≤ u. For a set W of active
rows with bounds t, and H = A R⁻¹A',

    H_WW μ_W = (g − t)_W,    g = a − A R⁻¹c,    s = g − H μ,    v = −R⁻¹(c + A'μ).

`pivoting` finds W. Where R is singular, R + δI takes its place and v is found by proximal steps. A point counts only if
the conditions of optimality hold in the user's units.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.condensed import Condensed, CondensedState
from ..algorithms.residuals import Residuals
from ..families.elimination import EliminatedInstance, EliminatedQP, eliminate_equalities
from ..families.point import Point
from ..families.quadratic_program import QP
from .pivoting import Bounds, Coupling, RowSet, SetSearch, choose_rounding, map_instances, pivot, seed

# Residuals and gap of an exact point, absolute and relative, in the user's units.
ACCURACY = 1e-9
# Proximal steps go on while they are above this, for a while.
_CLOSE = 1e-12
# Least eigenvalue of R, as a part of the largest, that needs no proximal term; and the term, as such a part, where none
# was learned.
_DEFINITE = 1e-7
PROXIMAL = 1e-4
# More unknowns or rows than these make H too large for what a finish is worth.
MOST = 1000
# Proximal steps at most.
OUTER = 8


class Finish(SetSearch):
    """What all instances of a family share: R⁻¹, A R⁻¹ and H, or those of R + δI."""

    family: EliminatedQP
    inverse: Float[Array, "v v"]
    spread: Float[Array, "i v"]
    delta: Float[Array, ""]
    coupling: Coupling

    @staticmethod
    def of(family: QP, proximal: float = PROXIMAL) -> "Finish":
        """Eliminate the equalities of a family, and factor what is left, where R is singular with this part of its
        largest eigenvalue as δ."""
        made = eliminate_equalities(family)
        R, A = (np.asarray(M.dense(), np.float64) for M in (made.elimination.P, made.elimination.A))
        tables = finish_tables(R, A, np.eye(len(R)), proximal)
        inverse, spread, gram, delta, root = (jnp.asarray(value, jnp.float64) for value in tables)
        coupling = Coupling(gram, root, slots=min(A.shape), uneven=tables.delta > 0)
        return Finish(family=made, inverse=inverse, spread=spread, delta=delta, coupling=coupling)

    def seek(self, encoded: Any, point: Point) -> "Outcome":
        """Return the exact points of instances, from the active sets of points near them."""
        instance = self.family.decode(encoded)
        start = Condensed().init(self.family, instance, point)
        each = map_instances(start.v)
        change = each(lambda bounds, found: pivot(self.coupling, bounds, found))
        seeded = each(lambda y: seed(self.coupling, y))(start.y)

        def improve(found: RowSet, v: Float[Array, "v *N"]) -> tuple[RowSet, Float[Array, "v *N"], Outcome]:
            found = change(_make_bounds(self, instance, v), found)
            return found, *_refine(self, instance, found, v)

        if not self.proximal:
            return improve(seeded, start.v)[2]

        def take_step(carried: _Proximal) -> _Proximal:
            # From where the last step ended; its multipliers are a dual feasible start.
            found = eqx.tree_at(lambda s: s.going, carried.found, jnp.ones_like(carried.found.going))
            return _Proximal(carried.number + 1, *improve(found, carried.v))

        def is_rough(carried: _Proximal) -> Bool[Array, ""]:
            rough = jnp.any(carried.outcome.residuals.violation(_CLOSE, _CLOSE) > 1)
            return (carried.number < OUTER) & (rough | (carried.number == 0))

        # The first step is one of the loop's: what it does is compiled once.
        blank = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(improve, seeded, start.v)[2])
        return jax.lax.while_loop(is_rough, take_step, _Proximal(jnp.int32(0), seeded, start.v, blank)).outcome


class Outcome(eqx.Module):
    """Points, how good they are, whether they are exact, and how many changes of the active set each took; of cone
    programs how many Newton steps."""

    point: Point
    residuals: Residuals
    exact: Bool[Array, "*N"]
    changes: Int[Array, "*N"]


class _Proximal(NamedTuple):
    """Where proximal steps stand: how many were taken, the set, v and the point of the last one."""

    number: Int[Array, ""]
    found: RowSet
    v: Float[Array, "v *N"]
    outcome: Outcome


class Tables(NamedTuple):
    """R⁻¹, A R⁻¹, H, the term δ in the place of R⁻¹ where R is singular, and the roots of H's diagonal."""

    inverse: Float[np.ndarray, "v v"]
    spread: Float[np.ndarray, "i v"]
    gram: Float[np.ndarray, "i i"]
    delta: float
    root: Float[np.ndarray, " i"]


def finish_tables(R: np.ndarray, A: np.ndarray, unit: np.ndarray, proximal: float) -> Tables:
    """Return what a finish computes with. δ, this part of R's largest eigenvalue, is a multiple of `unit`, the metric
    of the coordinates."""
    delta = _choose_delta(scipy.linalg.eigh(R, unit, eigvals_only=True), proximal)
    inverse = np.linalg.inv(R + delta * unit)
    inverse = (inverse + inverse.T) / 2
    spread = A @ inverse
    gram = spread @ A.T
    root = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    return Tables(inverse, spread, (gram + gram.T) / 2, delta, root)


def _choose_delta(values: np.ndarray, proximal: float) -> float:
    """Return δ for an R of these eigenvalues: zero where R is definite."""
    largest = float(values.max())
    if values.min() > _DEFINITE * largest:
        return 0.0
    if largest <= 0:
        return proximal
    return proximal * largest


def corrections(delta: float) -> int:
    """Return how often the point of a set is corrected; with a proximal term each takes off only a part of what is
    left."""
    if delta:
        return 6
    return 3


def _make_bounds(finish: Finish, instance: EliminatedInstance, center: Float[Array, "v *N"]) -> Bounds:
    """Return the search for the set of instances; with a proximal term, around a center."""
    e = finish.family.elimination
    cost = instance.cost - finish.delta * center
    g = instance.level - finish.spread @ cost
    noise = choose_rounding(finish.proximal) * (1.0 + jnp.abs(instance.level) + jnp.abs(g))
    return Bounds(g, instance.l[e.others], instance.u[e.others], noise)


def _refine(
    finish: Finish, instance: EliminatedInstance, found: RowSet, v: Float[Array, "v *N"]
) -> tuple[Float[Array, "v *N"], Outcome]:
    """Return v and the point of the set, by steps that correct what is left of its optimality conditions, judged as a
    user would."""
    e = finish.family.elimination
    l = instance.l[e.others]
    u = instance.u[e.others]
    active = found.side != 0

    def at(values: Any, rows: Any) -> Any:
        return values[rows]

    def put_rows(rows: Any, values: Any) -> Any:
        return jnp.zeros(l.shape[0], v.dtype).at[rows].set(values, mode="drop")

    at, put_rows, times = (map_instances(v)(f) for f in (at, put_rows, jnp.matmul))
    bound = jnp.where(found.side > 0, at(u, found.rows), at(l, found.rows))
    places = jnp.where(active, found.rows, l.shape[0])

    def correct(_, pair):
        v, y = pair
        slope = e.P.mv(v) + instance.cost + e.A.rmv(y)
        off = at(instance.level + e.A.mv(v) - finish.spread @ slope, found.rows) - bound
        dy = put_rows(places, times(found.K, jnp.where(active, off, 0.0)))
        return v - finish.inverse @ (slope + e.A.rmv(dy)), y + dy

    v, y = jax.lax.fori_loop(0, corrections(finish.proximal), correct, (v, jnp.zeros_like(instance.level)))
    s = instance.level + e.A.mv(v)
    held = put_rows(places, jnp.ones_like(found.K[0]))
    state = CondensedState(v, jnp.where(held > 0, put_rows(places, bound), s), y)
    form = Condensed()
    point = form.extract(finish.family, instance, state)
    residuals = form.measure_point(finish.family, instance, point)
    return v, Outcome(point, residuals, residuals.violation(ACCURACY, ACCURACY) <= 1, found.changes)
