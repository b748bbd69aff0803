"""What a quadratic family looks like to gradient descent: its eigenvalues, and how starting errors lie along them."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy.typing import ArrayLike

from ...families.smooth import Quadratic
from ...linalg.real import real_array

EPS = float(np.finfo(np.float64).eps)
# Eigenvalues at or below this fraction of the largest are rounding: their directions have no curvature.
_FLAT = 1e-12


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The parameter x ~ N(mean, covariance); in a family without a parameter map, x is the linear term itself.

    >>> Gaussian(np.zeros(2), np.eye(2)).size
    2
    """

    mean: np.ndarray
    covariance: np.ndarray

    def __post_init__(self):
        mean = np.array(real_array("the mean", self.mean))
        covariance = np.array(real_array("the covariance", self.covariance))
        if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
            raise ValueError(
                f"a Gaussian needs a mean (d,) and a covariance (d, d), got {mean.shape} and {covariance.shape}"
            )
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
            raise ValueError("the mean or the covariance has NaN or infinite entries")
        largest = np.max(np.abs(covariance), initial=0.0)
        if np.max(np.abs(covariance - covariance.T), initial=0.0) > 1e-10 * largest:
            raise ValueError("the covariance is not symmetric")
        covariance = (covariance + covariance.T) / 2
        values = np.linalg.eigvalsh(covariance)
        if values.size and values[0] < -1e-10 * max(values[-1], largest):
            raise ValueError(f"the covariance is not positive semidefinite: its smallest eigenvalue is {values[0]:.3e}")
        mean.flags.writeable = covariance.flags.writeable = False
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @property
    def size(self) -> int:
        """d."""
        return self.mean.size


class ErrorSpectrum:
    """The eigenvalues λ and eigenvectors Q of a quadratic family, and the weights ω of starting errors along them.

    Directions without curvature (λ ≤ 1e-12·λmax) carry no weight: no step changes them.
    """

    def __init__(self, family: Quadratic):
        self.family = family
        diagonal = np.asarray(family.P.diagonal(), np.float64)
        self.eigenvalues: Float[np.ndarray, " n"] = diagonal
        self.vectors: Float[np.ndarray, "n n"] | None = None  # None is the identity
        if abs(family.P - sp.diags_array(diagonal)).nnz:
            self.eigenvalues, self.vectors = np.linalg.eigh(family.P.toarray())

    def coordinates(self, columns: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n N"]:
        """Return Q'v, column by column."""
        return columns if self.vectors is None else self.vectors.T @ columns

    def weights(self, source: "Gaussian | ArrayLike") -> Float[np.ndarray, " n"]:
        """Return ω_j, the mean of (Q'(z⁰ − z*))_j² over the rows of an array of errors, or a Gaussian from z⁰ = 0."""
        if isinstance(source, Gaussian):
            return self._of_gaussian(source)
        errors = np.asarray(source, np.float64)
        if errors.ndim != 2 or errors.shape[1] != self.family.n or not len(errors):
            raise ValueError(f"errors must have the shape (N, {self.family.n}) with N ≥ 1, got {errors.shape}")
        if not np.isfinite(errors).all():
            raise ValueError("the errors have NaN or infinite entries")
        squares = np.mean(self.coordinates(errors.T) ** 2, axis=1)
        return np.where(find_curved(self.eigenvalues) & _find_above_rounding(squares), squares, 0.0)

    def _of_gaussian(self, source: Gaussian) -> Float[np.ndarray, " n"]:
        # z⁰ − z* = P⁻¹q with q = q₀ + M x, so ω_j is the second moment of (Q'q)_j over λ_j².
        parameter = self.family.parameter
        n = self.family.n
        size = n if parameter is None else parameter.size
        if source.size != size:
            what = "linear term" if parameter is None else "parameter"
            raise ValueError(f"the {what} of this family has {size} entries, the Gaussian {source.size}")
        if parameter is None:
            mean = source.mean
            map_ = np.eye(n)
        else:
            matrix = parameter.matrices["q"]
            offset = self.family.host.q
            mean = matrix @ source.mean + (0.0 if offset is None else offset)
            map_ = matrix.toarray()
        rows = self.coordinates(map_)
        spread = np.maximum(np.sum((rows @ source.covariance) * rows, axis=1), 0.0)
        squares = self.coordinates(mean[:, None])[:, 0] ** 2 + spread
        kept = find_curved(self.eigenvalues) & _find_above_rounding(squares)
        return np.where(kept, squares, 0.0) / np.where(kept, self.eigenvalues, 1.0) ** 2


def find_curved(eigenvalues: Float[np.ndarray, " n"]) -> np.ndarray:
    """Return which eigenvalues are more than rounding."""
    return eigenvalues > max(_FLAT * np.max(eigenvalues, initial=0.0), 0.0)


def _find_above_rounding(squares: Float[np.ndarray, " n"]) -> np.ndarray:
    # Components that are zero come out of the product with Q' as rounding; steps must not be spent on them.
    return squares > squares.size * EPS**2 * np.sum(squares)
