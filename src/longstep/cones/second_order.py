"""The second-order cone."""

import itertools
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from ..linalg.matrix import two_norm
from .base import Cone, check_orders


class SecondOrder(Cone[tuple[int, ...]]):
    """{(t, u): ‖u‖ ≤ t}, t first, its own dual; a size is the number of rows."""

    name: ClassVar[str] = "second_order"
    title: ClassVar[str] = "second-order"
    scs: ClassVar[str] = "q"
    cvxpy: ClassVar[tuple[str, ...]] = ("SOC",)
    cvxpy_dims: ClassVar[str] = "soc"
    always_kept: ClassVar[bool] = True
    c_part: ClassVar[str | None] = "cones.c"

    check_sizes = staticmethod(check_orders)

    @property
    @override
    def each(self):
        return self.sizes

    @override
    def project(self, v):
        parts = []
        start = 0
        # Neighbours of equal size are projected together.
        for k, group in itertools.groupby(self.sizes):
            count = len(list(group))
            cone = v[start : start + count * k].reshape(count, k, *v.shape[1:])
            parts.append(project_second_order(cone).reshape(count * k, *v.shape[1:]))
            start += count * k
        return jnp.concatenate(parts)

    @override
    def project_dual(self, v):
        return self.project(v)

    @override
    def clarabel(self):
        # One of size one is the nonnegative half-line, and some releases of Clarabel refuse it.
        return [("SecondOrderConeT" if k > 1 else "NonnegativeConeT", k) for k in self.sizes]


def project_second_order(v: Float[Array, "count k *N"]) -> Float[Array, "count k *N"]:
    """Project onto {(t, u): ‖u‖ ≤ t}, along axis 1; finite derivatives everywhere, the apex included."""
    t = v[:, :1]
    u = v[:, 1:]
    norm = two_norm(jnp.moveaxis(u, 1, 0))[:, None]
    inside = norm <= t
    polar = norm <= -t
    ratio = 0.5 * (1.0 + t / jnp.where(norm == 0, 1.0, norm))
    boundary = jnp.concatenate([ratio * norm, ratio * u], axis=1)
    return jnp.where(inside, v, jnp.where(polar, 0.0, boundary))
