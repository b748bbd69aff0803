"""Logistic regression: telling two handwritten digits apart, a new pair every time, by gradient descent.

    minimise (1/m) Σᵢ log(1 + exp(−yᵢ vᵢ'z)) + (ε/2)‖z‖²

vᵢ is an image with pixels in [0, 1] and a last entry of one for the bias, yᵢ = ±1 its class; there are as many images
of either class. The parameter is the images and the labels, so the Hessian differs between instances. The gradient is
−(1/m) Σᵢ yᵢ vᵢ/(1 + exp(yᵢ vᵢ'z)) + εz, with a minus sign.

200 points in 784 dimensions are separable: with ε = 0 the infimum is zero and is not attained, so there is no
reference optimum. The default ε = 1e-4 (on all unknowns, the bias included) makes the problem well posed. Zero is
a lower bound either way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from longstep import Smooth

from .images import pixels


def loss(z: jax.Array, x: Mapping[str, jax.Array], regularization: float) -> jax.Array:
    """The regularised mean logistic loss of one instance."""
    margins = x["labels"] * (x["images"] @ z)
    return jnp.mean(jnp.logaddexp(0.0, -margins)) + 0.5 * regularization * z @ z


@dataclass(frozen=True, eq=False)
class Logistic:
    """Pairs of classes from labelled images (N, …), `per_class` images of either.

    A parameter is {"images": (2·per_class, pixels + 1), "labels": (2·per_class,)}. The family's Lipschitz constant
    comes from training instances, so these are drawn first:

    >>> rng = np.random.default_rng(0)
    >>> problem = Logistic(rng.random((30, 2, 2)), np.arange(30) % 3, per_class=5)
    >>> training = problem.sample_many(4, rng)
    >>> family = problem.family(training)
    >>> family.n, training["images"].shape
    (5, (4, 10, 5))
    """

    images: np.ndarray
    labels: np.ndarray
    per_class: int = 100
    regularization: float = 1e-4
    dtype: str = "float64"

    def __post_init__(self):
        classes, counts = np.unique(self.labels, return_counts=True)
        if len(classes) < 2 or counts.min() < self.per_class:
            found = ", ".join(f"{c}: {k}" for c, k in zip(classes, counts, strict=True))
            raise ValueError(f"need two classes or more with {self.per_class} images each, got {found}")

    def family(self, training: Mapping[str, np.ndarray], margin: float = 1.5) -> Smooth:
        """The family with L = margin · max λmax(V'V)/(4m) over the training instances + ε."""
        return Smooth(
            partial(loss, regularization=self.regularization),
            margin * float(curvatures(training).max()) + self.regularization,
            training["images"].shape[-1],
            strong_convexity=self.regularization,
            lower_bound=0.0,
            dtype=self.dtype,
        )

    def outside(self, family: Smooth, parameters: Mapping[str, np.ndarray]) -> np.ndarray:
        """A mask (N,) of the instances whose own L exceeds the family's: no guarantee holds for them."""
        return curvatures(parameters) + self.regularization > family.lipschitz

    def sample(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Two random classes (+1 and −1) and `per_class` random images of either."""
        pair = rng.choice(np.unique(self.labels), 2, replace=False)
        chosen = [rng.choice(np.flatnonzero(self.labels == c), self.per_class, replace=False) for c in pair]
        points = pixels(self.images[np.concatenate(chosen)])
        return {
            "images": np.hstack([points, np.ones((len(points), 1))]),
            "labels": np.repeat([1.0, -1.0], self.per_class),
        }

    def sample_many(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """`count` parameters, stacked on the leading axis."""
        drawn = [self.sample(rng) for _ in range(count)]
        return {name: np.stack([x[name] for x in drawn]) for name in ("images", "labels")}


def curvatures(parameters: Mapping[str, np.ndarray]) -> np.ndarray:
    """λmax(V'V)/(4m) of N stacked instances: the Lipschitz constants (N,) of their gradients without ε."""
    images = np.asarray(parameters["images"], np.float64)
    gram = images @ images.swapaxes(-1, -2)
    return np.linalg.eigvalsh(gram)[..., -1] / (4 * images.shape[-2])
