"""Evaluation: every statistic by hand, streaming, and what is refused."""

import errno
import json
import os
import tempfile

import numpy as np
import pytest

import longstep as ls
from longstep.data.dataset import Split
from longstep.engine.history import History
from longstep.evaluation import evaluate as evaluation
from longstep.research.experiments import quadcopter


@pytest.fixture(scope="module")
def data():
    family = ls.Quadratic(np.diag([1.0, 3.0, 10.0]), parameter=ls.Affine(q=np.eye(3)))
    return ls.Dataset.sample(family, lambda rng: rng.normal(size=3), {"test": 37}, cache=False, progress=False)


@pytest.fixture(scope="module")
def family(data):
    return data.test.family


def test_values_equal_gradient_descent_by_hand(data, family):
    """f − f* after k steps of z − t(Pz + q), written out."""
    solver = ls.Solver(family, step=0.15)
    found = ls.evaluate(solver, data.test, 12)
    P, lam = family.P.toarray(), np.array([1.0, 3.0, 10.0])
    for i, q in enumerate(data.test.parameters):
        z, best = np.zeros(3), -0.5 * np.sum(q**2 / lam)
        for k in range(13):
            assert found.values[i, k] == pytest.approx(0.5 * z @ P @ z + q @ z - best, rel=1e-9, abs=1e-14)
            z = z - 0.15 * (P @ z + q)
    assert found.metric == "suboptimality"
    assert found.split == "test"
    assert found.seconds > 0
    assert not found.safeguarded.any()


class Given:
    """A method whose errors are known."""

    name = "given"

    def __init__(self, family, errors):
        self.family, self.errors = family, errors

    def run(self, parameters, count):
        N = len(parameters)
        errors = self.errors[:N, : count + 1]
        zero = np.zeros_like(errors)
        return History(errors, zero, errors, zero, zero, zero, zero, zero, zero, safeguarded=np.arange(N) == 1)

    def seconds(self, parameters, count):
        return np.full(len(parameters), 2e-6 * count)

    def content_hash(self):
        return "given"


def given(data, errors):
    errors = np.asarray(errors, float)
    split = data.test.select(range(len(errors)))
    return ls.evaluate(Given(data.test.family, errors), split, errors.shape[1] - 1, metric="residual")


def test_statistics_by_hand(data):
    found = given(data, [[1.0, 1e-2, 0.0], [4.0, 1e-4, 1e-3], [2.0, np.nan, 1e-1], [8.0, 1e-6, 1e-2]])
    assert found.geometric_mean[0] == pytest.approx(64**0.25)
    assert found.geometric_mean[1] == np.inf
    assert found.geometric_mean[2] == pytest.approx((1e-16 * 1e-3 * 1e-1 * 1e-2) ** 0.25)
    assert found.maximum.tolist() == [8.0, np.inf, 1e-1]
    assert found.median.tolist() == [2.0, 1e-4, 1e-3]
    assert found.quantile(0.75).tolist() == [4.0, 1e-2, 1e-2]
    assert found.quantile(0.76).tolist() == [8.0, np.inf, 1e-1]
    assert found.safeguarded.tolist() == [False, True, False, False]
    assert found.seconds == pytest.approx(4e-6)
    assert json.loads(json.dumps(found.to_json()))["curves"]["maximum"] == [8.0, None, 1e-1]


def test_reached_counts_first_touch_and_stay(data):
    found = given(data, [[0.9, 0.9e-2, 1e-1, 1e-3, 0.9e-4]])
    assert found.reached(1e-2) == (1, 3)
    assert found.reached(1.0) == (0, 0)
    assert found.reached(1e-4) == (4, 4)
    assert found.reached(1e-5) == (None, None)
    assert given(data, [[1.0, 1e-3, 1.0]]).reached(1e-2) == (1, None)
    assert found.reached(1e-2, found.maximum) == (1, 3)


@pytest.mark.parametrize("chunk", [1, 10, 36, 37, 512])
def test_chunks_do_not_matter(data, family, chunk):
    whole, parts = (ls.evaluate(ls.Solver(family), data.test, 5, timed=False, chunk=c) for c in (512, chunk))
    np.testing.assert_allclose(parts.values, whole.values, rtol=1e-12, atol=1e-15)
    assert parts.data_hash == whole.data_hash


def test_large_tables_live_in_a_file(data, family, monkeypatch):
    whole = ls.evaluate(ls.Solver(family), data.test, 5, timed=False)
    monkeypatch.setattr(evaluation, "_IN_MEMORY", 100)
    filed = ls.evaluate(ls.Solver(family), data.test, 5, timed=False, chunk=10)
    assert isinstance(filed.values, np.memmap)
    assert not isinstance(whole.values, np.memmap)
    np.testing.assert_allclose(filed.values, whole.values, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(filed.median, whole.median, rtol=1e-12, atol=1e-15)


def test_a_full_disk_is_told_before_a_table_is_written_to_it(data, family, monkeypatch):
    """A sparse file would take the table, and the first write that finds no room would end the process."""
    monkeypatch.setattr(evaluation, "_IN_MEMORY", 100)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(evaluation.os, "posix_fallocate", full, raising=False)
    with pytest.raises(MemoryError, match=r"37 instances over 5 iterations.*No space left.*fewer iterations or fewer"):
        ls.evaluate(ls.Solver(family), data.test, 5, timed=False)
    monkeypatch.undo()
    monkeypatch.setattr(evaluation, "_IN_MEMORY", 100)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/no/such/folder"])
    with pytest.raises(MemoryError, match="No usable temporary directory"):
        ls.evaluate(ls.Solver(family), data.test, 5, timed=False)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="files cannot be reserved")
def test_the_file_of_a_large_table_is_not_sparse(monkeypatch):
    monkeypatch.setattr(evaluation, "_IN_MEMORY", 100)
    taken = []
    reserve = evaluation._reserve

    def look(file, size):
        reserve(file, size)
        taken.append(512 * os.fstat(file).st_blocks)

    monkeypatch.setattr(evaluation, "_reserve", look)
    evaluation._allocate((100, 1000))
    assert taken[0] >= 800_000


def test_constrained_families_default_to_residuals():
    family = quadcopter.family()
    split = Split("test", family, quadcopter.sample_many(3, 0), None)
    solver = ls.Solver(family)
    found = ls.evaluate(solver, split, 4, timed=False)
    history = solver.run(split.parameters, 4)
    np.testing.assert_allclose(found.values, np.maximum(history.primal, history.dual), rtol=1e-12)
    peak = ls.evaluate(solver, split, 4, metric=lambda h, _: h.primal_max, timed=False)
    np.testing.assert_allclose(peak.values, history.primal_max, rtol=1e-12)


@pytest.mark.slow
def test_other_precision_and_equilibration_are_the_same_problem():
    split = Split("test", quadcopter.family(), quadcopter.sample_many(2, 0), None)
    for family in (quadcopter.family(equilibrate=False), quadcopter.family(dtype="float32")):
        assert ls.evaluate(ls.Solver(family), split, 1, timed=False).values.shape == (2, 2)
        assert family.content_hash() != split.family.content_hash()


def test_what_is_refused(data, family):
    solver = ls.Solver(family)
    other = ls.Quadratic(np.diag([1.0, 3.0, 11.0]), parameter=ls.Affine(q=np.eye(3)))
    with pytest.raises(ValueError, match="another problem"):
        ls.evaluate(ls.Solver(other), data.test, 3)
    with pytest.raises(ValueError, match="suboptimality needs optima"):
        ls.evaluate(solver, Split("test", family, data.test.parameters, None), 3, metric="suboptimality")
    with pytest.raises(ValueError, match="metric must be one of"):
        ls.evaluate(solver, data.test, 3, metric="speed")
    with pytest.raises(TypeError, match=r"such as dataset\.test"):
        ls.evaluate(solver, data, 3)
    with pytest.raises(ValueError, match="must give an array"):
        ls.evaluate(solver, data.test, 3, metric=lambda h, _: np.zeros(3))


def test_hashes_tell_methods_and_data_apart(data, family):
    solvers = [ls.Solver(family), ls.Solver(family, step=0.1), ls.Solver(family, step=0.1, safeguard=None)]
    assert len({s.content_hash() for s in solvers}) == 3
    assert ls.Solver(family).content_hash() == solvers[0].content_hash()
    assert data.test.content_hash() != data.test.select(range(5)).content_hash()
