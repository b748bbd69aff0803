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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._util import storage
from ..certificates.certificate import Certificate
from ..evaluation.evaluate import Evaluation
from ..schedules.schedule import Schedule
from ..training.record import Training
from .drawing import draw_band, draw_certificate, draw_means, draw_schedule, draw_worst, frame, label_ends, log_limits
from .style import COLOURS, GREY, Entry, canvas, finished, styled
from .tables import comparable, described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        frame(axis, int(last), log_limits([*means, *edges, worst[1], *([v] for _, v in bounds)]))
        axis.set(xlabel="iteration", ylabel=_broken(evaluations[0].measure, figure))
        shown = f"Geometric mean, {described(evaluations[0])}" if title is None else title
        axis.set_title(textwrap.fill(shown, int((width - 0.8) / 0.068)))
        lines = draw_means(axis, evaluations, chosen)
        entries = [] if not edges else [draw_band(axis, edges, quantiles, evaluations[chosen], chosen)]
        entries += [] if certificate is None else draw_certificate(axis, certificate, COLOURS[certified])
        entries += [draw_worst(axis, *worst)] if worst[0].size else []
        short = len(lines) <= 4 and all(len(label) <= 36 for _, label in lines)
        if width >= 5 and short and len({e.iterations for e in evaluations}) == 1:
            label_ends(axis, lines)
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
        limits = log_limits([e.geometric_mean for panel in panels for e in panel])
        entries = []
        for axis, panel in zip(axes, panels, strict=True):
            leftmost = axis is axes[0] or not beside
            lowest = axis is axes[1] or beside
            frame(axis, max(e.iterations for e in panel), limits)
            axis.set(ylabel="geometric mean" if leftmost else "", xlabel="iteration" if lowest else "")
            axis.tick_params(labelleft=leftmost, labelbottom=lowest)
            axis.set_title(panel[0].measure)
            entries = draw_means(axis, panel, None)
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
        names = main.names
        H = len(main)
        columns = 2 if width >= 5 and len(names) > 1 else 1
        rows = -(-len(names) // columns)
        figure, axes = canvas(
            width, rows, columns, (2.6 if rows == 1 else 1.5 * rows) if width >= 5 else 0.6 + 1.3 * rows
        )
        entries: list[Entry] = []
        for axis, name in zip(axes, names, strict=False):
            entries += draw_schedule(axis, main, name, H + max(3, H // 7), other, marks)
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
