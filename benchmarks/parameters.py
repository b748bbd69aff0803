"""What a new parameter costs: setting it and solving, through CVXPY, the osqp package and longstep, in one run.

    python benchmarks/parameters.py [--instances 200] [--seed 0] [--out FILE.json]

The quadcopter of examples/quadcopter.py. CVXPY with OSQP is warm-started and its parametric program is compiled before;
the osqp package runs on one workspace with `update`; longstep takes 25 steps of a schedule learned from ten instances,
in JAX and as compiled C. Medians of wall-clock time for each instance. JSON: out/benchmarks/parameters.json.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import cvxpy as cp  # noqa: E402
import numpy as np  # noqa: E402
import osqp  # noqa: E402
import scipy.sparse as sp  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.report.tables import Column, Table  # noqa: E402

STEPS = 25


def load_example():
    path = Path(__file__).parent.parent / "examples" / "quadcopter.py"
    spec = importlib.util.spec_from_file_location("quadcopter_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def timed(solve, states):
    """Seconds of each call; the first ones warm up."""
    for state in states[:3]:
        solve(state)
    seconds = []
    for state in states:
        begin = time.perf_counter()
        solve(state)
        seconds.append(time.perf_counter() - begin)
    return np.array(seconds)


def package(family):
    """The osqp package as its user would call it: the rows that move with the state are written, and nothing else."""
    data = family.data(np.zeros((1, 12)))
    solver = osqp.OSQP()
    q, l, u = (np.ascontiguousarray(data[k][0]) for k in ("q", "l", "u"))
    solver.setup(sp.csc_matrix(sp.triu(family.P)), q, sp.csc_matrix(family.A), l, u, verbose=False)
    moving = family.parameter.matrices["l"]
    rows = np.flatnonzero(np.diff(moving.indptr))
    map_ = moving[rows].toarray()
    base = l[rows].copy()

    def solve(state):
        l[rows] = u[rows] = base + map_ @ state
        solver.update(l=l, u=u)
        return solver.solve(raise_error=False)

    return solve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/parameters.json"))
    options = parser.parse_args()
    count = options.instances
    example = load_example()
    problem, rng = example.problem, np.random.default_rng(options.seed)
    states = np.stack([example.sample(rng)["s0"] for _ in range(max(count, 1000))])
    sizes = {"train": 10, "validation": 0}
    solver, report = ls.learn(problem, example.sample, sizes=sizes, seed=options.seed, progress=False)
    in_c = solver.compile(backend="c")
    learned, learned_in_c = (report.model.cvxpy_solver(s, steps=STEPS) for s in (solver, in_c))

    def through(chosen):
        def solve(state):
            example.s0.value = state
            problem.solve(solver=chosen, warm_start=True)

        return solve

    import warnings

    warnings.simplefilter("ignore")  # CVXPY says "may be inaccurate" of a fixed number of steps
    few = states[:count]
    solver.solve_batch(states[:1000], steps=STEPS)
    batches = []
    for _ in range(5):
        begin = time.perf_counter()
        solver.solve_batch(states[:1000], steps=STEPS)
        batches.append((time.perf_counter() - begin) / 1000)
    rows = [
        ("CVXPY + OSQP", np.median(timed(through(cp.OSQP), few))),
        ("CVXPY + longstep, 25 steps", np.median(timed(through(learned), few))),
        ("CVXPY + longstep in C, 25 steps", np.median(timed(through(learned_in_c), few))),
        ("osqp package, update and solve", np.median(timed(package(report.model.family), few))),
        ("longstep in C, one instance by name", np.median(timed(lambda s: in_c.solve({"s0": s}, steps=STEPS), few))),
        ("longstep in C, one instance", np.median(timed(lambda s: in_c.solve(s, steps=STEPS), few))),
        ("longstep, one instance by name", np.median(timed(lambda s: solver.solve({"s0": s}, steps=STEPS), few))),
        ("longstep, one instance", np.median(timed(lambda s: solver.solve(s, steps=STEPS), few))),
        ("longstep, batch of 1000", np.median(batches)),
    ]
    base = rows[0][1]
    columns = (
        Column("method"),
        Column("per instance", lambda s: f"{1e6 * s:.0f} µs"),
        Column("CVXPY + OSQP is slower by", lambda r: f"{r:.1f}×"),
    )
    table = Table(
        f"A new parameter and a solve, quadcopter MPC, {count} instances", columns,
        tuple((name, float(seconds), float(base / seconds)) for name, seconds in rows),
    )  # fmt: skip
    print(table)
    write_bytes(options.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
