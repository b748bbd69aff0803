"""A primal-dual point."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from .._util.optional import map_given


class Point(eqx.Module):
    """A primal-dual point in the user's units: a start, a reference optimum or a result.

    `y` and `s` are absent for unconstrained problems; `s` is the constraint value `Ax` (QP) or slack (Conic).
    """

    x: Float[Array, "..."]
    y: Float[Array, "..."] | None = None
    s: Float[Array, "..."] | None = None

    @staticmethod
    def of(source: Any) -> "Point":
        """Return the x, y and s of a Solution, of Optima or of another point."""
        return Point(source.x, source.y, source.s)

    def map(self, function: Callable[[Array], Any]) -> "Point":
        """Return the point with a function applied to x, and to y and s where they are there."""
        return Point(function(self.x), map_given(function, self.y), map_given(function, self.s))
