"""What is kept: the learned schedules against the best constant, at every block's end."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from .._util.storage import JsonObject
from ..engine.plan import make_plan
from ..schedules.schedule import Schedule
from .constant import judge_level
from .learner import Learner
from .recipe import Recipe
from .settings import LearnedPart, Values


@dataclass(frozen=True)
class Comparison:
    """Mean errors of the training instances after `steps` steps, with the schedule that is kept and the best constant.

    `measure` says which error it is.
    """

    steps: tuple[int, ...]
    schedule: tuple[float, ...]
    constant: tuple[float, ...]
    measure: str

    @property
    def gain(self) -> tuple[float, ...]:
        """How many times larger the constant's error is."""
        return tuple(c / s if s > 0 else np.inf for c, s in zip(self.constant, self.schedule, strict=True))

    def to_json(self) -> JsonObject:
        """Return it as plain data; `from_json` gives an equal one."""
        return asdict(self)

    @staticmethod
    def from_json(fields: JsonObject) -> "Comparison":
        """Read what `to_json` gave."""
        columns = (tuple(fields[name]) for name in ("steps", "schedule", "constant"))
        return Comparison(*columns, measure=fields["measure"])

    @override
    def __str__(self) -> str:
        rows = [f"{'step':>6}  {'schedule':>9}  {'constant':>9}  {'gain':>8}  ({self.measure})"]
        table = zip(self.steps, self.schedule, self.constant, self.gain, strict=True)
        return "\n".join([*rows, *(f"{k:>6}  {s:>9.2e}  {c:>9.2e}  {g:>8.3g}" for k, s, c, g in table)])


class Choice(NamedTuple):
    """The schedule to use, the best constant, how they compare, and in words what is kept."""

    schedule: Schedule
    constant: Schedule
    comparison: Comparison
    kept: str


@dataclass(frozen=True)
class Candidate:
    """A schedule in blocks of θ given step by step, then a steady θ."""

    name: str
    blocks: list[Values]
    steady: Values
    metric: np.ndarray | None = None
    fallback: Mapping[str, float] | None = None

    def schedule(self, names: list[str], warm: bool) -> Schedule:
        """Return it as a Schedule."""
        varying = {n: np.concatenate([np.zeros(0), *(b[n] for b in self.blocks)]) for n in names}
        lengths = [len(b[names[0]]) for b in self.blocks]
        steady = {n: float(self.steady[n][0]) for n in names}
        return Schedule(varying, steady, warm=warm, blocks=lengths, metric=self.metric, fallback=self.fallback)


class Walk:
    """Log errors at the ends of the blocks and of some steady blocks after them; each schedule is run once."""

    def __init__(
        self,
        learner: Learner,
        constant: LearnedPart,
        blocks: list[LearnedPart],
        steady: LearnedPart,
        metric: LearnedPart | None = None,
    ):
        self.learner = learner
        self.metric = metric
        self.constant = Candidate("the best constant", [], constant.theta)
        self.learned = Candidate(
            "the learned schedule", [block.theta for block in blocks], steady.theta, learner.metric
        )
        self.lengths = [*map(len, blocks), *[learner.settings.block] * learner.recipe.near]
        self.start = learner.start()
        self.floor = learner.floor()
        self.depth = learner.depth()
        self._known: dict[str, list[np.ndarray]] = {}

    def levels(self, candidate: Candidate) -> np.ndarray:
        """Return the level of log errors at every block's end, of which what overflowed is infinite."""
        recipe = self.learner.recipe
        levels = np.array([judge_level(logs, recipe, self.depth) for logs in self._run(candidate)])
        return np.where(np.isfinite(levels), levels, np.inf)

    def means(self, candidate: Candidate) -> np.ndarray:
        """Return the mean log error at every block's end; below the floor all are equal, and what overflowed is
        infinite."""
        means = np.array([np.mean(logs) for logs in self._run(candidate)])
        return np.where(np.isfinite(means), np.maximum(means, self.floor), np.inf)

    def _run(self, candidate: Candidate) -> list[np.ndarray]:
        """Return the log errors of all instances at every block's end."""
        if candidate.name not in self._known:
            states = self.start
            found = []
            rows = self.learner.rows(candidate.metric)
            for number, length in enumerate(self.lengths):
                if number < len(candidate.blocks):
                    theta = candidate.blocks[number]
                else:
                    theta = {name: np.full(length, value[0]) for name, value in candidate.steady.items()}
                states, errors = self.learner.advance({n: theta[n] for n in self.learner.names} | rows, states)
                found.append(np.asarray(errors.metric, np.float64))
            self._known[candidate.name] = found
        return self._known[candidate.name]


def select(walk: Walk, warm: bool) -> Choice:
    """Choose what to keep: all blocks with their steady state, where they are nowhere well behind the constant; else
    the most first blocks that are not, and then the constant.
    """
    learner = walk.learner
    names = learner.names
    constant = walk.constant
    if not has_factors(learner, constant):
        # Its linear systems are singular: the package's own values are what is left.
        usual = {h.name: np.array([h.default]) for h in learner.hyperparameters}
        constant = Candidate("the defaults", [], usual)
    limits = find_limits(walk.levels(constant), walk.lengths, learner.recipe)

    def is_good(candidate: Candidate) -> bool:
        return bool(np.all(walk.levels(candidate) <= limits)) and has_factors(learner, candidate)

    kept = next(filter(is_good, [walk.learned, *list_shorter(walk, constant)]), constant)
    steps = tuple(int(k) for k in np.cumsum(walk.lengths))
    means = [tuple(float(v) for v in np.exp(walk.means(c) / 2)) for c in (kept, constant)]
    comparison = Comparison(steps, *means, measure=learner.task.algorithm.measure(learner.task.optimum))
    if learner.has_metric and kept is not constant:
        # Who gets on badly with what was learned goes on with the constant.
        kept = replace(kept, fallback={n: float(constant.steady[n][0]) for n in names})
    return Choice(kept.schedule(names, warm), constant.schedule(names, False), comparison, kept.name)


def find_limits(levels: np.ndarray, lengths: Sequence[int], recipe: Recipe) -> np.ndarray:
    """Return the levels that what is kept may have where blocks end: the constant's, and a little more."""
    falls = np.maximum(-np.diff(levels, prepend=levels[:1]), 0.0) / np.asarray(lengths)
    with np.errstate(invalid="ignore"):
        return levels + np.fmax(recipe.behind, recipe.behind_steps * falls)


def list_shorter(walk: Walk, constant: Candidate) -> list[Candidate]:
    """Return what may be kept of learned blocks that are behind: the first of them, ever fewer, and then the constant,
    with the metric where there is one."""
    blocks = walk.learned.blocks
    after = constant
    if walk.learner.metric is not None and walk.metric is not None:
        after = Candidate("the constant with a metric", [], walk.metric.theta, walk.learner.metric)
    shorter = []
    for count in range(len(blocks), 0, -1):
        name = f"the first {count} of {len(blocks)} learned blocks, then {after.name}"
        shorter.append(Candidate(name, blocks[:count], after.steady, after.metric))
    return [*shorter, after]


def has_factors(learner: Learner, candidate: Candidate) -> bool:
    """Return whether a solver can be made of it: penalties of very different sizes make linear systems singular."""
    try:
        make_plan(learner.task.algorithm, learner.task.family, candidate.schedule(learner.names, False))
    except ValueError:
        return False
    return True
