"""Families that nothing was tuned on, each through `learn` with its defaults, as a user would: what he gets.

    python benchmarks/front_door.py [NAME ...] [--train 60] [--test 200] [--seed 0] [--out FILE.json]

Twelve problems as people write them in CVXPY, in their own units: signals, statistics, markets, estimation and control.
Each is learned from past parameters, once, and tested on others: steps until `solve` ends at 1e-3 and 1e-6, at the
median, the 95% quantile and the worst (a change of the active set counts as one, a Newton step as the (n + m)/3 that
cost as much), and how many are unsolved, beside OSQP's or SCS's defaults and the installed package as it comes; the
share of exact points; the time of one instance in C on one core beside the package's; and the time of learning. JSON:
out/benchmarks/front_door.json; a family that is there is not measured again.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import cvxpy as cp  # noqa: E402
import numpy as np  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

PATH = Path("out/benchmarks/front_door.json")
EPS = 1e-6
LOOSE = 1e-3
Family = tuple[cp.Problem, Callable[[np.random.Generator], dict[str, Any]]]
# A problem and its past parameters.
Learnable = tuple[cp.Problem, dict[str, np.ndarray]]


def steps_denoised() -> Family:
    """A signal with a few levels out of noise, by total variation."""
    n = 120
    y, x = cp.Parameter(n, name="y"), cp.Variable(n, name="x")

    def draw(rng):
        count = rng.integers(2, 7)
        ends = np.sort(rng.choice(np.arange(1, n), count - 1, replace=False))
        levels = np.repeat(rng.normal(0, 2, count), np.diff([0, *ends, n]))
        return {"y": levels + 0.4 * rng.standard_normal(n)}

    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) + 1.5 * cp.norm1(cp.diff(x)))), draw


def trend() -> Family:
    """A piecewise linear trend out of noise."""
    n = 100
    y, x = cp.Parameter(n, name="y"), cp.Variable(n, name="x")

    def draw(rng):
        bends = 0.3 * rng.standard_normal(n) * (rng.random(n) < 0.1)
        return {"y": np.cumsum(np.cumsum(bends)) + rng.standard_normal(n)}

    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) / 2 + 20 * cp.norm1(cp.diff(x, 2)))), draw


def weighted_svm() -> Family:
    """A support vector machine whose examples get new weights, as in boosting."""
    rng, count, n = np.random.default_rng(3), 60, 8
    X = rng.standard_normal((count, n))
    labels = np.sign(X[:, 0] + 0.5 * rng.standard_normal(count))
    weights, w, b = cp.Parameter(count, name="weights", nonneg=True), cp.Variable(n, name="w"), cp.Variable(name="b")
    losses = cp.pos(1 - cp.multiply(labels, X @ w + b))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) / 2 + weights @ losses))
    return problem, lambda rng: {"weights": rng.exponential(1.0, count)}


def huber() -> Family:
    """A robust regression with outliers among the measurements."""
    count, n = 80, 12
    A = np.random.default_rng(4).standard_normal((count, n))
    b, x = cp.Parameter(count, name="b"), cp.Variable(n, name="x")

    def draw(rng):
        outliers = (rng.random(count) < 0.1) * rng.normal(0, 10, count)
        return {"b": A @ rng.standard_normal(n) + 0.1 * rng.standard_normal(count) + outliers}

    return cp.Problem(cp.Minimize(cp.sum(cp.huber(A @ x - b)))), draw


def products() -> Family:
    """A linear program: what to make of scarce goods, at new prices and stocks."""
    goods, n = 30, 40
    A = np.random.default_rng(5).random((goods, n))
    price, stock = cp.Parameter(n, name="price"), cp.Parameter(goods, name="stock")
    x = cp.Variable(n, name="x", nonneg=True)
    rows: list[Any] = [A @ x <= stock, x <= 3]
    problem = cp.Problem(cp.Maximize(price @ x), rows)
    return problem, lambda rng: {"price": rng.uniform(0.5, 1.5, n), "stock": rng.uniform(8, 14, goods)}


def transport() -> Family:
    """A linear program: how to move one distribution of goods into another, at the least cost."""
    k = 12
    places = np.random.default_rng(6).random((k, 2))
    cost = np.linalg.norm(places[:, None] - places[None], axis=2)
    a, b = (cp.Parameter(k, name=name, nonneg=True) for name in "ab")
    T = cp.Variable((k, k), name="T", nonneg=True)
    rows: list[Any] = [cp.sum(T, axis=1) == a, cp.sum(T, axis=0) == b]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, T))), rows)
    return problem, lambda rng: {"a": rng.dirichlet(np.ones(k)), "b": rng.dirichlet(np.ones(k))}


def level() -> Family:
    """Moving-horizon estimation of a level that is never negative, bounded noise, measurements with outliers."""
    T = 15
    A = np.array([[1.0, 0.1], [-0.2, 0.95]])
    y, x = cp.Parameter(T, name="y"), cp.Variable((T + 1, 2), name="x")
    w, v = cp.Variable((T, 2), name="w"), cp.Variable(T, name="v")
    rows: list[Any] = [x[t + 1] == A @ x[t] + w[t] for t in range(T)] + [y[t] == x[t + 1, 0] + v[t] for t in range(T)]
    rows += [cp.abs(w) <= 0.15, x[:, 0] >= 0]

    def draw(rng):
        state, seen = np.array([1 + rng.random(), 0.2 * rng.normal()]), []
        for _ in range(T):
            state = A @ state + 0.05 * rng.standard_normal(2)
            state[0] = max(state[0], 0.0)
            seen.append(state[0] + 0.1 * rng.standard_normal() + (rng.random() < 0.1) * 2 * rng.normal())
        return {"y": np.array(seen)}

    return cp.Problem(cp.Minimize(100 * cp.sum_squares(w) + 0.09 * cp.sum(cp.huber(v / 0.3))), rows), draw


def storage() -> Family:
    """A day of a power storage beside a load, in MW and MWh, at new prices."""
    T, hours = 24, np.arange(24)
    price, load, filled = cp.Parameter(T, name="price"), cp.Parameter(T, name="load"), cp.Parameter(name="filled")
    into, out = (cp.Variable(T, name=name, nonneg=True) for name in ("into", "out"))
    energy, grid = cp.Variable(T + 1, name="energy"), cp.Variable(T, name="grid")
    rows: list[Any] = [
        energy[0] == filled,
        energy[1:] == energy[:-1] + 0.95 * into - out / 0.95,
        grid == load + into - out,
    ]
    rows += [energy >= 0, energy <= 400, into <= 100, out <= 100, grid >= -50, grid <= 500]

    def draw(rng):
        prices = 40 + 15 * np.sin((hours - 8) * np.pi / 6) + 8 * rng.standard_normal(T) + 10 * rng.normal()
        loads = 200 + 60 * np.sin((hours - 9) * np.pi / 12) + 15 * rng.standard_normal(T)
        return {"price": prices, "load": loads, "filled": rng.uniform(0, 400)}

    objective = price @ grid + 0.001 * cp.sum_squares(grid) + 0.1 * cp.sum(into + out)
    return cp.Problem(cp.Minimize(objective), rows), draw


def heating() -> Family:
    """Two rooms, kW and °C, comfort that may be violated at a price, and a heater with a limited slope."""
    T = 20
    A, B, outside = np.array([[0.9, 0.05], [0.05, 0.92]]), np.array([0.04, 0.03]), np.array([0.05, 0.03])
    start, air = cp.Parameter(2, name="start"), cp.Parameter(T, name="air")
    price = cp.Parameter(T, name="price", nonneg=True)
    x, heat = cp.Variable((T + 1, 2), name="x"), cp.Variable(T, name="heat", nonneg=True)
    discomfort = cp.Variable((T, 2), name="discomfort", nonneg=True)
    rows: list[Any] = [x[0] == start] + [x[t + 1] == A @ x[t] + heat[t] * B + air[t] * outside for t in range(T)]
    rows += [heat <= 60, x[1:] >= 20 - discomfort, x[1:] <= 24 + discomfort, cp.abs(cp.diff(heat)) <= 15]

    def draw(rng):
        day = 4 * np.sin(np.arange(T) * np.pi / 12 + rng.uniform(0, 2 * np.pi))
        return {"start": rng.uniform(17, 24, 2), "air": rng.uniform(-5, 15) + day, "price": rng.uniform(0.1, 0.5, T)}

    objective = price @ heat + 0.001 * cp.sum_squares(heat)
    objective += 1000 * cp.sum(discomfort) + 50 * cp.sum_squares(discomfort)
    return cp.Problem(cp.Minimize(objective), rows), draw


def markowitz() -> Family:
    """Sixty stocks with a factor model, costs of trading and a bound on leverage."""
    rng, n, k = np.random.default_rng(11), 60, 6
    F, own = 0.02 * rng.standard_normal((n, k)), 0.01 * np.sqrt(rng.uniform(0.5, 2, n))
    mu, held, w = cp.Parameter(n, name="mu"), cp.Parameter(n, name="held"), cp.Variable(n, name="w")
    risk = cp.sum_squares(F.T @ w) + cp.sum_squares(cp.multiply(own, w))
    rows: list[Any] = [cp.sum(w) == 1, cp.norm1(w) <= 1.6, w >= -0.1, w <= 0.2]
    problem = cp.Problem(cp.Maximize(mu @ w - 10 * risk - 0.002 * cp.norm1(w - held)), rows)
    return problem, lambda rng: {"mu": 0.002 * rng.standard_t(4, n), "held": rng.dirichlet(np.ones(n))}


def robust_portfolio() -> Family:
    """Twenty stocks, uncertainty as a norm: a second-order cone program."""
    n = 20
    F = 0.1 * np.random.default_rng(9).standard_normal((n, 5))
    mu, held, w = cp.Parameter(n, name="mu"), cp.Parameter(n, name="held"), cp.Variable(n, name="w", nonneg=True)
    objective = mu @ w - 0.5 * cp.norm(F.T @ w) - 0.02 * cp.norm1(w - held)
    rows: list[Any] = [cp.sum(w) == 1, w <= 0.3]
    problem = cp.Problem(cp.Maximize(objective), rows)
    return problem, lambda rng: {"mu": 0.05 + 0.1 * rng.standard_normal(n), "held": rng.dirichlet(np.ones(n))}


def entropy() -> Family:
    """The distribution of largest entropy with given moments: exponential cones."""
    n = 15
    A = np.random.default_rng(10).standard_normal((4, n))
    moments, x = cp.Parameter(4, name="moments"), cp.Variable(n, name="x")
    rows: list[Any] = [A @ x == moments, cp.sum(x) == 1]
    problem = cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), rows)
    return problem, lambda rng: {"moments": A @ rng.dirichlet(2 * np.ones(n))}


FAMILIES = {
    f.__name__: f
    for f in (
        steps_denoised, trend, weighted_svm, huber, products, transport, level, storage, heating, markowitz,
        robust_portfolio, entropy,
    )
}  # fmt: skip


def in_c(solver: ls.Solver, parameters: Any) -> dict[str, float | None]:
    """The median and the mean time of one instance in C, one core; None where the solver cannot be C."""
    names = {EPS: ("c", "c_mean"), LOOSE: ("c_loose", "c_loose_mean")}
    found: dict[str, float | None] = dict.fromkeys([name for pair in names.values() for name in pair])
    try:
        compiled = solver.compile()
    except ValueError as error:
        print(f"no C: {error}")
        return found
    for eps, (median, mean) in names.items():
        times = []
        for k in range(len(parameters)):
            begin = time.perf_counter()
            compiled.solve(parameters[k], eps_abs=eps, eps_rel=eps, max_iter=4000)
            times.append(time.perf_counter() - begin)
        found |= {median: float(np.median(times[5:])), mean: float(np.mean(times[5:]))}
    return found


def draw_past(draw: Callable[[np.random.Generator], dict[str, Any]], count: int, seed: int) -> dict[str, np.ndarray]:
    """Return so many parameters, by name."""
    rng = np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(count)]
    return {key: np.stack([np.asarray(values[key]) for values in drawn]) for key in drawn[0]}


def measure_family(problem: cp.Problem, past: dict[str, np.ndarray], train: int, test: int) -> dict[str, Any]:
    """Learn one family from the first of its past parameters and test it on those after them."""
    solver, report = ls.learn(problem, past, sizes={"train": train, "test": test}, cache=False, progress=False)
    assert report.costs is not None
    rows, loose = ([row.to_json() for row in report.costs.rows if row.eps == eps] for eps in (EPS, LOOSE))
    found = solver.solve_batch(report.data.test.parameters, eps_abs=EPS, eps_rel=EPS)
    return {
        "size": [solver.family.n, solver.family.m],
        "algorithm": type(solver.algorithm).__name__,
        "kept": report.training.kept,
        "rows": rows,
        "loose": loose,
        "exact": int(np.sum(found.exact)),
        **in_c(solver, np.asarray(report.data.test.parameters)),
        "seconds": report.seconds,
        "phases": report.timing,
        "verdict": report.verdict,
    }


def tabulate(known: dict[str, Any], eps: float) -> Table:
    """A row for every method of every family."""
    columns = ("family", "size", "method", "median", "95%", "worst", "unsolved", "exact", "µs", "learned in")
    name_of_rows, name_of_c = {EPS: ("rows", "c"), LOOSE: ("loose", "c_loose")}[eps]
    rows: list[tuple[str, ...]] = []
    for name, found in known.items():
        # What was measured before there were two tolerances has one.
        for place, row in enumerate(found.get(name_of_rows, ())):
            first, package = place == 0, row["method"].endswith("package")
            seconds = found[name_of_c] if first else row["seconds"] if package else None
            cells = [name, "×".join(map(str, found["size"]))] if first else ["", ""]
            cells += [row["method"], f"{row['median']:,.0f}", f"{row['95%']:,.0f}", f"{row['worst']:,}"]
            cells += [str(row["unsolved"]), str(found["exact"]) if first and eps == EPS else ""]
            cells += ["" if seconds is None else f"{1e6 * seconds:,.0f}", f"{found['seconds']:.0f} s" if first else ""]
            rows.append(tuple(cells))
    note = "µs: one instance on one core, longstep in C (median) and the package (mean), both called from Python."
    return Table(f"Steps until solve ends at {eps:.0e}", tuple(map(Column, columns)), tuple(rows), note)


def make_parser(description: str | None, families: Collection[str]) -> argparse.ArgumentParser:
    """Return the options that benchmarks of families through the front door have in common."""

    def read_name(name: str) -> str:
        if name not in families:
            raise argparse.ArgumentTypeError(f"there is no family {name}; there are {', '.join(families)}")
        return name

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=read_name, help=", ".join(families))
    parser.add_argument("--train", type=int, default=60)
    parser.add_argument("--test", type=int, default=200)
    return parser


def run(names: Iterable[str], options: argparse.Namespace, end: str, make: Callable[[str], Learnable]) -> None:
    """Measure what is not in the file yet, then print all of it; `end` tells runs of a family apart."""
    warnings.filterwarnings("ignore", category=PendingDeprecationWarning)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    asked = {}
    for name in names:
        key = f"{name}/{options.train}/{options.test}{end}"
        if key not in known:
            known[key] = measure_family(*make(name), options.train, options.test)
            write_bytes(options.out, json.dumps(known, indent=1).encode())
        asked[name] = known[key]
        print(f"{name}: {known[key]['verdict']}", flush=True)
    for eps in (LOOSE, EPS):
        print(tabulate(asked, eps).text())
    print(tabulate(asked, EPS).markdown())


def main() -> None:
    """Read the options, draw and measure."""
    parser = make_parser(__doc__, FAMILIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()

    def make(name: str) -> Learnable:
        problem, draw = FAMILIES[name]()
        return problem, draw_past(draw, options.train + options.test, options.seed)

    run(options.names or FAMILIES, options, f"/{options.seed}", make)


if __name__ == "__main__":
    main()
