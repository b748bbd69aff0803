"""Figures for print: errors over the iterations, primal and dual residuals apart, schedules.

Each is made for a width in inches, 6.5 (a page) or 3.5 (a column), with letters of 8 points and more. The colours are
apart for the colour-blind (Okabe and Ito 2008), line styles and markers in grey print. Matplotlib's global state is
left alone: settings of the user neither change nor matter, and pyplot is not imported.
"""

import io
import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .. import storage
from ..certificates.certificate import Certificate
from ..evaluation import FLOOR, Evaluation
from ..schedules.schedule import Schedule
from ..training.train import Training
from .style import COLOURS, DASHES, GREY, MARKERS, Entry, canvas, finished, styled
from .tables import comparable, described

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Nothing that tells when or with what a file was made.
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SYMBOLS = {
    "step": "step $t$", "momentum": r"momentum $\beta$", "alpha": r"$\alpha$", "sigma": r"$\sigma$",
    "rho_eq": r"$\rho_{\mathrm{eq}}$", "rho_ineq": r"$\rho_{\mathrm{ineq}}$", "r_w": "$r_w$", "r_yz": "$r_{yz}$",
    "r_ynz": "$r_{ynz}$", "r_tau": r"$r_\tau$",
}  # fmt: skip


def convergence(
    evaluations: Iterable[Evaluation],
    *,
    band: str | None = None,
    quantiles: tuple[float, float] | None = (0.05, 0.95),
    certificate: Certificate | None = None,
    worst_case: "ArrayLike | Mapping[int, float] | None" = None,
    title: str | None = None,
    width: float = 6.5,
) -> "Figure":
    """The geometric mean of each method over the iterations, on a logarithmic axis: average, certified and worst case.

    The method named `band` (by default the certified one, else the first) gets a band between two quantiles over the
    instances. `certificate` must be of one of the methods: its bounds are markers at the iterations it speaks of.
    `worst_case` is a curve from k = 0 on, or a value for each of some k. An error that blows up runs along the top of
    the axis and its label says from where; where nothing could be certified there is no marker, and the label says it.
    """
    evaluations = _few(comparable(evaluations))
    certified = _certified_method(evaluations, certificate)
    chosen = certified if band is None else _named(evaluations, band)
    means = [e.geometric_mean for e in evaluations]
    worst = _points({} if worst_case is None else worst_case)
    bounds = _bounds(certificate)
    edges = [] if quantiles is None else [evaluations[chosen].quantile(q) for q in sorted(quantiles)]
    with styled():
        figure, (axis,) = canvas(width, 1, 1, 0.56 * width if width >= 5 else 0.68 * width)
        last = max([e.iterations for e in evaluations] + [k for k, _ in bounds] + list(worst[0]))
        _frame(axis, int(last), _limits([*means, *edges, worst[1], *([v] for _, v in bounds)]))
        axis.set(xlabel="iteration", ylabel=_broken(evaluations[0].measure, figure))
        shown = f"Geometric mean, {described(evaluations[0])}" if title is None else title
        axis.set_title(textwrap.fill(shown, int((width - 0.8) / 0.068)))
        lines = _draw_means(axis, evaluations, chosen)
        entries = [] if not edges else [_draw_band(axis, edges, quantiles, evaluations[chosen], chosen)]
        entries += [] if certificate is None else _draw_certificate(axis, certificate, COLOURS[certified])
        entries += [_draw_worst(axis, *worst)] if worst[0].size else []
        short = len(lines) <= 4 and all(len(label) <= 36 for _, label in lines)
        if width >= 5 and short and len({e.iterations for e in evaluations}) == 1:
            _label_ends(axis, lines)
            lines = []
        return finished(figure, lines + entries)


def residuals(
    primal: "Evaluation | Iterable[Evaluation]",
    dual: "Evaluation | Iterable[Evaluation]",
    *,
    title: str | None = None,
    width: float = 6.5,
) -> "Figure":
    """Primal and dual residuals in two panels: the same methods evaluated with metric="primal" and metric="dual"."""
    panels = [_few(comparable([e] if isinstance(e, Evaluation) else e)) for e in (primal, dual)]
    names = [[e.name for e in panel] for panel in panels]
    if names[0] != names[1]:
        raise ValueError(f"the two panels must show the same methods in the same order, got {names[0]} and {names[1]}")
    if panels[0][0].data_hash != panels[1][0].data_hash:
        raise ValueError("the primal and the dual residuals are of different instances: evaluate both on one split")
    with styled():
        beside = width >= 5
        figure, axes = canvas(width, 1 if beside else 2, 2 if beside else 1, 0.4 * width if beside else 1.2 * width)
        limits, entries = _limits([e.geometric_mean for panel in panels for e in panel]), []
        for axis, panel in zip(axes, panels, strict=True):
            leftmost, lowest = axis is axes[0] or not beside, axis is axes[1] or beside
            _frame(axis, max(e.iterations for e in panel), limits)
            axis.set(ylabel="geometric mean" if leftmost else "", xlabel="iteration" if lowest else "")
            axis.tick_params(labelleft=leftmost, labelbottom=lowest)
            axis.set_title(panel[0].measure)
            entries = _draw_means(axis, panel, None)
        figure.suptitle(f"Over {described(panels[0][0])}" if title is None else title, x=0.01, ha="left", size=9)
        return finished(figure, [(line, name) for (line, _), name in zip(entries, names[0], strict=True)])


def schedule(
    learned: "Schedule | Training",
    *,
    default: "Schedule | Mapping[str, float] | None" = None,
    limit: "float | Mapping[str, float] | None" = None,
    other: Mapping[str, Schedule] | None = None,
    title: str | None = None,
    width: float = 6.5,
) -> "Figure":
    """Each hyperparameter over the steps, one panel each; the steady state follows in the grey part.

    `limit` marks the end of the range in which a constant converges: 2/L, or a value for each name. `default` marks the
    algorithm's defaults; of a Training the best constant is marked too. `other` are schedules to show beside it, such
    as {"silver": silver(L, 6)}. Thin lines part the blocks. The axis is logarithmic where all values are positive and
    span a factor of five or more.
    """
    main = learned.schedule if isinstance(learned, Training) else learned
    other = dict(other or {})
    _few(["learned", *other])
    marks = _marks(main, learned, default, limit)
    for name, s in other.items():
        if not set(s.names) & set(main.names):
            raise ValueError(f"{name!r} has {', '.join(s.names)}, but the schedule has {', '.join(main.names)}")
    with styled():
        names, H = main.names, len(main)
        columns = 2 if width >= 5 and len(names) > 1 else 1
        rows = -(-len(names) // columns)
        figure, axes = canvas(
            width, rows, columns, (2.6 if rows == 1 else 1.5 * rows) if width >= 5 else 0.6 + 1.3 * rows
        )
        entries: list[Entry] = []
        for axis, name in zip(axes, names, strict=False):
            entries += _draw_schedule(axis, main, name, H + max(3, H // 7), other, marks)
        for axis in axes[len(names) :]:
            axis.remove()
        for i, axis in enumerate(axes[: len(names)]):
            lowest = i + columns >= len(names)
            axis.set(xlabel="step $k$" if lowest else "")
            axis.tick_params(labelbottom=lowest)
        if title:
            figure.suptitle(title, x=0.01, ha="left", size=9)
        # Panels have their lines in common: one sample of each.
        samples = {(label, handle.get_color()): handle for handle, label in entries}
        return finished(figure, [(handle, label) for (label, _), handle in samples.items()])


def save(figure: "Figure", path: "str | Path", formats: Iterable[str] = ("png", "svg", "pdf")) -> list[Path]:
    """Write a figure to path.png, path.svg and path.pdf, each atomically; returns the paths.

    The same figure gives the same bytes, with the same version of Matplotlib.
    """
    formats = [formats] if isinstance(formats, str) else list(formats)
    if unknown := [f for f in formats if f not in _METADATA]:
        raise ValueError(f"formats are {', '.join(_METADATA)}, got {', '.join(map(str, unknown))}")
    if (suffix := Path(path).suffix.removeprefix(".")) in _METADATA:
        raise ValueError(f"give the path without its suffix .{suffix}, and formats=({suffix!r},)")
    # Names may contain dots: with_suffix would cut there.
    paths = [Path(f"{path}.{f}") for f in formats]
    with styled():
        for file, f in zip(paths, formats, strict=True):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=f, metadata=_METADATA[f])
            storage.write_bytes(file, buffer.getvalue())
    return paths


def _frame(axis: "Axes", last: int, limits: tuple[float, float]) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis.set(yscale="log", xlim=(0, max(last, 1)), ylim=limits)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    axis.yaxis.set_major_locator(LogLocator(numticks=9))
    axis.yaxis.set_minor_locator(NullLocator())


def _limits(curves: Iterable[ArrayLike]) -> tuple[float, float]:
    """Whole decades from the floor of geometric means up to a thousand times the largest start: the rest blew up."""
    shown = [c[np.isfinite(c) & (c > 0)] for c in map(np.asarray, curves)]
    values = np.concatenate(shown)
    if not values.size:
        return FLOOR / 2, 1.0
    top = min(values.max(), 1e3 * max(c[0] for c in shown if c.size), 1e300)
    low = max(min(values.min(), top), FLOOR)
    low, high = 10.0 ** math.floor(math.log10(low) + 1e-9), 10.0 ** math.ceil(math.log10(top) + 0.05)
    return (FLOOR / 2 if low <= FLOOR else low), high


def _draw_means(axis: "Axes", evaluations: list[Evaluation], chosen: int | None) -> list[Entry]:
    entries, top = [], axis.get_ylim()[1]
    for i, e in enumerate(evaluations):
        every = max(1, e.iterations // 8)
        style: dict[str, Any] = {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKERS[i]}
        style |= {"markevery": (i * every // len(evaluations), every), "linewidth": 2.0 if i == chosen else 1.2}
        above = np.flatnonzero(~(e.geometric_mean <= top))
        # No line leaves the axis, so that none need be cut at its edges.
        (line,) = axis.plot(_clipped(e.geometric_mean, top), label=e.name, zorder=3, clip_on=False, **style)
        if above.size:
            axis.plot(above[:1], [top], marker="^", markersize=5, color=COLOURS[i], clip_on=False, zorder=4)
        entries.append((line, f"{e.name} (off scale from k\u00a0=\u00a0{above[0]})" if above.size else e.name))
    return entries


def _clipped(curve: np.ndarray, top: float) -> np.ndarray:
    return np.minimum(np.where(np.isnan(curve), top, np.maximum(curve, FLOOR)), top)


def _draw_band(axis: "Axes", edges: list[np.ndarray], levels: Any, evaluation: Evaluation, index: int) -> Entry:
    top, k = axis.get_ylim()[1], np.arange(evaluation.iterations + 1)
    low, high = (_clipped(edge, top) for edge in edges)
    patch = axis.fill_between(k, low, high, color=COLOURS[index], alpha=0.18, linewidth=0, zorder=1)
    low, high = sorted(levels)
    return patch, f"{100 * low:g}%–{100 * high:g}% of instances"


def _draw_certificate(axis: "Axes", certificate: Certificate, colour: str) -> list[Entry]:
    """Bounds hold at their iterations only: markers, joined by a thin line where they are of one quantile."""
    from matplotlib.patheffects import withStroke

    claims = [c for c in certificate.claims if FLOOR <= c.tolerance < math.inf]
    if certificate.level is None:
        # A fraction that rounds to nothing claims nothing.
        claims = [c for c in claims if c.success >= 1e-3]
        upper = [(c.iterations, c.tolerance) for c in claims]
        for c in claims:
            text = f"{math.floor(1000 * c.success + 1e-9) / 10:g}%"
            halo: dict[str, Any] = {"zorder": 6, "path_effects": [withStroke(linewidth=2, foreground="white")]}
            where = (c.iterations, c.tolerance)
            axis.annotate(text, where, xytext=(4, 3), textcoords="offset points", annotation_clip=False, **halo)
        return [(_draw_bounds(axis, upper, "v", colour, "none"), "certified: so many instances are below")]
    level, dotted = 100 * certificate.level, (0, (1, 1))
    none = [c.iterations for c in certificate.claims if not math.isfinite(c.tolerance)]
    upper = [(c.iterations, c.tolerance) for c in claims]
    entries = [(_draw_bounds(axis, upper, "v", colour, dotted), f"certified {level:g}% quantile{_absent(none)}")]
    lower = [(c.iterations, v) for c, v in zip(certificate.claims, certificate.lower, strict=True) if v > 0]
    if lower:
        entries.append((_draw_bounds(axis, lower, "^", colour, dotted), f"certified {100 - level:g}% quantile"))
    return entries


def _draw_bounds(axis: "Axes", points: list[tuple[int, float]], marker: str, colour: str, dashes: Any) -> Any:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"marker": marker, "color": "black", "markerfacecolor": colour, "markersize": 5.5}
    style |= {"linewidth": 0.7, "linestyle": dashes, "markeredgewidth": 0.6, "clip_on": False, "zorder": 5}
    # A line without points has no place in a layout; in the legend it still tells what was not found.
    return axis.plot(*zip(*points, strict=True), **style)[0] if points else Line2D([], [], **style)


def _absent(counts: list[int]) -> str:
    shown = ", ".join(map(str, counts[:3])) + (f" and {len(counts) - 3} more" if len(counts) > 3 else "")
    return f" (none at k\u00a0=\u00a0{shown})" if counts else ""


def _draw_worst(axis: "Axes", counts: np.ndarray, values: np.ndarray) -> Entry:
    top = axis.get_ylim()[1]
    few = {"marker": "_", "markersize": 7} if len(counts) <= 20 else {}
    (line,) = axis.plot(counts, _clipped(values, top), color="black", linewidth=0.9, zorder=2, **few)
    above = counts[values > top]
    return line, f"worst case (off scale from k\u00a0=\u00a0{above[0]})" if above.size else "worst case"


def _label_ends(axis: "Axes", entries: list[Entry]) -> None:
    """Names at the right ends of the lines, moved apart, with a thin line from the end to the name."""
    low, high = np.log10(axis.get_ylim())
    ends = np.array([line.get_xydata()[-1] for line, _ in entries])
    wanted = (np.log10(ends[:, 1]) - low) / (high - low)
    # Axes take about three quarters of the figure's height; a line of text 10 points.
    figure = axis.get_figure(root=True)
    assert figure is not None
    places = _apart(wanted, 10 / (0.75 * 72 * figure.get_size_inches()[1]))
    for (line, name), end, place in zip(entries, ends, places, strict=True):
        arrow = {"arrowstyle": "-", "color": line.get_color(), "linewidth": 0.8, "shrinkA": 1, "shrinkB": 2}
        arrow |= {"relpos": (0, 0.5)}
        where: dict[str, Any] = {"xytext": (1.04, place), "textcoords": "axes fraction", "annotation_clip": False}
        axis.annotate(name, end, va="center", arrowprops=arrow, **where)


def _apart(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Places in [0, 1] at least `gap` apart, in the same order."""
    order, places = np.argsort(wanted, kind="stable"), np.array(wanted, np.float64)
    for a, b in itertools.pairwise(order):
        places[b] = max(places[b], places[a] + gap)
    places[order[-1]] = min(places[order[-1]], 1.0)
    for b, a in itertools.pairwise(order[::-1]):
        places[a] = min(places[a], places[b] - gap)
    return places


def _marks(
    main: Schedule, learned: Any, default: Any, limit: Any
) -> list[tuple[str, Mapping[str, float], dict[str, Any]]]:
    """Levels to mark in every panel: a label, values by name, and a style."""
    marks: list[tuple[str, Mapping[str, float], dict[str, Any]]] = []
    if isinstance(learned, Training):
        marks.append(("best constant", learned.constant.steady, {"color": GREY, "linestyle": (0, (1, 1.2))}))
    if default is not None:
        values = default.steady if isinstance(default, Schedule) else default
        marks.append(("default", values, {"color": GREY, "linestyle": (0, (6, 2))}))
    if limit is not None:
        values = limit if isinstance(limit, Mapping) else {"step": float(limit)}
        marks.append(("2/L" if set(values) == {"step"} else "limit", values, {"color": "black", "linestyle": "-."}))
    for label, values, _ in marks:
        if unknown := set(values) - set(main.names):
            raise ValueError(f"{label}: there is no {', '.join(sorted(unknown))}; there are {', '.join(main.names)}")
    return marks


def _draw_schedule(
    axis: "Axes", main: Schedule, name: str, end: int, other: Mapping[str, Schedule], marks: list
) -> list[Entry]:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    H, entries = len(main), []
    shown: list[float] = [main.steady[name], *main[name]]
    axis.axvspan(H - 0.5, end - 0.5, color="#EEEEEE", linewidth=0, zorder=0)
    for edge in itertools.accumulate(main.blocks[:-1]):
        axis.axvline(edge - 0.5, color="#AAAAAA", linewidth=0.5, zorder=0)
    style: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 0.8, "color": COLOURS[0], "zorder": 4}
    if H:
        entries.append((axis.plot(main[name], label="learned", **style)[0], "learned"))
    (steady,) = axis.plot([H - 0.5, end - 0.5], [main.steady[name]] * 2, color=COLOURS[0], linewidth=2.4, zorder=4)
    entries.append((steady, "steady state"))
    for i, (label, s) in enumerate(other.items(), start=1):
        if name in s.names:
            values = [s[k][name] for k in range(end)]
            style = {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKERS[i], "markersize": 2.5}
            entries.append((axis.plot(values, label=label, linewidth=0.8, zorder=3, **style)[0], label))
            shown += values
    for label, values, line in marks:
        if name in values:
            entries.append((axis.axhline(values[name], linewidth=1.0, zorder=2, **line), label))
            shown.append(values[name])
    axis.set(xlim=(-0.5, end - 0.5), ylabel=_SYMBOLS.get(name, name))
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
    if min(shown) > 0 and max(shown) >= 5 * min(shown):
        axis.set_yscale("log")
        if max(shown) <= 200 * min(shown) and min(shown) >= 1e-2 and max(shown) < 1e4:
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    return entries


def _few(items: list) -> list:
    if len(items) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} lines can be told apart, got {len(items)}: choose some of them")
    return items


def _certified_method(evaluations: list[Evaluation], certificate: Certificate | None) -> int:
    """Which of the methods the certificate is of; the first where there is none."""
    if certificate is None:
        return 0
    if certificate.metric != evaluations[0].metric:
        raise ValueError(
            f"the certificate is about {certificate.metric!r}, the evaluations are of {evaluations[0].metric!r}"
        )
    for i, e in enumerate(evaluations):
        if e.method_hash == certificate.method_hash:
            return i
    raise ValueError(f"the certificate is of another method ({certificate.method}) than all that are shown")


def _named(evaluations: list[Evaluation], name: str) -> int:
    names = [e.name for e in evaluations]
    if name not in names:
        raise ValueError(f"there is no method {name!r} for the band; there are {', '.join(names)}")
    return names.index(name)


def _bounds(certificate: Certificate | None) -> list[tuple[int, float]]:
    """All finite bounds of a certificate, with their iterations."""
    if certificate is None:
        return []
    lower = zip(certificate.claims, certificate.lower, strict=False)
    pairs = [(c.iterations, c.tolerance) for c in certificate.claims] + [(c.iterations, v) for c, v in lower]
    return [(k, v) for k, v in pairs if math.isfinite(v) and v > 0]


def _points(curve: "ArrayLike | Mapping[int, float]") -> tuple[np.ndarray, np.ndarray]:
    """Iteration counts and values; without those that are not a number."""
    if isinstance(curve, Mapping):
        counts = np.array(sorted(curve), int)
        values = np.array([curve[k] for k in counts.tolist()], np.float64)
    else:
        values = np.asarray(curve, np.float64)
        if values.ndim != 1:
            raise ValueError(
                f"worst_case must be a vector over k = 0, 1, … or a dict of them, got shape {values.shape}"
            )
        counts = np.arange(values.size)
    known = ~np.isnan(values)
    return counts[known], values[known]


def _broken(text: str, figure: "Figure") -> str:
    """A label in several lines where the axis is too short for one."""
    return textwrap.fill(text, max(12, int(0.75 * figure.get_size_inches()[1] / 0.07)))
