"""SciPy's L-BFGS-B as a method: the quasi-Newton method that everyone has, with its line search."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float, PyTree

from ..._util.hashing import content_hash
from ...algorithms.registry import default_algorithm
from ...engine.history import History
from ...engine.measure import Measure
from ...families.point import Point
from ...families.smooth import Differentiable

# The value and the gradient of one instance at one point.
Oracle = Callable[[PyTree, np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class LBFGSB:
    """SciPy's L-BFGS-B from zero, with `memory` pairs. Iterate k is the best point of its first k + 1 evaluations.

    One evaluation is a value and a gradient, as a step of ours takes; its first is at the start, which is iterate 0.
    Where its line search gives up, the best point stands.

    >>> from longstep import Quadratic
    >>> history = LBFGSB(Quadratic(np.diag([1.0, 2.0, 10.0]))).run({"q": np.ones((1, 3))}, 20)
    >>> bool(history.dual[0, 20] < 1e-5)
    True
    """

    family: Differentiable
    memory: int = 10

    @property
    def name(self) -> str:
        """What tables call it."""
        return "L-BFGS-B of SciPy"

    def run(self, parameters: PyTree, count: int) -> History:
        """Return residuals and objectives (N, count + 1) of the start and after each of `count` evaluations."""
        if count < 0:
            raise ValueError(f"the number of evaluations must not be negative, got {count}")
        followed = [self._follow(instance, count) for instance in self._list_instances(parameters)]
        # On the host, where a point is said to lie on the device.
        columns: list[Any] = [np.stack(column, axis=-1) for column in zip(*followed, strict=True)]
        points = [Point(column) for column in columns]
        return Measure(default_algorithm(self.family), self.family)(parameters, points)

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return the seconds (N,) of `count` evaluations of each instance, one by one, compiling left out."""
        instances = self._list_instances(parameters)
        self._follow(instances[0], 1)
        found = []
        for instance in instances:
            begin = perf_counter()
            self._follow(instance, count)
            found.append(perf_counter() - begin)
        return np.array(found)

    def content_hash(self) -> str:
        """Return a SHA-256 of the family, the memory and SciPy's version."""
        return content_hash("L-BFGS-B", version("scipy"), self.memory, self.family.content_hash())

    def _list_instances(self, parameters: PyTree) -> list[PyTree]:
        instances = self.family.instances(parameters)
        return [self.family.take(instances, i) for i in range(self.family.count(parameters))]

    @cached_property
    def _evaluate(self) -> Oracle:
        family = self.family

        @jax.jit
        def evaluate(instance: PyTree, z: Float[Array, " n"]):
            return family.objective(instance, z), family.gradient(instance, z)

        def oracle(instance: PyTree, z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = evaluate(instance, jnp.asarray(z, family.dtype))
            return float(value), np.asarray(gradient, np.float64)

        return oracle

    def _follow(self, instance: PyTree, count: int) -> list[np.ndarray]:
        """Return the best points of 1, 2, …, count + 1 evaluations."""
        best: list[np.ndarray] = []
        least = np.inf

        def evaluate(z: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal least
            value, gradient = self._evaluate(instance, z)
            if value < least or not best:
                best.append(z.copy())
            else:
                best.append(best[-1])
            least = min(least, value)
            return value, gradient

        options = {"maxcor": self.memory, "maxfun": count + 1, "maxiter": count + 1, "ftol": 0.0, "gtol": 0.0}
        scipy.optimize.minimize(evaluate, np.zeros(self.family.n), jac=True, method="L-BFGS-B", options=options)
        return (best + [best[-1]] * count)[: count + 1]
