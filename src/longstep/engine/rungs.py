"""The rungs of a ladder: other penalties of the steady state, as places of a plan."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..algorithms.base import Algorithm
from ..families.base import Family
from ..schedules.schedule import Schedule

# After so many steps in the steady state who is not done goes on with the fallback.
_PATIENCE = 1000
# Neighbouring rungs differ by this factor, and reach so many to both sides; those of large dense factors are fewer.
_RATIO = 5.0
_REACH = 4
_REACH_OF_LARGE = 2
_LARGE = 500
# Whether there is a ladder: from the start of the steady state, or only for those that are not done after long.
LadderUse: TypeAlias = bool | Literal["late"]


class Ladder(eqx.Module):
    """Rungs to which an instance may move in the steady state: multiples of its penalties and, behind them, of the
    fallback's penalties without the metric, where these are others.

    `logs` are the logarithms of the multiples, ascending in each part: entry j is place H + 1 + j of the plan. `first`
    is the steady state's own rung, `last` the last one of its part; `second` is the fallback's own rung, to which those
    go that are not done after `patience` steps, or whose residuals fell by less than exp(`enough`) between 100 and 200
    steps, 200 and 400, and so on. Every `every` steps, an instance whose residuals are out of balance by more than
    exp(`threshold`) moves, `most` times at most, unless they fell by exp(`progress`) since the last look; not before
    `wait` steps.
    """

    logs: Float[Array, " R"]
    # An array, so that ladders that begin late share their programs with the others.
    wait: Int[Array, ""]
    first: int = eqx.field(static=True)
    last: int = eqx.field(static=True)
    second: int | None = eqx.field(static=True)
    every: int = eqx.field(static=True, default=10)
    threshold: float = eqx.field(static=True, default=math.log(2.5))
    progress: float = eqx.field(static=True, default=math.log(2.0))
    most: int = eqx.field(static=True, default=8)
    marks: tuple[int, ...] = eqx.field(static=True, default=(50, 100, 200, 400))
    enough: float = eqx.field(static=True, default=math.log(10.0))
    patience: int = eqx.field(static=True, default=_PATIENCE)


@dataclass(frozen=True)
class Rungs:
    """The θ of a ladder's rungs, on the host."""

    theta: dict[str, np.ndarray]
    logs: np.ndarray
    plain: np.ndarray
    first: int
    last: int
    second: int | None

    def drop_bad(self, bad: np.ndarray) -> "Rungs | None":
        """Return the rungs on both sides of the steady state's up to the first bad one; likewise of the fallback's."""
        parts = []
        start = 0
        for middle, end in ((self.first, self.last), (self.second, self.logs.size - 1)):
            if middle is None or bad[middle]:
                parts.append(np.zeros(0, int))
            else:
                low = middle
                high = middle
                while low > start and not bad[low - 1]:
                    low -= 1
                while high < end and not bad[high + 1]:
                    high += 1
                parts.append(np.arange(low, high + 1))
            start = self.last + 1
        first, second = parts
        if not first.size:
            return None
        places = np.concatenate(parts)
        own = None
        if second.size:
            own = int(first.size + np.flatnonzero(second == self.second)[0])
        return Rungs(
            theta={name: values[places] for name, values in self.theta.items()},
            logs=self.logs[places],
            plain=self.plain[places],
            first=int(np.flatnonzero(first == self.first)[0]),
            last=first.size - 1,
            second=own,
        )

    def make_ladder(self, dtype: np.dtype, late: bool) -> Ladder:
        """Return the ladder of these rungs; a late one waits before anybody moves."""
        wait = 0
        if late:
            wait = _PATIENCE
        return Ladder(jnp.asarray(self.logs, dtype), jnp.int32(wait), self.first, self.last, self.second)


def make_rungs(algorithm: Algorithm, family: Family, schedule: Schedule) -> Rungs | None:
    """Return multiples of the steady penalties, then of the fallback's where these are others; None without
    penalties."""
    steady = schedule.steady
    usual = schedule.fallback
    if usual is None:
        usual = {h.name: h.default for h in algorithm.hyperparameters(family)}
    if algorithm.scaled(family, steady, 2.0) == steady:
        return None
    reach = _REACH
    if family.n > _LARGE and not family.sparse:
        reach = _REACH_OF_LARGE
    logs = np.arange(-reach, reach + 1) * math.log(_RATIO)
    parts = [steady]
    second = None
    if schedule.metric is not None or steady != usual:
        parts = [steady, usual]
        second = logs.size + reach
    each = [algorithm.scaled(family, part, float(np.exp(log))) for part in parts for log in logs]
    return Rungs(
        theta={name: np.array([one[name] for one in each]) for name in steady},
        logs=np.tile(logs, len(parts)),
        plain=np.repeat([False, True][: len(parts)], logs.size),
        first=reach,
        last=logs.size - 1,
        second=second,
    )
