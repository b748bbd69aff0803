"""Panels of inline SVG: scales, axes, lines, bands and places to point at. Colours are classes of the page's style."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .._util.text import count_text, error_text
from .markup import Markup, join, tag

ScaleKind: TypeAlias = Literal["log", "lin"]
# A panel in pixels, as wide as a phone; wider pages have several beside each other, so letters are never scaled down.
WIDTH = 340
HEIGHT = 230
LEFT = 54
RIGHT = 22
TOP = 12
BOTTOM = 40


@dataclass(frozen=True)
class Scale:
    """A map from values in [low, high] to pixels from `start` to `end`, logarithmic or linear."""

    low: float
    high: float
    start: float
    end: float
    kind: ScaleKind = "lin"

    def place(self, value: float) -> float:
        """Return the pixel of a value; what lies outside is put on the edge, what is not a number on the high one."""
        if math.isnan(value):
            return self.end
        value = min(max(value, self.low), self.high)
        if self.kind == "log":
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def choose_ticks(self) -> list[float]:
        """Return at most seven round values in the range."""
        if self.kind == "log":
            return _choose_powers(self.low, self.high)
        return _choose_multiples(self.low, self.high)


def scale_across(low: float, high: float, kind: ScaleKind = "lin", left: float = LEFT, width: float = WIDTH) -> Scale:
    """Return a scale from the left to the right of a panel."""
    return Scale(low, high, left, width - RIGHT, kind)


def scale_upwards(low: float, high: float, kind: ScaleKind = "lin", height: float = HEIGHT) -> Scale:
    """Return a scale from the bottom to the top of a panel."""
    return Scale(low, high, height - BOTTOM, TOP, kind)


def span_decades(values: Iterable[float], floor: float = 1e-16) -> tuple[float, float]:
    """Return the whole decades around all positive finite values, at least one."""
    shown = [max(v, floor) for v in values if 0 < v < math.inf]
    if not shown:
        return 0.1, 1.0
    low = 10.0 ** math.floor(math.log10(min(shown)) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max(shown)) - 1e-9)
    return low, max(high, 10 * low)


def draw_axes(x: Scale, y: Scale, x_label: str, y_label: str, height: float = HEIGHT) -> Markup:
    """Return grid, ticks and the labels of both axes; the vertical one stands on its side."""
    parts = []
    for value in y.choose_ticks():
        at = y.place(value)
        parts.append(tag("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", show_number(value), x=x.start - 5, y=at + 3.5, text_anchor="end"))
    for value in x.choose_ticks():
        at = x.place(value)
        parts.append(tag("line", x1=at, x2=at, y1=y.start, y2=y.start + 4, class_="tick"))
        parts.append(tag("text", show_number(value), x=at, y=y.start + 15, text_anchor="middle"))
    parts.append(tag("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
    middle = (x.start + x.end) / 2
    parts.append(tag("text", x_label, x=middle, y=height - 8, text_anchor="middle", class_="label"))
    turned = f"translate(11 {(y.start + y.end) / 2}) rotate(-90)"
    parts.append(tag("text", y_label, transform=turned, text_anchor="middle", class_="label"))
    return join(*parts)


def draw_line(x: Scale, y: Scale, counts: Sequence[float], values: Sequence[float], class_: str) -> Markup:
    """Return a line through points."""
    points = " ".join(f"{x.place(k):g},{y.place(v):g}" for k, v in zip(counts, values, strict=True))
    return tag("polyline", points=points, class_=f"line {class_}")


def draw_stairs(x: Scale, y: Scale, counts: Sequence[float], values: Sequence[float], class_: str) -> Markup:
    """Return a line that keeps each value until the next count."""
    wide = [k for k in counts for _ in (0, 1)][1:]
    high = [v for v in values for _ in (0, 1)][:-1]
    return draw_line(x, y, wide, high, class_)


def draw_band(
    x: Scale, y: Scale, counts: Sequence[float], low: Sequence[float], high: Sequence[float], class_: str
) -> Markup:
    """Return the area between two curves."""
    there = [f"{x.place(k):g},{y.place(v):g}" for k, v in zip(counts, low, strict=True)]
    back = [f"{x.place(k):g},{y.place(v):g}" for k, v in zip(counts, high, strict=True)]
    return tag("polygon", points=" ".join([*there, *reversed(back)]), class_=f"band {class_}")


def draw_hits(x: Scale, y: Scale, counts: Sequence[float], texts: Sequence[str]) -> Markup:
    """Return places to point at, one around each count from the bottom to the top, which tell a text."""
    places = [x.place(k) for k in counts]
    edges = [x.start, *((a + b) / 2 for a, b in itertools.pairwise(places)), x.end]
    hits = []
    for (left, right), text in zip(itertools.pairwise(edges), texts, strict=True):
        size = {"x": f"{left:g}", "width": f"{max(right - left, 1):g}", "y": y.end, "height": y.start - y.end}
        hits.append(tag("rect", tag("title", text), class_="hit", **size))
    return tag("g", *hits)


def make_panel(title: str, words: str, *parts: Markup, height: float = HEIGHT) -> Markup:
    """Return a figure with a title above and room for what is pointed at below; `words` say what it shows."""
    drawing = tag("svg", *parts, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=f"{title}: {words}")
    return tag("figure", tag("figcaption", title), drawing, tag("output", "\u00a0", class_="read"), class_="panel")


def show_number(value: float) -> str:
    """Return a number on an axis: 0.5, 2,000, 1e-6."""
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        if abs(value) >= 1000:
            return count_text(value)
        return f"{value:,.4g}"
    return error_text(value, 1)


def _choose_powers(low: float, high: float) -> list[float]:
    """Return powers of ten, or where there are few of them also their double and fivefold."""
    first = math.ceil(math.log10(low) - 1e-9)
    last = math.floor(math.log10(high) + 1e-9)
    if last - first < 2:
        values = [m * 10.0**e for e in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]
    step = max(1, math.ceil((last - first) / 6))
    return [10.0**e for e in range(first, last + 1, step)]


def _choose_multiples(low: float, high: float) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten, about five of them."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]
