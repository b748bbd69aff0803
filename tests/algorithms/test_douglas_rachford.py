"""Douglas–Rachford splitting: against a loop in NumPy, against Clarabel, and all that the library does with it."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.douglas_rachford import DouglasRachford
from longstep.algorithms.registry import default_algorithm
from longstep.evaluation.scheduled import best_constant

rng = np.random.default_rng(0)
# Fewer rows than columns: P is singular.
M, N = 32, 64
A = rng.normal(size=(M, N)) / np.sqrt(M)
SMOOTH = ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T))
LASSO = ls.Composite(SMOOTH, ls.L1(0.1))


def measurements(rng):
    return A @ (rng.normal(size=N) * (rng.random(N) < 0.1)) + 0.01 * rng.normal(size=M)


@pytest.fixture(scope="module")
def data() -> ls.Dataset:
    sizes = {"train": 10, "validation": 400, "test": 40}
    return ls.Dataset.sample(LASSO, measurements, sizes, seed=0, cache=False, progress=False)


@pytest.fixture(scope="module")
def training(data) -> ls.Training:
    options = {"horizon": 20, "iterations": 100, "starts": 3, "cache": False, "progress": False}
    return ls.train(LASSO, data, algorithm=DouglasRachford(), **options)


def test_it_is_not_the_default():
    assert default_algorithm(LASSO) == ls.ProximalGradient()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_iterates_are_those_of_a_loop(dtype):
    rho, alpha, b = np.linspace(0.3, 2.0, 6), np.linspace(1.9, 0.8, 6), measurements(rng)
    schedule = ls.Schedule({"rho": rho[:5], "alpha": alpha[:5]}, {"rho": rho[5], "alpha": alpha[5]})
    solver = ls.Solver(LASSO.astype(dtype), schedule, algorithm=DouglasRachford(), safeguard=None)
    z, y, q = np.zeros(N), np.zeros(N), -A.T @ b
    for k in range(8):
        p, a = rho[min(k, 5)], alpha[min(k, 5)]
        x = np.linalg.solve(A.T @ A + p * np.eye(N), p * z - y - q)
        r = a * x + (1 - a) * z
        z = np.sign(r + y / p) * np.maximum(np.abs(r + y / p) - 0.1 / p, 0)
        y = y + p * (r - z)
        tolerance = 1e-12 if dtype == "float64" else 1e-5
        np.testing.assert_allclose(solver.solve(b, steps=k + 1).x, z, atol=tolerance)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("g", [ls.L1(0.1), ls.NonNegative(), ls.Box(-0.2, 0.3)], ids=["lasso", "nonnegative", "box"])
def test_optima_are_those_of_clarabel(g, diagonal):
    matrix = np.diag(np.linspace(0.1, 2.0, N)) if diagonal else np.vstack([A, 0.1 * np.eye(N)])
    b = rng.normal(size=len(matrix))
    family = ls.Composite(ls.Quadratic(matrix.T @ matrix, parameter=ls.Affine(q=-matrix.T)), g)
    found = ls.Solver(family, algorithm=DouglasRachford()).solve(b, eps_abs=1e-10, eps_rel=0, max_iter=50_000)
    assert found.status == ls.Status.SOLVED
    z = cp.Variable(N)
    loss = 0.5 * cp.sum_squares(matrix @ z - b)
    penalty = 0.1 * cp.norm1(z) if isinstance(g, ls.L1) else 0
    bounds = {"NonNegative": [z >= 0], "Box": [z >= -0.2, z <= 0.3]}.get(type(g).__name__, [])
    cp.Problem(cp.Minimize(loss + penalty), bounds).solve("CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12)
    np.testing.assert_allclose(found.x, z.value, atol=1e-6)
    # A solution is a warm start that is solved already: its y is known.
    again = ls.Solver(family, algorithm=DouglasRachford()).solve(b, warm_start=found, eps_abs=1e-8, eps_rel=0)
    assert again.iterations == 0


def test_training_decomposes_the_matrix_once(monkeypatch):
    family = ls.Composite(ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), ls.L1(0.1))
    calls, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: calls.append(matrix.shape) or eigh(matrix))
    parameters = np.stack([measurements(rng) for _ in range(4)])
    options = {"horizon": 4, "block": 2, "iterations": 5, "starts": 1, "candidates": 5, "progress": False}
    for _ in range(2):
        ls.train(family, parameters, algorithm=DouglasRachford(), cache=False, **options)
    assert calls == [(N, N)]


def test_it_learns_saves_evaluates_and_certifies(data, training, tmp_path):
    solver = ls.Solver(LASSO, training)
    learned = ls.evaluate(solver, data.test, 20, timed=False)
    constant = ls.evaluate(best_constant(LASSO, training), data.test, 20, timed=False)
    assert learned.geometric_mean[-1] < 0.5 * constant.geometric_mean[-1]

    solver.save(tmp_path / "dr.longstep")
    loaded = ls.Solver.load(tmp_path / "dr.longstep")
    assert loaded.content_hash() == solver.content_hash()
    b = data.test.parameters[0]
    np.testing.assert_array_equal(loaded.solve(b).x, solver.solve(b).x)

    certificate = ls.certify(solver, data.validation, 20, progress=False)
    assert certificate.verify(solver, data.validation).claims == certificate.claims
    assert "Eckstein" in str(ls.guarantee(solver).convergence)


def test_families_that_share_no_matrix_are_refused():
    smooth = ls.Smooth(lambda z, x: jnp.mean(jnp.logaddexp(0.0, -x @ z)), 1.0, 3)
    with pytest.raises(TypeError, match=r"instances share P.*here the smooth part is a Smooth family"):
        ls.Solver(ls.Composite(smooth, ls.L1(0.1)), algorithm=DouglasRachford())
    with pytest.raises(TypeError, match="DouglasRachford solves Composite families, not Quadratic"):
        ls.train(SMOOTH, np.zeros((2, M)), algorithm=DouglasRachford())


def test_c_code_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not for DouglasRachford on Composite"):
        ls.generate_c(ls.Solver(LASSO, algorithm=DouglasRachford()), tmp_path)
