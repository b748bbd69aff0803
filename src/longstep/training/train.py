"""`train`: from a family and instances to a schedule, with what was done and how good it is."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from .._util import storage
from .._util.hashing import content_hash
from .._util.progress import Bar
from .._util.threads import one_blas_thread
from .._util.versions import versions
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..data.dataset import Split
from ..families.base import Family
from ..families.parameter_range import Seen
from ..schedules.domain import Hyperparameter
from ..schedules.lengths import block_lengths
from ..schedules.schedule import Schedule, check_schedule
from .checkpoint import Checkpoint
from .closed_form.spectrum import Gaussian
from .closed_form.train import closed_form
from .compare import Comparison, compare
from .instances import Instances, Start, gather, training_split
from .losses import Loss, resolve_loss
from .progressive import Learned, Progressive, Settings

# Part of every cache key: raise it when the same settings give another schedule.
_VERSION = 4


@dataclass(frozen=True)
class Training:
    """What `train` found: the schedule to use, the best constant, and how the two compare on the training instances.

    `kept` says in words what the schedule is: the learned one, a part of it, or the best constant, whichever is better
    at every block's end. `record` is plain JSON: losses, evaluations and times of every part, sizes, settings, seed,
    versions, and the hashes of family and data. `Solver(family, training)` solves with it and keeps the record and
    what was `seen` of the parameters.
    """

    schedule: Schedule
    constant: Schedule
    algorithm: Algorithm
    comparison: Comparison
    kept: str
    record: dict[str, Any]
    seen: Seen | None = None

    @property
    def seconds(self) -> float:
        """How long it took, the search for the constant included; of a resumed training, all its parts together."""
        return float(self.record["seconds"])

    def to_json(self) -> dict[str, Any]:
        """All of it but the algorithm and what was seen, as plain JSON."""
        return {"schedule": self.schedule.to_json(), "constant": self.constant.to_json(), "record": self.record}

    @staticmethod
    def from_json(document: dict[str, Any], algorithm: Algorithm, seen: Seen | None) -> "Training":
        """The inverse of `to_json`."""
        record = document["record"]
        comparison = Comparison.from_json(record["comparison"])
        schedule, constant = (Schedule.from_json(document[name]) for name in ("schedule", "constant"))
        return Training(schedule, constant, algorithm, comparison, record["kept"], record, seen)

    def __repr__(self) -> str:
        return f"Training: {self.kept}, {len(self.schedule)} steps, {self.seconds:.1f} s\n{self.comparison}"


def train(
    family: Family,
    data: Any,
    *,
    algorithm: Algorithm | None = None,
    horizon: int = 50,
    block: int | Sequence[int] = 10,
    loss: "str | Loss | None" = None,
    start: Start = None,
    learn: Iterable[str] | None = None,
    fixed: Mapping[str, float] | None = None,
    factorizations: int | None = None,
    optimizer: str = "lbfgs",
    iterations: int | None = None,
    starts: int | None = None,
    candidates: int | None = None,
    joint: bool | None = None,
    seed: int = 0,
    precision: str | None = None,
    memory_limit: float | None = None,
    cache: "str | Path | bool" = True,
    callback: Callable[[dict[str, Any]], None] | None = None,
    progress: bool = True,
) -> Training:
    """Learn a schedule of `horizon` steps and a steady state for a family from training instances.

    `data` is a Dataset (its split `train` is used), a Split, or bare parameters; for quadratics also a `Gaussian`,
    which needs no instances. Quadratics are solved in closed form, and so is gradient descent in blocks of one step;
    everything else is learned block by block: the best constant first, then `block` steps at a time from where the
    last ones left each instance, then the steady state inside its convergent range, which also has to last. Longer
    blocks end lower and are of no use before their end; `block=(10, 20)` learns 10 steps, then 20 at a time.

    `loss` is `distance` (needs optima), `metric` (needs none for constrained problems), `both`, or a `Loss`. By default
    it is `metric`. `start` is where solves will begin: zero, `"previous"` for the optimum of the instance before
    (a controller's warm start), or a function from the parameters to a Point (leading axis: instances); the schedule is
    then marked `warm`. `learn` names the hyperparameters to learn, the others stay at the best constant; `fixed` gives
    some a value. `factorizations` limits how many distinct ones the schedule needs, the steady state's included.

    `optimizer` is `lbfgs` or `adam`, with so many `iterations` for a block, from so many `starts`; `candidates` is the
    size of the search for the constant. `joint` adds a pass over all blocks together; by default it is made only where
    the constant is ahead at some block's end. `memory_limit` in bytes splits the instances of a gradient. `precision`
    trains in another precision than the family's.

    After every part a checkpoint is written into `cache` (True, False or a folder, as for `solve_references`): the same
    call goes on where an interrupted one was and ends with the same schedule, bit for bit; a finished one is read from
    there. `callback` gets a dict (part, loss, seconds) at every new best loss.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, train
    >>> family = Quadratic(np.diag([1.0, 2.0, 10.0]), parameter=Affine(q=np.eye(3)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=3), {"train": 5}, cache=False, progress=False)
    >>> trained = train(family, data, horizon=3, block=3, cache=False, progress=False)
    >>> np.sort(1 / trained.schedule.step).round(6)  # three steps solve a problem with three eigenvalues
    array([ 1.,  2., 10.])
    """
    begin = perf_counter()
    algorithm = default_algorithm(family) if algorithm is None else algorithm
    algorithm.check_family(family)
    hyperparameters = algorithm.hyperparameters(family)
    default_iterations, default_starts = _effort(algorithm, family)
    if optimizer not in ("lbfgs", "adam"):
        raise ValueError(f"optimizer must be 'lbfgs' or 'adam', got {optimizer!r}")
    split = None if isinstance(data, Gaussian) else training_split(family, data)
    seen = None if split is None else Seen.of(family.encode(split.parameters))
    held = _held(hyperparameters, fixed or {})
    settings = Settings(
        horizon=_positive("horizon", horizon),
        lengths=block_lengths(horizon, block),
        block=int(np.ravel(block)[0]),
        loss=resolve_loss("metric" if loss is None else loss, 0 if split is None else len(split)),
        optimizer=optimizer,
        iterations=_positive("iterations", default_iterations if iterations is None else iterations),
        starts=_positive("starts", default_starts if starts is None else starts),
        candidates=_positive("candidates", 60 if candidates is None else candidates),
        learn=_learned(hyperparameters, learn, held),
        fixed=held,
        factorizations=None if factorizations is None else _positive("factorizations", factorizations),
        joint=joint,
        seed=int(seed),
    )
    about = _About(family, algorithm, settings)
    with one_blas_thread():
        exact = closed_form(family, algorithm, data if split is None else split, start, settings)
    if exact is not None:
        schedule, constant, comparison, kept = exact
        record = about.record([], perf_counter() - begin, "" if split is None else split.content_hash(), "closed form")
        record |= _trained_on(split)
        return about.training(schedule, constant, comparison, kept, record, seen)
    if split is None:
        raise TypeError(
            f"training {type(algorithm).__name__} on a {type(family).__name__} family needs instances: "
            "a Gaussian is enough for gradient descent on quadratics only"
        )
    work = family if precision is None else family.astype(precision)
    instances = gather(work, algorithm, split, start, settings.loss)
    key = about.key(instances, str(work.dtype), memory_limit)
    folder = storage.cache_folder(cache, "training")
    checkpoint = Checkpoint(None if folder is None else folder / f"{key}.training")
    if checkpoint.result is not None:
        return Training.from_json(checkpoint.result, algorithm, seen)
    learner = Progressive(instances.task, instances.start, instances.optimum, settings, memory_limit)
    with one_blas_thread(), Bar("training", len(settings.lengths) + 2 + bool(joint), progress) as advance:

        def report(part: str, value: float) -> None:
            advance(0, f"training: {part}, loss {value:.2f}")
            if callback is not None:
                callback({"part": part, "loss": value, "seconds": perf_counter() - begin})

        parts, known = [], len(checkpoint.parts)
        for part in learner.parts(checkpoint.parts, report):
            parts.append(part)
            if len(parts) > known:
                checkpoint.append(part)
            advance(1)
        advance(0, "training: comparing with the best constant")
        found = compare(learner, parts, warm=instances.start is not None)
    before = sum(part.seconds for part in parts[:known])
    record = about.record(parts, before + perf_counter() - begin, instances.data_hash, "progressive")
    record |= _trained_on(split)
    record |= {"instances": instances.count, "dtype": str(work.dtype), "gradient_pieces": learner.memory_pieces}
    training = about.training(*found, record, seen)
    checkpoint.finish(training.to_json())
    return training


def _trained_on(split: Split | None) -> dict[str, list[str]]:
    """The instances that were trained on, by their hashes: certificates refuse them."""
    return {"instance_hashes": [] if split is None else split.instance_hashes()}


class _About:
    """What a training is of: to name it and to record it."""

    def __init__(self, family: Family, algorithm: Algorithm, settings: Settings):
        self.family, self.algorithm, self.settings = family, algorithm, settings
        self.versions = versions()

    def key(self, instances: Instances, dtype: str, memory_limit: float | None) -> str:
        """Equal for calls that must give the same schedule."""
        settings = json.dumps(asdict(self.settings), sort_keys=True)
        names = (*self.algorithm.identity(), dtype, memory_limit or 0.0, _VERSION, self.versions["longstep"])
        return content_hash(self.family.content_hash(), instances.data_hash, settings, names)

    def record(self, parts: list[Learned], seconds: float, data_hash: str, method: str) -> dict[str, Any]:
        """The training as plain JSON."""
        family = self.family
        return {
            "method": method,
            "algorithm": type(self.algorithm).__name__,
            "family": {"type": type(family).__name__, "n": family.n, "m": getattr(family, "m", 0)},
            "family_hash": family.content_hash(),
            "data_hash": data_hash,
            "settings": asdict(self.settings),
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
        }

    def training(
        self,
        schedule: Schedule,
        constant: Schedule,
        comparison: Comparison,
        kept: str,
        record: dict[str, Any],
        seen: Seen | None,
    ) -> Training:
        """The result, with a schedule that the solver will accept."""
        check_schedule(schedule, self.algorithm.hyperparameters(self.family), type(self.algorithm).__name__)
        record = json.loads(
            json.dumps({**record, "kept": kept, "constant": constant.steady, "comparison": comparison.to_json()})
        )
        return Training(schedule, constant, self.algorithm, comparison, kept, record, seen)


def _effort(algorithm: Algorithm, family: Family) -> tuple[int, int]:
    """Iterations for a block and starts: large factorizations make them dear, and the first ones bring the most."""
    pattern = algorithm.pattern(family)
    if pattern is None:
        return 100, 3
    if pattern.spectral:
        return 90, 4
    return (40, 2) if family.n <= 300 else (26, 1)


def _positive(name: str, value: int) -> int:
    if int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return int(value)


def _held(hyperparameters: tuple[Hyperparameter, ...], fixed: Mapping[str, float]) -> dict[str, float]:
    """The fixed values, checked."""
    known = {h.name: h for h in hyperparameters}
    for name, value in fixed.items():
        if name not in known:
            raise ValueError(f"there is no hyperparameter {name!r} to fix; there are {', '.join(known)}")
        if not known[name].steady.contains(value):
            raise ValueError(f"{name} = {value} cannot be held: it must lie in {known[name].steady.describe()}")
    return {name: float(value) for name, value in fixed.items()}


def _learned(
    hyperparameters: tuple[Hyperparameter, ...], learn: Iterable[str] | None, held: Mapping[str, float]
) -> tuple[str, ...]:
    """The names to learn, checked."""
    names = [h.name for h in hyperparameters]
    if learn is None:
        return tuple(name for name in names if name not in held)
    chosen = (learn,) if isinstance(learn, str) else tuple(learn)
    for name in chosen:
        if name not in names:
            raise ValueError(f"there is no hyperparameter {name!r} to learn; there are {', '.join(names)}")
        if name in held:
            raise ValueError(f"{name} is to be learned and fixed at once")
    if not chosen:
        raise ValueError("learn names no hyperparameter; leave it out to learn all")
    return chosen
