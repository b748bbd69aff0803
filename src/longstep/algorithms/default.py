"""Which algorithm solves which family, unless the user says otherwise."""

import functools

from ..families.base import Family
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.qp import QP
from ..families.smooth import Differentiable
from .base import Algorithm
from .gradient import GradientDescent
from .osqp import OSQP
from .proximal import ProximalGradient
from .scs import SCS


@functools.singledispatch
def default_algorithm(family: Family) -> Algorithm:
    """OSQP for QP, SCS for Conic, proximal gradient for Composite, gradient descent for Smooth and Quadratic."""
    raise TypeError(f"no algorithm is known for {type(family).__name__}")


default_algorithm.register(QP, lambda family: OSQP())
default_algorithm.register(Conic, lambda family: SCS())
default_algorithm.register(Composite, lambda family: ProximalGradient())
default_algorithm.register(Differentiable, lambda family: GradientDescent())
