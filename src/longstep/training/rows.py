"""What optima say of the penalties of rows: those that put a row and its multiplier into like units."""

import numpy as np
from jaxtyping import Array, Float

from .recipe import Recipe


def guess_metric(z: Float[Array, "i N"], y: Float[Array, "i N"], recipe: Recipe) -> Float[np.ndarray, " i"] | None:
    """Return |y|/|z| for every row, of the instances' optimal values z and multipliers y; None where they say nothing.

    A penalty has the unit of a multiplier by that of a row. Where rows are in watts and in degrees, these units differ
    by many orders of magnitude, which no single number makes up for. A row whose value or whose multiplier is zero
    says half of it: then |y||z|, which has the unit of the objective in all rows alike, is taken to be a
    part of what it usually is.
    """
    value = _measure_size(z, recipe)
    multiplier = _measure_size(y, recipe)
    both = (value > 0) & (multiplier > 0)
    if not both.any():
        return None
    share = recipe.metric_weak * np.exp(np.mean(np.log(value[both] * multiplier[both])))
    with np.errstate(divide="ignore"):
        least_value = np.where(multiplier > 0, share / multiplier, 0.0)
        least_multiplier = np.where(value > 0, share / value, 0.0)
    value = np.maximum(value, least_value)
    multiplier = np.maximum(multiplier, least_multiplier)
    known = (value > 0) & (multiplier > 0)
    ratio = np.divide(multiplier, value, out=np.ones_like(value), where=known)
    # Of a row that is zero throughout nothing is known: what is usual.
    ratio[~known] = np.exp(np.mean(np.log(ratio[known])))
    return ratio


def _measure_size(rows: Float[Array, "i N"], recipe: Recipe) -> Float[np.ndarray, " i"]:
    """Return the root mean square of every row, zero where it is rounding."""
    size = np.sqrt(np.mean(np.square(np.asarray(rows, np.float64)), axis=1))
    return np.where(size > recipe.metric_noise * np.max(size, initial=0.0), size, 0.0)
