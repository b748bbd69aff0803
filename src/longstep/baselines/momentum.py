"""Nesterov's accelerated gradient descent."""

from ..algorithms.gradient import MOMENTUM, GradientDescent, GradientState, step_size
from ..schedules.domain import Hyperparameter


class Nesterov(GradientDescent):
    """y = z + β(z − z⁻), z⁺ = y − t∇f(y, x), with hyperparameters `step` = t and `momentum` = β.

    With β = 0 it is gradient descent. `longstep.baselines.classical` has the values of t and β from theory.
    """

    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:  # noqa: D102
        return step_size(family), MOMENTUM

    def step(self, family, instance, theta, factors, extra, state):  # noqa: D102
        y = state.z + theta["momentum"] * (state.z - state.z_previous)
        ahead = super().step(family, instance, theta, factors, extra, GradientState(y, y))
        return GradientState(ahead.z, state.z)
