"""One call from samples to a solver: what it takes, how it splits, what it says and refuses."""

import json

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.certificates.certificate import least_validation
from longstep.certificates.sample import TOLERANCES, quantile_curves
from longstep.families import reference
from longstep.families.optima import require
from longstep.families.seen import Seen
from longstep.families.tables import write_table
from longstep.forecast import forecast
from longstep.learn import _referenced, _shared

from .helpers import random_qp

QUICK = {"horizon": 5, "block": 5, "iterations": 3, "candidates": 4, "cache": False, "progress": False}
SIZES = {"train": 4, "validation": 700, "test": 8}


@pytest.fixture(scope="module")
def problem():
    x = cp.Variable(3, name="x")
    c, low = cp.Parameter(3, name="c"), cp.Parameter(name="low")
    weights = np.diag([1.0, 2.0, 5.0])
    return cp.Problem(cp.Maximize(-cp.sum_squares(weights @ x) - c @ x), [x >= low, cp.sum(x) == 1])


def sample(rng):
    return {"c": rng.normal(size=3), "low": -1 - rng.uniform()}


def past(count, seed=0):
    rng = np.random.default_rng(seed)
    return {"c": rng.normal(size=(count, 3)), "low": -1 - rng.uniform(size=count)}


def qp_family():
    P, q, A, l, u = random_qp(0)
    return ls.QP(P, A, q=q, l=l, u=u)


@pytest.fixture(scope="module")
def learned(problem):
    return ls.learn(problem, sample, sizes=SIZES, **QUICK)


def test_from_a_sampler(problem, learned, tmp_path):
    solver, report = learned
    assert {split.name: len(split) for split in report.data} == SIZES
    assert [e.name for e in report.evaluations] == ["learned", "best constant", "defaults"]
    assert report.certificate is not None
    report.certificate.verify(solver, report.data.validation)
    assert "unseen instances" in str(report)
    values = {"c": [1.0, -2.0, 0.5], "low": -1.2}
    solution = solver.solve(values, eps_abs=1e-9, eps_rel=1e-9)
    for name, value in values.items():
        problem.param_dict[name].value = np.asarray(value)
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(solution.variables["x"], problem.var_dict["x"].value, atol=1e-5)
    solver.save(tmp_path / "a.longstep")
    again = ls.Solver.load(tmp_path / "a.longstep").solve(values, eps_abs=1e-9, eps_rel=1e-9)
    np.testing.assert_array_equal(again.variables["x"], solution.variables["x"])
    assert again.outside == solution.outside
    written = {path.name for path in report.save(tmp_path / "report")}
    assert {"table.md", "report.json", "schedule.json", "certificate.json", "convergence.png"} <= written
    assert json.loads((tmp_path / "report" / "report.json").read_text())["instances"] == SIZES


def test_named_and_stacked_parameters_are_the_same(learned):
    solver, report = learned
    values = past(5)
    named, stacked = solver.solve_batch(values), solver.solve_batch(report.model.stack(values))
    each = [{"c": c, "low": low} for c, low in zip(values["c"], values["low"], strict=True)]
    listed = solver.solve_batch(each)
    for other in (stacked, listed):
        np.testing.assert_array_equal(named.x, other.x)
    np.testing.assert_array_equal(named.variables["x"][3], named[3].variables["x"])
    np.testing.assert_array_equal(solver.solve(each[0]).x, solver.solve(report.model.stack(each[0])).x)
    with pytest.raises(ValueError, match="the values of 5 instances, where those of one"):
        solver.solve(values)
    with pytest.raises(ValueError, match="leading axis of instances"):
        solver.solve_batch(each[0])


def test_past_data_keep_their_order_and_have_no_certificate(problem):
    values = past(30)
    _, report = ls.learn(problem, values, **QUICK)
    x = report.model.stack(values)
    np.testing.assert_array_equal(report.data.train.parameters, x[:24])
    np.testing.assert_array_equal(report.data.test.parameters, x[24:])
    _, report = ls.learn(problem, values, sizes={"train": 3}, **QUICK)
    np.testing.assert_array_equal(report.data.train.parameters, x[[0, 12, 23]])
    assert report.certificate is None
    assert "rarely independent" in str(report)


@pytest.mark.slow
def test_past_data_that_are_independent_are_shuffled_and_certified(problem, tmp_path):
    model = ls.from_cvxpy(problem)
    x = model.stack(past(900))
    path = tmp_path / "past.csv"
    write_table(path, dict(zip(model.columns, np.vstack([x, x[:7]]).T, strict=True)))
    solver, report = ls.learn(model, path, iid=True, sizes={"train": 5}, **QUICK)
    assert [len(split) for split in report.data] == [5, 715, 180]
    together = np.concatenate([split.parameters for split in report.data])
    np.testing.assert_array_equal(np.sort(together[:, 0]), np.sort(x[:, 0]))
    assert not np.array_equal(report.data.train.parameters, x[:5])
    assert report.notes == ["7 of 907 samples repeat others: left out."]
    report.certificate.verify(solver, report.data.validation)


@pytest.mark.slow
def test_too_few_validation_instances_are_told(problem):
    _, report = ls.learn(problem, sample, sizes=SIZES | {"validation": 100}, **QUICK)
    least = least_validation(5)
    assert report.certificate is None
    assert report.notes == [f"No certificate: it takes {least} validation instances, and there are 100."]
    # Without a single violation, and not with one instance less.
    for count, found in ((least, True), (least - 1, False)):
        curves = quantile_curves(np.full((count, 5), 1e-5), delta=0.003 / (2 * TOLERANCES.size), joint=5)
        assert np.isfinite(curves.upper).all() == found


def test_a_family_without_names(tmp_path):
    family = ls.Quadratic(np.diag([1.0, 4.0]), parameter=ls.Affine(q=np.eye(2)))
    rng = np.random.default_rng(0)
    path = tmp_path / "past.npz"
    np.savez(path, x=rng.normal(size=(12, 2)))
    solver, report = ls.learn(family, path, **QUICK)
    assert report.evaluations[0].measure.startswith("f − f*")
    assert not solver.solve(report.data.train.parameters[0]).outside
    with pytest.raises(AttributeError, match="have no names"):
        solver.solve([0.1, 0.1]).variables  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((sample,), {"sizes": {"tests": 3}}, "the splits are train, validation and test"),
        ((sample,), {"iid": False}, "a sampler draws independent parameters"),
        ((past(3),), {}, "there are 3 distinct samples; learning needs at least 4"),
        ((past(20),), {"sizes": {"train": 30}}, "20 distinct samples do not make 30 for training"),
        ((past(20),), {"sizes": {"train": 4, "validation": 4}}, "with iid=True .* only"),
        (({"c": np.zeros((20, 3))},), {}, "'low' has no value"),
    ],
)
def test_refusals(problem, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        ls.learn(problem, *arguments, **(QUICK | options))


def test_options_of_a_problem_are_not_a_familys():
    with pytest.raises(ValueError, match="this family has them already"):
        ls.learn(qp_family(), sample, form="qp")


@pytest.mark.parametrize("iid", [False, True])
@pytest.mark.parametrize("count", [4, 5, 7, 30, 1000, 5000])
def test_all_samples_are_used_once(count, iid):
    parts, _ = _shared(count, 100, {}, iid)
    assert sum(parts.values()) <= count
    assert min(parts.values()) >= 1
    assert ("validation" in parts) <= iid
    if iid:
        assert sum(parts.values()) == count


@pytest.mark.parametrize("draw", ["uniform", "standard_normal", "standard_cauchy"])
@pytest.mark.parametrize("entries", [1, 12, 60])
def test_what_training_saw_flags_one_in_n_by_chance(draw, entries):
    rng = np.random.default_rng([entries, *draw.encode()])
    N, sets = 20, 300
    rates = []
    for _ in range(sets):
        seen = Seen.of(getattr(rng, draw)(size=(entries, N)))
        rates.append(np.mean(seen.outside(getattr(rng, draw)(size=(entries, 100)))))
    assert np.mean(rates) < 1.5 / N
    far = np.zeros(entries)
    far[0] = 1e12
    assert seen.outside(far)


def test_what_training_saw_of_bounds_and_constants():
    seen = Seen.of({"l": np.array([[-np.inf] * 4, [0.0] * 4]), "q": np.array([[1.0, 2.0, 3.0, 4.0]])})
    inside = {"l": np.array([-np.inf, 0.0]), "q": np.array([2.5])}
    assert not seen.outside(inside)
    assert seen.outside(inside | {"l": np.array([-5.0, 0.0])})
    assert seen.outside(inside | {"l": np.array([-np.inf, 1e-3])})
    assert seen.outside(inside | {"q": np.array([50.0])})


def test_forecast_counts_factors_and_refuses_what_does_not_fit(monkeypatch):
    family = qp_family()
    expected = forecast(family, 10, horizon=20)
    default = ls.Solver(family).schedule.steady
    varying = {name: np.full(20, value) for name, value in default.items()} | {"rho_ineq": np.arange(1.0, 21.0)}
    solver = ls.Solver(family, ls.Schedule(varying, default))
    factors = solver.plan.factors.inverse
    assert expected.factors == factors.size * factors.dtype.itemsize
    assert forecast(family, 10, horizon=20, factorizations=3).factors == expected.factors / 7
    monkeypatch.setattr("longstep.memory.available", lambda: 1000)
    with pytest.raises(MemoryError, match=r"21 factors of \d+×\d+ needs .* KiB, more than the 900 bytes"):
        expected.check()
    with pytest.raises(MemoryError, match="longstep is for problems of up to some thousands of unknowns"):
        qp_family()


def test_smooth_families_with_parameters_of_several_parts_know_what_they_saw():
    family = ls.Smooth(lambda z, x: 0.5 * x["b"] * ((z - x["a"]) ** 2).sum(), n=3, lipschitz=2.0, strong_convexity=1.0)
    rng = np.random.default_rng(0)
    parameters = {"train": {"a": rng.normal(size=(6, 3)), "b": rng.uniform(1, 2, size=6)}}
    data = ls.Dataset.from_parameters(family, parameters, references=["train"], cache=False, progress=False)
    training = ls.train(family, data, horizon=2, block=1, cache=False, progress=False)
    solver = ls.Solver(family, training)
    batch = solver.solve_batch({"a": np.array([[0.0, 0, 0], [0, 100, 0], [0, 0, 0]]), "b": np.array([1.5, 1.5, 50])})
    assert batch.outside.tolist() == [False, True, True]
    assert solver.solve({"a": np.zeros(3), "b": 50.0}).outside


def test_without_trusted_optima_residuals_are_trained_on(monkeypatch):
    """Clarabel does not bring every cone program to the accuracy that references have."""
    P, q, A, l, u = random_qp(0)
    family = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(len(q))))
    parameters = {"train": np.zeros((2, len(q))), "test": np.ones((2, len(q)))}
    notes = []
    data, loss = _referenced(family, parameters, notes, cache=False, progress=False)
    assert (loss, notes) == ("both", [])
    assert data.train.optima is not None
    monkeypatch.setattr(reference, "require", lambda optimum, accuracy, what: require(optimum, -1.0, what))
    data, loss = _referenced(family, parameters, notes, cache=False, progress=False)
    assert loss == "metric"
    assert data.train.optima is None
    assert len(notes) == 1
    assert notes[0].startswith("Trained by residuals alone: the reference optimum of instance")
