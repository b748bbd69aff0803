"""One call from samples to a solver: what it takes, how it splits, what it says and refuses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

import longstep as ls
from longstep import learning
from longstep._util import effort, memory
from longstep._util.memory import measure_available
from longstep.certificates.certificate import least_validation
from longstep.certificates.sample import quantile_bounds
from longstep.data import reference_solvers
from longstep.data.division import divide_samples, share_samples
from longstep.data.optima import require
from longstep.data.tables import write_table
from longstep.engine.forecast import forecast
from longstep.errors import CertificateError
from longstep.evaluation.evaluate import _may_be_chance, find_trained
from longstep.families import constrained, equilibration
from longstep.families.convexity import check_convex
from longstep.families.equilibration import ruiz
from longstep.families.parameter_range import Seen
from longstep.learning import _find_references
from longstep.linalg.systems import structure

from .helpers import random_qp

QUICK = {"horizon": 5, "block": 5, "iterations": 3, "candidates": 4, "cache": False, "progress": False}
SIZES = {"train": 8, "validation": 330, "test": 8}


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
    assert solver.finish == report.training.record["finish"]
    assert re.search(r"Exact to rounding after \d+ steps and at most \d+ changes .*: 8 of 8 test", str(report))
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
    assert ls.Schedule.from_json((tmp_path / "report" / "schedule.json").read_text()) == solver.schedule
    assert isinstance(json.loads((tmp_path / "report" / "schedule.json").read_text()), dict)
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
    model, values = ls.from_cvxpy(problem), past(30)
    x = model.stack(values)
    splits, _ = divide_samples(model.family, x, None, None, 0)
    np.testing.assert_array_equal(splits["train"], x[:24])
    np.testing.assert_array_equal(splits["test"], x[24:])
    _, report = ls.learn(model, values, sizes={"train": 4}, **QUICK)
    np.testing.assert_array_equal(report.data.train.parameters, x[[0, 8, 15, 23]])
    assert report.certificate is None
    assert "rarely independent" in str(report)


@pytest.mark.slow
def test_past_data_that_are_independent_are_shuffled_and_certified(problem, tmp_path):
    model = ls.from_cvxpy(problem)
    x = model.stack(past(900))
    path = tmp_path / "past.csv"
    write_table(path, dict(zip(model.columns, np.vstack([x, x[:7]]).T, strict=True)))
    solver, report = ls.learn(model, path, iid=True, sizes={"train": 5}, **QUICK)
    # All 907: without the repetitions they would not be draws from the distribution any more.
    assert [len(split) for split in report.data] == [5, 721, 181]
    together = np.concatenate([split.parameters for split in report.data])
    np.testing.assert_array_equal(np.sort(together[:, 0]), np.sort(np.vstack([x, x[:7]])[:, 0]))
    assert not np.array_equal(report.data.train.parameters, x[:5])
    (note,) = report.notes
    assert note.startswith("Exact to rounding after")
    report.certificate.verify(solver, report.data.validation)


@pytest.mark.slow
def test_too_few_validation_instances_are_told(problem):
    _, report = ls.learn(problem, sample, sizes=SIZES | {"validation": 100}, **QUICK)
    # A claim of exactness takes its share of the confidence.
    least = least_validation(5, finish=True)
    assert report.certificate is None
    assert report.notes[-1] == f"No certificate: it takes {least} validation instances, and there are 100."
    # Without a single violation, and not with one instance less.
    for count, found in ((least_validation(5), True), (least_validation(5) - 1, False)):
        upper, _ = quantile_bounds(np.full((count, 5), 1e-5), 0.975, 0.003 / (2 * 5))
        assert np.isfinite(upper).all() == found


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
        ((past(3),), {}, "there are 3 samples; learning needs at least 4"),
        ((past(20),), {"sizes": {"train": 30}}, "20 samples do not make 30 for training"),
        ((past(20),), {"sizes": {"train": 4, "validation": 4}}, "with iid=True .* only"),
        (({"c": np.zeros((20, 3))},), {}, "'low' has no value"),
        (
            ({"c": np.zeros((20, 3)), "lwo": np.zeros(20)},),
            {},
            "'lwo' is no parameter of this problem; .* c, low; did you mean 'low'",
        ),
        ((lambda: {"c": np.zeros(3), "low": 0.0},), {}, r"sampler <lambda>\(\) cannot be called .*def sample\(rng\)"),
        ((lambda rng, size: rng.normal(size=size),), {}, r"sampler <lambda>\(rng, size\) cannot be called"),
        ((past(20),), {"columns": "position"}, "these samples are no file"),
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
    parts, _ = share_samples(count, 100, {}, iid)
    assert sum(parts.values()) <= count
    assert min(parts.values()) >= 1
    assert ("validation" in parts) <= iid
    if iid:
        assert sum(parts.values()) == count


@pytest.mark.parametrize("draw", ["uniform", "standard_normal", "standard_cauchy"])
@pytest.mark.parametrize("entries", [1, 12, 60])
@pytest.mark.parametrize("N", [2, 10, 20])
def test_what_training_saw_flags_one_in_n_by_chance(draw, entries, N):
    rng = np.random.default_rng([entries, N, *draw.encode()])
    # One further draw for each set: by symmetry it is the farthest with probability 1/(N + 1).
    sets = 3000
    both = getattr(rng, draw)(size=(sets, entries, N + 1))
    found = [Seen.of(values[:, :N]).find_outside(values[:, N]) for values in both]
    assert stats.binomtest(int(np.sum(found)), sets, 1 / (N + 1)).pvalue > 1e-4
    far = np.zeros(entries)
    far[0] = 1e12
    assert Seen.of(both[0][:, :N]).find_outside(far)


def test_entries_that_rarely_change_do_not_flag_everything():
    """A hundred switches, each on in one draw of a hundred: most further draws have one on that no other had."""
    rng = np.random.default_rng(0)
    N, sets = 10, 1000
    both = (rng.random(size=(sets, 100, N + 1)) < 0.01).astype(float)
    found = [Seen.of(values[:, :N]).find_outside(values[:, N]) for values in both]
    assert np.mean(found) < 2 / (N + 1)


def test_what_0_1_kept_of_training_is_read():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 20))
    low, high = values.min(axis=1), values.max(axis=1)
    seen = Seen.of_box(low, high, 0.25)
    width = high - low
    first = np.array([1, 0, 0])
    middle = (low + high) / 2
    assert not seen.find_outside(np.where(first, high + 0.24 * width, middle))
    assert seen.find_outside(np.where(first, high + 0.26 * width, middle))


def test_what_training_saw_of_bounds_and_constants():
    seen = Seen.of({"l": np.array([[-np.inf] * 4, [0.0] * 4]), "q": np.array([[1.0, 2.0, 3.0, 4.0]])})
    inside = {"l": np.array([-np.inf, 0.0]), "q": np.array([2.5])}
    assert not seen.find_outside(inside)
    assert seen.find_outside(inside | {"l": np.array([-5.0, 0.0])})
    assert seen.find_outside(inside | {"l": np.array([-np.inf, 1e-3])})
    assert seen.find_outside(inside | {"q": np.array([50.0])})


def test_forecast_counts_factors_and_refuses_what_does_not_fit(monkeypatch):
    family = qp_family()
    expected = forecast(family, 10, horizon=20)
    default = ls.Solver(family).schedule.steady
    varying = {name: np.full(20, value) for name, value in default.items()} | {"rho_ineq": np.arange(1.0, 21.0)}
    solver = ls.Solver(family, ls.Schedule(varying, default))
    factors = solver.plan.factors.inverse
    assert expected.factors == factors.size * factors.dtype.itemsize
    assert forecast(family, 10, horizon=20, factorizations=3).factors == expected.factors / 7
    monkeypatch.setattr("longstep._util.memory.measure_available", lambda: 1000)
    with pytest.raises(MemoryError, match=r"21 factors of \d+×\d+ needs .* KiB, more than the 900 bytes"):
        expected.check()
    with pytest.raises(MemoryError, match=r"a family with \d+ unknowns, whose factors are dense .* Eliminate unknowns"):
        qp_family()


def test_smooth_families_with_parameters_of_several_parts_know_what_they_saw():
    family = ls.Smooth(lambda z, x: 0.5 * x["b"] * ((z - x["a"]) ** 2).sum(), n=3, lipschitz=2.0, strong_convexity=1.0)
    rng = np.random.default_rng(0)
    parameters = {"train": {"a": rng.normal(size=(6, 3)), "b": rng.uniform(1, 2, size=6)}}
    data = ls.Dataset.from_parameters(family, parameters, references=["train"], cache=False, progress=False)
    training = ls.train(family, data, horizon=1, block=1, cache=False, progress=False)
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
    data, loss = _find_references(family, parameters, notes, cache=False, progress=False)
    assert (loss, notes) == ("both", [])
    assert data.train.optima is not None
    monkeypatch.setattr(reference_solvers, "require", lambda optimum, accuracy, what: require(optimum, -1.0, what))
    data, loss = _find_references(family, parameters, notes, cache=False, progress=False)
    assert loss == "metric"
    assert data.train.optima is None
    assert len(notes) == 1
    assert notes[0].startswith("Trained by residuals alone: the reference optimum of instance")


def test_independent_samples_are_never_left_out():
    """2500 draws of which 40% are one hard value: without its repetitions it would hardly be seen."""
    rng = np.random.default_rng(0)
    hard = rng.random(2500) < 0.4
    samples = np.where(hard[:, None], 7.0, rng.normal(size=(2500, 2)))
    family = ls.Quadratic(np.diag([1.0, 4.0]), parameter=ls.Affine(q=np.eye(2)))
    splits, notes = divide_samples(family, samples, None, True, 0)
    assert sum(len(values) for values in splits.values()) == 2500
    assert np.mean(splits["validation"][:, 0] == 7.0) == pytest.approx(0.4, abs=0.05)
    assert notes == []
    data = ls.Dataset.from_parameters(family, splits, iid=True, references=False)
    with pytest.raises(ValueError, match="take out nothing and say iid=True"):
        ls.Dataset.from_parameters(family, splits, references=False)
    solver = ls.Solver(family, step=0.1)
    solver.record = {"instance_hashes": data.train.instance_hashes()}
    found = ls.certify(solver, data.validation, 10, metric="residual")
    worst = np.linalg.norm(solver.solve({"q": [7.0, 7.0]}, steps=10).x + 7.0 / np.array([1.0, 4.0]))
    assert found.claims[0].tolerance > 0.1 * worst
    # What is not known to be independent may be the very data that were trained on.
    with pytest.raises(CertificateError, match="To leave out just these would not do"):
        ls.certify(solver, replace(data.validation, independent=False), 10, metric="residual")
    # Rounded numbers may coincide now and then; more than that is no chance.
    for repeated, told in ((3, 0), (5, 5), (40, 40)):
        splits = {"train": rng.normal(size=(40, 2)), "validation": rng.normal(size=(600, 2))}
        splits["validation"][:repeated] = splits["train"][:repeated]
        data = ls.Dataset.from_parameters(family, splits, iid=True, references=False)
        solver.record = {"instance_hashes": data.train.instance_hashes()}
        assert len(find_trained(solver, data.validation)) == told
    # Past data in their order lose their repetitions, which are told.
    splits, notes = divide_samples(family, samples, None, None, 0)
    assert sum(len(values) for values in splits.values()) <= 1 + np.sum(~hard)
    assert "repeat others: left out" in notes[0]


def check_draws(train, validation):
    """The number of validation instances that are called trained, of what is said to be independent."""
    splits = {"train": np.asarray(train, float), "validation": np.asarray(validation, float)}
    family = ls.Quadratic(np.eye(1), parameter=ls.Affine(q=np.eye(1)))
    data = ls.Dataset.from_parameters(family, splits, iid=True, references=False)
    solver = ls.Solver(family)
    solver.record = {"instance_hashes": data.train.instance_hashes()}
    return len(find_trained(solver, data.validation))


@pytest.mark.parametrize("repeated", [0, 1, 40])
def test_copies_of_the_training_instances_are_told_although_some_repeat_themselves(repeated):
    """400 of them and one twice were certified as 401 unseen instances."""
    rng = np.random.default_rng(repeated)
    train = rng.normal(size=(400, 1))
    assert check_draws(train, np.vstack([train, train[:repeated]])) == 400 + repeated
    # Half of them, and a value in two fifths of all rows of both.
    train[rng.random(400) < 0.4] = 7.0
    fresh = np.where(rng.random((400, 1)) < 0.4, 7.0, rng.normal(size=(400, 1)))
    assert check_draws(train, np.vstack([train[:200], fresh, fresh[:repeated]])) > 200


@pytest.mark.parametrize("trained", [10, 100, 400])
def test_honest_draws_of_discrete_distributions_are_not_taken_for_copies(trained):
    """Values from two to thousands, equally likely or not; the rule lets one of a thousand fail."""
    draws = (
        lambda rng, count: rng.integers(0, 2, count),
        lambda rng, count: rng.integers(0, 50, count),
        lambda rng, count: rng.integers(0, 3000, count),
        lambda rng, count: rng.geometric(0.1, count),
        lambda rng, count: rng.zipf(1.5, count),
        lambda rng, count: rng.normal(size=count).round(1),
        lambda rng, count: np.where(rng.random(count) < 0.4, 7.0, rng.normal(size=count)),
    )
    refused = 0
    for seed in range(40):
        for k, draw in enumerate(draws):
            rng = np.random.default_rng([trained, seed, k])
            train, validation = (draw(rng, count).astype(str).tolist() for count in (trained, 330))
            found = len([value for value in validation if value in set(train)])
            refused += found > 0 and not _may_be_chance(train, validation, found)
    assert refused == 0
    # As many copies are told, unless there are so few values that draws look like copies.
    draw = draws[2]
    train = draw(np.random.default_rng(0), max(trained, 20)).astype(str).tolist()
    assert not _may_be_chance(train, 2 * train, 2 * len(train))


@pytest.mark.slow
def test_single_precision_learns_a_portfolio_with_slacks():
    """19 unknowns, P singular: learned penalties of 1e5 made its linear systems singular."""
    rng = np.random.default_rng(0)
    x, f, t = (cp.Variable(size, name=name) for name, size in (("x", 10), ("f", 4), ("t", 5)))
    mu = cp.Parameter(10, name="mu")
    cost = cp.sum_squares(f) + 0.1 * cp.sum_squares(x) - mu @ x + 0.05 * cp.sum(t)
    rows = [f == rng.normal(size=(4, 10)) @ x, cp.sum(x) == 1, x >= 0, x <= 0.5, t >= x[:5] - 0.1, t >= 0.1 - x[:5]]
    sizes = {"train": 20, "validation": 0, "test": 20}
    solver, _ = ls.learn(
        cp.Problem(cp.Minimize(cost), rows), lambda rng: {"mu": rng.normal(size=10)}, dtype="float32", sizes=sizes,
        horizon=20, cache=False, progress=False,
    )  # fmt: skip
    assert solver.solve({"mu": rng.normal(size=10)}, eps_abs=1e-3, eps_rel=1e-3).solved


def test_memory_is_what_is_free(monkeypatch):
    kilobytes = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text()).group(1))
    assert measure_available() <= 1.2 * 1024 * kilobytes
    monkeypatch.setattr(memory, "_measure_free", lambda: [2**20])
    with pytest.raises(MemoryError, match=r"needs 2 MiB, more than the 922 KiB that are free"):
        memory.require(2**21, "this", "")


def test_long_work_is_told_beforehand(caplog, monkeypatch):
    monkeypatch.setattr(effort, "LONG_SECONDS", 0.0)
    with caplog.at_level("INFO", "longstep"):
        ls.Solver(qp_family())
    assert "longstep makes 9 factors of" in caplog.text  # the ladder's


def test_making_a_large_family_is_told_beforehand(caplog, monkeypatch):
    n = 40
    root = np.random.default_rng(0).normal(size=(n, n))
    with caplog.at_level("INFO", "longstep"):
        ls.QP(root @ root.T, np.eye(n))
        assert not caplog.text
        monkeypatch.setattr(effort, "LONG_SECONDS", 0.0)
        monkeypatch.setattr(constrained, "check_convex", lambda name, matrix: caplog.records[0])  # told before it
        ls.QP(root @ root.T, np.eye(n))
    assert "longstep checks and scales a family with 40 unknowns, which takes" in caplog.text
    matrices = sp.csr_array(np.ones((4000, 4000))), sp.csr_array(sp.eye_array(4000))
    assert 10 < constrained._estimate(*matrices) < 100
    caplog.clear()
    with caplog.at_level("INFO", "longstep"):
        monkeypatch.setattr(np.linalg, "eigvalsh", lambda matrix: caplog.records[0] and np.ones(n))
        ls.Quadratic(root @ root.T)
    assert "longstep computes the eigenvalues of P, 40×40, which takes" in caplog.text


def test_looking_for_a_sparse_factor_is_told_beforehand(caplog, monkeypatch, sparse_factors):
    monkeypatch.setattr(structure, "_MANY", 10)
    with caplog.at_level("INFO", "longstep"):
        ls.QP(sp.eye_array(20), sp.eye_array(20, k=1) + sp.eye_array(20))
    assert "longstep looks for a sparse factor of a family with 20 unknowns and 20 rows" in caplog.text


@pytest.mark.parametrize("rows", [0, 7, 30])
def test_dense_matrices_are_scaled_as_sparse_ones(rows, monkeypatch):
    rng = np.random.default_rng(0)
    root, A = rng.normal(size=(20, 20)), rng.normal(size=(rows, 20)) * 10.0 ** rng.integers(-6, 6, (rows, 1))
    P, blocks = root @ root.T, np.arange(rows) // 3
    matrices = [sp.csr_array(M) for M in (P, A)]
    dense = ruiz(*matrices, blocks, P[0])
    monkeypatch.setattr(equilibration, "is_dense", lambda matrix: False)
    for found, expected in zip(dense, ruiz(*matrices, blocks, P[0]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("density", [0.001, 0.5])
def test_large_matrices_are_checked_without_their_eigenvalues(density):
    n, rng = 1010, np.random.default_rng(0)
    root = sp.random_array((n, n), density=density, rng=rng)
    P = sp.csr_array(root @ root.T)
    check_convex("P", P)
    bent = sp.csr_array(P - 0.01 * float(abs(P).max()) * sp.diags_array((np.arange(n) == 5).astype(float) * 10))
    least = np.linalg.eigvalsh(bent.toarray())[0]
    assert least < -1e-3 * float(abs(P).max())
    with pytest.raises(ValueError, match="P is indefinite"):
        check_convex("P", bent)


def test_training_instances_without_a_solution_are_left_out():
    family = ls.QP(np.eye(2), np.vstack([np.eye(2), np.eye(2)]), q=np.zeros(2), l=np.zeros(4), u=np.ones(4))
    u = np.ones((6, 4))
    u[2, 2:] = -1.0
    l = np.where(u < 0, -2.0, 0.0)
    notes, parameters = [], {"train": {"q": np.random.default_rng(0).normal(size=(6, 2)), "l": l, "u": u}}
    data, _ = _find_references(family, parameters, notes, iid=True, cache=False, progress=False)
    assert len(data.train) == 5
    assert notes[0].startswith("1 of 6 training instances have no solution and were left out")


@pytest.mark.parametrize(("place", "kept"), [(1, "the best constant"), (3, "the defaults")])
def test_what_is_kept_need_not_be_learned(place, kept, problem, monkeypatch):
    if kept == "the defaults":
        # The finish makes all of these exact at once, and they would not be looked at.
        monkeypatch.setattr(learning, "try_first", lambda solver, parameters: solver.solve_batch(parameters, steps=1))
    monkeypatch.setattr(learning, "choose_solver", lambda solvers, parameters: place)
    solver, report = ls.learn(problem, past(12), **QUICK)
    assert (report.training.kept, report.training.record["kept"]) == (kept, kept)
    assert len(solver.schedule) == 0
    assert [e.name for e in report.evaluations][1:] == ["best constant", "defaults"]
    assert report.costs is not None
    assert "no learned schedule is better" in report.costs.verdict or "package" in report.costs.verdict
    assert solver.solve({"c": [1.0, -2.0, 0.5], "low": -1.2}).solved


@pytest.mark.parametrize(("wrong", "right"), [("horizn", "horizon"), ("iterationz", "iterations")])
def test_a_misspelt_option_is_told_by_learn(problem, wrong, right):
    message = rf"learn\(\) got an unexpected keyword argument '{wrong}'; did you mean '{right}'\?"
    with pytest.raises(TypeError, match=message):
        ls.learn(problem, past(12), **{wrong: 10})
