"""A primal-dual point."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float


class Point(eqx.Module):
    """A primal-dual point in the user's units: a start, a reference optimum or a result.

    `y` and `s` are absent for unconstrained problems; `s` is the constraint value `Ax` (QP) or slack (Conic).
    """

    x: Float[Array, "..."]
    y: Float[Array, "..."] | None = None
    s: Float[Array, "..."] | None = None

    @staticmethod
    def of(source: Any) -> "Point":
        """The x, y and s of a Solution, of Optima or of another point."""
        return Point(source.x, source.y, source.s)

    def map(self, function: Callable[[Array], Any]) -> "Point":
        """The point with a function applied to x, and to y and s where they are there."""
        return Point(function(self.x), *(None if part is None else function(part) for part in (self.y, self.s)))
