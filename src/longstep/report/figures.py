"""Figures for print: errors over the iterations, primal and dual residuals apart, schedules.

Each is made for a width in inches, 6.5 (a page) or 3.5 (a column), with letters of 8 points and more. The colours are
apart for the colour-blind (Okabe and Ito 2008), line styles and markers in grey print. Matplotlib's global state is
left alone: settings of the user neither change nor matter, and pyplot is not imported.
"""

import io
import math
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .._util import storage
from ..certificates.certificate import Certificate
from ..certificates.gradient_steps import STEP
from ..evaluation.evaluate import Evaluation
from ..schedules.schedule import Schedule
from ..training.record import Training
from .drawing import (
    Mark,
    choose_limits,
    draw_band,
    draw_certificate,
    draw_frame,
    draw_means,
    draw_schedule,
    draw_worst,
    label_ends,
    label_measure,
)
from .style import COLOURS, GREY, LegendEntry, add_legend, make_canvas, use_style
from .tables import check_comparable, count_instances

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ItemT = TypeVar("ItemT")
# The label of every axis of steps.
ITERATIONS = "iteration $k$ [steps]"
# Nothing that tells when or with what a file was made.
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


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
    """Draw the geometric mean of each method over the iterations, on a logarithmic axis; return the figure.

    The method named `band` (by default the certified one, else the first) gets a band between two quantiles over the
    instances. `certificate` must be of one of the methods: its bounds are markers at the iterations it speaks of.
    `worst_case` is a curve from k = 0 on, or a value for each of some k. An error that blows up runs along the top of
    the axis and its label says from where; where nothing could be certified there is no marker, and the label says it.
    """
    evaluations = _check_few(check_comparable(evaluations))
    certified = _find_certified(evaluations, certificate)
    chosen = certified
    if band is not None:
        chosen = _find_named(evaluations, band)
    means = [e.geometric_mean for e in evaluations]
    counts, worst = _read_points(worst_case)
    bounds = _list_bounds(certificate)
    levels = sorted(quantiles or ())
    edges = [evaluations[chosen].quantile(level) for level in levels]
    if title is None:
        title = f"Geometric mean, {count_instances(evaluations[0])}"
    with use_style():
        wide = width >= 5
        figure, (axis,) = make_canvas(width, 1, 1, (0.56 if wide else 0.68) * width)
        last = max([e.iterations for e in evaluations] + [k for k, _ in bounds] + list(counts))
        draw_frame(axis, int(last), choose_limits([*means, *edges, worst, *([v] for _, v in bounds)]))
        axis.set(xlabel=ITERATIONS, ylabel=_break_lines(label_measure(evaluations[0]), figure))
        axis.set_title(textwrap.fill(title, int((width - 0.8) / 0.068)))
        lines = draw_means(axis, evaluations, chosen)
        entries: list[LegendEntry] = []
        if levels:
            entries.append(draw_band(axis, edges, levels, chosen))
        if certificate is not None:
            entries += draw_certificate(axis, certificate, COLOURS[certified])
        if counts.size:
            entries.append(draw_worst(axis, counts, worst))
        short = len(lines) <= 4 and all(len(label) <= 36 for _, label in lines)
        if wide and short and len({e.iterations for e in evaluations}) == 1:
            label_ends(axis, lines)
            lines = []
        return add_legend(figure, [*lines, *entries])


def residuals(
    primal: "Evaluation | Iterable[Evaluation]",
    dual: "Evaluation | Iterable[Evaluation]",
    *,
    title: str | None = None,
    width: float = 6.5,
) -> "Figure":
    """Draw primal and dual residuals in two panels; return the figure.

    They are of the same methods, evaluated with metric="primal" and metric="dual".
    """
    panels = [_check_few(check_comparable(_list_evaluations(e))) for e in (primal, dual)]
    names = [[e.name for e in panel] for panel in panels]
    if names[0] != names[1]:
        raise ValueError(f"the two panels must show the same methods in the same order, got {names[0]} and {names[1]}")
    if panels[0][0].data_hash != panels[1][0].data_hash:
        raise ValueError("the primal and the dual residuals are of different instances: evaluate both on one split")
    if title is None:
        title = f"Over {count_instances(panels[0][0])}"
    with use_style():
        beside = width >= 5
        if beside:
            figure, axes = make_canvas(width, 1, 2, 0.4 * width)
        else:
            figure, axes = make_canvas(width, 2, 1, 1.2 * width)
        limits = choose_limits([e.geometric_mean for panel in panels for e in panel])
        lines = []
        for axis, panel in zip(axes, panels, strict=True):
            leftmost = axis is axes[0] or not beside
            lowest = axis is axes[1] or beside
            draw_frame(axis, max(e.iterations for e in panel), limits)
            if leftmost:
                label = "geometric mean [units of the problem]"
                axis.set(ylabel=_break_lines(label, figure, 1 if beside else len(panels)))
            if lowest:
                axis.set(xlabel=ITERATIONS)
            axis.tick_params(labelleft=leftmost, labelbottom=lowest)
            axis.set_title(panel[0].measure)
            lines = draw_means(axis, panel, None)
        figure.suptitle(title, x=0.01, ha="left", size=9)
        return add_legend(figure, [(line, name) for (line, _), name in zip(lines, names[0], strict=True)])


def schedule(
    learned: "Schedule | Training",
    *,
    default: "Schedule | Mapping[str, float] | None" = None,
    limit: "float | Mapping[str, float] | None" = None,
    other: Mapping[str, Schedule] | None = None,
    title: str | None = None,
    width: float = 6.5,
) -> "Figure":
    """Draw each hyperparameter over the steps in a panel of its own, the steady state in the grey part behind them.

    `limit` marks the end of the range in which a constant converges: 2/L, or a value for each name. `default` marks the
    algorithm's defaults; of a Training the best constant is marked too. `other` are schedules to show beside it, such
    as {"silver": silver(L, 6)}. Thin lines part the blocks. The axis is logarithmic where all values are positive and
    span a factor of five or more.
    """
    main = learned
    if isinstance(main, Training):
        main = main.schedule
    other = dict(other or {})
    _check_few(["learned", *other])
    marks = _make_marks(main, learned, default, limit)
    for name, s in other.items():
        if not set(s.names) & set(main.names):
            raise ValueError(f"{name!r} has {', '.join(s.names)}, but the schedule has {', '.join(main.names)}")
    with use_style():
        names = main.names
        H = len(main)
        columns = 1
        if width >= 5 and len(names) > 1:
            columns = 2
        rows = -(-len(names) // columns)
        figure, axes = make_canvas(width, rows, columns, _choose_height(width, rows))
        entries = []
        for axis, name in zip(axes, names, strict=False):
            entries += draw_schedule(axis, main, name, H + max(3, H // 7), other, marks)
        for axis in axes[len(names) :]:
            axis.remove()
        for i, axis in enumerate(axes[: len(names)]):
            lowest = i + columns >= len(names)
            if lowest:
                axis.set(xlabel=ITERATIONS)
            axis.tick_params(labelbottom=lowest)
        if title:
            figure.suptitle(title, x=0.01, ha="left", size=9)
        # Panels have their lines in common: one sample of each.
        samples = {(label, handle.get_color()): handle for handle, label in entries}
        return add_legend(figure, [(handle, label) for (label, _), handle in samples.items()])


def save(figure: "Figure", path: "str | Path", formats: Iterable[str] = ("png", "svg", "pdf")) -> list[Path]:
    """Write a figure to path.png, path.svg and path.pdf, each atomically; return the paths.

    The same figure gives the same bytes, with the same version of Matplotlib.
    """
    if isinstance(formats, str):
        formats = [formats]
    formats = list(formats)
    if unknown := [f for f in formats if f not in _METADATA]:
        raise ValueError(f"formats are {', '.join(_METADATA)}, got {', '.join(map(str, unknown))}")
    if (suffix := Path(path).suffix.removeprefix(".")) in _METADATA:
        raise ValueError(f"give the path without its suffix .{suffix}, and formats=({suffix!r},)")
    # Names may contain dots: with_suffix would cut there.
    paths = [Path(f"{path}.{f}") for f in formats]
    with use_style():
        for file, f in zip(paths, formats, strict=True):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=f, metadata=_METADATA[f])
            storage.write_bytes(file, buffer.getvalue())
    return paths


def _choose_height(width: float, rows: int) -> float:
    """Return the height in inches of a figure with this width and number of rows of panels."""
    if width < 5:
        return 0.6 + 1.3 * rows
    return max(2.6, 1.5 * rows)


def _make_marks(
    main: Schedule,
    learned: "Schedule | Training",
    default: "Schedule | Mapping[str, float] | None",
    limit: "float | Mapping[str, float] | None",
) -> list[Mark]:
    """Return the levels to mark in every panel; names that the schedule lacks are refused."""
    marks = []
    if isinstance(learned, Training):
        marks.append(Mark("best constant", learned.constant.steady, GREY, (0, (1, 1.2))))
    if isinstance(default, Schedule):
        default = default.steady
    if default is not None:
        marks.append(Mark("default", default, GREY, (0, (6, 2))))
    if limit is not None and not isinstance(limit, Mapping):
        # A number is the end of the range of steps.
        limit = {STEP: float(limit)}
    if limit is not None:
        label = "limit"
        if set(limit) == {STEP}:
            label = "2/L"
        marks.append(Mark(label, limit, "black", "-."))
    for mark in marks:
        if unknown := set(mark.values) - set(main.names):
            raise ValueError(
                f"{mark.label}: there is no {', '.join(sorted(unknown))}; there are {', '.join(main.names)}"
            )
    return marks


def _list_evaluations(evaluations: "Evaluation | Iterable[Evaluation]") -> Iterable[Evaluation]:
    if isinstance(evaluations, Evaluation):
        return [evaluations]
    return evaluations


def _check_few(items: list[ItemT]) -> list[ItemT]:
    """Return the items; refuse more than can be told apart."""
    if len(items) > len(COLOURS):
        raise ValueError(f"at most {len(COLOURS)} lines can be told apart, got {len(items)}: choose some of them")
    return items


def _find_certified(evaluations: list[Evaluation], certificate: Certificate | None) -> int:
    """Return the number of the method that the certificate is of; 0 where there is none."""
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


def _find_named(evaluations: list[Evaluation], name: str) -> int:
    """Return the number of the method with this name."""
    names = [e.name for e in evaluations]
    if name not in names:
        raise ValueError(f"there is no method {name!r} for the band; there are {', '.join(names)}")
    return names.index(name)


def _list_bounds(certificate: Certificate | None) -> list[tuple[int, float]]:
    """Return all finite bounds of a certificate, with their iterations."""
    if certificate is None:
        return []
    lower = zip(certificate.claims, certificate.lower, strict=False)
    pairs = [(c.iterations, c.tolerance) for c in certificate.claims] + [(c.iterations, v) for c, v in lower]
    return [(k, v) for k, v in pairs if math.isfinite(v) and v > 0]


def _read_points(curve: "ArrayLike | Mapping[int, float] | None") -> tuple[np.ndarray, np.ndarray]:
    """Return iteration counts and values, without those that are not a number; none where there is no curve."""
    if curve is None:
        return np.zeros(0, int), np.zeros(0)
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


def _break_lines(text: str, figure: "Figure", panels: int = 1) -> str:
    """Return a label in several lines where the axis, one of `panels` above each other, is too short for one."""
    return textwrap.fill(text, max(12, int(0.75 * figure.get_size_inches()[1] / panels / 0.07)))
