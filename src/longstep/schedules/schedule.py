"""Schedules: H step-varying values and a steady state for each hyperparameter."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from ..linalg.real import real_array, real_number
from .hyperparameter import Hyperparameter


class Schedule:
    """Named hyperparameters θ⁰ … θ^{H−1} for the first H steps, and θ^H from then on.

    `schedule.rho[3]` (or `schedule["rho"][3]`) is one value, `schedule.rho[-1]` the last step-varying one,
    `schedule.steady["rho"]` the steady state, `schedule[k]` all values of step k, the steady state from k = H on.
    Immutable, equal by value. `warm` says that the step-varying phase was made for warm starts too; otherwise a
    warm-started solve begins in the steady state. `blocks` are the lengths of the parts that were made together (by
    default one part): inside a block errors may rise, at its end they should have fallen. `Schedule({}, {})` is for
    algorithms without hyperparameters.

    `metric` is a positive vector, the same at every step, by which the penalties of single rows are multiplied: ρ of
    row i at step k is rho[k]·metric[i]. None is one for all. `fallback` are constants, without the metric, for
    instances that get on badly in the steady state; None is the algorithm's defaults.

    >>> schedule = Schedule({"step": [0.5, 2.0]}, {"step": 1.0})
    >>> len(schedule), float(schedule.step[1]), schedule[7]
    (2, 2.0, {'step': 1.0})
    >>> schedule
    Schedule(2 steps, then steady)
       k  step
       0  0.5
       1  2
      2…  1
    """

    def __init__(
        self,
        varying: Mapping[str, Iterable],
        steady: Mapping[str, float],
        *,
        warm: bool = False,
        blocks: Iterable[int] | None = None,
        metric: ArrayLike | None = None,
        fallback: Mapping[str, float] | None = None,
    ):
        self._steady = {name: real_number(name, value) for name, value in steady.items()}
        self._varying = {name: np.array(real_array(name, values)) for name, values in varying.items()}
        self.warm = bool(warm)
        if not self._steady and self._varying:
            raise ValueError("a schedule needs a steady state, for example Schedule({'step': [0.5]}, {'step': 0.1})")
        if self._varying and set(self._varying) != set(self._steady):
            raise ValueError(
                "the step-varying and the steady hyperparameters differ: "
                f"{', '.join(self._varying)} against {', '.join(self._steady)}"
            )
        lengths = {name: v.shape for name, v in self._varying.items()}
        if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
            raise ValueError(f"every hyperparameter needs one value per step, got shapes {lengths}")
        if not self._varying:
            self._varying = {name: np.zeros(0) for name in self._steady}
        self._varying = {name: self._varying[name] for name in self._steady}
        for values in self._varying.values():
            values.flags.writeable = False
        self.metric: np.ndarray | None = None
        if metric is not None:
            self.metric = np.array(real_array("the metric", metric))
            if self.metric.ndim != 1 or not (np.isfinite(self.metric) & (self.metric > 0)).all():
                raise ValueError("the metric must be a vector of positive, finite numbers")
            self.metric.flags.writeable = False
        self.fallback = None
        if fallback is not None:
            self.fallback = {name: real_number(f"the fallback of {name}", fallback[name]) for name in self._steady}
        H = len(self)
        if blocks is None:
            # All steps are one block.
            blocks = [H] * (H > 0)
        self.blocks = tuple(map(int, blocks))
        if sum(self.blocks) != H or any(b < 1 for b in self.blocks):
            raise ValueError(f"the blocks {self.blocks} must be positive and add up to the {H} step-varying steps")

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters."""
        return tuple(self._steady)

    @property
    def steady(self) -> dict[str, float]:
        """θ^H."""
        return dict(self._steady)

    @property
    def varying(self) -> dict[str, np.ndarray]:
        """θ⁰ … θ^{H−1}, by name; read-only arrays."""
        return dict(self._varying)

    def stacked(self) -> dict[str, np.ndarray]:
        """Return all H + 1 values by name, the steady state last."""
        return {name: np.append(self._varying[name], self._steady[name]) for name in self.names}

    def __len__(self) -> int:
        return len(next(iter(self._varying.values()), ()))

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["_varying"][name]
        except KeyError:
            raise AttributeError(
                f"this schedule has no {name!r}; it has {', '.join(self.__dict__.get('_steady', ()))}"
            ) from None

    @overload
    def __getitem__(self, key: str) -> np.ndarray: ...

    @overload
    def __getitem__(self, key: int) -> dict[str, float]: ...

    def __getitem__(self, key: str | int) -> np.ndarray | dict[str, float]:
        if isinstance(key, str):
            if key not in self._varying:
                raise KeyError(f"this schedule has no {key!r}; it has {', '.join(self.names)}")
            return self._varying[key]
        if not isinstance(key, int | np.integer):
            raise TypeError(f"a schedule is indexed by a name or a step, got {key!r}")
        if key < 0:
            raise IndexError("steps are numbered from 0; schedule.steady is the steady state")
        if key >= len(self):
            return self.steady
        return {name: float(values[key]) for name, values in self._varying.items()}

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Return the step-varying values, step by step."""
        return (self[k] for k in range(len(self)))

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return (
            self._steady == other._steady
            and self.warm == other.warm
            and self.blocks == other.blocks
            and _are_equal(self.metric, other.metric)
            and self.fallback == other.fallback
            and all(np.array_equal(self._varying[k], other._varying[k]) for k in self.names)
        )

    @override
    def __hash__(self) -> int:
        return hash(json.dumps(json.loads(self.to_json()), sort_keys=True))

    def to_json(self) -> str:
        """Return the schedule as JSON; `Schedule.from_json` gives an equal one."""
        varying = {name: values.tolist() for name, values in self._varying.items()}
        fields = {"varying": varying, "steady": self._steady, "warm": self.warm, "blocks": self.blocks}
        if self.metric is not None:
            fields["metric"] = self.metric.tolist()
        if self.fallback is not None:
            fields["fallback"] = self.fallback
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Return the inverse of `to_json`."""
        fields = json.loads(text)
        if not isinstance(fields["warm"], bool):
            raise ValueError(f"warm is {fields['warm']!r}, neither true nor false")
        options = {name: fields.get(name) for name in ("blocks", "metric", "fallback")}
        return Schedule(fields["varying"], fields["steady"], warm=fields["warm"], **options)

    @override
    def __repr__(self) -> str:
        names = self.names
        H = len(self)
        if not names:
            return "Schedule(no hyperparameters)"
        head = "Schedule(constant)"
        if H:
            head = f"Schedule({H} steps, then steady)"
        rows: list[tuple[str, ...]] = [("k", *names)]
        for k in range(H):
            if H <= 12 or k < 6 or k >= H - 5:
                rows.append((str(k), *(f"{self[k][n]:.4g}" for n in names)))
            elif k == 6:
                rows.append(("…",) * len(rows[0]))
        rows.append((f"{H}…", *(f"{self._steady[n]:.4g}" for n in names)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(names) + 1)]
        widths[0] = max(widths[0], 4)
        if self.metric is not None:
            low = self.metric.min(initial=np.inf)
            high = self.metric.max(initial=0.0)
            head += f", times a metric of {self.metric.size} rows between {low:.3g} and {high:.3g}"
        lines = [
            "  ".join(
                [
                    row[0].rjust(widths[0]),
                    *(cell.ljust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
                ]
            )
            for row in rows
        ]
        return "\n".join([head, *(line.rstrip() for line in lines)])


def _are_equal(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    return first is second or (first is not None and second is not None and np.array_equal(first, second))


def check_metric(schedule: Schedule, groups: np.ndarray | None, algorithm: str) -> None:
    """Refuse a metric of the wrong length, or one that differs within rows which must share an entry."""
    if schedule.metric is None:
        return
    if groups is None:
        raise ValueError(f"{algorithm} has no penalties of single rows: make the schedule without a metric")
    if schedule.metric.size != groups.size:
        raise ValueError(
            f"the metric has {schedule.metric.size} entries; {algorithm} on this family takes {groups.size}"
        )
    first = np.unique(groups, return_index=True)[1]
    apart = np.flatnonzero(schedule.metric != schedule.metric[first][groups])
    if apart.size:
        raise ValueError(f"entry {apart[0]} of the metric differs from others of its cone, which must share one value")


def check_schedule(schedule: Schedule, hyperparameters: Iterable[Hyperparameter], algorithm: str) -> None:
    """Refuse unknown or missing names, inadmissible steps, and a steady state that need not converge."""
    declared = {h.name: h for h in hyperparameters}
    if set(schedule.names) != set(declared):
        raise ValueError(
            f"{algorithm} has the hyperparameters {', '.join(declared)}; the schedule has {', '.join(schedule.names)}"
        )
    for name, h in declared.items():
        bad = np.flatnonzero(~h.varying.contains(schedule[name]))
        if bad.size:
            raise ValueError(
                f"{name} = {schedule[name][bad[0]]:.6g} at step {bad[0]} is not admissible: "
                f"it must lie in {h.varying.describe()}"
            )
        if not h.steady.contains(schedule.steady[name]):
            raise ValueError(
                f"the steady state {name} = {schedule.steady[name]:.6g} is outside {h.steady.describe()}, "
                f"the range in which {algorithm} provably converges on this family"
            )


def constant(hyperparameters: Iterable[Hyperparameter], **values: float) -> Schedule:
    """Return the same hyperparameters at every step: the defaults, with `values` in their place."""
    steady = {h.name: h.default for h in hyperparameters}
    unknown = sorted(set(values) - set(steady))
    if unknown:
        raise ValueError(f"unknown hyperparameter {', '.join(unknown)}; there are {', '.join(steady)}")
    return Schedule({}, {**steady, **values})
