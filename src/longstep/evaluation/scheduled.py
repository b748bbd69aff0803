"""Methods with a schedule that needs no training, or one number of it: the defaults and the best constant."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import PyTree

from .._util.hashing import content_hash
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..engine.history import History
from ..families.base import Family
from ..schedules.schedule import Schedule, constant
from ..solver import Solver
from ..training.record import Training

# The steps of a method from theory that tell it from all others.
_HASHED = 1024


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A `Method` that makes its schedule as long as the run: `schedule_for(count)` has the first `count` steps.

    A learned schedule ends in a steady state without momentum; a method from theory goes on as it began. So that
    iterate k is the same in every run, a longer schedule must begin with the shorter ones. There is no safeguard.
    """

    name: str
    family: Family
    algorithm: Algorithm
    schedule_for: Callable[[int], Schedule]
    _solvers: dict[Schedule, Solver] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        self.algorithm.check_family(self.family)

    def solver(self, count: int) -> Solver:
        """Return the solver that runs the first `count` steps."""
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        schedule = self.schedule_for(count)
        if schedule not in self._solvers:
            self._solvers[schedule] = Solver(
                self.family, schedule, algorithm=self.algorithm, safeguard=None, ladder=False
            )
        return self._solvers[schedule]

    def run(self, parameters: PyTree, count: int) -> History:
        """Return residuals and objectives of all iterates, arrays (N, count + 1)."""
        return self.solver(count).run(parameters, count)

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return wall-clock seconds (N,) of `count` steps in one batch, an equal share for each instance."""
        return self.solver(count).seconds(parameters, count)

    def content_hash(self) -> str:
        """Return a SHA-256 of the family, the algorithm and 1024 steps, after which such methods do not part."""
        steps = self.schedule_for(_HASHED).to_json()
        return content_hash("scheduled", self.family.content_hash(), *self.algorithm.identity(), steps)


def vanilla(family: Family) -> Scheduled:
    """Return the default algorithm with its default hyperparameters, those of the C packages for OSQP and SCS."""
    algorithm = default_algorithm(family)
    return hold_schedule("vanilla", family, algorithm, constant(algorithm.hyperparameters(family)))


def best_constant(family: Family, training: Training) -> Scheduled:
    """Return the method of the constant hyperparameters that `train` found, which every learned schedule must beat."""
    return hold_schedule("best constant", family, training.algorithm, training.constant)


def hold_schedule(name: str, family: Family, algorithm: Algorithm, schedule: Schedule) -> Scheduled:
    """Return a method with the same schedule for every number of steps."""
    return Scheduled(name, family, algorithm, lambda count: schedule)
