"""What every part of training needs: the compiled steps, where instances begin, and how unknowns are learned."""

from collections.abc import Callable

import jax
import numpy as np

from ..algorithms.base import State
from ..families.point import Point
from ..schedules.hyperparameter import Hyperparameter
from .losses import Errors, Task
from .optimize import Minimum, Objective, minimise
from .program import Program
from .settings import Settings, Values
from .unknowns import Part, Unknowns

ReportLoss = Callable[[float], None]


class Learner:
    """A task with its settings; programs are compiled once for every number of steps.

    A resumed training runs the same programs on the same numbers, so it goes on exactly as it would have.
    """

    def __init__(
        self, task: Task, start: Point | None, optimum: Point | None, settings: Settings, memory_limit: float | None
    ):
        self.task = task
        self.settings = settings
        self.recipe = settings.recipe
        self.begin = start
        self.memory_limit = memory_limit
        self.hyperparameters = task.algorithm.hyperparameters(task.family)
        self.names = [h.name for h in self.hyperparameters]
        self.factored = {h.name for h in self.hyperparameters if h.factored}
        # With one factorization for all steps, what it depends on stays at the best constant.
        held = self.factored if settings.factorizations == 1 else set()
        self.learned = [name for name in settings.learn if name not in held]
        self.declared = task.algorithm.metric(task.family)
        self.metric: np.ndarray | None = None
        self.memory_pieces = 1
        self.optimum = optimum
        self._programs: dict[int, Program] = {}

    def program(self, count: int) -> Program:
        """Return the compiled steps of a block of this length."""
        if count not in self._programs:
            program = Program(self.task, self.settings.loss, count, self.recipe, self.memory_limit)
            program.vectors = self.rows(self.metric)
            self._programs[count] = program
            self.memory_pieces = max(self.memory_pieces, len(program.pieces()))
        return self._programs[count]

    @property
    def has_metric(self) -> bool:
        """Whether there is a metric to learn: a vector of more than one entry, which leaves factors as cheap as they
        are; where all penalties share eigenvectors a metric would end that."""
        if self.declared is None or self.declared.entries is None or np.unique(self.declared.entries).size == 1:
            return False
        pattern = self.task.algorithm.pattern(self.task.family)
        return pattern is None or not pattern.spectral

    def vectors(self, metric: np.ndarray | None) -> Values:
        """Return a metric by the name that the algorithm declares for it; nothing for None."""
        return self.task.algorithm.vectors(self.task.family, metric)

    def rows(self, metric: np.ndarray | None) -> Values:
        """Return a metric by its name; where one is looked for, ones stand for none, so that one compiled program
        serves all."""
        if metric is None and self.settings.metric and self.has_metric:
            assert self.declared is not None
            assert self.declared.entries is not None
            metric = np.ones(self.declared.entries.size)
        return self.vectors(metric)

    def use_metric(self, theta: Values) -> None:
        """Take all further steps with the metric of θ, or without where it has none."""
        self.metric = None if self.declared is None else theta.get(self.declared.name)
        for program in self._programs.values():
            program.vectors = self.rows(self.metric)

    @property
    def usual(self) -> Program:
        """The steps over which constants and the steady state are looked at."""
        return self.program(self.settings.block)

    def start(self) -> State:
        """Return the states at the start."""
        return self.usual.start(self.begin)

    def floor(self) -> float:
        """Return the mean log error at which rounding is all that is left to learn."""
        return self.usual.floor(self.start())

    def depth(self) -> float:
        """Return the log error below which constants, metrics and what is kept are judged no further."""
        return self.usual.floor(self.start(), self.recipe.judged_depth)

    def choose_few(self) -> np.ndarray:
        """Return the instances on which constants are compared."""
        return self.spread_instances(self.recipe.searched)

    def spread_instances(self, most: int) -> np.ndarray:
        """Return at most `most` instances, spread over all of them, which may be in the order of time."""
        size = self.usual.size
        return np.linspace(0, size - 1, min(size, most)).astype(int)

    def parts(self, make: Callable[[Hyperparameter], Part]) -> list[Part]:
        """Return the unknowns of every hyperparameter that is learned."""
        return [make(h) for h in self.hyperparameters if h.name in self.learned]

    def advance(self, theta: Values, states: State) -> tuple[State, Errors]:
        """Return the states and errors after steps with θ given step by step; with the learner's metric, unless θ has
        one."""
        length = len(theta[self.names[0]])
        slots = np.arange(length)
        used = length
        if all(len(set(theta[name])) == 1 for name in self.factored):
            slots = np.zeros(length, int)
            used = 1
        return self.program(length).forward(theta, slots, used, states)

    def stress(self, states: State) -> State:
        """Return where the stress test starts: every other instance where all of them began, as if nothing had worked
        so far, the rest at the optimum of another instance or, if that is not known, at its state."""
        program = self.usual
        source = states if self.optimum is None else self.optimum
        other = jax.tree.map(lambda a: np.roll(a, 1, axis=-1) if np.ndim(a) else a, source)
        other = other if self.optimum is None else program.start(other)
        odd = np.arange(program.size) % 2 == 1
        return jax.tree.map(lambda a, b: np.where(odd, a, b) if np.ndim(a) else a, self.start(), other)

    def minimise(
        self, objective: Objective, x: np.ndarray, bounds: tuple, iterations: int, report: ReportLoss
    ) -> Minimum:
        """Return the best point within bounds that the optimiser finds from x."""
        x = np.clip(x, *bounds)
        return minimise(objective, x, bounds, self.settings.optimizer, iterations, self.recipe, report)


def make_objective(program: Program, unknowns: Unknowns, slots: np.ndarray, used: int, staged: list) -> Objective:
    """Return the loss of a program and its gradient as functions of the unknowns."""
    # The best of several trials is gone on from: its last point is asked for again.
    known: dict[bytes, tuple[float, np.ndarray]] = {}

    def objective(nu: np.ndarray) -> tuple[float, np.ndarray]:
        key = nu.tobytes()
        if key not in known:
            theta, slope = unknowns.theta(nu)
            value, gradient = program.loss_and_gradient(theta, slots, used, staged)
            known[key] = value, unknowns.pull(gradient, slope)
        return known[key]

    return objective
