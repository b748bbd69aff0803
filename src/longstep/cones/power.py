"""The power cone."""

import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from .curved import Curved, find_largest, find_root, project_tangent


class Power(Curved[tuple[float, ...]]):
    """{(x, y, z): xᵃ·y¹⁻ᵃ ≥ |z|, x, y ≥ 0}; a size is the exponent a, 0 < a < 1."""

    name: ClassVar[str] = "power"
    title: ClassVar[str] = "power"
    scs: ClassVar[str] = "p"
    cvxpy: ClassVar[tuple[str, ...]] = ("PowCone3D",)
    cvxpy_dims: ClassVar[str] = "p3d"
    c_part: ClassVar[str | None] = "power.c"

    @override
    @staticmethod
    def check_sizes(sizes: Any) -> tuple[float, ...]:
        """Return the exponents, or that of one."""
        exponents = tuple(float(a) for a in np.atleast_1d(np.asarray(sizes, float)))
        if not all(0 < a < 1 for a in exponents):
            raise ValueError(f"the exponent of a power cone must be between 0 and 1, got {sizes!r}")
        return exponents

    @property
    @override
    def each(self):
        return (3,) * len(self.sizes)

    @override
    def project(self, v):
        stack = v.reshape(len(self.sizes), 3, *v.shape[1:])
        exponents = jnp.asarray(self.sizes, v.dtype).reshape(-1, *(1,) * (v.ndim - 1))
        return project_power(stack, exponents).reshape(v.shape)

    @override
    def clarabel(self):
        return [("PowerConeT", a) for a in self.sizes]


class _Place(NamedTuple):
    """Where v/scale is: in the cone, in its polar, or off it, with its projection p and q = |p_z|·(|v_z| − |p_z|)."""

    v: Float[Array, "count 3 *N"]
    scale: Float[Array, "count 1 *N"]
    inside: Bool[Array, "count 1 *N"]
    polar: Bool[Array, "count 1 *N"]
    p: Float[Array, "count 3 *N"]
    q: Float[Array, "count *N"]


@jax.custom_jvp
def project_power(v: Float[Array, "count 3 *N"], a: Float[Array, "count *one"]) -> Float[Array, "count 3 *N"]:
    """Project onto the power cones of the exponents, along axis 1 (Hien 2015); finite derivatives with respect to v."""
    return _project_place(_locate(v, a))


@project_power.defjvp
def _project_power_jvp(primals, tangents):
    (v, a), (tangent, _) = primals, tangents
    place = _locate(v, a)
    x = place.p[:, 0]
    y = place.p[:, 1]
    z = jnp.abs(place.p[:, 2])
    # The gradient of a·log x + (1 − a)·log y − log z, times the least of the three.
    least = jnp.minimum(jnp.minimum(x, y), z)
    sign = jnp.where(place.v[:, 2] < 0, -1.0, 1.0)
    share = [jnp.where(entry > 0, least / _make_nonzero(entry), 1.0) for entry in (x, y, z)]
    normal = jnp.stack([a * share[0], (1 - a) * share[1], -sign * share[2]], axis=1)
    # Along the curve of all (x·e^((1−a)t), y·e^(−at), z) the point moves with this square at right angles to the ray.
    others = jnp.maximum(jnp.maximum(x, y), z) * (x + y + z - least - jnp.maximum(jnp.maximum(x, y), z))
    square = others**2 * jnp.sum(normal**2, axis=1) / _make_nonzero(jnp.sum(place.p**2, axis=1))
    total = square + place.q * a * (1 - a)
    stays = jnp.where(total > 0, square / jnp.where(total > 0, total, 1.0), 0.0)
    curved = project_tangent(place.p, normal, stays, tangent)
    return _project_place(place), jnp.where(place.inside, tangent, jnp.where(place.polar, 0.0, curved))


def _project_place(place: _Place) -> Float[Array, "count 3 *N"]:
    # Without z, what is left is the quadrant.
    quadrant = jnp.concatenate([jnp.maximum(place.v[:, :2], 0.0), 0 * place.v[:, 2:]], axis=1)
    curved = jnp.where(place.v[:, 2:] == 0, quadrant, place.p)
    return jnp.where(place.inside, place.v, jnp.where(place.polar, 0 * place.v, curved)) * place.scale


def _locate(v: Float[Array, "count 3 *N"], a: Float[Array, "count *one"]) -> _Place:
    scale = find_largest(v)
    v = v / scale
    x = v[:, 0]
    y = v[:, 1]
    z = jnp.abs(v[:, 2])
    log_z = jnp.log(jnp.where(z > 0, z, 1.0))
    inside = (x > 0) & (y > 0) & ((z == 0) | (a * _log(x) + (1 - a) * _log(y) >= log_z))
    polar = (x < 0) & (y < 0) & ((z == 0) | (a * _log(-x / a) + (1 - a) * _log(-y / (1 - a)) >= log_z))
    # Without z, the derivative is that of a z next to none.
    z = jnp.maximum(z, float(jnp.finfo(v.dtype).eps) ** 1.5)
    r, rest = _divide(x, y, z, a, inside, polar)
    q = r * rest
    (px, _), (py, _) = _find_positive_root(x, a * q), _find_positive_root(y, (1 - a) * q)
    p = jnp.stack([px, py, jnp.where(v[:, 2] < 0, -r, r)], axis=1)
    return _Place(v, scale, inside[:, None], polar[:, None], p, q)


def _divide(x: Array, y: Array, z: Array, a: Array, inside: Array, polar: Array) -> tuple[Array, Array]:
    """Return r and z − r, where r > 0 is the last entry of the projection of (x, y, z).

    With q = r·(z − r) the other entries are the positive roots of p² − xp = aq and p² − yp = (1 − a)q. The unknown is
    log r − log(z − r), which keeps all digits at either end.
    """

    def excess(t):
        up = jax.nn.sigmoid(t)
        down = jax.nn.sigmoid(-t)
        r = z * up
        rest = z * down
        value = jnp.log(r)
        slope = down
        for start, weight in ((x, a), (y, 1 - a)):
            p, share = _find_positive_root(start, weight * r * rest)
            value = value - weight * jnp.log(p)
            slope = slope - weight * share * (down - up)
        return value, slope

    # Beyond, even the root of r/z or 1 − r/z is lost in rounding.
    end = jnp.full_like(z, -2.2 * math.log(float(jnp.finfo(z.dtype).eps)))
    # Nothing to be found in cone and polar, but the limit from outside: compilers may decide twice, and differently,
    # where a point on the boundary lies.
    t = find_root(excess, jnp.where(inside, end, -end), jnp.where(polar, -end, end))
    return z * jax.nn.sigmoid(t), z * jax.nn.sigmoid(-t)


def _find_positive_root(start: Array, product: Array) -> tuple[Array, Array]:
    """Return the positive root p of p² − start·p = product, without cancellation, and d log p/d log product."""
    root = jnp.sqrt(start * start + 4 * product)
    p = jnp.where(start > 0, 0.5 * (start + root), 2 * product / _make_nonzero(root - start))
    return p, product / _make_nonzero(p * root)


def _make_nonzero(v: Array) -> Array:
    return jnp.where(v == 0, 1.0, v)


def _log(v: Array) -> Array:
    return jnp.log(jnp.where(v > 0, v, 1.0))
