"""Tables of evaluations and certificates: for the terminal, as Markdown, and as plain data."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats
from typing_extensions import override

from .._util.text import bound_above, bound_below, error_text, percent, reached_text, seconds_text, tolerance_text
from ..certificates.certificate import Certificate, Claim
from ..evaluation.cost import Costs
from ..evaluation.evaluate import TOLERANCES, Evaluation


@dataclass(frozen=True)
class Column:
    """A column's name, and how it shows one of its values."""

    name: str
    show: Callable[[Any], str] = str


@dataclass(frozen=True)
class Table:
    """Rows of raw values under named columns, with a title above and a note below.

    `print` gives plain text, a Rich console its own kind of table. Where a width is given, a table that is wider is
    split into several, each with the first column: nothing is ever cut off.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def text(self, width: int | None = None) -> str:
        """Plain text with aligned columns."""
        cells = self._cells()
        blocks = []
        for part in self._parts(width, 2):
            lines = [
                "  ".join(f"{cells[i][j]:{self._align(j)}{self._width(j)}}" for j in part) for i in range(len(cells))
            ]
            lines.insert(1, "  ".join("─" * self._width(j) for j in part))
            blocks.append("\n".join(line.rstrip() for line in lines))
        return "\n".join([self.title, *"\n\n".join(blocks).split("\n"), *([self.note] if self.note else [])])

    def markdown(self) -> str:
        """A table of GitHub's Markdown, the title in bold before it and the note after it."""
        head, *body = [[_escaped(cell) for cell in row] for row in self._cells()]
        rule = [":--" if self._align(j) == "<" else "--:" for j in range(len(head))]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])
        return "\n\n".join([f"**{_escaped(self.title)}**", lines, *([_escaped(self.note)] if self.note else [])])

    def to_json(self) -> dict[str, Any]:
        """As plain data, each row by its columns' names; ∞ becomes null."""
        names = [column.name for column in self.columns]
        rows = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in self.rows]
        return {"title": self.title, "columns": names, "rows": rows, "note": self.note}

    @override
    def __str__(self) -> str:
        return self.text()

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        head, *body = self._cells()
        yield Text(self.title, style="bold")
        # Two spaces of padding and one of the box for each column.
        for part in self._parts(options.max_width, 3):
            table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
            for j in part:
                table.add_column(Text(head[j]), justify="left" if self._align(j) == "<" else "right", no_wrap=True)
            for row in body:
                table.add_row(*(Text(row[j]) for j in part))
            yield table
        if self.note:
            yield Text(self.note, style="dim")

    def _cells(self) -> list[list[str]]:
        """All texts, the head first, each on one line."""
        body = [[c.show(value) for c, value in zip(self.columns, row, strict=True)] for row in self.rows]
        return [[" ".join(text.split()) for text in row] for row in [[c.name for c in self.columns], *body]]

    def _align(self, j: int) -> str:
        return "<" if all(isinstance(row[j], str) for row in self.rows) else ">"

    def _width(self, j: int) -> int:
        return max(len(row[j]) for row in self._cells())

    def _parts(self, width: int | None, gap: int) -> list[list[int]]:
        """The columns of each table that fits the width."""
        parts = [[0]]
        used = self._width(0)
        for j in range(1, len(self.columns)):
            used += gap + self._width(j)
            if width is not None and used > width - gap and len(parts[-1]) > 1:
                parts.append([0])
                used = self._width(0) + gap + self._width(j)
            parts[-1].append(j)
        return parts


def _escaped(text: str) -> str:
    """Text that Markdown takes as it is: f* is no beginning of italics."""
    return text.replace("*", "\\*").replace("|", "\\|")


def cost_table(costs: Costs) -> Table:
    """Methods side by side by the steps and the time until `solve` ends."""
    columns = [Column("eps", tolerance_text), Column("method"), Column("median", "{:,.0f}".format)]
    columns += [Column("95%", "{:,.0f}".format), Column("worst", "{:,}".format), Column("unsolved")]
    columns += [Column("time", seconds_text)]
    kept = costs.rows[0]
    rows = []
    for cost in sorted(costs.rows, key=lambda cost: -cost.eps):
        middle = float(np.median(cost.steps))
        late = float(np.quantile(cost.steps, 0.95))
        rows.append((cost.eps, cost.name, middle, late, int(cost.steps.max()), cost.unsolved, cost.seconds))
    note = (
        f"Of {kept.steps.size} test instances, at most {kept.most:,} steps; a change of the finish counts as the steps "
        "that cost as much.\nTime per instance: in a batch with JAX, the package in C one by one."
    )
    return Table("Steps until solve ends", tuple(columns), tuple(rows), note)


def comparison(
    evaluations: Iterable[Evaluation],
    tolerances: Iterable[float] = TOLERANCES,
    *,
    at: "int | Iterable[int] | None" = None,
) -> Table:
    """Methods side by side, all on the same instances and by the same metric.

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
    Iterations until f − f* is at most the tolerance, geometric mean over 30 instances of 'test'
    method        1e-2  1e-6  95% at 10  max at 10  safeguarded
    ────────────  ────  ────  ─────────  ─────────  ───────────
    step 2/(L+μ)     2     6    7.2e-10    7.5e-10         0/30
    step 0.3         4    17     1.2e-3     1.7e-3         0/30
    """
    evaluations = comparable(evaluations)
    tolerances = _tolerances(tolerances)
    first = evaluations[0]
    shortest = min(e.iterations for e in evaluations)
    at = _counts(next((k for k in (50, 20) if k <= shortest), shortest) if at is None else at, shortest)
    several = len({e.iterations for e in evaluations}) > 1
    timed = any(e.seconds is not None for e in evaluations)
    columns = [Column("method"), *(Column(tolerance_text(t), reached_text) for t in tolerances)]
    columns += [Column(f"{name} at {k}", error_text) for k in at for name in ("95%", "max")]
    columns += [Column("safeguarded", _ratio), *([Column("run for")] if several else [])]
    columns += [Column("time", seconds_text)] if timed else []
    rows = []
    for e in evaluations:
        chosen = _only(e, at)
        tails = np.stack([chosen.quantile(0.95), chosen.maximum], axis=1).ravel().tolist()
        row = [e.name, *(e.reached(t) for t in tolerances), *tails, (int(e.safeguarded.sum()), len(e))]
        rows.append((*row, *([e.iterations] if several else []), *([e.seconds] if timed else [])))
    reached = [e.reached(t) for e in evaluations for t in tolerances]
    run = "the iterations that the method was run for" if several else f"{shortest} iterations"
    notes = ["In brackets: from where it stays there."] if any(a != b for a, b in reached) else []
    notes += [f"–: not within {run}."] if any(b is None for _, b in reached) else []
    notes += [f"Time: {run}, per instance."] if timed else []
    if trained := max(e.trained for e in evaluations):
        notes.append(f"{trained} of the instances were used in training: these figures are not of unseen ones.")
    title = f"Iterations until {first.measure} is at most the tolerance, geometric mean over {described(first)}"
    return Table(title, tuple(columns), tuple(rows), " ".join(notes))


def statistics_table(evaluation: Evaluation, at: "int | Iterable[int] | None" = None) -> Table:
    """One method's geometric mean, median, 95% and 99% quantiles and maximum at chosen iteration counts."""
    last = evaluation.iterations
    usual = [k for k in (0, 10, 20, 50, 100, 200, 500, 1000) if k < last]
    at = _counts([*usual, last] if at is None else at, last)
    chosen = _only(evaluation, at)
    curves = {"geometric mean": chosen.geometric_mean, "median": chosen.median, "95%": chosen.quantile(0.95)}
    curves |= {"99%": chosen.quantile(0.99), "max": chosen.maximum}
    rows = tuple(zip(at, *(curve.tolist() for curve in curves.values()), strict=True))
    columns = (Column("iterations"), *(Column(name, error_text) for name in curves))
    return Table(f"{evaluation.name}: {evaluation.measure}, {described(evaluation)}", columns, rows)


def certificate_table(certificate: Certificate) -> Table:
    """The claims of a certificate. Numbers are rounded so that they promise less, never more."""
    c = certificate
    columns = [Column("iterations"), Column("below", bound_above), Column("on at least", percent)]
    columns += [Column("violations", _ratio)]
    rows: list[tuple[Any, ...]] = [
        (x.iterations, x.tolerance, x.success, (x.violations, c.instances)) for x in c.claims
    ]
    if c.lower:
        columns.append(Column("not below, on as many", bound_below))
        rows = [(*row, bound) for row, bound in zip(rows, c.lower, strict=True)]
    notes = [] if c.exact is None else [c.exact_sentence(c.exact)]
    notes += [f"All hold together with confidence {c.confidence:.4g} ({c.bound} bounds), for independent instances."]
    notes += ["∞: nothing could be certified."] if any(math.isinf(x.tolerance) for x in c.claims) else []
    notes += [f"Only {c.distinct} of the instances are distinct."] if c.distinct < c.instances else []
    notes += [c.convergence] if c.convergence else []
    title = f"{c.method}: {c.measure}, certified on {c.instances} instances of {c.split!r}"
    return Table(title, tuple(columns), tuple(rows), " ".join(notes))


def certified_against(certificate: Certificate, evaluation: Evaluation) -> Table:
    """Each claim of a certificate beside what was observed on further instances, which must not be its own.

    A claim holds where it is true of at least the certified fraction of them. Where it does not, the p-value tells
    whether that may be chance: so few, or fewer, happen with this probability where the claim is just true.
    """
    _check_further(certificate, evaluation)
    rows = []
    for bound, claim in _claims(certificate):
        column = np.asarray(evaluation.values[:, claim.iterations])
        true = column < claim.tolerance if bound == "<" else column >= claim.tolerance
        count = int(np.sum(true))
        N = len(evaluation)
        p = float(stats.binom.cdf(count, N, claim.success))
        shown = (claim.iterations, (bound, claim.tolerance), claim.success, count / N, (count, N))
        rows.append((*shown, count / N >= claim.success, p))
    columns = (
        Column("iterations"),
        Column("claim", lambda pair: f"{pair[0]} {(bound_above if pair[0] == '<' else bound_below)(pair[1])}"),
        Column("certified", percent),
        Column("observed", percent),
        Column("instances", _ratio),
        Column("holds", lambda holds: "yes" if holds else "no"),
        Column("p-value", lambda p: f"{p:.2g}"),
    )
    c = certificate
    held = sum(row[5] for row in rows)
    title = f"{c.method}: {c.measure}, certified on {c.instances} instances of {c.split!r}, "
    note = f"{held} of {len(rows)} claims hold." if rows else "Nothing was certified that could be observed."
    return Table(f"{title}observed on {described(evaluation)}", columns, tuple(rows), note)


def comparable(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """The evaluations, if they are of the same instances and metric and their names differ."""
    evaluations = list(evaluations)
    if not evaluations or not all(isinstance(e, Evaluation) for e in evaluations):
        raise TypeError("evaluations come as a list of one or several results of `evaluate`")
    first = evaluations[0]
    seen = set()
    for e in evaluations:
        pair = f"{first.name!r} and {e.name!r} cannot be compared"
        if e.data_hash != first.data_hash:
            raise ValueError(
                f"{pair}: the instances differ, {described(first)} (data {first.data_hash[:12]}…) and {described(e)} "
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


def described(evaluation: Evaluation) -> str:
    """How many instances, of which split."""
    N = len(evaluation)
    return f"{N} {'instance' if N == 1 else 'instances'} of {evaluation.split!r}"


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
            f"the certificate was made on these instances, {described(evaluation)}: they cannot confirm it. "
            "Evaluate on further ones, such as dataset.test"
        )
    if (needed := max(claim.iterations for claim in certificate.claims)) > evaluation.iterations:
        raise ValueError(f"the certificate speaks of {needed} iterations, the evaluation has {evaluation.iterations}")


def _claims(certificate: Certificate) -> Iterator[tuple[str, Claim]]:
    """All that is claimed, with the side of the bound; what claims nothing is left out."""
    for claim, lower in zip(certificate.claims, certificate.lower or (0.0,) * len(certificate.claims), strict=True):
        if math.isfinite(claim.tolerance):
            yield "<", claim
        if lower > 0:
            yield "≥", replace(claim, tolerance=lower)


def _only(evaluation: Evaluation, at: list[int]) -> Evaluation:
    """The evaluation at some iteration counts alone: statistics of all would take long on many instances."""
    return replace(evaluation, values=evaluation.values[:, at])


def _counts(at: "int | Iterable[int]", last: int) -> list[int]:
    counts = [int(k) for k in np.atleast_1d(np.asarray(at if isinstance(at, int) else list(at), int))]
    if not counts or len(set(counts)) < len(counts) or not all(0 <= k <= last for k in counts):
        raise ValueError(f"at must be different iteration counts between 0 and {last}, those evaluated, got {at}")
    return counts


def _tolerances(tolerances: Iterable[float]) -> list[float]:
    values = [float(t) for t in tolerances]
    positive = all(0 < t < math.inf for t in values)
    if not values or not positive or len({tolerance_text(t) for t in values}) < len(values):
        raise ValueError(f"tolerances must be positive numbers that differ in three digits, got {values}")
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ratio(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}"
