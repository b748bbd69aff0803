"""What every rule of training is worth: one rule dropped at a time, on instances that training never saw.

    python benchmarks/ablation.py [--families lasso …] [--rules "no stress test" …] [--instances 10 60]
                                   [--seeds 2]

A rule is dropped by fields of the Recipe or options of `train`; the algorithm is the first that `learn` tries, without
a finish. Counts are iterations until an instance's error is first at most 1e-3 and 1e-6, and from where it stays
(suboptimality for lasso and logistic regression, max(primal, dual) residual in the 2-norm for the others), over 200
test instances: their geometric mean, 95% quantile and maximum, and how many are above after 300 iterations, which count
as 300. Every seed has training and test instances of its own. `another seed` drops nothing: it draws candidates and
starts anew, so it shows what is noise. Results are added to JSON: out/benchmarks/ablation.json.
"""

import argparse
import json
import time
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.learning import list_forms  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402
from longstep.research.experiments import kalman, lasso, quadcopter  # noqa: E402
from longstep.training.recipe import Recipe  # noqa: E402

FEW, MANY, TESTS, LIMIT = 10, 60, 200, 300
TOLERANCES = (1e-3, 1e-6)
PATH = Path("out/benchmarks/ablation.json")
# How many training instances, and what is changed: fields of the recipe, options of `train`.
RULES: dict[str, tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = {
    "another seed": ((FEW, MANY), {}, {}),
    "one start": ((FEW,), {"effort_without_factors": (100, 1)}, {}),
    "the geometric mean alone": ((FEW, MANY), {"tail": 0.0}, {}),
    "both means alike": ((FEW, MANY), {"tail": 0.5}, {}),
    "the mean of squares alone": ((FEW, MANY), {"tail": 1.0}, {}),
    "no stress test": ((FEW, MANY), {"stress": 0.0}, {}),
    "no metric": ((FEW, MANY), {}, {"metric": False}),
    "metric begins at ones": ((FEW, MANY), {"metric_powers": ()}, {}),
    "a metric without care": ((FEW, MANY), {"metric_weights": (0.01, 0.001, 0.1)}, {}),
    "ten candidates": ((FEW,), {}, {"candidates": 10}),
    "twice the candidates": ((FEW, MANY), {"candidates": 60}, {}),
    "short view": ((FEW,), {"lasting": 2}, {}),
    "no look at the first blocks": ((FEW,), {"near": 0}, {}),
    "judged to the last digit": ((FEW, MANY), {"judged_depth": 1e-300}, {}),
    "never behind": ((FEW, MANY), {"behind": 0.0, "behind_steps": 0.0}, {}),
    "no scaled steady states": ((FEW,), {"scales": ()}, {}),
}


def portfolio():
    """Assets with a factor model; the expected returns are the parameter."""
    rng, assets, factors = np.random.default_rng(3), 30, 5
    F = rng.normal(size=(assets, factors)) * (rng.random((assets, factors)) < 0.5)
    P = np.diag(np.append(rng.random(assets) * np.sqrt(factors), np.ones(factors)))
    sums = np.append(np.ones(assets), np.zeros(factors))[None]
    links = np.hstack([F.T, -np.eye(factors)])
    bounds = np.hstack([np.eye(assets), np.zeros((assets, factors))])
    l, u = (np.concatenate([[1.0], np.zeros(factors), np.full(assets, side)]) for side in (0.0, 1.0))
    returns = np.vstack([-np.eye(assets), np.zeros((factors, assets))])
    family = ls.QP(P, A=np.vstack([sums, links, bounds]), l=l, u=u, parameter=ls.Affine(q=returns))
    return family, lambda rng: 0.3 * rng.normal(size=assets)


def box():
    """A dense quadratic in a box, where all penalties share eigenvectors; the linear term is the parameter."""
    n, rank = 310, 20
    B = np.random.default_rng(4).normal(size=(n, n)) / np.sqrt(n)
    family = ls.QP(B @ B.T + 0.01 * np.eye(n), A=np.eye(n), l=-np.ones(n), u=np.ones(n), parameter=ls.Affine(
        q=np.random.default_rng(5).normal(size=(n, rank))))  # fmt: skip
    return family, lambda rng: rng.normal(size=rank)


def logistic():
    """Regularised logistic regression; points and labels are the parameter."""
    points, n, weight = 40, 10, 1e-2

    def objective(z, x):
        return jnp.mean(jnp.logaddexp(0.0, -x @ z)) + 0.5 * weight * z @ z

    def sample(rng):
        labels = rng.choice([-1.0, 1.0], points)
        return labels[:, None] * rng.normal(size=(points, n)) * np.geomspace(1, 0.2, n) + 0.3

    drawn = [sample(np.random.default_rng([6, k])) for k in range(200)]
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 / (4 * points) for x in drawn)
    return ls.Smooth(objective, 1.5 * curvature + weight, n, strong_convexity=weight, lower_bound=0.0), sample


def of(problem):
    return problem.family, problem.sample


FAMILIES = {
    "lasso": lambda: of(lasso.Lasso(32, 64)),
    "portfolio": portfolio,
    "logistic": logistic,
    "kalman": lambda: of(kalman.Kalman(horizon=6, length=30)),
    "box": box,
    "quadcopter": lambda: (quadcopter.family(), quadcopter.sample),
}


@cache
def problem(name):
    return FAMILIES[name]()


@cache
def data_of(name, seed):
    family, sample = problem(name)
    references = ["train", "test"] if name in ("lasso", "logistic") else []
    sizes = {"train": MANY, "test": TESTS}
    return ls.Dataset.sample(family, sample, sizes, references=references, seed=1000 + seed, progress=False)


def count_steps(values, tolerance):
    """The step at which every instance's error is first at most the tolerance, and from which on it stays there."""
    below = values <= tolerance
    first = np.where(below.any(axis=1), below.argmax(axis=1), LIMIT + 1)
    last_above = below.shape[1] - 1 - (~below[:, ::-1]).argmax(axis=1)
    stays = np.where(below.all(axis=1), 0, last_above + 1)
    return {"first": first, "stays": stays}


def summarize(counts):
    """The mean, the tail, and how many are not there within the limit, which count as the limit."""
    capped = np.clip(counts, 1, LIMIT)
    return {
        "mean": float(np.exp(np.mean(np.log(capped)))),
        "95%": int(np.quantile(capped, 0.95, method="inverted_cdf")),
        "worst": int(capped.max()),
        "unsolved": int((counts > LIMIT).sum()),
    }


def measure(name, rule, count, seed):
    """One training and what it gives on the test instances."""
    data = data_of(name, seed)
    _, changes, options = ((), {}, {}) if rule is None else RULES[rule]
    begin = time.perf_counter()
    training = ls.train(
        data.test.family,
        data.train.select(range(count)),
        algorithm=list_forms(data.test.family)[0],
        horizon=30,
        recipe=Recipe(**changes),
        seed=seed + 100 * (rule == "another seed"),
        cache=False,
        progress=False,
        **options,
    )
    seconds = time.perf_counter() - begin
    solver = ls.Solver(data.test.family, training, finish=False)
    found = ls.evaluate(solver, data.test, LIMIT, timed=False)
    row = {"family": name, "rule": rule, "instances": count, "seed": seed, "seconds": seconds, "kept": training.kept}
    row |= {
        "schedule": sha256(training.schedule.to_json().encode()).hexdigest(),
        "safeguarded": int(found.safeguarded.sum()),
    }
    values = np.asarray(found.values)
    for tolerance in TOLERANCES:
        row[f"{tolerance:.0e}"] = {name: summarize(counts) for name, counts in count_steps(values, tolerance).items()}
    return row


def identify(row):
    return row["family"], row["rule"], row["instances"], row["seed"]


def describe(row):
    """A row in one line."""
    figures = [row[f"{t:.0e}"]["stays"] for t in TOLERANCES]
    counts = "; ".join(f"{f['mean']:.1f} {f['95%']} {f['worst']}, {f['unsolved']} unsolved" for f in figures)
    what = f"{row['family']}, {row['rule'] or 'all rules'}, N = {row['instances']}, seed {row['seed']}"
    return f"{what}: {counts}; {row['seconds']:.0f} s"


def ratio(pairs, tolerance, touch, figure):
    """How much larger a figure is without the rule, in the geometric mean."""
    logs = [np.log(row[tolerance][touch][figure] / whole[tolerance][touch][figure]) for row, whole in pairs]
    return float(np.exp(np.mean(logs)))


def compare(rows, rule):
    """Ratios to the whole recipe, over families and seeds, first and from where it stays: above 1 the rule pays.
    Unsolved are differences."""
    known = {identify(row): row for row in rows}
    pairs = [
        (row, known[row["family"], None, row["instances"], row["seed"]])
        for row in rows
        if row["rule"] == rule and (row["family"], None, row["instances"], row["seed"]) in known
    ]
    if not pairs:
        return ["0/0", *["–"] * (4 * len(TOLERANCES) + 1)]
    same = sum(row["schedule"] == whole["schedule"] for row, whole in pairs)
    cells = [f"{same}/{len(pairs)}"]
    for tolerance in (f"{t:.0e}" for t in TOLERANCES):
        for figure in ("mean", "95%", "worst"):
            cells.append(" ".join(f"{ratio(pairs, tolerance, touch, figure):.2f}" for touch in ("first", "stays")))
        more = [row[tolerance]["stays"]["unsolved"] - whole[tolerance]["stays"]["unsolved"] for row, whole in pairs]
        cells.append(f"{sum(more):+d}")
    every = [ratio([pair], "1e-06", "stays", "mean") for pair in pairs]
    return [*cells, f"{min(every):.2f}…{max(every):.2f}"]


def tabulate(rows, count):
    """One line for every rule: what its absence costs with so many training instances."""
    rows = [row for row in rows if row["instances"] == count]
    columns = [Column("without the rule"), Column("same")]
    for tolerance in TOLERANCES:
        columns += [Column(f"{name} {tolerance:.0e}") for name in ("mean", "95%", "worst", "unsolved")]
    columns += [Column("least…most")]
    lines = tuple((rule, *compare(rows, rule)) for rule in RULES if any(row["rule"] == rule for row in rows))
    note = (
        "Ratios to the whole recipe of counts until errors are first at most the tolerance, and from where they stay: "
        "above 1 the rule pays. `same`: how many schedules are the same bit for bit; `least…most`: of the means from "
        "where they stay at 1e-06."
    )
    return Table(f"One rule of training dropped at a time, N = {count}", tuple(columns), lines, note)


def write(path, rows):
    """Write the rows and the tables of them."""
    tables = {f"N = {count}": tabulate(rows, count).to_json() for count in (FEW, MANY)}
    write_bytes(path, json.dumps({"trainings": rows, "tables": tables}, indent=1).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--rules", nargs="*", choices=RULES, default=list(RULES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--instances", nargs="+", type=int, choices=(FEW, MANY), default=[FEW, MANY])
    parser.add_argument("--again", action="store_true", help="also measure what the JSON holds already")
    parser.add_argument("--out", type=Path, default=PATH)
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(arguments.out.read_text())["trainings"] if arguments.out.exists() else []
    for seed in range(arguments.seeds):
        for name in arguments.families:
            chosen = [(rule, n) for rule in arguments.rules for n in RULES[rule][0] if n in arguments.instances]
            runs = [*((None, n) for n in sorted({n for _, n in chosen})), *chosen]
            for rule, count in runs:
                key = (name, rule, count, seed)
                if not arguments.again and key in map(identify, rows):
                    continue
                row = measure(name, rule, count, seed)
                rows = [r for r in rows if identify(r) != key] + [row]
                write(arguments.out, rows)
                print(describe(row), flush=True)
    write(arguments.out, rows)
    for count in arguments.instances:
        print(tabulate(rows, count).text(150))


if __name__ == "__main__":
    main()
