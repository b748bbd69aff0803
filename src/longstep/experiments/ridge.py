"""Ridge regression: least squares with a fixed matrix and new right-hand sides, by gradient descent.

    minimise ½‖Az − b‖² + λ‖z‖²

A is m × n with entries N(0, 1/m) and columns of norm one; the parameter is b ~ N(0, I). As a Quadratic, P = A'A + 2λI
and q = −A'b. That objective lacks the constant ½‖b‖², so zero is no lower bound of it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from longstep import Affine, Quadratic


def normalized_matrix(m: int, n: int, seed: int) -> np.ndarray:
    """A Gaussian matrix (m, n) with columns of norm one."""
    A = np.random.default_rng(seed).normal(size=(m, n)) / np.sqrt(m)
    return A / np.linalg.norm(A, axis=0)


@dataclass(frozen=True)
class Ridge:
    """Ridge regression with A from `seed`.

    >>> problem = Ridge(m=6, n=8)
    >>> problem.family.n, problem.sample(np.random.default_rng(0)).shape
    (8, (6,))
    """

    m: int = 500
    n: int = 1000
    weight: float = 0.01
    seed: int = 0
    dtype: str = "float64"

    @cached_property
    def A(self) -> np.ndarray:
        """The matrix (m, n)."""
        return normalized_matrix(self.m, self.n, self.seed)

    @cached_property
    def family(self) -> Quadratic:
        """½z'(A'A + 2λI)z − (A'b)'z with b as its parameter."""
        P = self.A.T @ self.A + 2 * self.weight * np.eye(self.n)
        return Quadratic(P, parameter=Affine(q=-self.A.T), dtype=self.dtype)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """A right-hand side b (m,)."""
        return rng.normal(size=self.m)
