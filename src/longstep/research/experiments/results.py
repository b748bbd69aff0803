"""The tables of an experiment: iterations to tolerances, errors, weights, and the certificate against the test."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from longstep import Certificate, Evaluation

from ..._util.text import error_text, reached_text, seconds_text
from ...evaluation.evaluate import FLOOR, TOLERANCES
from ...families.base import Family
from ...families.conic import Conic
from ...families.quadratic_program import QP
from ...report.tables import Column, Table, comparison
from ..baselines.networks import make_features
from .experiment import Experiment, Result


def tabulate_iterations(results: Iterable[Result], title: str) -> Table:
    """Return a table of the first k at which each method's mean is at most each tolerance, and from where it stays.

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
        time = e.seconds
        if time is not None:
            time /= e.iterations
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


def tabulate_errors(results: Iterable[Result], at: Iterable[int]) -> Table:
    """Return a table of mean, median, 95% quantile and maximum of every method after some iterations."""
    results = list(results)
    at = list(at)
    names = ("mean", "median", "95%", "max")
    columns = [Column("method"), *(Column(f"{name} at {k}", _show_error) for k in at for name in names)]
    rows = []
    for r in results:
        cells: list[str | float] = [r.evaluation.name]
        for k in at:
            cells += _summarize(r.evaluation, k)
        rows.append(tuple(cells))
    measure = results[0].evaluation.measure
    note = "Mean: geometric. ∞: some instance blew up. Blank: not run so long."
    return Table(f"{measure} after some iterations", tuple(columns), tuple(rows), note)


def tabulate_tail(results: Iterable[Result], at: Iterable[int]) -> Table:
    """Return a table of the 95% quantile of every method after some iterations, on the instances that all have."""
    at = list(at)
    results = list(results)
    count = min(len(r.evaluation) for r in results)
    columns = [Column("method"), *(Column(str(k), _show_error) for k in at)]
    rows = []
    for r in results:
        e = _shorten(r.evaluation, count, r.evaluation.iterations)
        rows.append((e.name, *(_summarize(e, k)[2] for k in at)))
    measure = results[0].evaluation.measure
    title = f"95% quantile of {measure} over {count} test instances, after iterations"
    return Table(title, tuple(columns), tuple(rows), "Blank: not run so long.")


def _summarize(e: Evaluation, k: int) -> list[float]:
    """Return mean, median, 95% quantile and maximum after k iterations; NaN where it was not run so long."""
    if k > e.iterations:
        return [math.nan] * 4
    one = replace(e, values=np.asarray(e.values[:, [k]]))
    return [float(curve[0]) for curve in (one.geometric_mean, one.median, one.quantile(0.95), one.maximum)]


def take_same_instances(results: Iterable[Result]) -> list[Evaluation]:
    """Return the evaluations on the instances that all of them have, for as many iterations as all ran."""
    evaluations = [r.evaluation for r in results]
    count = min(map(len, evaluations))
    last = min(e.iterations for e in evaluations)
    return [_shorten(e, count, last) for e in evaluations]


def _shorten(e: Evaluation, count: int, last: int) -> Evaluation:
    values = e.values[:count, : last + 1]
    safe = e.safeguarded[:count]
    return replace(e, values=values, safeguarded=safe, data_hash=f"first {count}", seconds=None)


def tabulate_few(results: Iterable[Result]) -> Table | None:
    """Return a table of all methods on the instances that all of them have; None where they all have the same."""
    results = list(results)
    if len({len(r.evaluation) for r in results}) == 1:
        return None
    count = min(len(r.evaluation) for r in results)
    # Iterations may differ: the column of the shortest would hide what the others reach.
    evaluations = [_shorten(r.evaluation, count, r.evaluation.iterations) for r in results]
    return comparison(evaluations)


def tabulate_inside(certificate: Certificate, evaluation: Evaluation) -> Table:
    """Return a table of how many test instances lie between the certified curves, at every certified count."""
    rows = []
    for claim, lower in zip(certificate.claims, certificate.lower, strict=True):
        values = np.asarray(evaluation.values[:, claim.iterations])
        inside = int(np.sum((values >= lower) & (values < claim.tolerance)))
        rows.append((claim.iterations, lower, claim.tolerance, inside, len(evaluation), inside / len(evaluation)))
    columns = (
        Column("iterations"),
        Column("2.5% curve", _show_error),
        Column("97.5% curve", _show_error),
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


def tabulate_weights(experiment: Experiment, results: Iterable[Result]) -> Table:
    """Return a table of how many numbers the schedule, the networks and a linear map to a start have."""
    family = experiment.family
    first = experiment.data.train.select([0]).parameters
    d = make_features(family, first).shape[1]
    schedule = experiment.train_main().schedule
    rows: list[tuple[str, object, object]] = [
        ("parameter size d", d, None),
        ("fixed-point dimension", count_dimensions(family), None),
        (
            f"learned schedule, (H + 1)·a = {len(schedule) + 1}·{len(schedule.names)}",
            (len(schedule) + 1) * len(schedule.names),
            next((r.made.get("trained") for r in results if r.id == "learned"), None),
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


def count_dimensions(family: Family) -> int:
    """Return the dimension of what is iterated: z for gradient methods, (w, z + y/ρ) for OSQP, (μ, η) for SCS."""
    if isinstance(family, Conic):
        return family.n + family.m + 1
    if isinstance(family, QP):
        return family.n + family.m
    return family.n


def _show_error(value: float) -> str:
    if math.isnan(value):
        return ""
    return error_text(value)
