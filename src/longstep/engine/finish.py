"""The finish: from an active set to the exact point of a quadratic program.

After a few steps of a good schedule the active set of an instance is often right long before the digits are. With the
equalities eliminated (w = N v + Y b) a QP is: minimise ½v'Rv + c'v subject to l ≤ a + A v ≤ u. For a set W of active
rows with bounds t, and H = A R⁻¹A',

    H_WW μ_W = (g − t)_W,    g = a − A R⁻¹c,    s = g − H μ,    v = −R⁻¹(c + A'μ).

Rows of W whose multiplier has the wrong sign leave it, rows that s violates enter, one by one as in dual active-set
methods (Goldfarb, Idnani 1983; Arnström, Bemporad, Axehill 2022): every change raises the dual objective, so they end.
The inverse of H_WW is updated. Where R is singular, R + δI takes its place and v is found by proximal steps. A point
counts only if the conditions of optimality hold in the user's units.
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
from ..families.elimination import EliminatedInstance, EliminatedQP, eliminated
from ..families.point import Point
from ..families.quadratic_program import QP

# Residuals and gap of an exact point, absolute and relative, in the user's units.
ACCURACY = 1e-9
# Proximal steps go on while they are above this, for a while.
_CLOSE = 1e-12
# Least eigenvalue of R, as a part of the largest, that needs no proximal term; and the term, as such a part, where none
# was learned.
_DEFINITE = 1e-7
PROXIMAL = 1e-4
# A row is dependent on the active ones where what is left of it is below this part of it.
DEPENDENT = 1e-9
# Rows are violated, and multipliers have the wrong sign, by more than this part of what they are computed from.
ROUNDING = 1e-14
# More unknowns or rows than these make H too large for what a finish is worth.
MOST = 1000
# Proximal steps at most.
OUTER = 8
# Bytes of a core's cache that the sets of some instances may fill.
_CACHE = 1 << 19


class Finish(eqx.Module):
    """What all instances of a family share: R⁻¹, A R⁻¹ and H, or those of R + δI."""

    family: EliminatedQP
    inverse: Float[Array, "v v"]
    spread: Float[Array, "i v"]
    gram: Float[Array, "i i"]
    delta: Float[Array, ""]
    root: Float[Array, " i"]
    proximal: bool = eqx.field(static=True)

    @staticmethod
    def of(family: QP, proximal: float = PROXIMAL) -> "Finish":
        """Eliminate the equalities of a family, and factor what is left, where R is singular with this part of its
        largest eigenvalue as δ."""
        made = eliminated(family)
        R, A = (np.asarray(M.dense(), np.float64) for M in (made.elimination.P, made.elimination.A))
        tables = finish_tables(R, A, np.eye(len(R)), proximal)
        arrays = {name: jnp.asarray(value, jnp.float64) for name, value in tables._asdict().items()}
        return Finish(made, **arrays, proximal=tables.delta > 0)

    def seek(self, encoded: Any, point: Point) -> "Outcome":
        """The exact points of instances, from the active sets of points near them."""
        instance = self.family.decode(encoded)
        start = Condensed().init(self.family, instance, point)
        each = _over_instances(start.v)
        change = each(lambda bounds, found: _pivot(self, bounds, found))
        found = change(_make_bounds(self, instance, start.v), each(lambda y: _seed(self, y))(start.y))
        v, outcome = _refine(self, instance, found, start.v)
        if not self.proximal:
            return outcome

        def again(carried):
            # The next proximal step, from where this one ended; its multipliers are a dual feasible start.
            number, found, v, _ = carried
            found = eqx.tree_at(lambda s: s.going, found, jnp.ones_like(found.going))
            found = change(_make_bounds(self, instance, v), found)
            return number + 1, found, *_refine(self, instance, found, v)

        def is_rough(carried):
            number, _, _, outcome = carried
            return (number < OUTER) & jnp.any(outcome.residuals.violation(_CLOSE, _CLOSE) > 1)

        return jax.lax.while_loop(is_rough, again, (jnp.int32(0), found, v, outcome))[3]

    @property
    def slots(self) -> int:
        """How many rows can be active and independent of each other."""
        return min(self.spread.shape)

    @property
    def width(self) -> int:
        """How many instances are sought for at a time: as many as have their sets in a core's cache."""
        return int(np.clip(_CACHE // (8 * max(self.slots, 1) ** 2), 4, 256))


class Outcome(eqx.Module):
    """Points, how good they are, whether they are exact, and how many changes of the active set each took; of cone
    programs how many Newton steps."""

    point: Point
    residuals: Residuals
    exact: Bool[Array, "*N"]
    changes: Int[Array, "*N"]


class _Set(eqx.Module):
    """An active set in slots, as many as there can be independent rows: the row of each, or −1 for an empty slot; +1
    for its upper bound or −1 for the lower; its multiplier; and the inverse of H_WW, zero at empty slots."""

    rows: Int[Array, "a *N"]
    side: Int[Array, "a *N"]
    y: Float[Array, "a *N"]
    K: Float[Array, "a a *N"]
    changes: Int[Array, "*N"]
    going: Bool[Array, "*N"]


class _Bounds(eqx.Module):
    """What an instance's set is sought for: g, the bounds, and how large a rounding error of s is, row by row."""

    g: Float[Array, "i *N"]
    l: Float[Array, "i *N"]
    u: Float[Array, "i *N"]
    noise: Float[Array, "i *N"]

    def off(self, rows: Int[Array, "a *N"], side: Int[Array, "a *N"]) -> Float[Array, "a *N"]:
        """g less the bounds of the active rows; zero at empty slots."""
        return jnp.where(side > 0, self.g[rows] - self.u[rows], jnp.where(side < 0, self.g[rows] - self.l[rows], 0.0))

    def violated(self, s: Float[Array, "i *N"]) -> Float[Array, "i *N"]:
        """By how much each row is outside its bounds."""
        return jnp.maximum(jnp.maximum(s - self.u, self.l - s), 0.0)


class Tables(NamedTuple):
    """R⁻¹, A R⁻¹, H, the term δ in the place of R⁻¹ where R is singular, and the roots of H's diagonal."""

    inverse: Float[np.ndarray, "v v"]
    spread: Float[np.ndarray, "i v"]
    gram: Float[np.ndarray, "i i"]
    delta: float
    root: Float[np.ndarray, " i"]


def finish_tables(R: np.ndarray, A: np.ndarray, unit: np.ndarray, proximal: float) -> Tables:
    """What a finish computes with. δ, this part of R's largest eigenvalue, is a multiple of `unit`, the metric of the
    coordinates."""
    values = scipy.linalg.eigh(R, unit, eigvals_only=True)
    largest = float(values.max())
    delta = proximal * (largest if largest > 0 else 1.0) if values.min() <= _DEFINITE * largest else 0.0
    inverse = np.linalg.inv(R + delta * unit)
    inverse = (inverse + inverse.T) / 2
    spread = A @ inverse
    gram = spread @ A.T
    root = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(np.float64).tiny))
    return Tables(inverse, spread, (gram + gram.T) / 2, delta, root)


def most_changes(slots: int) -> int:
    """After so many changes of a set something is wrong with an instance, or with the arithmetic."""
    return 3 * slots + 50


def corrections(delta: float) -> int:
    """How often the point of a set is corrected; with a proximal term each takes off only a part of what is left."""
    return 6 if delta else 3


def _over_instances(like: Any) -> Any:
    """Over the instances on the last axis, where there are several."""
    return (lambda f: jax.vmap(f, in_axes=-1, out_axes=-1)) if like.ndim > 1 else (lambda f: f)


def _make_bounds(finish: Finish, instance: EliminatedInstance, center: Float[Array, "v *N"]) -> _Bounds:
    """The search for the set of instances; with a proximal term, around a center."""
    e = finish.family.elimination
    cost = instance.cost - finish.delta * center
    g = instance.level - finish.spread @ cost
    noise = ROUNDING * (1.0 + jnp.abs(instance.level) + jnp.abs(g))
    return _Bounds(g, instance.l[e.others], instance.u[e.others], noise)


def _seed(finish: Finish, y: Float[Array, " i"]) -> _Set:
    """The set of the rows that multipliers name, without those that depend on others."""
    H = finish.gram
    slots = finish.slots
    named = jnp.nonzero(y, size=slots, fill_value=-1)[0].astype(jnp.int32)

    def add(slot, found: _Set) -> _Set:
        row = named[slot]
        found, _ = _enter(H, found, slot, row, jnp.sign(y[row]).astype(jnp.int32), row >= 0)
        return eqx.tree_at(lambda s: s.y, found, found.y.at[slot].set(jnp.where(found.rows[slot] >= 0, y[row], 0.0)))

    empty = _Set(
        jnp.full(slots, -1, jnp.int32),
        jnp.zeros(slots, jnp.int32),
        jnp.zeros(slots),
        jnp.zeros((slots, slots)),
        jnp.int32(0),
        jnp.bool_(True),
    )
    return jax.lax.fori_loop(0, jnp.sum(named >= 0), add, empty)


def _solve_column(
    H: Float[Array, "i i"], found: _Set, row: Int[Array, ""]
) -> tuple[Float[Array, " a"], Float[Array, ""]]:
    """K h and what is left of H_jj, for the row j that is to enter."""
    h = jnp.where(found.side != 0, H[found.rows, row], 0.0)
    w = found.K @ h
    return w, H[row, row] - h @ w


def _enter(
    H: Float[Array, "i i"],
    found: _Set,
    slot: Int[Array, ""],
    row: Int[Array, ""],
    side: Int[Array, ""],
    wanted: Bool[Array, ""],
) -> tuple[_Set, Bool[Array, ""]]:
    """The set with a row in an empty slot, where that is wanted and it does not depend on the others; and whether."""
    w, rest = _solve_column(H, found, row)
    take = wanted & (rest > DEPENDENT * H[row, row])
    border = (-w).at[slot].set(1.0)
    K = found.K + jnp.where(take, 1 / jnp.where(take, rest, 1.0), 0.0) * border[:, None] * border[None, :]
    rows = found.rows.at[slot].set(jnp.where(take, row, found.rows[slot]))
    sides = found.side.at[slot].set(jnp.where(take, side, found.side[slot]))
    return _Set(rows, sides, found.y, K, found.changes, found.going), take


def _leave(found: _Set, slot: Int[Array, ""], wanted: Bool[Array, ""]) -> _Set:
    """The set without the row of a slot, where that is wanted."""
    column = jnp.where(wanted, found.K[slot], 0.0)
    gone = wanted & (jnp.arange(found.rows.shape[0]) == slot)
    # In its own row and column, what is left is zero and not rounding.
    share = jnp.where(gone, 1.0, column / jnp.where(wanted, column[slot], 1.0))
    K = found.K - share[:, None] * column[None, :]
    K = K.at[:, slot].set(jnp.where(wanted, 0.0, K[:, slot]))
    rows = jnp.where(gone, -1, found.rows)
    side = jnp.where(gone, 0, found.side)
    y = jnp.where(gone, 0.0, found.y)
    return _Set(rows, side, y, K, found.changes, found.going)


def _pivot(finish: Finish, bounds: _Bounds, start: _Set) -> _Set:
    """Single changes of the set until no row is violated and no multiplier has the wrong sign."""
    H = finish.gram
    most = most_changes(finish.slots)

    def change(found: _Set) -> _Set:
        rows = found.rows
        side = found.side
        y = found.y
        places = jnp.where(side != 0, rows, H.shape[0])
        off = bounds.off(rows, side)
        target = found.K @ off
        if finish.proximal:
            # H has entries of very different sizes then: what the updates of K have lost is made up for.
            values = H @ jnp.zeros(H.shape[0], off.dtype).at[places].set(target, mode="drop")
            target = target + found.K @ jnp.where(side != 0, off - values[rows], 0.0)
        wrong = side * target < 0
        blocked = jnp.any(wrong)
        # On the way to the set's own multipliers the first that reaches zero leaves.
        ratio = jnp.where(wrong, y / jnp.where(wrong, y - target, 1.0), jnp.inf)
        y = jnp.where(blocked, y + jnp.minimum(jnp.min(ratio), 1.0) * (target - y), target)
        # Once all have their sign, the row enters that is violated most in the norm of the dual.
        s = bounds.g - H @ jnp.zeros(H.shape[0], y.dtype).at[places].set(y, mode="drop")
        outside = jnp.where(bounds.violated(s) > bounds.noise, bounds.violated(s) / finish.root, 0.0)
        outside = outside.at[places].set(0.0, mode="drop")
        row = jnp.argmax(outside).astype(jnp.int32)
        enters = ~blocked & (outside[row] > 0)
        sign = jnp.where(s[row] > bounds.u[row], 1, -1).astype(jnp.int32)
        w, rest = _solve_column(H, found, row)
        # A row that depends on the set takes the place of another: on this way s stays as it is, until one leaves.
        full = jnp.all(side != 0)
        dependent = enters & ((rest <= DEPENDENT * H[row, row]) | full)
        way = -w * sign
        # Not those that only rounding moves.
        falls = side * way < -DEPENDENT * jnp.max(jnp.abs(way))
        limit = jnp.where(falls, y / jnp.where(falls, -way, 1.0), jnp.inf)
        stuck = dependent & ~jnp.any(falls)
        length = jnp.where(dependent & ~stuck, jnp.min(limit), 0.0)
        found = eqx.tree_at(lambda f: f.y, found, y + jnp.where(dependent & ~stuck, length * way, 0.0))
        leaves = blocked | (dependent & ~stuck)
        found = _leave(found, jnp.where(blocked, jnp.argmin(ratio), jnp.argmin(limit)), leaves)
        slot = jnp.argmin(jnp.abs(found.side))
        found, entered = _enter(H, found, slot, row, sign, enters & ~stuck)
        y = found.y.at[slot].set(jnp.where(entered, jnp.where(dependent, length, 0.0) * sign, found.y[slot]))
        going = blocked | entered
        return _Set(found.rows, found.side, y, found.K, found.changes + going, going)

    return jax.lax.while_loop(lambda s: s.going & (s.changes < most), change, start)


def _refine(
    finish: Finish, instance: EliminatedInstance, found: _Set, v: Float[Array, "v *N"]
) -> tuple[Float[Array, "v *N"], Outcome]:
    """v and the point of the set, by steps that correct what is left of its optimality conditions, judged as a user
    would."""
    e = finish.family.elimination
    l = instance.l[e.others]
    u = instance.u[e.others]
    active = found.side != 0

    def at(values: Any, rows: Any) -> Any:
        return values[rows]

    def into(rows: Any, values: Any) -> Any:
        return jnp.zeros(l.shape[0], v.dtype).at[rows].set(values, mode="drop")

    at, into, times = (_over_instances(v)(f) for f in (at, into, jnp.matmul))
    bound = jnp.where(found.side > 0, at(u, found.rows), at(l, found.rows))
    places = jnp.where(active, found.rows, l.shape[0])

    def correct(_, pair):
        v, y = pair
        slope = e.P.mv(v) + instance.cost + e.A.rmv(y)
        off = at(instance.level + e.A.mv(v) - finish.spread @ slope, found.rows) - bound
        dy = into(places, times(found.K, jnp.where(active, off, 0.0)))
        return v - finish.inverse @ (slope + e.A.rmv(dy)), y + dy

    v, y = jax.lax.fori_loop(0, corrections(finish.proximal), correct, (v, jnp.zeros_like(instance.level)))
    s = instance.level + e.A.mv(v)
    held = into(places, jnp.ones_like(found.K[0]))
    state = CondensedState(v, jnp.where(held > 0, into(places, bound), s), y)
    form = Condensed()
    point = form.extract(finish.family, instance, state)
    residuals = form.measure_point(finish.family, instance, point)
    return v, Outcome(point, residuals, residuals.violation(ACCURACY, ACCURACY) <= 1, found.changes)
