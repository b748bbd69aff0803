"""The look of all figures, print sizes, colours, legends; Matplotlib's global state is left alone."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a legend shows: a line or a patch, and its name.
LegendEntry: TypeAlias = "tuple[Artist, str]"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
DASHES = (
    "-", (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1)),
    (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (2, 1)), (0, (1, 3)),
)  # fmt: skip
MARKERS = ("o", "s", "D", "P", "X", "*", "<", ">")
GREY = "#555555"
# The keys are literals of Matplotlib's own, other ones in every version.
_STYLE: dict[Any, object] = {
    "font.size": 8, "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "legend.fontsize": 8, "legend.frameon": False, "legend.handlelength": 2.6, "legend.columnspacing": 1.4,
    "legend.labelspacing": 0.4,
    "lines.linewidth": 1.2, "lines.markersize": 3.5, "axes.linewidth": 0.6, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.5, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
    "savefig.dpi": 300, "pdf.fonttype": 42, "svg.hashsalt": "longstep",
}  # fmt: skip


@contextmanager
def use_style() -> Iterator[None]:
    """Use Matplotlib's defaults and our style, whatever the user's settings are; afterwards they are as before."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need Matplotlib: pip install matplotlib") from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def make_canvas(width: float, rows: int, columns: int, height: float) -> "tuple[Figure, list[Axes]]":
    """Return a figure of this size in inches, and its axes row by row."""
    from matplotlib.figure import Figure

    if not width > 1:
        raise ValueError(f"width is in inches and must be more than 1, got {width}")
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def add_legend(figure: "Figure", entries: Sequence[LegendEntry]) -> "Figure":
    """Put the legend below the axes, on room of its own; return the figure."""
    if entries:
        width, height = figure.get_size_inches()
        columns, lines, labels = _arrange([label for _, label in entries], width)
        figure.set_size_inches(width, height + 0.05 + 0.15 * lines)
        figure.legend([handle for handle, _ in entries], labels, loc="outside lower center", ncols=columns)
    # Ticks are made when they are first drawn, with the settings of that moment.
    figure.draw_without_rendering()
    return figure


def _arrange(labels: list[str], width: float) -> tuple[int, int, list[str]]:
    """Return columns, lines and broken labels of the lowest legend that is at most `width` inches wide."""
    found = []
    for letters, columns in itertools.product((80, 48, 36, 28, 22, 18), range(len(labels), 0, -1)):
        broken = [textwrap.wrap(label, letters) or [""] for label in labels]
        parts = [[broken[i] for i in part] for part in np.array_split(np.arange(len(labels)), columns)]
        # A letter of 8 points is about 0.06 inches wide; the sample and the gap take 0.6.
        needed = sum(0.6 + 0.06 * max(len(line) for lines in part for line in lines) for part in parts)
        lines = max(sum(map(len, part)) for part in parts)
        if needed <= width or (columns, letters) == (1, 18):
            found.append((lines, -letters, -columns, ["\n".join(one) for one in broken]))
    lines, _, columns, labels = min(found)
    return -columns, lines, labels
