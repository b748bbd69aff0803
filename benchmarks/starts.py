"""What a start from the parameter is worth: the same training with solves that begin at zero, and where that pays.

    python benchmarks/starts.py [--families quadcopter …] [--instances 100] [--seed 7] [--problems FILE]

FILE is as for `designs.py`. Counts are steps at which the error, max(primal, dual) residual in the 2-norm, is first at
most 1e-1 … 1e-6, and from which on it stays there: of the geometric mean and of the 95% quantile over 200 instances
that were not trained on. Then what `solve` costs to 1e-6, in steps, a change of the finish counted as the steps that
cost as much: mean, 95%, worst; how many are exact, and after how many steps the finish is tried. JSON:
out/benchmarks/starts.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from designs import count_steps, problems, shown  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.engine.finisher import finish_cost, is_singular  # noqa: E402
from longstep.engine.solution import INFEASIBLE  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

TESTS, STEPS = 200, 150
COUNTS = ("geometric mean, first", "mean, stays", "95%, first", "95%, stays")
COLUMNS = ("family", "start", *COUNTS, "solve: mean, 95%, worst", "exact", "finish after")


def draw(family: Any, sample: Any, count: int, seed: int) -> np.ndarray:
    """Parameters of instances that have a solution."""
    rng = np.random.default_rng(seed)
    drawn = np.stack([np.asarray(sample(rng)) for _ in range(count + count // 10)])
    feasible = ~np.isin(np.asarray(ls.Solver(family).solve_batch(drawn).status), INFEASIBLE)
    return drawn[feasible][:count]


def measure(name: str, make: Any, instances: int, seed: int) -> list[tuple[str, ...]]:
    """Both rows of a family."""
    family, sample = make()
    drawn = draw(family, sample, instances + TESTS, seed)
    split = {"train": drawn[:instances]}
    data = ls.Dataset.from_parameters(family, split, references=["train"], accuracy=1e-6, progress=False)
    test = drawn[instances:]
    rows = []
    for start in ("zero", None):
        options: dict[str, Any] = {"horizon": 30, "loss": "both", "start": start, "progress": False}
        trained = ls.train(family, data, algorithm=Condensed(), **options)
        solver = ls.Solver(family, trained)
        history = solver.run(test, STEPS)
        errors = np.maximum(history.primal, history.dual)
        found = solver.solve_batch(test, eps_abs=1e-6, eps_rel=1e-6)
        cost = np.asarray(found.iterations) + finish_cost(family, found, is_singular(trained.record))
        mean = np.exp(np.mean(np.log(np.maximum(errors, 1e-300)), axis=0))
        spent = f"{cost.mean():.1f} {np.quantile(cost, 0.95):.1f} {cost.max():.1f}"
        curves = (mean, np.quantile(errors, 0.95, axis=0))
        counts = [shown(steps) for curve in curves for steps in count_steps(curve).values()]
        kept = trained.record["start"] if start is None else "zero, as told"
        rows.append((name, kept, *counts, spent, f"{np.mean(found.exact):.0%}", str(solver.finish)))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/starts.json"))
    options = parser.parse_args()
    known = problems(options.problems)
    rows = []
    for name in options.families or known:
        rows += measure(name, known[name], options.instances, options.seed)
        print(*rows[-2:], sep="\n", flush=True)
    table = Table("What a start from the parameter is worth", tuple(map(Column, COLUMNS)), tuple(rows), "")
    print(table.markdown())
    write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
