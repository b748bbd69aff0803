"""Iterations to a tolerance of small families, one for each algorithm, against what is stored in `counts.json`.

A change that costs iterations shows here, and so does one that saves some. To store the present counts, run
`JAX_ENABLE_X64=1 python -m tests.test_counts` in the root of the repository, and look at the difference.
"""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.algorithms.registry import BY_NAME, default_algorithm

STORED = Path(__file__).parent / "counts.json"
# Platforms round differently, and training follows the rounding.
SLACK = 0.1
TRAINED, UNSEEN = 16, 100


def qp():
    """A portfolio: the weights add up to one and are at most a half."""
    rng = np.random.default_rng(3)
    n = 8
    root = rng.normal(size=(n, 3))
    P = root @ root.T + np.diag(0.2 + rng.random(n))
    A = sp.csc_array(np.vstack([np.ones((1, n)), np.eye(n)]))
    l, u = np.append(1.0, np.zeros(n)), np.append(1.0, np.full(n, 0.5))
    return ls.QP(P, A, l=l, u=u, parameter=ls.Affine(q=np.eye(n))), n, 1e-2


def conic():
    """The best point of a plane in a box and a ball."""
    n = 6
    A = np.vstack([np.ones((1, n)), -np.eye(n), np.zeros((1, n)), -np.eye(n)])
    b = np.concatenate([[1.0], np.full(n, 0.4), [0.9], np.zeros(n)])
    cones = ls.Cones(zero=1, nonnegative=n, second_order=(n + 1,))
    return ls.Conic(0.3 * np.eye(n), A, cones, b=b, parameter=ls.Affine(c=np.eye(n))), n, 1e-2


def least_squares():
    rng = np.random.default_rng(7)
    A = rng.normal(size=(30, 20)) @ np.diag(np.linspace(0.3, 1.0, 20))
    return ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), 30, 1e-2


def composite():
    family, size, tolerance = least_squares()
    return ls.Composite(family, ls.L1(1.0)), size, tolerance


FAMILIES = {
    "OSQP": qp,
    "Condensed": qp,
    "SCS": conic,
    "GradientDescent": least_squares,
    "ProximalGradient": composite,
}
# What `learn` takes beside the defaults of their families, for QPs with a finish; trained by few programs.
OTHERS = {"Condensed": {"algorithm": Condensed(), "metric": False}}


@functools.cache
def counts(name):
    """Mean and worst iterations to the tolerance on unseen instances: by defaults, best constant and learned."""
    family, size, tolerance = FAMILIES[name]()
    rng = np.random.default_rng(11)
    trained, unseen = rng.normal(size=(TRAINED, size)), rng.normal(size=(UNSEEN, size))
    data = ls.Dataset.from_parameters(family, {"train": trained}, accuracy=1e-6, cache=False, jobs=1)
    options = {"horizon": 10, "starts": 1, "iterations": 30, **OTHERS.get(name, {})}
    training = ls.train(family, data, **options, cache=False, progress=False)
    schedules = {"defaults": None, "constant": training.constant, "learned": training}
    found = {}
    for kind, schedule in schedules.items():
        solver = ls.Solver(family, schedule, algorithm=training.algorithm, finish=False)
        solution = solver.solve_batch(unseen, eps_abs=tolerance, eps_rel=0.0, check_every=1)
        assert solution.solved.all(), kind
        found[kind] = {"mean": float(solution.iterations.mean()), "worst": int(solution.iterations.max())}
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_counts_are_those_stored(name):
    stored, found = json.loads(STORED.read_text())[name], counts(name)
    algorithm = OTHERS.get(name, {}).get("algorithm", default_algorithm(FAMILIES[name]()[0]))
    assert type(algorithm) is BY_NAME[name]
    for kind, numbers in stored.items():
        # The worst of few instances moves by whole iterations.
        assert found[kind]["mean"] == pytest.approx(numbers["mean"], rel=SLACK), kind
        assert found[kind]["worst"] == pytest.approx(numbers["worst"], rel=2 * SLACK, abs=2), kind


@pytest.mark.parametrize("name", FAMILIES)
def test_learning_beats_the_best_constant_on_unseen_instances(name):
    found = counts(name)
    assert found["learned"]["mean"] <= 0.9 * found["constant"]["mean"]
    assert found["constant"]["mean"] <= found["defaults"]["mean"]


if __name__ == "__main__":
    STORED.write_text(json.dumps({name: counts(name) for name in FAMILIES}, indent=1) + "\n")
