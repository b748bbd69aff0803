"""Time from a new parameter to a solution of given accuracy, one instance at a time: longstep and eight packages.

    python benchmarks/latency.py [quadcopter portfolio lasso kalman] [--instances 10000] [--tuning 500] [--core 0]
                                 [--seed 0] [--out FILE.json]

Accuracy is max(primal, dual) residual in the ∞-norm and the user's units, computed from (x, y) by one function for
all: the distance of Ax from [l, u], or of b − Ax from the cones, and |Px + q + A'y|, y projected on the signs or cones
that it must have. Targets are 1e-3, 1e-6 and 1e-9. Every package has its absolute tolerance tuned, from 100 times the
target down by powers of √10 (relative ones are 0), longstep with a fixed number of steps that number: the loosest for
which the 99% quantile over `--tuning` other instances meets the target. Of a package's variants the one with the least
median is kept. `met` is the fraction of the timed instances that meet the target, `gap` the 99% quantile of the duality
gap in the objective's units, which is not tuned for: PIQP, Clarabel and ProxQP, whose points are feasible long before
they are optimal, test it with the target as their tolerance, absolute and relative; OSQP is excused from it, whose
points are complementary by themselves.

Time is wall-clock time of the whole Python call, from the parameter (a NumPy vector) to x: its affine map to the
vectors of the problem, the update and the solve. `own` is the median of what the package counts itself. One thread on
one core. Instances are independent and in random order, so that a warm start is one from another instance; they are
shared out in chunks over all methods in random order. Packages that take long get fewer instances, as stated. longstep
is learned from 50 instances of the distribution (20 for the Kalman filter). JSON: out/benchmarks/latency.json.
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

# Before anything is imported that starts threads.
for _name in ("OMP", "OPENBLAS", "MKL", "RAYON"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
_core = sys.argv[sys.argv.index("--core") + 1] if "--core" in sys.argv[:-1] else max(os.sched_getaffinity(0))
os.sched_setaffinity(0, {int(_core)})

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import latency_packages as packages  # noqa: E402
import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from latency_packages import Answer, Entry  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.export_c import build  # noqa: E402
from longstep.learning import list_forms  # noqa: E402
from longstep.research.experiments import kalman, lasso, quadcopter  # noqa: E402

TARGETS, QUANTILE = (1e-3, 1e-6, 1e-9), 0.99
GRID = 10.0 ** (-np.arange(-4, 9) / 2)  # tolerances, in units of the target
MOST_STEPS, CHUNK, WARM_UP = 1000, 100, 5
console = Console(width=150)


@dataclass(frozen=True)
class Problem:
    """A family with a sampler of parameter vectors, from how many instances longstep learns, and in which blocks.

    `fewest` has the numbers of steps for targets, once tuned: the same for C and JAX.
    """

    name: str
    family: Any
    sample: Callable[[np.random.Generator], np.ndarray]
    train: int = 50
    seed: int = 0
    blocks: dict[str, Any] = field(default_factory=dict)
    fewest: dict[float, int] = field(default_factory=dict)

    def draw(self, count: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed + 10 * self.seed, *self.name.encode()])
        return np.stack([self.sample(rng) for _ in range(count)])

    @cached_property
    def solver(self) -> ls.Solver:
        parameters = {"train": self.draw(self.train, seed=1)}
        data = ls.Dataset.from_parameters(self.family, parameters, references=["train"])
        forms = list_forms(self.family)
        return ls.Solver(self.family, ls.train(self.family, data, loss="both", algorithm=forms, **self.blocks))

    def accuracy(self, parameters: np.ndarray, answers: list[Answer]) -> tuple[np.ndarray, np.ndarray]:
        """max(primal, dual) residual and |gap| of one answer for each parameter; infinite where it is not finite."""
        f, data = self.family, self.family.data(parameters)
        x, y = (np.stack([getattr(a, name) for a in answers]).T for name in "xy")
        Px, Ax, q = f.P @ x, f.A @ x, (data["q"] if "q" in data else data["c"]).T
        # Multipliers of a sign that the bounds do not admit (by rounding, mostly) count as what they leave unbalanced.
        if "q" in data:
            l, u = data["l"].T, data["u"].T
            primal, y = (
                Ax - np.clip(Ax, l, u),
                np.clip(y, np.where(l > -np.inf, -np.inf, 0), np.where(u < np.inf, np.inf, 0)),
            )
            support = np.where(y > 0, u, np.where(y < 0, l, 0.0)) * y
        else:
            slack, y = data["b"].T - Ax, np.asarray(f.cones.project_dual(y))
            primal, support = slack - np.asarray(f.cones.project(slack)), data["b"].T * y
        residual = np.maximum(np.abs(primal).max(axis=0), np.abs(Px + q + f.A.T @ y).max(axis=0))
        gap = np.abs(np.sum(x * Px + q * x, axis=0) + support.sum(axis=0))
        return np.where(np.isnan(residual), np.inf, residual), np.where(np.isnan(gap), np.inf, gap)


def problem_of(name: str) -> Problem:
    if name == "quadcopter":
        # Sixteen steps are about what 1e-3 takes here: a block that ends there is made for it.
        return Problem("quadcopter", quadcopter.family(), quadcopter.sample, blocks={"horizon": 48, "block": 16})
    if name == "kalman":
        p = kalman.Kalman()
        return Problem("kalman", p.family, p.sample, train=20)
    if name == "lasso":
        p = lasso.Lasso(64, 128)
        return Problem("lasso", lasso_as_qp(p), p.sample)
    path = Path(__file__).parent.parent / "examples" / "portfolio.py"
    spec = importlib.util.spec_from_file_location("portfolio", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = ls.from_cvxpy(example.problem)
    return Problem("portfolio", model.family, lambda rng: model.stack(example.sample(rng)))


def lasso_as_qp(p: lasso.Lasso) -> ls.QP:
    """minimise ½‖r‖² + λ1't subject to Az − r = b, −t ≤ z ≤ t, with b as the parameter, over (z, r, t)."""
    I, none = sp.eye_array(p.n), sp.csr_array((p.n, p.m))
    A = sp.block_array([[p.A, -sp.eye_array(p.m), None], [I, none, -I], [-I, none, -I]])
    P = sp.block_diag([sp.csr_array((p.n, p.n)), sp.eye_array(p.m), sp.csr_array((p.n, p.n))])
    b, moved = np.zeros(p.m), sp.eye_array(A.shape[0], p.m)
    return ls.QP(
        P, A, q=np.concatenate([np.zeros(p.n + p.m), np.full(p.n, p.weight)]),
        l=np.concatenate([b, np.full(2 * p.n, -np.inf)]), u=np.concatenate([b, np.zeros(2 * p.n)]),
        parameter=ls.Affine(l=moved, u=moved),
    )  # fmt: skip


def longstep(kind: str, solver: Any, checks: tuple[int, ...]) -> Iterable[Entry]:
    """Fixed numbers of steps, the same work for every instance; and until a tolerance."""

    def read(x: Any, solution: Any) -> Answer:
        return Answer(np.array(x), np.array(solution.y), solution.time)

    def open(option: str, convert: Callable, **options: Any):
        def opened(setting: float, target: float):
            chosen = {option: convert(setting), **options}

            def solve(parameter):
                solution = solver.solve(parameter, **chosen)
                return solution.x, solution

            return solve

        return opened

    yield Entry(f"longstep {kind}, fixed steps", "", open("steps", int), read, "steps")
    for every in checks:
        until = open("eps_abs", float, eps_rel=0.0, check_every=every, max_iter=packages.MAX_ITERATIONS)
        yield Entry(f"longstep {kind}, until eps", f"a check every {every}", until, read)
    if getattr(solver, "solver", solver).finish is not None:
        # Whatever is asked for, the first look is at the step after which the finish is tried.
        exact = open("eps_abs", lambda eps: min(eps, 1e-9), eps_rel=0.0, check_every=packages.MAX_ITERATIONS)
        yield Entry(f"longstep {kind}, exact", "", exact, read)


def entries_of(problem: Problem, folder: Path, only: tuple[str, ...]) -> list[Entry]:
    """All variants of all methods that are installed and take the family, `only` those whose names begin so."""
    family, found = problem.family, []
    makers: dict[str, Callable[[], Iterable[Entry]]] = {
        "longstep C": lambda: longstep("C", compiled(problem.solver), (4, 5, 6, 9, 10)),
        "longstep JAX": lambda: longstep("JAX", problem.solver, (5, 10)),
        "SCS": lambda: packages.scs(family),
        "Clarabel": lambda: packages.clarabel(family),
    }
    if isinstance(family, ls.QP):
        settle, generated = problem.draw(20, seed=1), folder / f"osqp-{problem.name}"
        makers |= {
            "OSQP": lambda: packages.osqp(family),
            "OSQP's C code": lambda: packages.osqp_generated(family, settle, generated, compiler()),
            "PIQP": lambda: packages.piqp(family),
            "ProxQP": lambda: packages.proxqp(family),
            "DAQP": lambda: packages.daqp(family),
            "QPALM": lambda: packages.qpalm(family),
        }
    for name, maker in makers.items():
        if only and not name.lower().startswith(only):
            continue
        try:
            found += list(maker())
        except Exception as error:  # a package that is missing or fails is told, and the others go on
            console.print(f"{problem.name}, {name}: left out, {type(error).__name__}: {error}", style="red")
    return found


def compiled(solver: ls.Solver) -> Any:
    found = solver.compile(backend="c")
    if isinstance(found, ls.Solver):
        raise RuntimeError("there is no C compiler")
    return found


def compiler() -> list[str]:
    """The compiler and the options with which longstep builds its own C."""
    return [*build.find_compiler(), *build.SAFE, "-std=c99", "-march=native"]


@dataclass
class Times:
    """What is known of one method: per instance seconds, the package's own seconds, residual and gap."""

    problem: Problem
    entry: Entry
    target: float
    setting: float
    seconds: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)

    @cached_property
    def solve(self) -> Callable[[np.ndarray], tuple[Any, Any]]:
        return self.entry.open(self.setting, self.target)

    def add(self, parameters: np.ndarray) -> "Times":
        """Solve and time these instances; the first few are solved before, untimed."""
        answers, solve, clock = [], self.solve, time.perf_counter
        for parameter in parameters[-WARM_UP:]:
            solve(parameter)
        gc.disable()
        for parameter in parameters:
            begin = clock()
            x, raw = solve(parameter)
            self.seconds.append(clock() - begin)
            answers.append(self.entry.read(x, raw))
        gc.enable()
        residual, gap = self.problem.accuracy(parameters, answers)
        self.own += [a.seconds for a in answers]
        self.residual += residual.tolist()
        self.gap += gap.tolist()
        return self

    @property
    def met(self) -> float:
        return float(np.mean(np.array(self.residual) <= self.target))


def tune(problem: Problem, entry: Entry, target: float, tuning: np.ndarray, seconds: float) -> Times | None:
    """The loosest setting with which `QUANTILE` of the instances meet the target; None if there is none.

    Slow packages are tuned on as many instances as take about `seconds`, at least 50.
    """

    def tried(setting: float) -> Times:
        times = Times(problem, entry, target, setting).add(tuning[:20])
        count = int(np.clip(seconds / np.median(times.seconds), min(50, len(tuning)), len(tuning)))
        return Times(problem, entry, target, setting).add(tuning[:count])

    if entry.tuned == "steps":
        if target in problem.fewest:
            return tried(problem.fewest[target])
        for steps in candidates(problem, target, tuning):
            if (times := tried(steps)).met >= QUANTILE:
                problem.fewest[target] = steps
                return times
        return None
    low, high, best = 0, len(GRID), None
    while low < high:
        middle = (low + high) // 2
        times = tried(target * GRID[middle])
        if times.met >= QUANTILE:
            high, best = middle, times
        else:
            low = middle + 1
    return best


def candidates(problem: Problem, target: float, tuning: np.ndarray) -> Iterable[int]:
    """Numbers of steps to try, around the first with which the solver's own residuals meet the target."""
    history = problem.solver.run(tuning, MOST_STEPS)
    # |Ax − z| with z within its bounds, at least the distance that is asked for: a little less may do.
    residual = np.maximum(history.primal_max, history.dual_max)
    enough = np.flatnonzero(np.mean(residual <= target, axis=0) >= QUANTILE)
    return range(max(1, int(enough[0]) - 10), int(enough[0]) + 20) if enough.size else ()


def choose(problem: Problem, entries: list[Entry], target: float, tuning: np.ndarray, seconds: float) -> list[Times]:
    """For every method that reaches the target its variant with the least median, tuned.

    Variants are compared on the same instances in turns, because the machine's speed may change between tunings.
    """
    tuned: list[Times] = []
    for entry in entries:
        try:
            times = tune(problem, entry, target, tuning, seconds)
        except Exception as error:  # a variant that a package does not have is told, and the others go on
            console.print(f"{entry.name}, {entry.variant}: {type(error).__name__}: {error}", style="red")
            continue
        if times is None:
            console.print(f"{entry.name}, {entry.variant}: no setting reaches {target:g}", style="red")
        else:
            tuned.append(times)
    best: dict[str, Times] = {}
    for times in measure(tuned, tuning, seconds):
        name = times.entry.name
        if name not in best or np.median(times.seconds) < np.median(best[name].seconds):
            best[name] = times
    return list(best.values())


def measure(chosen: list[Times], parameters: np.ndarray, seconds: float) -> list[Times]:
    """All methods on the same instances in chunks, in random order; slow ones on the first of each chunk."""
    rng, counts = np.random.default_rng(0), []
    fresh = [Times(t.problem, t.entry, t.target, t.setting) for t in chosen]
    for t in chosen:
        affordable = seconds / np.median(t.seconds) / len(parameters)
        counts.append(CHUNK if affordable >= 1 else max(1, int(CHUNK * affordable)))
    gc.collect()
    gc.freeze()
    order = rng.permutation(len(parameters))
    for start in range(0, len(parameters), CHUNK):
        chunk = parameters[order[start : start + CHUNK]]
        for k in rng.permutation(len(fresh)):
            fresh[k].add(chunk[: counts[k]])
    return fresh


def row_of(times: Times) -> dict[str, Any]:
    entry, seconds = times.entry, 1e6 * np.array(times.seconds)
    own = 1e6 * np.array(times.own)
    return {
        "method": entry.name, "variant": entry.variant, "tuned": entry.tuned, "setting": float(times.setting),
        "instances": len(seconds), "met": times.met, "residual_99": float(np.quantile(times.residual, 0.99)),
        "gap_99": float(np.quantile(times.gap, 0.99)), "median_us": float(np.median(seconds)),
        "q999_us": float(np.quantile(seconds, 0.999)), "own_median_us": float(np.median(own)),
        "own_q999_us": float(np.quantile(own, 0.999)),
    }  # fmt: skip


def show(problem: Problem, target: float, rows: list[dict[str, Any]]) -> None:
    title = f"{problem.name} ({problem.family.n} unknowns, {problem.family.m} rows), residual {target:g}; times in µs"
    table = Table(title=title)
    names = ("method", "setting", "instances", "met", "99% residual", "99% gap", "median", "99.9%", "own median", "×")
    for name in names:
        table.add_column(name, justify="left" if name in ("method", "setting") else "right")
    least = min((r["median_us"] for r in rows if r["method"].startswith("longstep C")), default=np.nan)
    for r in sorted(rows, key=lambda r: r["median_us"]):
        setting = f"{r['setting']:.0f} steps" if r["tuned"] == "steps" else f"eps {r['setting']:.1e}"
        table.add_row(
            r["method"], ", ".join(filter(None, (setting, r["variant"]))), f"{r['instances']:,}", f"{r['met']:.2%}",
            f"{r['residual_99']:.1e}", f"{r['gap_99']:.1e}", f"{r['median_us']:.1f}", f"{r['q999_us']:.1f}",
            "–" if np.isnan(r["own_median_us"]) else f"{r['own_median_us']:.1f}", f"{r['median_us'] / least:.2f}",
        )  # fmt: skip
    console.print(table)


def machine() -> dict[str, Any]:
    names = ("jax", "osqp", "scs", "clarabel", "piqp", "proxsuite", "daqp", "qpalm", "numpy")
    versions = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(), "core": int(_core), "compiler": compiler(),
        "versions": {name: versions.get(name) for name in names},
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["quadcopter", "portfolio", "lasso", "kalman"]
    parser.add_argument("runs", nargs="*", metavar="problem", help=", ".join(names))
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--tuning", type=int, default=500, help="instances on which tolerances are tuned")
    parser.add_argument("--seconds", type=float, default=30.0, help="of one method for one target; sets `instances`")
    parser.add_argument("--core", type=int, help="the core to run on; by default the last")
    parser.add_argument("--seed", type=int, default=0, help="of the instances' draws")
    parser.add_argument("--only", nargs="+", default=[], help="methods whose names begin so")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/latency.json"))
    arguments = parser.parse_args()
    if unknown := set(arguments.runs) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
    options = {k: v for k, v in vars(arguments).items() if k not in ("runs", "out", "core")}
    result: dict[str, Any] = {
        "machine": machine(),
        "options": options,
        "quantile": QUANTILE,
        "rows": [],
        "unreached": [],
    }
    for name in arguments.runs or names:
        problem = replace(problem_of(name), seed=arguments.seed)
        only = tuple(begin.lower() for begin in arguments.only)
        entries = entries_of(problem, arguments.out.parent / "latency", only)
        tuning, parameters = problem.draw(arguments.tuning, seed=2), problem.draw(arguments.instances, seed=3)
        for target in TARGETS:
            chosen = choose(problem, entries, target, tuning, arguments.seconds / 20)
            rows = [row_of(times) for times in measure(chosen, parameters, arguments.seconds)]
            show(problem, target, rows)
            result["rows"] += [{"problem": name, "target": target, **row} for row in rows]
            unreached = {e.name for e in entries} - {row["method"] for row in rows}
            result["unreached"] += [{"problem": name, "target": target, "method": m} for m in sorted(unreached)]
            write_bytes(arguments.out, json.dumps(result, indent=1).encode())


if __name__ == "__main__":
    main()
