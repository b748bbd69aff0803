"""The learned schedule against the best constant, at every block's end; the better is kept."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..engine.plan import make_plan
from ..schedules.schedule import Schedule
from .progressive import Learned, Progressive
from .walk import Candidate


@dataclass(frozen=True)
class Comparison:
    """Mean errors of the training instances after `steps` steps, with the schedule that is kept and the best constant.

    `measure` says which error it is.
    """

    steps: tuple[int, ...]
    schedule: tuple[float, ...]
    constant: tuple[float, ...]
    measure: str

    @property
    def gain(self) -> tuple[float, ...]:
        """How many times larger the constant's error is."""
        return tuple(c / s if s > 0 else np.inf for c, s in zip(self.constant, self.schedule, strict=True))

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` gives an equal one."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Comparison":
        """The inverse of `to_json`."""
        columns = (tuple(fields[name]) for name in ("steps", "schedule", "constant"))
        return Comparison(*columns, measure=fields["measure"])

    def __str__(self) -> str:
        rows = [f"{'step':>6}  {'schedule':>9}  {'constant':>9}  {'gain':>8}  ({self.measure})"]
        table = zip(self.steps, self.schedule, self.constant, self.gain, strict=True)
        return "\n".join([*rows, *(f"{k:>6}  {s:>9.2e}  {c:>9.2e}  {g:>8.3g}" for k, s, c, g in table)])


def _has_factors(learner: Progressive, candidate: Candidate) -> bool:
    """Whether a solver can be made of it: in single precision large penalties make linear systems singular."""
    family = learner.task.family
    if family.dtype == np.float64:
        return True
    try:
        make_plan(learner.task.algorithm, family, candidate.schedule(learner.names, False))
    except ValueError:
        return False
    return True


def compare(learner: Progressive, parts: list[Learned], warm: bool) -> tuple[Schedule, Schedule, Comparison, str]:
    """The schedule to keep, the best constant, how they compare, and in words what is kept.

    Kept is the best on average of the learned schedules that are at least as good as the constant at every block's end:
    all blocks with their steady state, or the first so many blocks and then the constant.
    """
    names, walk = learner.names, learner.walk
    assert walk is not None, "all parts come before the comparison"
    constant, blocks = walk.constant, walk.learned.blocks
    if not _has_factors(learner, constant):
        # Its linear systems are singular in this precision: the package's own values are what is left.
        usual = {h.name: np.array([h.default]) for h in learner.hyperparameters}
        constant = Candidate("the defaults", [], usual)
    limits = walk.errors(constant)
    candidates = [walk.learned]
    joint = next((part.theta for part in parts if part.kind == "joint"), None)
    if joint is not None:
        split = {n: np.split(joint[n], np.cumsum([len(b[n]) for b in blocks])) for n in names}
        pieces = [{n: split[n][i] for n in names} for i in range(len(blocks))]
        steady = {n: split[n][-1] for n in names}
        candidates.append(Candidate("the learned schedule, all blocks together", pieces, steady))

    def is_good(candidate: Candidate) -> bool:
        return bool(np.all(walk.errors(candidate) <= limits)) and _has_factors(learner, candidate)

    good = [c for c in candidates if is_good(c)]
    if not good:
        text = f"the first {{}} of {len(blocks)} learned blocks, then {constant.name}"
        shorter = (Candidate(text.format(j), blocks[:j], constant.steady) for j in range(len(blocks), 0, -1))
        good = [next((c for c in shorter if is_good(c)), constant)]
    kept = min(good, key=lambda c: float(np.mean(walk.errors(c))))
    steps = tuple(int(k) for k in np.cumsum(walk.lengths))
    means = [tuple(float(v) for v in np.exp(walk.errors(c) / 2)) for c in (kept, constant)]
    comparison = Comparison(steps, *means, measure=learner.task.algorithm.measure(learner.task.optimum))
    return kept.schedule(names, warm), constant.schedule(names, False), comparison, kept.name
