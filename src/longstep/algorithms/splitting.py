"""What ADMM methods share: a linear system P + shift·I + A'diag(weights)A, the same for all instances."""

from abc import abstractmethod
from typing import Any, ClassVar

from jaxtyping import Array, Float
from typing_extensions import override

from ..linalg.systems import Gram, Pattern
from .base import Algorithm, Theta


class Splitting(Algorithm):
    """An algorithm that solves with K = P + shift·I + A'diag(weights)A at every step, for a constrained family."""

    # The weight of rows that no instance bounds; they have z = Ax and y = 0 throughout, so all they do is add to K.
    free_weight: ClassVar[float] = 0.0

    @abstractmethod
    def shift(self, family: Any, theta: Theta) -> Float[Array, ""]:
        """The multiple of the identity in K."""

    @abstractmethod
    def weights(self, family: Any, theta: Theta) -> Float[Array, " m"]:
        """The weight of every row of A in K."""

    @abstractmethod
    def weighs_alike(self, family: Any) -> bool:
        """Whether all rows have the same weight, whatever θ is."""

    @override
    def pattern(self, family: Any) -> Pattern:
        matrices = family.matrices
        return Pattern(family.n, matrices.diagonal, self.weighs_alike(family) and matrices.spectrum is not None)

    @override
    def operator(self, family: Any, theta: Theta) -> Gram:
        matrices = family.matrices
        return Gram(
            matrices.P,
            matrices.A,
            self.shift(family, theta),
            self.weights(family, theta),
            family.n,
            matrices.diagonal,
            matrices.spectrum if self.weighs_alike(family) else None,
            matrices.free,
            self.free_weight,
        )
