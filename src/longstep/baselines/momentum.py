"""Nesterov's accelerated gradient descent."""

from ..algorithms.gradient import Extrapolated, GradientDescent


class Nesterov(Extrapolated, GradientDescent):
    """y = z + β(z − z⁻), z⁺ = y − t∇f(y, x), with hyperparameters `step` = t and `momentum` = β.

    With β = 0 it is gradient descent. `longstep.baselines.classical` has the values of t and β from theory.
    """
