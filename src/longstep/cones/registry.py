"""The cones there are, in the order of their rows, which is SCS's: a new cone is a line here."""

from .base import Cone
from .exponential import Exponential
from .nonnegative import Nonnegative
from .power import Power
from .second_order import SecondOrder
from .semidefinite import Semidefinite
from .zero import ZeroCone

KINDS: tuple[type[Cone], ...] = (
    ZeroCone,
    Nonnegative,
    SecondOrder,
    Semidefinite,
    Exponential,
    Power,
)
