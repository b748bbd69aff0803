"""Iterates against something we did not write: the C packages, and a plain NumPy transcription of the method."""

import jax
import jax.numpy as jnp
import numpy as np
import osqp
import pytest
import scipy.linalg
import scipy.sparse as sp
import scs

import longstep as ls
from longstep.engine.problem import Problem
from longstep.solver import Solver

from ..helpers import CONES, find_roles, random_conic, random_qp

STEPS = 60


def iterates(solver: Solver, parameter, count=STEPS):
    """The points after 1…count steps, in the user's units."""
    instance = solver.family.instance(parameter)
    problem = Problem(solver.algorithm, solver.family, solver.plan, instance)

    # Steps one by one: within a loop, and with the flags of these tests, XLA has projected onto power cones wrongly.
    @jax.jit
    def step(state, k):
        state = problem.stepper(jnp.minimum(k, solver.plan.H))(state)
        return state, solver.algorithm.extract(solver.family, instance, state)

    state, points = solver.algorithm.init(solver.family, instance, None), []
    for k in range(count):
        state, point = step(state, k)
        points.append(point)
    return jax.tree.map(lambda *rows: jnp.stack(rows), *points)


def relative(ours, theirs):
    return np.max(np.abs(ours - theirs)) / max(1.0, np.max(np.abs(theirs)))


@pytest.mark.parametrize("alpha", [1.0, 1.6])
@pytest.mark.parametrize("equalities", [0, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_osqp_iterates_are_the_packages(alpha, equalities, seed):
    P, q, A, l, u = random_qp(seed, equalities=equalities, free=2)
    rho = 0.1 if seed == 0 else 0.7
    family = ls.QP(P, A, q=q, l=l, u=u, equilibrate=False)
    ours = iterates(Solver(family, rho_ineq=rho, rho_eq=1000 * rho, alpha=alpha), {"q": q})
    reference = osqp.OSQP()
    reference.setup(
        sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(A), l, u, scaling=0, adaptive_rho=False, rho=rho, alpha=alpha,
        check_termination=0, warm_starting=False, polishing=False, verbose=False, max_iter=1,
    )  # fmt: skip
    for k in range(1, STEPS + 1):
        reference.update_settings(max_iter=k)
        result = reference.solve(raise_error=False)
        assert relative(ours.x[k - 1], result.x) < 1e-9
        assert relative(ours.y[k - 1], result.y) < 1e-9


@pytest.mark.parametrize("kind", CONES)
@pytest.mark.parametrize("alpha", [pytest.param(1.0, marks=pytest.mark.slow), 1.5])
def test_scs_iterates_are_the_packages(kind, alpha):
    cones = CONES[kind]
    P, A, b, c = random_conic(7, cones)
    scale = 0.1 if alpha == 1.5 else 0.6
    family = ls.Conic(P, A, cones, b=b, c=c, equilibrate=False)
    values = {"r_yz": 1 / (1000 * scale), "r_ynz": 1 / scale, "r_w": 1e-4, "alpha": alpha}
    ours = iterates(Solver(family, **values), {"b": b})
    data = {"P": sp.csc_matrix(np.triu(P)), "A": sp.csc_matrix(A), "b": b, "c": c}
    cone = {"z": cones.zero, "l": cones.nonnegative, "q": list(cones.second_order), "s": list(cones.semidefinite)}
    cone |= {"ep": cones.exponential, "p": list(cones.power)}
    # The package projects onto power cones to 1e-9 only, and near an edge of an exponential cone it takes the edge.
    tolerance = 1e-6 if cones.exponential else 1e-7 if cones.power else 1e-9
    for k in range(1, STEPS + 1):
        result = scs.SCS(
            data, cone, normalize=False, adaptive_scale=False, acceleration_lookback=0, scale=scale, rho_x=1e-4,
            alpha=alpha, max_iters=k, eps_abs=0.0, eps_rel=0.0, eps_infeas=0.0, verbose=False,
        ).solve()  # fmt: skip
        for name in "xys":
            assert relative(getattr(ours, name)[k - 1], result[name]) < tolerance, (k, name)


def random_schedule(names, H, seed, alpha=True):
    rng = np.random.default_rng(seed)
    draw = {name: np.exp(rng.normal(size=H + 1)) for name in names}
    if alpha:
        draw["alpha"] = rng.uniform(0.6, 1.8, size=H + 1)
    return ls.Schedule({k: v[:H] for k, v in draw.items()}, {k: v[H] for k, v in draw.items()})


def test_osqp_schedule_is_the_transcription():
    P, q, A, l, u = random_qp(2, equalities=3, free=1)
    schedule = random_schedule(["sigma", "rho_eq", "rho_ineq"], 20, 0)
    family = ls.QP(P, A, q=q, l=l, u=u, equilibrate=False)
    ours = iterates(Solver(family, schedule), {"q": q}, 40)
    w, z, y = np.zeros(len(q)), np.zeros(len(l)), np.zeros(len(l))
    for k in range(40):
        t = schedule[k]
        rho = np.where(l == u, t["rho_eq"], t["rho_ineq"])
        rho[np.isinf(l) & np.isinf(u)] = 1e-6
        K = P + t["sigma"] * np.eye(len(q)) + A.T @ np.diag(rho) @ A
        w_tilde = np.linalg.solve(K, t["sigma"] * w - q + A.T @ (rho * z - y))
        w = t["alpha"] * w_tilde + (1 - t["alpha"]) * w
        r = t["alpha"] * A @ w_tilde + (1 - t["alpha"]) * z
        z = np.clip(r + y / rho, l, u)
        y = y + rho * (r - z)
        for name, value in (("x", w), ("s", z), ("y", y)):
            assert relative(getattr(ours, name)[k], value) < 1e-9, (k, name)


def project_dual(cones, v):
    """Π_K* in NumPy, cone by cone."""
    out, i = v.copy(), cones.zero
    out[i : i + cones.nonnegative] = np.maximum(v[i : i + cones.nonnegative], 0)
    i += cones.nonnegative
    for k in cones.second_order:
        t, u = v[i], v[i + 1 : i + k]
        norm = np.linalg.norm(u)
        if norm <= -t:
            out[i : i + k] = 0
        elif norm > t:
            out[i : i + k] = (norm + t) / 2 * np.concatenate([[1], u / norm])
        i += k
    for k in cones.semidefinite:
        rows = k * (k + 1) // 2
        X, place = np.zeros((k, k)), 0
        entries = [(r, c) for c in range(k) for r in range(c, k)]
        for place, (r, c) in enumerate(entries):
            X[r, c] = X[c, r] = v[i + place] / (1 if r == c else np.sqrt(2))
        values, vectors = np.linalg.eigh(X)
        X = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
        for place, (r, c) in enumerate(entries):
            out[i + place] = X[r, c] * (1 if r == c else np.sqrt(2))
        i += rows
    return out


def test_scs_schedule_is_the_transcription():
    cones = CONES["mixed"]
    P, A, b, c = random_conic(3, cones)
    schedule = random_schedule(["r_w", "r_yz", "r_ynz", "r_tau"], 20, 1)
    ours = iterates(Solver(ls.Conic(P, A, cones, b=b, c=c, equilibrate=False), schedule), {"b": b}, 40)
    m, n = A.shape
    M = np.block([[P, A.T], [-A, np.zeros((m, m))]])
    q = np.concatenate([c, b])

    def diagonal(t):
        return np.concatenate(
            [np.full(n, t["r_w"]), np.full(cones.zero, t["r_yz"]), np.full(m - cones.zero, t["r_ynz"])]
        )

    mu, eta = np.zeros(n + m), 1.0
    for k in range(40):
        t, R = schedule[k], diagonal(schedule[k])
        if k > 0:
            size = np.sqrt(n + m + 1) / np.sqrt(mu @ mu + eta**2)
            mu, eta = mu * size, eta * size
        p, g = np.linalg.solve(np.diag(R) + M, R * mu), np.linalg.solve(np.diag(R) + M, q)
        roots = np.roots(
            [t["r_tau"] + g @ (R * g), mu @ (R * g) - 2 * p @ (R * g) - t["r_tau"] * eta, p @ (R * (p - mu))]
        )
        tau_tilde = 1.0 if k == 0 else np.max(roots.real)
        w_tilde = p - g * tau_tilde
        w = 2 * w_tilde - mu
        w[n:] = project_dual(cones, w[n:])
        tau = max(2 * tau_tilde - eta, 0.0)
        v, v_tau = R * (w + mu - 2 * w_tilde), t["r_tau"] * (tau + eta - 2 * tau_tilde)
        following = schedule[k + 1]
        mu = v / diagonal(following) + 2 * w_tilde - w + t["alpha"] * (w - w_tilde)
        eta = v_tau / following["r_tau"] + 2 * tau_tilde - tau + t["alpha"] * (tau - tau_tilde)
        for name, value in (("x", w[:n] / tau), ("y", w[n:] / tau), ("s", v[n:] / tau)):
            assert relative(getattr(ours, name)[k], value) < 1e-8, (k, name)


def gradient_transcription(schedule, gradient, prox, n, accelerated, count):
    z = previous = np.zeros(n)
    for k in range(count):
        t = schedule[k]
        beta = t.get("momentum", 0.0)
        y = z + beta * (z - previous) if accelerated else z
        moved = y - t["step"] * gradient(y) + (0 if accelerated else beta * (z - previous))
        z, previous = prox(moved, t["step"]), z
        yield z


@pytest.mark.parametrize(
    ("algorithm", "weight", "ahead"),
    [
        (ls.GradientDescent(), 0.0, False),
        (ls.HeavyBall(), 0.0, False),
        (ls.ProximalGradient(), 0.3, False),
        (ls.AcceleratedProximalGradient(), 0.3, True),
    ],
)
def test_gradient_schedules_are_the_transcription(algorithm, weight, ahead):
    """Those that go `ahead` take the gradient where the momentum leads."""
    rng = np.random.default_rng(0)
    P = scipy.linalg.toeplitz([2.0, -1.0, 0, 0, 0])
    q = rng.normal(size=5)
    family = ls.Quadratic(P, q=q)
    family = ls.Composite(family, ls.L1(weight)) if weight else family
    varying = {"step": rng.uniform(0.1, 0.8, 8)}
    steady = {"step": 0.3}
    if "momentum" in find_roles(algorithm, family).values():
        varying["momentum"], steady["momentum"] = rng.uniform(0, 0.9, 8), 0.0
    schedule = ls.Schedule(varying, steady)
    ours = iterates(Solver(family, schedule, algorithm=algorithm), {"q": q}, 20)

    def soft(v, t):
        return np.sign(v) * np.maximum(np.abs(v) - weight * t, 0)

    expected = gradient_transcription(schedule, lambda z: P @ z + q, soft, 5, ahead, 20)
    np.testing.assert_allclose(ours.x, list(expected), atol=1e-13)
