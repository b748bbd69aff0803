"""Families with sparse factors: the same iterates, solutions, gradients and files as with dense ones."""

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.engine.factorization import factorize_theta
from longstep.engine.forecast import forecast
from longstep.learning import list_forms
from longstep.linalg.matrix import HostMatrix
from longstep.linalg.systems import ONCE, augmented, sparse
from longstep.training.recipe import SPARSE

from ..helpers import CONES, random_conic, random_qp


def make_qp(seed=0, free=0, **options) -> tuple[ls.QP, np.ndarray]:
    P, q, A, l, u = random_qp(seed, free=free)
    family = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(q.size)), **options)
    return family, q + 0.3 * np.random.default_rng(seed).normal(size=(6, q.size))


def make_conic(seed=0) -> tuple[ls.Conic, np.ndarray]:
    cones = CONES["mixed"]
    P, A, b, c = random_conic(seed, cones)
    family = ls.Conic(P, A, cones, b=b, c=c, parameter=ls.Affine(c=np.eye(c.size)))
    return family, c + 0.1 * np.random.default_rng(seed).normal(size=(4, c.size))


MAKERS = {"QP": make_qp, "QP with free rows": lambda: make_qp(1, free=3), "Conic": make_conic}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_iterates_are_those_of_dense_factors(make, sparse_factors, monkeypatch):
    here, parameters = make()
    assert here.sparse
    assert isinstance(here.matrices.A, HostMatrix)
    # Ladders differ: rungs whose dense inverse is inaccurate are left out.
    solver = ls.Solver(here, ladder=False)
    assert solver.plan.on_host
    monkeypatch.setattr(augmented, "_LEAST", 10**9)
    there, _ = make()
    assert not there.sparse
    dense = ls.Solver(there, ladder=False)
    for steps in (1, 40):
        mine, theirs = (s.solve_batch(parameters, steps=steps) for s in (solver, dense))
        np.testing.assert_allclose(mine.x, theirs.x, atol=1e-9)
        np.testing.assert_allclose(mine.y, theirs.y, atol=1e-8)
    np.testing.assert_allclose(solver.run(parameters, 30).worst, dense.run(parameters, 30).worst, rtol=1e-6, atol=1e-10)
    one = ls.Solver(here).solve(parameters[0], eps_abs=1e-7, eps_rel=1e-7)
    assert one.solved
    np.testing.assert_allclose(one.x, ls.Solver(there).solve(parameters[0], eps_abs=1e-7, eps_rel=1e-7).x, atol=1e-5)


def test_a_family_of_thousands_of_unknowns_has_the_optimum_of_clarabel():
    rng = np.random.default_rng(0)
    n = 1500
    steps = sp.diags_array([-np.ones(n - 1), np.ones(n - 1)], offsets=[0, 1], shape=(n - 1, n))
    A = sp.csr_array(sp.vstack([steps, sp.eye_array(n)]))
    l = np.concatenate([np.full(n - 1, -0.2), np.full(n, -1.0)])
    family = ls.QP(sp.eye_array(n), A, l=l, u=-l, parameter=ls.Affine(q=-sp.eye_array(n, format="csr")))
    assert family.sparse
    noisy = np.cumsum(rng.normal(size=n)) / 10
    solution = ls.Solver(family).solve(noisy, eps_abs=1e-9, eps_rel=1e-9)
    assert solution.solved
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    exact = clarabel.DefaultSolver(
        sp.csc_matrix(sp.eye_array(n)),
        -noisy,
        sp.csc_matrix(sp.vstack([A, -A])),
        np.concatenate([-l, -l]),
        [clarabel.NonnegativeConeT(2 * A.shape[0])],
        settings,
    ).solve()
    np.testing.assert_allclose(solution.x, exact.x, atol=1e-4)
    assert solution.objective == pytest.approx(exact.obj_val, rel=1e-7)


def test_gradients_of_steps_are_those_of_dense_factors(sparse_factors, monkeypatch):
    here, parameters = make_qp(1, free=3)
    monkeypatch.setattr(augmented, "_LEAST", 10**9)
    there, _ = make_qp(1, free=3)
    algorithm = ls.OSQP()

    def slope(family):
        instance = family.instances(parameters)

        def error(rho, metric):
            theta = {"sigma": 1e-6, "rho_eq": 10.0, "rho_ineq": rho, "alpha": 1.6, "metric": metric}
            theta = {name: jnp.asarray(value) for name, value in theta.items()}
            factors = factorize_theta(algorithm, family, jax.lax.stop_gradient(theta), ONCE)
            state = algorithm.init(family, instance, None)

            def step(state, _):
                return algorithm.step(family, instance, theta, factors, None, state), None

            state, _ = jax.lax.scan(step, state, length=8)
            return jnp.mean(algorithm.log_metric(algorithm.residuals(family, instance, state), None))

        return jax.jit(jax.grad(error, (0, 1)))(0.3, np.linspace(0.5, 2.0, family.matrices.m))

    mine, theirs = slope(here), slope(there)
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-8)
    np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-7, atol=1e-12)
    assert np.abs(theirs[1]).max() > 1e-3


def test_training_has_few_factorizations_and_a_metric_that_others_judge(sparse_factors):
    family, parameters = make_qp()
    options = {"horizon": 6, "block": 3, "iterations": 3, "candidates": 4, "cache": False, "progress": False}
    trained = ls.train(family, parameters, **options)
    assert trained.record["recipe"] == SPARSE.to_json()
    assert trained.record["settings"]["factorizations"] == SPARSE.factorizations
    (metric,) = (part for part in trained.record["parts"] if part["kind"] == "metric")
    # One search, on half of the instances; with the usual recipe there are seven.
    assert 1 <= metric["evaluations"] <= 2 * SPARSE.metric_iterations
    assert metric["loss"] <= metric["loss_before"]


def test_what_is_learned_is_saved_loaded_and_says_why_there_is_no_certificate(sparse_factors, tmp_path):
    family, parameters = make_qp()
    assert list_forms(family) == [ls.OSQP()]
    solver, report = ls.learn(
        family,
        lambda rng: parameters[0] + 0.3 * rng.normal(size=parameters.shape[1]),
        sizes={"train": 6, "test": 4},
        horizon=4,
        block=2,
        iterations=2,
        candidates=3,
        cache=False,
        progress=False,
    )
    assert "No certificate: instances of this family take long" in str(report)
    assert {cost.eps for cost in report.costs.rows} == {1e-3, 1e-4}
    solver.save(tmp_path / "large.longstep")
    loaded = ls.Solver.load(tmp_path / "large.longstep")
    assert loaded.plan.on_host
    mine, theirs = (s.solve_batch(parameters, eps_abs=1e-6, eps_rel=1e-6) for s in (solver, loaded))
    np.testing.assert_array_equal(mine.x, theirs.x)
    assert np.all(mine.solved)


def test_warm_starts_are_taken_one_by_one(sparse_factors):
    family, parameters = make_qp()
    solver = ls.Solver(family)
    cold = solver.solve_batch(parameters, eps_abs=1e-8, eps_rel=1e-8)
    warm = solver.solve_batch(parameters, warm_start=cold, eps_abs=1e-6, eps_rel=1e-6)
    assert warm.iterations.max() < cold.iterations.min()
    history = solver.run(parameters, 3, warm_start=cold)
    assert history.worst.shape == (len(parameters), 4)
    assert history.worst.max() < 1e-6


def test_float32_families_have_sparse_factors_too(sparse_factors):
    family, parameters = make_qp(dtype="float32")
    solution = ls.Solver(family).solve_batch(parameters, eps_abs=1e-3, eps_rel=1e-3)
    assert solution.x.dtype == np.float32
    assert np.all(solution.solved)


def test_the_forecast_counts_the_entries_of_sparse_factors(sparse_factors):
    family, _ = make_qp()
    fill = family.matrices.structure.augmented.fill
    text = str(forecast(family, 10, horizon=20, factorizations=4))
    assert f"4 sparse factors with {fill:,} entries" in text


def test_accelerators_and_dense_matrices_have_dense_factors(monkeypatch):
    monkeypatch.setattr(augmented, "_LEAST", 1)
    assert not make_qp()[0].sparse  # half of all entries
    monkeypatch.setattr(augmented, "_SPARSE", 1e9)
    monkeypatch.setattr(sparse, "_SOLVE", 0.0)
    assert make_qp()[0].sparse
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not make_qp()[0].sparse
