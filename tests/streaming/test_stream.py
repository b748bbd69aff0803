"""Streams against plain batches, and what becomes of them when they are killed, divided, or given bad files."""

import errno
import functools
import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest

import longstep as ls
from longstep.errors import FileFormatError, SamplesError
from longstep.streaming.parts import PartFolder
from longstep.streaming.tally import Tally

pa = pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

from .family import NAMES, draw, make_solver, write_csv, write_parquet  # noqa: E402

COUNT = 500
ROWS = 64
PARTS = -(-COUNT // ROWS)
quiet = {"rows": ROWS, "progress": False}


@functools.cache
def solver():
    return make_solver()


@functools.cache
def expected():
    return solver().solve_batch(draw(COUNT))


@pytest.fixture
def source(tmp_path):
    return write_parquet(tmp_path / "in.parquet", draw(COUNT))


def assert_expected(table):
    found = expected()
    assert len(table) == COUNT
    np.testing.assert_array_equal(table["iterations"].to_numpy(), found.iterations)
    for label, column in (("u[0]", 0), ("u[1]", 1), ("w", 2)):
        np.testing.assert_allclose(table[label].to_numpy(), found.x[:, column], rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["objective"].to_numpy(), found.objective, rtol=0, atol=1e-12)
    assert set(table["status"].to_pylist()) == {"solved"}


def write_folder(path, x):
    path.mkdir()
    write_parquet(path / "a.parquet", x[:130])
    write_parquet(
        path / "b.parquet", x[130:][:, ::-1].astype(np.float64), names=NAMES[::-1], note=["other"] * (len(x) - 130)
    )
    (path / "_SUCCESS").touch()
    return path


def write_npy(path, x):
    np.save(path, x)
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [("in.parquet", write_parquet), ("in.csv", write_csv), ("in.npy", write_npy), ("in", write_folder)],
)
def test_a_stream_gives_what_a_batch_gives(name, write, tmp_path):
    out = tmp_path / "out.parquet"
    tally = solver().map(write(tmp_path / name, draw(COUNT)), out, **quiet)
    assert (tally.instances, tally.solved, tally.reused, tally.complete) == (COUNT, COUNT, 0, True)
    assert_expected(pq.read_table(out))
    assert pq.ParquetFile(out).num_row_groups == PARTS
    assert sorted(os.listdir(tmp_path)) == sorted([name, "out.parquet"])


def test_a_solver_in_c_streams_too(source, tmp_path):
    compiled = solver().compile()
    if compiled is solver():
        pytest.skip("there is no C compiler")
    compiled.map(source, tmp_path / "out.parquet", eps_abs=1e-9, eps_rel=1e-9, **quiet)
    found = solver().solve_batch(draw(COUNT), eps_abs=1e-9, eps_rel=1e-9)
    u = pq.read_table(tmp_path / "out.parquet")["u[1]"].to_numpy()
    np.testing.assert_allclose(u, found.x[:, 1], atol=1e-7)


def test_only_what_is_asked_for_is_written(tmp_path):
    ids = [f"day {k}" for k in range(COUNT)]
    source = write_parquet(tmp_path / "in.parquet", draw(COUNT), day=ids)
    solver().map(source, tmp_path / "out", variables=["w", "u[1]"], dtype="float32", keep=["day"], **quiet)
    table = pq.read_table(tmp_path / "out")
    ended = ["status", "iterations", "objective", "primal_residual", "dual_residual", "safeguarded"]
    assert table.schema.names == ["day", *ended, "u[1]", "w"]
    assert table["day"].to_pylist() == ids
    assert {str(table.schema.field(name).type) for name in ("w", "u[1]", "objective", "dual_residual")} == {"float"}
    np.testing.assert_array_equal(table["w"].to_numpy(), expected().x[:, 2].astype(np.float32))


def test_batches_go_to_a_function():
    x = draw(COUNT)
    found = []
    batches = (solver().family.layout.split(x[k : k + 100]) for k in range(0, COUNT, 100))
    tally = solver().map(batches, found.append, progress=False)
    assert (tally.instances, len(found)) == (COUNT, 5)
    np.testing.assert_allclose(np.concatenate([part["w"] for part in found]), expected().x[:, 2], rtol=0, atol=1e-12)


def test_a_family_without_names_reads_arrays_and_writes_its_point(tmp_path):
    family = ls.QP(np.eye(2), np.eye(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    q = np.random.default_rng(0).normal(size=(50, 2))
    np.save(tmp_path / "in.npy", q)
    ls.Solver(family).map(tmp_path / "in.npy", tmp_path / "out.parquet", eps_abs=1e-8, eps_rel=1e-8, progress=False)
    table = pq.read_table(tmp_path / "out.parquet")
    np.testing.assert_allclose(table["x[1]"].to_numpy(), np.clip(-q[:, 1], 0, 1), atol=1e-6)
    source = write_parquet(tmp_path / "in.parquet", draw(5))
    with pytest.raises(ValueError, match="knows no names for its parameters"):
        ls.Solver(family).map(source, tmp_path / "other.parquet")


class Interruption(BaseException):
    """What a kill is to Python code: nothing catches it."""


def interrupted(monkeypatch, after):
    """A solver that is interrupted after so many batches."""
    own = make_solver()
    solve = own.solve_batch
    left = iter(range(after))

    def solve_some(*arguments, **options):
        if next(left, None) is None:
            raise Interruption
        return solve(*arguments, **options)

    monkeypatch.setattr(own, "solve_batch", solve_some)
    return own


@pytest.mark.parametrize("after", [0, 3, PARTS - 1])
def test_interrupted_and_started_again_it_ends_with_the_same_bytes(after, source, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    solver().map(source, whole, **quiet)
    with pytest.raises(Interruption):
        interrupted(monkeypatch, after).map(source, out, **quiet)
    assert not out.exists()
    tally = solver().map(source, out, **quiet)
    assert tally.reused == after * ROWS
    assert tally.instances == COUNT
    assert out.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "out.parquet.parts").exists()


@pytest.mark.parametrize("name", ["out.parquet", "out"])
def test_what_a_kill_left_half_written_is_taken_away(name, source, tmp_path, monkeypatch):
    out = tmp_path / name
    with pytest.raises(Interruption):
        interrupted(monkeypatch, 2).map(source, out, **quiet)
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    (folder / ".part-00000002.parquet.half").write_bytes(b"PAR1")
    (folder / f".{name}.half").write_bytes(b"PAR1")
    solver().map(source, out, **quiet)
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", name]
    assert not [path for path in out.parent.rglob(".*") if path.is_file()]
    assert_expected(pq.read_table(out))


def test_a_folder_that_is_taken_away_meanwhile_is_made_again(tmp_path):
    parts = PartFolder(tmp_path / "out.parquet", {})
    parts.begin()
    shutil.rmtree(parts.folder)
    parts.write(0, "key", pa.table({"a": [1.0]}), Tally(1))
    assert parts.find(0, "key") == Tally(1)
    assert parts.find(0, "other") is None


def test_a_finished_run_is_not_done_again(source, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    first = solver().map(source, out, **quiet)
    before = out.stat().st_mtime_ns
    again = interrupted(monkeypatch, 0).map(source, out, **quiet)
    assert (again.reused, again.statuses) == (COUNT, first.statuses)
    assert out.stat().st_mtime_ns == before
    # Other rows in the source are another run.
    write_parquet(source, draw(COUNT, seed=1))
    with pytest.raises(Interruption):
        interrupted(monkeypatch, 0).map(source, out, **quiet)


def test_batches_that_come_again_are_not_solved_again(tmp_path, monkeypatch):
    x = draw(COUNT)
    batches = [x[k : k + 100] for k in range(0, COUNT, 100)]
    with pytest.raises(Interruption):
        interrupted(monkeypatch, 2).map(iter(batches), tmp_path / "out.parquet", progress=False)
    tally = solver().map(iter(batches), tmp_path / "out.parquet", progress=False)
    assert tally.reused == 200
    assert_expected(pq.read_table(tmp_path / "out.parquet"))


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_shards_in_any_order_join_to_the_same_bytes(order, source, tmp_path):
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    solver().map(source, whole, **quiet)
    tallies = [solver().map(source, out, shard=(number, 3), **quiet) for number in order]
    assert [tally.complete for tally in tallies] == [False, False, True]
    assert sum(tally.instances for tally in tallies) == COUNT
    assert sum(tally.reused for tally in tallies) == 0
    assert out.read_bytes() == whole.read_bytes()


def test_a_shard_that_is_run_twice_is_harmless(source, tmp_path):
    out = tmp_path / "out.parquet"
    solver().map(source, out, shard=(1, 2), **quiet)
    twice = solver().map(source, out, shard=(1, 2), **quiet)
    assert twice.reused == twice.instances > 0
    solver().map(source, out, shard=(2, 2), **quiet)
    whole = out.read_bytes()
    late = solver().map(source, out, shard=(1, 2), **quiet)
    assert late.complete
    assert out.read_bytes() == whole
    assert_expected(pq.read_table(out))


def test_more_shards_than_parts_leave_some_with_nothing_to_do(source, tmp_path):
    tallies = [solver().map(source, tmp_path / "o.parquet", shard=(k, 20), **quiet) for k in range(1, 21)]
    assert sum(tally.instances for tally in tallies) == COUNT
    assert_expected(pq.read_table(tmp_path / "o.parquet"))


def test_a_source_that_changes_between_shards_is_noticed(source, tmp_path):
    out = tmp_path / "out.parquet"
    solver().map(source, out, shard=(1, 2), **quiet)
    x = draw(COUNT)
    x[10, 0] += 1
    write_parquet(source, x)
    with pytest.raises(
        FileFormatError, match=r"part-00000000.parquet was made of other rows .* its shard again \(1/2\)"
    ):
        solver().map(source, out, shard=(2, 2), **quiet)
    solver().map(source, out, shard=(1, 2), **quiet)
    table = pq.read_table(out)
    np.testing.assert_allclose(table["w"].to_numpy(), solver().solve_batch(x).x[:, 2], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eps_abs": 1e-6}, "limits: .* there, {'eps_abs': 1e-06} here"),
        ({"variables": ["w"]}, "variables: None there"),
        ({"rows": 32}, "rows: 64 there, 32 here"),
    ],
)
def test_parts_of_another_run_are_not_touched(change, words, source, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    with pytest.raises(Interruption):
        interrupted(monkeypatch, 2).map(source, out, **quiet)
    before = sorted((tmp_path / "out.parquet.parts").iterdir())
    with pytest.raises(FileFormatError, match=f"parts of another run .*{words}.*remove the folder to begin again"):
        solver().map(source, out, **(quiet | change))
    assert sorted((tmp_path / "out.parquet.parts").iterdir()) == before


def test_a_damaged_part_is_made_again(source, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    with pytest.raises(Interruption):
        interrupted(monkeypatch, 4).map(source, out, **quiet)
    part = tmp_path / "out.parquet.parts" / "part-00000001.parquet"
    part.write_bytes(part.read_bytes()[:-20])
    assert solver().map(source, out, **quiet).reused == 3 * ROWS
    assert_expected(pq.read_table(out))


# The manifest is the first file that is written, then come the parts, and in the end the whole.
@pytest.mark.parametrize(("room", "kept"), [(1, 0), (4, 3), (PARTS + 1, PARTS)])
def test_a_full_disk_loses_nothing(room, kept, source, tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    synchronize = os.fsync
    left = iter(range(room))

    def fill(handle):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronize(handle)

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(
        OSError, match=f"No space left.* {kept} finished parts are kept: make room and run the"
    ) as caught:
        solver().map(source, out, **quiet)
    assert caught.value.errno == errno.ENOSPC
    assert not out.exists()
    monkeypatch.undo()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]
    assert solver().map(source, out, **quiet).reused == min(kept * ROWS, COUNT)
    assert_expected(pq.read_table(out))


def test_a_late_file_without_a_column_is_refused_before_anything_is_solved(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "in", draw(COUNT))
    write_parquet(folder / "c.parquet", draw(5)[:, :3], names=NAMES[:3])
    words = r"c\.parquet \(file 3 of 3\): there is no column 'top'; the file has 'c\[0\]'"
    with pytest.raises(SamplesError, match=words):
        interrupted(monkeypatch, 0).map(folder, tmp_path / "out.parquet", **quiet)
    assert os.listdir(tmp_path) == ["in"]


def test_a_file_that_ends_early_is_refused_before_anything_is_solved(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "in", draw(COUNT))
    late = folder / "b.parquet"
    late.write_bytes(late.read_bytes()[:3000])
    with pytest.raises(
        SamplesError, match=r"b\.parquet \(file 2 of 2\): damaged, or no Parquet file .* write it again"
    ):
        interrupted(monkeypatch, 0).map(folder, tmp_path / "out.parquet", **quiet)


def test_a_bad_value_in_a_late_row_is_said_and_can_be_mended(source, tmp_path):
    out = tmp_path / "out.parquet"
    x = draw(COUNT)
    x[333, 1] = np.nan
    write_parquet(source, x)
    with pytest.raises(
        SamplesError, match=r"in\.parquet.*c\[1\] in row 333 is nan; it must be finite.* parts are kept"
    ):
        solver().map(source, out, **quiet)
    write_parquet(source, draw(COUNT))
    assert solver().map(source, out, **quiet).reused >= 4 * ROWS
    assert_expected(pq.read_table(out))


def test_a_late_row_group_that_is_damaged_is_said_and_can_be_mended(source, tmp_path):
    out = tmp_path / "out.parquet"
    whole = source.read_bytes()
    at = pq.ParquetFile(source).metadata.row_group(5).column(0).data_page_offset
    source.write_bytes(whole[:at] + b"\xff" * 64 + whole[at + 64 :])
    with pytest.raises(SamplesError, match=r"in\.parquet, after \d+ good rows: damaged, .* parts are kept in"):
        solver().map(source, out, **quiet)
    source.write_bytes(whole)
    assert solver().map(source, out, **quiet).reused > 0
    assert_expected(pq.read_table(out))


def test_a_late_batch_without_a_parameter_is_said_by_its_number(tmp_path):
    split = solver().family.layout.split
    batches = [split(draw(50)), split(draw(50, 1)), {"c": np.zeros((50, 3))}]
    with pytest.raises(
        SamplesError, match=r"batch 2 of the source: 'top' has no value.* The 2 finished parts are kept"
    ):
        solver().map(batches, tmp_path / "out.parquet", progress=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variables": ["uu"]}, "there is no variable 'uu'"),
        ({"variables": ["u[2]"]}, r"there is no variable 'u\[2\]'; did you mean 'u\["),
        ({"dtype": "float16"}, "dtype must be"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"shard": (0, 4)}, "counted from 1: 1/4 is the first, got 0/4"),
        ({"shard": (5, 4)}, "got 5/4"),
        ({"keep": ["day"]}, "no column 'day' to keep"),
        ({"eps_abs": -1.0}, "eps_abs"),
        ({"steps": -1}, "must not be negative"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(options, words, source, tmp_path):
    with pytest.raises(ValueError, match=words):
        solver().map(source, tmp_path / "out.parquet", **({"progress": False} | options))
    assert os.listdir(tmp_path) == ["in.parquet"]


def test_misspelt_options_and_odd_places_are_refused(source, tmp_path):
    with pytest.raises(TypeError, match="no option 'eps_abss'; did you mean 'eps_abs'"):
        solver().map(source, tmp_path / "out.parquet", eps_abss=1e-3)
    with pytest.raises(ValueError, match=r"out\.csv is no place for a stream"):
        solver().map(source, tmp_path / "out.csv")
    with pytest.raises(ValueError, match="batches cannot be divided into shards"):
        solver().map([draw(5)], tmp_path / "out.parquet", shard=(1, 2))
    with pytest.raises(ValueError, match="columns, keep and rows are for files"):
        solver().map([draw(5)], tmp_path / "out.parquet", rows=5)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        solver().map(tmp_path / "none.parquet", tmp_path / "out.parquet")
    write_parquet(source, draw(COUNT)[:0])
    with pytest.raises(SamplesError, match="there are no rows"):
        solver().map(source, tmp_path / "out.parquet")


def test_a_column_to_keep_must_not_be_called_as_a_result(tmp_path):
    source = write_parquet(tmp_path / "in.parquet", draw(10), status=np.arange(10))
    with pytest.raises(ValueError, match="'status' to keep is called as one of the results"):
        solver().map(source, tmp_path / "out.parquet", keep=["status"], progress=False)


def test_memory_does_not_grow_with_the_number_of_instances(tmp_path):
    def measure(parts):
        source = write_parquet(tmp_path / f"{parts}.parquet", draw(512 * parts), group=512)
        before = pa.total_allocated_bytes()
        held = []
        tracemalloc.start()
        solver().map(source, lambda columns: held.append(pa.total_allocated_bytes()), rows=512, progress=False)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak, max(held) - before

    measure(4)
    few, few_of_arrow = measure(4)
    many, many_of_arrow = measure(64)
    # All parameters or solutions of the larger one would be sixteen times as much.
    assert many < 3 * few
    assert many_of_arrow < 3 * few_of_arrow


def test_the_manifest_says_what_the_parts_are_of(source, tmp_path):
    solver().map(source, tmp_path / "out", variables=["w"], max_iter=500, **quiet)
    manifest = json.loads((tmp_path / "out" / "_longstep.json").read_text())
    assert manifest["solver"] == solver().content_hash()
    assert manifest["variables"] == ["w"]
    assert manifest["limits"] == {"max_iter": 500}
