"""Draws the figures of the technical report: what form, metric and schedule are worth, and what the finish adds.

    python benchmarks/figures.py [--family battery] [--instances 100] [--seed 0] [--out docs/images]

designs.png: the geometric mean, the 95% quantile and the worst of 200 instances that were not trained on, by steps
alone. finish.png: how many changes of the active set are left for the finish after so many steps (after none: from the
empty set), the share that is exact to 1e-9 then, and the share that steps alone bring below 1e-6. The families are
those of designs.py.
"""

import argparse
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from designs import TESTS, drawn, problems, solver_of, trained  # noqa: E402

import longstep as ls  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.report.drawing import choose_limits, draw_frame  # noqa: E402
from longstep.report.figures import save  # noqa: E402
from longstep.report.style import COLOURS, DASHES, MARKERS, add_legend, make_canvas, use_style  # noqa: E402

SHOWN = {
    "OSQP's defaults": "defaults",
    "condensed, best constant": "condensed, best constant",
    "condensed, learned schedule": "condensed, scalar schedule",
    "condensed, learned metric and schedule": "condensed, metric and schedule",
}
PANELS = {
    "geometric mean": lambda errors: np.exp(np.mean(np.log(np.maximum(errors, 1e-16)), axis=0)),
    "95% quantile": lambda errors: np.quantile(errors, 0.95, axis=0, method="inverted_cdf"),
    "worst": lambda errors: errors.max(axis=0),
}
STEPS = 150
TRIED = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 40, 50)


def draw_designs(make: Any, instances: int, seed: int) -> Any:
    """Three panels of the error over the steps, a line for each design."""
    errors = {}
    for name, design in SHOWN.items():
        history = solver_of(make, seed, instances, design).run(drawn(make, seed)[2], STEPS)
        errors[name] = np.where(np.isfinite(history.worst), history.worst, np.inf)
    curves = {panel: {name: summary(e) for name, e in errors.items()} for panel, summary in PANELS.items()}
    with use_style():
        figure, axes = make_canvas(7.2, 1, 3, 2.5)
        limits = choose_limits([c for panel in curves.values() for c in panel.values()])
        entries = []
        for axis, (panel, lines) in zip(axes, curves.items(), strict=True):
            draw_frame(axis, STEPS, limits)
            axis.set(xlabel="iteration $k$ [steps]", title=f"{panel} of {TESTS}")
            entries = [
                (axis.plot(np.clip(c, *limits), color=COLOURS[i], linestyle=DASHES[i])[0], name)
                for i, (name, c) in enumerate(lines.items())
            ]
        axes[0].set(ylabel="residual, 2-norm [1]")
        return add_legend(figure, entries)


def draw_finish(make: Any, instances: int, seed: int) -> Any:
    """What is left for the finish after so many steps, and the share of instances that steps alone bring to 1e-6."""
    family, _, test = drawn(make, seed)
    training = trained(make, seed, instances, "condensed", True)
    history = ls.Solver(family, training, finish=False, ladder=False).run(test, max(TRIED))
    below = np.mean(history.worst <= 1e-6, axis=0)
    solvers = [ls.Solver(family, algorithm=Condensed(), finish=0)]
    solvers += [ls.Solver(family, training, finish=k) for k in TRIED[1:]]
    found = [s.solve_batch(test, max_iter=k, eps_abs=1e-9, eps_rel=0.0) for k, s in zip(TRIED, solvers, strict=True)]
    exact = [float(np.mean(f.exact)) for f in found]
    counts = [np.asarray(f.changes)[f.exact] for f in found]
    changes = {
        "changes, median": [float(np.median(c)) for c in counts],
        "changes, 95% quantile": [float(np.quantile(c, 0.95)) for c in counts],
        "changes, most": [float(c.max()) for c in counts],
    }
    with use_style():
        figure, (left, right) = make_canvas(7.2, 1, 2, 2.5)
        for axis in (left, right):
            axis.set(xlim=(0, max(TRIED)), xlabel="iteration $k$ [steps]")
        left.set(ylabel="changes left after k [1]", yscale="symlog", ylim=(0, 200))
        left.yaxis.set_major_formatter("{x:g}")
        right.set(ylim=(0, 1.02), ylabel="share of instances [1]")
        entries = [
            (left.plot(TRIED, line, color=COLOURS[i], linestyle=DASHES[i], marker=MARKERS[i], clip_on=False)[0], name)
            for i, (name, line) in enumerate(changes.items())
        ]
        (first,) = right.plot(TRIED, exact, color=COLOURS[3], marker="o", clip_on=False)
        (second,) = right.plot(below, color=COLOURS[4], linestyle=DASHES[1])
        entries += [(first, "exact to 1e-9 with the finish after k"), (second, "below 1e-6 by k steps alone")]
        return add_legend(figure, entries)


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="battery")
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    make = problems(None)[options.family]
    for name, draw in {"designs": draw_designs, "finish": draw_finish}.items():
        save(draw(make, options.instances, options.seed), options.out / name, formats=("png",))
        print(options.out / f"{name}.png")


if __name__ == "__main__":
    main()
