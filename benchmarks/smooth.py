"""What `learn` gives on smooth families: quasi-Newton steps, learned and not, beside gradient methods and SciPy.

    python benchmarks/smooth.py [--families poisson …] [--instances 50] [--seed 0]

Poisson regression and five classes by softmax bring data of their own with every instance; robust regression shares its
matrix. Counts are steps, or evaluations of SciPy's L-BFGS-B, from which on f − f* stays at most 1e-1 … 1e-6: of the
geometric mean and of the 95% quantile over 200 instances that were not trained on; then the worst after 20 steps, on
how many the safeguard acted, and the seconds of training. JSON: out/benchmarks/smooth.json.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from designs import TOLERANCES  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.algorithms.quasi_newton import QuasiNewton  # noqa: E402
from longstep.evaluation import scheduled  # noqa: E402
from longstep.learning import list_forms  # noqa: E402
from longstep.linalg.matrix import squared_norm_bound  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402
from longstep.research.baselines import classical  # noqa: E402
from longstep.research.baselines.lbfgsb import LBFGSB  # noqa: E402

TESTS, STEPS = 200, 300
COLUMNS = ("family", "method", "geometric mean", "95% quantile", "worst at 20", "safeguarded", "training")
Problem = tuple[ls.Smooth, Callable[[np.random.Generator], Any]]


def make_family(objective: Any, sample: Any, lipschitz: Any, n: int, mu: float) -> Problem:
    """A family whose L is half as large again as the largest of ten draws, with the instances' own."""
    rng = np.random.default_rng(12345)
    L = 1.5 * max(float(lipschitz(sample(rng))) for _ in range(10))
    return ls.Smooth(objective, L, n, strong_convexity=mu, lipschitz_of=lipschitz), sample


def make_poisson(m: int = 200, n: int = 40, mu: float = 1e-3) -> Problem:
    """Counts with means exp(a'z), features of different sizes; no L holds everywhere: here one for small z."""
    sizes = np.geomspace(1, 0.05, n) / np.sqrt(5)

    def objective(z, x):
        e = x["A"] @ z
        return jnp.mean(jnp.exp(e) - x["b"] * e) + mu / 2 * z @ z

    def lipschitz(x):
        return 2 * squared_norm_bound(x["A"]) / m * jnp.maximum(jnp.mean(x["b"]), 1.0) + mu

    def sample(rng):
        A = rng.normal(size=(m, n)) * sizes
        return {"A": A, "b": rng.poisson(np.exp(np.clip(A @ rng.normal(size=n), -4, 4))).astype(float)}

    return make_family(objective, sample, lipschitz, n, mu)


def make_robust(m: int = 150, n: int = 60, mu: float = 1e-4, width: float = 0.1) -> Problem:
    """Regression with outliers by the pseudo-Huber loss, one matrix for all, columns of different sizes."""
    A = np.random.default_rng(5).normal(size=(m, n)) * np.geomspace(1, 0.03, n)

    def objective(z, b):
        r = (A @ z - b) / width
        return width * jnp.mean(jnp.sqrt(1 + r * r) - 1) + mu / 2 * z @ z

    def sample(rng):
        b = A @ rng.normal(size=n) + 0.05 * rng.normal(size=m)
        return b + 3 * rng.normal(size=m) * (rng.random(m) < 0.1)

    L = float(np.linalg.norm(A, 2)) ** 2 / m / width + mu
    return ls.Smooth(objective, L, n, strong_convexity=mu), sample


def make_softmax(classes: int = 5, features: int = 20, m: int = 200, mu: float = 1e-3) -> Problem:
    """Classes of Gaussian points, with centres of their own for every instance."""

    def objective(z, x):
        scores = x["X"] @ z.reshape(classes, features).T
        own = jnp.take_along_axis(scores, x["y"][:, None], 1)[:, 0]
        return jnp.mean(jax.scipy.special.logsumexp(scores, 1) - own) + mu / 2 * z @ z

    def lipschitz(x):
        return squared_norm_bound(x["X"]) / (2 * m) + mu

    def sample(rng):
        centres = rng.normal(size=(classes, features)) * np.geomspace(2, 0.1, features)
        y = rng.integers(classes, size=m)
        return {"X": centres[y] + rng.normal(size=(m, features)) * np.geomspace(2, 0.2, features), "y": y}

    return make_family(objective, sample, lipschitz, classes * features, mu)


FAMILIES = {"poisson": make_poisson, "robust": make_robust, "softmax": make_softmax}


def count_steps(curve: np.ndarray) -> str:
    """Steps from which on a curve stays below each tolerance, – where it does not."""
    above = [np.flatnonzero(~(curve <= tolerance)) for tolerance in TOLERANCES]
    return " ".join("0" if not k.size else "–" if k[-1] == STEPS else str(k[-1] + 1) for k in above)


def measure(name: str, instances: int, seed: int) -> list[tuple[str, ...]]:
    """All rows of a family."""
    family, sample = FAMILIES[name]()
    data = ls.Dataset.sample(family, sample, {"train": instances, "test": TESTS}, seed=seed, progress=False)
    options: dict[str, Any] = {"progress": False, "seed": seed}
    learned = ls.train(family, data, algorithm=list_forms(family), **options)
    gradient = ls.train(family, data, algorithm=ls.GradientDescent(), **options)
    methods: dict[str, tuple[Any, ls.Training | None]] = {
        "gradient descent, 1/L": (ls.Solver(family, step=1 / family.lipschitz), None),
        "Nesterov, convex": (classical.nesterov_convex(family), None),
        "gradient descent, learned": (ls.Solver(family, gradient), gradient),
        "L-BFGS-B of SciPy": (LBFGSB(family), None),
        "quasi-Newton, untrained": (ls.Solver(family, algorithm=QuasiNewton()), None),
        f"best constant, {type(learned.algorithm).__name__}": (scheduled.best_constant(family, learned), None),
        f"what `learn` takes: {type(learned.algorithm).__name__}": (ls.Solver(family, learned), learned),
    }
    rows = []
    for method, (solver, training) in methods.items():
        found = ls.evaluate(solver, data.test, STEPS, name=method, timed=False, progress=False)
        spent = "" if training is None else f"{training.seconds:.0f} s, kept: {training.kept}"
        counts = count_steps(found.geometric_mean), count_steps(found.quantile(0.95))
        rows.append((name, method, *counts, f"{found.maximum[20]:.0e}", str(int(found.safeguarded.sum())), spent))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/smooth.json"))
    options = parser.parse_args()
    rows = [row for name in options.families for row in measure(name, options.instances, options.seed)]
    table = Table(f"Smooth families, {options.instances} training instances", tuple(map(Column, COLUMNS)), tuple(rows))
    print(table)
    document = {"instances": options.instances, "seed": options.seed, "table": table.to_json()}
    write_bytes(options.out, json.dumps(document, indent=1, ensure_ascii=False).encode())


if __name__ == "__main__":
    main()
