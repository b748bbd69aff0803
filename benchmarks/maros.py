"""The Maros–Meszaros QPs: longstep's OSQP iteration with defaults against the osqp package, with and without its
adaptive rho.

    python benchmarks/maros.py [--data FOLDER] [--out out/benchmarks/maros.json]

Every problem is a family of its own, all tolerances 1e-5, at most 20,000 iterations. "Solved" is checked: the objective
must agree with Clarabel's to 1e-2·max(1, |f*|). FOLDER holds .mat files with P, q, r, A, l, u (±1e20 is infinity); the
default is LONGSTEP_DATA/maros_meszaros, else ../shared/data/maros_meszaros.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import numpy as np
import osqp
import scipy.io
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

jax.config.update("jax_enable_x64", True)

import longstep as ls  # noqa: E402

EPS, LIMIT = 1e-5, 20_000


def load(path):
    """P, q, A, l, u of one file, infinities as such."""
    data = scipy.io.loadmat(path)
    l, u = (data[name].ravel().astype(float) for name in "lu")
    l[l <= -0.999e20], u[u >= 0.999e20] = -np.inf, np.inf
    P = sp.csc_matrix(data["P"], dtype=float)
    P = P if abs(P - P.T).max() < 1e-12 else P + sp.triu(P, 1).T
    return P, data["q"].ravel().astype(float), sp.csc_matrix(data["A"], dtype=float), l, u


def package(P, q, A, l, u, adaptive):
    """The osqp package: (status, iterations, objective)."""
    solver = osqp.OSQP()
    solver.setup(
        sp.csc_matrix(sp.triu(P)), q, A, l, u, eps_abs=EPS, eps_rel=EPS, max_iter=LIMIT, adaptive_rho=adaptive,
        polishing=False, verbose=False,
    )  # fmt: skip
    info = solver.solve(raise_error=False).info
    return info.status, int(info.iter), float(info.obj_val)


def ours(P, q, A, l, u, ladder):
    """longstep with defaults: (status, iterations, objective)."""
    solver = ls.Solver(ls.QP(P, A, q=q, l=l, u=u), ladder=ladder)
    s = solver.solve({}, eps_abs=EPS, eps_rel=EPS, max_iter=LIMIT, check_every=25)
    return ls.Status(int(s.status)).name.lower().replace("_", " "), int(s.iterations), float(s.objective)


def compare(path):
    """One row of the table."""
    P, q, A, l, u = load(path)
    best = ls.solve_references(ls.QP(P, A, q=q, l=l, u=u), [{}], accuracy=1e-6, progress=False, jobs=1).value[0]
    begin = time.perf_counter()
    status, iterations, objective = ours(P, q, A, l, u, True)
    seconds = time.perf_counter() - begin
    row = {
        "name": path.stem,
        "optimum": best,
        "status": status,
        "iterations": iterations,
        "objective": objective,
    }
    row |= {"seconds": seconds, "agrees": bool(abs(objective - best) <= 1e-2 * max(1.0, abs(best)))}
    row["fixed"] = dict(zip(("status", "iterations", "objective"), ours(P, q, A, l, u, False), strict=True))
    for key, adaptive in (("osqp", False), ("osqp_adaptive", True)):
        row[key] = dict(zip(("status", "iterations", "objective"), package(P, q, A, l, u, adaptive), strict=True))
    return row


def main():
    beside = Path(os.environ.get("LONGSTEP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=beside / "maros_meszaros")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/maros.json"))
    arguments = parser.parse_args()
    files = sorted(arguments.data.glob("*.mat"))
    console = Console(width=120)
    if not files:
        console.print(f"no .mat files in {arguments.data}; name the folder with --data")
        raise SystemExit(2)
    table = Table(title=f"Maros–Meszaros QPs, eps {EPS:g}, at most {LIMIT:,} iterations")
    for name in (
        "problem",
        "longstep",
        "iterations",
        "objective",
        "Clarabel",
        "osqp",
        "iterations",
        "adaptive",
    ):
        table.add_column(name, justify="left" if name in ("problem", "longstep", "osqp") else "right")
    rows = []
    for path in files:
        row = compare(path)
        rows.append(row)
        fixed, adaptive = row["osqp"], row["osqp_adaptive"]
        table.add_row(
            row["name"], row["status"], str(row["iterations"]), f"{row['objective']:.6g}", f"{row['optimum']:.6g}",
            fixed["status"], str(fixed["iterations"]), f"{adaptive['status']} {adaptive['iterations']}",
        )  # fmt: skip
        console.print(f"{row['name']}: {row['status']} ({row['seconds']:.1f} s)", style="dim")
    console.print(table)
    count = {"longstep": sum(r["status"] == "solved" for r in rows)}
    count |= {k: sum(r[k]["status"] == "solved" for r in rows) for k in ("osqp", "osqp_adaptive")}
    wrong = [r["name"] for r in rows if r["status"] == "solved" and not r["agrees"]]
    console.print(
        f"solved: longstep {count['longstep']}, osqp {count['osqp']}, osqp with adaptive rho "
        f"{count['osqp_adaptive']} of {len(rows)}; objectives that disagree with Clarabel: {wrong or 'none'}"
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"solved": count, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
