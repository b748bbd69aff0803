"""What `train` returns, and what is recorded of it: settings, recipe, losses, versions, hashes."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from typing_extensions import override

from .._util.hashing import content_hash
from .._util.storage import JsonObject
from .._util.versions import versions
from ..algorithms.base import Algorithm
from ..data.dataset import Split
from ..engine.start import LearnedStart
from ..families.base import Family
from ..families.parameter_range import Seen
from ..schedules.schedule import Schedule, check_schedule
from .instances import Instances
from .select import Choice, Comparison
from .settings import LearnedPart, Settings

# Part of every cache key: raise it when the code gives another schedule for the same settings and recipe.
_VERSION = 7


@dataclass(frozen=True)
class Training:
    """What `train` found: the schedule to use, the best constant, and how the two compare on the training instances.

    `kept` says in words what the schedule is: the learned one, a part of it, or the best constant, whichever is better
    at the blocks' ends. `record` is plain JSON: losses, evaluations and times of every part, sizes, settings, recipe,
    seed, versions, and the hashes of family and data. `start` is where solves begin, None for zero.
    `Solver(family, training)` solves with it and keeps the record and what was `seen` of the parameters.
    """

    schedule: Schedule
    constant: Schedule
    algorithm: Algorithm
    comparison: Comparison
    kept: str
    record: JsonObject
    seen: Seen | None = None
    start: LearnedStart | None = None

    @property
    def seconds(self) -> float:
        """How long it took, the search for the constant included; of a resumed training, all its parts together."""
        return float(self.record["seconds"])

    def to_json(self) -> JsonObject:
        """Return all of it but the algorithm, the start and what was seen, as plain JSON."""
        return {"schedule": self.schedule.to_json(), "constant": self.constant.to_json(), "record": self.record}

    @staticmethod
    def from_json(document: JsonObject, algorithm: Algorithm, seen: Seen | None) -> "Training":
        """Read what `to_json` gave."""
        record = document["record"]
        comparison = Comparison.from_json(record["comparison"])
        schedule = Schedule.from_json(document["schedule"])
        constant = Schedule.from_json(document["constant"])
        return Training(schedule, constant, algorithm, comparison, record["kept"], record, seen)

    @override
    def __repr__(self) -> str:
        return f"Training: {self.kept}, {len(self.schedule)} steps, {self.seconds:.1f} s\n{self.comparison}"


class About:
    """What a training is of: to name it and to record it."""

    def __init__(self, family: Family, algorithm: Algorithm, settings: Settings, split: Split | None):
        self.family = family
        self.algorithm = algorithm
        self.settings = settings
        self.split = split
        self.versions = versions()

    def key(self, instances: Instances, memory_limit: float | None) -> str:
        """Return a key, equal for calls that must give the same schedule; the recipe is one of the settings."""
        # A setting that is gone keeps its place, so that checkpoints from before are found.
        settings = json.dumps(asdict(self.settings) | {"joint": False}, sort_keys=True)
        dtype = str(instances.task.family.dtype)
        names = (*self.algorithm.identity(), dtype, memory_limit or 0.0, _VERSION, self.versions["longstep"])
        return content_hash(self.family.content_hash(), instances.data_hash, settings, names)

    @property
    def seen(self) -> Seen | None:
        """What was seen of the parameters."""
        return None if self.split is None else Seen.of(self.family.encode(self.split.parameters))

    def training(
        self,
        choice: Choice,
        method: str,
        seconds: float,
        data_hash: str,
        parts: Sequence[LearnedPart] = (),
        **more: object,
    ) -> Training:
        """Return the result and its record, with a schedule that the solver will accept."""
        check_schedule(choice.schedule, self.algorithm.hyperparameters(self.family), type(self.algorithm).__name__)
        record = self._describe(method, seconds, data_hash, parts)
        record |= {**more, "kept": choice.kept, "constant": choice.constant.steady}
        record |= {"comparison": choice.comparison.to_json()}
        return Training(
            schedule=choice.schedule,
            constant=choice.constant,
            algorithm=self.algorithm,
            comparison=choice.comparison,
            kept=choice.kept,
            record=json.loads(json.dumps(record)),
            seen=self.seen,
        )

    def _describe(self, method: str, seconds: float, data_hash: str, parts: Sequence[LearnedPart]) -> JsonObject:
        family = self.family
        settings = asdict(self.settings)
        del settings["recipe"]
        return {
            "method": method,
            "algorithm": type(self.algorithm).__name__,
            "family": {"type": type(family).__name__, "n": family.n, "m": family.m},
            "family_hash": family.content_hash(),
            "data_hash": data_hash,
            "settings": settings,
            "recipe": self.settings.recipe.to_json(),
            "seed": self.settings.seed,
            "seconds": seconds,
            "versions": self.versions,
            "parts": [
                {
                    "kind": part.kind,
                    "loss": part.loss,
                    "loss_before": part.loss_before,
                    "evaluations": part.evaluations,
                    "seconds": part.seconds,
                }
                for part in parts
            ],
            # Certificates refuse the instances that were trained on.
            "instance_hashes": [] if self.split is None else self.split.instance_hashes(),
        }
