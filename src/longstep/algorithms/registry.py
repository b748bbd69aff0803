"""The algorithms that longstep has, by name, and which of them solves a family unless the user says otherwise."""

from ..families.base import Family
from .base import Algorithm
from .condensed import Condensed
from .douglas_rachford import DouglasRachford
from .gradient import GradientDescent, HeavyBall
from .osqp import OSQP
from .pdhg import PDHG
from .proximal import AcceleratedProximalGradient, ProximalGradient
from .quasi_newton import QuasiNewton
from .scs import SCS

# Of the algorithms for a kind of family, the first is its default.
REGISTERED: tuple[type[Algorithm], ...] = (
    OSQP,
    Condensed,
    PDHG,
    SCS,
    ProximalGradient,
    AcceleratedProximalGradient,
    DouglasRachford,
    GradientDescent,
    HeavyBall,
    QuasiNewton,
)
BY_NAME: dict[str, type[Algorithm]] = {algorithm.__name__: algorithm for algorithm in REGISTERED}


def default_algorithm(family: Family) -> Algorithm:
    """Return OSQP for QP, SCS for Conic, proximal gradient for Composite, gradient descent for Smooth and Quadratic."""
    for algorithm in REGISTERED:
        if isinstance(family, algorithm.family_type):
            return algorithm()
    raise TypeError(f"no algorithm is known for {type(family).__name__}")


def list_tried(family: Family, exact: bool, large: bool) -> list[Algorithm]:
    """Return the algorithms that `learn` trains on a family, which has an exact finish or not, and takes long to learn
    on or not: that of the smaller step first."""
    solving = [kind for kind in REGISTERED if isinstance(family, kind.family_type)]
    tried = [kind for kind in solving if kind.is_tried(family, exact, large)]
    return [kind() for kind in sorted(tried, key=lambda kind: not kind.tried_first)]
