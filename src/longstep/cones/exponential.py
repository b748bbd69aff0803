"""The exponential cone."""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from .base import Sizes, check_count
from .curved import Curved, find_largest, find_root, project_tangent


class Exponential(Curved[int]):
    """{(x, y, z): y·exp(x/y) ≤ z, y > 0}, closed; the size is the number of cones."""

    name: ClassVar[str] = "exponential"
    title: ClassVar[str] = "exponential"
    scs: ClassVar[str] = "ep"
    cvxpy: ClassVar[tuple[str, ...]] = ("ExpCone",)
    cvxpy_dims: ClassVar[str] = "exp"
    c_part: ClassVar[str | None] = "exponential.c"
    empty: ClassVar[Sizes] = 0

    check_sizes = staticmethod(check_count)

    @property
    @override
    def each(self):
        return (3,) * self.sizes

    @property
    @override
    def rows(self):
        return 3 * self.sizes

    @override
    def project(self, v):
        return project_exponential(v.reshape(self.sizes, 3, *v.shape[1:])).reshape(v.shape)

    @override
    def clarabel(self):
        return [("ExponentialConeT", None)] * self.sizes


class _Place(NamedTuple):
    """Where v/scale is: in the cone, in its polar, under its flat face, or off its curved face.

    Off the curved face v = s·(ρ, 1, e^ρ) + u·(1, 1 − ρ, −e^−ρ) with s, u ≥ 0, a point of the cone and one of its polar.
    """

    v: Float[Array, "count 3 *N"]
    scale: Float[Array, "count 1 *N"]
    inside: Bool[Array, "count 1 *N"]
    polar: Bool[Array, "count 1 *N"]
    flat: Bool[Array, "count 1 *N"]
    rho: Float[Array, "count *N"]
    s: Float[Array, "count *N"]
    u: Float[Array, "count *N"]


@jax.custom_jvp
def project_exponential(v: Float[Array, "count 3 *N"]) -> Float[Array, "count 3 *N"]:
    """Project onto the exponential cone, along axis 1 (Friberg 2021); finite derivatives everywhere."""
    return _project_place(_locate(v))


@project_exponential.defjvp
def _project_exponential_jvp(primals, tangents):
    (v,), (tangent,) = primals, tangents
    place = _locate(v)
    rho = place.rho
    s = place.s
    u = place.u
    # The ray (ρ, 1, e^ρ) and the normal (1, 1 − ρ, −e^−ρ), without the larger of the two exponentials.
    small = jnp.exp(-jnp.abs(rho))
    up = rho > 0
    one = jnp.ones_like(rho)
    ray = jnp.stack([jnp.where(up, rho * small, rho), jnp.where(up, small, one), jnp.where(up, one, small)], axis=1)
    normal = jnp.stack(
        [jnp.where(up, one, small), jnp.where(up, 1 - rho, small * (1 - rho)), jnp.where(up, -small, -one)], axis=1
    )
    # d/dρ of the ray has this square at right angles to it, and distance · curvature is u/(s · square).
    square = jnp.sum(normal**2, axis=1) / jnp.sum(ray**2, axis=1)
    total = s * square + u
    stays = jnp.where(total > 0, s * square / jnp.where(total > 0, total, 1.0), 0.0)
    curved = project_tangent(ray, normal, stays, tangent)
    keeps = place.v[:, 2:] > 0
    face = jnp.concatenate([tangent[:, :1], 0 * tangent[:, 1:2], jnp.where(keeps, tangent[:, 2:], 0.0)], axis=1)
    moved = jnp.where(place.flat, face, curved)
    return _project_place(place), jnp.where(place.inside, tangent, jnp.where(place.polar, 0.0, moved))


def _project_place(place: _Place) -> Float[Array, "count 3 *N"]:
    v = place.v
    rho = place.rho
    s = place.s
    u = place.u
    # Of z = s·e^ρ = z₀ + u·e^−ρ, the one that does not blow up an error of ρ.
    small = jnp.exp(-jnp.abs(rho))
    z = jnp.where(rho > 0, v[:, 2] + u * small, s * small)
    curved = jnp.stack([s * rho, s, jnp.maximum(z, 0.0)], axis=1)
    face = jnp.concatenate([v[:, :1], 0 * v[:, 1:2], jnp.maximum(v[:, 2:], 0.0)], axis=1)
    found = jnp.where(place.inside, v, jnp.where(place.polar, 0 * v, jnp.where(place.flat, face, curved)))
    return found * place.scale


def _locate(v: Float[Array, "count 3 *N"]) -> _Place:
    scale = find_largest(v)
    v = v / scale
    x = v[:, 0]
    y = v[:, 1]
    z = v[:, 2]
    # Comparing logarithms, nothing overflows.
    inside = (y > 0) & (z > 0) & (x / _make_positive(y) <= jnp.log(_make_positive(z)) - jnp.log(_make_positive(y)))
    polar = (x > 0) & (z < 0) & (y / _make_positive(x) - 1 <= jnp.log(_make_positive(-z)) - jnp.log(_make_positive(x)))
    flat = (x <= 0) & (y <= 0)
    rho = _find_rho(x, y, z, inside, polar)
    s, u = _find_weights(rho, x, y)
    s = jnp.maximum(s, 0.0)
    u = jnp.maximum(u, 0.0)
    return _Place(v=v, scale=scale, inside=inside[:, None], polar=polar[:, None], flat=flat[:, None], rho=rho, s=s, u=u)


def _find_rho(x: Array, y: Array, z: Array, inside: Array, polar: Array) -> Array:
    """Return the ratio x/y of the projection off the curved face: where s·e^ρ − u·e^−ρ, which rises with ρ, is z."""
    # Beyond these |ρ|, exponentials overflow and squares do.
    most = 0.99 * math.log(float(jnp.finfo(x.dtype).max))
    far = float(jnp.finfo(x.dtype).max) ** 0.3
    # s > 0 and u > 0 bound ρ by the roots of their numerators.
    s_zero = 1 - y / jnp.where(x == 0, 1.0, x)
    u_zero = x / jnp.where(y == 0, 1.0, y)
    low = jnp.maximum(jnp.where(x > 0, s_zero, -far), jnp.where(y < 0, u_zero, -far))
    high = jnp.minimum(jnp.where(x < 0, s_zero, far), jnp.where(y > 0, u_zero, far))
    low = jnp.clip(low, -far, far)
    high = jnp.clip(high, -far, far)
    low, high = jnp.maximum(low, jnp.minimum(-most, high - 1)), jnp.minimum(high, jnp.maximum(most, low + 1))

    def excess(rho):
        s, u = _find_weights(rho, x, y)
        up = jnp.exp(jnp.clip(rho, -most, most))
        down = jnp.exp(jnp.clip(-rho, -most, most))
        square = rho * rho - rho + 1
        s_slope = (x - s * (2 * rho - 1)) / square
        u_slope = (-y - u * (2 * rho - 1)) / square
        return s * up - u * down - z, (s + s_slope) * up + (u - u_slope) * down

    # Nothing to be found in cone and polar, but the limit from outside: compilers may decide twice, and differently,
    # where a point on the boundary lies.
    low, high = jnp.where(inside, high, low), jnp.where(polar, low, high)
    return find_root(excess, low, jnp.maximum(low, high))


def _find_weights(rho: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Return the s and u of a ρ, by x and y alone."""
    square = rho * rho - rho + 1
    return ((rho - 1) * x + y) / square, (x - rho * y) / square


def _make_positive(v: Array) -> Array:
    """Return v where it is positive, else one: to divide by, or to take the logarithm of."""
    return jnp.where(v > 0, v, 1.0)
