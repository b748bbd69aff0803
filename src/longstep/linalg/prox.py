"""Functions g with a cheap proximal operator prox_{tg}(v) = argmin_z t·g(z) + ½‖z − v‖²."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .matrix import along


class Prox(eqx.Module):
    """A convex function given by its value and its proximal operator, along axis 0."""

    @abstractmethod
    def value(self, z: Float[Array, "n *N"]) -> Float[Array, "*N"]:
        """g(z), column by column; +∞ outside the domain."""

    @abstractmethod
    def prox(self, v: Float[Array, "n *N"], t) -> Float[Array, "n *N"]:
        """prox_{tg}(v), column by column."""


class Zero(Prox):
    """g = 0."""

    def value(self, z):  # noqa: D102
        return jnp.zeros(z.shape[1:], z.dtype)

    def prox(self, v, t):  # noqa: D102
        return v


class L1(Prox):
    """g(z) = weight·‖z‖₁; the prox is the soft threshold at t·weight."""

    weight: float

    def value(self, z):  # noqa: D102
        return self.weight * jnp.sum(jnp.abs(z), axis=0)

    def prox(self, v, t):  # noqa: D102
        return jnp.sign(v) * jnp.maximum(jnp.abs(v) - t * self.weight, 0.0)


class NonNegative(Prox):
    """The indicator of z ≥ 0."""

    def value(self, z):  # noqa: D102
        return jnp.where(jnp.all(z >= 0, axis=0), 0.0, jnp.inf)

    def prox(self, v, t):  # noqa: D102
        return jnp.maximum(v, 0.0)


class Box(Prox):
    """The indicator of low ≤ z ≤ high (scalars or vectors; infinite bounds allowed)."""

    low: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    high: Float[Array, "..."] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if bool(jnp.any(self.low > self.high)) or bool(jnp.any(jnp.isnan(self.low) | jnp.isnan(self.high))):
            raise ValueError("Box needs low ≤ high everywhere, without NaN")

    def _bounds(self, z):
        return [along(b, z) if b.ndim else b for b in (self.low, self.high)]

    def value(self, z):  # noqa: D102
        low, high = self._bounds(z)
        return jnp.where(jnp.all((z >= low) & (z <= high), axis=0), 0.0, jnp.inf)

    def prox(self, v, t):  # noqa: D102
        low, high = self._bounds(v)
        return jnp.clip(v, low, high)


class CustomProx(Prox):
    """Any other g: `value(z)` and `prox(v, t)` as functions of one vector or of columns."""

    value_function: Callable = eqx.field(static=True)
    prox_function: Callable = eqx.field(static=True)

    def value(self, z):  # noqa: D102
        return self.value_function(z)

    def prox(self, v, t):  # noqa: D102
        return self.prox_function(v, t)
