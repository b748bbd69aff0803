"""What three-dimensional curved cones share: C code, a root of one variable, and the derivative of projections."""

from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from .base import Cone, SizesT

# Bisection alone would be done in fewer.
_LIMIT = 100


class Curved(Cone[SizesT]):
    """Three-dimensional cones whose projection has no formula, but is given by a root."""

    c_shared: ClassVar[str | None] = "curved.c"
    c_finish: ClassVar[str | None] = "newton_curved.c"

    @override
    def count_c_derivatives(self) -> dict[str, int]:
        # Of each the basis in which its derivative is diagonal, and the diagonal.
        return {"BASES": 12 * len(self.each)}


def find_root(
    function: Callable[[Array], tuple[Array, Array]], low: Float[Array, "*B"], high: Float[Array, "*B"]
) -> Float[Array, "*B"]:
    """Return where a function rises through zero between low and high, to rounding; the end it stays closest to, if
    nowhere.

    `function` gives value and derivative. Newton's steps are taken as long as they stay between the points that are
    known to lie on either side and halve from one to the next; else that interval is halved.
    """
    epsilon = float(jnp.finfo(low.dtype).eps)

    def go_on(state):
        return ~jnp.all(state[4]) & (state[5] < _LIMIT)

    def advance(state):
        low, high, at, last, settled, count = state
        value, slope = function(at)
        below = value < 0
        step = jnp.abs(value / slope)
        low = jnp.where(below, at, low)
        high = jnp.where(below, high, at)
        newton = jnp.where(below, at + step, at - step)
        near = step <= epsilon**0.25
        halves = 2 * step < last
        good = (newton >= low) & (newton <= high) & (near | halves)
        following = jnp.where(good, newton, low + 0.5 * (high - low))
        rounding = 4 * epsilon * jnp.maximum(jnp.abs(at), 1.0)
        # Close to the root, Newton's steps that do not halve any more are rounding.
        done = (jnp.abs(following - at) <= rounding) | (good & near & ~halves)
        last = jnp.where(good, step, jnp.inf)
        return low, high, jnp.where(settled, at, following), last, settled | done, count + 1

    middle = low + 0.5 * (high - low)
    state = (low, high, middle, jnp.full_like(middle, jnp.inf), high <= low, jnp.array(0))
    return jax.lax.while_loop(go_on, advance, state)[2]


def project_tangent(
    ray: Float[Array, "count 3 *N"],
    normal: Float[Array, "count 3 *N"],
    stays: Float[Array, "count *N"],
    tangent: Float[Array, "count 3 *N"],
) -> Float[Array, "count 3 *N"]:
    """Return the derivative of the projection onto the boundary of a smooth cone, along a tangent.

    It keeps the part along the ray through the projected point, loses that along the normal, and of the direction at
    right angles to both keeps the share `stays` = 1/(1 + distance · curvature).
    """
    ray = _unit(ray)
    normal = _unit(normal)
    across = jnp.cross(ray, normal, axis=1)
    along_ray = jnp.sum(ray * tangent, axis=1, keepdims=True)
    along_across = jnp.sum(across * tangent, axis=1, keepdims=True)
    return ray * along_ray + across * along_across * stays[:, None]


def find_largest(v: Float[Array, "count 3 *N"]) -> Float[Array, "count 1 *N"]:
    """Return the largest entry of every cone, one where all are zero: to divide by, which cones allow."""
    size = jnp.max(jnp.abs(v), axis=1, keepdims=True)
    return jnp.where(size == 0, 1.0, size)


def _unit(v: Float[Array, "count 3 *N"]) -> Float[Array, "count 3 *N"]:
    v = v / find_largest(v)
    return v / jnp.sqrt(jnp.maximum(jnp.sum(v * v, axis=1, keepdims=True), jnp.finfo(v.dtype).tiny))
