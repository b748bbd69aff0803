"""What the six experiments share: sizes, data, trainings, evaluations, the certificate, each kept in a part of its own.

An experiment is a subclass in the file of its problem. It says what the instances are, which trainings and methods
there are, and which pictures; everything else, and every loop, is the library's.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import PyTree
from typing_extensions import Unpack

from longstep import (
    Certificate,
    Dataset,
    Evaluation,
    Gaussian,
    Schedule,
    Smooth,
    Solver,
    Training,
    certify,
    evaluate,
    solve_references,
    train,
)

from ..._util.plain import Json
from ...algorithms.registry import default_algorithm
from ...data.dataset import Split, draw
from ...data.optima import Optima
from ...evaluation.evaluate import METRICS
from ...evaluation.method import Method
from ...families.base import Family
from ...families.parameter_range import Seen
from . import methods
from .methods import Entry, Extent, NetworkOptions
from .parts import PartStore, StoredPart
from .sizes import Choices, Size
from .watched import Watched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Family)


@dataclass(frozen=True, eq=False)
class Result:
    """One method on test instances: its errors, its two residuals where there are constraints, points for a picture.

    `made` tells of its making: seconds, and for networks the training instances and the number of weights.
    """

    id: str
    evaluation: Evaluation
    primal: Evaluation | None
    dual: Evaluation | None
    points: np.ndarray | None
    made: dict[str, Any]

    @property
    def diverging(self) -> int:
        """Instances that are not finite, or worse than at the start, after the last iteration."""
        values = self.evaluation.values
        return int(np.sum(~(values[:, -1] <= np.maximum(values[:, 0], 1e-12))))


# What is kept of an evaluation besides its errors.
_EVALUATED = ("split", "metric", "measure", "trained", "method_hash", "data_hash", "versions")


class Experiment(ABC, Generic[F]):
    """One published experiment at one size. Parts that are there already are not computed again."""

    name: ClassVar[str]
    title: ClassVar[str]
    sizes: ClassVar[Mapping[str, Size]]
    # Splits whose optima the loss or the metric needs.
    references: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    # The relative KKT error that these may have.
    accuracy: ClassVar[float] = 1e-8
    iid: ClassVar[bool] = True
    # Iterations at which a table of its own has the 95% quantile of all methods.
    tail_at: ClassVar[tuple[int, ...]] = ()
    # Test instances and iterations of which points are kept for a picture.
    pictured: ClassVar[tuple[int, int] | None] = None

    def __init__(self, options: Choices, parts: PartStore):
        if options.size not in self.sizes:
            raise ValueError(f"sizes are {', '.join(self.sizes)}, got {options.size!r}")
        self.options = options
        self.parts = parts
        self.size = self.sizes[options.size]
        self._trainings: dict[str, Training] = {}

    # What a subclass says.

    @cached_property
    @abstractmethod
    def problem(self) -> Any:
        """The problem at this size; most have a `family` and a `sample`."""

    @property
    def family(self) -> F:
        """The family."""
        return self.problem.family

    @abstractmethod
    def train_main(self) -> Training:
        """Return the training whose schedule, solver and certificate are written."""

    @abstractmethod
    def list_entries(self) -> list[Entry]:
        """Return all methods, the main one first; its id is `learned`."""

    def draw_parameters(self) -> dict[str, PyTree]:
        """Return the parameters of every split."""
        return draw(self.problem.sample, self.counts, self.options.seed)

    def list_notes(self) -> list[str]:
        """Return what else is to be said of the data."""
        return []

    def draw_pictures(self, results: list[Result]) -> "dict[str, Figure]":
        """Return pictures of this experiment alone, by name."""
        return {}

    def list_others(self) -> dict[str, Schedule]:
        """Return schedules to draw beside the learned one."""
        return {}

    def train_drawn(self) -> Training:
        """Return the training whose schedule is drawn."""
        return self.train_main()

    # What follows from it.

    @property
    def counts(self) -> dict[str, int]:
        """How many instances each split has."""
        size = self.size
        train = max(size.train, size.more, size.neighbours, *size.networks)
        counts = {"train": train, "validation": size.validation, "test": size.test}
        if not self.iid:
            del counts["validation"]
        return {name: count for name, count in counts.items() if count}

    @cached_property
    def data(self) -> Dataset:
        """All splits, with optima where they are needed."""
        return Dataset(
            Split(name, self.family, values, self._find_optima(name, values))
            for name, values in self.draw_parameters().items()
        )

    def _find_optima(self, name: str, parameters: PyTree) -> Optima | None:
        """Return the optima of a split, kept as a part; None where nothing needs them."""
        if name not in self.references:
            return None

        def make() -> StoredPart:
            found = self.find_optima(parameters)
            return {key: value for key, value in vars(found).items() if value is not None}, {}

        depends = (self.family_hash, parameters, self.accuracy)
        arrays, _ = self.parts.get(f"optima-{name}", depends, make)
        return Optima(arrays["x"], arrays.get("y"), arrays.get("s"), arrays["value"], arrays["error"])

    def find_optima(self, parameters: PyTree) -> Optima:
        """Return the library's reference optima; a family with a faster way of its own takes that."""
        jobs = -1
        if self.family.n <= 200:
            # Workers take seconds to begin: small problems are done by then.
            jobs = 1
        return solve_references(
            self.family,
            parameters,
            accuracy=self.accuracy,
            cache=self.options.cache,
            progress=self.options.progress,
            jobs=jobs,
        )

    @property
    def trained_on(self) -> Split:
        """The instances that schedules are learned from."""
        return self.take_first(self.size.train)

    def take_first(self, count: int) -> Split:
        """Return the first training instances."""
        return self.data.train.select(range(count))

    @cached_property
    def family_hash(self) -> str:
        """The family's content hash: of large matrices, and asked for often."""
        return self.family.content_hash()

    def learn(self, name: str, data: "Split | Gaussian | None" = None, **options: Any) -> Training:
        """Train with the settings of this size, kept as a part; return the training."""
        if name not in self._trainings:
            self._trainings[name] = self._learn(name, data, options)
        return self._trainings[name]

    def _learn(self, name: str, data: "Split | Gaussian | None", options: dict[str, Any]) -> Training:
        source = data
        if source is None:
            source = self.trained_on
        size = self.size
        options = {"horizon": size.horizon, "block": size.block, "seed": self.options.seed, **size.training, **options}
        depends = (self.family_hash, _identify(source), {key: repr(value) for key, value in options.items()})

        def make() -> StoredPart:
            found = train(self.family, source, cache=self.options.cache, progress=self.options.progress, **options)
            return {}, found.to_json()

        found = self.parts.get(f"training-{name}", depends, make)[1]
        seen = None
        # The range of an image's pixels tells nobody anything.
        if isinstance(source, Split) and not isinstance(self.family, Smooth):
            seen = Seen.of(self.family.encode(source.parameters))
        algorithm = options.get("algorithm") or default_algorithm(self.family)
        return Training.from_json(found, algorithm, seen)

    def run(self, entry: Entry) -> Result:
        """Run a method on its test instances, kept as a part; return the result."""
        split = self.data.test.select(range(min(entry.instances or len(self.data.test), len(self.data.test))))
        steps = entry.steps or self.size.steps
        depends = (self.family_hash, split.content_hash(), steps, self.size.timed, self.pictured or (0, 0))
        depends = (*depends, entry.id, dict(entry.settings()))
        arrays, record = self.parts.get(f"method-{entry.id}", depends, lambda: self._evaluate(entry, split, steps))
        fields = {key: record[key] for key in _EVALUATED}
        time = record["seconds_per_instance"]
        safe = arrays["safeguarded"]
        found = Evaluation(entry.name, values=arrays["values"], safeguarded=safe, seconds=time, **fields)
        sides = {
            side: replace(found, metric=side, measure=METRICS[side][0], values=arrays[side])
            for side in ("primal", "dual")
            if side in arrays
        }
        return Result(entry.id, found, sides.get("primal"), sides.get("dual"), arrays.get("points"), record["made"])

    def _evaluate(self, entry: Entry, split: Split, steps: int) -> StoredPart:
        begin = perf_counter()
        method = entry.make()
        made = {"seconds": perf_counter() - begin, **_pick_record(method)}
        watched = Watched(method, self.family.m > 0)
        with _redirect_c_output():
            found = evaluate(
                watched,
                split,
                steps,
                name=entry.name,
                timed=False,
                progress=self.options.progress,
                chunk=self.size.chunk,
            )
            seconds = self._measure_seconds(method, split, steps)
        arrays = {"values": found.values, "safeguarded": found.safeguarded, **watched.sides(len(split))}
        if self.pictured is not None:
            count, after = self.pictured
            few = split.family.select(split.parameters, np.arange(min(count, len(split))))
            shown = methods.find_points(method, few, after)
            if shown is not None:
                arrays["points"] = np.asarray(shown, np.float64)
        record = {key: getattr(found, key) for key in _EVALUATED}
        return arrays, {**record, "seconds_per_instance": seconds, "made": made}

    def _measure_seconds(self, method: Method, split: Split, steps: int) -> float | None:
        """Return the seconds of one instance in a batch; None for toy problems, of which they say nothing."""
        count = min(len(split), self.size.timed)
        if not count:
            return None
        return float(np.mean(method.seconds(split.family.select(split.parameters, np.arange(count)), steps)))

    @cached_property
    def solver(self) -> Solver:
        """The main learned solver."""
        return Solver(self.family, self.train_main())

    def certify_main(self) -> Certificate | None:
        """Return bounds on the 97.5% and the 2.5% quantile; None where instances are not i.i.d."""
        if not self.iid:
            return None
        counts = self.size.certified
        validation = self.data.validation
        depends = (self.family_hash, validation.content_hash(), self.train_main().schedule.to_json(), counts)

        def make() -> StoredPart:
            found = certify(self.solver, validation, counts, progress=self.options.progress)
            return {}, {"certificate": found.to_json()}

        return Certificate.from_json(self.parts.get("certificate", depends, make)[1]["certificate"])

    def evaluate_main(self, results: list[Result]) -> Evaluation:
        """Evaluate the main method on the whole test split, for as many iterations as are certified."""
        main = results[0].evaluation
        if len(main) == len(self.data.test):
            return main
        entry = next(e for e in self.list_entries() if e.id == "learned")
        whole = replace(entry, id="learned-whole", instances=None, steps=max(self.size.certified))
        return self.run(whole).evaluation

    def list_networks(self, training: Training, **limits: Unpack[Extent]) -> list[Entry]:
        """Return the nearest neighbour, L2WS and LM on the best constant of a training."""
        size = self.size
        family = self.family
        shared: NetworkOptions = {"hidden": size.hidden, "seed": self.options.seed, "progress": self.options.progress}
        found = [methods.make_neighbour(family, training, self.take_first(size.neighbours), instances=size.few)]
        for count in size.networks:
            options: NetworkOptions = {**shared, "iterations": size.l2ws, "batch": 100}
            split = self.take_first(count)
            found.append(methods.make_warm_started(family, training, split, options, instances=size.few))
        slow: Extent = {"instances": size.slow, **limits}
        for count in size.networks:
            options = {**shared, "iterations": size.lm}
            found.append(methods.make_learned_metric(family, training, self.take_first(count), options, **slow))
        return found


def _identify(source: Split | Gaussian) -> object:
    """Return what tells a split, or a distribution, from others."""
    if isinstance(source, Split):
        return source.content_hash()
    return source.mean, source.covariance


@contextmanager
def _redirect_c_output() -> Iterator[None]:
    """Send to stderr what C libraries print (scs does where a problem is solved too well): stdout is for results."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _pick_record(method: Method) -> dict[str, Json]:
    """Return what the record of a network, or of a warm start, tells."""
    record: Mapping[str, Json] = getattr(method, "record", None) or {}
    known = {key: record[key] for key in ("instances", "weights", "iterations") if key in record}
    if "seconds" in record:
        known["trained"] = record["seconds"]
    return known
