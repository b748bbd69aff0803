"""Functions g with a cheap proximal operator prox_{tg}(v) = argmin_z t·g(z) + ½‖z − v‖²."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from .matrix import along
from .real import real_array


def _read_numbers(value: object) -> np.ndarray:
    return real_array("a number of the prox", value)


def _fit(value: np.ndarray, z: Float[Array, "n *N"]) -> Float[Array, "..."]:
    """Return a number or a vector in the precision of z, shaped to broadcast against it."""
    array = jnp.asarray(value, z.dtype)
    if not array.ndim:
        return array
    return along(array, z)


class Prox(eqx.Module):
    """A convex function given by its value and its proximal operator, along axis 0."""

    @abstractmethod
    def value(self, z: Float[Array, "n *N"]) -> Float[Array, "*N"]:
        """Return g(z), column by column; +∞ outside the domain."""

    @abstractmethod
    def prox(self, v: Float[Array, "n *N"], t) -> Float[Array, "n *N"]:
        """Return prox_{tg}(v), column by column, with one t or one for every column."""


class Zero(Prox):
    """g = 0."""

    @override
    def value(self, z):
        return jnp.zeros(z.shape[1:], z.dtype)

    @override
    def prox(self, v, t):
        return v


class L1(Prox):
    """g(z) = Σ weightᵢ|zᵢ|, one weight or one for every coordinate; the prox is the soft threshold at t·weight."""

    weight: np.ndarray = eqx.field(converter=_read_numbers)

    def __check_init__(self):
        if not (np.isfinite(self.weight) & (np.asarray(self.weight) >= 0)).all() or np.ndim(self.weight) > 1:
            raise ValueError(f"L1 needs a finite weight ≥ 0, or a vector of them, got {self.weight}")

    @override
    def value(self, z):
        return jnp.sum(_fit(self.weight, z) * jnp.abs(z), axis=0)

    @override
    def prox(self, v, t):
        return jnp.sign(v) * jnp.maximum(jnp.abs(v) - t * _fit(self.weight, v), 0.0)


class NonNegative(Prox):
    """The indicator of z ≥ 0."""

    @override
    def value(self, z):
        return jnp.where(jnp.all(z >= 0, axis=0), 0.0, jnp.inf)

    @override
    def prox(self, v, t):
        return jnp.maximum(v, 0.0)


class Box(Prox):
    """The indicator of low ≤ z ≤ high (scalars or vectors; infinite bounds allowed)."""

    low: np.ndarray = eqx.field(converter=_read_numbers)
    high: np.ndarray = eqx.field(converter=_read_numbers)

    def __check_init__(self):
        if np.ndim(self.low) > 1 or np.ndim(self.high) > 1 or not np.all(self.low <= self.high):
            raise ValueError("Box needs low ≤ high everywhere, without NaN, as numbers or vectors")

    @override
    def value(self, z):
        low = _fit(self.low, z)
        high = _fit(self.high, z)
        return jnp.where(jnp.all((z >= low) & (z <= high), axis=0), 0.0, jnp.inf)

    @override
    def prox(self, v, t):
        low = _fit(self.low, v)
        high = _fit(self.high, v)
        return jnp.clip(v, low, high)


class CustomProx(Prox):
    """Any other g: `value(z)` and `prox(v, t)` as functions of one vector."""

    value_function: Callable = eqx.field(static=True)
    prox_function: Callable = eqx.field(static=True)

    @override
    def value(self, z):
        if z.ndim == 1:
            return self.value_function(z)
        return jax.vmap(self.value_function, -1)(z)

    @override
    def prox(self, v, t):
        if v.ndim == 1:
            return self.prox_function(v, t)
        axis_of_t = None
        if jnp.ndim(t):
            axis_of_t = 0
        return jax.vmap(self.prox_function, (-1, axis_of_t), -1)(v, t)
