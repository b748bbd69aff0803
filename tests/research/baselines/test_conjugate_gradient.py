"""Conjugate gradients against SciPy's, and at the solution."""

import numpy as np
import pytest
import scipy.sparse.linalg

import longstep as ls
from longstep.engine.loop import run_steps
from longstep.engine.plan import Plan
from longstep.engine.problem import Problem
from longstep.research.baselines.conjugate_gradient import ConjugateGradient, conjugate_gradients

from ...helpers import case_of

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(30, 20))
FAMILY = ls.Quadratic(ROOT.T @ ROOT + 0.1 * np.eye(20), parameter=ls.Affine(q=-ROOT.T))
B = RNG.normal(size=(4, 30))
METHOD = conjugate_gradients(FAMILY)


def test_iterates_are_scipys():
    P, q = FAMILY.P.toarray(), FAMILY.data(B)["q"]
    history = METHOD.run(B, 15)
    for i in range(len(B)):
        points = [np.zeros(20)]
        scipy.sparse.linalg.cg(
            P, -q[i], rtol=0.0, maxiter=15, callback=lambda x, points=points: points.append(x.copy())
        )
        z = np.array(points)
        objective = 0.5 * np.einsum("ki,ij,kj->k", z, P, z) + z @ q[i]
        np.testing.assert_allclose(history.objective[i], objective, rtol=1e-11)
        np.testing.assert_allclose(history.dual[i], np.linalg.norm(z @ P + q[i], axis=1), rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(history.dual_max[i], np.abs(z @ P + q[i]).max(axis=1), rtol=1e-7, atol=1e-10)


def test_as_many_steps_as_unknowns_solve_it():
    optima = ls.solve_references(FAMILY, B, cache=False, progress=False)
    history = METHOD.run(B, 20)
    assert history.objective.shape == (4, 21)
    np.testing.assert_allclose(history.objective[:, -1], optima.value, rtol=1e-13)
    assert np.all(history.dual[:, -1] < 1e-6 * history.dual[:, 0])
    # Every step is the best one in its Krylov space, so no fixed schedule can be below it.
    assert np.all(np.diff(history.objective, axis=1) <= 1e-12)
    assert np.all(ls.Solver(FAMILY).run(B, 20).objective >= history.objective - 1e-12)


def test_it_stays_at_the_solution():
    diagonal = ls.Quadratic(np.diag([1.0, 2.0, 4.0]))
    # Solved at once (zero), after one step (an eigenvector), after three, and gone on with for long.
    q = np.array([[0.0, 0.0, 0.0], [0.0, 8.0, 0.0], [1.0, 1.0, 1.0]])
    history = conjugate_gradients(diagonal).run({"q": q}, 400)
    for value in vars(history).values():
        assert np.isfinite(value).all()
    np.testing.assert_array_equal(history.dual[0], 0.0)
    np.testing.assert_array_equal(history.dual[1, 1:], 0.0)
    assert np.all(history.dual[2, 3:] < 1e-14)


def test_a_singular_quadratic_is_solved_too():
    flat = ls.Quadratic(ROOT[:6].T @ ROOT[:6], parameter=ls.Affine(q=-ROOT[:6].T))
    # Gone on with for long: rounding errors outside the range of P must not be taken for directions of descent.
    history = conjugate_gradients(flat).run(B[:, :6], 400)
    optima = ls.solve_references(flat, B[:, :6], cache=False, progress=False)
    np.testing.assert_allclose(history.objective[:, 6:], np.tile(optima.value[:, None], 395), rtol=1e-13)


def test_the_optimum_is_a_fixed_point_and_a_batch_is_a_loop():
    P, q = FAMILY.P.toarray(), FAMILY.data(B)["q"]
    algorithm, instances = ConjugateGradient(), FAMILY.instances(B)
    plan = Plan({}, None, np.zeros(1, np.int32), 0)
    x = np.linalg.solve(P, -q.T)
    state = algorithm.init(FAMILY, instances, ls.Point(x))
    moved, _, _ = run_steps(Problem(algorithm, FAMILY, plan, instances), state, 1, 0, lambda s: ())
    np.testing.assert_allclose(moved.z, x, atol=1e-12)
    one = conjugate_gradients(FAMILY).run(B[2:3], 10)
    np.testing.assert_allclose(one.objective[0], METHOD.run(B, 10).objective[2], rtol=1e-13)


def test_it_is_a_method():
    assert METHOD.name == "conjugate gradients"
    assert METHOD.family is FAMILY
    seconds = METHOD.seconds(B, 5)
    assert seconds.shape == (4,)
    assert np.all(seconds > 0)
    assert METHOD.content_hash() == conjugate_gradients(FAMILY).content_hash()
    assert METHOD.content_hash() != conjugate_gradients(ls.Quadratic(np.eye(2))).content_hash()
    assert METHOD.run(B, 3).safeguarded.shape == (4,)


def test_other_families_are_refused():
    lasso = case_of(ls.ProximalGradient).family
    with pytest.raises(TypeError, match="solves Quadratic families, not Composite"):
        conjugate_gradients(lasso)
    with pytest.raises(ValueError, match="not be negative"):
        METHOD.run(B, -1)
