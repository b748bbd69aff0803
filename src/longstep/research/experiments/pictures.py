"""The figures of an experiment: convergence, schedule, residuals, and pictures of solutions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from longstep import Certificate, Evaluation

from ...algorithms.gradient import GradientMethod
from ...report import figures
from ...report.style import COLOURS, DASHES, MARKERS, LegendEntry, add_legend, make_canvas, use_style
from .experiment import Experiment, Result
from .results import take_same_instances

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf")
# Lines that a figure can hold, the learned one among them.
_MOST = len(COLOURS)


def draw_all(
    experiment: Experiment, results: list[Result], certificate: Certificate | None, folder: Path,
    formats: Iterable[str] = FORMATS,
) -> list[Path]:  # fmt: skip
    """Write all figures to a folder, and return the files; none without a format."""
    formats = list(formats)
    if not formats:
        return []
    made = draw_convergence(results, certificate, 3 * experiment.size.horizon)
    made |= {"schedule": draw_schedule(experiment)}
    if all(r.primal is not None for r in results):
        made |= draw_residuals(results, 3 * experiment.size.horizon)
    made |= experiment.draw_pictures(results)
    return [path for name, figure in made.items() for path in figures.save(figure, folder / name, formats)]


def draw_convergence(results: list[Result], certificate: Certificate | None, last: int) -> "dict[str, Figure]":
    """Draw geometric means, at most eight lines a figure; the certified method is in each of them."""
    found = {}
    for number, group in enumerate(_split_groups(results)):
        evaluations = [_cut(e, last) for e in take_same_instances(group)]
        name = _number_name("convergence", number)
        found[name] = figures.convergence(evaluations, certificate=certificate, quantiles=None)
    return found


def draw_residuals(results: list[Result], last: int) -> "dict[str, Figure]":
    """Draw primal and dual residuals in two panels."""
    found = {}
    for number, group in enumerate(_split_groups(results)):
        sides = []
        for side in ("primal", "dual"):
            chosen = [replace(r, evaluation=getattr(r, side)) for r in group]
            sides.append([_cut(e, last) for e in take_same_instances(chosen)])
        found[_number_name("residuals", number)] = figures.residuals(*sides)
    return found


def _number_name(name: str, number: int) -> str:
    """Return the name of a figure among several: name, name-2, name-3, …"""
    if number == 0:
        return name
    return f"{name}-{number + 1}"


def draw_schedule(experiment: Experiment) -> "Figure":
    """Draw the learned hyperparameters with the best constant, and 2/L for gradient methods or else the defaults."""
    training = experiment.train_drawn()
    family = experiment.family
    if isinstance(training.algorithm, GradientMethod):
        return figures.schedule(training, limit=2 / family.lipschitz, other=experiment.list_others())
    default = training.algorithm.hyperparameters(family)
    return figures.schedule(training, default={h.name: h.default for h in default}, other=experiment.list_others())


def _split_groups(results: list[Result]) -> list[list[Result]]:
    """Return groups of the learned method with as many of the others as a figure holds."""
    main = results[0]
    rest = results[1:]
    width = _MOST - 1
    return [[main, *rest[i : i + width]] for i in range(0, max(len(rest), 1), width)]


def _cut(evaluation: Evaluation, last: int) -> Evaluation:
    return replace(evaluation, values=evaluation.values[:, : last + 1])


def draw_gallery(rows: Sequence[Mapping[str, Float[np.ndarray, "k k"]]], title: str) -> "Figure":
    """Draw images in a grid: a row an instance, a column a method, all from black (0) to white (1)."""
    names = list(rows[0])
    with use_style():
        width = 6.5
        if len(names) > 8:
            width = 0.8 * len(names)
        cell = width / len(names)
        figure, axes = make_canvas(width, len(rows), len(names), cell * len(rows) + 0.6)
        for i, row in enumerate(rows):
            for j, name in enumerate(names):
                axis = axes[i * len(names) + j]
                axis.imshow(np.clip(row[name], 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axis.set_axis_off()
                if i == 0:
                    axis.set_title(name.replace(", ", ",\n"), size=6, loc="center")
        figure.suptitle(title, x=0.01, ha="left", size=9)
        return add_legend(figure, [])


def draw_tracks(
    points: Float[np.ndarray, "T 2"], lines: Mapping[str, Float[np.ndarray, "T 2"]], title: str, first: str
) -> "Figure":
    """Draw points in the plane, and lines through it: the measurements, the optimum, each method."""
    with use_style():
        columns = 3
        names = [name for name in lines if name != first]
        rows = -(-len(names) // columns)
        figure, axes = make_canvas(6.5, rows, columns, 2.1 * rows + 0.4)
        entries: list[LegendEntry] = []
        for axis, name in zip(axes, names, strict=False):
            (dots,) = axis.plot(*points.T, linestyle="none", marker=".", color="#999999", markersize=3)
            (best,) = axis.plot(*lines[first].T, color=COLOURS[0], linestyle=DASHES[0], linewidth=1.8)
            (mine,) = axis.plot(
                *lines[name].T, color=COLOURS[1], linestyle=DASHES[1], marker=MARKERS[1], markevery=10, linewidth=1.0
            )
            axis.set_title(name, size=7)
            axis.set_aspect("equal", adjustable="datalim")
            entries = [(dots, "measurements"), (best, first), (mine, "the method named above")]
        for axis in axes[len(names) :]:
            axis.remove()
        figure.suptitle(title, x=0.01, ha="left", size=9)
        return add_legend(figure, entries)


def collect_points(results: Iterable[Result]) -> dict[str, np.ndarray]:
    """Return the points that were kept, by the methods' names."""
    return {r.evaluation.name: r.points for r in results if r.points is not None}
