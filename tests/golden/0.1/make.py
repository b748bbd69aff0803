"""Makes the files beside this one with longstep 0.1; see README.md."""

import json
import shutil
import sys
from pathlib import Path

import cvxpy as cp
import jax
import numpy as np

import longstep as ls

FOLDER = Path(__file__).parent
TOLERANCES = {"eps_abs": 1e-9, "eps_rel": 1e-9}


def qp():
    """A portfolio with named parameters and variables."""
    rng = np.random.default_rng(0)
    n, factors = 6, 2
    loadings = rng.normal(size=(n, factors))
    weights, exposures = cp.Variable(n, name="weights"), cp.Variable(factors, name="exposures")
    returns = cp.Parameter(n, name="returns")
    risk = cp.sum_squares(exposures) + cp.sum_squares(np.diag(0.5 + rng.random(n)) @ weights)
    constraints = [cp.sum(weights) == 1, weights >= 0, weights <= 0.5, exposures == loadings.T @ weights]
    problem = cp.Problem(cp.Minimize(risk - returns @ weights), constraints)
    return ls.from_cvxpy(problem).family, lambda rng: rng.normal(size=n).round(3)


def conic():
    """A linear objective over an equality, a box and a ball."""
    rng = np.random.default_rng(1)
    n = 5
    rows = [np.ones((1, n)), -np.eye(n), np.zeros((1, n)), -np.eye(n)]
    b = np.concatenate([[1.0], np.full(n, 0.4), [0.9], np.zeros(n)])
    cones = ls.Cones(zero=1, nonnegative=n, second_order=(n + 1,))
    P = np.diag(0.1 + rng.random(n))
    family = ls.Conic(P, np.vstack(rows), cones, b=b, parameter=ls.Affine(c=np.eye(n)))
    return family, lambda rng: rng.normal(size=n).round(3)


def quadratic():
    """A least-squares problem."""
    rng = np.random.default_rng(2)
    A = rng.normal(size=(12, 5))
    return ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), lambda rng: rng.normal(size=12).round(3)


def composite():
    """A lasso."""
    family, sampler = quadratic()
    return ls.Composite(family, ls.L1(0.5)), sampler


def smooth():
    """A family made of a Python function, which no file holds."""
    return ls.Smooth(lambda z, x: ((z - x) ** 2).sum(), 2.0, 3)


FAMILIES = {"qp": qp, "conic": conic, "quadratic": quadratic, "composite": composite}
CERTIFIED = {"qp": (10, 1e-2), "conic": (10, 1e-2), "composite": (10, 1e-3)}
GUARANTEED = {"qp": (), "conic": (), "quadratic": ([5, 10],), "composite": ()}


def main():
    """Write every file anew."""
    jax.config.update("jax_enable_x64", True)
    (FOLDER / "functions").mkdir(exist_ok=True)
    ls.Solver(smooth(), step=0.3).save(FOLDER / "functions" / "smooth.longstep")
    for name, make in FAMILIES.items():
        family, sampler = make()
        sizes = {"train": 20, "validation": 60, "test": 4}
        data = ls.Dataset.sample(family, sampler, sizes, seed=3, accuracy=1e-6, cache=False, progress=False)
        options = {"horizon": 10, "block": 5, "cache": False, "progress": False}
        solver = ls.Solver(family, ls.train(family, data, **options))
        solver.save(FOLDER / f"{name}.longstep")
        parameters = np.asarray(data.test.parameters)
        solution = solver.solve_batch(parameters, **TOLERANCES)
        fixed = solver.solve_batch(parameters, steps=10)
        outside = parameters[:1] + 100.0
        assert solution.solved.all()
        assert np.abs(solution.x - data.test.optima.x).max() < 1e-5
        expected = {
            "parameters": parameters.tolist(),
            "x": solution.x.tolist(),
            "iterations": solution.iterations.tolist(),
            "x_after_10": fixed.x.tolist(),
            "optimal_x": data.test.optima.x.tolist(),
            "outside": outside.tolist(),
            "content_hash": solver.content_hash(),
            "schedule": solver.schedule.to_json(),
        }
        ls.guarantee(solver, *GUARANTEED[name]).save(FOLDER / f"{name}.guarantee.json")
        if name in CERTIFIED:
            iterations, tolerance = CERTIFIED[name]
            ls.certify(solver, data.validation, iterations, tolerance).save(FOLDER / f"{name}.tolerance.json")
            quantiles = ls.certify(solver, data.validation, [5, iterations], level=0.8, confidence=0.9)
            quantiles.save(FOLDER / f"{name}.quantile.json")
            expected["validation"] = np.asarray(data.validation.parameters).tolist()
            expected["values"] = data.validation.optima.value.tolist()
        (FOLDER / f"{name}.json").write_text(json.dumps(expected) + "\n")
        if name == "qp":
            shutil.rmtree(FOLDER / "c", ignore_errors=True)
            ls.generate_c(solver, FOLDER / "c", prefix="portfolio")
        sys.stdout.write(f"{name}: {solver}, {solution.iterations.tolist()} iterations\n")


if __name__ == "__main__":
    main()
