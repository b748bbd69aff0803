"""The lasso: sparse least squares with a fixed matrix and new measurements, by proximal gradient.

    minimise ½‖Az − b‖² + λ‖z‖₁

A is m × n with entries N(0, 1/m) and columns of norm one. The parameter is b = Az₀ + noise, where nine entries in ten
of z₀ are zero and the others N(0, 1), and the noise lies 40 dB under Az₀. The smooth part is the Quadratic with
P = A'A and q = −A'b; it lacks the constant ½‖b‖², so zero is no lower bound of the objective.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from longstep import L1, AcceleratedProximalGradient, Affine, Composite, Quadratic, Training, solve_references

from ..baselines import classical
from ..families.reference import Optima
from . import methods
from .experiment import Experiment, Size
from .methods import Entry
from .ridge import normalized_matrix


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
        return normalized_matrix(self.m, self.n, self.seed)

    @cached_property
    def family(self) -> Composite:
        """½z'A'Az − (A'b)'z + λ‖z‖₁ with b as its parameter."""
        smooth = Quadratic(self.A.T @ self.A, parameter=Affine(q=-self.A.T), dtype=self.dtype)
        return Composite(smooth, L1(self.weight))

    def signal(self, rng: np.random.Generator) -> np.ndarray:
        """A sparse z₀ (n,)."""
        z = np.zeros(self.n)
        support = rng.choice(self.n, round(self.density * self.n), replace=False)
        z[support] = rng.normal(size=support.size)
        return z

    def measure(self, signal: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """b = Az₀ + noise (m,), the noise's expected energy `decibels` below that of Az₀."""
        clean = self.A @ signal
        deviation = np.linalg.norm(clean) / np.sqrt(self.m) * 10 ** (-self.decibels / 20)
        return clean + deviation * rng.normal(size=self.m)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """The measurements b (m,) of a new signal."""
        return self.measure(self.signal(rng), rng)


# Instances at a time, steps of FISTA before the first system of active coordinates, and systems at most.
_WIDE, _APPROACH, _ROUNDS = 64, 150, 20


def optima(family: Composite, parameters: np.ndarray, accuracy: float = 1e-10) -> Optima:
    """The optima of N instances: FISTA, then Newton's method on the coordinates that the soft threshold lets through.

    With v = z − t(Pz + q) the active coordinates are S = {|v| > tλ}, and the next point has P_SS z_S = −q_S −
    λ sign v_S and zeros elsewhere. What does not settle within a few rounds goes to the library's reference solver.
    """
    approach = classical.fista(family).solver(_APPROACH)
    parts = [parameters[i : i + _WIDE] for i in range(0, len(parameters), _WIDE)]
    points = [_settled(family, part, approach.solve_batch(part, steps=_APPROACH).x, accuracy) for part in parts]
    x, value, error = (np.concatenate(column) for column in zip(*points, strict=True))
    left = np.flatnonzero(~(error <= accuracy))
    if left.size:
        slow = solve_references(family, parameters[left], cache=False, progress=False)
        x[left], value[left], error[left] = slow.x, slow.value, slow.error
    return Optima(x, None, None, value, error)


def _settled(family: Composite, parameters: np.ndarray, X: np.ndarray, accuracy: float) -> tuple[np.ndarray, ...]:
    """Points, values and relative errors, as the library's reference solver measures them."""
    smooth = family.smooth
    assert isinstance(smooth, Quadratic)
    assert isinstance(family.g, L1)
    P, Q = smooth.P.toarray(), smooth.data(parameters)["q"]
    t, weight = 1 / family.lipschitz, float(np.asarray(family.g.weight))
    scale = 1 + np.max(np.abs(Q), axis=1)
    best, least, X = X.copy(), np.full(len(X), np.inf), X.copy()
    for _ in range(_ROUNDS):
        V = X - t * (X @ P + Q)
        fixed = np.sign(V) * np.maximum(np.abs(V) - t * weight, 0)
        error = np.max(np.abs(X - fixed), axis=1) / (t * scale)
        better = error < least
        best[better], least[better] = X[better], error[better]
        if np.all(least <= accuracy):
            break
        for i in np.flatnonzero(least > accuracy):
            active = np.flatnonzero(fixed[i])
            X[i] = 0.0
            X[i, active] = _solved(P[np.ix_(active, active)], -Q[i, active] - weight * np.sign(V[i, active]))
    value = np.sum(best * (best @ P / 2 + Q), axis=1) + weight * np.sum(np.abs(best), axis=1)
    return best, value, least


def _solved(H: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """H⁻¹ rhs; by least squares where more coordinates are active than there are measurements."""
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(H), rhs)
    except np.linalg.LinAlgError:
        return scipy.linalg.lstsq(H, rhs)[0]


_SMALL: dict[str, Any] = {"few": 100, "slow": 100, "timed": 0, "hidden": (30, 30), "l2ws": 150, "lm": 30}


class Reproduction(Experiment):
    """Learned from ten instances, with and without momentum."""

    name, title = "lasso", "Lasso, proximal gradient"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": Size(
            {"m": 20, "n": 40}, validation=600, test=100, steps=100, certified=(10, 20, 30), horizon=30, **_SMALL
        ),
        "reference": Size({"m": 64, "n": 128}, steps=300, neighbours=1000, networks=(10, 1000)),
        "paper": Size(steps=150, few=200, slow=50, timed=50, l2ws=300, lm=100),
    }

    @cached_property
    def problem(self) -> Lasso:
        """The problem at this size."""
        return Lasso(**self.size.problem, seed=self.options.seed)

    @property
    def family(self) -> Composite:  # noqa: D102
        return self.problem.family

    def optima(self, parameters: np.ndarray) -> Optima:  # noqa: D102
        return optima(self.family, parameters)

    def main(self) -> Training:  # noqa: D102
        return self.learn("steps")

    def accelerated(self) -> Training:
        """With momentum: the step from an extrapolated point, both learned."""
        return self.learn("momentum", algorithm=AcceleratedProximalGradient())

    def entries(self) -> list[Entry]:  # noqa: D102
        family, constant = self.family, self.main()
        return [
            methods.learned("learned", f"learned, N = {self.size.train}", family, self.main),
            methods.learned(
                "learned-momentum",
                f"learned with momentum, N = {self.size.train}",
                family,
                self.accelerated,
                instances=self.size.few,
            ),
            methods.best_constant(family, constant, instances=self.size.few),
            methods.held("vanilla", "vanilla, 1/L", family, {"step": 1 / family.lipschitz}, instances=self.size.few),
            methods.scheduled("fista", lambda: classical.fista(family), "FISTA", instances=self.size.few),
            *self.networks(constant),
        ]
