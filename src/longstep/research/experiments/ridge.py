"""Ridge regression: least squares with a fixed matrix and new right-hand sides, by gradient descent.

    minimise ½‖Az − b‖² + λ‖z‖²

A is m × n with entries N(0, 1/m) and columns of norm one; the parameter is b ~ N(0, I). As a Quadratic, P = A'A + 2λI
and q = −A'b. That objective lacks the constant ½‖b‖², so zero is no lower bound of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from typing_extensions import override

from longstep import Affine, Gaussian, HeavyBall, Quadratic, Schedule, Training

from ..baselines import classical
from ..baselines.conjugate_gradient import conjugate_gradients
from . import methods
from .experiment import Experiment
from .methods import Entry
from .sizes import Size


def make_normalized_matrix(m: int, n: int, seed: int) -> np.ndarray:
    """Return a Gaussian matrix (m, n) with columns of norm one."""
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
        return make_normalized_matrix(self.m, self.n, self.seed)

    @cached_property
    def family(self) -> Quadratic:
        """½z'(A'A + 2λI)z − (A'b)'z with b as its parameter."""
        P = self.A.T @ self.A + 2 * self.weight * np.eye(self.n)
        return Quadratic(P, parameter=Affine(q=-self.A.T), dtype=self.dtype)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return a right-hand side b (m,)."""
        return rng.normal(size=self.m)


_SMALL = Size(few=100, slow=100, timed=0, hidden=(30, 30), l2ws=150, lm=30)


class RidgeExperiment(Experiment[Quadratic]):
    """Everything is exact here: schedules come from the known Gaussian of b, in closed form, without an instance."""

    name = "ridge"
    title = "Ridge regression, gradient descent"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL, problem={"m": 30, "n": 50}, validation=600, test=100, steps=120, certified=(10, 20, 30), horizon=30
        ),
        # The research code's P is A'A + 0.01·I.
        "reference": Size({"weight": 0.005}, validation=600, test=200, steps=400, certified=(10, 20, 30, 40, 50)),
        "paper": Size(steps=200, networks=(10, 1000), l2ws=500, lm=100),
    }

    @cached_property
    def problem(self) -> Ridge:
        """The problem at this size."""
        return Ridge(**self.size.problem, seed=self.options.seed)

    @cached_property
    def gaussian(self) -> Gaussian:
        """b ~ N(0, I)."""
        return Gaussian(np.zeros(self.problem.m), np.eye(self.problem.m))

    @override
    def train_main(self) -> Training:
        """Train with momentum, for the suboptimality: after every step no schedule fixed beforehand is better."""
        return self.learn("momentum", self.gaussian, algorithm=HeavyBall(), loss="metric")

    def train_blocks(self, count: int) -> Training:
        """Train steps alone, in blocks of `B` steps, for the distance, as published."""
        return self.learn(f"block-{count}", self.gaussian, block=count, loss="distance")

    @override
    def train_drawn(self) -> Training:
        """Return the training without momentum, whose steps stand beside the silver steps."""
        return self.train_blocks(10)

    @override
    def list_others(self) -> dict[str, Schedule]:
        silver = classical.silver_steps_strongly_convex(self.family)
        return {"silver": silver.schedule_for(2 * self.size.horizon)}

    @override
    def list_entries(self) -> list[Entry]:
        family = self.family
        found = [methods.make_learned("learned", "learned with momentum, exact", family, self.train_main)]
        found += [
            methods.make_learned(f"learned-{B}", f"learned, B = {B}, exact", family, partial(self.train_blocks, B))
            for B in (10, 3, 2, 1)
        ]
        found += [
            methods.make_theoretical("cg", lambda: conjugate_gradients(family), "conjugate gradients"),
            methods.make_vanilla(family, "vanilla, 2/(μ+L)"),
            methods.make_best_constant(family, self.train_blocks(10)),
            methods.make_theoretical("nesterov", lambda: classical.nesterov_strongly_convex(family), "Nesterov"),
            methods.make_theoretical("silver", lambda: classical.silver_steps_strongly_convex(family), "silver steps"),
            methods.make_theoretical("chebyshev", lambda: classical.chebyshev_steps(family), "Chebyshev steps, B = 10"),
        ]
        return found + self.list_networks(self.train_blocks(10))
