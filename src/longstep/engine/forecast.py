"""What a schedule will take, before any work is done: memory of factors and of training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from .._util.effort import LONG_SECONDS, SPEED, announce
from .._util.memory import measure_usable, require
from .._util.text import describe_bytes, describe_duration
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..families.base import Family
from ..linalg.systems import ALWAYS, LinearSystem, Pattern, choose
from ..schedules.lengths import block_lengths

# The share of what is neither kept by reverse mode nor a factor; measured.
_REST = 1.25


@dataclass(frozen=True)
class Forecast:
    """Bytes of a solver's `factors` and of `training`, which are not needed at the same time; how many factors there
    are, what each is, and how many `seconds` they take."""

    factors: float
    training: float
    count: int
    kind: str
    seconds: float
    limit: float | None = None

    @property
    def peak(self) -> float:
        """The larger of the two."""
        return max(self.factors, self.training)

    def check(self) -> None:
        """Refuse what does not fit into memory, with the number and what to do."""
        _require(self.factors, self.count, self.kind)
        fewer = "Fewer training instances, a shorter block, or memory_limit=… (it takes gradients in pieces) take less"
        require(self.training, "training", fewer, self.limit)

    @override
    def __str__(self) -> str:
        factors = describe_bytes(self.factors)
        needs = f"{factors} for {self.count} {self.kind}, about {describe_bytes(self.training)} while training"
        if self.seconds <= LONG_SECONDS:
            return f"memory: {needs}"
        return f"memory: {needs}; the factors take {describe_duration(self.seconds)}"


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
    """Return what learning a schedule from `instances` instances, and solving with it, will take.

    >>> import numpy as np
    >>> from longstep import QP
    >>> from longstep.engine.forecast import forecast
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> print(forecast(family, 10))
    memory: 816 bytes for 51 steps, about 58.8 KiB while training
    """
    if algorithm is None:
        algorithm = default_algorithm(family)
    n = family.n
    size = family.dtype.itemsize
    count = min(horizon + 1, factorizations or horizon + 1)
    pattern = algorithm.pattern(family)
    kept = _Kept(0, "steps", 0.0)
    if pattern is not None:
        kept = _describe(choose(pattern, ALWAYS, measure_usable() / count, size), pattern, size)
    longest = max(block_lengths(horizon, block), default=0)
    steps = algorithm.numbers_per_step * longest * instances * (n + family.m)
    training = _REST * (min(longest, count) * kept.bytes + size * steps)
    if memory_limit is not None:
        training = min(training, memory_limit)
    return Forecast(
        factors=count * max(kept.bytes, n * size),
        training=training,
        count=count,
        kind=kept.kind,
        seconds=count * kept.seconds,
        limit=memory_limit,
    )


@dataclass(frozen=True)
class _Kept:
    """How many bytes a solver keeps for one θ, what they are, and how long they take."""

    bytes: int
    kind: str
    seconds: float


def _describe(back_end: type[LinearSystem], pattern: Pattern, itemsize: int) -> _Kept:
    """Return what a solver keeps for one θ."""
    made = back_end.cost(pattern, 0.0, itemsize)
    return _Kept(int(made.bytes), back_end.describe(pattern), made.flops / SPEED)


def require_factors(back_end: type[LinearSystem], pattern: Pattern, count: int, dtype: np.dtype) -> None:
    """Refuse `count` factors, kept in `dtype`, where they do not fit, and tell what takes long, before any is made."""
    kept = _describe(back_end, pattern, dtype.itemsize)
    _require(count * kept.bytes, count, kept.kind)
    announce(f"makes {count} {kept.kind}", count * kept.seconds)


def _require(need: float, count: int, kind: str) -> None:
    advice = (
        "Fewer distinct factorizations (factorizations=5, or learn=['alpha'] for a single one), a shorter horizon, or "
        'dtype="float32" (or factors="float32" alone) take less'
    )
    require(need, f"a schedule with {count} {kind}", advice)
