"""Who finishes: the running instances of a run, taken out, tried, and put back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..families.point import Point
from .finish import Finish, Outcome
from .jitted import Key, finished
from .stopping import Limits


@dataclass
class Exact:
    """Exact points of some instances of a run, on the last axis, and which they are; `changes` is −1 for others."""

    exact: np.ndarray
    changes: np.ndarray
    fields: dict[str, np.ndarray]

    def joined(self, later: "Exact") -> "Exact":
        """With those of a later attempt."""
        pairs = {name: np.where(later.exact, value, self.fields[name]) for name, value in later.fields.items()}
        changes = np.where(later.exact, later.changes, self.changes)
        return Exact(self.exact | later.exact, changes, pairs)

    def into(self, ended: dict[str, Any]) -> dict[str, Any]:
        """What a run ended with, these points in the place of its own."""
        found = {name: np.where(self.exact, value, ended[name]) for name, value in self.fields.items()}
        return ended | found | {"changes": self.changes}


class Finisher:
    """Tries to finish the running instances of a run, a few at a time."""

    def __init__(self, finish: Finish, axis: int):
        leaves, structure = jax.tree.flatten(finish)
        self.width, self.axis = finish.width, axis
        self.leaves, self.key = tuple(leaves), Key(structure)
        self._compiled: set[int] = set()

    def compile(self, encoded: Any, point: Point, limits: Limits) -> None:
        """Compile, where that was not done for one instance or for several, by a try that nothing comes of."""
        if point.x.ndim not in self._compiled:
            self(encoded, point, np.ones(point.x.shape[1:], bool), limits)
            self._compiled.add(point.x.ndim)

    def __call__(self, encoded: Any, point: Point, running: np.ndarray, limits: Limits) -> Exact:
        """The exact points of those that have them, within the tolerances too."""
        if running.ndim == 0:
            return _exact(finished(self.key, self.leaves, encoded, point), limits)
        places, parts = np.flatnonzero(running), []
        for begin in range(0, places.size, self.width):
            # Padded, so that one shape is compiled.
            chosen = places[np.minimum(np.arange(begin, begin + self.width), places.size - 1)]
            some = jax.tree.map(lambda a: np.take(np.asarray(a), chosen, axis=self.axis), encoded)  # noqa: B023
            near = jax.tree.map(lambda a: np.take(np.asarray(a), chosen, axis=-1), point)  # noqa: B023
            found = _exact(finished(self.key, self.leaves, some, near), limits)
            parts.append((chosen, found))
        every = running.size

        def spread(of: Callable[[Exact], np.ndarray], blank: Any) -> np.ndarray:
            first = of(parts[0][1])
            out = np.full((*first.shape[:-1], every), blank, first.dtype)
            for chosen, found in parts:
                out[..., chosen] = of(found)
            return out

        names = parts[0][1].fields
        fields = {name: spread(lambda e, n=name: e.fields[n], 0.0) for name in names}
        return Exact(spread(lambda e: e.exact, False), spread(lambda e: e.changes, -1), fields)


def _exact(outcome: Outcome, limits: Limits) -> Exact:
    r = outcome.residuals
    good = np.asarray(outcome.exact) & (np.asarray(r.violation(limits.eps_abs, limits.eps_rel)) <= 1)
    fields = {"x": outcome.point.x, "y": outcome.point.y, "s": outcome.point.s, "objective": r.objective}
    fields |= {"primal_residual": r.primal_max, "dual_residual": r.dual_max}
    return Exact(good, np.where(good, outcome.changes, -1), {k: np.asarray(a) for k, a in fields.items()})
