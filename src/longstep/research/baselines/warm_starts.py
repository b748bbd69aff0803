"""Warm starts from the data: the nearest training instance's optimum, and the previous instance's."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Int, PyTree

from ..._util.hashing import content_hash
from ..._util.plain import Json
from ...data.dataset import Split
from ...data.optima import Optima
from ...engine.history import History
from ...families.base import Family
from ...families.point import Point
from ...solver import Solver
from .networks import make_features

# Pairs whose distances are computed at a time: 128 MiB of them.
_PAIRS = 1 << 24


@runtime_checkable
class ComputedStart(Protocol):
    """Where a run begins: parameters of N instances to points with a leading axis N."""

    def __call__(self, parameters: PyTree) -> Point:
        """Return the start of every instance, in the user's units."""
        ...

    def content_hash(self) -> str:
        """Return a SHA-256 of all that the starts depend on."""
        ...


@dataclass(frozen=True, eq=False)
class Started:
    """A `Method`: a solver run from a start that is computed from the parameters.

    Unless its schedule says `warm`, the solver begins in the steady state, as with every warm start. A plain function
    will do as a `ComputedStart`: it is known by its code and the data it reads. `record` may name the instances that
    the start was made from (`instance_hashes`), so that no certificate is made on them.
    """

    method: Solver
    start: ComputedStart | Callable[[PyTree], Point]
    name: str
    record: dict[str, Json] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """What it solves."""
        return self.method.family

    def run(self, parameters: PyTree, count: int) -> History:
        """Return residuals and objectives of all iterates, arrays (N, count + 1); column 0 is the computed start."""
        return self.method.run(parameters, count, warm_start=self.start(parameters))

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return wall-clock seconds (N,), with those of the start, in one batch, an equal share for each instance."""
        self._solve(parameters, count)  # compiles
        begin = time.perf_counter()
        self._solve(parameters, count)
        instances = self.family.count(parameters)
        return np.full(instances, (time.perf_counter() - begin) / instances)

    def _solve(self, parameters: PyTree, count: int) -> None:
        self.method.solve_batch(parameters, steps=count, warm_start=self.start(parameters))

    def content_hash(self) -> str:
        """Return a SHA-256 of the solver and of all that its starts depend on."""
        start = self.start.content_hash() if isinstance(self.start, ComputedStart) else content_hash(self.start)
        return content_hash("started", self.method.content_hash(), start)


def nearest_neighbour(solver: Solver, split: Split) -> Started:
    """Start at the optimum of the training instance whose parameter is nearest in the 2-norm.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver
    >>> family = Quadratic(np.diag([1.0, 2.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"train": 5}, cache=False, progress=False)
    >>> method = nearest_neighbour(Solver(family), data.train)
    >>> bool(np.all(method.run(data.train.parameters, 0).dual < 1e-8))
    True
    """
    seen: dict[str, Json] = {"instance_hashes": split.instance_hashes()}
    return Started(solver, NearestNeighbour(split), f"nearest of {len(split)} neighbours", seen)


def previous_solution(
    solver: Solver,
    split: Split,
    shift: Callable[[Point], Point] | None = None,
    sequence: np.ndarray | None = None,
) -> Started:
    """Start at the optimum of the instance before, shifted; `split` holds the instances in order, with their optima.

    `shift` maps points to points, with the instances on the leading axis: to move a horizon on by one period, say.
    What it leaves out of (x, y, s) is as for any warm start. `sequence` numbers the sequence that each instance belongs
    to; the first of every sequence starts from zero. Runs are of instances of the split, all or some.
    """
    name = "previous solution"
    if shift is not None:
        name += ", shifted"
    return Started(solver, PreviousSolution(split, shift, sequence), name)


@dataclass(frozen=True, eq=False)
class NearestNeighbour:
    """The `ComputedStart` of `nearest_neighbour`."""

    split: Split

    def __post_init__(self):
        _require_optima(self.split)

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which entries count (those that are infinite in training do not), their mean, and the centred rows."""
        rows = make_features(self.split.family, self.split.parameters)
        finite = np.asarray(np.isfinite(rows).all(axis=0))
        mean = rows[:, finite].mean(axis=0)
        return finite, mean, rows[:, finite] - mean

    def find_nearest(self, parameters: PyTree) -> Int[np.ndarray, " N"]:
        """Return the number of the nearest training instance of each."""
        finite, mean, train = self._rows
        rows = make_features(self.split.family, parameters)
        if rows.shape[1] != finite.size:
            raise ValueError(
                f"these parameters have {rows.shape[1]} entries, those of the training split {finite.size}: "
                "give both in the same form"
            )
        rows = rows[:, finite] - mean
        squares = np.sum(train**2, axis=1)
        width = max(1, _PAIRS // len(train))
        parts = [rows[i : i + width] for i in range(0, len(rows), width)]
        # ‖a − b‖² = ‖a‖² − 2a'b + ‖b‖²: one matrix product, and ‖a‖² does not matter.
        return np.concatenate([np.argmin(squares - 2 * (part @ train.T), axis=1) for part in parts])

    def __call__(self, parameters: PyTree) -> Point:
        """Return the optima of the nearest training instances."""
        return _pick(_require_optima(self.split), self.find_nearest(parameters))

    def content_hash(self) -> str:
        """Return a SHA-256 of the training instances and their optima."""
        return content_hash("nearest neighbour", self.split.content_hash(), _list_arrays(_require_optima(self.split)))


@dataclass(frozen=True, eq=False)
class PreviousSolution:
    """The `ComputedStart` of `previous_solution`."""

    split: Split
    shift: Callable[[Point], Point] | None = None
    sequence: np.ndarray | None = None

    def __post_init__(self):
        _require_optima(self.split)
        if self.sequence is not None and np.shape(self.sequence) != (len(self.split),):
            raise ValueError(
                f"sequence must number {len(self.split)} instances, got an array of shape {np.shape(self.sequence)}"
            )

    @cached_property
    def _places(self) -> dict[bytes, int]:
        places: dict[bytes, int] = {}
        for place, row in enumerate(make_features(self.split.family, self.split.parameters)):
            places.setdefault(row.tobytes(), place)
        return places

    def __call__(self, parameters: PyTree) -> Point:
        """Return the shifted optima of the instances before; zero for the first of a sequence."""
        rows = make_features(self.split.family, parameters)
        found = [self._places.get(row.tobytes()) for row in rows]
        if None in found:
            raise ValueError(
                f"instance {found.index(None)} is not in the sequence {self.split.name!r}: the solution before it is "
                "not known"
            )
        places = np.array(found, int)
        before = np.maximum(places - 1, 0)
        point = _pick(_require_optima(self.split), before)
        if self.shift is not None:
            point = self.shift(point)
        sequence = np.zeros(len(self.split))
        if self.sequence is not None:
            sequence = np.asarray(self.sequence)
        first = (places == 0) | (sequence[before] != sequence[places])

        def begin(part: Array | np.ndarray) -> np.ndarray:
            return np.where(first[:, None], 0.0, np.asarray(part))

        return point.map(begin)

    def content_hash(self) -> str:
        """Return a SHA-256 of the sequence, its optima and the shift."""
        sequence = self.sequence
        if sequence is not None:
            sequence = np.asarray(sequence)
        parts = (_list_arrays(_require_optima(self.split)), self.shift, sequence)
        return content_hash("previous solution", self.split.content_hash(), parts)


def _require_optima(split: Split) -> Optima:
    if split.optima is None:
        raise ValueError(
            f"the split {split.name!r} has no optima to start from; make it with references=True or by "
            "solve_references(family, parameters)"
        )
    return split.optima


def _pick(optima: Optima, index: Int[np.ndarray, " N"]) -> Point:
    """Return some of the optima, as points with a leading axis."""
    return Point.of(optima).map(lambda part: part[index])


def _list_arrays(optima: Optima) -> tuple[np.ndarray | None, ...]:
    return optima.x, optima.y, optima.s
