"""What training gives and what it costs: quality, tails, time and memory, on test instances that training never saw.

    python benchmarks/training.py [ridge lasso mpc kalman deblurring maxcut samples optimizers memory] [--quick]
                                  [--seed 0] [--out FILE.json]

Counts are iterations until the geometric mean over the test instances is at most the tolerance, and in brackets from
where it stays there. Suboptimality for ridge and lasso, max(primal, dual) residual in the 2-norm for the others (MPC:
∞-norm). Every instance counts, also those that the safeguard took over. The C packages run in a workspace that is
reused and whose rho or scale was adapted on training instances; fewer test instances, because each of their iterates is
a solve of its own. JSON: out/benchmarks/training.json.
"""

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep._util.text import reached_text  # noqa: E402
from longstep.algorithms.douglas_rachford import DouglasRachford  # noqa: E402
from longstep.evaluation import scheduled  # noqa: E402
from longstep.report.tables import Column, Table, comparison  # noqa: E402
from longstep.research.baselines import classical, packages  # noqa: E402
from longstep.research.baselines.conjugate_gradient import conjugate_gradients  # noqa: E402
from longstep.research.experiments import deblurring, images, kalman, lasso, maxcut, quadcopter, ridge  # noqa: E402
from longstep.training import learner  # noqa: E402
from longstep.training.optimize import Minimum  # noqa: E402
from longstep.training.recipe import DEFAULT  # noqa: E402

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
COUNTS = (10, 20, 50, 100, 200)
console, results, drawn = Console(width=150), {}, {"seed": 0}


class Report:
    """Methods on the test split of a problem, in one table; training times stand in the names."""

    def __init__(self, title, data, steps=200, tolerances=TOLERANCES[:5], metric=None):
        self.title, self.data, self.steps = title, data, steps
        self.tolerances, self.metric, self.found = tolerances, metric, []

    @property
    def family(self):
        return self.data.test.family

    def add(self, method, name=None):
        found = ls.evaluate(method, self.data.test, self.steps, metric=self.metric, name=name)
        self.found.append(found)
        return found

    def learn(self, count, label="learned", **options):
        begin = time.perf_counter()
        split = self.data.train.select(range(count))
        training = ls.train(self.family, split, cache=False, progress=False, **{"horizon": 50, **options})
        seconds = time.perf_counter() - begin
        return training, self.add(ls.Solver(self.family, training), f"{label}, N = {count}, {seconds:.1f} s")

    def against(self, training, mine, name=None):
        """The best constant that training found, and where the learned schedule is behind it."""
        flat = self.add(scheduled.best_constant(self.family, training), name)
        ends = [*np.cumsum(training.schedule.blocks).tolist(), 60]
        worse = [k for k in ends if mine.geometric_mean[k] > max(flat.geometric_mean[k], 1e-13)]
        tail = [k for k in ends if mine.quantile(0.95)[k] > max(flat.quantile(0.95)[k], 1e-12)]
        console.print(
            f"  {mine.name}: kept {training.kept}. Behind the constant at: {worse or 'no block end'}; "
            f"behind in the 95% quantile at: {tail or 'no block end'}"
        )

    def package(self, make, instances, **options):
        """A C package on the first test instances, beside the last learned schedule on the same ones."""
        few = self.data.test.select(range(min(instances, len(self.data.test))))
        method = make(self.family, self.data.train, **options)
        found = [ls.evaluate(method, few, min(self.steps, 200), metric=self.metric)]
        learned = next(e for e in self.found if e.name.startswith("learned, N = 10,"))
        columns = slice(found[0].iterations + 1)
        same = replace(learned, values=learned.values[: len(few), columns], safeguarded=learned.safeguarded[: len(few)])
        return [*found, replace(same, data_hash=found[0].data_hash, seconds=None)]

    def show(self, key, *more):
        console.rule(self.title)
        tables = [comparison(self.found, self.tolerances, at=[20, 50]), *more]
        for table in tables:
            console.print(table)
        results[key] = [table.to_json() for table in tables]


def sampled(problem, train, test, references=("train", "test")):
    sizes = {"train": train, "test": test}
    return ls.Dataset.sample(problem.family, problem.sample, sizes, references=references, seed=drawn["seed"])


def report_of(name, quick):
    tests = 200 if quick else 1000
    if name == "lasso":
        return Report("lasso 64×128", sampled(lasso.Lasso(64, 128), 200, tests), tolerances=TOLERANCES)
    if name == "lasso-paper":
        return Report("lasso 1000×2000", sampled(lasso.Lasso(), 10, 50 if quick else 100), tolerances=TOLERANCES)
    if name == "mpc":
        sizes = {"train": 200, "test": tests}
        data = ls.Dataset.sample(
            quadcopter.family(), quadcopter.sample, sizes, references=["train"], seed=drawn["seed"]
        )
        return Report("quadcopter MPC", data, metric="residual_max")
    if name == "kalman":
        p = kalman.Kalman()
        windows = p.draw_splits({"train": 2, "test": 3 if quick else 10}, seed=drawn["seed"])
        # Neighbouring windows are alike: train on windows in random order.
        order = np.random.default_rng(0).permutation(len(windows["train"]))
        parts = {"train": windows["train"].measurements[order], "test": windows["test"].measurements}
        return Report("robust Kalman filter", ls.Dataset.from_parameters(p.family, parts, references=["train"]))
    if name == "deblurring":
        p = deblurring.Deblurring(images.load("emnist").images)
        return Report("deblurring", sampled(p, 10, 100 if quick else 200, ["train"]), steps=600)
    p = maxcut.Maxcut(nodes=30 if quick else 70)
    return Report(f"maxcut, {p.nodes} nodes", sampled(p, 10, 30, []), steps=300)


def run_ridge(quick):
    p = ridge.Ridge(m=100, n=200) if quick else ridge.Ridge()
    report = Report("ridge, exact training from the known Gaussian", sampled(p, 2, 200), 400, TOLERANCES)
    report.add(scheduled.vanilla(p.family))
    gaussian, L, mu = ls.Gaussian(np.zeros(p.m), np.eye(p.m)), p.family.lipschitz, p.family.strong_convexity
    for block in (1, 2, 3, 10):
        training = ls.train(p.family, gaussian, block=block, loss="distance", cache=False)
        report.add(ls.Solver(p.family, training), f"exact, B = {block}, {training.seconds:.2f} s")
        assert np.all((training.schedule.step * L > 1) & (training.schedule.step * mu < 1))
    for loss in ("distance", "metric"):
        training = ls.train(p.family, gaussian, algorithm=ls.HeavyBall(), loss=loss, cache=False)
        report.add(ls.Solver(p.family, training), f"momentum, {loss}, {training.seconds:.2f} s")
    report.add(conjugate_gradients(p.family))
    report.show("ridge")


def run_lasso(quick):
    for name, counts in (("lasso", COUNTS[:2] if quick else COUNTS), ("lasso-paper", (10,))):
        report = report_of(name, quick)
        report.add(scheduled.vanilla(report.family))
        report.add(classical.fista(report.family))
        for count in counts:
            training, mine = report.learn(count)
            if count in (10, 200):
                bare = ls.Solver(report.family, training, safeguard=None)
                report.add(bare, f"  the same without safeguard, N = {count}")
            if count == counts[-1]:
                report.against(training, mine)
        splitting = DouglasRachford()
        report.add(ls.Solver(report.family, algorithm=splitting, rho=1.0), "Douglas–Rachford, ρ = 1")
        found = report.learn(10, "Douglas–Rachford, learned", algorithm=splitting, horizon=30)
        report.against(*found, "Douglas–Rachford, best constant")
        report.show(name)


def run_mpc(quick):
    report = report_of("mpc", quick)
    report.add(scheduled.vanilla(quadcopter.family(equilibrate=False)), "OSQP's defaults, not equilibrated")
    report.add(scheduled.vanilla(report.family), "OSQP's defaults")
    for count in COUNTS[:1] if quick else COUNTS:
        training, mine = report.learn(count)
        if count == 10:
            report.against(training, mine)
    report.show("mpc", comparison(report.package(packages.osqp_package, 100), report.tolerances))


def run_kalman(quick):
    report = report_of("kalman", quick)
    report.add(scheduled.vanilla(report.family), "SCS's defaults")
    for count in COUNTS[:1] if quick else COUNTS:
        training, mine = report.learn(count)
        if count == 10:
            report.against(training, mine)
    plain = report.package(packages.scs_package, 50, anderson=0)
    anderson = replace(report.package(packages.scs_package, 50)[0], name="scs package, adapted, Anderson")
    report.show("kalman", comparison([*plain, anderson], report.tolerances))


def run_deblurring(quick):
    report = report_of("deblurring", quick)
    report.add(scheduled.vanilla(report.family), "OSQP's defaults")
    training, mine = report.learn(10, block=deblurring.BLOCKS, horizon=30, loss="metric")
    report.against(training, mine)
    report.learn(10, label="learned, 50 steps", block=deblurring.BLOCKS, loss="metric")
    report.learn(10, label="learned in blocks of ten")
    package = report.package(packages.osqp_package, 5)
    report.show("deblurring", comparison(package, report.tolerances, at=50))


def run_maxcut(quick):
    report = report_of("maxcut", quick)
    report.add(scheduled.vanilla(report.family), "SCS's defaults")
    training, mine = report.learn(10)
    report.against(training, mine)
    package = report.package(packages.scs_package, 5, anderson=0)
    report.show("maxcut", comparison(package, report.tolerances, at=50))


def run_samples(quick):
    """What more training instances give: iterations to tolerances, errors after 50 steps, and time."""
    p, k = lasso.Lasso(64, 128), kalman.Kalman()
    problems = {
        "lasso 64×128": (p.family, p.sample, ["train", "test"]),
        "quadcopter MPC": (quadcopter.family(), quadcopter.sample, []),
        "robust Kalman filter": (k.family, k.sample, []),
    }
    rows = []
    for name, (family, sample, references) in problems.items():
        sizes = {"train": max(COUNTS), "test": 200 if quick else 1000}
        data = ls.Dataset.sample(family, sample, sizes, references=references, seed=drawn["seed"])
        for count in COUNTS[:2] if quick else COUNTS:
            begin = time.perf_counter()
            training = ls.train(family, data.train.select(range(count)), horizon=50, cache=False, progress=False)
            seconds = time.perf_counter() - begin
            found = ls.evaluate(ls.Solver(family, training), data.test, 60, timed=False)
            counts = [reached_text(found.reached(t)) for t in TOLERANCES[:5]]
            after = [curve[50] for curve in (found.geometric_mean, found.quantile(0.99), found.maximum)]
            rows.append((name, count, *counts, *after, int(found.safeguarded.sum()), seconds))
    columns = [Column(name) for name in ("family", "N", *(f"{t:.0e}" for t in TOLERANCES[:5]))]
    columns += [Column(f"{name} at 50", lambda v: f"{v:.0e}") for name in ("mean", "99%", "max")]
    columns += [Column("safeguarded"), Column("training", lambda v: f"{v:.0f} s")]
    table = Table("Against the number N of training instances", tuple(columns), tuple(rows))
    console.print(table)
    results["samples"] = table.to_json()


def run_optimizers(quick):
    """The same training by SciPy's L-BFGS, by Optax's, and by Adam, as published, at two budgets."""
    for name in ("lasso", "mpc"):
        report = report_of(name, quick)
        report.learn(10, "L-BFGS, SciPy's")
        with OptaxLBFGS():
            report.learn(10, "L-BFGS, Optax's")
        report.learn(10, "Adam, as many iterations", optimizer="adam", starts=1)
        report.learn(10, "Adam, 500 iterations", optimizer="adam", iterations=500, starts=1)
        report.show(f"optimizers-{name}")


class OptaxLBFGS:
    """Training uses Optax's L-BFGS, with its zoom line search, inside this block."""

    def __enter__(self):
        self.before, learner.minimise = learner.minimise, self.minimise

    def __exit__(self, *exception):
        learner.minimise = self.before

    @staticmethod
    def minimise(objective, x, bounds, optimizer, iterations, recipe, report):
        import optax

        shape = (jax.ShapeDtypeStruct((), jnp.float64), jax.ShapeDtypeStruct(x.shape, jnp.float64))
        seen = {}

        def host(x):
            x = np.array(x)
            if x.tobytes() not in seen:
                value, gradient = objective(np.clip(x, *bounds))
                fine = np.isfinite(value) and np.isfinite(gradient).all()
                pair = (value, gradient) if fine else (recipe.overflow, np.zeros_like(x))
                seen[x.tobytes()] = (np.float64(pair[0]), np.asarray(pair[1], np.float64))
            return seen[x.tobytes()]

        @jax.custom_jvp
        def function(x):
            return jax.pure_callback(host, shape, x)[0]

        @function.defjvp
        def _(primals, tangents):
            value, gradient = jax.pure_callback(host, shape, primals[0])
            return value, gradient @ tangents[0]

        tool = optax.lbfgs(memory_size=recipe.memory)

        @jax.jit
        def step(z, state):
            value, gradient = optax.value_and_grad_from_state(function)(z, state=state)
            update, state = tool.update(gradient, state, z, value=value, grad=gradient, value_fn=function)
            return optax.apply_updates(z, update), state

        z = jnp.asarray(x)
        state = tool.init(z)
        while len(seen) < int(iterations * recipe.evaluations):
            before = len(seen)
            z, state = jax.block_until_ready(step(z, state))
            if len(seen) == before:
                break
        best, (value, _) = min(seen.items(), key=lambda item: item[1][0])
        first = next(iter(seen.values()))[0]
        return Minimum(np.clip(np.frombuffer(best), *bounds), float(value), float(first), len(seen))


def run_memory(quick):
    """What a training takes against n, N, B and H: memory and time of one gradient, and all of it."""
    from longstep.algorithms.registry import default_algorithm
    from longstep.training.instances import gather
    from longstep.training.losses import resolve_loss
    from longstep.training.program import Program

    rows = []
    for name in ("lasso", "mpc") if quick else ("lasso", "mpc", "kalman", "deblurring"):
        report = report_of(name, True)
        algorithm = default_algorithm(report.family)
        for N, B, H in ((10, 10, 20), (10, 10, 50), (10, 20, 50), (100, 10, 50)):
            if len(report.data.train) < N:
                continue
            loss = resolve_loss("metric", DEFAULT, monotone=algorithm.metric(report.family) is not None)
            split = report.data.train.select(range(N))
            block = Program(gather(report.family, algorithm, split, None, loss, DEFAULT).task, loss, B, DEFAULT)
            states = block.start(None)
            staged = block.stage(states, states)
            theta = {h.name: np.full(B, h.default) for h in algorithm.hyperparameters(report.family)}
            block.loss_and_gradient(theta, np.arange(B), B, staged)
            times = []
            for _ in range(5):
                begin = time.perf_counter()
                block.loss_and_gradient(theta, np.arange(B), B, staged)
                times.append(time.perf_counter() - begin)
            milliseconds = 1e3 * np.median(times)
            jax.clear_caches()
            training = ls.train(report.family, split, block=B, horizon=H, cache=False, progress=False)
            sizes = (report.family.n, N, B, H)
            rows.append((report.title, *sizes, block.memory() / 2**20, milliseconds, training.seconds))
    columns = [Column(name) for name in ("family", "n", "N", "B", "H")]
    columns += [
        Column("MiB", lambda v: f"{v:.0f}"),
        Column("ms", lambda v: f"{v:.1f}"),
        Column("training", "{:.0f} s".format),
    ]
    title = "Memory and time of one gradient of a block, and the time of a whole training, compiling included"
    table = Table(title, tuple(columns), tuple(rows))
    console.print(table)
    results["memory"] = table.to_json()


RUNS = {
    "ridge": run_ridge, "lasso": run_lasso, "mpc": run_mpc, "kalman": run_kalman, "deblurring": run_deblurring,
    "maxcut": run_maxcut, "samples": run_samples, "optimizers": run_optimizers, "memory": run_memory,
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="run", help=", ".join(RUNS))
    parser.add_argument("--quick", action="store_true", help="smaller test sets and fewer N")
    parser.add_argument("--seed", type=int, default=0, help="of the instances' draw")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/training.json"))
    arguments = parser.parse_args()
    drawn["seed"] = arguments.seed
    if unknown := set(arguments.runs) - set(RUNS):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(RUNS)}")
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("LONGSTEP_DATA", str(shared))
    for name in arguments.runs or RUNS:
        RUNS[name](arguments.quick)
        write_bytes(arguments.out, json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
