"""Tallies: how many instances of a stream ended how."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from typing_extensions import override

from .._util.storage import JsonObject
from ..engine.solution import Solution, Status


@dataclasses.dataclass(frozen=True)
class Tally:
    """What `map` returns: how many instances there were, and how many of them ended how.

    `statuses` counts them by status, in its words. `outside` counts those outside what training saw, None for a solver
    that was not learned; `safeguarded` those where the safeguard acted. `reused` are instances whose part was finished
    before. `complete` is False as long as parts of other shards are missing. `seconds` is wall-clock time.
    """

    instances: int = 0
    statuses: Mapping[str, int] = dataclasses.field(default_factory=dict)
    outside: int | None = None
    safeguarded: int = 0
    reused: int = 0
    complete: bool = True
    seconds: float = 0.0

    @property
    def solved(self) -> int:
        """The number of instances that were solved."""
        return self.statuses.get(Status.SOLVED.words, 0)

    @property
    def message(self) -> str:
        """How many instances ended how, in words."""
        return ", ".join(f"{count} {words}" for words, count in self.statuses.items()) or "no instance"

    @classmethod
    def of_solution(cls, solution: Solution) -> Self:
        """Return the tally of a batch."""
        counts = {status.words: int(np.sum(solution.status == status)) for status in Status}
        outside = None
        if solution.outside is not None:
            outside = int(np.sum(solution.outside))
        statuses = {words: count for words, count in counts.items() if count}
        return cls(len(solution), statuses, outside, int(np.sum(solution.safeguarded)))

    def to_json(self) -> JsonObject:
        """Return the counts of instances as plain data."""
        names = ("instances", "statuses", "outside", "safeguarded")
        return {name: getattr(self, name) for name in names}

    @override
    def __repr__(self) -> str:
        return f"Tally({self.instances} instances in {self.seconds:.3g} s: {self.message})"


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of the counts of instances."""
    listed = list(tallies)
    counts: Counter[str] = Counter()
    for tally in listed:
        counts.update(tally.statuses)
    known = [tally.outside for tally in listed if tally.outside is not None]
    outside = None
    if known:
        outside = sum(known)
    return Tally(
        sum(tally.instances for tally in listed),
        {status.words: counts[status.words] for status in Status if counts[status.words]},
        outside,
        sum(tally.safeguarded for tally in listed),
        sum(tally.reused for tally in listed),
    )
