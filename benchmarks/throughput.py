"""Throughput of batches of quadcopter MPC problems, on whatever devices JAX sees, against what they could do at best.

    python benchmarks/throughput.py [--steps 20] [--batches 1 10 100 1000 10000 100000] [--out FILE.json]

For each batch size and precision (float64, float32, and float64 with float32 factors): time per instance from
parameters on the host to solutions on the host, time of the compiled program on the device alone, and that against bare
matrix products, measured in the same run: the least that such steps need, one n × n matrix times n × N columns each
(`/ solves`), and all products of a step as dense ones, that and those with A and A' (`/ all`; longstep takes A's from
its few entries). The rate of the former stands beside that of one large square product, the measured peak. On CPUs a
loop over the osqp package (same number of steps, one workspace) stands beside it, where osqp is installed. Schedules
are step-varying, as learned ones are: every step has its own factor. Rows are of OSQP's form, then of the condensed.
"""

import argparse
import importlib.util
import json
import resource
import time
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import longstep as ls  # noqa: E402
from longstep.algorithms.condensed import Condensed  # noqa: E402
from longstep.engine import jitted  # noqa: E402
from longstep.research.experiments import quadcopter  # noqa: E402

# By name: the algorithm, the precision, and that of the factors where it is another.
KINDS = {
    "float64": (ls.OSQP(), "float64", None),
    "float32": (ls.OSQP(), "float32", None),
    "float64, float32 factors": (ls.OSQP(), "float64", "float32"),
    "condensed, float64": (Condensed(), "float64", None),
    "condensed, float32": (Condensed(), "float32", None),
}


def best_of(function, repeats):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - begin)
    return min(times)


def solver_of(algorithm, dtype, factors, steps):
    """Every step has a factor of its own, as after learning."""
    rho = np.geomspace(0.5, 5.0, steps)
    steady = {"sigma": 1e-3, "rho_eq": 50.0, "rho_ineq": 1.0, "rho": 1.0, "alpha": 1.6}
    varying = {name: np.full(steps, value) for name, value in steady.items()}
    varying |= {"rho_eq": 50 * rho, "rho_ineq": rho, "rho": rho}
    family = quadcopter.family(dtype=dtype)
    names = [h.name for h in algorithm.hyperparameters(family)]
    schedule = ls.Schedule({name: varying[name] for name in names}, {name: steady[name] for name in names})
    return ls.Solver(family, schedule, algorithm=algorithm, factors=factors)


def on_device(solver, parameters, steps):
    """Seconds of the compiled program for the whole batch, its arrays on the device before and after."""
    encoded = jax.tree.map(jnp.asarray, solver.family.encode(parameters))
    limits = solver._limits(1e-4, 1e-4, None, 5)

    def program():
        return jitted.take_steps(solver._key, steps, 0, solver._leaves, encoded, None, limits)

    jax.block_until_ready(program())
    return best_of(program, 10)


def products(n, rows, count, steps, dtype):
    """Seconds of `steps` products of one of as many n × n matrices with `count` columns; with a rows × n matrix and its
    transpose too, unless there are no rows."""
    matrices, columns = jnp.full((steps, n, n), 1.0 / n, dtype), jnp.ones((n, count), dtype)
    A = jnp.full((rows, n), 1.0 / max(rows, n), dtype)

    @jax.jit
    def run(matrices, A, columns):
        def step(c, m):
            c = jnp.matmul(m, c, precision="highest")
            if rows:
                c = jnp.matmul(A.T, jnp.matmul(A, c, precision="highest"), precision="highest")
            return c, None

        return jax.lax.scan(step, columns, matrices)[0]

    jax.block_until_ready(run(matrices, A, columns))
    return best_of(lambda: run(matrices, A, columns), 10)


def peak(dtype, n=2048):
    """Floating-point operations per second of one large product: what the machine does at best."""
    n = 8192 if jax.default_backend() != "cpu" else n
    matrix = jnp.ones((n, n), dtype)
    multiply = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    jax.block_until_ready(multiply(matrix, matrix))
    return 2 * n**3 / best_of(lambda: multiply(matrix, matrix), 5)


def osqp_loop(parameters, steps):
    """Seconds per instance of one OSQP workspace, updated and solved for every instance."""
    import osqp
    import scipy.sparse as sp

    family = quadcopter.family()
    # The package reads the numbers of an update as they lie in memory, whatever their strides.
    data = {name: np.ascontiguousarray(values) for name, values in family.data(parameters).items()}
    solver = osqp.OSQP()
    solver.setup(
        sp.csc_matrix(sp.triu(family.P)), data["q"][0], sp.csc_matrix(family.A), data["l"][0], data["u"][0],
        max_iter=steps, check_termination=0, adaptive_rho=False, warm_starting=False, polishing=False, verbose=False,
    )  # fmt: skip

    def loop():
        for l, u in zip(data["l"], data["u"], strict=True):
            solver.update(l=l, u=u)
            solver.solve(raise_error=False)

    return best_of(loop, 3) / len(parameters)


def measure(kind, batches, steps):
    """A row for each batch size."""
    algorithm, dtype, factors = KINDS[kind]
    solver, rows = solver_of(algorithm, dtype, factors, steps), []
    operator = solver.algorithm.operator(solver._working, solver.plan.at(0)[0])
    for count in batches:
        parameters = quadcopter.sample_many(count, seed=0)
        assert (solver.solve_batch(parameters, steps=steps).iterations == steps).all()
        repeats = 5 if count >= 1000 else 20
        host = best_of(lambda parameters=parameters: solver.solve_batch(parameters, steps=steps).x, repeats)
        device = on_device(solver, parameters, steps)
        n, m = operator.n, operator.weights.size
        bare, every = (products(n, rows_of_A, count, steps, factors or dtype) for rows_of_A in (0, m))
        times = {"host": host, "device": device, "bare": bare, "all_products": every}
        rows.append({"kind": kind, "batch": count, **times, "rate": 2 * n**2 * count * steps / bare})
    return rows


def show(rows, reference, peaks):
    """One line for each row."""
    head = f"{'precision':<26}{'batch':>9}{'µs each':>10}{'device µs':>11}{'/ solves':>10}{'/ all':>7}{'solves at':>12}"
    print(head + (f"{'× OSQP':>9}" if reference else ""))
    for r in rows:
        dtype = "float32" if "float32" in r["kind"] else "float64"
        share = f"{100 * r['rate'] / peaks[dtype]:.0f}% peak"
        line = f"{r['kind']:<26}{r['batch']:>9,}{1e6 * r['host'] / r['batch']:>10.2f}"
        line += f"{1e6 * r['device'] / r['batch']:>11.3f}{r['device'] / r['bare']:>10.2f}"
        line += f"{r['device'] / r['all_products']:>7.2f}{share:>12}"
        print(line + (f"{reference * r['batch'] / r['host']:>9.2f}" if reference else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batches", type=int, nargs="+", default=None)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/throughput.json"))
    arguments = parser.parse_args()
    steps, on_cpu = arguments.steps, jax.default_backend() == "cpu"
    batches = arguments.batches or [1, 10, 100, 1000, 10_000, *([] if on_cpu else [100_000])]
    reference = None
    if on_cpu and importlib.util.find_spec("osqp"):
        reference = osqp_loop(quadcopter.sample_many(1000, seed=0), steps)
    peaks = {dtype: peak(dtype) for dtype in ("float64", "float32")}
    device = jax.devices()[0].device_kind
    print(f"quadcopter MPC, 172 unknowns, 304 rows, {steps} steps; {device}, JAX {jax.__version__}")
    print(f"measured peak: {', '.join(f'{d} {p / 1e9:,.0f} GFlop/s' for d, p in peaks.items())}")
    rows = [row for kind in KINDS for row in measure(kind, batches, steps)]
    show(rows, reference, peaks)
    if reference:
        print(f"osqp, one workspace in a loop over 1000 instances: {1e6 * reference:.1f} µs each")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {memory:.0f} MiB")
    result = {"steps": steps, "device": device, "jax": jax.__version__, "peaks": peaks, "osqp": reference, "rows": rows}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
