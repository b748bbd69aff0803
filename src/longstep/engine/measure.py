"""How good given points are, measured in float64 on the user's own data, whatever they were computed in."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms.base import Algorithm
from ..algorithms.residuals import Residuals
from ..families.base import Encoded, Family
from ..families.point import Point
from ..families.reading import Parameters
from .history import History
from .jitted import Key, flatten


class Measure:
    """Residuals and objectives of points of a family, by the definitions of an algorithm. Nothing is factored."""

    def __init__(self, algorithm: Algorithm, family: Family):
        # The switch is local to this thread; the process-wide one is the user's.
        with jax.enable_x64(True):
            self.family = family.widen()
            self._key, self._leaves = flatten((algorithm, self.family))

    def __call__(self, parameters: Parameters, points: list[Point], safeguarded: np.ndarray | None = None) -> History:
        """Return residuals (N, columns) of several `points` for each of N parameters; they have instances on the last
        axis."""
        with jax.enable_x64(True):
            encoded = self.family.encode(self.family.vectors(parameters))
            found = [_measure_residuals(self._key, self._leaves, encoded, _widen(point)) for point in points]
            columns = jax.tree.map(lambda *each: np.stack([np.asarray(one) for one in each], axis=1), *found)
        if safeguarded is None:
            safeguarded = np.zeros(self.family.count(parameters), bool)
        return History(**vars(columns), safeguarded=safeguarded)


@functools.partial(jax.jit, static_argnums=0)
def _measure_residuals(key: Key[tuple[Algorithm, Family]], leaves: tuple, encoded: Encoded, point: Point) -> Residuals:
    algorithm, family = key.unflatten(leaves)
    instance = family.decode(encoded)
    return algorithm.measure_point(family, instance, point)


def _widen(point: Point) -> Point:
    return point.map(lambda a: jnp.asarray(a, jnp.float64))
