"""Condensed ADMM, the metric and the ladder, against what they are defined by."""

import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.schedules.schedule import constant

N, EQUALITIES, INEQUALITIES = 8, 3, 10


def family(seed=0, equilibrate=False):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(N, N))
    A = rng.normal(size=(EQUALITIES + INEQUALITIES, N))
    x = rng.normal(size=N)
    l, u = A @ x - rng.uniform(0, 0.5, len(A)), A @ x + rng.uniform(0, 0.5, len(A))
    l[:EQUALITIES] = u[:EQUALITIES] = (A @ x)[:EQUALITIES]
    l[EQUALITIES] = -np.inf
    move = ls.Affine(q=np.eye(N))
    return ls.QP(root @ root.T / N, A, q=np.zeros(N), l=l, u=u, parameter=move, equilibrate=equilibrate)


def parameters(count=4):
    return np.random.default_rng(9).normal(size=(count, N))


@pytest.mark.parametrize("equilibrate", [False, True])
def test_steps_are_those_of_the_augmented_lagrangian(equilibrate):
    """(z, y) by the formula of the condensed step, with K_ρ⁻¹ of the whole KKT matrix and the units of the family."""
    own = family(equilibrate=equilibrate)
    metric = np.random.default_rng(1).uniform(0.2, 5.0, INEQUALITIES)
    schedule = ls.Schedule({"rho": [0.5, 2.0], "alpha": [1.0, 1.8]}, {"rho": 0.7, "alpha": 1.3}, metric=metric)
    solver = ls.Solver(own, schedule, algorithm=Condensed(), safeguard=None)
    s = own.matrices.scaling
    d, e, c = (np.asarray(a) for a in (s.d, s.e, s.c))
    P, A = c * (d[:, None] * own.P.toarray() * d), e[:, None] * own.A.toarray() * d
    E, C = A[:EQUALITIES], A[EQUALITIES:]
    for q in parameters():
        l, u = (np.asarray(own.host.values[k]) * e for k in "lu")
        b, low, high, cost = l[:EQUALITIES], l[EQUALITIES:], u[EQUALITIES:], c * d * q
        z = y = np.zeros(INEQUALITIES)
        for k in range(4):
            rho, alpha = schedule[k]["rho"] * metric, schedule[k]["alpha"]
            K = np.block([[P + C.T @ np.diag(rho) @ C, E.T], [E, np.zeros((EQUALITIES, EQUALITIES))]])
            x = np.linalg.solve(K, np.concatenate([C.T @ (rho * z - y) - cost, b]))[:N]
            r = alpha * C @ x + (1 - alpha) * z
            z, y = np.clip(r + y / rho, low, high), y + rho * (r - np.clip(r + y / rho, low, high))
            found = solver.solve(q, steps=k + 1)
            np.testing.assert_allclose(found.x, d * x, atol=1e-9)
            np.testing.assert_allclose(found.y[EQUALITIES:], (e[EQUALITIES:] / c) * y, atol=1e-8)
            np.testing.assert_allclose(own.A[:EQUALITIES] @ found.x, own.host.values["l"][:EQUALITIES], atol=1e-9)


def test_optima_are_fixed_points_and_are_found():
    own = family()
    optima = ls.solve_references(own, parameters(), progress=False, cache=False)
    solver = ls.Solver(own, algorithm=Condensed())
    solution = solver.solve_batch(parameters(), eps_abs=1e-9, eps_rel=1e-9, max_iter=20_000)
    np.testing.assert_allclose(solution.x, optima.x, atol=1e-6)
    np.testing.assert_allclose(solution.objective, optima.value, atol=1e-6)
    rng = np.random.default_rng(2)
    for _ in range(3):
        values = {"rho": float(np.exp(rng.normal())), "alpha": float(rng.uniform(0.5, 1.9))}
        schedule = ls.Schedule({}, values, metric=np.exp(rng.normal(size=INEQUALITIES)))
        start = ls.Point(optima.x, optima.y, optima.s)
        moved = ls.Solver(own, schedule, algorithm=Condensed()).solve_batch(parameters(), steps=5, warm_start=start)
        np.testing.assert_allclose(moved.x, optima.x, atol=1e-6)


def test_metrics_are_checked():
    own = family()
    usual = constant(Condensed().hyperparameters(own)).steady
    with pytest.raises(ValueError, match="the metric has 3 entries; Condensed on this family takes 10"):
        ls.Solver(own, ls.Schedule({}, usual, metric=np.ones(3)), algorithm=Condensed())
    with pytest.raises(ValueError, match="positive, finite"):
        ls.Schedule({}, usual, metric=[1.0, -1.0])
    schedule = ls.Schedule({}, usual, metric=np.full(INEQUALITIES, 2.0), fallback=usual)
    assert ls.Schedule.from_json(schedule.to_json()) == schedule
    # A metric that is the same for all rows is a larger penalty.
    a = ls.Solver(own, schedule, algorithm=Condensed()).run(parameters(), 20)
    b = ls.Solver(own, rho=2 * usual["rho"], algorithm=Condensed(), ladder=False).run(parameters(), 20)
    np.testing.assert_allclose(a.dual, b.dual, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("algorithm", [ls.OSQP(), Condensed()])
def test_a_ladder_solves_what_a_bad_penalty_does_not(algorithm, tmp_path):
    # Penalties a thousand times too small, as a family in other units has them.
    own = ls.QP(sp.eye_array(5) * 1e3, np.eye(5), q=np.zeros(5), l=-np.ones(5), u=np.ones(5), equilibrate=False)
    q = {"q": np.array([5e3, -2e3, 100.0, 0.0, -5e3])}
    limits = {"eps_abs": 1e-8, "eps_rel": 0.0, "max_iter": 2_000}
    fixed = ls.Solver(own, algorithm=algorithm, ladder=False).solve(q, **limits)
    solver = ls.Solver(own, algorithm=algorithm)
    climbed = solver.solve(q, **limits)
    assert fixed.status == ls.Status.ITERATION_LIMIT
    assert climbed.status == ls.Status.SOLVED
    np.testing.assert_allclose(climbed.x, [-1.0, 1.0, -0.1, 0.0, 1.0], atol=1e-6)
    solver.save(tmp_path / "a.longstep")
    again = ls.Solver.load(tmp_path / "a.longstep")
    assert again.content_hash() == solver.content_hash()
    assert again.solve(q, **limits).iterations == climbed.iterations
    # In a batch every instance has a rung of its own.
    many = solver.solve_batch({"q": np.stack([q["q"], 0.01 * q["q"], -q["q"]])}, **limits)
    assert many.iterations[0] == climbed.iterations
    assert (many.status == ls.Status.SOLVED).all()
