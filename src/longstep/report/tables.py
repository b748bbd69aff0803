"""Tables of evaluations and certificates: for the terminal, as Markdown, and as plain data."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from .._util.table import Column, Table
from .._util.text import (
    bound_above,
    bound_below,
    count_text,
    error_text,
    percent,
    ratio_text,
    reached_text,
    seconds_text,
    tolerance_text,
)
from ..certificates.certificate import Certificate, Claim
from ..evaluation.cost import Costs, describe_times, limits_text
from ..evaluation.evaluate import TOLERANCES, Evaluation


def cost_table(costs: Costs) -> Table:
    """Return a table of methods side by side: the steps and the time until `solve` ends."""
    columns = [Column("eps", tolerance_text), Column("method"), Column("median", count_text)]
    columns += [Column("95%", count_text), Column("worst", count_text), Column("unsolved")]
    columns += [Column("time", seconds_text)]
    kept = costs.rows[0]
    rows = []
    for cost in sorted(costs.rows, key=lambda cost: -cost.eps):
        middle = float(np.median(cost.steps))
        late = float(np.quantile(cost.steps, 0.95))
        rows.append((cost.eps, cost.name, middle, late, int(cost.steps.max()), cost.unsolved, cost.seconds))
    note = (
        f"Of {kept.steps.size} test instances, {limits_text([(cost.name, cost.most) for cost in costs.rows])};\n"
        "by residuals and gap in the ∞-norm;\n"
        "a change of the finish counts as the steps that cost as much.\n"
        f"{describe_times([(cost.name, cost.compiled) for cost in costs.rows])}"
    )
    return Table("Steps until solve ends", tuple(columns), tuple(rows), note)


def comparison(
    evaluations: Iterable[Evaluation],
    tolerances: Iterable[float] = TOLERANCES,
    *,
    at: "int | Iterable[int] | None" = None,
) -> Table:
    """Return a table of methods side by side, all on the same instances and by the same metric.

    For each tolerance the first k at which the geometric mean is at most that, and in brackets that from which it stays
    there, where it is another. At the iteration counts `at` (by default 50, 20 or the last, the first of these that was
    run) the 95% quantile and the maximum; then how many instances the safeguard took over, and the time per instance.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver, evaluate
    >>> family = Quadratic(np.diag([1.0, 2.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"test": 30}, cache=False, progress=False)
    >>> steps = {"step 2/(L+μ)": Solver(family), "step 0.3": Solver(family, step=0.3)}
    >>> found = [evaluate(s, data.test, 20, name=name, timed=False) for name, s in steps.items()]
    >>> print(comparison(found, [1e-2, 1e-6], at=10))
    Iterations until f − f* is at most the tolerance, geometric mean over 30
    instances of 'test'
    method        1e-2  1e-6  95% at 10  max at 10  safeguarded
    ────────────  ────  ────  ─────────  ─────────  ───────────
    step 2/(L+μ)     2     6    7.2e-10    7.5e-10         0/30
    step 0.3         4    17     1.2e-3     1.7e-3         0/30
    """
    evaluations = check_comparable(evaluations)
    tolerances = _check_tolerances(tolerances)
    shortest = min(e.iterations for e in evaluations)
    if at is None:
        at = next((k for k in (50, 20) if k <= shortest), shortest)
    at = _check_counts(at, shortest)
    several = len({e.iterations for e in evaluations}) > 1
    timed = any(e.seconds is not None for e in evaluations)
    columns = [Column("method"), *(Column(tolerance_text(t), reached_text) for t in tolerances)]
    columns += [Column(f"{name} at {k}", error_text) for k in at for name in ("95%", "max")]
    columns.append(Column("safeguarded", ratio_text))
    if several:
        columns.append(Column("run for"))
    if timed:
        columns.append(Column("time", seconds_text))
    rows = []
    for e in evaluations:
        chosen = _pick_counts(e, at)
        tails = np.stack([chosen.quantile(0.95), chosen.maximum], axis=1).ravel().tolist()
        row = [e.name, *(e.reached(t) for t in tolerances), *tails, (int(e.safeguarded.sum()), len(e))]
        if several:
            row.append(e.iterations)
        if timed:
            row.append(e.seconds)
        rows.append(tuple(row))
    first = evaluations[0]
    title = f"Iterations until {first.measure} is at most the tolerance, geometric mean over {count_instances(first)}"
    run = f"{shortest} iterations"
    if several:
        run = "the iterations that the method was run for"
    return Table(title, tuple(columns), tuple(rows), _explain_comparison(evaluations, tolerances, run, timed))


def _explain_comparison(evaluations: list[Evaluation], tolerances: list[float], run: str, timed: bool) -> str:
    """Return the note below a comparison; `run` says for how long the methods ran."""
    reached = [e.reached(t) for e in evaluations for t in tolerances]
    notes = []
    if any(first != stays for first, stays in reached):
        notes.append("In brackets: from where it stays there.")
    if any(stays is None for _, stays in reached):
        notes.append(f"–: not within {run}.")
    if timed:
        notes.append(f"Time: {run}, per instance.")
    if trained := max(e.trained for e in evaluations):
        notes.append(f"{trained} of the instances were used in training: these figures are not of unseen ones.")
    return " ".join(notes)


def statistics_table(evaluation: Evaluation, at: "int | Iterable[int] | None" = None) -> Table:
    """Return a table of one method's mean, median, 95% and 99% quantiles and maximum at chosen iteration counts."""
    last = evaluation.iterations
    if at is None:
        at = [*(k for k in (0, 10, 20, 50, 100, 200, 500, 1000) if k < last), last]
    at = _check_counts(at, last)
    chosen = _pick_counts(evaluation, at)
    curves = {"geometric mean": chosen.geometric_mean, "median": chosen.median, "95%": chosen.quantile(0.95)}
    curves |= {"99%": chosen.quantile(0.99), "max": chosen.maximum}
    rows = tuple(zip(at, *(curve.tolist() for curve in curves.values()), strict=True))
    columns = (Column("iterations"), *(Column(name, error_text) for name in curves))
    return Table(f"{evaluation.name}: {evaluation.measure}, {count_instances(evaluation)}", columns, rows)


def certificate_table(certificate: Certificate) -> Table:
    """Return a table of the claims of a certificate. Numbers are rounded so that they promise less, never more."""
    c = certificate
    columns = [Column("iterations"), Column("below", bound_above), Column("on at least", percent)]
    columns += [Column("violations", ratio_text)]
    rows: list[tuple[object, ...]] = [
        (x.iterations, x.tolerance, x.success, (x.violations, c.instances)) for x in c.claims
    ]
    if c.lower:
        columns.append(Column("not below, on as many", bound_below))
        rows = [(*row, bound) for row, bound in zip(rows, c.lower, strict=True)]
    notes = []
    if c.exact is not None:
        notes.append(c.exact_sentence(c.exact))
    notes.append(f"All hold together with confidence {c.confidence:.4g} ({c.bound} bounds), for independent instances.")
    if any(math.isinf(x.tolerance) for x in c.claims):
        notes.append("∞: nothing could be certified.")
    if c.distinct < c.instances:
        notes.append(f"Only {c.distinct} of the instances are distinct.")
    if c.convergence:
        notes.append(c.convergence)
    title = f"{c.method}: {c.measure}, certified on {c.instances} instances of {c.split!r}"
    return Table(title, tuple(columns), tuple(rows), " ".join(notes))


def tabulate_certified(certificate: Certificate, evaluation: Evaluation) -> Table:
    """Return a table of each claim beside what was observed on further instances, which must not be its own.

    A claim holds where it is true of at least the certified fraction of them. Where it does not, the p-value tells
    whether that may be chance: no more than these hold with this probability where the claim is just true.
    """
    _check_further(certificate, evaluation)
    N = len(evaluation)
    rows = []
    held = 0
    for bound, claim in _list_claims(certificate):
        count = _count_true(bound, claim, evaluation)
        holds = count / N >= claim.success
        p = float(stats.binom.cdf(count, N, claim.success))
        shown = (claim.iterations, (bound, claim.tolerance), claim.success, count / N, (count, N))
        rows.append((*shown, holds, p))
        held += holds
    columns = (
        Column("iterations"),
        Column("claim", _show_claim),
        Column("certified", percent),
        Column("observed", percent),
        Column("instances", ratio_text),
        Column("holds", {True: "yes", False: "no"}.__getitem__),
        Column("p-value", "{:.2g}".format),
    )
    c = certificate
    title = f"{c.method}: {c.measure}, certified on {c.instances} instances of {c.split!r}, "
    note = "Nothing was certified that could be observed."
    if rows:
        note = f"{held} of {len(rows)} claims hold."
    return Table(f"{title}observed on {count_instances(evaluation)}", columns, tuple(rows), note)


def _count_true(bound: str, claim: Claim, evaluation: Evaluation) -> int:
    """Return the number of instances on which a claim with this side of the bound is true."""
    errors = np.asarray(evaluation.values[:, claim.iterations])
    if bound == "<":
        return int(np.sum(errors < claim.tolerance))
    return int(np.sum(errors >= claim.tolerance))


def _show_claim(pair: tuple[str, float]) -> str:
    bound, tolerance = pair
    if bound == "<":
        return f"< {bound_above(tolerance)}"
    return f"{bound} {bound_below(tolerance)}"


def check_comparable(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Return the evaluations as a list; refuse those of different instances or metrics, or of the same name."""
    evaluations = list(evaluations)
    if not evaluations or not all(isinstance(e, Evaluation) for e in evaluations):
        raise TypeError("evaluations come as a list of one or several results of `evaluate`")
    first = evaluations[0]
    seen = set()
    for e in evaluations:
        pair = f"{first.name!r} and {e.name!r} cannot be compared"
        if e.data_hash != first.data_hash:
            raise ValueError(
                f"{pair}: the instances differ, {count_instances(first)} (data {first.data_hash[:12]}…) and "
                f"{count_instances(e)} "
                f"(data {e.data_hash[:12]}…). Evaluate both on one split"
            )
        if e.metric != first.metric:
            raise ValueError(
                f"{pair}: their metrics are {first.metric!r} and {e.metric!r}. Evaluate both with the same metric=…"
            )
        if e.name in seen:
            raise ValueError(f"two evaluations have the name {e.name!r}: give each its own, evaluate(…, name=…)")
        seen.add(e.name)
    return evaluations


def count_instances(evaluation: Evaluation) -> str:
    """Return how many instances of which split these are, in words."""
    if len(evaluation) == 1:
        return f"1 instance of {evaluation.split!r}"
    return f"{len(evaluation)} instances of {evaluation.split!r}"


def _check_further(certificate: Certificate, evaluation: Evaluation) -> None:
    if evaluation.method_hash != certificate.method_hash:
        raise ValueError(
            f"the certificate is of another method ({certificate.method}) than the evaluation ({evaluation.name}): "
            "family, algorithm, schedule or safeguard differ"
        )
    if evaluation.metric != certificate.metric:
        raise ValueError(
            f"the certificate is about {certificate.metric!r}, the evaluation about {evaluation.metric!r}. "
            f"Evaluate with metric={certificate.metric!r}"
        )
    if evaluation.data_hash == certificate.data_hash:
        raise ValueError(
            f"the certificate was made on these instances, {count_instances(evaluation)}: they cannot confirm it. "
            "Evaluate on further ones, such as dataset.test"
        )
    if (needed := max(claim.iterations for claim in certificate.claims)) > evaluation.iterations:
        raise ValueError(f"the certificate speaks of {needed} iterations, the evaluation has {evaluation.iterations}")


def _list_claims(certificate: Certificate) -> Iterator[tuple[str, Claim]]:
    """Yield all that is claimed, with the side of the bound; what claims nothing is left out."""
    for claim, lower in zip(certificate.claims, certificate.lower or (0.0,) * len(certificate.claims), strict=True):
        if math.isfinite(claim.tolerance):
            yield "<", claim
        if lower > 0:
            yield "≥", replace(claim, tolerance=lower)


def _pick_counts(evaluation: Evaluation, at: Sequence[int]) -> Evaluation:
    """Return the evaluation at some iteration counts alone: statistics of all would take long on many instances."""
    return replace(evaluation, values=evaluation.values[:, list(at)])


def _check_counts(at: "int | Iterable[int]", last: int) -> list[int]:
    chosen = [at]
    if not isinstance(at, int):
        chosen = list(at)
    counts = [int(k) for k in np.asarray(chosen, int)]
    if not counts or len(set(counts)) < len(counts) or not all(0 <= k <= last for k in counts):
        raise ValueError(f"at must be different iteration counts between 0 and {last}, those evaluated, got {at}")
    return counts


def _check_tolerances(tolerances: Iterable[float]) -> list[float]:
    values = [float(t) for t in tolerances]
    positive = all(0 < t < math.inf for t in values)
    if not values or not positive or len({tolerance_text(t) for t in values}) < len(values):
        raise ValueError(f"tolerances must be positive numbers that differ in three digits, got {values}")
    return values
