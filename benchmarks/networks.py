"""How many instances networks need: L2WS and the learned metric trained on 10 to 10,000, beside a learned schedule.

    python benchmarks/networks.py [lasso mpc] [--counts 10 100 1000 10000] [--seed 0] [--out FILE.json]

Both networks have two hidden layers of 500 and start from the best constant that training the schedule found. Counts
are iterations until the geometric mean over 1000 test instances is at most the tolerance; "at 0" is before the first
step. Names say the number of training instances and the seconds of training. JSON: out/benchmarks/networks.json.
"""

import argparse
import json
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

from rich.console import Console  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.evaluation import scheduled  # noqa: E402
from longstep.report.tables import comparison  # noqa: E402
from longstep.research.baselines.l2ws import l2ws  # noqa: E402
from longstep.research.baselines.learned_metric import train_learned_metric  # noqa: E402
from longstep.research.experiments import lasso, quadcopter  # noqa: E402

STEPS, TESTS, SCHEDULE = 200, 1000, 10
console = Console(width=150)


def problem_of(name):
    """The family, its sampler, the metric, and how many instances the learned metric takes at a time.

    In the metric of an instance a QP needs a factorization of its own, which makes large batches dear.
    """
    if name == "lasso":
        p = lasso.Lasso(64, 128)
        return p.family, p.sample, None, 500
    return quadcopter.family(), quadcopter.sample, "residual_max", 32


def run(name, counts, seed):
    family, sample, metric, batch = problem_of(name)
    sizes = {"train": max(counts), "test": TESTS}
    references = ["train", *(["test"] if metric is None else [])]
    data = ls.Dataset.sample(family, sample, sizes, references=references, seed=seed)
    training = ls.train(family, data.train.select(range(SCHEDULE)), horizon=50, progress=False)
    base = ls.Solver(family, training.constant)
    found = []

    def add(method, label):
        found.append(ls.evaluate(method, data.test, STEPS, metric=metric, name=label))

    add(ls.Solver(family, training), f"learned schedule, N = {SCHEDULE}, {training.seconds:.0f} s")
    add(scheduled.best_constant(family, training), "best constant")
    for count in counts:
        split = data.train.select(range(count))
        for method in (l2ws(base, split), train_learned_metric(base, split, batch=batch)):
            add(method, f"{method.name}, {method.record['seconds']:.0f} s")
    table = comparison(found, at=[0, 20])
    console.rule(name)
    console.print(table)
    return table.to_json()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["lasso", "mpc"]
    parser.add_argument("runs", nargs="*", metavar="run", help=", ".join(names))
    parser.add_argument("--counts", nargs="+", type=int, default=[10, 100, 1000, 10_000])
    parser.add_argument("--seed", type=int, default=0, help="of the instances' draw")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/networks.json"))
    arguments = parser.parse_args()
    if unknown := set(arguments.runs) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
    results = {name: run(name, sorted(arguments.counts), arguments.seed) for name in arguments.runs or names}
    write_bytes(arguments.out, json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
