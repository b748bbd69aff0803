"""Schedules side by side on the training instances: their errors at every block's end."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..schedules.schedule import Schedule
from .block import Values

# At so many blocks of the steady state the constant must not be better either.
NEAR = 5


@dataclass(frozen=True)
class Candidate:
    """A schedule in blocks of θ given step by step, then a steady θ."""

    name: str
    blocks: list[Values]
    steady: Values

    def schedule(self, names: list[str], warm: bool) -> Schedule:
        """As a Schedule."""
        varying = {n: np.concatenate([np.zeros(0), *(b[n] for b in self.blocks)]) for n in names}
        lengths = [len(b[names[0]]) for b in self.blocks]
        return Schedule(varying, {n: float(self.steady[n][0]) for n in names}, warm=warm, blocks=lengths)


class Walk:
    """Mean log errors at the ends of the blocks and of some steady blocks after them; each schedule is run once."""

    def __init__(self, learner: Any, parts: list[Any]):
        blocks = [part.theta for part in parts if part.kind == "block"]
        steady = next(part.theta for part in parts if part.kind == "steady")
        self.constant = Candidate("the best constant", [], parts[0].theta)
        self.learned = Candidate("the learned schedule", blocks, steady)
        lengths = [len(b[learner.names[0]]) for b in blocks]
        self.learner, self.lengths = learner, lengths + [learner.settings.block] * NEAR
        self.start = learner.start()
        self.floor = learner.floor()
        self.known: dict[str, np.ndarray] = {}

    def behind(self) -> bool:
        """Whether the constant is ahead of what was learned at the end of some block."""
        return bool(np.any(self.errors(self.learned) > self.errors(self.constant)))

    def errors(self, candidate: Candidate) -> np.ndarray:
        """One mean log error for every block's end; below the floor all are equal, and what overflowed is infinite."""
        if candidate.name not in self.known:
            states, found = self.start, []
            for number, length in enumerate(self.lengths):
                if number < len(candidate.blocks):
                    theta = candidate.blocks[number]
                else:
                    theta = {name: np.full(length, value[0]) for name, value in candidate.steady.items()}
                states, errors = self.learner.advance(theta, states)
                mean = float(np.mean(errors.metric))
                found.append(max(mean, self.floor) if np.isfinite(mean) else np.inf)
            self.known[candidate.name] = np.array(found)
        return self.known[candidate.name]
