"""The lasso: sparse least squares with a fixed matrix and new measurements, by proximal gradient.

    minimise ½‖Az − b‖² + λ‖z‖₁

A is m × n with entries N(0, 1/m) and columns of norm one. The parameter is b = Az₀ + noise, where nine entries in ten
of z₀ are zero and the others N(0, 1), and the noise lies 40 dB under Az₀. The smooth part is the Quadratic with
P = A'A and q = −A'b; it lacks the constant ½‖b‖², so zero is no lower bound of the objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from typing_extensions import override

from longstep import L1, AcceleratedProximalGradient, Affine, Composite, Quadratic, Training

from ..baselines import classical
from . import methods
from .experiment import Experiment
from .methods import Entry
from .ridge import make_normalized_matrix
from .sizes import Size


@dataclass(frozen=True)
class Lasso:
    """The lasso with A from `seed`.

    >>> problem = Lasso(m=6, n=10)
    >>> problem.family.n, problem.sample(np.random.default_rng(0)).shape
    (10, (6,))
    """

    m: int = 1000
    n: int = 2000
    weight: float = 0.1
    density: float = 0.1
    decibels: float = 40.0
    seed: int = 0
    dtype: str = "float64"

    @cached_property
    def A(self) -> np.ndarray:
        """The matrix (m, n)."""
        return make_normalized_matrix(self.m, self.n, self.seed)

    @cached_property
    def family(self) -> Composite:
        """½z'A'Az − (A'b)'z + λ‖z‖₁ with b as its parameter."""
        smooth = Quadratic(self.A.T @ self.A, parameter=Affine(q=-self.A.T), dtype=self.dtype)
        return Composite(smooth, L1(self.weight))

    def draw_signal(self, rng: np.random.Generator) -> np.ndarray:
        """Return a sparse z₀ (n,)."""
        z = np.zeros(self.n)
        support = rng.choice(self.n, round(self.density * self.n), replace=False)
        z[support] = rng.normal(size=support.size)
        return z

    def measure(self, signal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return b = Az₀ + noise (m,), the noise's expected energy `decibels` below that of Az₀."""
        clean = self.A @ signal
        deviation = np.linalg.norm(clean) / np.sqrt(self.m) * 10 ** (-self.decibels / 20)
        return clean + deviation * rng.normal(size=self.m)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the measurements b (m,) of a new signal."""
        return self.measure(self.draw_signal(rng), rng)


_SMALL = Size(few=100, slow=100, timed=0, hidden=(30, 30), l2ws=150, lm=30)


class LassoExperiment(Experiment[Composite]):
    """Learned from ten instances, with and without momentum."""

    name = "lasso"
    title = "Lasso, proximal gradient"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL, problem={"m": 20, "n": 40}, validation=600, test=100, steps=100, certified=(10, 20, 30), horizon=30
        ),
        "reference": Size({"m": 64, "n": 128}, steps=300, neighbours=1000, networks=(10, 1000)),
        "paper": Size(steps=150, few=200, slow=50, timed=50, l2ws=300, lm=100),
    }

    @cached_property
    def problem(self) -> Lasso:
        """The problem at this size."""
        return Lasso(**self.size.problem, seed=self.options.seed)

    @override
    def train_main(self) -> Training:
        return self.learn("steps")

    def train_accelerated(self) -> Training:
        """Train with momentum: the step from an extrapolated point, both learned."""
        return self.learn("momentum", algorithm=AcceleratedProximalGradient())

    @override
    def list_entries(self) -> list[Entry]:
        family = self.family
        constant = self.train_main()
        return [
            methods.make_learned("learned", f"learned, N = {self.size.train}", family, self.train_main),
            methods.make_learned(
                "learned-momentum",
                f"learned with momentum, N = {self.size.train}",
                family,
                self.train_accelerated,
                instances=self.size.few,
            ),
            methods.make_best_constant(family, constant, instances=self.size.few),
            methods.make_fixed(
                "vanilla", "vanilla, 1/L", family, {"step": 1 / family.lipschitz}, instances=self.size.few
            ),
            methods.make_theoretical("fista", lambda: classical.fista(family), "FISTA", instances=self.size.few),
            *self.list_networks(constant),
        ]
