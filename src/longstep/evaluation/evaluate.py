"""How good a method is: its errors on the instances of a split, iteration by iteration."""

import errno
import functools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from typing_extensions import override

from .._util import memory
from .._util.hashing import content_hash
from .._util.plain import Json, make_plain
from .._util.progress import Bar
from .._util.text import describe_bytes
from .._util.versions import versions
from ..data.dataset import Split
from ..data.optima import Optima
from ..engine.history import History
from ..families.base import Family
from ..families.composite import Composite
from ..families.smooth import Differentiable
from .method import Method

# From a run and what is known of the optima to errors (N, K + 1).
ErrorMeasure: TypeAlias = Callable[[History, Optima | None], np.ndarray]
Metric: TypeAlias = str | ErrorMeasure

# Geometric means see nothing below this.
FLOOR = 1e-16
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
# Errors of more bytes than this are kept in a file.
_IN_MEMORY = 256 * 2**20
# Instances whose time is measured.
_TIMED = 512
# Coincidences with training that are as rare as this among so many random choices are no chance.
_RARE = 1e-3
_CHOICES = 10_000


def _measure_suboptimality(history: History, optima: Optima | None) -> np.ndarray:
    assert optima is not None
    return np.maximum(history.objective - np.asarray(optima.value)[:, None], 0)


METRICS: dict[str, tuple[str, ErrorMeasure]] = {
    "suboptimality": ("f − f*", _measure_suboptimality),
    "residual": ("max(primal, dual) residual, 2-norm", lambda h, _: np.maximum(h.primal, h.dual)),
    "residual_max": ("max(primal, dual) residual, ∞-norm", lambda h, _: np.maximum(h.primal_max, h.dual_max)),
    "primal": ("primal residual, 2-norm", lambda h, _: np.asarray(h.primal)),
    "dual": ("dual residual, 2-norm", lambda h, _: np.asarray(h.dual)),
    "gap": ("duality gap", lambda h, _: np.asarray(h.gap)),
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The errors of one method on one split: `values` (N, K + 1), column k after k iterations, and what they come to.

    An error that is not a number counts as infinite: no instance is ever dropped. `safeguarded` (N,) tells where the
    safeguard acted, `seconds` is the wall-clock time of all K iterations per instance, None where it was not measured.
    `trained` is how many of the instances the method was trained on. `method_hash`, `data_hash` and `versions` say what
    was evaluated, on what and with what.
    """

    name: str
    split: str
    metric: str
    measure: str
    values: np.ndarray
    safeguarded: np.ndarray
    seconds: float | None
    trained: int
    method_hash: str
    data_hash: str
    versions: dict[str, str]

    def __len__(self) -> int:
        return self.values.shape[0]

    @property
    def iterations(self) -> int:
        """K."""
        return self.values.shape[1] - 1

    @functools.cached_property
    def geometric_mean(self) -> np.ndarray:
        """(K + 1,): exp of the mean logarithm, errors below 1e-16 counted as that."""
        return self._reduce(lambda v: np.exp(np.mean(np.log(np.maximum(v, FLOOR)))))

    @functools.cached_property
    def maximum(self) -> np.ndarray:
        """(K + 1,): the worst instance."""
        return self._reduce(np.max)

    @property
    def median(self) -> np.ndarray:
        """(K + 1,)."""
        return self.quantile(0.5)

    def quantile(self, level: float) -> np.ndarray:
        """Return (K + 1,): the smallest error that at least this fraction of the instances does not exceed."""
        if not 0 <= level <= 1:
            raise ValueError(f"a quantile's level lies in [0, 1], got {level}")
        return self._reduce(lambda v: np.quantile(v, level, method="inverted_cdf"))

    def _reduce(self, statistic: Callable[[np.ndarray], float]) -> np.ndarray:
        """Return a statistic of the errors after each iteration."""
        # One iteration at a time: the errors may be larger than memory.
        return np.array([float(statistic(np.asarray(column))) for column in self.values.T])

    def reached(self, tolerance: float, curve: np.ndarray | None = None) -> tuple[int | None, int | None]:
        """Return the first k at which a curve (the geometric mean) meets the tolerance, and from which on it does.

        None where it never is.
        """
        if curve is None:
            curve = self.geometric_mean
        below = np.flatnonzero(curve <= tolerance)
        above = np.flatnonzero(~(curve <= tolerance))
        first = None
        if below.size:
            first = int(below[0])
        stays: int | None = 0
        if above.size:
            stays = int(above[-1]) + 1
        if stays == len(curve):
            stays = None
        return first, stays

    def to_json(self, tolerances: Iterable[float] = TOLERANCES) -> dict[str, Json]:
        """Return everything but the errors of single instances, as plain data: the curves and the counts."""
        curves = {"geometric mean": self.geometric_mean, "median": self.median, "maximum": self.maximum}
        curves |= {f"{100 * q:g}% quantile": self.quantile(q) for q in (0.95, 0.99)}
        return {
            "method": self.name,
            "split": self.split,
            "instances": len(self),
            "iterations": self.iterations,
            "metric": self.metric,
            "measure": self.measure,
            "curves": make_plain(curves),
            "reached": {f"{t:g}": self.reached(t) for t in tolerances},
            "safeguarded": int(self.safeguarded.sum()),
            "trained": self.trained,
            "seconds": self.seconds,
            "method_hash": self.method_hash,
            "data_hash": self.data_hash,
            "versions": self.versions,
        }

    @override
    def __repr__(self) -> str:
        last = self.iterations
        return (
            f"Evaluation({self.name}, {len(self)} instances of {self.split!r}: after {last} iterations {self.measure} "
            f"{self.geometric_mean[last]:.1e} (geometric mean), {self.maximum[last]:.1e} (worst), "
            f"{int(self.safeguarded.sum())} safeguarded)"
        )


def evaluate(
    method: Method,
    split: Split,
    iterations: int,
    *,
    metric: Metric | None = None,
    name: str | None = None,
    timed: bool = True,
    chunk: int = 512,
    progress: bool = False,
) -> Evaluation:
    """Run a method on every instance of a split and measure it after each iteration.

    `method` is a `Solver` or anything else with its `run`: all of `longstep.research.baselines`. `metric` is
    `suboptimality` (needs optima), `residual` (2-norm), `residual_max` (∞-norm), `primal`, `dual`, `gap`, or a function
    of a History and the Optima that gives an array (N, K + 1). By default it is the suboptimality without constraints
    (the residual where optima are not known), and the residual with them. Column k is the iterate after k applications
    of the step, for every method alike.

    Instances run `chunk` at a time, so that working memory does not grow with their number; errors that would take more
    than 256 MiB are kept in a temporary file. The time per instance is that of a batch of up to 512 instances, without
    recording. Instances that the method was trained on say nothing about others: outside a split named train or
    selection they are warned of, and tables tell their number.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver, evaluate
    >>> family = Quadratic(np.diag([1.0, 2.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"test": 30}, cache=False, progress=False)
    >>> evaluation = evaluate(Solver(family), data.test, 20)
    >>> evaluation.values.shape, evaluation.reached(1e-6)
    ((30, 21), (6, 6))
    """
    check_family(method.family, split)
    if iterations < 0:
        raise ValueError(f"the number of iterations must not be negative, got {iterations}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    count = len(split)
    trained = find_trained(method, split)
    if trained and split.name not in ("train", "selection"):
        warnings.warn(
            f"{len(trained)} of the {count} instances of {split.name!r} were used in training (the first is number "
            f"{trained[0]}): errors on them say nothing about unseen ones",
            stacklevel=2,
        )
    if metric is None:
        metric = default_metric(split)
    label, measure, function = resolve_metric(metric, split)
    width = -(-count // -(-count // chunk))
    # Three residuals and an objective for every instance of a chunk, at every iterate.
    need = 32 * (iterations + 1) * width
    memory.require(need, f"an evaluation of {width} instances over {iterations} iterations", "Take fewer iterations")
    # Iterations on the leading axis: statistics take one after the other.
    values = _allocate((iterations + 1, count))
    safe = np.zeros(count, bool)
    with Bar(f"evaluating {name or method.name}", count, progress) as advance:
        for begin in range(0, count, width):
            # Chunks of one width: the last is padded with its last instance, so that nothing is compiled twice.
            index = np.minimum(np.arange(begin, begin + width), count - 1)
            kept = min(width, count - begin)
            history = method.run(split.family.select(split.parameters, index), iterations)
            optima = None
            if split.optima is not None:
                optima = split.optima.select(index)
            errors = np.asarray(function(history, optima), np.float64)
            if errors.shape != (width, iterations + 1):
                raise ValueError(f"the metric must give an array {(width, iterations + 1)}, got {errors.shape}")
            errors = np.where(np.isnan(errors), np.inf, errors)
            values[:, begin : begin + kept] = errors[:kept].T
            safe[begin : begin + kept] = history.safeguarded[:kept]
            advance(kept)
    seconds = None
    if timed and iterations:
        some = split.family.select(split.parameters, np.arange(min(count, _TIMED)))
        seconds = float(np.mean(method.seconds(some, iterations)))
    return Evaluation(
        name=name or method.name,
        split=split.name,
        metric=label,
        measure=measure,
        values=values.T,
        safeguarded=safe,
        seconds=seconds,
        trained=len(trained),
        method_hash=method.content_hash(),
        data_hash=split.content_hash(),
        versions=versions(),
    )


def find_trained(method: Method, split: Split) -> list[int]:
    """Return the numbers of the instances of a split that the method was trained on.

    Independent draws may coincide, of rounded numbers say: where the split is known to be independent, coincidences
    that chance may have brought about prove nothing.
    """
    record = getattr(method, "record", None) or {}
    trained = list(record.get("instance_hashes", ()))
    if not trained:
        return []
    known = set(trained)
    hashes = split.instance_hashes()
    found = [k for k, each in enumerate(hashes) if each in known]
    if found and split.independent and _may_be_chance(trained, hashes, len(found)):
        return []
    return found


def _may_be_chance(trained: Sequence[str], hashes: Sequence[str], found: int) -> bool:
    """Tell whether so many instances of a split may be among those that were trained on by chance.

    If all were drawn alike, each choice of as many among all of them might as well have been the training instances.
    So a value that repeats itself is expected in both, and copies are not: of honest draws one case in a thousand
    fails, whatever their distribution. Of a dozen copies among a dozen nothing can be told.
    """
    _, numbers, counts = np.unique([*trained, *hashes], return_inverse=True, return_counts=True)
    rng = np.random.default_rng(0)
    as_many = 0
    for _ in range(_CHOICES):
        chosen = rng.choice(len(numbers), len(trained), replace=False, shuffle=False)
        values, inside = np.unique(numbers[chosen], return_counts=True)
        as_many += int(np.sum(counts[values] - inside)) >= found
        if 1 + as_many > _RARE * (1 + _CHOICES):
            return True
    return False


def default_metric(split: Split) -> str:
    """Return the usual metric: the suboptimality without constraints where optima are known, else the residual."""
    unconstrained = isinstance(split.family, Differentiable | Composite)
    if unconstrained and split.optima is not None:
        return "suboptimality"
    return "residual"


def resolve_metric(metric: Metric, split: Split) -> tuple[str, str, ErrorMeasure]:
    """Return a metric's name, what it measures in words, and its function."""
    if callable(metric):
        name = getattr(metric, "__name__", "a function of the user")
        return f"{name} ({content_hash(metric)[:12]})", name, metric
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)} or a function, got {metric!r}")
    if metric == "suboptimality" and split.optima is None:
        raise ValueError(
            f"suboptimality needs optima, and {split!r} has none. Make them with Dataset.sample(…, references=True), "
            'or use metric="residual"'
        )
    measure, function = METRICS[metric]
    return metric, measure, function


def check_family(family: Family, split: Split) -> None:
    """Refuse data of another problem; precision and equilibration may differ."""
    if not isinstance(split, Split):
        raise TypeError(f"data comes as a Split, such as dataset.test, got {type(split).__name__}")
    if family is not split.family and family.problem_hash() != split.family.problem_hash():
        raise ValueError(f"{split!r} is of another problem than the method solves")


def _allocate(shape: tuple[int, int]) -> np.ndarray:
    if 8 * shape[0] * shape[1] <= _IN_MEMORY:
        return np.empty(shape)
    size = 8 * shape[0] * shape[1]
    try:
        with tempfile.TemporaryFile(prefix="longstep-") as file:
            _reserve(file.fileno(), size)
            # The file has no name; it goes with the array.
            return np.memmap(file, np.float64, "w+", shape=shape)
    except OSError as error:
        raise MemoryError(
            f"the errors of {shape[1]} instances over {shape[0] - 1} iterations need {describe_bytes(size)} of "
            f"temporary disk ({error.strerror or error}). Take fewer iterations or fewer instances, make room, or set "
            "TMPDIR to a folder with more"
        ) from error


def _reserve(file: int, size: int) -> None:
    """Take the bytes of a file from its disk now: where they are missing later, a write to the map ends the process."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        # Some file systems cannot; there the map is as it was.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
