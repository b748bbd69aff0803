"""Schedules of gradient methods: which hyperparameter is the step, which the momentum, as the algorithms say."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from ..algorithms.gradient import MOMENTUM, GradientDescent, HeavyBall
from ..schedules.schedule import Schedule


def _list_names(algorithm: type[GradientDescent | HeavyBall]) -> frozenset[str]:
    performance = algorithm.own("performance")
    assert performance is not None
    return frozenset(performance.names)


# By the class attributes: without momentum the step is all there is.
_PLAIN = _list_names(GradientDescent)
_HEAVY = _list_names(HeavyBall)
(STEP,) = _PLAIN


def is_gradient_schedule(schedule: Schedule) -> bool:
    """Tell whether a schedule is one of gradient descent, with momentum or without."""
    return frozenset(schedule.names) in (_PLAIN, _HEAVY)


def read_step(theta: Mapping[str, float]) -> tuple[float, float]:
    """Return the step and the momentum, zero where there is none, of the hyperparameters of one step."""
    return theta[STEP], theta.get(MOMENTUM.name, 0.0)


def read_steps(schedule: Schedule, count: int) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    """Return the steps and the momenta of the first `count` steps."""
    pairs = np.array([read_step(schedule[k]) for k in range(count)], np.float64).reshape(count, 2)
    return pairs[:, 0], pairs[:, 1]
