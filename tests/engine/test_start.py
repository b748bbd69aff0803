"""The start from the parameter: what it is, when it is kept, and that JAX, C and files have the same."""

import dataclasses

import jax
import numpy as np
import pytest

import longstep as ls
from longstep._util.storage import FileFormatError, read, write
from longstep.algorithms.condensed import Condensed
from longstep.algorithms.osqp import OSQP
from longstep.data.dataset import Split
from longstep.engine.start import LearnedStart, Predictor
from longstep.training.instances import gather
from longstep.training.losses import Loss
from longstep.training.recipe import DEFAULT
from longstep.training.start import fit_start, regress

T, DRAWN = 6, 40


def make_controller():
    """A double integrator that is driven to rest by a bounded force; the parameter is where it is."""
    A, B = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[0.125], [0.5]])
    n = 3 * T
    rows, low, high = np.zeros((2 * T + n, n)), np.zeros(2 * T + n), np.zeros(2 * T + n)
    for t in range(T):
        rows[2 * t : 2 * t + 2, 3 * t] = -B[:, 0]
        rows[2 * t : 2 * t + 2, 3 * t + 1 : 3 * t + 3] = np.eye(2)
        if t:
            rows[2 * t : 2 * t + 2, 3 * t - 2 : 3 * t] = -A
    rows[2 * T :] = np.eye(n)
    high[2 * T :] = np.tile([0.5, 4.0, 0.8], T)
    low[2 * T :] = -high[2 * T :]
    first = np.zeros((2 * T + n, 2))
    first[:2] = A
    P = np.diag(np.tile([0.1, 1.0, 1.0], T))
    return ls.QP(P, rows, q=np.zeros(n), l=low, u=high, parameter=ls.Affine(l=first, u=first))


@pytest.fixture(scope="module")
def controller():
    family = make_controller()
    draws = np.random.default_rng(1).uniform(-1, 1, (DRAWN, 2)) * [2.0, 0.6]
    return ls.Dataset.from_parameters(family, {"train": draws}, references=["train"], cache=False, progress=False).train


@pytest.fixture(scope="module")
def trained(controller):
    options = {"algorithm": Condensed(), "horizon": 5, "block": 5, "loss": "both", "iterations": 10, "candidates": 15}
    return ls.train(controller.family, controller, metric=False, cache=False, progress=False, **options)


@pytest.fixture(scope="module")
def solver(controller, trained):
    return ls.Solver(controller.family, trained)


def predict_others(split, optima):
    """Fit a start to optima: with it come the predictions of maps that were fitted without an instance."""
    split = Split(split.name, split.family, split.parameters, optima)
    working = Condensed().prepare_family(split.family)
    instances = gather(working, Condensed(), split, None, Loss(metric=1.0), DEFAULT)
    found = fit_start(instances, split, DEFAULT)
    assert found is not None
    return found


def test_what_pays_is_kept_and_saves_steps(controller, trained, solver):
    assert trained.record["start"] == "parameter"
    fresh = np.random.default_rng(2).uniform(-1, 1, (100, 2)) * [2.0, 0.6]
    zero = ls.Solver(controller.family, dataclasses.replace(trained, start=None))
    before, after = (s.run(fresh, 1).primal[:, 1] for s in (zero, solver))
    assert np.mean(np.log(after)) < np.mean(np.log(before))
    assert solver.solve_batch(fresh, eps_abs=1e-9, eps_rel=1e-9).exact.all()


def test_a_start_is_complementary(solver):
    family = solver.family
    fresh = np.random.default_rng(3).uniform(-1, 1, (50, 2)) * [2.0, 0.6]
    point = Predictor(family, solver.start)(family.encode(fresh))
    assert point is not None
    inner = ~family.host.kinds.equality
    s, y = np.asarray(point.s)[inner], np.asarray(point.y)[inner]
    low, high = (family.host.values[name][inner][:, None] for name in "lu")
    assert (low <= s).all()
    assert (s <= high).all()
    assert (y[s < high] <= 0).all()
    assert (y[s > low] >= 0).all()
    assert (y != 0).any()


def test_where_all_sets_are_one_the_optimum_is_predicted():
    family = ls.QP(np.eye(3), np.eye(3), q=np.zeros(3), l=-np.ones(3), u=np.ones(3), parameter=ls.Affine(q=np.eye(3)))
    draws = np.random.default_rng(4).uniform([-5, -5, -0.5], [-3, -3, 0.5], (30, 3))
    data = ls.Dataset.from_parameters(family, {"train": draws}, references=["train"], cache=False, progress=False)
    start = predict_others(data.train, data.train.optima).start
    point = Predictor(family, start)(family.encode(np.array([[-4.0, -3.5, 0.25]])))
    assert point is not None
    np.testing.assert_allclose(np.asarray(point.s)[:, 0], [1, 1, -0.25], atol=1e-4)
    np.testing.assert_allclose(np.asarray(point.y)[:, 0], [3, 2.5, 0], atol=1e-3)


def test_beyond_the_training_range_it_is_that_of_the_nearest_parameter(solver):
    family = solver.family
    predict = Predictor(family, solver.start)
    far, near = (
        predict(family.encode(p[None]))
        for p in (np.array([50.0, -9.0]), solver.start.high * [1, 0] + solver.start.low * [0, 1])
    )
    inner = ~family.host.kinds.equality
    np.testing.assert_array_equal(np.asarray(far.y)[inner], np.asarray(near.y)[inner])


def test_an_instance_does_not_tell_of_itself():
    rng = np.random.default_rng(7)
    p, w = rng.normal(size=(3, 20)), rng.normal(size=(5, 20))
    recipe = dataclasses.replace(DEFAULT, start_ridges=(0.1,))
    before = regress(p, w, recipe)[2]
    w[:, 6] += 100
    after = regress(p, w, recipe)[2]
    fold = slice(4, 8)
    np.testing.assert_allclose(after[:, fold], before[:, fold], atol=1e-10)
    others = np.setdiff1d(np.arange(20), np.arange(20)[fold])
    assert (np.abs(after - before)[:, others] > 0.1).all(axis=0).any()


def test_it_is_left_out_where_parameters_tell_nothing():
    rng = np.random.default_rng(5)
    family = ls.QP(
        np.eye(4),
        np.eye(4),
        q=np.zeros(4),
        l=-np.ones(4),
        u=np.ones(4),
        parameter=ls.Affine(q=rng.normal(size=(4, 60))),
    )
    data = ls.Dataset.from_parameters(
        family, {"train": rng.normal(size=(12, 60))}, references=["train"], cache=False, progress=False
    )
    options = {"algorithm": Condensed(), "horizon": 3, "block": 3, "iterations": 3, "candidates": 5, "metric": False}
    assert ls.train(family, data.train, cache=False, progress=False, **options).record["start"] == "zero"


def test_a_warm_start_comes_before_it(solver):
    p = np.array([1.5, 0.3])
    known = solver.solve(p, eps_abs=1e-9, eps_rel=1e-9)
    warm = solver.solve(p, warm_start=known, steps=0)
    np.testing.assert_allclose(warm.x, known.x, atol=1e-8)
    assert not np.allclose(solver.solve(p, steps=0).x, known.x, atol=1e-3)


@pytest.mark.parametrize("precision", ["double", "float"])
def test_c_begins_there_too(solver, precision):
    compiled = solver.compile(precision=precision)
    fresh = np.random.default_rng(6).uniform(-1, 1, (20, 2)) * [2.5, 0.8]
    tolerance = 1e-9 if precision == "double" else 1e-3
    for steps in (0, 1, 4):
        ours, theirs = (s.solve_batch(fresh, steps=steps) for s in (solver, compiled))
        for name in ("x", "y", "s"):
            np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), atol=tolerance)


def test_it_is_saved_and_part_of_what_a_solver_is(solver, trained, tmp_path):
    path = tmp_path / "a.longstep"
    solver.save(path)
    again = ls.Solver.load(path)
    assert again.content_hash() == solver.content_hash()
    for name, array in vars(solver.start).items():
        np.testing.assert_array_equal(getattr(again.start, name), array)
    p = np.array([1.2, -0.2])
    np.testing.assert_array_equal(again.solve(p, steps=2).x, solver.solve(p, steps=2).x)
    without = ls.Solver(solver.family, dataclasses.replace(trained, start=None))
    assert without.content_hash() != solver.content_hash()


@pytest.mark.parametrize("name", ["weights", "offset", "rho", "low"])
def test_a_file_with_a_wrong_start_is_refused(solver, tmp_path, name):
    path = tmp_path / "a.longstep"
    solver.save(path)
    arrays, metadata = read(path, "solver", 1)
    arrays = dict(arrays)
    arrays[f"start.{name}"] = arrays[f"start.{name}"][:-1]
    write(path, "solver", 1, arrays, metadata)
    with pytest.raises(FileFormatError, match="start"):
        ls.Solver.load(path)


def test_what_cannot_be_is_refused(controller, trained, solver):
    options = {"cache": False, "progress": False, "start": "parameter"}
    with pytest.raises(ValueError, match="condensed form, not for OSQP"):
        ls.train(controller.family, controller, algorithm=OSQP(), **options)
    with pytest.raises(ValueError, match="optima of at least 10 instances"):
        ls.train(
            controller.family, controller.parameters, algorithm=Condensed(), horizon=2, block=2, candidates=2,
            metric=False, **options,
        )  # fmt: skip
    start = solver.start
    short = LearnedStart(start.weights[:-1], start.offset[:-1], start.rho[:-1], start.low, start.high)
    with pytest.raises(ValueError, match="weights of the start must have shape"):
        ls.Solver(controller.family, dataclasses.replace(trained, start=short))


def test_functions_begin_there_too(solver):
    fresh = np.random.default_rng(8).uniform(-1, 1, (6, 2)) * [2.0, 0.6]
    found = jax.vmap(solver.function(steps=2))(fresh)
    np.testing.assert_allclose(found.x, solver.solve_batch(fresh, steps=2).x, atol=1e-12)


def test_a_function_may_be_the_first_that_needs_the_start(solver, tmp_path):
    solver.save(tmp_path / "solver.longstep")
    loaded = ls.Solver.load(tmp_path / "solver.longstep")
    fresh = np.random.default_rng(8).uniform(-1, 1, (6, 2)) * [2.0, 0.6]
    found = jax.vmap(loaded.function(steps=2))(fresh)
    # What was made while JAX traced would be of no use here.
    np.testing.assert_allclose(found.x, loaded.solve_batch(fresh, steps=2).x, atol=1e-12)
