"""Dense systems of which little but the values of rows is asked for."""

from typing import Self

from jaxtyping import Array, Float
from typing_extensions import override

from ..matrix import product
from .base import LinearSystem
from .inverse import Inverse
from .operator import Gram, Pattern


class Response(LinearSystem):
    """An explicit inverse X, and A X A' beside it: from t to the values A X A't it is one product, where by way of X it
    would be three."""

    inverse: Inverse
    matrix: Float[Array, "*S m m"]

    @override
    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        return pattern.rows is not None

    @override
    @classmethod
    def bytes(cls, pattern: Pattern, itemsize: int) -> int:
        assert pattern.rows is not None
        return Inverse.bytes(pattern, itemsize) + pattern.rows**2 * itemsize

    @override
    @classmethod
    def describe(cls, pattern: Pattern) -> str:
        return f"{Inverse.describe(pattern)} and {pattern.rows}×{pattern.rows}"

    @override
    @classmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        assert pattern.rows is not None
        made = 2.0 * pattern.n * pattern.rows * (pattern.n + pattern.rows)
        return Inverse.flops(pattern, 0.0) + made + 2.0 * pattern.rows**2 * solves

    @override
    @classmethod
    def flops_of_values(cls, pattern: Pattern) -> float:
        # They are what it gives.
        return 0.0

    @override
    @classmethod
    def factor(cls, K: Gram) -> Self:
        inverse = Inverse.factor(K)
        A = K.A.dense()
        matrix = product(A, product(inverse.inverse, A.T))
        return cls(inverse, (matrix + matrix.T) / 2)

    @property
    @override
    def trusted(self) -> bool:
        return self.inverse.trusted

    @property
    @override
    def response(self) -> Float[Array, "*S m m"] | None:
        return self.matrix

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        return self.inverse.solve(K, b)

    @override
    def error(self, K: Gram) -> Float[Array, ""]:
        return self.inverse.error(K)

    @override
    def refine(self, error: float, tolerance: float) -> Self:
        return type(self)(self.inverse.refine(error, tolerance), self.matrix)

    @override
    def trust(self) -> Self:
        return type(self)(self.inverse.trust(), self.matrix)

    @override
    def distrust(self) -> LinearSystem:
        return self.inverse
