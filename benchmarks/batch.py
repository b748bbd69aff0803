"""Throughput of a batch of quadcopter MPC problems against a loop over the osqp C package, same number of steps.

    python benchmarks/batch.py [--steps 25] [--out out/benchmarks/batch.json]

Prints time per instance for batches of 1 to 10,000 in float64 and float32, the ratio to OSQP at 1000 instances, the
bare matrix products of the same steps (what the machine could do at best), and peak memory.
"""

import argparse
import json
import platform
import resource
import time
from pathlib import Path

import jax
import osqp
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

jax.config.update("jax_enable_x64", True)

import longstep as ls  # noqa: E402
from longstep.experiments import quadcopter  # noqa: E402

BATCHES = (1, 10, 100, 1000, 10_000)


def best_of(function, repeats):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def osqp_loop(parameters, steps):
    """Seconds per instance of one OSQP workspace, updated and solved for every instance."""
    family = quadcopter.family()
    data = family.data(parameters)
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


def longstep_batch(parameters, steps, dtype):
    """Seconds per instance of solve_batch, from parameters to solutions on the host."""
    solver = ls.Solver(quadcopter.family(dtype=dtype))

    def solve():
        return solver.solve_batch(parameters, steps=steps)

    assert (solve().iterations == steps).all()
    return best_of(solve, 5 if len(parameters) >= 1000 else 20) / len(parameters)


def matrix_products(n, count, steps, dtype):
    """Seconds per instance of `steps` products of an n × n matrix with `count` columns: the floor of any such step."""
    matrix = jax.numpy.full((n, n), 1.0 / n, dtype)
    columns = jax.numpy.ones((n, count), dtype)

    @jax.jit
    def products(matrix, columns):
        return jax.lax.scan(lambda c, _: (matrix @ c, None), columns, None, length=steps)[0]

    products(matrix, columns).block_until_ready()
    return best_of(lambda: products(matrix, columns).block_until_ready(), 10) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/batch.json"))
    arguments = parser.parse_args()
    steps = arguments.steps
    parameters = quadcopter.sample_many(10_000, seed=0)
    reference = osqp_loop(parameters[:1000], steps)
    result = {
        "steps": steps,
        "osqp_us": 1e6 * reference,
        "machine": platform.machine(),
        "jax": jax.__version__,
    }
    table = Table(title=f"quadcopter MPC (172 unknowns, 304 rows), {steps} steps, µs per instance")
    for name in ("batch", "float64", "× OSQP", "float32", "× OSQP"):
        table.add_column(name, justify="right")
    for count in BATCHES:
        row = {d: longstep_batch(parameters[:count], steps, d) for d in ("float64", "float32")}
        result[str(count)] = {d: 1e6 * t for d, t in row.items()}
        cells = [cell for t in row.values() for cell in (f"{1e6 * t:.1f}", f"{reference / t:.2f}")]
        table.add_row(f"{count:,}", *cells)
    console = Console()
    console.print(table)
    console.print(f"OSQP C package, one workspace, 1000 instances in a loop: {1e6 * reference:.1f} µs per instance")
    for dtype in ("float64", "float32"):
        floor = matrix_products(172, 1000, steps, dtype)
        share = 1e6 * floor / result["1000"][dtype]
        result[f"products_{dtype}_us"] = 1e6 * floor
        console.print(f"{dtype}: the {steps} matrix products alone take {1e6 * floor:.1f} µs, {share:.0%} of the whole")
    result["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"peak memory of this process: {result['peak_memory_mib']:.0f} MiB")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
