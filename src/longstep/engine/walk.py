"""A solve with looks between its steps: at the clock, and for the finish at the active sets."""

from collections.abc import Iterable
from dataclasses import dataclass

import equinox as eqx
import numpy as np

from ..families.base import Encoded
from ..families.point import Point
from . import jitted
from .budget import Clock
from .finisher import Exact, Finisher
from .solution import Status
from .stopping import Limits, Progress

# With a time limit, chunks of so many steps at least: short against any sensible limit.
_CHUNK = 20


@dataclass(frozen=True)
class Attempts:
    """When the finish is tried: `after` steps, then after twice as many and so on. One that costs little is tried
    with a warm start at once. `encoded` are the instances as it takes them."""

    finisher: Finisher
    encoded: Encoded
    after: int
    warm: bool

    @property
    def first(self) -> int:
        """The first time."""
        if self.warm and self.finisher.eager:
            return 0
        return self.after

    def next(self, k: int) -> int:
        """Return the time after one at step k: where tries fail, there are few of them."""
        return max(2 * k, self.after, 1)


@dataclass(frozen=True)
class Rehearsal:
    """Instances after some numbers of steps, from where the finish may be tried in many ways: the steps are taken
    once."""

    encoded: Encoded
    points: dict[int, Point]
    limits: Limits

    def finish(self, finisher: Finisher, steps: int, places: np.ndarray) -> Exact:
        """Return what the finish makes of the instances at these places after `steps` steps."""
        point = self.points[steps]
        tried = np.zeros(point.x.shape[-1], bool)
        tried[places] = True
        return finisher(self.encoded, point, tried, self.limits)


def rehearse(
    key: jitted.SolverKey, leaves: tuple, encoded: Encoded, start: Point | None, limits: Limits, marks: Iterable[int]
) -> Rehearsal:
    """Take instances to each of these numbers of steps."""
    progress = jitted.begin_solve(key, leaves, encoded, start, limits)
    points = {}
    for k in sorted(marks):
        progress = jitted.advance(key, leaves, encoded, progress, limits, 0, k)
        points[k] = jitted.extract_current(key, leaves, encoded, progress)
    return Rehearsal(encoded, points, limits)


def walk(
    key: jitted.SolverKey,
    leaves: tuple,
    encoded: Encoded,
    start: Point | None,
    limits: Limits,
    first: int,
    max_iter: int,
    clock: Clock,
    attempts: Attempts | None,
) -> tuple[Progress, Exact | None]:
    """Return where a run stands when all instances have ended, or at the limits; and what the finish made exact."""
    if attempts is not None and clock.limit is not None and not attempts.finisher.eager:
        # What may take long is not begun against a clock.
        attempts = None
    progress = jitted.begin_solve(key, leaves, encoded, start, limits)
    exact = None
    # No step yet: this compiles, where it must, before the clock is started.
    progress = jitted.advance(key, leaves, encoded, progress, limits, first, 0)
    if clock.limit is not None and attempts is not None:
        attempts.finisher.compile(attempts.encoded, jitted.extract_current(key, leaves, encoded, progress), limits)
    clock.start()
    k = 0
    attempt = max_iter
    if attempts is not None:
        attempt = attempts.first
    chunk = max_iter
    if clock.limit is not None:
        chunk = max(int(np.asarray(limits.check_every)), _CHUNK)
    while np.any(running := np.asarray(progress.status) == Status.RUNNING):
        if attempts is not None and k == attempt:
            point = jitted.extract_current(key, leaves, encoded, progress)
            found = attempts.finisher(attempts.encoded, point, running, limits)
            status = np.where(found.exact, Status.SOLVED, progress.status).astype(progress.status.dtype)
            progress = eqx.tree_at(lambda p: p.status, progress, status)
            if exact is not None:
                found = exact.merge(found)
            exact = found
            attempt = attempts.next(k)
            continue
        if k >= max_iter or clock.has_passed():
            break
        k = min(k + chunk, max_iter, attempt)
        progress = jitted.advance(key, leaves, encoded, progress, limits, first, k)
    return progress, exact
