"""What ADMM methods share: a linear system P + shift·I + A'diag(weights)A, the same for all instances."""

from abc import abstractmethod
from typing import ClassVar, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from typing_extensions import override

from ..families.base import InstanceT
from ..families.constrained import ConstrainedFamily
from ..linalg.systems import Gram, Pattern
from ..schedules.domain import Positive
from ..schedules.hyperparameter import Hyperparameter
from .base import Algorithm, StateT, Theta

ConstrainedT = TypeVar("ConstrainedT", bound=ConstrainedFamily)


def choose_domain(
    family: ConstrainedFamily, low: float = 1e-6, high: float = 1e3, low_in_double: float = 0.0
) -> Positive:
    """Return the domain of penalties: beyond these ends, of single and of double precision, the linear systems are
    singular, and training must not go there."""
    if family.dtype == np.float64:
        return Positive(low_in_double)
    return Positive(low, high)


def find_metric(theta: Theta) -> Float[Array, " entries"] | None:
    """Return the hyperparameter of θ that is a vector; None where all are scalars."""
    return next((value for value in theta.values() if jnp.ndim(value)), None)


class Splitting(Algorithm[ConstrainedT, InstanceT, StateT]):
    """An algorithm that solves with K = P + shift·I + A'diag(weights)A at every step, for a constrained family."""

    # The weight of rows that no instance bounds; they have z = Ax and y = 0 throughout, so all they do is add to K.
    free_weight: ClassVar[float] = 0.0

    @abstractmethod
    def shift(self, family: ConstrainedT, theta: Theta) -> Float[Array, ""]:
        """Return the multiple of the identity in K."""

    @abstractmethod
    def weights(self, family: ConstrainedT, theta: Theta) -> Float[Array, " m"]:
        """Return the weight of every row of A in K."""

    @abstractmethod
    def weighs_alike(self, family: ConstrainedT) -> bool:
        """Return whether all rows have the same weight, whatever θ is."""

    def weigh_rows(self, theta: Theta, weights: Float[Array, " m"]) -> Float[Array, " m"]:
        """Return the weights by kind of row, times the metric where there is one."""
        metric = find_metric(theta)
        if metric is None:
            return weights
        return weights * metric

    @override
    def scaled(self, family: ConstrainedT, theta: dict[str, float], multiple: float) -> dict[str, float]:
        penalties = [h.name for h in self.hyperparameters(family) if h.role == "penalty"]
        return theta | {name: theta[name] * multiple for name in penalties}

    @override
    def metric(self, family: ConstrainedT) -> Hyperparameter:
        entries = self.metric_entries(family)
        return Hyperparameter("metric", 1.0, Positive(), Positive(), factored=True, role="penalty", entries=entries)

    def metric_entries(self, family: ConstrainedT) -> Int[np.ndarray, " m"]:
        """Return for every row the number of its entry in the metric; rows that must share a penalty have one
        number."""
        return np.arange(family.matrices.m)

    @override
    def pattern(self, family: ConstrainedT) -> Pattern:
        return family.matrices.structure.describe(family.n, self.weighs_alike(family))

    @override
    def operator(self, family: ConstrainedT, theta: Theta) -> Gram:
        matrices = family.matrices
        structure = matrices.structure
        spectrum = None
        if self.weighs_alike(family) and find_metric(theta) is None:
            spectrum = structure.spectrum
        return Gram(
            P=matrices.P,
            A=matrices.A,
            shift=self.shift(family, theta),
            weights=self.weights(family, theta),
            n=family.n,
            diagonal=structure.diagonal,
            spectrum=spectrum,
            free=matrices.free,
            free_weight=self.free_weight,
            augmented=structure.augmented,
        )
