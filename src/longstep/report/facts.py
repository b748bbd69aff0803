"""What a report says of the problem and of what was learned for it, as plain data with the user's own names."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .._util.plain import Json
from ..cvxpy import Model
from ..families.base import Family
from ..families.conic import Conic
from ..families.names import Layout
from ..families.quadratic_program import QP
from ..schedules.schedule import constant
from ..training.record import Training

# A row's unknowns are told up to this many.
_SHOWN = 3
_BOUNDS = "bounds"


class RowFacts(NamedTuple):
    """A row of a family: the constraint it belongs to, the entry of it, and the unknowns in it, in words."""

    group: str
    entry: str
    unknowns: str


def describe_problem(family: Family) -> dict[str, Json]:
    """Return the kind and the size of a family, and its names with their shapes where it has names."""
    layout = family.layout
    facts: dict[str, Json] = {
        "type": type(family).__name__,
        "unknowns": family.n,
        "constraints": family.m,
        "dtype": str(family.dtype),
        "parameters": None,
        "variables": None,
    }
    if layout is not None:
        facts["parameters"] = {name: list(block.shape) for name, block in layout.parameters.items()}
        facts["variables"] = {name: list(block.shape) for name, block in layout.variables.items()}
    return facts


def describe_learned(training: Training, family: Family, model: Model | None) -> dict[str, Json]:
    """Return the schedule, what it is compared with, and the metric on the rows that it is of."""
    schedule = training.schedule
    algorithm = training.algorithm
    return {
        "algorithm": type(algorithm).__name__,
        "varying": {name: schedule[name].tolist() for name in schedule.names},
        "steady": schedule.steady,
        "blocks": list(schedule.blocks),
        "constant": training.constant.steady,
        "defaults": constant(algorithm.hyperparameters(family)).steady,
        "units": dict(algorithm.units),
        "metric": _describe_metric(schedule.metric, family, model),
    }


def describe_origin(training: Training, command: str) -> dict[str, Json]:
    """Return what one needs to do it again: the command, the seed, versions, and hashes of family and data."""
    record = training.record
    names = ("seed", "versions", "family_hash", "data_hash", "settings", "parts", "seconds")
    return {"command": command, **{name: record[name] for name in names if name in record}}


def _describe_metric(metric: np.ndarray | None, family: Family, model: Model | None) -> Json:
    """Return the metric by constraint, in the order of the rows; None where there is none."""
    if metric is None or not isinstance(family, QP | Conic):
        return None
    rows = list_rows(family, model)
    if isinstance(family, QP):
        # Rows without bounds have no penalty, and steps on the inequalities alone have none for equalities.
        kinds = family.host.kinds
        rows = [rows[i] for i in kinds.bounded if metric.size == len(kinds.bounded) or not kinds.equality[i]]
    if metric.size != len(rows):
        return None
    groups: dict[str, dict[str, list[Json]]] = {}
    for row, value in zip(rows, metric.tolist(), strict=True):
        group = groups.setdefault(row.group, {"entries": [], "unknowns": [], "values": []})
        group["entries"].append(row.entry)
        group["unknowns"].append(row.unknowns)
        group["values"].append(value)
    return [{"name": name, **group} for name, group in groups.items()]


def list_rows(family: QP | Conic, model: Model | None) -> list[RowFacts]:
    """Return what is known of every row: of a CVXPY problem its constraint, else what kind of row it is."""
    A = sp.csr_array(family.A)
    unknowns = _name_unknowns(family.layout, family.n)
    kinds = _name_kinds(family, A)
    named = [None] * family.m
    if model is not None:
        named = model.name_rows()
    rows = []
    for i, (kind, name) in enumerate(zip(kinds, named, strict=True)):
        inside = _list_unknowns(A.indices[A.indptr[i] : A.indptr[i + 1]], unknowns)
        if name is not None and name.constraint:
            rows.append(RowFacts(name.constraint, name.entry, inside))
            continue
        group = kind
        if kind == _BOUNDS and family.layout is not None:
            group = f"{kind} of {inside.partition('[')[0]}"
        elif model is not None:
            group = f"{kind}, added by CVXPY"
        rows.append(RowFacts(group, f"row {i}", inside))
    return rows


def _name_kinds(family: QP | Conic, A: sp.csr_array) -> list[str]:
    """Return for every row what kind of constraint it is."""
    if isinstance(family, Conic):
        return [cone.title for cone in family.cones.parts for _ in range(cone.rows)]
    kinds = []
    for equal, size in zip(family.host.kinds.equality, np.diff(A.indptr), strict=True):
        if equal:
            kinds.append("equalities")
        elif size == 1:
            kinds.append(_BOUNDS)
        else:
            kinds.append("inequalities")
    return kinds


def _name_unknowns(layout: Layout | None, n: int) -> list[str]:
    """Return a name for every unknown; those without one are numbered."""
    names = [f"unknown {j}" for j in range(n)]
    if layout is not None:
        for block in layout.variables.values():
            places = block.place.ravel()[block.first]
            for place, label in zip(places.tolist(), block.labels, strict=True):
                names[place] = label
    return names


def _list_unknowns(columns: Sequence[int], names: list[str]) -> str:
    shown = ", ".join(names[j] for j in columns[:_SHOWN])
    if len(columns) > _SHOWN:
        shown += f" and {len(columns) - _SHOWN} more"
    return shown
