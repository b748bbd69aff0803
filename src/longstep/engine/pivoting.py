"""The search for the optimal active set of rows, from one near it, by single changes.

Rows have the values s = g − Hμ and the bounds l ≤ s ≤ u, with a positive semidefinite H and a multiplier μ for each. A
set W of active rows with bounds t has H_WW μ_W = (g − t)_W, and μ = 0 elsewhere. Rows of W whose multiplier has the
wrong sign leave it, rows that s violates enter, one by one as in dual active-set methods (Goldfarb, Idnani 1983;
Arnström, Bemporad, Axehill 2022): every change raises the dual objective, so they end. The inverse of H_WW is updated.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .batching import count_fitting, wants_width

# A row is dependent on the active ones where what is left of it is below this part of it.
DEPENDENT = 1e-9
# Rows are violated, and multipliers have the wrong sign, by more than this part of what they are computed from; with a
# proximal term, which leaves H ill-conditioned, by more: sets would change for rounding alone, on and on.
ROUNDING = 1e-14
ROUNDING_UNEVEN = 1e-12
# Bytes of a core's cache that the sets of some instances may fill, and how many they are at most.
_CACHE = 1 << 19
_MOST = 256
# How often the memory of an accelerator holds sets while they change, and how many of them at most.
_COPIES = 8
_MOST_AT_ALL = 1 << 17


class Coupling(eqx.Module):
    """What the rows of all instances share: H, the roots of its diagonal, and how many rows can be active and
    independent of each other. `uneven` says that H has entries of very different sizes."""

    gram: Float[Array, "i i"]
    root: Float[Array, " i"]
    slots: int = eqx.field(static=True)
    uneven: bool = eqx.field(static=True)

    @property
    def width(self) -> int:
        """How many instances are sought for at a time: as many as have their sets in a core's cache, or in an
        accelerator's memory."""
        size = 8 * max(self.slots, 1) ** 2
        if wants_width():
            return int(np.clip(count_fitting(_COPIES * size), _MOST, _MOST_AT_ALL))
        return int(np.clip(_CACHE // size, 4, _MOST))


def choose_rounding(uneven: bool) -> float:
    """Return what part of the numbers that a row's value is computed from counts as rounding."""
    if uneven:
        return ROUNDING_UNEVEN
    return ROUNDING


class SetSearch(eqx.Module):
    """A finish that searches for the active set of rows with this coupling."""

    coupling: eqx.AbstractVar[Coupling]

    @property
    def proximal(self) -> bool:
        """Whether a proximal term is taken, as where P is singular."""
        return self.coupling.uneven

    @property
    def width(self) -> int:
        """How many instances are sought for at a time."""
        return self.coupling.width


class RowSet(eqx.Module):
    """An active set in slots, as many as there can be independent rows: the row of each, or −1 for an empty slot; +1
    for its upper bound or −1 for the lower; its multiplier; and the inverse of H_WW, zero at empty slots."""

    rows: Int[Array, "a *N"]
    side: Int[Array, "a *N"]
    y: Float[Array, "a *N"]
    K: Float[Array, "a a *N"]
    changes: Int[Array, "*N"]
    going: Bool[Array, "*N"]


class Bounds(eqx.Module):
    """What an instance's set is sought for: g, the bounds, and how large a rounding error of s is, row by row."""

    g: Float[Array, "i *N"]
    l: Float[Array, "i *N"]
    u: Float[Array, "i *N"]
    noise: Float[Array, "i *N"]

    def subtract_bounds(self, rows: Int[Array, "a *N"], side: Int[Array, "a *N"]) -> Float[Array, "a *N"]:
        """Return g less the bounds of the active rows; zero at empty slots."""
        return jnp.where(side > 0, self.g[rows] - self.u[rows], jnp.where(side < 0, self.g[rows] - self.l[rows], 0.0))

    def measure_violation(self, s: Float[Array, "i *N"]) -> Float[Array, "i *N"]:
        """Return by how much each row is outside its bounds."""
        return jnp.maximum(jnp.maximum(s - self.u, self.l - s), 0.0)


def limit_changes(slots: int) -> int:
    """Return after how many changes of a set something must be wrong with an instance, or with the arithmetic."""
    return 3 * slots + 50


def map_instances(like: Any) -> Any:
    """Return what maps a function over the instances on the last axis; without one, that leaves it as it is."""
    if like.ndim == 1:
        return lambda function: function
    return functools.partial(jax.vmap, in_axes=-1, out_axes=-1)


def seed(coupling: Coupling, y: Float[Array, " i"]) -> RowSet:
    """Return the set of the rows that multipliers name, without those that depend on others."""
    H = coupling.gram
    slots = coupling.slots
    named = jnp.nonzero(y, size=slots, fill_value=-1)[0].astype(jnp.int32)

    def add(slot, found: RowSet) -> RowSet:
        row = named[slot]
        found, _ = _enter(H, found, slot, row, jnp.sign(y[row]).astype(jnp.int32), row >= 0)
        return eqx.tree_at(lambda s: s.y, found, found.y.at[slot].set(jnp.where(found.rows[slot] >= 0, y[row], 0.0)))

    empty = RowSet(
        rows=jnp.full(slots, -1, jnp.int32),
        side=jnp.zeros(slots, jnp.int32),
        y=jnp.zeros(slots),
        K=jnp.zeros((slots, slots)),
        changes=jnp.int32(0),
        going=jnp.bool_(True),
    )
    return jax.lax.fori_loop(0, jnp.sum(named >= 0), add, empty)


def _solve_column(
    H: Float[Array, "i i"], found: RowSet, row: Int[Array, ""]
) -> tuple[Float[Array, " a"], Float[Array, ""]]:
    """Return K h and what is left of H_jj, for the row j that is to enter."""
    h = jnp.where(found.side != 0, H[found.rows, row], 0.0)
    w = found.K @ h
    return w, H[row, row] - h @ w


def _enter(
    H: Float[Array, "i i"],
    found: RowSet,
    slot: Int[Array, ""],
    row: Int[Array, ""],
    side: Int[Array, ""],
    wanted: Bool[Array, ""],
) -> tuple[RowSet, Bool[Array, ""]]:
    """Return the set with a row in an empty slot, where that is wanted and it does not depend on the others; and
    whether it has it."""
    w, rest = _solve_column(H, found, row)
    take = wanted & (rest > DEPENDENT * H[row, row])
    border = (-w).at[slot].set(1.0)
    K = found.K + jnp.where(take, 1 / jnp.where(take, rest, 1.0), 0.0) * border[:, None] * border[None, :]
    rows = found.rows.at[slot].set(jnp.where(take, row, found.rows[slot]))
    sides = found.side.at[slot].set(jnp.where(take, side, found.side[slot]))
    return RowSet(rows, sides, found.y, K, found.changes, found.going), take


def _leave(found: RowSet, slot: Int[Array, ""], wanted: Bool[Array, ""]) -> RowSet:
    """Return the set without the row of a slot, where that is wanted."""
    column = jnp.where(wanted, found.K[slot], 0.0)
    gone = wanted & (jnp.arange(found.rows.shape[0]) == slot)
    # In its own row and column, what is left is zero and not rounding.
    share = jnp.where(gone, 1.0, column / jnp.where(wanted, column[slot], 1.0))
    K = found.K - share[:, None] * column[None, :]
    K = K.at[:, slot].set(jnp.where(wanted, 0.0, K[:, slot]))
    rows = jnp.where(gone, -1, found.rows)
    side = jnp.where(gone, 0, found.side)
    y = jnp.where(gone, 0.0, found.y)
    return RowSet(rows, side, y, K, found.changes, found.going)


def _spread(H: Float[Array, "i i"], places: Int[Array, " a"], y: Float[Array, " a"]) -> Float[Array, " i"]:
    """Return Hμ of the multipliers at these places. H is symmetric, and instances that stand as rows to its left are
    multiplied in half the time."""
    return jnp.zeros(H.shape[0], y.dtype).at[places].set(y, mode="drop") @ H


def _find_multipliers(
    coupling: Coupling, bounds: Bounds, found: RowSet, places: Int[Array, " a"]
) -> Float[Array, " a"]:
    """Return the set's own multipliers, K (g − t); `places` are its rows, or behind the last one of empty slots."""
    H = coupling.gram
    off = bounds.subtract_bounds(found.rows, found.side)
    target = found.K @ off
    if not coupling.uneven:
        return target
    # What the updates of K have lost is made up for.
    values = _spread(H, places, target)
    return target + found.K @ jnp.where(found.side != 0, off - values[found.rows], 0.0)


def _find_violated(
    coupling: Coupling, bounds: Bounds, y: Float[Array, " a"], places: Int[Array, " a"]
) -> tuple[Int[Array, ""], Int[Array, ""], Bool[Array, ""]]:
    """Return the row outside of the set that is violated most in the norm of the dual, at which bound, and whether it
    is; y are the multipliers of the set."""
    H = coupling.gram
    s = bounds.g - _spread(H, places, y)
    outside = jnp.where(bounds.measure_violation(s) > bounds.noise, bounds.measure_violation(s) / coupling.root, 0.0)
    outside = outside.at[places].set(0.0, mode="drop")
    row = jnp.argmax(outside).astype(jnp.int32)
    sign = jnp.where(s[row] > bounds.u[row], 1, -1).astype(jnp.int32)
    return row, sign, outside[row] > 0


def pivot(coupling: Coupling, bounds: Bounds, start: RowSet) -> RowSet:
    """Return the set after single changes, when no row is violated and no multiplier has the wrong sign."""
    H = coupling.gram
    most = limit_changes(coupling.slots)

    def change(found: RowSet) -> RowSet:
        side = found.side
        y = found.y
        places = jnp.where(side != 0, found.rows, H.shape[0])
        target = _find_multipliers(coupling, bounds, found, places)
        wrong = side * target < 0
        blocked = jnp.any(wrong)
        # On the way to the set's own multipliers the first that reaches zero leaves.
        ratio = jnp.where(wrong, y / jnp.where(wrong, y - target, 1.0), jnp.inf)
        y = jnp.where(blocked, y + jnp.minimum(jnp.min(ratio), 1.0) * (target - y), target)
        # Once all have their sign, the row enters that is violated most.
        row, sign, violated = _find_violated(coupling, bounds, y, places)
        enters = ~blocked & violated
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
        return RowSet(found.rows, found.side, y, found.K, found.changes + going, going)

    return jax.lax.while_loop(lambda s: s.going & (s.changes < most), change, start)
