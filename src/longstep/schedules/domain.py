"""Where a hyperparameter may lie, and the smooth map from the real line onto it."""

from abc import abstractmethod

import equinox as eqx
import numpy as np
from scipy.special import expit
from typing_extensions import override


class Domain(eqx.Module):
    """A set of admissible values θ, with θ = constrain(ν) for unconstrained ν. All on the host, entry by entry."""

    @abstractmethod
    def constrain(self, nu: np.ndarray) -> np.ndarray:
        """Map real numbers to admissible values."""

    @abstractmethod
    def slope(self, nu: np.ndarray) -> np.ndarray:
        """Return the derivative of `constrain`."""

    @abstractmethod
    def unconstrain(self, theta: np.ndarray) -> np.ndarray:
        """Return the inverse of `constrain`."""

    def reach(self, nu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds within which training looks around ν."""
        return nu - 8.0, nu + 8.0

    @abstractmethod
    def contains(self, theta) -> np.ndarray:
        """Return which values are admissible; NaN never is."""

    @abstractmethod
    def describe(self) -> str:
        """Return the set, for messages."""


class Positive(Domain):
    """θ > 0; θ = exp ν. Training stays between `least` and `most`."""

    least: float = eqx.field(static=True, default=0.0)
    most: float = eqx.field(static=True, default=np.inf)

    @override
    def constrain(self, nu):
        return np.exp(nu)

    @override
    def slope(self, nu):
        return np.exp(nu)

    @override
    def unconstrain(self, theta):
        return np.log(theta)

    @override
    def reach(self, nu):
        # Three decades: farther out the linear systems of ADMM methods become singular before anything is gained.
        low = nu - np.log(1e3)
        high = nu + np.log(1e3)
        with np.errstate(divide="ignore"):
            return np.maximum(low, np.minimum(np.log(self.least), nu)), np.minimum(
                high, np.maximum(np.log(self.most), nu)
            )

    @override
    def contains(self, theta):
        theta = np.asarray(theta)
        return (theta > 0) & (theta < np.inf)

    @override
    def describe(self):
        return "(0, ∞)"


class Real(Domain):
    """Any finite number."""

    @override
    def constrain(self, nu):
        return np.asarray(nu)

    @override
    def slope(self, nu):
        return np.ones_like(nu)

    @override
    def unconstrain(self, theta):
        return np.asarray(theta)

    @override
    def contains(self, theta):
        return np.isfinite(np.asarray(theta))

    @override
    def describe(self):
        return "(-∞, ∞)"


class Interval(Domain):
    """low < θ < high, kept `margin` away from both ends; θ = low' + (high' − low')·sigmoid ν."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    margin: float = eqx.field(static=True, default=0.0)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends with the margin taken off."""
        return self.low + self.margin, self.high - self.margin

    @override
    def constrain(self, nu):
        a, b = self.ends
        return a + (b - a) * expit(nu)

    @override
    def slope(self, nu):
        a, b = self.ends
        return (b - a) * expit(nu) * expit(-nu)

    @override
    def unconstrain(self, theta):
        # The ends themselves are admissible where there is a margin, but no finite ν reaches them.
        a, b = self.ends
        fraction = np.clip((np.asarray(theta) - a) / (b - a), 1e-12, 1 - 1e-12)
        return np.log(fraction) - np.log1p(-fraction)

    @override
    def contains(self, theta):
        theta, (a, b) = np.asarray(theta), self.ends
        if self.margin == 0:
            return (theta > a) & (theta < b)
        slack = 1e-12 * (self.high - self.low)
        return (theta >= a - slack) & (theta <= b + slack)

    @override
    def describe(self):
        a, b = self.ends
        if self.margin == 0:
            return f"({a:.6g}, {b:.6g})"
        return f"[{a:.6g}, {b:.6g}]"


class Fixed(Domain):
    """One value; nothing to learn."""

    value: float = eqx.field(static=True)

    @override
    def constrain(self, nu):
        return np.full_like(nu, self.value)

    @override
    def slope(self, nu):
        return np.zeros_like(nu)

    @override
    def unconstrain(self, theta):
        return np.zeros_like(theta)

    @override
    def contains(self, theta):
        return np.asarray(theta) == self.value

    @override
    def describe(self):
        return f"{{{self.value:g}}}"
