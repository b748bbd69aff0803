"""The free numbers of a block, and the map from the real line to what they stand for."""

from dataclasses import dataclass

import numpy as np

from ..schedules.domain import Domain
from .settings import Values


@dataclass(frozen=True)
class Part:
    """Entries of θ[name] that are unknown: entry k is unknown number index[k] of this part, or given where it is −1."""

    name: str
    index: np.ndarray
    domain: Domain


class Unknowns:
    """The free numbers of a block: which entries of θ they set, and the map from the real line to their domains."""

    def __init__(self, parts: list[Part], base: Values):
        self.parts = parts
        self.base = base
        self.sizes = [int(part.index.max(initial=-1)) + 1 for part in parts]
        self.size = sum(self.sizes)

    def start(self, theta: Values) -> np.ndarray:
        """Return the unknowns that give θ, or the nearest inside the domains."""
        found: list[np.ndarray] = [np.zeros(0)]
        for part, size in zip(self.parts, self.sizes, strict=True):
            first = [int(np.flatnonzero(part.index == i)[0]) for i in range(size)]
            found.append(part.domain.unconstrain(theta[part.name][first]))
        return np.concatenate(found).astype(np.float64)

    def reach(self, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of the unknowns around the point ν."""
        bounds = [part.domain.reach(own) for part, own in self._own(nu)]
        low, high = (np.concatenate([np.zeros(0), *(b[side] for b in bounds)]) for side in (0, 1))
        return low, high

    def theta(self, nu: np.ndarray) -> tuple[Values, list[np.ndarray]]:
        """Return θ, and for each part the derivative of its entries in their unknowns."""
        theta = {name: value.copy() for name, value in self.base.items()}
        slopes = []
        for part, own in self._own(nu):
            free = part.index >= 0
            theta[part.name][free] = part.domain.constrain(own)[part.index[free]]
            slopes.append(np.where(free, np.append(part.domain.slope(own), 0.0)[part.index], 0.0))
        return theta, slopes

    def pull(self, gradient: Values, slopes: list[np.ndarray]) -> np.ndarray:
        """Return the gradient in the unknowns from the one in θ."""
        pulled: list[np.ndarray] = [np.zeros(0)]
        for part, size, slope in zip(self.parts, self.sizes, slopes, strict=True):
            free = part.index >= 0
            pulled.append(np.bincount(part.index[free], (gradient[part.name] * slope)[free], minlength=size))
        return np.concatenate(pulled)

    def _own(self, nu: np.ndarray) -> list[tuple[Part, np.ndarray]]:
        return list(zip(self.parts, np.split(nu, np.cumsum(self.sizes)[:-1]), strict=True))
