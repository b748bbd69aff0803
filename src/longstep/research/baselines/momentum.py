"""Nesterov's accelerated gradient descent."""

from typing import ClassVar

from ...algorithms.gradient import Extrapolated, GradientDescent


class Nesterov(Extrapolated, GradientDescent):
    """y = z + β(z − z⁻), z⁺ = y − t∇f(y, x), with hyperparameters `step` = t and `momentum` = β.

    With β = 0, as in the steady state, it is gradient descent. `longstep.research.baselines.classical` has the values
    of t and β from theory.
    """

    theorem: ClassVar[str | None] = GradientDescent.theorem
