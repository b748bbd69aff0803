"""The elements of figures: frames, lines, bands, bounds, schedules, each drawn on one pair of axes."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .._util.text import percent
from ..algorithms.registry import REGISTERED
from ..certificates.certificate import Certificate
from ..evaluation.evaluate import FLOOR, Evaluation
from ..schedules.schedule import Schedule
from .style import COLOURS, DASHES, MARKERS, LegendEntry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# How a line is dashed: by Matplotlib's name, or by an offset and lengths.
Dashes: TypeAlias = Literal["none", "-."] | tuple[float, tuple[float, ...]]
LineEntry: TypeAlias = "tuple[Line2D, str]"
_SYMBOLS = {name: symbol for algorithm in REGISTERED for name, symbol in algorithm.symbols.items()}
_UNITS = {name: unit for algorithm in REGISTERED for name, unit in algorithm.units.items()}
# What errors are measured in, by metric: residuals of rows and of gradients have units of their own.
_MEASURED_IN = {"suboptimality": "units of the objective", "gap": "units of the objective"}
_MEASURED_IN |= dict.fromkeys(("residual", "residual_max", "primal", "dual"), "units of the problem")


class Mark(NamedTuple):
    """A level to mark in every panel: its label, values by name, and how its line looks."""

    label: str
    values: Mapping[str, float]
    colour: str
    dashes: Dashes


def label_measure(evaluation: Evaluation) -> str:
    """Return what the errors of an evaluation measure, with their unit where longstep knows it."""
    return add_unit(evaluation.measure, name_unit(evaluation.metric))


def name_unit(metric: str) -> str | None:
    """Return the unit of the errors of a metric; None where it is a function of the user."""
    return _MEASURED_IN.get(metric)


def label_hyperparameter(name: str) -> str:
    """Return the symbol of a hyperparameter with its unit."""
    return add_unit(_SYMBOLS.get(name, name), _UNITS.get(name))


def add_unit(label: str, unit: str | None) -> str:
    """Return a label with its unit in brackets; without brackets where no unit is known."""
    if unit is None:
        return label
    return f"{label} [{unit}]"


def draw_frame(axis: "Axes", last: int, limits: tuple[float, float]) -> None:
    """Draw axes with whole iterations across and decades up."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis.set(yscale="log", xlim=(0, max(last, 1)), ylim=limits)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_locator(LogLocator(numticks=9))
    axis.yaxis.set_minor_locator(NullLocator())


def choose_limits(curves: Iterable[ArrayLike]) -> tuple[float, float]:
    """Return whole decades from the least value, or the floor of geometric means, up to where curves blow up.

    That is a thousand times the largest start.
    """
    shown = [c[np.isfinite(c) & (c > 0)] for c in map(np.asarray, curves)]
    values = np.concatenate(shown)
    if not values.size:
        return FLOOR / 2, 1.0
    top = min(values.max(), 1e3 * max(c[0] for c in shown if c.size), 1e300)
    low = max(min(values.min(), top), FLOOR)
    low = 10.0 ** math.floor(math.log10(low) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(top) + 0.05)
    if low <= FLOOR:
        low = FLOOR / 2
    return low, high


def draw_means(axis: "Axes", evaluations: list[Evaluation], chosen: int | None) -> list[LineEntry]:
    """Draw one line a method, the chosen one thicker; what leaves the axis runs along its top."""
    entries = []
    top = axis.get_ylim()[1]
    for i, e in enumerate(evaluations):
        every = max(1, e.iterations // 8)
        # No line leaves the axis, so that none need be cut at its edges.
        (line,) = axis.plot(
            _clip(e.geometric_mean, top),
            label=e.name,
            zorder=3,
            clip_on=False,
            color=COLOURS[i],
            linestyle=DASHES[i],
            marker=MARKERS[i],
            markevery=(i * every // len(evaluations), every),
            linewidth=2.0 if i == chosen else 1.2,
        )
        above = np.flatnonzero(~(e.geometric_mean <= top))
        label = e.name
        if above.size:
            axis.plot(above[:1], [top], marker="^", markersize=5, color=COLOURS[i], clip_on=False, zorder=4)
            label = f"{e.name} (off scale from k\u00a0=\u00a0{above[0]})"
        entries.append((line, label))
    return entries


def _clip(curve: np.ndarray, top: float) -> np.ndarray:
    return np.minimum(np.where(np.isnan(curve), top, np.maximum(curve, FLOOR)), top)


def draw_band(axis: "Axes", edges: Sequence[np.ndarray], levels: Sequence[float], index: int) -> LegendEntry:
    """Draw the band between two quantiles over the instances, of these levels, in the colour of a method."""
    top = axis.get_ylim()[1]
    low, high = (_clip(edge, top) for edge in edges)
    patch = axis.fill_between(np.arange(low.size), low, high, color=COLOURS[index], alpha=0.18, linewidth=0, zorder=1)
    return patch, f"{100 * levels[0]:g}%–{100 * levels[1]:g}% of instances"


def draw_certificate(axis: "Axes", certificate: Certificate, colour: str) -> list[LineEntry]:
    """Draw bounds, which hold at their iterations only: markers, joined where they are of one quantile."""
    from matplotlib.patheffects import withStroke

    claims = [c for c in certificate.claims if FLOOR <= c.tolerance < math.inf]
    if certificate.level is None:
        # A fraction that rounds to nothing claims nothing.
        claims = [c for c in claims if c.success >= 1e-3]
        upper = [(c.iterations, c.tolerance) for c in claims]
        for c in claims:
            axis.annotate(
                percent(c.success),
                (c.iterations, c.tolerance),
                xytext=(4, 3),
                textcoords="offset points",
                annotation_clip=False,
                zorder=6,
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
        return [(_draw_bounds(axis, upper, "v", colour, "none"), "certified: so many instances are below")]
    level = 100 * certificate.level
    dotted = (0, (1, 1))
    none = [c.iterations for c in certificate.claims if not math.isfinite(c.tolerance)]
    upper = [(c.iterations, c.tolerance) for c in claims]
    entries = [(_draw_bounds(axis, upper, "v", colour, dotted), f"certified {level:g}% quantile{_list_absent(none)}")]
    lower = [(c.iterations, v) for c, v in zip(certificate.claims, certificate.lower, strict=True) if v >= FLOOR]
    if lower:
        entries.append((_draw_bounds(axis, lower, "^", colour, dotted), f"certified {100 - level:g}% quantile"))
    return entries


def _draw_bounds(axis: "Axes", points: list[tuple[int, float]], marker: str, colour: str, dashes: Dashes) -> "Line2D":
    from matplotlib.lines import Line2D

    counts = [count for count, _ in points]
    values = [value for _, value in points]
    line = Line2D(
        counts,
        values,
        marker=marker,
        color="black",
        markerfacecolor=colour,
        markersize=5.5,
        linewidth=0.7,
        linestyle=dashes,
        markeredgewidth=0.6,
        clip_on=False,
        zorder=5,
    )
    # A line without points has no place in a layout; in the legend it still tells what was not found.
    if points:
        axis.add_line(line)
    return line


def _list_absent(counts: list[int]) -> str:
    """Return in brackets where there is no bound, nothing where there are all."""
    if not counts:
        return ""
    shown = ", ".join(map(str, counts[:3]))
    if len(counts) > 3:
        shown += f" and {len(counts) - 3} more"
    return f" (none at k\u00a0=\u00a0{shown})"


def draw_worst(axis: "Axes", counts: np.ndarray, values: np.ndarray) -> LegendEntry:
    """Draw the worst case, with a mark at every count where they are few."""
    top = axis.get_ylim()[1]
    (line,) = axis.plot(counts, _clip(values, top), color="black", linewidth=0.9, zorder=2)
    if len(counts) <= 20:
        line.set(marker="_", markersize=7)
    above = counts[values > top]
    if above.size:
        return line, f"worst case (off scale from k\u00a0=\u00a0{above[0]})"
    return line, "worst case"


def label_ends(axis: "Axes", entries: list[LineEntry]) -> None:
    """Write names at the right ends of the lines, moved apart, with a thin line from the end to the name."""
    low, high = np.log10(axis.get_ylim())
    ends = np.array([np.asarray(line.get_xydata())[-1] for line, _ in entries])
    wanted = (np.log10(ends[:, 1]) - low) / (high - low)
    # Axes take about three quarters of the figure's height; a line of text 10 points.
    figure = axis.get_figure(root=True)
    assert figure is not None
    places = move_apart(wanted, 10 / (0.75 * 72 * figure.get_size_inches()[1]))
    for (line, name), end, place in zip(entries, ends, places, strict=True):
        arrow = {"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.8, "shrinkA": 1, "shrinkB": 2}
        arrow |= {"relpos": (0, 0.5)}
        axis.annotate(
            name,
            end,
            va="center",
            arrowprops=arrow,
            xytext=(1.04, place),
            textcoords="axes fraction",
            annotation_clip=False,
        )


def move_apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Return places in [0, 1] at least `gap` apart, in the same order."""
    order = np.argsort(wanted, kind="stable")
    places = np.array(wanted, np.float64)
    for a, b in itertools.pairwise(order):
        places[b] = max(places[b], places[a] + gap)
    places[order[-1]] = min(places[order[-1]], 1.0)
    for b, a in itertools.pairwise(order[::-1]):
        places[a] = min(places[a], places[b] - gap)
    return places


def draw_schedule(
    axis: "Axes", main: Schedule, name: str, end: int, other: Mapping[str, Schedule], marks: Sequence[Mark]
) -> list[LineEntry]:
    """Draw one hyperparameter: step-varying, steady, what it is compared with, and levels to mark."""
    from matplotlib.ticker import MaxNLocator

    H = len(main)
    entries = []
    shown: list[float] = [main.steady[name], *main[name]]
    axis.axvspan(H - 0.5, end - 0.5, color="#EEEEEE", linewidth=0, zorder=0)
    for edge in itertools.accumulate(main.blocks[:-1]):
        axis.axvline(edge - 0.5, color="#AAAAAA", linewidth=0.5, zorder=0)
    if H:
        (line,) = axis.plot(
            main[name], label="learned", marker="o", markersize=3, linewidth=0.8, color=COLOURS[0], zorder=4
        )
        entries.append((line, "learned"))
    (steady,) = axis.plot([H - 0.5, end - 0.5], [main.steady[name]] * 2, color=COLOURS[0], linewidth=2.4, zorder=4)
    entries.append((steady, "steady state"))
    for i, (label, s) in enumerate(other.items(), start=1):
        if name in s.names:
            values = [s[k][name] for k in range(end)]
            (line,) = axis.plot(
                values,
                label=label,
                linewidth=0.8,
                zorder=3,
                color=COLOURS[i],
                linestyle=DASHES[i],
                marker=MARKERS[i],
                markersize=2.5,
            )
            entries.append((line, label))
            shown += values
    for mark in marks:
        if name in mark.values:
            level = mark.values[name]
            line = axis.axhline(level, linewidth=1.0, zorder=2, color=mark.colour, linestyle=mark.dashes)
            entries.append((line, mark.label))
            shown.append(level)
    axis.set(xlim=(-0.5, end - 0.5), ylabel=label_hyperparameter(name))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    _choose_scale(axis, min(shown), max(shown))
    return entries


def _choose_scale(axis: "Axes", least: float, most: float) -> None:
    """Make the axis logarithmic where all values are positive and span a factor of five or more."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if least <= 0 or most < 5 * least:
        return
    axis.set_yscale("log")
    if most <= 200 * least and least >= 1e-2 and most < 1e4:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
