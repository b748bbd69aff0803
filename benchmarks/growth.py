"""How cost grows with size: families with sparse factors, from a thousand unknowns up.

    python benchmarks/growth.py --sizes 1000 10000 --families portfolio mpc mesh [--out FILE.json]

For each: seconds of making the family, of `learn` (20 instances, 30 steps, and what it keeps) and the peak of memory;
then instances one by one to 1e-4 with that solver, with the defaults and with OSQP (adaptive, set up once, and warm:
it goes on from the last instance): iterations and ms at the median, 95% and worst, and how many stay unsolved; and the
same instances as a batch. Both solvers as C too: seconds of `compile`, bytes, and µs of a step. C and OSQP take turns
on one core, and the least of some times of their thread counts. Each case is a process of its own, so that peaks are
its own. JSON: out/benchmarks/growth.json.
"""

import argparse
import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jax
import numpy as np
import osqp
import scipy.sparse as sp

import longstep as ls
from longstep._util.storage import write_bytes
from longstep.export_c import CompiledSolver

EPS = 1e-4
REPEATS = 5
Sampler = Callable[[np.random.Generator], np.ndarray]


def make_portfolio(n: int, rng: np.random.Generator) -> tuple[ls.QP, Sampler]:
    """Markowitz with n assets and n/100 factors of half of the entries; the parameter is the expected return."""
    k = max(n // 100, 1)
    loadings = sp.random_array((n, k), density=0.5, rng=rng, data_sampler=rng.standard_normal)
    risk = rng.uniform(size=n) * np.sqrt(k)
    P = sp.block_diag([sp.diags_array(2 * risk), 2 * sp.eye_array(k)])
    A = sp.block_array(
        [
            [loadings.T, -sp.eye_array(k)],
            [sp.csr_array(np.ones((1, n))), None],
            [sp.eye_array(n), None],
        ]
    ).tocsr()
    l = np.concatenate([np.zeros(k), [1.0], np.zeros(n)])
    u = np.concatenate([np.zeros(k), [1.0], np.full(n, np.inf)])
    returns = sp.vstack([-sp.eye_array(n), sp.csr_array((k, n))]).tocsr()
    family = ls.QP(P, A, q=np.zeros(n + k), l=l, u=u, parameter=ls.Affine(q=returns))
    usual = rng.standard_normal(n)
    return family, lambda rng: usual + 0.3 * rng.standard_normal(n)


def make_mpc(n: int, rng: np.random.Generator) -> tuple[ls.QP, Sampler]:
    """Control of 10 states by 5 inputs over n/15 steps; the parameter is the first state."""
    states = 10
    inputs = 5
    horizon = n // (states + inputs)
    dynamics = np.eye(states) + 0.02 * rng.normal(size=(states, states))
    effect = rng.normal(size=(states, inputs))
    follow = sp.kron(sp.eye_array(horizon + 1), -sp.eye_array(states)) + sp.kron(
        sp.eye_array(horizon + 1, k=-1), sp.csr_array(dynamics)
    )
    push = sp.kron(sp.vstack([sp.csr_array((1, horizon)), sp.eye_array(horizon)]), sp.csr_array(effect))
    equalities = follow.shape[0]
    unknowns = equalities + horizon * inputs
    A = sp.vstack([sp.hstack([follow, push]), sp.eye_array(unknowns)]).tocsr()
    weights = 10 * rng.uniform(size=states) * (rng.uniform(size=states) < 0.7)
    P = sp.block_diag(
        [sp.kron(sp.eye_array(horizon + 1), sp.diags_array(weights)), 0.1 * sp.eye_array(horizon * inputs)]
    )
    bound = np.concatenate([np.full(equalities, 2.0), np.full(horizon * inputs, 0.1)])
    l = np.concatenate([np.zeros(equalities), -bound])
    first = sp.vstack([-sp.eye_array(states), sp.csr_array((A.shape[0] - states, states))]).tocsr()
    family = ls.QP(
        P, A, q=np.zeros(unknowns), l=l, u=-l, equalities=np.arange(equalities), free=[],
        parameter=ls.Affine(l=first, u=first),
    )  # fmt: skip
    return family, lambda rng: rng.uniform(-0.5, 0.5, size=states)


def make_mesh(n: int, rng: np.random.Generator) -> tuple[ls.QP, Sampler]:
    """DC power flow on a square mesh with a generator at every fifth node; the parameter is the demand."""
    side = int(np.ceil(np.sqrt(n / 1.2))) + 1
    nodes = side * side
    difference = sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(side - 1, side))
    ones = sp.eye_array(side)
    lines = sp.vstack([sp.kron(difference, ones), sp.kron(ones, difference)]).tocsr()
    flows = sp.diags_array(rng.uniform(5, 20, lines.shape[0])) @ lines
    places = rng.choice(nodes, nodes // 5, replace=False)
    generators = places.size
    feed = sp.csr_array((np.ones(generators), (places, np.arange(generators))), shape=(nodes, generators))
    A = sp.block_array(
        [
            [lines.T @ flows, -feed],
            [flows, None],
            [None, sp.eye_array(generators)],
            [sp.csr_array(([1.0], ([0], [0])), shape=(1, nodes)), None],
        ]
    ).tocsr()
    P = sp.block_diag([sp.csr_array((nodes, nodes)), sp.diags_array(rng.uniform(0.1, 1, generators))])
    q = np.concatenate([np.zeros(nodes), rng.uniform(1, 5, generators)])
    limit = np.full(lines.shape[0], 3.0)
    l = np.concatenate([np.zeros(nodes), -limit, np.zeros(generators), [0.0]])
    u = np.concatenate([np.zeros(nodes), limit, rng.uniform(5, 10, generators), [0.0]])
    demand = sp.vstack([-sp.eye_array(nodes), sp.csr_array((A.shape[0] - nodes, nodes))]).tocsr()
    family = ls.QP(
        P, A, q=q, l=l, u=u, equalities=np.append(np.arange(nodes), A.shape[0] - 1), free=[],
        parameter=ls.Affine(l=demand, u=demand),
    )  # fmt: skip
    usual = rng.uniform(0.2, 1, nodes)
    return family, lambda rng: usual * rng.uniform(0.7, 1.3) * (1 + 0.2 * rng.standard_normal(nodes))


FAMILIES = {"portfolio": make_portfolio, "mpc": make_mpc, "mesh": make_mesh}


def describe(steps: np.ndarray, seconds: np.ndarray, done: np.ndarray) -> dict[str, object]:
    """The iterations, the times in ms and how many are left."""

    def spread(values: np.ndarray) -> list[float]:
        return [round(float(v), 2) for v in (np.median(values), np.quantile(values, 0.95), values.max())]

    return {"steps": spread(steps), "ms": spread(1e3 * seconds), "unsolved": int((~done).sum())}


def solve_each(solver: ls.Solver | CompiledSolver, parameters: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
    """Iterations, seconds and success, one instance after the other with a solver of ours."""
    solver.solve(parameters[0], eps_abs=EPS, eps_rel=EPS, max_iter=1)
    # What is in C runs on this thread, and others' work on its core does not count.
    clock = time.thread_time if isinstance(solver, CompiledSolver) else time.perf_counter
    found = []
    for parameter in parameters:
        begin = clock()
        solution = solver.solve(parameter, eps_abs=EPS, eps_rel=EPS, max_iter=most)
        found.append((solution.iterations, clock() - begin, solution.solved))
    return tuple(np.array(column) for column in zip(*found, strict=True))


def compile_timed(solver: ls.Solver) -> tuple[CompiledSolver, dict[str, object]]:
    """The solver in C, and what that takes."""
    begin = time.perf_counter()
    compiled = CompiledSolver(solver, "double", "auto", cache=False)
    seconds = round(time.perf_counter() - begin, 1)
    code = compiled.code
    return compiled, {"compile": seconds, "rom": code.rom, "ram": code.ram, "method": code.linear.words}


def time_step(compiled: CompiledSolver, parameter: np.ndarray) -> float:
    """The least µs of a step, of runs of 100."""
    each = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        compiled.solve(parameter, steps=100)
        each.append((time.thread_time() - begin) / 100 * 1e6)
    return round(min(each), 1)


def compare_on_one_core(
    compiled: dict[str, CompiledSolver], family: ls.QP, parameters: np.ndarray, most: int
) -> dict[str, dict[str, object]]:
    """Solvers in C and the package in turns, on one core: the least time of each instance."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    found: dict[str, list[tuple[np.ndarray, ...]]] = {}
    try:
        for _ in range(REPEATS):
            for name, solver in compiled.items():
                found.setdefault(name, []).append(solve_each(solver, parameters, most))
            found.setdefault("osqp", []).append(solve_osqp(family, parameters, most))
        steps = {name: {"us": time_step(solver, parameters[0])} for name, solver in compiled.items()}
    finally:
        os.sched_setaffinity(0, cores)
    rows = {}
    for name, runs in found.items():
        iterations, _, done = runs[-1]
        least = np.min([seconds for _, seconds, _ in runs], axis=0)
        rows[name] = describe(iterations, least, done) | steps.get(name, {})
    return rows


def solve_osqp(family: ls.QP, parameters: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
    """Iterations, seconds and success, one instance after the other with the package as it comes, set up once."""
    data = {name: np.ascontiguousarray(values) for name, values in family.data(parameters).items()}
    package = osqp.OSQP()
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    first = {name: values[0] for name, values in data.items()}
    package.setup(P, A=A, **first, eps_abs=EPS, eps_rel=EPS, max_iter=most, verbose=False)
    found = []
    for k in range(len(parameters)):
        package.update(**{name: values[k] for name, values in data.items()})
        begin = time.thread_time()
        info = package.solve().info
        found.append((info.iter, time.thread_time() - begin, info.status == "solved"))
    return tuple(np.array(column) for column in zip(*found, strict=True))


def measure(name: str, n: int, options: argparse.Namespace) -> dict[str, object]:
    """Return one case, printed as a line of JSON too."""
    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(options.seed)
    begin = time.perf_counter()
    family, draw = FAMILIES[name](n, rng)
    augmented = family.matrices.structure.augmented
    assert augmented is not None
    entries = augmented.fill
    row: dict[str, object] = {"family": name, "n": family.n, "m": family.m, "entries": entries}
    row["making"] = round(time.perf_counter() - begin, 2)
    solvers = {"defaults": ls.Solver(family)}
    if not options.untrained:
        sizes = {"train": 20, "test": 10}
        begin = time.perf_counter()
        solvers["learned"], report = ls.learn(family, draw, sizes=sizes, horizon=30, cache=False, progress=False)
        row["learn"] = round(time.perf_counter() - begin, 1)
        row["phases"] = {name: round(seconds, 1) for name, seconds in report.timing.items()}
        row["kept"] = report.training.kept
    test = np.stack([draw(rng) for _ in range(options.instances)])
    compiled = {}
    for kind, solver in solvers.items():
        row[kind] = describe(*solve_each(solver, test, options.most))
        compiled[f"{kind}, C"], row[f"{kind}, C: what it takes"] = compile_timed(solver)
    row |= compare_on_one_core(compiled, family, test, options.most)
    begin = time.perf_counter()
    solvers.get("learned", solvers["defaults"]).solve_batch(test, eps_abs=EPS, eps_rel=EPS, max_iter=options.most)
    row["batch"] = round(time.perf_counter() - begin, 2)
    row["GiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--instances", type=int, default=20, help="unseen instances (default 20)")
    parser.add_argument("--most", type=int, default=4_000, help="steps at most (default 4,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--untrained", action="store_true", help="the defaults alone, without minutes of learning")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/growth.json"))
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    rows = []
    for n in options.sizes:
        for name in options.families:
            with ProcessPoolExecutor(1, mp_context=context) as one:
                rows.append(one.submit(measure, name, n, options).result())
            write_bytes(options.out, json.dumps({"rows": rows}, indent=1).encode())


if __name__ == "__main__":
    main()
