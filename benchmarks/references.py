"""Reference optima by the finish against those of the reference solvers, in one run.

    python benchmarks/references.py [--families quadcopter lasso …] [--instances 2000] [--problems FILE]

FILE is as for `designs.py`; the lasso is that of the experiment, 64 × 128. Both get the same instances in one process:
seconds of the first call, with all that is compiled, and of a second one; the share that the finish solves, and the
largest relative errors of the conditions of optimality. JSON: out/benchmarks/references.json.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from designs import problems  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.data.exact import find_exact  # noqa: E402
from longstep.engine.solution import INFEASIBLE  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402
from longstep.research.experiments.lasso import Lasso  # noqa: E402

COLUMNS = (
    "family",
    "instances",
    "solvers, s",
    "solvers again, s",
    "finish, s",
    "finish again, s",
    "times faster",
    "times faster again",
    "by the finish",
    "errors",
)


def make_lasso() -> tuple[Any, Any]:
    """Return the lasso of the experiment, and its sampler."""
    problem = Lasso(64, 128)
    return problem.family, problem.sample


def measure(name: str, make: Any, count: int) -> tuple[str, ...]:
    """Return the row of a family."""
    family, sample = make()
    rng = np.random.default_rng(7)
    drawn = np.stack([np.asarray(sample(rng)) for _ in range(count + count // 10)])
    if isinstance(family, ls.QP):
        drawn = drawn[~np.isin(np.asarray(ls.Solver(family).solve_batch(drawn).status), INFEASIBLE)]
    drawn = drawn[:count]
    # Below the number from which on the finish is taken.
    parts = np.array_split(drawn, -(-len(drawn) // 500))
    ranges = [(start, min(start + 16, len(drawn))) for start in range(0, len(drawn), 16)]
    seconds = {"solvers": [], "finish": []}
    worst = {"solvers": 0.0, "finish": 0.0}
    exact = 0
    for _ in range(2):
        begin = time.perf_counter()
        solved = [ls.solve_references(family, part, cache=False, progress=False, accuracy=1e-6) for part in parts]
        seconds["solvers"].append(time.perf_counter() - begin)
        worst["solvers"] = max(float(optima.error.max()) for optima in solved)
        begin = time.perf_counter()
        found = [optima for _, optima in find_exact(family, drawn, ranges, 1e-8)]
        seconds["finish"].append(time.perf_counter() - begin)
        worst["finish"] = max((float(optima.error.max()) for optima in found), default=np.nan)
        exact = sum(map(len, found))
    ratios = [a / b for a, b in zip(seconds["solvers"], seconds["finish"], strict=True)]
    cells = [f"{value:.1f}" for value in (*seconds["solvers"], *seconds["finish"], *ratios)]
    errors = f"{worst['solvers']:.0e} {worst['finish']:.0e}"
    return name, str(len(drawn)), *cells, f"{exact / len(drawn):.0%}", errors


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/references.json"))
    options = parser.parse_args()
    known = problems(options.problems) | {"lasso": make_lasso}
    rows = []
    for name in options.families or known:
        rows.append(measure(name, known[name], options.instances))
        print(*rows[-1], flush=True)
    table = Table("References by the finish", tuple(map(Column, COLUMNS)), tuple(rows), "")
    print(table.markdown())
    write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
