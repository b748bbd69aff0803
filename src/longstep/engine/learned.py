"""What a solver takes from training."""

from typing import Any, Protocol, runtime_checkable

from ..algorithms.base import Algorithm
from ..families.parameter_range import Seen
from ..schedules.schedule import Schedule
from .start import LearnedStart


@runtime_checkable
class Learned(Protocol):
    """What a solver takes from training, such as what `train` returns."""

    @property
    def schedule(self) -> Schedule:
        """The schedule to use."""
        ...

    @property
    def algorithm(self) -> Algorithm:
        """Whose hyperparameters are learned."""
        ...

    @property
    def record(self) -> dict[str, Any]:
        """How it was learned, as plain JSON."""
        ...

    @property
    def seen(self) -> Seen | None:
        """The range of the parameters that it was learned from."""
        ...

    @property
    def start(self) -> LearnedStart | None:
        """Where solves begin; None is zero."""
        ...
