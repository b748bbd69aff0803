"""The tables of an experiment: iterations to tolerances, errors, weights, and the certificate against the test."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from longstep import Certificate, Evaluation

from ..._util.text import error_text, reached_text, seconds_text
from ...evaluation.evaluate import FLOOR, TOLERANCES
from ...families.conic import Conic
from ...families.quadratic_program import QP
from ...report.tables import Column, Table, comparison
from ..baselines.networks import features
from .experiment import Experiment, Result


def iterations_table(results: Iterable[Result], title: str) -> Table:
    """For every method the first k at which the geometric mean is at most each tolerance, and from where it stays.

    Methods may be on fewer instances, of which the first ones of the split, and for fewer iterations than others.
    """
    results = list(results)
    columns = [Column("method"), *(Column(f"1e{round(math.log10(t))}", reached_text) for t in TOLERANCES)]
    columns += [Column("safeguarded"), Column("diverging"), Column("instances"), Column("run for")]
    columns += [Column("per iteration", seconds_text), Column("made in", seconds_text)]
    rows = []
    for r in results:
        e = r.evaluation
        made = r.made.get("trained")
        time = None if e.seconds is None else e.seconds / e.iterations
        counts = (int(e.safeguarded.sum()), r.diverging, len(e), e.iterations)
        rows.append((e.name, *(e.reached(t) for t in TOLERANCES), *counts, time, made))
    measure = results[0].evaluation.measure
    note = (
        f"Iterations until the geometric mean of {measure} over the test instances is at most the tolerance (errors "
        f"below {FLOOR:g} count as that); in brackets from where it stays there; –: not within the iterations run. "
        "Diverging: not finite, or worse at the end than at the start. Per iteration: of one instance in a batch. "
        "Made in: training, the search for the constant included."
    )
    return Table(title, tuple(columns), tuple(rows), note)


def errors_table(results: Iterable[Result], at: Iterable[int]) -> Table:
    """Geometric mean, median, 95% quantile and maximum of every method after some iterations."""
    results = list(results)
    at = list(at)
    names = ("mean", "median", "95%", "max")
    columns = [Column("method"), *(Column(f"{name} at {k}", _error) for k in at for name in names)]
    rows = []
    for r in results:
        cells: list[Any] = [r.evaluation.name]
        for k in at:
            inside = k <= r.evaluation.iterations
            cells += _statistics(r.evaluation, k) if inside else [math.nan] * len(names)
        rows.append(tuple(cells))
    measure = results[0].evaluation.measure
    note = "Mean: geometric. ∞: some instance blew up. Blank: not run so long."
    return Table(f"{measure} after some iterations", tuple(columns), tuple(rows), note)


def _statistics(e: Evaluation, k: int) -> list[float]:
    one = replace(e, values=np.asarray(e.values[:, [k]]))
    return [float(curve[0]) for curve in (one.geometric_mean, one.median, one.quantile(0.95), one.maximum)]


def same_instances(results: Iterable[Result]) -> list[Evaluation]:
    """The evaluations on the instances that all of them have, the first ones, and for as many iterations as all ran."""
    evaluations = [r.evaluation for r in results]
    count = min(map(len, evaluations))
    last = min(e.iterations for e in evaluations)
    return [_shortened(e, count, last) for e in evaluations]


def _shortened(e: Evaluation, count: int, last: int) -> Evaluation:
    values = e.values[:count, : last + 1]
    safe = e.safeguarded[:count]
    return replace(e, values=values, safeguarded=safe, data_hash=f"first {count}", seconds=None)


def few_table(results: Iterable[Result]) -> Table | None:
    """All methods on the instances that all of them have; None where they all have the same."""
    results = list(results)
    if len({len(r.evaluation) for r in results}) == 1:
        return None
    count = min(len(r.evaluation) for r in results)
    # Iterations may differ: the column of the shortest would hide what the others reach.
    evaluations = [_shortened(r.evaluation, count, r.evaluation.iterations) for r in results]
    return comparison(evaluations)


def certificate_inside(certificate: Certificate, evaluation: Evaluation) -> Table:
    """How many test instances lie between the certified curves, at every iteration count that was certified."""
    rows = []
    for claim, lower in zip(certificate.claims, certificate.lower, strict=True):
        values = np.asarray(evaluation.values[:, claim.iterations])
        inside = int(np.sum((values >= lower) & (values < claim.tolerance)))
        rows.append((claim.iterations, lower, claim.tolerance, inside, len(evaluation), inside / len(evaluation)))
    columns = (
        Column("iterations"),
        Column("2.5% curve", _error),
        Column("97.5% curve", _error),
        Column("test instances inside"),
        Column("of"),
        Column("fraction", lambda v: f"{100 * v:.1f}%"),
    )
    least = min(row[-1] for row in rows)
    note = (
        f"Both curves hold at all these iteration counts together with confidence {certificate.confidence:.4g}, from "
        f"{certificate.instances} validation instances. At least {100 * least:.1f}% of the test instances lie inside "
        "everywhere."
    )
    return Table(f"Certified quantiles of {certificate.measure}", columns, tuple(rows), note)


def weights_table(experiment: Experiment, results: Iterable[Result]) -> Table:
    """How many numbers are learned: the schedule's, the networks', and those of a linear map to a start."""
    family = experiment.family
    first = experiment.data.train.select([0]).parameters
    d = features(family, first).shape[1]
    schedule = experiment.main().schedule
    rows: list[tuple[str, Any, Any]] = [
        ("parameter size d", d, None),
        ("fixed-point dimension", fixed_point_dimension(family), None),
        (
            f"learned schedule, (H + 1)·a = {len(schedule) + 1}·{len(schedule.names)}",
            _learned(schedule),
            _trained(results),
        ),
    ]
    rows += [
        (r.evaluation.name, r.made["weights"], r.made.get("trained"))
        for r in results
        if r.made.get("weights") is not None
    ]
    rows.append(("a linear map from parameter to solution, d·n", d * family.n, None))
    columns = (Column("what"), Column("numbers"), Column("training", seconds_text))
    return Table("Weights", columns, tuple(rows))


def fixed_point_dimension(family: Any) -> int:
    """Of the iteration's variable: z for gradient methods, (w, z + y/ρ) for OSQP, (μ, η) for SCS."""
    if isinstance(family, Conic):
        return family.n + family.m + 1
    return family.n + family.m if isinstance(family, QP) else family.n


def _learned(schedule: Any) -> int:
    return (len(schedule) + 1) * len(schedule.names)


def _trained(results: Iterable[Result]) -> float | None:
    return next((r.made.get("trained") for r in results if r.id == "learned"), None)


def _error(value: float) -> str:
    return "" if math.isnan(value) else error_text(value)
