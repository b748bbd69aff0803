"""What training for the active set is worth: how many unseen instances are solved exactly after 3, 5 and 10 steps.

    python benchmarks/identification.py [--families quadcopter …] [--instances 60] [--seeds 3] [--problems FILE]

FILE is as for `designs.py`. The same training, in the condensed form and from zero, with two losses: residuals and
distances (`both`), and `identification`. Of 200 unseen instances: the share whose active set is that of the optimum
after so many steps, and the mean number of rows in which it differs; then what the finish makes of all of them, its
changes of the set in the mean. Three seeds, each with instances of its own: from the least to the most. `schedules`
says how often a learned schedule was kept: where residuals are behind those of the best constant at the end of some
block, training keeps the constant, whatever the loss, and the row is about that. JSON:
out/benchmarks/identification.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from designs import problems  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.engine.solution import INFEASIBLE  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

TESTS = 200
STEPS = (3, 5, 10)
LOSSES = ("both", "identification")
COLUMNS = ("family", "loss", "schedules", "right set after 3, 5, 10 steps", "rows that differ", "changes left", "exact")


def draw(family: Any, sample: Any, count: int, seed: int) -> np.ndarray:
    """Return parameters of instances that have a solution."""
    rng = np.random.default_rng([11, seed])
    drawn = np.stack([np.asarray(sample(rng)) for _ in range(count + count // 5)])
    return drawn[~np.isin(np.asarray(ls.Solver(family).solve_batch(drawn).status), INFEASIBLE)][:count]


def compare_sets(solver: ls.Solver, test: np.ndarray, exact: ls.Solution) -> dict[str, list[float]]:
    """Return for each number of steps the share of right sets, how many rows differ, the changes that the finish makes,
    and the share that it makes exact."""
    family = solver.family
    assert isinstance(family, ls.QP)
    kinds = family.host.kinds
    inner = ~(kinds.equality | kinds.is_free)
    y = np.asarray(exact.y)[:, inner]
    optimal = np.sign(np.where(np.abs(y) > 1e-9 * np.abs(y).max(axis=1, keepdims=True), y, 0.0))
    found: dict[str, list[float]] = {"right": [], "differ": [], "changes": [], "exact": []}
    for steps in STEPS:
        point = solver.solve_batch(test, steps=steps)
        differ = np.count_nonzero(np.sign(np.asarray(point.y)[:, inner]) != optimal, axis=1)
        solver.finish = steps
        tried = solver.solve_batch(test, eps_abs=1e-9, eps_rel=1e-9, max_iter=steps)
        found["right"].append(float(np.mean(differ == 0)))
        found["differ"].append(float(differ.mean()))
        found["changes"].append(float(np.mean(np.maximum(tried.changes, 0))))
        found["exact"].append(float(np.mean(tried.exact)))
    return found


def show(values: np.ndarray, form: str) -> str:
    """Return the least and the most of every column."""
    pairs = zip(values.min(axis=0), values.max(axis=0), strict=True)
    return ", ".join(format(a, form) if a == b else f"{a:{form}}–{b:{form}}" for a, b in pairs)


def measure(name: str, make: Any, instances: int, seeds: int) -> list[tuple[str, ...]]:
    """Return both rows of a family."""
    rows: dict[str, list[dict[str, list[float]]]] = {loss: [] for loss in LOSSES}
    kept = dict.fromkeys(LOSSES, 0)
    for seed in range(seeds):
        family, sample = make()
        drawn = draw(family, sample, instances + TESTS, seed)
        split = {"train": drawn[:instances]}
        data = ls.Dataset.from_parameters(family, split, references=["train"], accuracy=1e-6, progress=False)
        test = drawn[instances:]
        exact = ls.Solver(family, algorithm=Condensed(), finish=30).solve_batch(test, eps_abs=1e-9, eps_rel=1e-9)
        for loss in LOSSES:
            options: dict[str, Any] = {"horizon": 10, "start": "zero", "loss": loss, "seed": seed, "progress": False}
            trained = ls.train(family, data, algorithm=Condensed(), **options)
            kept[loss] += len(trained.schedule) > 0
            rows[loss].append(compare_sets(ls.Solver(family, trained), test, exact))
    lines = []
    for loss in LOSSES:
        values = {key: np.array([row[key] for row in rows[loss]]) for key in rows[loss][0]}
        cells = (show(values["right"], ".0%"), show(values["differ"], ".1f"), show(values["changes"], ".1f"))
        lines.append((name, loss, f"{kept[loss]} of {seeds}", *cells, show(values["exact"], ".0%")))
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--instances", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/identification.json"))
    options = parser.parse_args()
    known = problems(options.problems)
    rows = []
    for name in options.families or known:
        rows += measure(name, known[name], options.instances, options.seeds)
        print(*rows[-2:], sep="\n", flush=True)
    table = Table("Training for the active set", tuple(map(Column, COLUMNS)), tuple(rows), "")
    print(table.markdown())
    write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
