"""The charts of a report's page, each out of panels of inline SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence

from .._util.text import count_text, error_text, seconds_text, tolerance_text, value_text
from ..certificates.certificate import Certificate
from .document import CostRow, Curves, LearnedFacts, MetricGroup
from .markup import Markup, join, tag
from .svg import (
    BOTTOM,
    TOP,
    WIDTH,
    Scale,
    ScaleKind,
    draw_axes,
    draw_band,
    draw_hits,
    draw_line,
    draw_stairs,
    make_panel,
    scale_across,
    scale_upwards,
    show_number,
    span_decades,
)

# Errors below this are rounding.
_FLOOR = 1e-16
# Places to point at in one panel: more are too narrow.
_HITS = 120
# Constraints whose metric is drawn; all others are in the report's data.
MOST_GROUPS = 24
_NAMES = 118
_LINE = 30


def choose_colours(methods: Iterable[str]) -> dict[str, str]:
    """Return a class of colour for every method, the same in all charts of a page."""
    return {name: f"c{i % 8}" for i, name in enumerate(dict.fromkeys(methods))}


def draw_ranges(rows: Sequence[CostRow], colours: Mapping[str, str]) -> Markup:
    """Return a panel of the steps of each method at one tolerance, from the median by 95% to the worst."""
    height = TOP + BOTTOM + _LINE * len(rows)
    low, high = span_decades(max(value, 1.0) for row in rows for value in (row.median, row.worst))
    x = scale_across(low, high, "log", left=_NAMES)
    lines = []
    for value in x.choose_ticks():
        at = x.place(value)
        lines.append(tag("line", x1=at, x2=at, y1=TOP, y2=height - BOTTOM, class_="grid"))
        lines.append(tag("text", show_number(value), x=at, y=height - BOTTOM + 15, text_anchor="middle"))
    middle = (x.start + x.end) / 2
    lines.append(
        tag("text", "steps until solve ends [steps]", x=middle, y=height - 8, text_anchor="middle", class_="label")
    )
    for i, row in enumerate(rows):
        at = TOP + _LINE * (i + 0.5)
        places = [x.place(max(value, 1.0)) for value in (row.median, row.late, row.worst)]
        colour = colours[row.method]
        lines.append(tag("text", row.method, x=_NAMES - 8, y=at + 4, text_anchor="end"))
        lines.append(tag("line", x1=places[0], x2=places[2], y1=at, y2=at, class_=f"reach {colour}"))
        lines.append(tag("line", x1=places[1], x2=places[1], y1=at - 6, y2=at + 6, class_=f"late {colour}"))
        lines.append(tag("circle", cx=places[0], cy=at, r=5, class_=f"dot {colour}"))
        lines.append(tag("circle", cx=places[2], cy=at, r=4, class_=f"ring {colour}"))
        whole = {"x": 0, "y": at - _LINE / 2, "width": WIDTH, "height": _LINE}
        lines.append(tag("rect", tag("title", _read_row(row)), class_="hit", **whole))
    title = f"To {tolerance_text(rows[0].eps)}"
    return make_panel(title, "; ".join(map(_read_row, rows)), *lines, height=height)


def _read_row(row: CostRow) -> str:
    """Return a row of costs in words."""
    words = f"{row.method}: median {count_text(row.median)}, 95% {count_text(row.late)}, worst {count_text(row.worst)}"
    if row.unsolved:
        words += f", {row.unsolved} unsolved"
    return words


def draw_profiles(rows: Sequence[CostRow], colours: Mapping[str, str]) -> Markup:
    """Return a panel of the share of instances that each method has solved by each step, in both scales."""
    steps = {row.method: sorted(max(k, 1) for k in row.steps or () if k is not None) for row in rows}
    largest = max([k for counts in steps.values() for k in counts], default=1)
    y = scale_upwards(0.0, 100.0)
    end = 10 ** math.ceil(math.log10(max(largest, 2)))
    variants = []
    for kind, x in (("log", scale_across(1, end, "log")), ("lin", scale_across(0, 1.05 * largest))):
        lines = [draw_axes(x, y, "budget [steps]", "instances solved [%]")]
        for row in rows:
            counts = steps[row.method]
            total = len(row.steps or ()) or 1
            shares = [100 * solved / total for solved in range(len(counts) + 1)]
            stairs = draw_stairs(x, y, [x.low, *counts, x.high], [*shares, shares[-1]], colours[row.method])
            lines.append(stairs)
        points = _choose_points(x, largest)
        texts = [_read_profile(k, rows) for k in points]
        lines.append(draw_hits(x, y, points, texts))
        variants.append(tag("g", *lines, class_=f"as-{kind}"))
    title = f"Solved to {tolerance_text(rows[0].eps)}"
    words = "; ".join(f"{row.method} {len(steps[row.method])} of {len(row.steps or ())}" for row in rows)
    return make_panel(title, words, *variants)


def _choose_points(x: Scale, largest: int) -> list[int]:
    """Return the counts to point at on an axis of steps."""
    if x.kind == "lin":
        return sorted({round(x.high * i / 40) for i in range(41)})
    powers = 40 * math.log10(x.high / x.low) / 4
    return sorted({round(x.low * 10 ** (4 * i / 40)) for i in range(math.ceil(powers) + 1)})


def _read_profile(count: int, rows: Sequence[CostRow]) -> str:
    shares = []
    for row in rows:
        steps = row.steps or ()
        solved = sum(k is not None and k <= count for k in steps)
        shares.append(f"{row.method} {100 * solved / max(len(steps), 1):.3g}%")
    return f"{count_text(count)} steps: {', '.join(shares)}"


def draw_convergence(curves: Sequence[Curves], colours: Mapping[str, str], certificate: Certificate | None, unit: str):
    """Return a panel a method: median, 95% and worst over the instances, with the others' medians behind, in grey."""
    values = [v for c in curves for curve in (c.median, c.late, c.worst) for v in curve]
    starts = [v for c in curves if c.whole for v in (c.worst[0],) if math.isfinite(v)]
    # What blows up leaves the picture at a thousand times the start.
    top = 1e3 * max(starts, default=math.inf)
    low, high = span_decades([min(v, top) for v in values if v > 0 and math.isfinite(v)], _FLOOR)
    last = max(max(c.counts) for c in curves)
    x = scale_across(0, max(last, 1))
    most = max((v for c in curves for v in c.late if math.isfinite(v) and v <= top), default=1.0) or 1.0
    scales: list[tuple[ScaleKind, Scale]] = [
        ("log", scale_upwards(low, high, "log")),
        ("lin", scale_upwards(0.0, most)),
    ]
    panels = []
    for mine in curves:
        promised = None
        if mine is curves[0]:
            promised = certificate
        variants = []
        for kind, y in scales:
            others = [draw_line(x, y, c.counts, c.median, "behind") for c in curves if c is not mine]
            bounds = draw_bounds(x, y, promised)
            band = draw_band(x, y, mine.counts, mine.median, mine.worst, colours[mine.method])
            lines = [
                draw_line(x, y, mine.counts, curve, f"{colours[mine.method]} {style}")
                for curve, style in ((mine.worst, "worst"), (mine.late, "late"), (mine.median, "median"))
            ]
            axes = draw_axes(x, y, "iteration [steps]", f"error [{unit}]")
            variants.append(tag("g", axes, band, *others, *lines, bounds, class_=f"as-{kind}"))
        shown = range(0, len(mine.counts), math.ceil(len(mine.counts) / _HITS))
        texts = [_read_errors(mine, j) for j in shown]
        hits = draw_hits(x, scales[0][1], [mine.counts[j] for j in shown], texts)
        words = _read_errors(mine, len(mine.counts) - 1)
        panels.append(make_panel(f"{mine.method}, {mine.instances} instances", words, *variants, hits))
    return join(*panels)


def draw_bounds(x: Scale, y: Scale, certificate: Certificate | None) -> Markup:
    """Return marks at what a certificate promises, nothing where it promises nothing."""
    if certificate is None:
        return join()
    marks = []
    for claim in certificate.claims:
        if _FLOOR < claim.tolerance < math.inf and claim.iterations <= x.high:
            a = x.place(claim.iterations)
            b = y.place(claim.tolerance)
            marks.append(tag("path", d=f"M{a - 4:g} {b - 7:g}h8l-4 7z", class_="promise"))
    return join(*marks)


def _read_errors(curves: Curves, j: int) -> str:
    triple = (("median", curves.median), ("95%", curves.late), ("worst", curves.worst))
    return f"k = {curves.counts[j]}: " + ", ".join(f"{name} {error_text(curve[j])}" for name, curve in triple)


def draw_schedule(learned: LearnedFacts) -> Markup:
    """Return a panel for each hyperparameter: every step's value, the steady state, the best constant, the default."""
    panels = []
    for name, values in learned.varying.items():
        steady = learned.steady[name]
        marks = {"const": learned.constant.get(name), "usual": learned.defaults.get(name)}
        levels = [*values, steady, *(v for v in marks.values() if v is not None)]
        H = len(values)
        x = scale_across(-0.5, H + max(3, H // 6) - 0.5)
        y = _choose_scale(levels)
        unit = learned.units.get(name, "1")
        parts = [draw_axes(x, y, "iteration [steps]", f"{name} [{unit}]")]
        edge = x.place(H - 0.5)
        parts.append(tag("rect", x=edge, width=x.end - edge, y=y.end, height=y.start - y.end, class_="steady"))
        for class_, level in marks.items():
            if level is not None:
                parts.append(draw_line(x, y, [x.low, x.high], [level, level], class_))
        if H:
            parts.append(draw_line(x, y, range(H), values, "c0 median"))
            parts += [tag("circle", cx=x.place(k), cy=y.place(v), r=2.2, class_="dot c0") for k, v in enumerate(values)]
        parts.append(draw_line(x, y, [H - 0.5, x.high], [steady, steady], "c0 thick"))
        texts = [f"step {k}: {name} {value:.4g}" for k, value in enumerate(values)]
        texts.append(f"steady from step {H}: {name} {steady:.4g}, best constant {value_text(marks['const'])}, ")
        texts[-1] += f"default {value_text(marks['usual'])}"
        parts.append(draw_hits(x, y, [*range(H), (H - 0.5 + x.high) / 2], texts))
        panels.append(make_panel(name, texts[-1], *parts))
    return join(*panels)


def _choose_scale(levels: Sequence[float]) -> Scale:
    """Return a logarithmic axis where values are positive and span a factor of five, else a linear one with room."""
    low = min(levels)
    high = max(levels)
    if low > 0 and high >= 5 * low:
        return scale_upwards(low / 1.3, high * 1.3, "log")
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return scale_upwards(low - room, high + room)


def draw_metric(groups: Sequence[MetricGroup]) -> Markup:
    """Return a panel for each constraint: by how much the penalty of each of its rows is raised or lowered."""
    values = [v for group in groups for v in group.values]
    low = min(0.5, min(values) / 1.2)
    high = max(2.0, 1.2 * max(values))
    height = 170
    panels = []
    for group in groups[:MOST_GROUPS]:
        count = len(group.values)
        x = scale_across(-0.5, count - 0.5)
        y = scale_upwards(low, high, "log", height)
        base = y.place(1.0)
        wide = max((x.end - x.start) / count * 0.7, 0.6)
        bars = []
        for j, value in enumerate(group.values):
            top = y.place(value)
            size = {"y": min(top, base), "height": max(abs(top - base), 0.8), "width": f"{wide:g}"}
            bars.append(tag("rect", x=f"{x.place(j) - wide / 2:g}", class_="bar c0", **size))
        axes = draw_axes(x, y, "row of the constraint [number]", "metric [1]", height)
        middle = tag("line", x1=x.start, x2=x.end, y1=base, y2=base, class_="axis")
        texts = [_read_entry(group, j) for j in range(count)]
        words = f"{count} rows between {min(group.values):.3g} and {max(group.values):.3g}"
        panels.append(
            make_panel(group.name, words, axes, *bars, middle, draw_hits(x, y, range(count), texts), height=height)
        )
    return join(*panels)


def _read_entry(group: MetricGroup, j: int) -> str:
    words = []
    if group.entries[j]:
        words.append(group.entries[j])
    if group.unknowns[j]:
        words.append(f"({group.unknowns[j]})")
    return f"{' '.join(words)}: penalty × {group.values[j]:.3g}"


def draw_times(timing: Mapping[str, float], total: float) -> Markup:
    """Return a table of phases with a bar for each, as long as its share of the whole time."""
    rows = []
    for name, seconds in timing.items():
        share = 0.0
        if total:
            share = 100 * seconds / total
        bar = tag("span", class_="share", style=f"width:{min(share, 100):.1f}%")
        cells = [tag("th", name, scope="row"), tag("td", seconds_text(seconds)), tag("td", f"{share:.0f}%")]
        rows.append(tag("tr", *cells, tag("td", bar, class_="bars")))
    return tag("div", tag("table", *rows, class_="times"), class_="wide")
