"""What training saw of a family's parameters, so that a solution can say that its own lies elsewhere."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Seen:
    """The box low ≤ x ≤ high of N parameters, widened on every side by `margin` times its width.

    The margin is how far, at most, any one of the N lies outside the box of the others, in widths of that box. A
    further parameter of the same distribution is then outside with a probability of at most about 1/N, whatever the
    number of its entries; the box of ten parameters alone would miss nine in ten that have a dozen entries.
    """

    low: Float[np.ndarray, " size"]
    high: Float[np.ndarray, " size"]
    margin: float

    @staticmethod
    def of(encoded: Any) -> "Seen":
        """From encoded parameters, instances on the last axis."""
        values = _rows(encoded)
        if values.shape[1] < 3:
            return Seen(values.min(axis=1), values.max(axis=1), 0.0)
        ordered = np.sort(values, axis=1)
        low, second, before, high = ordered[:, 0], ordered[:, 1], ordered[:, -2], ordered[:, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.concatenate([(second - low) / (high - second), (high - before) / (before - low)])
        # Where all the others agree, one that differs says nothing of widths.
        return Seen(low, high, float(np.max(excess[np.isfinite(excess)], initial=0.0)))

    def __post_init__(self):
        # Equal infinities, bounds that no instance has, are a box without width.
        with np.errstate(invalid="ignore"):
            width = np.where(self.high == self.low, 0.0, self.high - self.low)
        slack = self.margin * width + 1e-6 * (width + np.abs(np.where(np.isfinite(self.low), self.low, 0.0))) + 1e-12
        object.__setattr__(self, "_floor", self.low - slack)
        object.__setattr__(self, "_ceiling", self.high + slack)

    def outside(self, encoded: Any) -> Bool[np.ndarray, "*N"]:
        """Which of the encoded parameters lie outside."""
        values = _rows(encoded)
        floor, ceiling = self._floor, self._ceiling  # type: ignore[attr-defined]
        if values.ndim > 1:
            floor, ceiling = floor[:, None], ceiling[:, None]
        return np.asarray(((values < floor) | (values > ceiling)).any(axis=0))


def _rows(encoded: Any) -> Float[np.ndarray, "size *N"]:
    """All numbers of encoded parameters as rows."""
    if isinstance(encoded, np.ndarray) and encoded.ndim <= 2:
        return encoded
    if (rows := getattr(encoded, "rows", None)) is not None:
        return rows()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(encoded)]
    return np.concatenate([leaf.reshape(-1, *leaf.shape[-1:]) if leaf.ndim > 1 else leaf for leaf in leaves])
