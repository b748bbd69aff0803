"""Solvers in workers of Ray and Dask, on the engines themselves where they are installed, one worker killed."""

import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest

import longstep as ls
from longstep.errors import SamplesError
from longstep.workers import SolveBatches

from .streaming.family import NAMES, draw, make_family, make_solver, write_parquet

COUNT = 2000
ROOT = Path(__file__).parent.parent
# Ray warns of settings that it makes itself.
on_ray = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("workers") / "small.longstep"
    make_solver().save(path)
    return path


@pytest.fixture(scope="module")
def ray():
    """A real Ray on this machine. Two workers of one core each leave no room for its reading where there are two."""
    module = pytest.importorskip("ray", reason="Ray is not installed: pip install 'longstep[ray]'")
    data = pytest.importorskip("ray.data")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {"env_vars": {"PYTHONPATH": paths}}
    module.init(
        num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error", runtime_env=environment
    )
    data.DataContext.get_current().enable_progress_bars = False
    yield module
    module.shutdown()


def as_columns(x):
    return dict(zip(NAMES, x.T, strict=True))


def test_a_worker_gives_what_the_solver_gives_for_every_kind_of_table(saved):
    x = draw(40)
    expected = make_solver().solve_batch(x)
    worker = SolveBatches(saved, variables=["w"], keep=["day"])
    batch = as_columns(x) | {"day": np.arange(40)}
    found = worker(batch)
    assert next(iter(found)) == "day"
    assert [*found][-1] == "w"
    np.testing.assert_array_equal(found["w"], expected.x[:, 2])
    pa = pytest.importorskip("pyarrow")
    table = worker(pa.table(batch))
    np.testing.assert_array_equal(table["w"].to_numpy(), expected.x[:, 2])
    assert table["day"].to_pylist() == list(range(40))


def test_arrays_by_the_names_of_parameters_are_taken_too(saved):
    x = draw(40)
    found = SolveBatches(saved)({"c": x[:, :3], "top": x[:, 3]})
    np.testing.assert_array_equal(found["w"], make_solver().solve_batch(x).x[:, 2])


def test_a_copy_in_another_process_loads_the_file_again(saved):
    batch = as_columns(draw(40))
    worker = SolveBatches(saved, variables=["u"], eps_abs=1e-8)
    copy = pickle.loads(pickle.dumps(worker))
    assert copy.work.limits == {"eps_abs": 1e-8}
    np.testing.assert_array_equal(copy(batch)["u[0]"], worker(batch)["u[0]"])


def test_batches_that_lack_something_are_refused_with_its_name(saved):
    batch = as_columns(draw(5))
    with pytest.raises(SamplesError, match="no column 'day' to keep"):
        SolveBatches(saved, keep=["day"])(batch)
    del batch["top"]
    with pytest.raises(SamplesError, match="no column 'top'"):
        SolveBatches(saved)(batch)
    with pytest.raises(TypeError, match="a batch is a dict of arrays"):
        SolveBatches(saved)([1.0])


class Mortal(SolveBatches):
    """A worker that is killed in the middle of its work, the first time that it comes to a certain row."""

    def __init__(self, path, mark, **options):
        super().__init__(path, **options)
        self.mark = Path(mark)

    def __call__(self, batch):
        if 700 in batch["row"] and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)


@on_ray
@pytest.mark.slow
def test_ray_with_a_worker_killed_on_the_way_gives_all_that_a_stream_gives(ray, saved, tmp_path):
    import pyarrow.parquet as pq

    source = write_parquet(tmp_path / "in.parquet", draw(COUNT), group=250, row=np.arange(COUNT))
    ls.Solver.load(saved).map(source, tmp_path / "stream.parquet", keep=["row"], rows=250, progress=False)
    mark = tmp_path / "killed"
    results = ray.data.read_parquet(str(source), override_num_blocks=4).map_batches(
        Mortal,
        fn_constructor_args=[str(saved), str(mark)],
        fn_constructor_kwargs={"keep": ["row"]},
        batch_size=250,
        compute=ray.data.ActorPoolStrategy(size=2),
    )
    results.write_parquet(str(tmp_path / "out"))
    assert mark.exists()
    table = pq.read_table(tmp_path / "out").sort_by("row")
    assert table["row"].to_pylist() == list(range(COUNT))
    assert table.equals(pq.read_table(tmp_path / "stream.parquet").replace_schema_metadata(None))


@on_ray
@pytest.mark.slow
def test_references_are_made_through_ray_with_the_same_call(ray):
    import joblib
    from ray.util.joblib import register_ray

    register_ray()
    # More than one round of what is sent at a time.
    x = draw(16 * 65)
    expected = ls.solve_references(make_family(), x, cache=False, progress=False, jobs=1)
    with joblib.parallel_config(backend="ray"):
        found = ls.solve_references(make_family(), x, cache=False, progress=False)
    np.testing.assert_array_equal(found.x, expected.x)


@pytest.mark.slow
def test_dask_takes_the_same_worker(saved):
    dask = pytest.importorskip("dask.dataframe", reason="Dask is not installed: pip install 'dask[dataframe]'")
    import pandas as pd

    x = draw(400)
    worker = SolveBatches(saved, variables=["w"])
    frame = dask.from_pandas(pd.DataFrame(as_columns(x)), npartitions=4)
    meta = worker(pd.DataFrame(as_columns(x[:1]))).iloc[:0]
    found = frame.map_partitions(worker, meta=meta).compute()
    np.testing.assert_allclose(found["w"], make_solver().solve_batch(x).x[:, 2], rtol=0, atol=1e-12)
    assert list(found.index) == list(range(400))
