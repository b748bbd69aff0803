"""Who finishes: the running instances of a run, taken out, tried, and put back."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..families.base import Encoded, Family
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.point import Point
from ..families.quadratic_program import QP
from ..families.reading import Parameters
from . import finish, newton
from .batching import run_within, wants_width
from .finish import Outcome
from .jitted import flatten, seek_exact
from .newton import Newton
from .separable import count_support, has_pieces, make_finish
from .solution import Solution
from .stopping import Limits

# Steps after which an active set is first taken from them, and for each unknown of a cone program's Newton steps.
_ACTIVE = 30
_NEWTON = 4
# How many steps cost as much as a correction of a point, and how many proximal steps a singular P takes, about.
_CORRECTION = 2
_ROUNDS = 3
# How many cone programs are taken out at a time.
_WIDTH = 16


class Patience(NamedTuple):
    """To tolerances of `eps` and looser the finish is first tried after `steps` steps, because fewer are often enough
    without it."""

    eps: float
    steps: int


@dataclass
class Exact:
    """Exact points of some instances of a run, on the last axis, and which they are; `changes` is −1 for others."""

    exact: np.ndarray
    changes: np.ndarray
    fields: dict[str, np.ndarray]

    def merge(self, later: "Exact") -> "Exact":
        """Return these with those of a later attempt."""
        pairs = {name: np.where(later.exact, value, self.fields[name]) for name, value in later.fields.items()}
        changes = np.where(later.exact, later.changes, self.changes)
        return Exact(self.exact | later.exact, changes, pairs)

    def cost(self, family: Family, singular: bool) -> np.ndarray:
        """Return how many steps cost as much as each instance's finish."""
        x = self.fields["x"]
        y = self.fields.get("y", x)
        return _measure_cost(family, self.changes, x.T, y.T, singular)

    def put_into(self, ended: dict[str, Any]) -> dict[str, Any]:
        """Return what a run ended with, these points in the place of its own."""
        found = {name: np.where(self.exact, value, ended[name]) for name, value in self.fields.items()}
        return ended | found | {"changes": self.changes}


def can_finish(family: Any) -> bool:
    """Return whether a family has a finish in its own precision, which is float64."""
    return family.dtype == np.float64 and has_finish(family)


def has_finish(family: Any) -> bool:
    """Return whether a family has a finish: quadratic programs with inequalities, composites with known pieces, and
    cone programs, that are not too large for it."""
    if isinstance(family, Conic):
        return family.n + family.m <= newton.MOST
    if isinstance(family, Composite):
        return family.n <= finish.MOST and has_pieces(family)
    if not isinstance(family, QP):
        return False
    rows = len(family.equality)
    equalities = int(np.sum(np.asarray(family.equality)))
    return equalities < min(family.n, rows) and max(family.n, rows) <= finish.MOST


def finishes_by_sets(family: Any) -> bool:
    """Return whether a family has a finish that begins at an active set or a support, rather than Newton's."""
    return can_finish(family) and not isinstance(family, Conic)


def choose_first_attempt(family: Family, wanted: Any, record: dict[str, Any] | None) -> int | None:
    """Return after how many steps the finish is first tried, None for never: those `wanted` or, where that is True,
    those that a training has on record. Where nothing is known, for cone programs when the steps have cost as much as
    some of Newton's will."""
    if not isinstance(wanted, bool | int | np.integer) or int(wanted) < 0:
        raise ValueError(f"finish must be True, False or a number of steps, got {wanted!r}")
    if wanted is False or not has_finish(family):
        return None
    if wanted is not True:
        return int(wanted)
    usual = _ACTIVE
    if isinstance(family, Conic):
        usual = _NEWTON * (family.n + family.m)
    return int((record or {}).get("finish", usual))


def recall_patience(record: dict[str, Any] | None) -> Patience | None:
    """Return the patience that a training has on record; None where loose tolerances are like any other."""
    known = (record or {}).get("patience")
    if known is None:
        return None
    return Patience(*known)


def recall_proximal(record: dict[str, Any] | None) -> float:
    """Return the finish's proximal term that a training has on record, or the usual one."""
    return float((record or {}).get("proximal", finish.PROXIMAL))


def is_singular(record: dict[str, Any] | None) -> bool:
    """Return whether a training found that the finish of its family needs a proximal term."""
    return "proximal" in (record or {})


def finish_cost(family: Family, solution: Solution, singular: bool) -> np.ndarray:
    """Return how many steps cost as much as what the finish did for a solution, or for several; 0 where it did nothing.

    A Newton step is a factorization, which is (n + m)/3 products with its factors. A change of an active set costs the
    multipliers of its rows and the values of all inequalities, and so does, by a third, every row that it begins with.
    Where P is singular, the point is corrected many times, each at the price of two steps.
    """
    return _measure_cost(family, np.asarray(solution.changes), np.asarray(solution.x), np.asarray(solution.y), singular)


def _measure_cost(family: Family, changes: np.ndarray, x: np.ndarray, y: np.ndarray, singular: bool) -> np.ndarray:
    """Return `finish_cost` of points whose coordinates are on the last axis."""
    if isinstance(family, QP):
        kinds = family.host.kinds
        inequality = ~(kinds.equality | kinds.is_free)
        active = np.count_nonzero(y[..., inequality], axis=-1)
    elif isinstance(family, Composite) and has_pieces(family):
        active = count_support(family, x)
    else:
        return np.maximum(changes, 0) * (family.n + family.m) / 3
    corrected = 0
    if singular:
        corrected = _CORRECTION * _ROUNDS * finish.corrections(1.0)
    return np.where(changes < 0, 0.0, corrected + changes_cost(family, changes, active))


def changes_cost(family: QP | Composite, changes: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Return how many steps cost as much as `changes` of an active set that begins with `active` rows."""
    rows, step = _count_operations(family)
    change = 6 * active**2 + 2 * rows * active + 2 * rows
    return (changes + active / 3) * change / step


def product_cost(family: QP, size: int) -> float:
    """Return how many steps cost as much as a product of a vector of this size with a dense row for every
    inequality."""
    rows, step = _count_operations(family)
    return 2 * rows * size / step


def _count_operations(family: QP | Composite) -> tuple[int, int]:
    """Return how many inequalities a family has, a composite one for every unknown, and how many operations a step
    takes, of a QP a condensed one."""
    if isinstance(family, Composite):
        return family.n, 2 * family.n**2
    kinds = family.host.kinds
    rows = int((~(kinds.equality | kinds.is_free)).sum())
    free = family.n - int(kinds.equality.sum())
    return rows, 2 * free**2 + 4 * rows * free


class Finisher:
    """Tries to finish the running instances of a run, a few at a time.

    It is in float64 whatever the steps are in: of a float32 family it takes the same one in float64, made again from
    the user's own data. JAX's switch is turned for it, in the threads that run it alone. Where `eager`, it costs so
    little that warm starts are tried too.
    """

    def __init__(self, family: Any, proximal: float):
        self.proximal = proximal
        self.eager = not isinstance(family, Conic)
        self.axis = family.instance_axis
        self._seek: Callable[[Any, Point], Outcome]
        with jax.enable_x64(True):
            self.family = family.widen()
            if isinstance(family, Conic):
                self.width = _WIDTH
                self._seek = Newton(self.family).seek
            else:
                made = make_finish(self.family, proximal)
                self.width = made.width
                self._seek = functools.partial(seek_exact, *flatten(made))
        self._compiled: set[int] = set()

    def encode(self, parameters: Parameters) -> Encoded:
        """Return parameters as it takes them."""
        with jax.enable_x64(True):
            return self.family.encode(self.family.vectors(parameters))

    def compile(self, encoded: Any, point: Point, limits: Limits) -> None:
        """Compile, where that was not done for one instance or for several, by a try that nothing comes of."""
        if point.x.ndim not in self._compiled:
            first = np.zeros(point.x.shape[1:], bool)
            first.flat[0] = True
            self(encoded, point, first, limits)
            self._compiled.add(point.x.ndim)

    def __call__(self, encoded: Any, point: Point, running: np.ndarray, limits: Limits) -> Exact:
        """Return the exact points of those that have them, within the tolerances too."""
        if running.ndim == 0:
            return self._try(encoded, point, limits)
        places = np.flatnonzero(running)
        width = self.width
        if wants_width():
            # Few shapes are compiled, and all instances of a batch are one of them.
            if places.size == running.size and running.size <= width:
                return self._try(encoded, point, limits)
            width = min(width, 1 << (places.size - 1).bit_length())
        else:
            encoded, point = jax.tree.map(np.asarray, (encoded, point))

        def seek(begin: int) -> tuple[np.ndarray, Exact]:
            # Padded, so that one shape is compiled.
            chosen = places[np.minimum(np.arange(begin, begin + width), places.size - 1)]
            some = jax.tree.map(lambda a: _take(a, chosen, self.axis), encoded)
            near = jax.tree.map(lambda a: _take(a, chosen, -1), point)
            return chosen, self._try(some, near, limits)

        parts = run_within(seek, range(0, places.size, width))
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

    def _try(self, encoded: Encoded, point: Point, limits: Limits) -> Exact:
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda a: a.astype(np.float64), point)
            return _make_exact(self._seek(encoded, wide), limits)


def _take(array: Any, chosen: np.ndarray, axis: int) -> Any:
    """Return some instances of an array, where it is."""
    if isinstance(array, jax.Array):
        return jnp.take(array, chosen, axis=axis)
    return np.take(array, chosen, axis=axis)


def _make_exact(outcome: Outcome, limits: Limits) -> Exact:
    r = outcome.residuals
    good = np.asarray(outcome.exact) & (np.asarray(r.violation(limits.eps_abs, limits.eps_rel)) <= 1)
    fields = {"x": outcome.point.x, "y": outcome.point.y, "s": outcome.point.s, "objective": r.objective}
    fields |= {"primal_residual": r.primal_max, "dual_residual": r.dual_max}
    # As everywhere: an objective that overflowed is of no solution.
    good &= ~(np.isnan(np.asarray(r.objective)) | (np.asarray(r.objective) == -np.inf))
    # Without constraints there are no y and s.
    arrays = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    return Exact(good, np.where(good, outcome.changes, -1), arrays)
