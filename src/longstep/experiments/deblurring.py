"""Image deblurring: a blurred, noisy image and a fixed blur, by OSQP's iteration.

    minimise ½‖Bw − b‖² + λ1'w  subject to  0 ≤ w ≤ 1

w are the k² pixels, B = T ⊗ T with T the k × k Toeplitz matrix that has 1/8 where |i − j| ≤ 4, and the parameter is
the blurred image b = Bw₀ + N(0, 0.001²). As a QP, P = B'B, q = λ1 − B'b and A = I; the objective lacks the constant
½‖b‖².
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longstep import QP, Affine

from .images import pixels

REACH, STRENGTH = 4, 1 / 8


def blur(side: int) -> np.ndarray:
    """B = T ⊗ T for images of side × side pixels."""
    i = np.arange(side)
    T = np.where(np.abs(i[:, None] - i) <= REACH, STRENGTH, 0.0)
    return np.kron(T, T)


@dataclass(frozen=True, eq=False)
class Deblurring:
    """Deblurring of square images (N, side, side), uint8 or in [0, 1].

    >>> problem = Deblurring(np.random.default_rng(0).random((5, 6, 6)))
    >>> problem.family.n, problem.sample(np.random.default_rng(1)).shape
    (36, (36,))
    """

    images: np.ndarray
    weight: float = 1e-4
    noise: float = 1e-3
    equilibrate: bool = True
    dtype: str = "float64"

    def __post_init__(self):
        shape = np.shape(self.images)
        if len(shape) != 3 or shape[1] != shape[2] or shape[0] == 0:
            raise ValueError(f"images must be square, in an array (N, side, side), got shape {shape}")

    @cached_property
    def B(self) -> np.ndarray:
        """The blur (side², side²)."""
        return blur(self.images.shape[1])

    @cached_property
    def family(self) -> QP:
        """The QP over the pixels, row by row, with the blurred image as its parameter."""
        n = len(self.B)
        return QP(
            self.B.T @ self.B,
            np.eye(n),
            q=np.full(n, self.weight),
            l=np.zeros(n),
            u=np.ones(n),
            parameter=Affine(q=-self.B.T),
            equilibrate=self.equilibrate,
            dtype=self.dtype,
        )

    def observe(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One image (side, side) blurred, with noise, as a parameter (side²,)."""
        return self.B @ pixels(image[None])[0] + self.noise * rng.normal(size=len(self.B))

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """One of the images, blurred, with noise."""
        return self.observe(self.images[rng.integers(len(self.images))], rng)
