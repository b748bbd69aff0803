"""Systems that share their eigenvectors."""

from typing import Self

from jaxtyping import Array, Float
from typing_extensions import override

from ..matrix import along, product
from .base import LinearSystem
from .operator import Gram, Pattern


class Spectral(LinearSystem):
    """The inverse eigenvalues of a K that has a spectrum: nothing is factored, and all θ share the eigenvectors."""

    inverse: Float[Array, " n"]

    @override
    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        return pattern.spectral

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
        return pattern.n + 4.0 * pattern.n**2 * solves

    @override
    @classmethod
    def factor(cls, K: Gram) -> Self:
        assert K.spectrum is not None
        return cls(1.0 / (K.spectrum.values + K.shift + K.weights[0]))

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        assert K.spectrum is not None
        V = K.spectrum.vectors
        return product(V, along(self.inverse, b) * product(V.T, b))
