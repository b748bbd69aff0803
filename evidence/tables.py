"""Tables of the texts, made of measured rows, and put between their markers.

A marker is the line <!-- evidence: NAME -->, and <!-- end --> ends what is generated. Each function makes the cells of
one result, the head first; cells of several seeds are merged, from the least to the most. Where not all jobs of a table
have rows yet, the table is as it stood in the text before (rows/said.json).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .claims import NUMBER, Verdict

Cells = list[list[str]]
MARKED = re.compile(r"^(?P<indent> *)<!-- evidence: (?P<name>\w+) -->\n(?P<body>.*?)^ *<!-- end -->$", re.M | re.S)
FAMILIES = {
    "products": "linear program, prices and stocks",
    "transport": "optimal transport",
    "level": "moving-horizon estimation",
    "heating": "heating of two rooms, soft comfort",
    "robust_portfolio": "portfolio, risk as a norm (cone program)",
    "markowitz": "portfolio, costs of trading",
    "steps_denoised": "total variation",
    "trend": "trend filter",
    "weighted_svm": "support vector machine",
    "huber": "robust regression",
    "storage": "a day of a power storage",
    "entropy": "largest entropy (exponential cones)",
    "stocks": "twenty stocks, costs of trading",
    "stocks_risk": "twenty stocks, risk as a norm (cone program)",
    "power_flow": "optimal power flow, IEEE's 118 buses",
    "dispatch": "a day of ten generators, ramps",
    "home": "a house with sun and a battery (linear program)",
    "charging": "twelve cars at one transformer",
    "warmth": "a heat pump in the weather",
    "season": "a week of temperatures, trend and daily pattern",
    "quantile": "upper decile of a week of loads (linear program)",
    "estimation": "state of IEEE's 30 buses, some flows wrong",
    "portfolio": "portfolio, n/100 factors",
    "mesh": "DC power flow on a mesh",
    "mpc": "MPC, n/15 steps",
}
PROBLEMS = {
    "quadcopter": "quadcopter MPC, 172 unknowns",
    "portfolio": "portfolio, 140 unknowns",
    "kalman": "robust Kalman filter, 550 unknowns",
    "lasso": "lasso as a QP, 320 unknowns",
}
TOLERANCES = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-6", "1e-8")
# The published experiments: what the first column says, the methods of the run as they are called in the overview, and
# the counts and the time of training of the published research code, measured on its own draws.
EXPERIMENTS = {
    "reproduce_ridge": (
        "[ridge](results/ridge.md) 500×1000",
        {
            "learned with momentum, exact": "learned with momentum, exact",
            "learned, B = 10, exact": "learned, B = 10, exact",
            "conjugate gradients": "conjugate gradients",
        },
        ("research code, B = 10", "12 20 20 22 31 40", "55 s"),
    ),
    "reproduce_logistic": (
        "[logistic](results/logistic.md)",
        {
            "learned, quasi-Newton": "learned, quasi-Newton, N = 10",
            "best constant, quasi-Newton": "best constant, quasi-Newton",
            "SciPy's L-BFGS-B, evaluations": "L-BFGS-B of SciPy, by evaluations",
            "learned, gradient descent, B = 10": "learned, B = 10, N = 10",
            "learned, gradient descent, B = 1, exact": "learned, B = 1, exact",
            "learned with momentum": "learned with momentum, N = 10",
            "Nesterov": "Nesterov, convex",
        },
        ("research code, no regulariser", "2 16 31 90 100 –", "238 s"),
    ),
    "reproduce_lasso": (
        "[lasso](results/lasso.md) 1000×2000",
        {
            "learned": "learned, N = 10",
            "learned with momentum": "learned with momentum, N = 10",
            "best constant": "best constant",
            "FISTA": "FISTA",
        },
        None,
    ),
    "reproduce_lasso_reference": (
        "lasso 64×128",
        {"learned (`--size reference`)": "learned, N = 10", "learned with momentum": "learned with momentum, N = 10"},
        ("research code", "9 14 18 19 27 31", "98 s"),
    ),
    "reproduce_deblurring": (
        "[deblurring](results/deblurring.md)",
        {
            "learned, B = 10, then 20": "learned, N = 10",
            "best constant": "best constant",
            "`osqp` package, adapted": "osqp package, adapted",
        },
        ("research code", "9 21 33 48 –", "334 s"),
    ),
    "reproduce_kalman": (
        "[Kalman](results/kalman.md)",
        {
            "learned": "learned, N = 10",
            "best constant": "best constant",
            "`scs` package, adapted, Anderson": "scs package, adapted, Anderson",
        },
        ("research code", "30 56 71 98 157 220", "1675 s"),
    ),
    "reproduce_maxcut": (
        "[maxcut](results/maxcut.md) 70 nodes",
        {
            "learned": "learned, N = 10",
            "best constant": "best constant",
            "`scs` package, adapted": "scs package, adapted",
        },
        ("research code", "82 – – –", "775 s"),
    ),
}
PACKAGES = ("DAQP", "PIQP", "OSQP's C code", "OSQP", "Clarabel", "SCS")


def merge_cells(texts: Sequence[str]) -> str:
    """Return one text for those of several seeds, each number from the least to the most.

    >>> merge_cells(["6 **10** of 20", "7 10 of 20", "5 10 of 20"])
    '5–7 10 of 20'
    """
    if len(set(texts)) == 1:
        return texts[0]
    plain = [text.replace("**", "") for text in texts]
    if len({NUMBER.sub("#", text) for text in plain}) > 1:
        return " / ".join(dict.fromkeys(plain))
    columns = list(zip(*map(NUMBER.findall, plain), strict=True))
    spans = []
    for numbers in columns:
        least, *_, most = sorted(numbers, key=lambda number: float(number.replace(",", "")))
        spans.append(least if least == most else f"{least}–{most}")
    return NUMBER.sub(lambda _: spans.pop(0), plain[0])


def merge_seeds(tables: Sequence[Cells]) -> Cells:
    """Return one table for those of several seeds, whose rows are the same in number and order."""
    return [[merge_cells(cells) for cells in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)]


def write_markdown(cells: Cells) -> list[str]:
    """Return the lines of a table; a first cell that repeats the one above is left empty."""
    body, last = [], None
    for row in cells[1:]:
        body.append(["" if row[0] == last else row[0], *row[1:]])
        last = row[0]
    return [f"| {' | '.join(row)} |" for row in (cells[0], ["---"] * len(cells[0]), *body)]


class _Until(NamedTuple):
    """Where the rows and the times in C of one tolerance are in a family's result."""

    rows: str
    c: str
    c_mean: str


_EXACT = _Until("rows", "c", "c_mean")
_LOOSE = _Until("loose", "c_loose", "c_loose_mean")


def _find_method(rows: Sequence[Mapping[str, Any]], end: str) -> Mapping[str, Any]:
    return next(row for row in rows if row["method"].endswith(end))


def _write_steps(row: Mapping[str, Any]) -> str:
    steps = f"{row['median']:,.0f} {row['95%']:,.0f} {row['worst']:,.0f}"
    return steps + (f", {row['unsolved']} unsolved" if row["unsolved"] else "")


def _list_families(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the families of a result with their names, in the order of the table."""
    found = {key.split("/")[0]: entry for key, entry in result.items()}
    return [(name, found[key]) for key, name in FAMILIES.items() if key in found]


def make_front_door(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the families at 1e-6: steps of all methods, exact points, times in C and of the package, of learning."""
    head, *body = _make_families(result, _EXACT)
    entries = [entry for _, entry in _list_families(result)]
    table = [[*head[:2], "exact of 200", *head[2:], "learned in"]]
    for row, entry in zip(body, entries, strict=True):
        table.append([*row[:2], str(entry["exact"]), *row[2:], f"{entry['seconds']:.0f} s"])
    return table


def make_front_door_loose(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the families at 1e-3: steps of all methods, times in C and of the package."""
    return _make_families(result, _LOOSE)


def make_front_page(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the families at 1e-6 in few columns: steps and times of longstep and of the package, both means."""
    cells = [["family, unknowns × rows", "steps", "package", "µs", "µs, package", "times faster"]]
    for name, entry in _list_families(result):
        package = _find_method(entry["rows"], "package")
        own = entry["c_mean"]
        other = package["seconds"]
        row = [f"{name}, {'×'.join(map(str, entry['size']))}"]
        row += [_write_steps(entry["rows"][0]), _write_steps(package)]
        row += ["" if own is None else f"{1e6 * own:,.0f}", f"{1e6 * other:,.0f}"]
        cells.append([*row, "" if own is None else f"{other / own:.1f}"])
    return cells


def _make_families(result: Mapping[str, Any], until: _Until) -> Cells:
    head = ["family, unknowns × rows", "learned", "best constant", "defaults", "package", "µs in C", "µs, package"]
    cells = [head]
    for name, entry in _list_families(result):
        rows, median = entry[until.rows], entry[until.c]
        package = _find_method(rows, "package")
        row = [f"{name}, {'×'.join(map(str, entry['size']))}", _write_steps(rows[0])]
        row += [_write_steps(_find_method(rows, end)) for end in ("best constant", "defaults")]
        row += [_write_steps(package), "" if median is None else f"{1e6 * median:,.0f}"]
        cells.append([*row, f"{1e6 * package['seconds']:,.0f}"])
    return cells


def _find_fastest(result: Mapping[str, Any], problem: str, target: float, name: str) -> tuple[float, float] | None:
    """Return the median and the 99.9% quantile of a method's variant (warm or cold) with the least median."""
    rows = [row for row in result["rows"] if (row["problem"], row["target"]) == (problem, target)]
    times = [(r["median_us"], r["q999_us"]) for r in rows if r["method"] in (name, f"{name}, warm", f"{name}, cold")]
    return min(times, default=None)


def _write_times(result: Mapping[str, Any], problem: str, target: float, names: Sequence[str]) -> list[str]:
    """Return the times of methods, the least median in bold."""
    times = [_find_fastest(result, problem, target, name) for name in names]
    least = min(median for median, _ in filter(None, times))
    bold = ["**" if found and found[0] == least else "" for found in times]
    return [f"{b}{t[0]:.0f}{b}, {t[1]:.0f}" if t else "" for t, b in zip(times, bold, strict=True)]


def _list_cases(result: Mapping[str, Any]) -> list[tuple[str, float]]:
    return list(dict.fromkeys((row["problem"], row["target"]) for row in result["rows"]))


def _write_target(target: float) -> str:
    return f"{target:.0e}".replace("e-0", "e-")


def make_latency(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the times of the quadcopter for the README."""
    names = ("longstep C, exact", *PACKAGES, "longstep JAX, exact")
    cells = [["", *names[:-1], "longstep in JAX, exact"]]
    return cells + [[_write_target(t), *_write_times(result, problem, t, names)] for problem, t in _list_cases(result)]


def make_latency_exact(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the times of the quadcopter for the page on C."""
    names = ("longstep C, exact", "longstep C, until eps", *PACKAGES)
    cells = [["tolerance", *names]]
    return cells + [[_write_target(t), *_write_times(result, problem, t, names)] for problem, t in _list_cases(result)]


def make_latency_problems(result: Mapping[str, Any], _job: str) -> Cells:
    """Return the times of all problems: longstep's fastest way in C, and the packages."""
    cells = [["problem", "tolerance", "longstep C", *PACKAGES]]
    for problem, target in _list_cases(result):
        times = _write_times(result, problem, target, (_find_own(result, problem, target), *PACKAGES))
        cells.append([PROBLEMS[problem], _write_target(target), *times])
    return cells


def _find_own(result: Mapping[str, Any], problem: str, target: float) -> str:
    """Return the name of longstep's fastest way in C."""
    rows = [row for row in result["rows"] if (row["problem"], row["target"]) == (problem, target)]
    return min((r["median_us"], r["method"]) for r in rows if r["method"].startswith("longstep C"))[1]


def make_growth(result: Mapping[str, Any], _job: str) -> Cells:
    """Return size, cost of learning, steps and times of large families."""
    head = ["family", "unknowns, rows", "entries of L", "`learn`", "GiB", "kept", "steps", "ms", "defaults"]
    cells = [[*head, "OSQP", "ms"]]
    for row in sorted(result["rows"], key=lambda row: list(FAMILIES).index(row["family"])):
        kept = "learned" if "learned" in row["kept"] else "defaults"
        cell = [FAMILIES[row["family"]], f"{row['n']:,}, {row['m']:,}", f"{row['entries']:,}", f"{row['learn']:.0f} s"]
        steps = [" ".join(f"{k:,.0f}" for k in row[name]["steps"]) for name in ("learned", "defaults", "osqp")]
        cell += [f"{row['GiB']:.1f}", kept, steps[0], f"{row['learned']['ms'][0]:.0f}", *steps[1:]]
        cells.append([*cell, f"{row['osqp']['ms'][0]:.0f}"])
    return cells


def make_designs(result: Mapping[str, Any], _job: str) -> Cells:
    """Return designs by family and number of instances; seeds are in the result, and are merged."""
    head = ["family", "trained on", "design", "geometric mean, first", "mean, stays", "95%, first"]
    seeds: dict[tuple[str, str, str], list[list[str]]] = {}
    for key, entry in result.items():
        family, count, *rest = key.split("/")
        if not rest[1:]:
            steps = [entry["median"], entry["95%"], entry["worst"]]
            seeds.setdefault((family, "", "the `osqp` package"), []).append([*[""] * 5, _write_counts(steps)])
            continue
        counts = [entry[curve][kind] for curve in ("mean", "95%") for kind in ("first", "stays")]
        chosen = [_write_counts([count[k] for k in (0, 2, 4)]) for count in counts]
        place = (family, "" if rest[1] == "defaults" else count, rest[1].removeprefix("condensed, "))
        worst = _write_target(entry["worst"][0])
        seeds.setdefault(place, []).append([*chosen, worst, _write_counts(entry["solve"])])
    rows = [[*place, *merge_seeds([[cells] for cells in found])[0]] for place, found in seeds.items()]
    return [[*head, "95%, stays", "worst at 50", "solve at 1e-6: median, 95%, worst"], *rows]


def _write_counts(counts: Sequence[float | None]) -> str:
    return " ".join("–" if k is None else f"{k:.0f}" for k in counts)


def make_starts(result: Mapping[str, Any], job: str) -> Cells:
    """Return the printed table with the number of training instances, which the job's name ends with."""
    head, *body = make_printed(result, job)
    return [[head[0], "trained on", *head[1:]], *([row[0], job.rsplit("_", maxsplit=1)[-1], *row[1:]] for row in body)]


def make_stream(result: Mapping[str, Any], job: str) -> Cells:
    """Return one line: how it was run, rate, memory, and what it lost to the plain batch."""
    head = ["stream", "instances a second", "peak memory", "on top of the loaded solver"]
    found = result["stream"]
    way = f"{found['instances']:,} instances, {'in C' if result['compiled'] else 'in JAX'}"
    memory = [f"{found[key]:.2f} GiB" for key in ("peak GiB", "peak GiB beyond the loaded solver")]
    lost = [f"{max(found[key], 0):.0%}" for key in ("lost, by processor time", "lost")]
    cells = [way, f"{found['per second']:,.0f}", *memory, *lost]
    return [[*head, "lost to the plain batch, processor time", "by the clock"], cells]


def make_printed(result: Mapping[str, Any], _job: str) -> Cells:
    """Return a table as a benchmark has printed it."""
    rows = [[_write_value(row[name]) for name in result["columns"]] for row in result["rows"]]
    return [list(result["columns"]), *rows]


def make_training(result: Mapping[str, Any], job: str) -> Cells:
    """Return one table of benchmarks/training.py: its name ends the job's."""
    return make_printed(result[job.rsplit("_", maxsplit=1)[-1]], job)


def _write_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def make_experiment(result: Mapping[str, Any], job: str) -> Cells:
    """Return the principal rows of a published experiment, beside the research code's."""
    title, shown, published = EXPERIMENTS[job]
    found = {row["method"]: row for row in result["tables"][0]["rows"]}
    cells = [["experiment", "method", *TOLERANCES, "safeguarded", "training"]]
    for name, method in shown.items():
        row = found[method]
        counts = [_write_value(row[tolerance]) for tolerance in TOLERANCES]
        safeguarded = ""
        if name.startswith("learned"):
            of = f" of {row['instances']}" if row["safeguarded"] else ""
            safeguarded = f"{row['safeguarded']}{of}"
        seconds = row["made in"]
        cells.append([title, name, *counts, safeguarded, "" if seconds is None else _write_seconds(seconds)])
    if published is not None:
        name, counts, seconds = published
        texts = [f"*{count}*" for count in counts.split()]
        cells.append([title, f"*{name}*", *texts, *[""] * (len(TOLERANCES) - len(texts) + 1), f"*{seconds}*"])
    return cells


def make_networks(result: Mapping[str, Any], job: str) -> Cells:
    """Return the tables of all families one below the other."""
    tables = {name: make_printed(table, job) for name, table in result.items()}
    head = next(iter(tables.values()))[0]
    return [["family", *head], *([name, *row] for name, table in tables.items() for row in table[1:])]


def make_ablation(result: Mapping[str, Any], job: str) -> Cells:
    """Return what every rule is worth, with few and with many training instances."""
    tables = {name: make_printed(table, job) for name, table in result["tables"].items()}
    head = next(iter(tables.values()))[0]
    return [["trained on", *head], *([name, *row] for name, table in tables.items() for row in table[1:])]


def _write_value(value: Any) -> str:
    """Return a raw value of a table: counts as they are, a pair as (first, from where it stays), others to 3 digits."""
    if isinstance(value, list):
        first, stays = (_write_value(v) for v in value)
        return first if first == stays else f"{first} ({stays})"
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def make_wins(result: Mapping[str, Any], job: str) -> Cells:
    """Return who wins where: steps and times of one instance, longstep beside the package or the best of them."""
    head = ["family", "compared", "longstep", "other", "winner"]
    if job in ("front_door", "real"):
        return [head, *_compare_families(result)]
    if job == "growth":
        return [head, *_compare_large(result)]
    rows = []
    # The quadcopter has a job of its own.
    for problem, target in [case for case in _list_cases(result) if job == "latency" or case[0] != "quadcopter"]:
        own = _find_fastest(result, problem, target, _find_own(result, problem, target))
        others = {name: _find_fastest(result, problem, target, name) for name in PACKAGES}
        best, name = min((times, name) for name, times in others.items() if times)
        assert own is not None
        what = f"µs to {_write_target(target)}: median, 99.9%"
        winner = "; ".join(_name_winner(*times, name) for times in zip(own, best, strict=True))
        rows.append([PROBLEMS[problem], what, *(f"{t[0]:.0f}, {t[1]:.0f}" for t in (own, best)), winner])
    return [head, *rows]


def _name_winner(own: float | None, other: float, name: str) -> str:
    if own is None:
        return f"**{name}**, alone"
    return f"longstep, {other / own:.3g}×" if own <= other else f"**{name}**, {own / other:.3g}×"


def _compare_families(result: Mapping[str, Any]) -> Cells:
    rows = []
    for family, entry in _list_families(result):
        for target, until in (("1e-3", _LOOSE), ("1e-6", _EXACT)):
            learned, package = entry[until.rows][0], _find_method(entry[until.rows], "package")
            name = package["method"].removesuffix(" package")
            pairs = [(learned[key], package[key]) for key in ("median", "95%", "worst", "unsolved")]
            winners = ["longstep" if own <= other else f"**{name}**" for own, other in pairs]
            steps = winners[0] if len(set(winners)) == 1 else f"{', '.join(winners[:3])}"
            what = f"steps to {target}: median, 95%, worst"
            rows.append([family, what, _write_steps(learned), _write_steps(package), steps])
            # A mean, as the package's is.
            own = None if entry[until.c_mean] is None else 1e6 * entry[until.c_mean]
            micro = 1e6 * package["seconds"]
            times = ["not in C" if own is None else f"{own:,.0f}", f"{micro:,.0f}"]
            rows.append([family, f"µs to {target} in C, one instance", *times, _name_winner(own, micro, name)])
    return rows


def _compare_large(result: Mapping[str, Any]) -> Cells:
    rows = []
    for row in sorted(result["rows"], key=lambda row: list(FAMILIES).index(row["family"])):
        own, osqp = row["learned"]["ms"][0], row["osqp"]["ms"][0]
        family = f"{FAMILIES[row['family']]}, {row['n']:,} unknowns"
        rows.append([family, "ms to 1e-4, median", f"{own:.0f}", f"{osqp:.0f}", _name_winner(own, osqp, "osqp")])
    return rows


class Table(NamedTuple):
    """The jobs a table is made of, and the function that makes the cells of one of their results."""

    jobs: tuple[str, ...]
    make: Callable[[Mapping[str, Any], str], Cells] | None = None


# Tables without a function are as they stood: they have columns of other people's figures, or are plain text.
TABLES = {
    "front_door": Table(("front_door",), make_front_door),
    "real": Table(("real",), make_front_door),
    "real_front": Table(("real",), make_front_page),
    "front_door_loose": Table(("front_door",), make_front_door_loose),
    "real_loose": Table(("real",), make_front_door_loose),
    "latency": Table(("latency",), make_latency),
    "latency_exact": Table(("latency",), make_latency_exact),
    "latency_problems": Table(("latency_problems",), make_latency_problems),
    "growth": Table(("growth",), make_growth),
    "designs": Table(("designs",), make_designs),
    "starts": Table(("starts_100", "starts_15"), make_starts),
    "stream": Table(("stream_c", "stream_c_million", "stream_jax"), make_stream),
    "identification": Table(("identification",), make_printed),
    "sets": Table(("sets",), make_printed),
    "references": Table(("references",), make_printed),
    "layers": Table(("layers",), make_printed),
    "samples": Table(("training_samples",), make_training),
    "memory": Table(("training_memory",), make_training),
    "networks": Table(("networks",), make_networks),
    "wins": Table(("real", "front_door", "latency", "latency_problems", "growth"), make_wins),
    "results": Table(tuple(EXPERIMENTS), make_experiment),
    "ablation": Table(("ablation",), make_ablation),
    "fuzz": Table(("fuzz",)),
}


def read_rows(folder: Path) -> dict[str, Any]:
    """Return the kept rows by job, and under `said` the tables as they stood."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def render(name: str, rows: Mapping[str, Any], verdicts: Sequence[Verdict]) -> list[str]:
    """Return the lines of a table of the texts."""
    if name == "claims":
        return write_markdown(list_claims(verdicts))
    if name == "runs":
        return write_markdown(list_runs(rows))
    table = TABLES[name]
    there = [job for job in table.jobs if job in rows]
    if table.make is None or (len(there) < len(table.jobs) and name != "wins"):
        return list(rows["said"][name]["lines"])
    parts = [merge_seeds([table.make(result, job) for result in rows[job]["results"].values()]) for job in there]
    return write_markdown([parts[0][0], *(row for part in parts for row in part[1:])])


def list_claims(verdicts: Sequence[Verdict]) -> Cells:
    """Return every figure that is said, beside what the kept rows have."""
    cells = [["claim", "file", "said", "direction", "measured", "job", "state"]]
    for v in verdicts:
        said = v.quantity.said + (f" beside {v.quantity.beside}" if v.quantity.beside else "")
        tolerance = v.quantity.choose_tolerance(v.quick)
        about = v.quantity.direction + (f" ± {tolerance:.0%}" if tolerance else "")
        value = f"{v.shown} ({v.quantity.target:.3g})" if v.measured and v.quantity.over else v.shown
        cells.append([v.claim.id, v.claim.file, said, about, value if v.measured else "", v.quantity.job, v.state])
    return cells


def list_runs(rows: Mapping[str, Any]) -> Cells:
    """Return every job with rows: when, on what and by which version it was measured, and where its rows are from."""
    cells = [["job", "date", "commit", "machine", "seeds", "rows"]]
    for job, kept in rows.items():
        if job != "said":
            seeds = ", ".join(kept["results"])
            cells.append([job, kept["date"], kept["commit"], kept["machine"]["text"], seeds, kept["origin"]])
    return cells


def rewrite(text: str, rows: Mapping[str, Any], verdicts: Sequence[Verdict]) -> str:
    """Return a text with all that stands between markers made anew."""

    def replace(found: re.Match[str]) -> str:
        indent = found["indent"]
        lines = [indent + line if line else "" for line in ("", *render(found["name"], rows, verdicts), "")]
        return "\n".join([f"{indent}<!-- evidence: {found['name']} -->", *lines, f"{indent}<!-- end -->"])

    return MARKED.sub(replace, text)
