"""Cone programs in C, one instance at a time: what the finish costs and saves there, beside the `scs` package.

    python benchmarks/cones_in_c.py [robust_portfolio entropy] [--train 60] [--test 200] [--finish 50] [--seed 0]
                                    [--core 0] [--solvers FOLDER] [--out FILE.json]

Families of `front_door.py`, each learned from past parameters with the defaults of `learn`, and compiled without the
finish, with the finish as it comes, and with one that is first tried after `--finish` steps. Instances that were not
learned from are solved to 1e-6 one by one by all of them and by `scs` (set up once, updated, as it comes), in turns on
one core; of five times each the least counts. Instructions are counted by Valgrind where it is installed, without
Python around them, on the first ten instances. Learned solvers are kept in `--solvers`, and taken from there when the
command is given again. JSON: out/benchmarks/cones_in_c.json.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before anything is imported that starts threads.
for _name in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
import scs  # noqa: E402
from front_door import FAMILIES, draw_past  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.export_c.build import SAFE  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

PATH = Path("out/benchmarks/cones_in_c.json")
EPS, MOST, REPEATS, COUNTED = 1e-6, 4000, 5, 10
# Whether it was solved, its steps, and those of Newton's method (−1: none were needed).
Answer = tuple[bool, int, int]
Method = Callable[[int], Answer]

_PROGRAM = """#include "cone.h"
static cone_workspace work;
static cone_result result;
static cone_real instances[][$size] = {$values};
__attribute__((noinline)) int go(int k)
{
    cone_settings settings;
    cone_defaults(&settings);
    settings.eps_abs = settings.eps_rel = $eps;
    settings.max_iter = $most;
    return cone_solve(&work, &settings, instances[k], &result);
}
int main(void)
{
    int last = 0;
    for (int k = 0; k < $count; ++k) last = go(k);
    return last > 8;
}
"""


def learn(name: str, options: argparse.Namespace) -> tuple[ls.Solver, np.ndarray]:
    """Return the solver that `learn` gives, or gave, and the parameters of the test instances."""
    problem, draw = FAMILIES[name]()
    past = draw_past(draw, options.train + options.test, options.seed)
    path = options.solvers / f"{name}-{options.train}-{options.test}-{options.seed}.longstep"
    parameters = path.with_suffix(".npy")
    if not path.exists():
        sizes = {"train": options.train, "test": options.test}
        solver, report = ls.learn(problem, past, sizes=sizes, cache=False, progress=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        solver.save(path)
        np.save(parameters, np.asarray(report.data.test.parameters))
    return ls.Solver.load(path), np.load(parameters)


def with_finish(solver: ls.Solver, finish: bool | int) -> ls.Solver:
    """Return the solver with a finish that is first tried after so many steps, or without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solver.longstep"
        solver.save(path)
        again = ls.Solver.load(path)
    again.finish = None if finish is False else int(finish)
    return again


def compiled_method(solver: ls.Solver, parameters: np.ndarray) -> Method:
    """Return the solve of an instance by its number, in C."""
    compiled = solver.compile()

    def solve(k: int) -> Answer:
        found = compiled.solve(parameters[k], eps_abs=EPS, eps_rel=EPS, max_iter=MOST)
        return bool(found.solved), int(found.iterations), int(found.changes)

    return solve


def package_method(solver: ls.Solver, parameters: np.ndarray) -> Method:
    """Return the solve of an instance by the `scs` package."""
    family = solver.family
    assert isinstance(family, ls.Conic)
    data = family.data(parameters)
    given = {"P": sp.csc_matrix(sp.triu(family.P)), "A": sp.csc_matrix(family.A), "b": data["b"][0], "c": data["c"][0]}
    package = scs.SCS(given, family.cones.scs(), eps_abs=EPS, eps_rel=EPS, max_iters=MOST, verbose=False)

    def solve(k: int) -> Answer:
        package.update(data["b"][k], data["c"][k])
        info = package.solve(warm_start=False)["info"]
        return info["status"] == "solved", int(info["iter"]), -1

    return solve


def count_instructions(solver: ls.Solver, parameters: np.ndarray) -> float | None:
    """Return the mean number of instructions of a solve; None without Valgrind."""
    if shutil.which("valgrind") is None:
        return None
    few = parameters[:COUNTED]
    values = ", ".join("{" + ", ".join(map(repr, x)) + "}" for x in few.tolist())
    text = _PROGRAM.replace("$size", str(few.shape[1])).replace("$values", values).replace("$eps", repr(EPS))
    text = text.replace("$most", str(MOST)).replace("$count", str(len(few)))
    with tempfile.TemporaryDirectory() as folder:
        export = ls.generate_c(solver, f"{folder}/cone", prefix="cone")
        (export.folder / "count.c").write_text(text)
        call = ["cc", "-std=c99", *SAFE, "-mavx2", "-mfma", "cone.c", "count.c", "-lm", "-o", "count"]
        subprocess.run(call, cwd=export.folder, check=True)
        before = ["valgrind", "--tool=callgrind", "--callgrind-out-file=count.out", "--toggle-collect=go", "--quiet"]
        subprocess.run([*before, "./count"], cwd=export.folder, check=True, capture_output=True)
        counted = re.findall(r"^(?:summary|totals): (\d+)", (export.folder / "count.out").read_text(), re.MULTILINE)
    return int(counted[0]) / len(few)


def measure(methods: dict[str, Method], count: int) -> dict[str, dict[str, Any]]:
    """Return what each method takes for the instances, solved by all of them in turns."""
    times = {name: np.full((REPEATS, count), np.inf) for name in methods}
    answers: dict[str, list[Answer]] = {name: [(False, 0, -1)] * count for name in methods}
    for again in range(REPEATS):
        for k in range(count):
            for name, solve in methods.items():
                begin = time.perf_counter()
                answers[name][k] = solve(k)
                times[name][again, k] = time.perf_counter() - begin
    results = {}
    for name in methods:
        least = 1e6 * times[name].min(axis=0)
        solved, steps, changes = (np.array(column) for column in zip(*answers[name], strict=True))
        results[name] = {
            "median": float(np.median(least)),
            "95%": float(np.quantile(least, 0.95)),
            "worst": float(least.max()),
            "steps": float(np.median(steps)),
            "most steps": int(steps.max()),
            "newton": float(np.mean(changes[changes >= 0])) if (changes >= 0).any() else None,
            "exact": int((changes >= 0).sum()),
            "unsolved": int((~solved).sum()),
        }
    return results


def measure_family(solver: ls.Solver, parameters: np.ndarray, options: argparse.Namespace) -> dict[str, Any]:
    """Measure a family's solver with and without the finish, and the package."""
    usual = solver.finish
    assert usual is not None
    variants = {"without the finish": False, f"finish={usual}": usual}
    variants |= {f"finish={k}": k for k in options.finish}
    solvers = {words: with_finish(solver, finish) for words, finish in variants.items()}
    methods = {words: compiled_method(each, parameters) for words, each in solvers.items()}
    methods["scs package"] = package_method(solver, parameters)
    results = measure(methods, len(parameters))
    for words, each in solvers.items():
        results[words]["instructions"] = count_instructions(each, parameters)
    return {"size": [solver.family.n, solver.family.m], "as learned": usual, "methods": results}


def tabulate(known: dict[str, Any]) -> Table:
    """A row for every method of every family."""
    names = ("family", "method", "µs: median", "95%", "worst", "instructions", "steps", "most", "Newton", "unsolved")
    rows: list[tuple[str, ...]] = []
    for name, found in known.items():
        for words, row in found["methods"].items():
            counted, newton = row.get("instructions"), row["newton"]
            cells = [name, words, *(f"{row[key]:,.0f}" for key in ("median", "95%", "worst"))]
            cells += ["" if counted is None else f"{counted / 1e6:.2f} M", f"{row['steps']:,.0f}"]
            cells += [f"{row['most steps']:,}", "" if newton is None else f"{newton:.1f}", str(row["unsolved"])]
            rows.append(tuple(cells))
    return Table(f"Cone programs to {EPS:.0e}, one instance at a time", tuple(map(Column, names)), tuple(rows), "")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["robust_portfolio", "entropy"])
    parser.add_argument("--train", type=int, default=60)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--finish", type=int, nargs="*", default=[50])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--solvers", type=Path, default=PATH.parent / "cones_in_c")
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    for name in set(options.names) - set(FAMILIES):
        sys.exit(f"there is no family {name}; there are {', '.join(FAMILIES)}")
    learned = {name: learn(name, options) for name in options.names}
    os.sched_setaffinity(0, {options.core})
    known = {name: measure_family(*given, options) for name, given in learned.items()}
    write_bytes(options.out, json.dumps(known, indent=1).encode())
    print(tabulate(known).text())
    print(tabulate(known).markdown())


if __name__ == "__main__":
    main()
