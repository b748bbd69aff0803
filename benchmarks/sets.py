"""What the most frequent active sets of training would be worth, tried before the first step.

    python benchmarks/sets.py [--families quadcopter …] [--problems FILE]

FILE is as for `designs.py`. Of 200 unseen instances: how many have no active row, how many one of the 1, 5 and 20 most
frequent sets of 100 training instances, and how many the set that a start from the parameter predicts; then the rows in
which the optimal set differs from none, from the nearest of the 20, and from the predicted one, in the mean. JSON:
out/benchmarks/sets.json.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from designs import problems  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402
from longstep.training.recipe import DEFAULT  # noqa: E402
from longstep.training.sides import balance_rows, clean_multipliers, find_inequalities  # noqa: E402
from longstep.training.start import regress  # noqa: E402

TRAINED, TESTS = 100, 200
COUNTS = (1, 5, 20)
COLUMNS = ("family", "distinct", "none", "1, 5, 20 most frequent", "predicted", "rows: none, nearest, predicted")


def measure(name: str, make: Any) -> tuple[str, ...]:
    """Return the row of a family."""
    family, sample = make()
    rng = np.random.default_rng(7)
    drawn = np.stack([np.asarray(sample(rng)) for _ in range(TRAINED + TESTS + 60)])
    found = ls.Solver(family, algorithm=Condensed(), finish=0).solve_batch(drawn, eps_abs=1e-9, eps_rel=1e-9)
    good = np.flatnonzero(np.asarray(found.exact))[: TRAINED + TESTS]
    inner = find_inequalities(family)
    y = clean_multipliers(np.asarray(found.y)[good][:, inner].T, DEFAULT)
    s = np.asarray(found.s)[good][:, inner].T
    sets = np.sign(y).T.astype(np.int8)
    seen = Counter(row.tobytes() for row in sets[:TRAINED])
    unseen = sets[TRAINED:]
    frequent = np.array([np.frombuffer(key, np.int8) for key, _ in seen.most_common(max(COUNTS))])
    differ = np.count_nonzero(unseen[:, None] != frequent[None], axis=2)
    rho = balance_rows(family, s[:, :TRAINED], y[:, :TRAINED], DEFAULT)[:, None]
    p = np.asarray(family.encode(drawn[good]), np.float64)
    weights, offset, _ = regress(p[:, :TRAINED], (s + y / rho)[:, :TRAINED], DEFAULT)
    w = offset[:, None] + weights @ p[:, TRAINED:]
    data = family.data(drawn[good][TRAINED:])
    above = w > data["u"][:, inner].T
    below = w < data["l"][:, inner].T
    off = np.count_nonzero(unseen != (above.astype(int) - below).T, axis=1)
    shares = ", ".join(f"{np.mean(differ[:, :k].min(axis=1) == 0):.1%}" for k in COUNTS)
    active = np.count_nonzero(unseen, axis=1)
    rows = f"{active.mean():.1f}, {differ.min(axis=1).mean():.1f}, {off.mean():.1f}"
    return name, str(len(seen)), f"{np.mean(active == 0):.1%}", shares, f"{np.mean(off == 0):.1%}", rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/sets.json"))
    options = parser.parse_args()
    known = problems(options.problems)
    rows = []
    for name in options.families or known:
        rows.append(measure(name, known[name]))
        print(*rows[-1], sep=" | ", flush=True)
    table = Table("The most frequent active sets", tuple(map(Column, COLUMNS)), tuple(rows), "")
    print(table.markdown())
    write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
