"""Systems whose matrix is diagonal."""

from typing import Self

import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from ..matrix import along
from .base import LinearSystem
from .operator import Gram, Pattern


class Diagonal(LinearSystem):
    """The inverse of a diagonal K (box-constrained separable problems, the maxcut relaxation)."""

    inverse: Float[Array, " n"]

    @override
    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        return pattern.diagonal

    @override
    @classmethod
    def bytes(cls, pattern: Pattern, itemsize: int) -> int:
        return pattern.n * itemsize

    @override
    @classmethod
    def describe(cls, pattern: Pattern) -> str:
        return "steps"

    @override
    @classmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        return pattern.n * (1 + solves)

    @override
    @classmethod
    def factor(cls, K: Gram) -> Self:
        # Off-diagonals vanish identically, so K·1 is the diagonal.
        return cls(1.0 / K.mv(jnp.ones(K.n, K.weights.dtype)))

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        return along(self.inverse, b) * b
