"""What training saw of a family's parameters, so that a solution can say that its own lies elsewhere."""

import functools
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Bool, Float

from .base import Encoded


@dataclass(frozen=True, eq=False)
class Seen:
    """The ends of the range of N parameters, entry by entry: the two least values and the two greatest.

    A further parameter x is outside where it lies farther outside the box of the N, in widths of that box, than any one
    of the N lies outside the box of all the others, x among these. If x is drawn like the N, it is as likely to be the
    farthest as any one of them: outside with a probability of at most 1/(N + 1), whatever the number of its entries.

    Entries that the others agree on have no width. x is outside, too, where it differs in such entries, and in more of
    them than any one of the N (`lone`); in all, with a probability of at most 2/(N + 1).
    """

    low: Float[np.ndarray, " size"]
    second: Float[np.ndarray, " size"]
    before: Float[np.ndarray, " size"]
    high: Float[np.ndarray, " size"]
    lone: int

    @staticmethod
    def of(encoded: Encoded) -> "Seen":
        """Read it from encoded parameters, instances on the last axis."""
        values = _stack_rows(encoded)
        size, count = values.shape
        ordered = np.sort(values, axis=1)
        low = ordered[:, 0]
        high = ordered[:, -1]
        if count == 1:
            # Two points are as far from one another: neither is ever outside.
            return Seen(low, low, high, high, size)
        second = ordered[:, 1]
        before = ordered[:, -2]
        alone_below = (second == high) & (low < second)
        alone_above = (before == low) & (before < high)
        odd = np.where(alone_below[:, None], values == low[:, None], alone_above[:, None] & (values == high[:, None]))
        # Of two parameters that differ, either is the odd one.
        return Seen(low, second, before, high, int(np.max(odd.sum(axis=0), initial=0)))

    @staticmethod
    def of_box(low: np.ndarray, high: np.ndarray, margin: float) -> "Seen":
        """Return a box whose corners each lie `margin` widths outside the rest: what longstep 0.1 kept of training."""
        with np.errstate(invalid="ignore"):
            inset = np.where(high == low, 0.0, (high - low) * margin / (1 + margin))
        return Seen(low, low + inset, high - inset, high, 0)

    @functools.cached_property
    def rounding(self) -> Float[np.ndarray, " size"]:
        """How far out of the range of an entry is no distance."""
        with np.errstate(invalid="ignore"):
            width = np.where(self.high == self.low, 0.0, self.high - self.low)
        return 1e-6 * (width + np.abs(np.where(np.isfinite(self.low), self.low, 0.0))) + 1e-12

    def find_outside(self, encoded: Encoded) -> Bool[np.ndarray, "*N"]:
        """Return which of the encoded parameters lie outside."""
        x = _stack_rows(encoded)
        column = (slice(None),) + (None,) * (x.ndim - 1)
        low, second, before, high = (a[column] for a in (self.low, self.second, self.before, self.high))
        with np.errstate(invalid="ignore", divide="ignore"):
            distance = np.maximum(low - x, x - high)
            beyond = distance > self.rounding[column]
            own = _measure_in_widths(beyond, distance, high - low)
            # The least and the greatest of the N, where x is not beyond them, seen from all others with x among these.
            lower = np.minimum(second, x)
            upper = np.maximum(before, x)
            below = _measure_in_widths(x >= low, lower - low, np.maximum(high, x) - lower)
            above = _measure_in_widths(x <= high, high - upper, upper - np.minimum(low, x))
            others = np.max(np.maximum(below, above), axis=0, initial=0.0)
        differing = np.sum(beyond & (high == low), axis=0)
        return np.asarray((np.max(own, axis=0, initial=0.0) > others + 1e-6) | (differing > self.lone))


def _measure_in_widths(where: np.ndarray, distance: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return distance/width, and 0 where there is no width (or, with infinite bounds, no number)."""
    return np.nan_to_num(np.where(where & (width > 0), distance / width, 0.0))


def _stack_rows(encoded: Encoded) -> Float[np.ndarray, "size *N"]:
    """Return all numbers of encoded parameters as rows."""
    if isinstance(encoded, np.ndarray) and encoded.ndim <= 2:
        return encoded
    if (rows := getattr(encoded, "rows", None)) is not None:
        return rows()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(encoded)]
    return np.concatenate([leaf.reshape(-1, *leaf.shape[1:][-1:]) for leaf in leaves])
