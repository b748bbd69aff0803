"""Quasi-Newton steps: the matrix is BFGS's, the objective never rises, and no L is needed to get to SciPy's optimum."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import longstep as ls
from longstep._util import storage
from longstep.algorithms.quasi_newton import Pairs, QuasiNewton
from longstep.certificates.performance import worst_case
from longstep.certificates.rates import state_convergence
from longstep.learning import list_forms
from longstep.research.baselines.momentum import Nesterov

from ..helpers import case_of

CASE = case_of(QuasiNewton)
rng = np.random.default_rng(0)
DESIGNS = rng.normal(size=(3, 20, 4)) * np.array([3.0, 1.0, 0.3, 0.1])


def poisson(z, A):
    """Counts of three everywhere, with means exp(Az): no L holds for all z, and exp overflows."""
    return jnp.mean(jnp.exp(A @ z) - 3 * (A @ z)) + 5e-3 * z @ z


def poisson_by_numpy(z, A):
    with np.errstate(over="ignore"):
        means = np.exp(A @ z)
        return np.mean(means - 3 * (A @ z)) + 5e-3 * z @ z, A.T @ (means - 3) / len(A) + 1e-2 * z


def solve_by_scipy(A):
    """The optimal value, and the evaluations that L-BFGS-B needs for a gradient of 1e-6."""
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 1e-6}
    found = scipy.optimize.minimize(poisson_by_numpy, np.zeros(4), A, "L-BFGS-B", jac=True, options=options)
    return found.fun, found.nfev


def test_the_matrix_is_that_of_bfgs():
    m, n, N = 2, 5, 3
    pairs = Pairs(jnp.zeros((m, n, N)), jnp.zeros((m, n, N)), jnp.zeros((m, N)))
    steps = rng.normal(size=(3, n, N))
    root = rng.normal(size=(n, n))
    changes = np.einsum("ij,kjl->kil", root @ root.T, steps)
    good = np.array([[True, True, True], [True, False, True], [True, True, True]])
    for s, y, g in zip(steps, changes, good, strict=True):
        pairs = pairs.add_pair(jnp.asarray(s), jnp.asarray(y), jnp.asarray(g))
    v = rng.normal(size=(n, N))
    unit = np.array([0.5, 1.0, 2.0])
    found = pairs.apply_inverse(jnp.asarray(v), jnp.asarray(unit))
    for column in range(N):
        H = unit[column] * np.eye(n)
        for k in np.flatnonzero(good[:, column])[-m:]:
            s, y = steps[k, :, column], changes[k, :, column]
            left = np.eye(n) - np.outer(s, y) / (s @ y)
            H = left @ H @ left.T + np.outer(s, s) / (s @ y)
        np.testing.assert_allclose(found[:, column], H @ v[:, column], rtol=1e-12)
        np.testing.assert_allclose(H @ y, s, rtol=1e-9)


@pytest.mark.parametrize("L", [1e-3, 1e5])
def test_the_objective_falls_to_that_of_scipy_whatever_L_and_the_schedule_are(L):
    family = ls.Smooth(poisson, L, 4)
    wild = {"step": 10.0 ** rng.uniform(-2, 2, 20), "scale": 10.0 ** rng.uniform(-2, 2, 20)}
    schedule = ls.Schedule(wild, {"step": 1.0, "scale": 1.0}, blocks=[10, 10])
    history = ls.Solver(family, schedule, algorithm=QuasiNewton()).run(DESIGNS, 100)
    assert np.all(np.diff(history.objective) <= 1e-14)
    assert not history.safeguarded.any()
    for k, A in enumerate(DESIGNS):
        value, _ = solve_by_scipy(A)
        assert history.objective[k, -1] == pytest.approx(value, rel=1e-10)
        assert history.dual[k, -1] < 1e-6


def test_untrained_steps_are_about_as_many_as_evaluations_of_scipy():
    family = ls.Smooth(poisson, 10.0, 4)
    solution = ls.Solver(family, algorithm=QuasiNewton()).solve_batch(DESIGNS, eps_abs=1e-6, eps_rel=0.0, check_every=1)
    assert solution.solved.all()
    assert np.sum(solution.iterations) <= 1.3 * sum(solve_by_scipy(A)[1] for A in DESIGNS)


def test_steps_that_are_not_taken_leave_the_point():
    """From the minimum of |z|³ outwards the gradient grows: a first step of 100 overshoots and is cut three times."""
    family = ls.Smooth(lambda z, x: jnp.sum(jnp.abs(z - x) ** 3), 1.0, 1)
    history = ls.Solver(family, algorithm=QuasiNewton(), step=1.9, scale=100.0).run(np.array([[2.0]]), 6)
    objective = history.objective[0]
    assert objective[1] == objective[0] == 8.0
    assert objective[-1] < 8.0
    assert len(set(objective[objective < 8.0])) == np.sum(objective < 8.0)


def test_the_guarantee_says_what_is_true():
    held = ls.Schedule({}, {"step": 1.0, "scale": 1.0})
    statement = state_convergence(QuasiNewton(), CASE.family, held)
    assert statement.holds
    assert "on every instance with a nonempty, bounded set of optima" in statement.sentence
    assert statement.condition == "0 < step = 1 < 2, scale = 1 > 0"
    assert "Armijo" in statement.theorem
    with pytest.raises(TypeError, match="GradientDescent, HeavyBall"):
        worst_case(QuasiNewton(), held, 1, L=1.0, mu=0.0)


@pytest.mark.parametrize("algorithm", [QuasiNewton(), Nesterov()])
def test_rates_are_for_gradient_descent_alone(algorithm):
    """Nesterov's steps have the hyperparameters of heavy-ball steps, and other rates."""
    quadratic = ls.Quadratic(np.diag([1.0, 4.0]))
    found = ls.guarantee(ls.Solver(quadratic, algorithm=algorithm), 5)
    assert (found.rates, found.unguarded) == ((), ())
    assert ls.guarantee(ls.Solver(quadratic, algorithm=ls.HeavyBall()), 5).rates


def test_memory_is_checked_kept_and_hashed(tmp_path):
    for wrong in (0, 2.5, 10_000):
        with pytest.raises(ValueError, match="memory must be a whole number of pairs between 1 and 1000"):
            QuasiNewton(wrong)
    quadratic = ls.Quadratic(np.diag([1.0, 4.0]))
    solvers = [ls.Solver(quadratic, algorithm=QuasiNewton(m)) for m in (2, 5)]
    assert solvers[0].content_hash() != solvers[1].content_hash()
    path = tmp_path / "s.longstep"
    solvers[0].save(path)
    assert ls.Solver.load(path).algorithm == QuasiNewton(2)
    arrays, metadata = storage.read(path, "solver", 1)
    for fields in ({"memory": 0}, {"size": 2}, 7):
        storage.write(path, "solver", 1, arrays, metadata | {"algorithm_fields": fields})
        with pytest.raises(ls.errors.FileFormatError, match="the solver in it cannot be made"):
            ls.Solver.load(path)


def test_smooth_families_are_tried_with_it():
    assert list_forms(CASE.family) == [ls.GradientDescent(), QuasiNewton()]
