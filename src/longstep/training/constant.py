"""The best constant hyperparameters: where learning starts, and what it must beat."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from ..algorithms.base import State
from ..schedules.domain import Interval, Positive
from ..schedules.hyperparameter import Hyperparameter
from .learner import Learner, ReportLoss
from .program import Program, take_columns
from .recipe import Recipe
from .settings import LearnedPart, list_searched


def search_constant(learner: Learner, report: ReportLoss) -> LearnedPart:
    """Search for the best constant, over at least as many steps as the schedule has."""
    s = learner.settings
    begin = perf_counter()
    few = learner.choose_few()
    program = learner.usual.select_instances(few)
    blocks = max(-(-s.horizon // s.block) + 1, -(-learner.recipe.settled // s.block))
    search = Search(
        program,
        program.start(take_columns(learner.begin, few)),
        blocks,
        learner.hyperparameters,
        s.fixed,
        learner.depth(),
    )
    found = search.run(s.candidates, s.seed, report)
    theta = {name: np.array([value]) for name, value in found.theta.items()}
    return LearnedPart("constant", theta, found.score, found.default_score, s.candidates, perf_counter() - begin)


@dataclass(frozen=True)
class Best:
    """The constant θ with the least score, its score, and that of the defaults."""

    theta: dict[str, float]
    score: float
    default_score: float


class Search:
    """A random search for the constant θ with the least score: the mean of the level of log errors over block ends.

    Points are unconstrained coordinates of the hyperparameters that are not `fixed`. First come the defaults and some
    points around them, then others ever closer around the best ones so far.
    """

    def __init__(
        self,
        program: Program,
        start: State,
        blocks: int,
        hyperparameters: tuple[Hyperparameter, ...],
        fixed: Mapping[str, float],
        depth: float = -np.inf,
    ):
        self.program = program
        self.recipe = program.recipe
        self.begun = start
        self.blocks = blocks
        self.depth = depth
        self.free = list_searched(hyperparameters, fixed)
        self.held = {h.name: fixed.get(h.name, h.default) for h in hyperparameters}
        self.least = np.array([_find_ends(h)[0] for h in self.free])
        self.most = np.array([_find_ends(h)[1] for h in self.free])
        self.spread = np.array([_find_spread(h, self.recipe) for h in self.free])
        self.leader: list[float] = []
        self.points: list[np.ndarray] = []
        self.scores: list[float] = []

    def run(self, candidates: int, seed: int, report: ReportLoss) -> Best:
        """Return the best of the `candidates`, of which the defaults are one."""
        recipe = self.recipe
        rng = np.random.default_rng([seed, *b"constant"])
        defaults = np.array([float(h.steady.unconstrain(np.asarray(h.default, np.float64))) for h in self.free])
        self._try(defaults)
        report(self.scores[0])
        if self.free:
            drawn = int(candidates * recipe.drawn)
            for k in range(1, candidates):
                noise = self.spread * rng.normal(size=defaults.shape)
                if k <= drawn:
                    self._try(defaults + noise)
                else:
                    progress = (k - drawn) / (candidates - drawn)
                    elite = np.argsort(self.scores)[: recipe.elite]
                    near = self.points[elite[rng.integers(len(elite))]]
                    self._try(near + recipe.closer * recipe.closest**progress * noise)
                report(min(self.scores))
        best = int(np.argmin(self.scores))
        return Best(self._read(self.points[best]), self.scores[best], self.scores[0])

    def _try(self, point: np.ndarray) -> None:
        """Score a point, moved into its domain; one that is far behind the leader is given up on the way."""
        point = np.clip(point, self.least, self.most)
        recipe = self.recipe

        def is_hopeless(levels: list[float]) -> bool:
            leader = self.leader[: len(levels)]
            return bool(leader) and bool(np.mean(levels) > np.mean(leader) + recipe.hopeless)

        levels = measure_constant(self.program, self.begun, self.blocks, self._read(point), self.depth, is_hopeless)
        score = float(np.mean(levels))
        if len(levels) < self.blocks:
            score += recipe.overflow
        elif not self.leader or score < np.mean(self.leader):
            self.leader = levels
        self.points.append(point)
        self.scores.append(score)

    def _read(self, point: np.ndarray) -> dict[str, float]:
        """Return the values of all hyperparameters at a point."""
        values = {
            h.name: float(h.steady.constrain(np.asarray(c, np.float64))) for h, c in zip(self.free, point, strict=True)
        }
        return self.held | values


def measure_constant(
    program: Program,
    states: State,
    blocks: int,
    values: Mapping[str, ArrayLike],
    depth: float,
    give_up: Callable[[list[float]], bool] = lambda levels: False,
) -> list[float]:
    """Return the levels of log errors at the ends of `blocks` blocks with constant θ, or of as many as it takes to give
    up. From the depth on, below which errors are all alike, nothing changes."""
    recipe = program.recipe
    advance = program.hold_constant(values)
    levels: list[float] = []
    while len(levels) < blocks:
        states, errors = advance(states)
        level = judge_level(np.asarray(errors.metric, np.float64), recipe, depth)
        if not np.isfinite(level):
            level = recipe.overflow
        levels.append(level)
        if give_up(levels):
            break
        if levels[-1] == depth:
            levels += [depth] * (blocks - len(levels))
    return levels


def judge_level(logs: np.ndarray, recipe: Recipe, depth: float) -> float:
    """Return the level of instances' log errors by which constants and metrics are judged: their mean, and with the
    weight of the tail a high quantile and the worst. Below the depth errors are all alike."""
    logs = np.maximum(logs, depth)
    if np.all(logs == depth):
        return depth
    slow = (np.quantile(logs, recipe.judged_quantile) + np.max(logs)) / 2
    return float((1 - recipe.tail) * np.mean(logs) + recipe.tail * slow)


def _find_spread(h: Hyperparameter, recipe: Recipe) -> float:
    """Return how far around the centre candidates lie, one standard deviation of their coordinate."""
    if isinstance(h.steady, Interval):
        return recipe.logits
    return recipe.decades * float(np.log(10))


def _find_ends(h: Hyperparameter) -> tuple[float, float]:
    """Return between which coordinates training looks for a hyperparameter."""
    if not isinstance(h.steady, Positive):
        return -np.inf, np.inf
    with np.errstate(divide="ignore"):
        return float(np.log(h.steady.least)), float(np.log(h.steady.most))
