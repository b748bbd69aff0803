"""The best constant hyperparameters: where learning starts, and what it must beat."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..schedules.domain import Fixed, Hyperparameter, Interval, Positive
from .block import Block

# Decades around the default, one standard deviation, that random candidates cover.
_DECADES = 1.0
# A candidate whose mean log error is behind the leader's by this much is not run to the end.
_BEHIND, _BEATEN = 4.0, 1e4


def best_constant(
    block: Block,
    start: Any,
    blocks: int,
    hyperparameters: tuple[Hyperparameter, ...],
    fixed: Mapping[str, float],
    *,
    candidates: int,
    tail: float,
    seed: int,
    report: Callable[[float], None],
) -> tuple[dict[str, float], float, float]:
    """The constant θ with the least mean, over block ends, of the level of log errors; the defaults' score, its own.

    Half of the candidates are drawn around the defaults, the others ever closer around the best ones so far.
    `fixed` values are held.
    """
    free = [h for h in hyperparameters if h.name not in fixed and not isinstance(h.steady, Fixed)]
    held = {h.name: fixed.get(h.name, h.default) for h in hyperparameters}
    rng = np.random.default_rng([seed, *b"constant"])
    centre = np.array([_coordinate(h, h.default) for h in free])
    spread = np.array([_DECADES * np.log(10) if not isinstance(h.steady, Interval) else 1.5 for h in free])

    leader: list[float] = []

    def well_behind(means: list[float]) -> bool:
        return bool(leader) and bool(np.mean(means) > np.mean(leader[: len(means)]) + _BEHIND)

    least, most = (np.array([_ends(h)[side] for h in free]) for side in (0, 1))

    def score(point: np.ndarray) -> float:
        values = held | {h.name: _value(h, c) for h, c in zip(free, point, strict=True)}
        means = constant_errors(block, start, blocks, values, well_behind, tail)
        if not leader or (len(means) == blocks and np.mean(means) < np.mean(leader)):
            leader[:] = means
        return float(np.mean(means)) if len(means) == blocks else _BEATEN + float(np.mean(means))

    points, scores = [centre], [score(centre)]
    report(scores[0])
    for k in range(1, candidates if free else 1):
        if k <= candidates // 2:
            point = centre + spread * rng.normal(size=centre.shape)
        else:
            # One of the best three, moved by less and less.
            progress = (k - candidates // 2) / (candidates - candidates // 2)
            near = points[np.argsort(scores)[rng.integers(min(3, len(points)))]]
            point = near + spread * 0.5 * 0.1**progress * rng.normal(size=centre.shape)
        points.append(np.clip(point, least, most))
        scores.append(score(points[-1]))
        report(min(scores))
    best = int(np.argmin(scores))
    found = {h.name: _value(h, c) for h, c in zip(free, points[best], strict=True)}
    return held | found, scores[0], scores[best]


def constant_errors(
    block: Block,
    states: Any,
    blocks: int,
    values: dict[str, float],
    give_up: Callable[[list[float]], bool],
    tail: float,
    floor: float = -np.inf,
) -> list[float]:
    """The level of log errors at the ends of so many blocks with constant θ, or of as many as it takes to give up.

    The level lies between the mean (tail = 0) and the 90% quantile (tail = 1): where most instances are easy, the mean
    alone forgets the rest. From the floor on nothing changes.
    """
    advance, means = block.held(values), []
    while len(means) < blocks:
        states, errors = advance(states)
        level = float((1 - tail) * np.mean(errors.metric) + tail * np.quantile(errors.metric, 0.9))
        means.append(max(level, floor) if np.isfinite(level) else _BEATEN)
        if give_up(means):
            break
        if means[-1] == floor:
            means += [floor] * (blocks - len(means))
    return means


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
