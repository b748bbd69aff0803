"""The sections of a report's page that compare methods: steps and time until `solve` ends, errors step by step."""

from collections.abc import Mapping, Sequence

from .._util.text import count_text, error_text, reached_text, seconds_text, tolerance_text
from ..evaluation.cost import describe_times, limits_text
from ..evaluation.evaluate import TOLERANCES
from .charts import draw_convergence, draw_profiles, draw_ranges
from .document import CostRow, Curves, ReportDocument
from .drawing import name_unit
from .markup import Markup, tag


def show_costs(document: ReportDocument, colours: Mapping[str, str]) -> Markup | str:
    """Return what a user had before beside what he has now: tables and pictures of steps and time."""
    costs = document.costs
    if not costs:
        return ""
    groups = [order_rows([r for r in costs if r.eps == eps], costs[0]) for eps in sorted({r.eps for r in costs})[::-1]]
    kept = costs[0]
    count = document.instances.get("test", len(kept.steps or ()))
    told = (
        f"Steps until solve ends on {count} test instances that training never saw: the first test of the end, by "
        "residuals and gap in the ∞-norm, that is met, with "
        f"{limits_text([(cost.method, cost.most) for cost in costs])}. A change of the finish counts as the "
        f"steps that cost as much. {describe_times([(cost.method, cost.compiled) for cost in costs])}"
    )
    parts: list[Markup] = [tag("h2", "Before and now"), tag("p", told, class_="more")]
    parts.append(tag("div", *(_tabulate_costs(rows, kept) for rows in groups), class_="tables"))
    key = "Dot: median. Stroke: 95% of instances. Ring: the slowest instance, or the limit where some are unsolved."
    parts.append(tag("p", key, class_="more"))
    parts.append(tag("div", *(draw_ranges(rows, colours) for rows in groups), class_="panels"))
    if all(row.steps is not None for row in costs):
        parts.append(make_key([(row.method, f"line {colours[row.method]}") for row in groups[0]]))
        panels = tag("div", *(draw_profiles(rows, colours) for rows in groups), class_="panels")
        parts.append(_make_switch("steps", "steps", panels))
    return tag("section", *parts)


def order_rows(rows: list[CostRow], kept: CostRow) -> list[CostRow]:
    """Return rows as one came to them: the package, the defaults, the best constant, what is kept."""
    return sorted(rows, key=lambda row: (row.method == kept.method, not row.is_package, row.method != "defaults"))


def _tabulate_costs(rows: Sequence[CostRow], kept: CostRow) -> Markup:
    """Return a table of the steps and the time of each method at one tolerance."""
    now = next(row for row in rows if row.method == kept.method)
    names = ("", "mean", "median", "95%", "worst", "unsolved", "time", "median, × now")
    body = []
    for row in rows:
        role = _name_role(row, now)
        name = row.method
        if role != "constant":
            name = f"{row.method} ({role})"
        ratio = ""
        if row is not now:
            ratio = f"{row.median / max(now.median, 1):.3g}"
        steps = [count_text(row.median), count_text(row.late), count_text(row.worst)]
        cells = [_show_mean(row), *steps, str(row.unsolved), seconds_text(row.seconds), ratio]
        body.append(tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells), class_=role))
    caption = tag("caption", f"Steps to {tolerance_text(now.eps)}")
    head = tag("thead", tag("tr", *(tag("th", name) for name in names)))
    return tag("div", tag("table", caption, head, tag("tbody", *body)), class_="wide")


def _name_role(row: CostRow, now: CostRow) -> str:
    """Return whether a method is what a user has now, had before, or neither: the best constant."""
    if row is now:
        return "now"
    if row.is_package or row.method == "defaults":
        return "before"
    return "constant"


def _show_mean(row: CostRow) -> str:
    """Return the mean of the steps, which is a bound where some instances are unsolved; nothing where it is unknown."""
    if row.mean is None:
        return ""
    if row.unsolved:
        return f"≥ {count_text(row.mean)}"
    return count_text(row.mean)


def make_key(entries: Sequence[tuple[str, str]]) -> Markup:
    """Return a legend: a sample of each line and what it is."""
    items = []
    for words, class_ in entries:
        line = tag("line", x1=0, x2=30, y1=5, y2=5, class_=class_)
        items.append(tag("li", tag("svg", line, viewBox="0 0 30 10", aria_hidden="true"), words))
    return tag("ul", *items, class_="key")


def _make_switch(name: str, axis: str, panels: Markup) -> Markup:
    """Return panels with a switch between a logarithmic and a linear axis, which needs no script."""
    parts = []
    for kind, words in (("log", f"{axis}: logarithmic"), ("lin", "linear")):
        key = f"{name}-{kind}"
        checked = True if kind == "log" else None
        box = tag("input", type="radio", name=name, id=key, class_=f"pick pick-{kind}", checked=checked)
        parts += [box, tag("label", words, for_=key)]
    return tag("div", *parts, panels)


def show_convergence(document: ReportDocument, colours: Mapping[str, str]) -> Markup | str:
    """Return errors step by step, for every method a panel, and the iterations to tolerances."""
    curves = document.curves
    if not curves:
        return ""
    told = f"{document.measure}, after each step."
    if document.costs:
        told = f"{document.measure}, after each step, of the steps alone: without the exact finish that ends a solve."
    styles = [("median", "line median c0"), ("95% of instances are below", "line late c0")]
    styles += [("worst instance", "line worst c0"), ("medians of the others", "line behind")]
    parts: list[Markup] = [tag("h2", "Convergence"), tag("p", told, class_="more"), make_key(styles)]
    if document.certificate is not None:
        parts.append(tag("p", "▼ what the certificate promises, in the first panel.", class_="more"))
    unit = name_unit(document.metric) or "its own units"
    panels = draw_convergence(curves, colours, document.certificate, unit)
    parts.append(_make_switch("errors", "errors", tag("div", panels, class_="panels")))
    parts.append(_tabulate_reached(curves))
    return tag("section", *parts)


def _tabulate_reached(curves: Sequence[Curves]) -> Markup:
    """Return the iterations to tolerances: first touch, and from where on it stays below, for mean and tail."""
    body = []
    for c in curves:
        for words, curve in (("mean", c.mean), ("median", c.median), ("95%", c.late), ("worst", c.worst)):
            cells = [tag("td", reached_text(c.find_reached(t, curve))) for t in TOLERANCES]
            last = tag("td", error_text(curve[-1]))
            body.append(tag("tr", tag("th", c.method, scope="row"), tag("td", words, class_="words"), *cells, last))
    end = max(max(c.counts) for c in curves)
    names = [*(tolerance_text(t) for t in TOLERANCES), f"error at {end}"]
    heads = [tag("th", ""), tag("th", "over instances", class_="words"), *(tag("th", name) for name in names)]
    head = tag("thead", tag("tr", *heads))
    told = (
        "Iterations until the error is at most the tolerance: first touch, and in brackets, where it is another, the "
        "iteration from which it stays there. –: not within the steps that were run. The mean is geometric. The "
        "package is measured at some counts alone, so its iterations may come out late, never early."
    )
    table = tag("div", tag("table", head, tag("tbody", *body)), class_="wide")
    return tag("details", tag("summary", "Iterations to tolerances, mean and tail"), tag("p", told), table)
