"""What a schedule will take, before any work is done: memory of factors and of training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from .._util.memory import require
from .._util.progress import say
from .._util.text import duration, in_words
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..families.base import Family
from ..linalg.systems import ALWAYS, choose
from ..schedules.lengths import block_lengths

# Numbers that reverse mode keeps for a step of an instance, in units of n + m; measured, as is the share of the rest.
_KEPT = 15
_REST = 1.25


@dataclass(frozen=True)
class Forecast:
    """Bytes of a solver's `factors` and of `training`, which are not needed at the same time."""

    factors: float
    training: float
    dense: int
    count: int
    limit: float | None = None

    @property
    def peak(self) -> float:
        """The larger of the two."""
        return max(self.factors, self.training)

    def check(self) -> None:
        """Refuse what does not fit into memory, with the number and what to do."""
        _require(self.factors, self.count, self.dense)
        fewer = "Fewer training instances, a shorter block, or memory_limit=… (it takes gradients in pieces) take less"
        require(self.training, "training", fewer, self.limit)

    @override
    def __str__(self) -> str:
        kind = f"{self.count} factors of {self.dense}×{self.dense}" if self.dense else f"{self.count} steps"
        seconds = factor_seconds(self.dense, self.count)
        time = f"; the factors take {duration(seconds)}" if seconds > _LONG_SECONDS else ""
        return f"memory: {in_words(self.factors)} for {kind}, about {in_words(self.training)} while training{time}"


def forecast(
    family: Family,
    instances: int,
    *,
    horizon: int = 50,
    block: int | Sequence[int] = 10,
    factorizations: int | None = None,
    memory_limit: float | None = None,
    algorithm: Algorithm | None = None,
) -> Forecast:
    """What learning a schedule from so many instances, and solving with it, will take.

    >>> import numpy as np
    >>> from longstep import QP
    >>> from longstep.engine.forecast import forecast
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> print(forecast(family, 10))
    memory: 816 bytes for 51 steps, about 58.8 KiB while training
    """
    algorithm = default_algorithm(family) if algorithm is None else algorithm
    n = family.n
    m = family.m
    size = family.dtype.itemsize
    count = min(horizon + 1, factorizations or horizon + 1)
    one = numbers_kept(algorithm, family)
    longest = max(block_lengths(horizon, block), default=0)
    training = size * _REST * (min(longest, count) * one + _KEPT * longest * instances * (n + m))
    if memory_limit is not None:
        training = min(training, memory_limit)
    return Forecast(count * max(one, n) * size, training, n if one > n else 0, count, memory_limit)


def numbers_kept(algorithm: Algorithm, family: Family) -> int:
    """How many numbers a solver keeps for one θ."""
    pattern = algorithm.pattern(family)
    return 0 if pattern is None else choose(pattern, ALWAYS).size(pattern)


# Multiplications and additions a second of two ordinary cores, for an explicit inverse of 2n³ of them.
_SPEED = 2e10
# Work that takes longer is told beforehand.
_LONG_SECONDS = 10.0


def factor_seconds(n: int, count: int) -> float:
    """About how long so many dense factors take."""
    return count * 2.0 * n**3 / _SPEED


def require_factors(algorithm: Algorithm, family: Family, count: int, dtype: np.dtype) -> None:
    """Refuse so many factors, kept in `dtype`, where they do not fit, and tell what takes long, before any is made."""
    size = numbers_kept(algorithm, family)
    _require(count * size * dtype.itemsize, count, family.n)
    seconds = factor_seconds(family.n, count)
    if size > family.n and seconds > _LONG_SECONDS:
        say(f"longstep makes {count} dense factors of {family.n}×{family.n}, which takes {duration(seconds)}")


def _require(need: float, count: int, n: int) -> None:
    advice = (
        "Fewer distinct factorizations (factorizations=5, or learn=['alpha'] for a single one), a shorter horizon, or "
        'dtype="float32" (or factors="float32" alone) take less; a family of this size may be beyond dense factors'
    )
    require(need, f"a schedule with {count} factors of {n}×{n}", advice)
