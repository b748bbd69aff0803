"""Instances by the million through files: how many a second beside the plain batch, and in how much memory.

    python benchmarks/stream.py [--instances 10000000] [--compiled] [--ray] [--folder DIR] [--out FILE.json]

The family is a portfolio of 8 assets with 5 parameters. The instances are written to one Parquet file; `Solver.map`
streams it to another, in a process of its own whose peak memory is told, all of it and what came on top of the loaded
solver. The plain batch, `solve_batch` of 2¹⁶ instances that are in memory already, is measured before and after the
stream in the same process, by the clock and, for machines that have other work, by processor time. `--ray` sends the
same file through Ray Data with two workers, one of which is killed on the way, and compares the results with those of
the stream, row by row.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

import longstep as ls
from longstep.families.names import Block, Layout
from longstep.workers import SolveBatches

ASSETS = 8
FACTORS = 5
# Instances in a part of the stream, and how many such batches are measured before and after it.
PART = 2**16
BATCHES = 4
GIB = 2**30


def make_solver():
    """Minimise ½x'Px − (Fc)'x over 0 ≤ x ≤ 0.4 with Σx = 1; the parameter c moves the returns of the factors."""
    rng = np.random.default_rng(0)
    loads = rng.normal(size=(ASSETS, FACTORS))
    layout = Layout([Block("c", np.arange(FACTORS))], [Block("x", np.arange(ASSETS))])
    A = np.vstack([np.eye(ASSETS), np.ones(ASSETS)])
    return ls.Solver(
        ls.QP(
            loads @ loads.T + np.diag(0.1 + rng.random(ASSETS)),
            A,
            l=np.append(np.zeros(ASSETS), 1.0),
            u=np.append(np.full(ASSETS, 0.4), 1.0),
            parameter=ls.Affine(q=-loads),
            layout=layout,
        )
    )


def write_instances(path, count):
    """Write the file one row group at a time, with the number of each row."""
    rng = np.random.default_rng(1)
    names = [f"c[{k}]" for k in range(FACTORS)]
    writer = None
    for begin in range(0, count, PART):
        rows = np.arange(begin, min(begin + PART, count))
        c = rng.normal(size=(len(rows), FACTORS))
        table = pa.table({"row": rows} | dict(zip(names, c.T, strict=True)))
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def measure_plain(solver):
    """Return the seconds, by the clock and of the processor, of plain batches as large as the stream's parts."""
    c = np.random.default_rng(2).normal(size=(PART, FACTORS))
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(BATCHES):
        solver.solve_batch(c)
    return np.array([time.perf_counter() - clock, time.process_time() - processor])


def held():
    """Return the most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_stream(path, source, out, compiled, queue):
    """Measure the stream between plain batches before and after it."""
    ls.enable_float64()
    solver = ls.Solver.load(path)
    if compiled:
        solver = solver.compile()
    solver.solve_batch(np.zeros((PART, FACTORS)))
    plain = measure_plain(solver)
    before = held()
    processor = time.process_time()
    tally = solver.map(source, out, variables=["x"], keep=["row"], progress=False)
    processor = time.process_time() - processor
    after = held()
    plain = (plain + measure_plain(solver)) / (2 * BATCHES * PART)
    streamed = np.array([tally.seconds, processor]) / tally.instances
    queue.put(
        {
            "instances": tally.instances,
            "solved": tally.solved,
            "seconds": tally.seconds,
            "per second": 1 / streamed[0],
            "plain batch, per second": 1 / plain[0],
            "lost": 1 - plain[0] / streamed[0],
            "lost, by processor time": 1 - plain[1] / streamed[1],
            "peak GiB": after / GIB,
            "peak GiB beyond the loaded solver": (after - before) / GIB,
        }
    )


class Mortal(SolveBatches):
    """A worker that is killed when it first comes to a certain row."""

    def __init__(self, path, mark, row, **options):
        super().__init__(path, **options)
        self.mark = Path(mark)
        self.row = row

    @override
    def __call__(self, batch):
        if self.row in batch["row"] and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


def measure_ray(path, source, folder, count, compiled):
    """Measure the same through Ray Data, with two workers of which one is killed half way."""
    import ray  # pyright: ignore[reportMissingImports]

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    mark = folder / "killed"
    out = folder / "ray"
    begin = time.perf_counter()
    ray.data.read_parquet(str(source), override_num_blocks=max(8, count // (4 * PART))).map_batches(
        Mortal,
        fn_constructor_args=[str(path), str(mark), count // 2],
        fn_constructor_kwargs={"variables": ["x"], "keep": ["row"], "compiled": compiled},
        batch_size=PART,
        compute=ray.data.ActorPoolStrategy(size=2),
    ).write_parquet(str(out))
    seconds = time.perf_counter() - begin
    ray.shutdown()
    return {"seconds": seconds, "per second": count / seconds, "a worker was killed": mark.exists()}


def compare(stream, folder):
    """Return how many rows Ray's results have, and the largest difference of x from the stream's."""
    theirs = pq.read_table(folder).sort_by("row")
    ours = pq.read_table(stream, columns=theirs.schema.names)
    same = theirs["row"].equals(ours["row"]) and theirs["status"].equals(ours["status"])
    difference = None
    if same:
        names = [name for name in ours.schema.names if name.startswith("x[")]
        difference = max(float(np.abs(ours[n].to_numpy() - theirs[n].to_numpy()).max()) for n in names)
    return {"rows": len(theirs), "same rows and statuses": same, "largest difference of x": difference}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000_000)
    parser.add_argument("--compiled", action="store_true", help="solve in C")
    parser.add_argument("--ray", action="store_true", help="through Ray Data too")
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder by default")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/stream.json"))
    arguments = parser.parse_args()
    ls.enable_float64()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        solver, source, out = folder / "small.longstep", folder / "in.parquet", folder / "out.parquet"
        make_solver().save(solver)
        write_instances(source, arguments.instances)
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        work = context.Process(target=measure_stream, args=(solver, source, out, arguments.compiled, queue))
        work.start()
        results = {"compiled": arguments.compiled, "stream": queue.get()}
        work.join()
        print(json.dumps(results, indent=1), flush=True)
        if arguments.ray:
            results["ray"] = measure_ray(solver, source, folder, arguments.instances, arguments.compiled)
            results["ray beside the stream"] = compare(out, folder / "ray")
            print(json.dumps({name: results[name] for name in ("ray", "ray beside the stream")}, indent=1))
    finally:
        shutil.rmtree(folder)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
