"""How good given points are, measured in float64 on the user's own data, whatever they were computed in."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..algorithms.base import Algorithm
from ..families.base import Family
from ..families.point import Point
from .jitted import Key, flatten
from .solution import History


class Measure:
    """Residuals and objectives of points of a family, by the definitions of an algorithm. Nothing is factored."""

    def __init__(self, algorithm: Algorithm, family: Family):
        # The switch is local to this thread; the process-wide one is the user's.
        with jax.enable_x64(True):
            self.family = family.widened()
            self._key, self._leaves = flatten((algorithm, self.family))

    def __call__(self, parameters: Any, points: list[Point], safeguarded: np.ndarray | None = None) -> History:
        """Residuals (N, columns) of so many points for each of N parameters; points have instances on the last axis."""
        with jax.enable_x64(True):
            encoded = self.family.encode(self.family.vectors(parameters))
            found = [_residuals(self._key, self._leaves, encoded, _wide(point)) for point in points]
            names = vars(found[0])
            columns: dict[str, Any] = {n: np.stack([np.asarray(getattr(r, n)) for r in found], axis=1) for n in names}
        acted = np.zeros(self.family.count(parameters), bool) if safeguarded is None else safeguarded
        return History(**columns, safeguarded=acted)


@functools.partial(jax.jit, static_argnums=0)
def _residuals(key: Key, leaves: tuple, encoded: Any, point: Point) -> Any:
    algorithm, family = jax.tree.unflatten(key.structure, leaves)
    instance = family.decode(encoded)
    return algorithm.measure_point(family, instance, point)


def _wide(point: Point) -> Point:
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), point)
