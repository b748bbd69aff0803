"""Sparse systems by the LDL' of their augmented form."""

from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32
from typing_extensions import override

from .. import host
from .base import LinearSystem
from .operator import Gram, Pattern

# Measured beside long matrix products: what an entry of L costs in a solve, and in a factorization, where it also
# counts for every entry of its column.
_SOLVE = 30.0
_FACTOR = 100.0


class Sparse(LinearSystem):
    """The operator's own numbers, and the key of the factor that the host has of it: where that is gone, the numbers
    make it again."""

    shift: Float[Array, "*S"]
    weights: Float[Array, "*S rows"]
    key: UInt32[Array, "*S 2"]

    on_host: ClassVar[bool] = True

    @override
    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        return pattern.fill is not None

    @override
    @classmethod
    def bytes(cls, pattern: Pattern, itemsize: int) -> int:
        # The entries of L in double precision, whatever the program's, and their places.
        assert pattern.fill is not None
        return 16 * pattern.fill

    @override
    @classmethod
    def describe(cls, pattern: Pattern) -> str:
        return f"sparse factors with {pattern.fill:,} entries"

    @override
    @classmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        assert pattern.fill is not None
        return _FACTOR * pattern.fill * (1 + pattern.fill / pattern.n) + _SOLVE * pattern.fill * solves

    @override
    @classmethod
    def factor(cls, K: Gram) -> Self:
        assert K.augmented is not None
        free = jnp.full(K.augmented.rows - K.weights.shape[0], K.free_weight, K.weights.dtype)
        weights = jnp.concatenate([K.weights, free])
        like = jax.ShapeDtypeStruct((2,), jnp.uint32)
        return cls(K.shift, weights, host.call(K.augmented.prepare_number, (K.shift, weights), like))

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        assert K.augmented is not None
        like = jax.ShapeDtypeStruct(b.shape, b.dtype)
        return host.call(K.augmented.solve_number, (self.key, self.shift, self.weights, b), like)
