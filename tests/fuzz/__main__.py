"""Random bad input, files, exports and problems, against residuals that longstep did not compute.

    python -m tests.fuzz [--seconds 120] [--seed 0] [--out FILE.json]

Every kind of trial has its share of the time. A trial ends well if the library refuses with an error of a kind that it
documents, or answers with what an independent check confirms: statuses are checked with NumPy on the user's own data,
and with Clarabel. Anything else is a violation, which is printed with the seed that repeats it.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
warnings.simplefilter("ignore")

from longstep._util.storage import write_bytes  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

from .trials import TRIALS, Violation  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="the table as JSON")
    options = parser.parse_args()
    rows, violations = [], 0
    for name, trial in TRIALS.items():
        counts, begin, k = Counter(), time.perf_counter(), 0
        while time.perf_counter() - begin < options.seconds / len(TRIALS):
            seed = [options.seed, k, *name.encode()]
            with tempfile.TemporaryDirectory() as folder:
                try:
                    ended = trial(np.random.default_rng(seed), Path(folder))
                    counts.update([ended] if isinstance(ended, str) else ended)
                except Violation as found:
                    counts["VIOLATED"] += 1
                    print(f"{name}, seed {seed}: {found}", flush=True)
                except Exception:
                    counts["VIOLATED"] += 1
                    print(f"{name}, seed {seed}:\n{traceback.format_exc()[-1500:]}", flush=True)
            k += 1
        violations += counts["VIOLATED"]
        outcomes = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()) if word != "VIOLATED")
        rows.append((name, counts.total(), outcomes, counts["VIOLATED"]))
    columns = (Column("trials"), Column("number"), Column("ended"), Column("violations"))
    table = Table(f"Fuzzing for {options.seconds:g} s, seed {options.seed}", columns, tuple(rows))
    print(table)
    if options.out:
        write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
