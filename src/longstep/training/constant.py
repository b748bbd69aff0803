"""The best constant hyperparameters: where learning starts, and what it must beat."""

from collections.abc import Callable, Mapping
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from ..algorithms.base import State
from ..schedules.domain import Fixed, Hyperparameter, Interval, Positive
from .learner import Learner, Report
from .program import Program, take_columns
from .recipe import Recipe
from .settings import Learned


def search_constant(learner: Learner, report: Report) -> Learned:
    """Look for the best constant, over at least as many steps as the schedule has."""
    s = learner.settings
    recipe = learner.recipe
    begin = perf_counter()
    few = learner.few()
    program = learner.usual.restricted(few)
    blocks = max(-(-s.horizon // s.block) + 1, -(-recipe.settled // s.block))
    values, before, score = best_constant(
        program, program.start(take_columns(learner.begin, few)), blocks, learner.hyperparameters, s.fixed,
        candidates=s.candidates, tail=learner.tail, seed=s.seed, report=report,
    )  # fmt: skip
    theta = {name: np.array([value]) for name, value in values.items()}
    return Learned("constant", theta, score, before, s.candidates, perf_counter() - begin)


def best_constant(
    program: Program,
    start: State,
    blocks: int,
    hyperparameters: tuple[Hyperparameter, ...],
    fixed: Mapping[str, float],
    *,
    candidates: int,
    tail: float,
    seed: int,
    report: Report,
) -> tuple[dict[str, float], float, float]:
    """The constant θ with the least mean, over block ends, of the level of log errors; the defaults' score, its own.

    First the defaults with all penalties scaled; then some candidates around the best of these, the others ever closer
    around the best ones so far. `fixed` values are held.
    """
    recipe = program.recipe
    free = [h for h in hyperparameters if h.name not in fixed and not isinstance(h.steady, Fixed)]
    held = {h.name: fixed.get(h.name, h.default) for h in hyperparameters}
    rng = np.random.default_rng([seed, *b"constant"])
    centre = np.array([_coordinate(h, h.default) for h in free])
    spread = np.array([_spread(h, recipe) for h in free])

    leader: list[float] = []

    def well_behind(means: list[float]) -> bool:
        return bool(leader) and bool(np.mean(means) > np.mean(leader[: len(means)]) + recipe.hopeless)

    least, most = (np.array([_ends(h)[side] for h in free]) for side in (0, 1))

    def score(point: np.ndarray) -> float:
        values = held | {h.name: _value(h, c) for h, c in zip(free, point, strict=True)}
        means = constant_errors(program, start, blocks, values, well_behind, tail)
        if not leader or (len(means) == blocks and np.mean(means) < np.mean(leader)):
            leader[:] = means
        return float(np.mean(means)) if len(means) == blocks else recipe.overflow + float(np.mean(means))

    points = [centre]
    scores = [score(centre)]
    report(scores[0])
    penalties = np.array([h.role == "penalty" and isinstance(h.steady, Positive) for h in free], bool)
    for multiple in recipe.scanned if penalties.any() and candidates > len(recipe.scanned) else ():
        points.append(np.clip(centre + penalties * np.log(multiple), least, most))
        scores.append(score(points[-1]))
    centre = points[int(np.argmin(scores))]
    drawn = int(candidates * recipe.drawn)
    for k in range(1, candidates if free else 1):
        if k <= drawn:
            point = centre + spread * rng.normal(size=centre.shape)
        else:
            # One of the best, moved by less and less.
            progress = (k - drawn) / (candidates - drawn)
            near = points[np.argsort(scores)[rng.integers(min(recipe.elite, len(points)))]]
            point = near + spread * recipe.closer * recipe.closest**progress * rng.normal(size=centre.shape)
        points.append(np.clip(point, least, most))
        scores.append(score(points[-1]))
        report(min(scores))
    best = int(np.argmin(scores))
    found = {h.name: _value(h, c) for h, c in zip(free, points[best], strict=True)}
    return held | found, scores[0], scores[best]


def constant_errors(
    program: Program,
    states: State,
    blocks: int,
    values: Mapping[str, ArrayLike],
    give_up: Callable[[list[float]], bool],
    tail: float,
    floor: float = -np.inf,
) -> list[float]:
    """The level of log errors at the ends of so many blocks with constant θ, or of as many as it takes to give up.

    The level lies between the mean (tail = 0) and a high quantile (tail = 1). From the floor on nothing changes.
    """
    recipe = program.recipe
    advance = program.held(values)
    means = []
    while len(means) < blocks:
        states, errors = advance(states)
        level = float((1 - tail) * np.mean(errors.metric) + tail * np.quantile(errors.metric, recipe.judged_quantile))
        means.append(max(level, floor) if np.isfinite(level) else recipe.overflow)
        if give_up(means):
            break
        if means[-1] == floor:
            means += [floor] * (blocks - len(means))
    return means


def _spread(h: Hyperparameter, recipe: Recipe) -> float:
    """How far around the default random candidates lie, one standard deviation of its coordinate."""
    return recipe.logits if isinstance(h.steady, Interval) else recipe.decades * float(np.log(10))


def _ends(h: Hyperparameter) -> tuple[float, float]:
    """Between which coordinates training looks for a hyperparameter."""
    if not isinstance(h.steady, Positive):
        return -np.inf, np.inf
    with np.errstate(divide="ignore"):
        return float(np.log(h.steady.least)), float(np.log(h.steady.most))


def _coordinate(h: Hyperparameter, value: float) -> float:
    return float(h.steady.unconstrain(np.asarray(value, np.float64)))


def _value(h: Hyperparameter, coordinate: float) -> float:
    return float(h.steady.constrain(np.asarray(coordinate, np.float64)))
