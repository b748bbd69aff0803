"""What training gives and what it costs: quality, tails, time and memory, on test instances that training never saw.

    python benchmarks/training.py [ridge lasso mpc kalman deblurring maxcut optimizers memory] [--quick]

Counts are iterations until the geometric mean over the test instances is at most the tolerance, and in brackets from
where it stays there. Suboptimality for ridge and lasso, max(primal, dual) residual in the 2-norm for the others (MPC:
∞-norm). Every instance counts, also those that the safeguard took over. JSON: out/benchmarks/training.json.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import longstep as ls  # noqa: E402
from longstep.experiments import deblurring, images, kalman, lasso, maxcut, quadcopter, ridge  # noqa: E402
from longstep.families.dataset import Split  # noqa: E402

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
console, results = Console(width=150), {}


class Problem:
    """A family with train and test splits and the error that its tables show."""

    def __init__(self, name, family, data, error, steps=200, tolerances=TOLERANCES):
        self.name, self.family, self.data, self.error = name, family, data, error
        self.steps, self.tolerances = steps, tolerances

    def train_on(self, count):
        split = self.data["train"]
        select = self.family.select(split.parameters, np.arange(count))
        optima = None
        if split.optima is not None:
            fields = {k: None if v is None else v[:count] for k, v in vars(split.optima).items()}
            optima = type(split.optima)(**fields)
        return Split("train", self.family, select, optima)

    def curve(self, schedule, safeguard: Any = "block", algorithm=None):
        solver = ls.Solver(self.family, schedule, safeguard=safeguard, algorithm=algorithm)
        history = solver.run(self.data["test"].parameters, self.steps)
        return self.error(history, self.data["test"]), history.safeguarded


def suboptimality(history, split):
    return np.maximum(history.objective - split.optima.value[:, None], 0)


def residual(history, split):
    return np.maximum(history.primal, history.dual)


def residual_max(history, split):
    return np.maximum(history.primal_max, history.dual_max)


def counts(curve, tolerances):
    mean = np.exp(np.mean(np.log(np.maximum(curve, 1e-16)), axis=0))
    out = []
    for tolerance in tolerances:
        below, above = np.flatnonzero(mean <= tolerance), np.flatnonzero(mean > tolerance)
        touch = int(below[0]) if below.size else None
        out.append((touch, int(above[-1]) + 1 if touch is not None and above[-1] + 1 < len(mean) else None))
    return out


class Report:
    """A table of methods on one problem, printed and kept for the JSON file."""

    def __init__(self, problem, title):
        self.problem, self.rows = problem, []
        self.table = Table(title=title)
        self.table.add_column("method", no_wrap=True)
        for t in problem.tolerances:
            self.table.add_column(f"{t:.0e}", justify="right", no_wrap=True)
        for name in ("q95 at 20", "q99 at 50", "max at 50", "safe", "time"):
            self.table.add_column(name, justify="right", no_wrap=True)

    def add(self, name, curve, safe=None, seconds=None):
        found = counts(curve, self.problem.tolerances)
        quantiles = [np.quantile(curve[:, 20], 0.95), np.quantile(curve[:, 50], 0.99), np.max(curve[:, 50])]
        text = ["–" if a is None else str(a) if a == b else f"{a} ({b or '–'})" for a, b in found]
        fired = "" if safe is None else f"{int(np.sum(safe))}/{len(safe)}"
        self.table.add_row(
            name, *text, *(f"{q:.0e}" for q in quantiles), fired, "" if seconds is None else f"{seconds:.1f} s"
        )
        self.rows.append(
            {"method": name, "counts": found, "quantiles": [float(q) for q in quantiles], "safeguarded": fired,
             "seconds": seconds}
        )  # fmt: skip

    def schedule(self, name, schedule, seconds=None, algorithm=None):
        curve, safe = self.problem.curve(schedule, algorithm=algorithm)
        self.add(name, curve, safe if schedule is not None and len(schedule) else None, seconds)
        return curve

    def show(self, key):
        console.print(self.table)
        results[key] = self.rows


def learned(report, problem, count, label="learned", **options):
    begin = time.perf_counter()
    result = ls.train(problem.family, problem.train_on(count), cache=False, progress=False, **options)
    seconds = time.perf_counter() - begin
    mine = report.schedule(f"{label}, N = {count}", result.schedule, seconds, result.algorithm)
    return result, mine


def compare_constant(report, result, problem, mine):
    flat = report.schedule("best constant", result.constant, algorithm=result.algorithm)
    ends = range(10, 61, 10)
    log = lambda c: np.mean(np.log(np.maximum(c, 1e-16)), axis=0)  # noqa: E731
    worse = [k for k in ends if log(mine)[k] > max(log(flat)[k], np.log(1e-13))]
    tail = [k for k in ends if np.quantile(mine[:, k], 0.95) > max(np.quantile(flat[:, k], 0.95), 1e-12)]
    console.print(
        f"  kept: {result.kept}. Behind the constant at: {worse or 'no block end'}; "
        f"behind in the 95% quantile at: {tail or 'no block end'}"
    )


def sampled(problem, train, test, references=("train", "test")):
    return ls.Dataset.sample(problem.family, problem.sample, {"train": train, "test": test}, references=references)


def problem_of(name, quick):
    tests = 200 if quick else 1000
    if name == "lasso":
        p = lasso.Lasso(64, 128)
        return Problem("lasso 64×128", p.family, sampled(p, 200, tests), suboptimality)
    if name == "lasso-paper":
        p = lasso.Lasso()
        return Problem("lasso 1000×2000", p.family, sampled(p, 10, 50 if quick else 100), suboptimality)
    if name == "mpc":
        data = ls.Dataset.sample(
            quadcopter.family(), quadcopter.sample, {"train": 200, "test": tests}, references=["train"]
        )
        return Problem("quadcopter MPC", data.train.family, data, residual_max, tolerances=TOLERANCES[:5])
    if name == "kalman":
        p = kalman.Kalman()
        windows = p.splits({"train": 2, "test": 3 if quick else 10}, seed=0)
        # Neighbouring windows are alike: train on windows in random order.
        order = np.random.default_rng(0).permutation(len(windows["train"]))
        parts = {"train": windows["train"].measurements[order], "test": windows["test"].measurements}
        data = ls.Dataset.from_parameters(p.family, parts, references=["train"])
        return Problem("robust Kalman", p.family, data, residual, tolerances=TOLERANCES[:5])
    if name == "deblurring":
        p = deblurring.Deblurring(images.load("emnist").images)
        data = sampled(p, 10, 100 if quick else 200, ["train"])
        return Problem("deblurring", p.family, data, residual, steps=600, tolerances=TOLERANCES[:5])
    p = maxcut.Maxcut(nodes=30 if quick else 70)
    data = ls.Dataset.sample(p.family, p.sample, {"train": 10, "test": 30}, references=False)
    return Problem("maxcut", p.family, data, residual, steps=300, tolerances=TOLERANCES[:5])


def run_ridge(quick):
    p = ridge.Ridge(m=100, n=200) if quick else ridge.Ridge()
    problem = Problem("ridge", p.family, sampled(p, 2, 200), suboptimality, steps=400)
    report = Report(problem, "ridge 500×1000, exact training from the known Gaussian, 200 instances")
    report.schedule("vanilla 2/(μ+L)", None)
    gaussian = ls.Gaussian(np.zeros(p.m), np.eye(p.m))
    for block in (1, 2, 3, 10):
        result = ls.train(p.family, gaussian, block=block, loss="distance", cache=False)
        report.schedule(f"exact B = {block}", result.schedule, result.seconds)
        assert np.all(
            (result.schedule.step * p.family.lipschitz > 1) & (result.schedule.step * p.family.strong_convexity < 1)
        )
    for loss in ("distance", "metric"):
        result = ls.train(p.family, gaussian, algorithm=ls.HeavyBall(), loss=loss, cache=False)
        report.schedule(f"momentum, {loss}", result.schedule, result.seconds, ls.HeavyBall())
    report.add("conjugate gradients", conjugate_gradients(p.family, problem.data["test"], 400))
    report.show("ridge")


def conjugate_gradients(family, split, steps):
    """f − f* of conjugate gradients from zero, instance by instance in one sweep."""
    P, q = family.P.toarray(), family.data(split.parameters)["q"].T
    z, r = np.zeros_like(q), -q
    d, curve = r.copy(), []
    for _ in range(steps + 1):
        curve.append(0.5 * np.sum(z * (P @ z), axis=0) + np.sum(q * z, axis=0) - split.optima.value)
        Pd, rr = P @ d, np.sum(r * r, axis=0)
        step = rr / np.maximum(np.sum(d * Pd, axis=0), 1e-300)
        z, r = z + step * d, r - step * Pd
        d = r + np.sum(r * r, axis=0) / np.maximum(rr, 1e-300) * d
    return np.maximum(np.array(curve).T, 0)


def fista(family, steps):
    k = np.arange(steps)
    schedule = {"step": np.full(steps, 1 / family.lipschitz), "momentum": k / (k + 3)}
    return ls.Schedule(schedule, {"step": 1 / family.lipschitz, "momentum": 0.0})


def run_lasso(quick):
    result = mine = None
    for name, counts_ in (("lasso", (10, 20, 50, 100, 200)), ("lasso-paper", (10,))):
        problem = problem_of(name, quick)
        report = Report(problem, f"{problem.name}, {len(problem.data['test'])} unseen instances, suboptimality")
        report.schedule("vanilla 1/L", None)
        report.schedule("FISTA", fista(problem.family, problem.steps), algorithm=ls.AcceleratedProximalGradient())
        for count in counts_[:2] if quick else counts_:
            result, mine = learned(report, problem, count)
            if count in (10, 200):
                curve, _ = problem.curve(result.schedule, safeguard=None)
                report.add(f"  the same, no safeguard, N = {count}", curve)
        compare_constant(report, result, problem, mine)
        report.show(name)


def run_mpc(quick):
    problem = problem_of("mpc", quick)
    report = Report(problem, f"quadcopter MPC, {len(problem.data['test'])} unseen instances, ∞-norm residuals")
    report.schedule("OSQP's defaults, equilibrated", None)
    plain = Problem("", quadcopter.family(equilibrate=False), problem.data, residual_max, problem.steps)
    report.add("OSQP's defaults, not equilibrated", plain.curve(None)[0])
    for count in (10,) if quick else (10, 20, 50, 100, 200):
        result, mine = learned(report, problem, count)
        if count in (10, 100):
            compare_constant(report, result, problem, mine)
    report.add("osqp package, adapted workspace", osqp_package(problem))
    report.show("mpc")


def osqp_package(problem, instances=100):
    """Residuals of the C package after each iteration: one workspace, equilibrated, rho adapted in training."""
    import osqp

    family, data = problem.family, problem.data
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    training = family.data(data["train"].parameters[:20])
    solver = osqp.OSQP()
    solver.setup(P, training["q"][0], A, training["l"][0], training["u"][0], verbose=False, eps_abs=1e-6, eps_rel=1e-6)
    for q, l, u in zip(*training.values(), strict=True):
        solver.update(q=q, l=l, u=u)
        solver.solve()
    rho = solver.settings.rho if hasattr(solver, "settings") else 0.1
    fixed, curve = osqp.OSQP(), []
    fixed.setup(
        P, training["q"][0], A, training["l"][0], training["u"][0], verbose=False, rho=rho, adaptive_rho=False,
        check_termination=0, warm_starting=False, max_iter=1,
    )  # fmt: skip
    test = family.data(family.select(data["test"].parameters, np.arange(min(instances, len(data["test"])))))
    shown = sorted({*range(0, 81), *range(80, problem.steps + 1, 10)})
    for q, l, u in zip(test["q"], test["l"], test["u"], strict=True):
        fixed.update(q=q, l=l, u=u)
        errors = np.full(problem.steps + 1, np.nan)
        for k in shown[1:]:
            fixed.update_settings(max_iter=k)
            found = fixed.solve(raise_error=False)
            z = np.clip(family.A @ found.x, l, u)
            errors[k] = max(
                np.max(np.abs(family.A @ found.x - z)), np.max(np.abs(family.P @ found.x + q + family.A.T @ found.y))
            )
        errors[0] = errors[1]
        curve.append(np.interp(np.arange(problem.steps + 1), shown, errors[shown]))
    return np.array(curve)


def scs_package(problem, instances=60):
    """Residuals of the C package at each iteration: equilibrated, its scale adapted in training, then fixed."""
    import scs

    family, data = problem.family, problem.data
    cones = {"z": family.cones.zero, "l": family.cones.nonnegative, "q": list(family.cones.second_order)}
    if family.cones.semidefinite:
        cones["s"] = list(family.cones.semidefinite)
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    training = family.data(family.select(data["train"].parameters, np.arange(5)))
    scales = []
    for b, c in zip(training["b"], training["c"], strict=True):
        info = scs.SCS({"P": P, "A": A, "b": b, "c": c}, cones, verbose=False, eps_abs=1e-6, eps_rel=0.0).solve()[
            "info"
        ]
        scales.append(info["scale"])
    scale = float(np.exp(np.mean(np.log(scales))))
    test = family.data(family.select(data["test"].parameters, np.arange(min(instances, len(data["test"])))))
    curve = []
    for b, c in zip(test["b"], test["c"], strict=True):
        errors = []
        for k in range(1, 81):
            found = scs.SCS(
                {"P": P, "A": A, "b": b, "c": c}, cones, verbose=False, scale=scale, adaptive_scale=False, max_iters=k,
                eps_abs=0.0, eps_rel=0.0, acceleration_lookback=0,
            ).solve()  # fmt: skip
            x, y, s = found["x"], found["y"], found["s"]
            errors.append(max(np.linalg.norm(family.A @ x + s - b), np.linalg.norm(family.P @ x + family.A.T @ y + c)))
        curve.append([errors[0], *errors, *[errors[-1]] * (problem.steps - 80)])
    return np.array(curve), scale


def run_kalman(quick):
    problem = problem_of("kalman", quick)
    report = Report(problem, f"robust Kalman filter, {len(problem.data['test'])} unseen windows, residuals")
    report.schedule("SCS's defaults, equilibrated", None)
    for count in (10,) if quick else (10, 20, 50):
        result, mine = learned(report, problem, count)
        if count == 10:
            compare_constant(report, result, problem, mine)
    curve, scale = scs_package(problem)
    report.add(f"scs package, adapted scale {scale:.2f}", curve)
    report.show("kalman")


def run_deblurring(quick):
    problem = problem_of("deblurring", quick)
    report = Report(problem, f"deblurring, {len(problem.data['test'])} unseen images, residuals")
    report.schedule("OSQP's defaults, equilibrated", None)
    result, mine = learned(report, problem, 10, loss=ls.Loss(distance=0.5, metric=1.0, stress=1.0))
    compare_constant(report, result, problem, mine)
    learned(report, problem, 10, label="learned by the default loss")
    report.show("deblurring")


def run_maxcut(quick):
    problem = problem_of("maxcut", quick)
    report = Report(problem, f"maxcut, {len(problem.data['test'])} unseen graphs, residuals")
    report.schedule("SCS's defaults, equilibrated", None)
    result, mine = learned(report, problem, 10)
    compare_constant(report, result, problem, mine)
    report.show("maxcut")


def run_optimizers(quick):
    """The same training by L-BFGS and by Adam, as published, at two budgets."""
    for name in ("lasso", "mpc"):
        problem = problem_of(name, quick)
        report = Report(problem, f"{problem.name}: optimisers, N = 10")
        for label, options in (
            ("L-BFGS", {}),
            ("Adam, as many iterations", {"optimizer": "adam", "starts": 1}),
            ("Adam, 500 iterations", {"optimizer": "adam", "iterations": 500, "starts": 1}),
        ):
            learned(report, problem, 10, label=label, **options)
        report.show(f"optimizers-{name}")


def run_memory(quick):
    """Working memory and time of one gradient against n, B and N, and what H does: it multiplies the time alone."""
    from longstep.algorithms.default import default_algorithm
    from longstep.training.blocks import Block
    from longstep.training.instances import gather

    table = Table(title="one gradient of a block; a training takes about 50–100 of them a block, and has H/B blocks")
    for column in ("family", "n", "N", "B", "MiB", "ms"):
        table.add_column(column, justify="right")
    rows = []
    for name, (N, B) in [(n, nb) for n in ("lasso", "mpc", "kalman") for nb in ((10, 10), (10, 20), (100, 10))]:
        problem = problem_of(name, True)
        loss = ls.Loss(metric=1.0)
        algorithm = default_algorithm(problem.family)
        block = Block(gather(problem.family, algorithm, problem.train_on(N), None, loss).task, loss, B)
        states = block.start(None)
        staged = block.stage(states, states)
        theta = {h.name: np.full(B, h.default) for h in algorithm.hyperparameters(problem.family)}
        block.loss_and_gradient(theta, np.arange(B), B, staged)
        begin = time.perf_counter()
        for _ in range(5):
            block.loss_and_gradient(theta, np.arange(B), B, staged)
        seconds = (time.perf_counter() - begin) / 5
        rows.append((name, problem.family.n, N, B, block.memory() / 2**20, 1e3 * seconds))
        table.add_row(name, *map(str, rows[-1][1:4]), f"{rows[-1][4]:.0f}", f"{rows[-1][5]:.1f}")
    console.print(table)
    results["memory"] = rows


RUNS = {
    "ridge": run_ridge, "lasso": run_lasso, "mpc": run_mpc, "kalman": run_kalman, "deblurring": run_deblurring,
    "maxcut": run_maxcut, "optimizers": run_optimizers, "memory": run_memory,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", choices=[[], *RUNS])
    parser.add_argument("--quick", action="store_true", help="smaller test sets and fewer N")
    arguments = parser.parse_args()
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("LONGSTEP_DATA", str(shared))
    for name in arguments.runs or RUNS:
        RUNS[name](arguments.quick)
    path = Path("out/benchmarks/training.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
