"""Dense systems by a triangular root."""

import functools
from typing import Self

import jax
from jaxtyping import Array, Float
from typing_extensions import override

from .base import LinearSystem
from .operator import Gram, Pattern

_from_right = functools.partial(jax.lax.linalg.triangular_solve, left_side=False, lower=True)


class Cholesky(LinearSystem):
    """A lower triangular root: several times cheaper to make than an inverse, for systems that are solved a few times
    only, as in training."""

    root: Float[Array, "n n"]

    @override
    @classmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        # Factoring runs at a third of the speed of products, substitution with many right-hand sides at a fourth.
        return pattern.n**3 + 8.0 * pattern.n**2 * solves

    @override
    @classmethod
    def factor(cls, K: Gram) -> Self:
        return cls(triangular_root(K))

    @property
    @override
    def trusted(self) -> bool:
        # Substitution solves a system with a matrix that differs from K by rounding.
        return True

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        # From the right, on the transpose: LAPACK's memory order is then that of the products around it.
        columns = b[:, None] if b.ndim == 1 else b
        half = _from_right(self.root, columns.T, transpose_a=True)
        return _from_right(self.root, half, transpose_a=False).T.reshape(b.shape)


def triangular_root(K: Gram) -> Float[Array, "n n"]:
    """Return the lower triangular L with LL' = K."""
    # LAPACK stores by columns. Without the transpose XLA would do so with all that K is made of, several times slower.
    return jax.lax.linalg.cholesky(K.dense().T, symmetrize_input=False)
