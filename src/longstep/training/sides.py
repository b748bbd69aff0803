"""On which side of its bounds every inequality of a QP is at the optimum, and how far a point is from there.

w = s + y/ρ of a row is above its upper bound where that is active, below its lower one where that is, and else between.
Once w is on the right side of all bounds, the active set is the optimum's, whatever its digits are.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..families.base import Family
from ..families.point import Point
from ..families.quadratic_program import QP, QPInstance
from ..linalg.matrix import along
from .recipe import Recipe


class Sides(eqx.Module):
    """Of every inequality and instance: +1 where the upper bound is active at the optimum, −1 where the lower one is,
    else 0; ρ and the unit in which w is measured; and how far w should be beyond a bound, in that unit."""

    side: Int[Array, "i N"]
    rho: Float[Array, "i N"]
    unit: Float[Array, "i N"]
    margin: float = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)

    def measure(self, family: QP, instance: QPInstance, point: Point) -> Float[Array, " N"]:
        """Return the logarithm of how many rows are on a wrong side, smoothly counted, for every instance."""
        kinds = family.host.kinds
        inner = np.flatnonzero(~kinds.equality[kinds.bounded])
        rows = np.array(self.rows)
        assert point.y is not None
        assert point.s is not None
        w = point.s[rows] + point.y[rows] / self.rho
        e = along(family.matrices.scaling.e[inner], w)
        below = (jnp.asarray(instance.u)[inner] / e - w) / self.unit
        above = (w - jnp.asarray(instance.l)[inner] / e) / self.unit
        inside = jnp.where(self.side > 0, -below, jnp.where(self.side < 0, -above, jnp.minimum(below, above)))
        wrong = self.margin * jax.nn.softplus(-inside / self.margin)
        return jnp.log(jnp.sum(wrong, axis=0) + self.margin**2 * jnp.finfo(w.dtype).eps)


def find_sides(family: Family, optimum: Point | None, recipe: Recipe) -> Sides:
    """Return the sides of optima (columns); what has none is refused."""
    if not isinstance(family, QP) or optimum is None or optimum.y is None or optimum.s is None:
        raise ValueError(
            'the loss "identification" is for QPs whose optima are known: make them with '
            'Dataset.sample(…, references=True), or use loss="metric"'
        )
    inequality = find_inequalities(family)
    if not inequality.any():
        raise ValueError('the loss "identification" is for QPs with inequalities; use loss="metric"')
    s = np.asarray(optimum.s, np.float64)[inequality]
    y = clean_multipliers(np.asarray(optimum.y, np.float64)[inequality], recipe)
    rho = balance_rows(family, s, y, recipe)[:, None]
    spread = (s + y / rho).std(axis=1, keepdims=True)
    # Rows that hardly vary count by what is usual.
    unit = spread + np.median(spread) + recipe.start_active
    wide = (np.broadcast_to(part, y.shape) for part in (rho, unit))
    arrays = (jnp.asarray(part, family.dtype) for part in wide)
    rows = tuple(int(row) for row in np.flatnonzero(inequality))
    return Sides(jnp.asarray(np.sign(y), jnp.int8), *arrays, margin=recipe.side_margin, rows=rows)


def find_inequalities(family: QP) -> Bool[np.ndarray, " m"]:
    """Return which rows are neither equalities nor without bounds."""
    return ~(family.host.kinds.equality | family.host.kinds.is_free)


def clean_multipliers(y: Float[np.ndarray, "i N"], recipe: Recipe) -> Float[np.ndarray, "i N"]:
    """Return the multipliers of inequalities without what is noise of the references."""
    return np.where(np.abs(y) > recipe.start_active * np.abs(y).max(axis=0, initial=0.0), y, 0.0)


def balance_rows(
    family: QP, s: Float[np.ndarray, "i N"], y: Float[np.ndarray, "i N"], recipe: Recipe
) -> Float[np.ndarray, " i"]:
    """Return, for every inequality, how much its multiplier varies for each unit that its value does; where one of them
    does not, what is usual, in equilibrated units, in the other rows."""
    kinds = family.host.kinds
    scaling = family.matrices.scaling
    e = np.asarray(scaling.e, np.float64)[~kinds.equality[kinds.bounded]]
    unit = e**2 / float(scaling.c)
    of_s = s.std(axis=1)
    of_y = y.std(axis=1)
    # What references have of noise is no variation.
    both = (of_s > recipe.start_active * (1 + np.abs(s).max(axis=1))) & (of_y > 0)
    ratio = np.where(both, of_y / np.where(both, of_s, 1.0), 0.0)
    usual = 1.0
    if both.any():
        usual = float(np.median((ratio / unit)[both]))
    return np.where(both, ratio, usual * unit)
