"""What the form of the step, the metric, the schedule and the ladder are each worth, on instances never trained on.

    python benchmarks/designs.py [--families quadcopter …] [--designs "condensed, metric and schedule" …]
                                 [--instances 100 15] [--seeds 3] [--problems FILE] [--no-c] [--out FILE.json]

FILE is a Python file with a dict FAMILIES of functions that return a CVXPY problem and its sampler; without it the
families are the quadcopter and those of examples/. Counts are iterations at which the error, max(primal, dual)
residual in the 2-norm, is first at most 1e-1 … 1e-6, and from which on it stays there: of the geometric mean over 200
test instances, and of the 95% quantile. Then the worst error after 50 and 100 iterations, the instances that `solve`
leaves without an answer at 1e-6 within 20,000 steps, and microseconds of one solve to 1e-3 as C. Every seed has
instances of its own. Results are added to JSON: out/benchmarks/designs.json.
"""

import argparse
import importlib.util
import json
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.algorithms.osqp import OSQP  # noqa: E402
from longstep.evaluation.cost import package_cost, solver_cost  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402
from longstep.research.experiments import quadcopter  # noqa: E402

TESTS, STEPS, MOST_TRAINED = 200, 300, 100
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
PATH = Path("out/benchmarks/designs.json")
COLUMNS = (
    "design",
    "instances",
    "seed",
    "geometric mean, first",
    "mean, stays",
    "95%, first",
    "95%, stays",
    "worst at 50, 100",
    "solve at 1e-6: median, 95%, worst",
    "unsolved",
    "C, µs",
)
FORMS = {"OSQP": OSQP(), "condensed": Condensed()}
# Whether a metric is learned, whether the schedule is used, and the ladder.
LEARNED = {
    "best constant": (False, False, False),
    "scalar schedule": (False, True, False),
    "metric and schedule": (True, True, False),
    "metric, schedule and ladder": (True, True, True),
}
DESIGNS = ["defaults", "defaults with the ladder", *(f"{form}, {name}" for form in FORMS for name in LEARNED)]


def module(path: Path) -> Any:
    """A Python file by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def problems(path: Path | None) -> dict[str, Any]:
    """The families: a function each that returns a family and a sampler of its parameters."""

    def of_cvxpy(make: Any) -> Any:
        problem, sample = make()
        model = ls.from_cvxpy(problem)
        return model.family, lambda rng: model.stack(sample(rng))

    if path is not None:
        own = {name: lambda make=make: of_cvxpy(make) for name, make in module(path).FAMILIES.items()}
    else:
        files = [file for file in sorted(Path("examples").glob("*.py")) if "sample" in file.read_text()]
        own = {
            file.stem: lambda file=file: of_cvxpy(lambda: (module(file).problem, module(file).sample))
            for file in files
            if file.stem in ("battery", "portfolio", "svm")
        }
    return {"quadcopter": lambda: (quadcopter.family(), quadcopter.sample)} | own


@cache
def drawn(make: Any, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """The family, its training and its test instances."""
    family, sample = make()
    rng = np.random.default_rng([7, seed])
    parameters = np.stack([sample(rng) for _ in range(MOST_TRAINED + TESTS)])
    return family, parameters[:MOST_TRAINED], parameters[MOST_TRAINED:]


@cache
def trained(make: Any, seed: int, instances: int, form: str, metric: bool) -> ls.Training:
    """One training."""
    family, train, _ = drawn(make, seed)
    options: dict[str, Any] = {"horizon": 50, "metric": metric, "seed": seed, "progress": False}
    return ls.train(family, train[:instances], algorithm=FORMS[form], **options)


def solver_of(make: Any, seed: int, instances: int, design: str) -> ls.Solver:
    """The solver of a design."""
    family = drawn(make, seed)[0]
    if design.startswith("defaults"):
        return ls.Solver(family, ladder="ladder" in design)
    form, name = design.split(", ", 1)
    metric, whole, ladder = LEARNED[name]
    found = trained(make, seed, instances, form, metric)
    if not whole:
        return ls.Solver(family, found.constant, algorithm=FORMS[form])
    return ls.Solver(family, found, ladder=ladder)


def count_steps(curve: np.ndarray) -> dict[str, list[int | None]]:
    """When errors, by iteration, are first at most each tolerance, and from where they stay; None: not within these."""
    met = [curve <= tolerance for tolerance in TOLERANCES]
    first = [int(np.argmax(m)) if m.any() else None for m in met]
    stays = [int(np.max(np.flatnonzero(~m), initial=-1)) + 1 for m in met]
    return {"first": first, "stays": [k if k < len(curve) else None for k in stays]}


def measured(make: Any, seed: int, instances: int, design: str, compiles: bool) -> dict[str, Any]:
    """Counts, the worst, who is left without an answer, and the time in C."""
    since = time.perf_counter()
    solver = solver_of(make, seed, instances, design)
    seconds, test = time.perf_counter() - since, drawn(make, seed)[2]
    history = solver.run(test, STEPS)
    errors = np.where(np.isfinite(history.worst), history.worst, np.inf)
    cost = solver_cost(design, solver, test, 1e-6)
    steps = cost.steps
    found = {
        "mean": count_steps(np.exp(np.mean(np.log(np.maximum(errors, 1e-16)), axis=0))),
        "95%": count_steps(np.quantile(errors, 0.95, axis=0, method="inverted_cdf")),
        "worst": [float(errors[:, 50].max()), float(errors[:, 100].max())],
        "solve": [float(np.median(steps)), float(np.quantile(steps, 0.95)), int(steps.max())],
        "unsolved": cost.unsolved,
        "seconds": seconds,
        "c": None,
    }
    if compiles:
        compiled = solver.compile()
        for x in test:
            compiled.solve(x, eps_abs=1e-3, eps_rel=1e-3)
        begin = time.perf_counter()
        for x in test:
            compiled.solve(x, eps_abs=1e-3, eps_rel=1e-3)
        found["c"] = (time.perf_counter() - begin) / len(test)
    return found


def shown(values: list[Any]) -> str:
    """Counts in a row."""
    return " ".join("–" if v is None else f"{v:g}" for v in values)


def main() -> None:
    """Measure what is not in the file yet, then print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--designs", nargs="*", default=DESIGNS, choices=DESIGNS)
    parser.add_argument("--instances", nargs="*", type=int, default=[100, 15])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--no-c", action="store_true")
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*used in training.*")
    families = problems(options.problems)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.families or families:
        title = f"{name}: iterations until the residual is first, and from where it stays, at 1e-1 1e-2 1e-3 1e-4 1e-6"
        rows: list[tuple[str, ...]] = []
        for seed in range(options.seeds):
            package = package_cost(families[name]()[0], drawn(families[name], seed)[2], 1e-6)
            for instances in options.instances:
                for design in options.designs:
                    key = f"{name}/{instances}/{seed}/{design}"
                    if key not in known:
                        known[key] = measured(families[name], seed, instances, design, not options.no_c)
                        write_bytes(options.out, json.dumps(known, indent=1).encode())
                    row = known[key]
                    micro = "" if row["c"] is None else f"{1e6 * row['c']:.0f}"
                    cells = [design, str(instances), str(seed)]
                    cells += [shown(row[curve][count]) for curve in ("mean", "95%") for count in ("first", "stays")]
                    cells += [
                        " ".join(f"{v:.0e}" for v in row["worst"]),
                        shown(row["solve"]),
                        str(row["unsolved"]),
                        micro,
                    ]
                    rows.append(tuple(cells))
            if package is not None:
                i = package.steps
                solve = shown([float(np.median(i)), float(np.quantile(i, 0.95)), int(i.max())])
                micro = f"{1e6 * package.seconds:.0f} at 1e-6"
                rows.append((package.name, "", str(seed), *[""] * 5, solve, str(package.unsolved), micro))
                known[f"{name}/{seed}/{package.name}"] = package.to_json() | {"steps": None}
                write_bytes(options.out, json.dumps(known, indent=1).encode())
        print(Table(title, tuple(map(Column, COLUMNS)), tuple(rows)).text(), flush=True)


if __name__ == "__main__":
    main()
