"""Families of real data, each through `learn` with its defaults, as a user would: what he gets in the future.

    python benchmarks/real.py [NAME ...] [--train 60] [--test 200] [--data out/packages] [--out FILE.json]

Ten problems whose parameters were measured: prices of twenty stocks from 1990 to 2022, the loads and the sun and wind
of German grids through a year, IEEE's grids, the temperatures of Seattle. They come with packages (skfolio, simbench,
pypower, vega-datasets), which `make real` fetches without their dependencies; nothing of them is imported but IEEE's
grids. Instances are in the order of time: the first are learned from, those after them are the test, whatever the
season. What is counted is `benchmarks/front_door.py`'s. JSON: out/benchmarks/real.json; a family that is there is not
measured again.
"""

import csv
import functools
import gzip
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from front_door import Learnable, make_parser, run


class Data:
    """The measured series, from the packages in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    @functools.cached_property
    def prices(self) -> np.ndarray:
        """Of twenty stocks, by trading day."""
        with gzip.open(self.folder / "skfolio/datasets/data/sp500_dataset.csv.gz", "rt") as file:
            return np.array([[float(cell) for cell in row[1:]] for row in list(csv.reader(file))[1:]])

    @functools.cached_property
    def temperature(self) -> np.ndarray:
        """Of Seattle, every hour of a year, in °C."""
        with open(self.folder / "vega_datasets/_data/seattle-temps.csv") as file:
            return np.array([(float(row["temp"]) - 32) / 1.8 for row in csv.DictReader(file)])

    def _profile(self, name: str) -> dict[str, np.ndarray]:
        """Every column of a year of quarters of an hour, in hours, as a share of its largest."""
        with open(self.folder / "simbench/networks/1-complete_data-mixed-all-0-sw" / name) as file:
            head, *rows = csv.reader(file, delimiter=";")
        values = np.array([[float(cell) for cell in row[1:]] for row in rows])
        hours = values[: len(values) // 4 * 4].reshape(-1, 4, values.shape[1]).mean(1)
        return dict(zip(head[1:], hours.T, strict=True))

    @functools.cached_property
    def loads(self) -> dict[str, np.ndarray]:
        """Active power of thirty consumers of all kinds, by hour."""
        found = {name: value for name, value in self._profile("LoadProfile.csv").items() if name.endswith("_pload")}
        return {name: found[name] for name in list(found)[:30] if found[name].max() > 0}

    @functools.cached_property
    def renewables(self) -> dict[str, np.ndarray]:
        """Sun and wind, by hour."""
        return self._profile("RESProfile.csv")

    def grid(self, name: str) -> dict[str, np.ndarray]:
        """One of IEEE's."""
        if str(self.folder) not in sys.path:
            sys.path.append(str(self.folder))
        return getattr(importlib.import_module(f"pypower.{name}"), name)()


def _days(series: np.ndarray) -> np.ndarray:
    """Return the whole days of an hourly series, a row each."""
    return series[: len(series) // 24 * 24].reshape(-1, 24)


def _expected(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return returns expected every fifth day, weights that drifted since, and the covariance of the first years."""
    returns = np.diff(np.log(data.prices), axis=0)
    covariance = np.cov(returns[:1000].T) * 252
    weights = 0.5 ** (np.arange(250)[::-1] / 60)
    ends = np.arange(1000, len(returns), 5)
    mean = np.stack([weights @ returns[end - 250 : end] / weights.sum() for end in ends]) * 252
    drifted = np.stack([np.exp(returns[end - 20 : end].sum(0)) for end in ends])
    return mean, drifted / drifted.sum(1, keepdims=True), covariance


def stocks(data: Data) -> Learnable:
    """Twenty stocks every week: return, risk, costs of trading."""
    mean, held, covariance = _expected(data)
    w, mu, old = cp.Variable(20, name="w"), cp.Parameter(20, name="mu"), cp.Parameter(20, name="old")
    value = mu @ w - 2.5 * cp.quad_form(w, cp.psd_wrap(covariance)) - 0.02 * cp.norm1(w - old)
    rows: list[Any] = [cp.sum(w) == 1, w >= 0, w <= 0.15]
    return cp.Problem(cp.Maximize(value), rows), {"mu": mean, "old": held}


def stocks_risk(data: Data) -> Learnable:
    """The same stocks, the risk as a norm that is bounded."""
    mean, _, covariance = _expected(data)
    root = np.linalg.cholesky(covariance)
    w, mu = cp.Variable(20, name="w"), cp.Parameter(20, name="mu")
    rows: list[Any] = [cp.sum(w) == 1, w >= 0, cp.norm(root.T @ w) <= 0.15]
    return cp.Problem(cp.Maximize(mu @ w), rows), {"mu": mean}


def _loads_by_bus(data: Data, nominal: np.ndarray, hours: np.ndarray) -> np.ndarray:
    """Return the load of every bus at these hours, each by the profile of one consumer."""
    profiles = np.stack(list(data.loads.values()))
    shares = profiles / profiles.mean(1, keepdims=True)
    return np.stack([nominal[k] * (0.5 + 0.3 * shares[k % len(shares)][hours]) for k in range(len(nominal))], axis=1)


def _flow(grid: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the susceptances of a grid by line, its incidence and the bus of every generator."""
    bus, branch, gen = grid["bus"], grid["branch"], grid["gen"]
    place = {int(number): k for k, number in enumerate(bus[:, 0])}
    incidence = np.zeros((len(branch), len(bus)))
    for k, line in enumerate(branch):
        incidence[k, place[int(line[0])]] = 1
        incidence[k, place[int(line[1])]] = -1
    return 100 / branch[:, 3], incidence, np.array([place[int(number)] for number in gen[:, 0]])


def power_flow(data: Data) -> Learnable:
    """Optimal DC power flow on IEEE's 118 buses, every 31 hours."""
    grid = data.grid("case118")
    susceptance, incidence, at = _flow(grid)
    gen, cost = grid["gen"], grid["gencost"]
    count = len(gen)
    where = np.zeros((len(grid["bus"]), count))
    where[at, np.arange(count)] = 1
    p, angle = cp.Variable(count, name="p"), cp.Variable(len(grid["bus"]), name="angle")
    load = cp.Parameter(len(grid["bus"]), name="load")
    flow = cp.multiply(susceptance, incidence @ angle)
    hours = np.arange(0, 8760, 31)
    loads = _loads_by_bus(data, grid["bus"][:, 2], hours)
    limit = 1.2 * np.max(np.abs(_nominal_flow(susceptance, incidence, where, gen, loads)), axis=0) + 20
    rows: list[Any] = [
        where @ p - incidence.T @ flow == load,
        angle[0] == 0,
        p >= 0,
        p <= gen[:, 8],
        cp.abs(flow) <= limit,
    ]
    value = cp.sum(cp.multiply(cost[:, 4], cp.square(p))) + cost[:, 5] @ p
    return cp.Problem(cp.Minimize(value), rows), {"load": loads}


def _nominal_flow(
    susceptance: np.ndarray, incidence: np.ndarray, where: np.ndarray, gen: np.ndarray, loads: np.ndarray
) -> np.ndarray:
    """Return the flows where every generator gives its share of the load."""
    share = gen[:, 8] / gen[:, 8].sum()
    injected = loads.sum(1, keepdims=True) * (where @ share) - loads
    laplacian = incidence.T @ (susceptance[:, None] * incidence)
    angle = injected @ np.linalg.pinv(laplacian).T
    return angle @ (susceptance[:, None] * incidence).T


def dispatch(data: Data) -> Learnable:
    """A day of ten generators with ramps, wind and sun off the load."""
    gen = data.grid("case39")["gen"]
    most = gen[:, 8]
    cost = np.linspace(0.004, 0.02, 10), np.linspace(8, 30, 10)
    load = sum(_days(series) / series.mean() for series in data.loads.values()) / len(data.loads)
    wind, sun = _days(data.renewables["WP4"]), _days(data.renewables["PV3"])
    net = np.clip(0.6 * most.sum() * load - 0.2 * most.sum() * wind - 0.15 * most.sum() * sun, 0.1 * most.sum(), None)
    net = np.clip(net, None, 0.95 * most.sum())
    p, demand, before = cp.Variable((10, 24), name="p"), cp.Parameter(24, name="net"), cp.Parameter(10, name="before")
    ramp = (0.25 * most)[:, None]
    short, spilled = cp.Variable(24, name="short"), cp.Variable(24, name="spilled")
    rows: list[Any] = [cp.sum(p, axis=0) + short - spilled == demand, short >= 0, spilled >= 0]
    rows += [p >= 0, p <= most[:, None], cp.abs(p[:, 1:] - p[:, :-1]) <= ramp]
    rows.append(cp.abs(p[:, 0] - before) <= ramp[:, 0])
    value = cp.sum(cp.multiply(cost[0][:, None], cp.square(p))) + cp.sum(cost[1] @ p)
    value += cp.sum(300 * short + 10 * spilled)
    held = np.outer(net[:, 0] / most.sum(), most)
    return cp.Problem(cp.Minimize(value), rows), {"net": net, "before": held}


def home(data: Data) -> Learnable:
    """A day of a house with sun and a battery, two tariffs: a linear program."""
    load = 0.5 * _days(data.loads["H0-A_pload"]) / data.loads["H0-A_pload"].mean()
    net = load - 5.0 * _days(data.renewables["PV1"])
    price = np.where((np.arange(24) >= 7) & (np.arange(24) < 22), 0.34, 0.24)
    use, soc = cp.Parameter(24, name="net"), cp.Parameter(name="soc")
    buy, sell, charge, leave, e = (
        cp.Variable(size, name=name)
        for name, size in zip(["buy", "sell", "charge", "leave", "e"], [24] * 4 + [25], strict=True)
    )
    rows: list[Any] = [buy - sell == use + charge - leave, e[0] == soc, e[1:] == e[:-1] + 0.95 * charge - leave / 0.95]
    rows += [buy >= 0, sell >= 0, charge >= 0, leave >= 0, charge <= 3, leave <= 3, e >= 0.5, e <= 7, e[24] >= soc]
    value = price @ buy - 0.08 * cp.sum(sell) + 0.01 * cp.sum(charge + leave)
    level = 1 + 5 * (0.5 + 0.5 * np.sin(np.arange(len(net)) * 1.7))
    return cp.Problem(cp.Minimize(value), rows), {"net": net, "soc": level}


def charging(data: Data) -> Learnable:
    """Twelve cars at one transformer in a day, its load made level."""
    base = 60 * _days(data.loads["G0-A_pload"]) / data.loads["G0-A_pload"].max()
    rng = np.random.default_rng(0)
    plugged = np.ones((12, 24))
    for car in range(12):
        plugged[car, : rng.integers(0, 8)] = 0
        plugged[car, 24 - rng.integers(0, 8) :] = 0
    x, load, need = cp.Variable((12, 24), name="x"), cp.Parameter(24, name="load"), cp.Parameter(12, name="need")
    rows: list[Any] = [x >= 0, x <= 11 * plugged, cp.sum(x, axis=1) == need, cp.sum(x, axis=0) + load <= 120]
    value = cp.sum_squares(cp.sum(x, axis=0) + load) + 0.1 * cp.sum_squares(x)
    households = np.stack([_days(data.loads[name]).sum(1) for name in ("H0-A_pload", "H0-B_pload", "H0-C_pload")], 1)
    share = households / households.max(0)
    return cp.Problem(cp.Minimize(value), rows), {"load": base, "need": 5 + 25 * np.tile(share, 4)}


def warmth(data: Data) -> Learnable:
    """A heat pump in the weather of the next day, comfort as soft bounds."""
    outside = np.lib.stride_tricks.sliding_window_view(data.temperature, 24)[::29]
    T, u = cp.Variable((2, 25), name="T"), cp.Variable(24, name="u")
    low, high = cp.Variable(24, name="low"), cp.Variable(24, name="high")
    weather, now = cp.Parameter(24, name="weather"), cp.Parameter(2, name="now")
    A = np.array([[0.85, 0.10], [0.03, 0.965]])
    rows: list[Any] = [T[:, 0] == now, u >= 0, u <= 6, low >= 0, high >= 0]
    rows += [T[0, 1:] == A[0] @ T[:, :-1] + 0.05 * weather + 0.45 * u]
    rows += [T[1, 1:] == A[1] @ T[:, :-1] + 0.005 * weather]
    rows += [T[0, 1:] >= 20 - low, T[0, 1:] <= 24 + high]
    price = 1 + 0.5 * np.sin(np.arange(24) / 24 * 2 * np.pi)
    value = price @ u + 0.1 * cp.sum_squares(u) + 20 * cp.sum_squares(low) + 20 * cp.sum_squares(high)
    rooms = np.stack([19 + 3 * np.sin(np.arange(len(outside))), 20 + np.cos(np.arange(len(outside)))], 1)
    return cp.Problem(cp.Minimize(value), rows), {"weather": outside, "now": rooms}


def season(data: Data) -> Learnable:
    """A week of temperatures into a trend with few bends and a daily pattern."""
    weeks = np.lib.stride_tricks.sliding_window_view(data.temperature, 168)[::30]
    trend, daily, y = cp.Variable(168, name="trend"), cp.Variable(24, name="daily"), cp.Parameter(168, name="y")
    pattern = np.tile(np.eye(24), (7, 1))
    value = 0.5 * cp.sum_squares(y - trend - pattern @ daily) + 10 * cp.norm1(cp.diff(trend, 2))
    rows: list[Any] = [cp.sum(daily) == 0]
    return cp.Problem(cp.Minimize(value), rows), {"y": weeks}


def quantile(data: Data) -> Learnable:
    """The upper decile of a week of loads by the hour of the day: a linear program."""
    series = data.loads["G3-A_pload"] / data.loads["G3-A_pload"].mean()
    weeks = np.lib.stride_tricks.sliding_window_view(series, 168)[::31]
    hour = np.arange(168)
    waves = [f(2 * np.pi * k * hour / 24) for k in (1, 2, 3) for f in (np.sin, np.cos)]
    features = np.stack([np.ones(168), *waves, (hour >= 120).astype(float)], axis=1)
    beta, y = cp.Variable(features.shape[1], name="beta"), cp.Parameter(168, name="y")
    off = y - features @ beta
    return cp.Problem(cp.Minimize(cp.sum(cp.maximum(0.9 * off, -0.1 * off)))), {"y": weeks}


def estimation(data: Data) -> Learnable:
    """The angles of IEEE's 30 buses from flows of which some are wrong: Huber's loss."""
    grid = data.grid("case30")
    susceptance, incidence, at = _flow(grid)
    where = np.zeros((len(grid["bus"]), len(at)))
    where[at, np.arange(len(at))] = 1
    loads = _loads_by_bus(data, grid["bus"][:, 2], np.arange(0, 8760, 30))
    flow = _nominal_flow(susceptance, incidence, where, grid["gen"], loads)
    laplacian = incidence.T @ (susceptance[:, None] * incidence)
    angle = flow @ np.linalg.pinv(susceptance[:, None] * incidence).T
    rng = np.random.default_rng(0)
    exact = np.concatenate([flow, angle @ laplacian], axis=1)
    noisy = (
        exact
        + 0.3 * rng.standard_normal(exact.shape)
        + 10 * rng.standard_normal(exact.shape) * (rng.random(exact.shape) < 0.05)
    )
    rows = np.concatenate([susceptance[:, None] * incidence, laplacian])
    x, y = cp.Variable(len(grid["bus"]), name="angle"), cp.Parameter(len(rows), name="y")
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(rows @ x - y, 1))), [x[0] == 0]), {"y": noisy}


FAMILIES: dict[str, Callable[[Data], Learnable]] = {
    f.__name__: f
    for f in (stocks, stocks_risk, power_flow, dispatch, home, charging, warmth, season, quantile, estimation)
}


def main() -> None:
    """Read the options and the data, and measure."""
    parser = make_parser(__doc__, FAMILIES)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/real.json"))
    parser.add_argument("--data", type=Path, default=Path("out/packages"))
    options = parser.parse_args()
    if not (options.data / "skfolio").is_dir():
        parser.error(f"{options.data} has no skfolio: `make real` fetches the packages with the data")
    data = Data(options.data)

    def make(name: str) -> Learnable:
        problem, past = FAMILIES[name](data)
        return problem, {key: values[: options.train + options.test] for key, values in past.items()}

    run(options.names or FAMILIES, options, "", make)


if __name__ == "__main__":
    main()
