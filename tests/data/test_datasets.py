"""Datasets and reference optima: trusted, cached, resumable, refused where inaccurate."""

import cvxpy as cp
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
import scipy.optimize

import longstep as ls
from longstep.data import optima, reference_solvers
from longstep.data import references as reference
from longstep.errors import InaccurateReferenceError
from longstep.research.experiments import quadcopter

from ..helpers import CONES, random_conic, random_qp

QUIET = {"jobs": 1, "progress": False}


def lasso(m, n, weight, seed=0):
    A = np.random.default_rng(seed).normal(size=(m, n)) / np.sqrt(m)
    return A, ls.Composite(ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), ls.L1(weight))


def test_splits_have_streams_of_their_own():
    family = ls.Quadratic(np.eye(3), parameter=ls.Affine(q=np.eye(3)))

    def draw(**sizes):
        return ls.Dataset.sample(family, lambda rng: rng.normal(size=3), sizes, seed=5, references=False)

    small, large = draw(train=4, test=3), draw(test=6, train=4, validation=2)
    np.testing.assert_array_equal(small.train.parameters, large.train.parameters)
    np.testing.assert_array_equal(small.test.parameters, large.test.parameters[:3])
    assert small.train.content_hash() == large.train.content_hash()
    assert small.test.content_hash() != large.test.content_hash()
    assert len(large["validation"]) == 2
    assert repr(small) == "Dataset(train: 4, test: 3)"
    other = ls.Dataset.sample(family, lambda rng: rng.normal(size=3), {"train": 4}, seed=6, references=False)
    assert not np.array_equal(other.train.parameters, small.train.parameters)


def test_named_parameters_can_be_sampled():
    P, q, A, l, u = random_qp(0)
    family = ls.QP(P, A, q=q, l=l, u=u)
    data = ls.Dataset.sample(family, lambda rng: {"q": rng.normal(size=12)}, {"train": 3}, cache=False, **QUIET)
    solution = ls.Solver(family).solve_batch(data.train.parameters, eps_abs=1e-8, eps_rel=1e-8)
    np.testing.assert_allclose(solution.objective, data.train.optima.value, atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_qp_optima_satisfy_the_kkt_conditions(seed):
    P, q, A, l, u = random_qp(seed, n=20, equalities=5, inequalities=25, free=2)
    o = ls.solve_references(ls.QP(P, A, q=q, l=l, u=u), [{}], cache=False, **QUIET)
    x, y, z = o.x[0], o.y[0], A @ o.x[0]
    assert np.max(np.abs(P @ x + q + A.T @ y)) < 1e-10
    assert np.all(z >= l - 1e-10)
    assert np.all(z <= u + 1e-10)
    assert np.all((y <= 1e-10) | (np.abs(z - u) < 1e-9))
    assert np.all((y >= -1e-10) | (np.abs(z - l) < 1e-9))
    np.testing.assert_allclose(o.s[0], z)
    assert o.value[0] == pytest.approx(0.5 * x @ P @ x + q @ x)


@pytest.mark.parametrize("kind", CONES)
def test_conic_optima_agree_with_cvxpy(kind):
    """The rows of a semidefinite cone are in another order in Clarabel: CVXPY states the problem by itself."""
    cones = CONES[kind]
    P, A, b, c = random_conic(4, cones)
    o = ls.solve_references(ls.Conic(P, A, cones, b=b, c=c), [{}], cache=False, **QUIET)
    x = cp.Variable(len(c))
    s = b - A @ x
    constraints, i = [s[: cones.zero] == 0] if cones.zero else [], cones.zero
    if cones.nonnegative:
        constraints.append(s[i : i + cones.nonnegative] >= 0)
    i += cones.nonnegative
    for k in cones.second_order:
        constraints.append(cp.norm(s[i + 1 : i + k]) <= s[i] if k > 1 else s[i] >= 0)
        i += k
    for k in cones.semidefinite:
        X = cp.Variable((k, k), PSD=True)
        for j in range(k):
            for r in range(j, k):
                constraints.append(s[i] == X[r, j] * (1 if r == j else np.sqrt(2)))
                i += 1
    for _ in range(cones.exponential):
        constraints.append(cp.constraints.ExpCone(s[i], s[i + 1], s[i + 2]))
        i += 3
    for a in cones.power:
        constraints.append(cp.constraints.PowCone3D(s[i], s[i + 1], s[i + 2], a))
        i += 3
    assert i == cones.size
    problem = cp.Problem(cp.Minimize(0.5 * cp.quad_form(x, cp.psd_wrap(P)) + c @ x), constraints)
    problem.solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(o.value[0], problem.value, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(o.x[0], x.value, atol=1e-3)
    instance = jnp.asarray(o.s[0])
    np.testing.assert_allclose(cones.project(instance), instance, atol=1e-7)
    np.testing.assert_allclose(cones.project_dual(jnp.asarray(o.y[0])), o.y[0], atol=1e-7)


@pytest.mark.parametrize(("m", "n"), [(30, 60), (200, 400)])
def test_lasso_optima_reach_rounding(m, n):
    A, family = lasso(m, n, 0.1)
    rng = np.random.default_rng(1)
    b = rng.normal(size=(3, m))
    o = ls.solve_references(family, b, accuracy=1e-9, cache=False, **QUIET)
    for x, target in zip(o.x, b, strict=True):
        slope = A.T @ (A @ x - target)
        on = x != 0
        assert 0 < on.sum() < n
        np.testing.assert_allclose(slope[on], -0.1 * np.sign(x[on]), atol=1e-11)
        assert np.all(np.abs(slope[~on]) <= 0.1 + 1e-11)
    assert o.error.max() < 1e-12


def test_nonnegative_least_squares_agrees_with_scipy():
    rng = np.random.default_rng(2)
    A, b = rng.normal(size=(30, 12)), rng.normal(size=(4, 30))
    family = ls.Composite(ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), ls.NonNegative())
    o = ls.solve_references(family, b, cache=False, **QUIET)
    for x, target in zip(o.x, b, strict=True):
        np.testing.assert_allclose(x, scipy.optimize.nnls(A, target)[0], atol=1e-10)


def test_a_prox_that_is_not_separable():
    """Group lasso: the Newton step does not apply, the accelerated iteration gets there alone."""

    def shrink(v, t):
        norm = jnp.sqrt(jnp.sum(v * v, axis=0))
        return v * jnp.maximum(1 - 0.5 * t / jnp.where(norm == 0, 1.0, norm), 0.0)

    g = ls.CustomProx(lambda z: 0.5 * jnp.sqrt(jnp.sum(z * z, axis=0)), shrink)
    family = ls.Composite(ls.Quadratic(np.diag([1.0, 2.0, 5.0]), q=-np.ones(3)), g)
    o = ls.solve_references(family, [{}], cache=False, **QUIET)
    x = o.x[0]
    np.testing.assert_allclose(np.array([1.0, 2.0, 5.0]) * x - 1 + 0.5 * x / np.linalg.norm(x), 0, atol=1e-7)


def test_an_inaccurate_reference_is_an_error():
    P, A, b, c = random_conic(4, CONES["mixed"])
    with pytest.raises(InaccurateReferenceError, match=r"instance 0 has a relative KKT error of .* but 1.0e-18"):
        ls.solve_references(ls.Conic(P, A, CONES["mixed"], b=b, c=c), [{}], accuracy=1e-18, cache=False, **QUIET)


def test_an_instance_without_optimum_is_named():
    family = ls.QP(np.eye(1), np.ones((2, 1)), q=[0.0], equalities=[])
    bounds = [{"l": [0.0, 0.0], "u": [1.0, 1.0]}, {"l": [2.0, 0.0], "u": [3.0, 1.0]}]
    with pytest.raises(ValueError, match="instance 1 has no optimum: Clarabel finds it primal infeasible"):
        ls.solve_references(family, bounds, cache=False, **QUIET)
    singular = ls.Quadratic(np.diag([1.0, 0.0]), q=np.ones(2))
    with pytest.raises(ValueError, match="instance 0 has no minimum"):
        ls.solve_references(singular, [{}], cache=False, **QUIET)


def test_cache_is_used_and_survives_damage(tmp_path, monkeypatch):
    family, X = quadcopter.family(), quadcopter.sample_many(40, seed=0)
    first = ls.solve_references(family, X, cache=tmp_path, **QUIET)
    files = sorted((tmp_path / "references").iterdir())
    assert len(files) == 3
    calls = []
    monkeypatch.setattr(reference_solvers, "solve_qp", lambda *a: calls.append(1) or optima.solve_qp(*a))
    again = ls.solve_references(family, X, cache=tmp_path, **QUIET)
    assert not calls
    np.testing.assert_array_equal(first.x, again.x)
    files[0].write_bytes(b"rubbish")
    ls.solve_references(family, X, cache=tmp_path, **QUIET)
    assert 0 < len(calls) <= 16
    calls.clear()
    ls.solve_references(family, X[:16] + 0.0, cache=tmp_path, **QUIET)
    assert not calls
    ls.solve_references(family, X[:16] + 1e-12, cache=tmp_path, **QUIET)
    assert len(calls) == 16


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    family, X = quadcopter.family(), quadcopter.sample_many(48, seed=0)
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return optima.solve_qp(*arguments)

    monkeypatch.setattr(reference_solvers, "solve_qp", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ls.solve_references(family, X, cache=tmp_path, **QUIET)
    done = ls.solve_references(family, X, cache=tmp_path, **QUIET)
    assert len(calls) == 20 + 32
    monkeypatch.undo()
    np.testing.assert_array_equal(done.x, ls.solve_references(family, X, cache=False, **QUIET).x)


@pytest.mark.parametrize(("worth", "processes"), [(0.0, 2), (np.inf, 1)])
def test_workers_are_started_where_there_is_work_for_them_and_give_the_same_optima(worth, processes, monkeypatch):
    family, X = quadcopter.family(), quadcopter.sample_many(40, seed=0)
    alone = ls.solve_references(family, X, cache=False, jobs=1, progress=False)
    started = []

    def note(n_jobs, **options):
        started.append(n_jobs)
        return parallel(n_jobs=n_jobs, **options)

    parallel = joblib.Parallel
    monkeypatch.setattr(joblib, "Parallel", note)
    monkeypatch.setattr(reference, "_WORTH", worth)
    together = ls.solve_references(family, X, cache=False, jobs=2, progress=False)
    assert started == [processes]
    np.testing.assert_array_equal(alone.x, together.x)


def test_samplers_may_return_lists_and_references_are_float64():
    family = ls.Quadratic(np.eye(2), parameter=ls.Affine(q=np.eye(2)))
    data = ls.Dataset.sample(family, lambda r: [r.normal(), 100 + r.normal()], {"train": 2}, cache=False, **QUIET)
    assert (data.train.parameters[:, 1] > 90).all()
    narrow = ls.Composite(ls.Quadratic(np.diag([1.0, 3.0]), q=[-1.0, 2.0], dtype="float32"), ls.L1(0.3))
    o = ls.solve_references(narrow, [{}], accuracy=1e-12, cache=False, **QUIET)
    np.testing.assert_allclose(o.x[0], [0.7, -1.7 / 3], atol=1e-14)
