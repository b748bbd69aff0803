"""Worst-case rates: norms of the iteration's matrices, Chebyshev's optimum, and statements about the steady state."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import longstep as ls
from longstep.certificates.rates import interval_rate, state_convergence, worst_case_rate
from longstep.schedules.schedule import check_schedule, constant

from ..helpers import CASES, find_roles


def random_quadratic(eigenvalues, seed):
    n = len(eigenvalues)
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]
    P = (Q * eigenvalues) @ Q.T
    return ls.Quadratic((P + P.T) / 2)


def random_schedule(rng, H, momentum):
    varying, steady = {"step": rng.uniform(0.2, 1.5, H)}, {"step": 0.9}
    if momentum:
        varying, steady = {**varying, "momentum": rng.uniform(-0.3, 0.9, H)}, {**steady, "momentum": 0.0}
    return ls.Schedule(varying, steady)


@given(seed=st.integers(0, 500), momentum=st.booleans())
def test_rates_are_norms_of_products_of_matrices(seed, momentum):
    """The error (z − z*, z⁻ − z*) is multiplied by [[(1+β)I − tP, −βI], [I, 0]]."""
    rng = np.random.default_rng(seed)
    family, schedule = random_quadratic(rng.uniform(0.01, 2.0, 5), seed), random_schedule(rng, 4, momentum)
    P, eye, zero = family.P.toarray(), np.eye(5), np.zeros((5, 5))
    product, norms = np.vstack([eye, eye]), [1.0]
    for k in range(9):
        theta = schedule[k]
        t, beta = theta["step"], theta.get("momentum", 0.0)
        product = np.block([[(1 + beta) * eye - t * P, -beta * eye], [eye, zero]]) @ product
        norms.append(np.linalg.norm(product[:5], 2))
    np.testing.assert_allclose(worst_case_rate(family, schedule, 9), norms, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("algorithm", [ls.GradientDescent(), ls.HeavyBall()])
def test_the_solver_keeps_to_the_rate(algorithm):
    rng = np.random.default_rng(3)
    family = random_quadratic(rng.uniform(0.1, 2.0, 6), 3)
    schedule = random_schedule(rng, 5, "momentum" in find_roles(algorithm, family).values())
    solver = ls.Solver(family, algorithm=algorithm, schedule=schedule, safeguard=None)
    rates = worst_case_rate(family, schedule, 8)
    # The worst direction is an eigenvector, so the linear terms P·(eigenvector) attain the rate.
    vectors = np.linalg.eigh(family.P.toarray())[1]
    linear = np.vstack([rng.normal(size=(20, 6)), -(family.P @ vectors).T])
    optima = np.linalg.solve(family.P.toarray(), -linear.T).T
    for k in (1, 3, 8):
        errors = solver.solve_batch({"q": linear}, steps=k).x - optima
        ratios = np.linalg.norm(errors, axis=1) / np.linalg.norm(optima, axis=1)
        assert np.max(ratios) <= rates[k] * (1 + 1e-9)
        assert np.max(ratios) >= rates[k] * (1 - 1e-9)


def test_directions_without_curvature_do_not_count():
    family = random_quadratic(np.array([0.0, 0.0, 1.0, 2.0]), 1)
    assert family.strong_convexity == 0
    np.testing.assert_allclose(worst_case_rate(family, ls.Schedule({}, {"step": 0.5}), 3), [1, 0.5, 0.25, 0.125])


@given(seed=st.integers(0, 500), momentum=st.booleans(), mu=st.sampled_from([0.0, 0.02, 0.5]))
def test_interval_rates_are_the_maximum(seed, momentum, mu):
    rng = np.random.default_rng(seed)
    schedule = random_schedule(rng, 6, momentum)
    found = interval_rate(2.0, mu, schedule, 8)
    values = np.linspace(mu, 2.0, 200_001)
    p = previous = np.ones_like(values)
    for k in range(9):
        most = np.max(np.abs(p))
        assert most <= found[k] <= most * (1 + 6e-6)
        theta = schedule[k]
        t, beta = theta["step"], theta.get("momentum", 0.0)
        p, previous = (1 - t * values) * p + beta * (p - previous), p
    inside = random_quadratic(rng.uniform(max(mu, 1e-3), 2.0, 7), seed)
    assert (worst_case_rate(inside, schedule, 8) <= found + 1e-12).all()


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_chebyshev_steps_attain_youngs_rate(steps):
    L, mu = 3.0, 0.2
    young = 1 / np.cosh(steps * np.arccosh((L + mu) / (L - mu)))
    rates = interval_rate(L, mu, ls.chebyshev(L, mu, steps), steps)
    np.testing.assert_allclose(rates[-1], young, rtol=6e-6)
    np.testing.assert_allclose(interval_rate(L, mu, ls.Schedule({}, {"step": 2 / (L + mu)}), 5)[5], 0.875**5, rtol=6e-6)


def test_overflow_is_infinite():
    family = ls.Quadratic(np.diag([1.0, 2.0]))
    schedule = ls.Schedule({"step": [100.0] * 300}, {"step": 0.5})
    rates = worst_case_rate(family, schedule, 310)
    assert rates[100] == pytest.approx(199.0**100)
    assert (rates[150:] == np.inf).all()


def test_bad_input_is_refused():
    family, osqp = ls.Quadratic(np.eye(2)), ls.Schedule({}, {"sigma": 1.0, "alpha": 1.6})
    with pytest.raises(ValueError, match="step and perhaps momentum"):
        worst_case_rate(family, osqp, 3)
    with pytest.raises(ValueError, match="negative"):
        worst_case_rate(family, ls.Schedule({}, {"step": 1.0}), -1)
    with pytest.raises(ValueError, match="mu"):
        interval_rate(1.0, 2.0, ls.Schedule({}, {"step": 1.0}), 3)
    with pytest.raises(ValueError, match="has the hyperparameters step"):
        state_convergence(ls.GradientDescent(), family, osqp)
    with pytest.raises(TypeError, match="Composite"):
        state_convergence(ls.ProximalGradient(), family, ls.Schedule({}, {"step": 1.0}))


# The steady state.


@pytest.mark.parametrize("case", CASES, ids=str)
def test_defaults_converge_and_values_outside_need_not(case):
    schedule = constant(case.hyperparameters)
    statement = state_convergence(case.algorithm, case.family, schedule)
    assert statement.holds
    assert "converges" in statement.sentence
    assert type(case.algorithm).__name__ in statement.sentence
    assert statement.theorem.endswith((").", "the constant Lₓ of the instance."))
    assert str(statement).startswith(statement.sentence)
    for h in case.hyperparameters:
        assert f"{h.name} = {h.default:.6g}" in statement.condition
        for outside in (value for value in (-0.1, 0.0, 1e9) if not h.steady.contains(value)):
            wrong = ls.Schedule({}, {**schedule.steady, h.name: outside})
            statement = state_convergence(case.algorithm, case.family, wrong)
            assert not statement.holds
            assert f"need not converge: it is not true that {_condition(statement, h.name)}." in statement.sentence


def _condition(statement, name):
    return next(part for part in statement.condition.split(", ") if f"{name} = " in part)


def test_the_condition_is_the_theorems():
    family = ls.Quadratic(np.diag([1.0, 4.0]))
    statement = state_convergence(ls.HeavyBall(), family, ls.Schedule({}, {"step": 0.31, "momentum": 0.0}))
    assert statement.condition == "0 < step = 0.31 < 0.5, momentum = 0 in {0}"
    assert "(0, 2/L), here L = 4" in statement.theorem
    # Inside the theorem's open interval, though not inside the trainer's margin; and at its end.
    close, end = ls.Schedule({"step": [9.0]}, {"step": 0.49999}), ls.Schedule({}, {"step": 0.5})
    with pytest.raises(ValueError, match="outside"):
        check_schedule(close, ls.GradientDescent().hyperparameters(family), "gradient descent")
    statement = state_convergence(ls.GradientDescent(), family, close)
    assert statement.holds
    assert statement.sentence.startswith(
        "Whatever happens before step 1, the steady state of GradientDescent converges"
    )
    assert not state_convergence(ls.GradientDescent(), family, end).holds
