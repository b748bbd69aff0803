"""CVXPY problems with parameters of every kind, each with a sampler of its parameters' values."""

import cvxpy as cp
import numpy as np


def portfolio(seed=0):
    rng = np.random.default_rng(seed)
    n, factors = 8, 3
    F, d = rng.normal(size=(n, factors)), 0.1 + rng.random(n)
    w, f = cp.Variable(n, name="w", nonneg=True), cp.Variable(factors, name="f")
    mu, held = cp.Parameter(n, name="mu"), cp.Parameter(n, name="held", nonneg=True)
    risk = cp.sum_squares(f) + cp.sum_squares(cp.multiply(np.sqrt(d), w))
    cost = 0.05 * cp.norm1(w - held)
    problem = cp.Problem(cp.Maximize(mu @ w - risk - cost + 2.5), [f == F.T @ w, cp.sum(w) == 1])
    return problem, lambda r: {"mu": r.normal(size=n), "held": r.dirichlet(np.ones(n))}


def mpc(seed=1):
    rng = np.random.default_rng(seed)
    nx, nu, T = 3, 2, 5
    A, B = np.eye(nx) + 0.1 * rng.normal(size=(nx, nx)), rng.normal(size=(nx, nu))
    x, u = cp.Variable((nx, T + 1), name="x"), cp.Variable((nu, T), name="u")
    start, target = cp.Parameter(nx, name="start"), cp.Parameter((nx, T), name="target")
    limit, low = cp.Parameter(nonneg=True, name="limit"), cp.Parameter((nu, T), name="low")
    cost = cp.sum_squares(x[:, 1:] - target) + 0.1 * cp.sum_squares(u)
    rows = [x[:, 1:] == A @ x[:, :-1] + B @ u, x[:, 0] == start, u <= limit, u >= low]
    sample = {"start": nx, "target": (nx, T)}
    return cp.Problem(cp.Minimize(cost), rows), lambda r: {
        **{name: r.normal(size=shape) for name, shape in sample.items()},
        "limit": 0.3 + 0.2 * r.random(),
        "low": -0.2 - 0.3 * r.random((nu, T)),
    }


def nnls(seed=2):
    A = np.random.default_rng(seed).normal(size=(12, 6))
    z, b = cp.Variable(6, name="z", nonneg=True), cp.Parameter(12, name="b")
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ z - b))), lambda r: {"b": r.normal(size=12)}


def lasso(seed=3):
    A = np.random.default_rng(seed).normal(size=(10, 7))
    z, b = cp.Variable(7, name="z"), cp.Parameter(10, name="b")
    weight = cp.Parameter(nonneg=True, name="weight")
    cost = 0.5 * cp.sum_squares(A @ z - b) + weight * cp.norm1(z)
    return cp.Problem(cp.Minimize(cost)), lambda r: {"b": r.normal(size=10), "weight": 0.1 + r.random()}


def ball(seed=4):
    A = np.random.default_rng(seed).normal(size=(5, 4))
    z = cp.Variable(4, name="z")
    c, b, radius = cp.Parameter(4, name="c"), cp.Parameter(5, name="b"), cp.Parameter(pos=True, name="radius")
    rows = [cp.norm(A @ z - b) <= radius, cp.SOC(radius + 1.0, z - 0.1), cp.sum(z) <= 3]
    problem = cp.Problem(cp.Minimize(c @ z + 0.5 * cp.sum_squares(z)), rows)
    return problem, lambda r: {"c": r.normal(size=4), "b": 0.3 * r.normal(size=5), "radius": 1.5 + r.random()}


def semidefinite(seed=5):
    X, t = cp.Variable((3, 3), name="X", symmetric=True), cp.Variable(name="t")
    C, level = cp.Parameter((3, 3), name="C", symmetric=True), cp.Parameter(name="level")
    rows = [X >> 0.1 * np.eye(3), cp.trace(X) == level, X[0, 1] + t == 0.1, cp.bmat([[X[:2, :2]]]) << 4 * np.eye(2)]
    problem = cp.Problem(cp.Minimize(cp.trace(C @ X) + cp.sum_squares(X - 0.1) + t**2), rows)

    def sample(r):
        C = r.normal(size=(3, 3))
        return {"C": C + C.T, "level": 1.0 + r.random()}

    return problem, sample


def offsets(seed=6):
    """Maximise, with constants and parameters that no variable multiplies."""
    z, p, shift = cp.Variable((2, 3), name="z"), cp.Parameter((2, 3), name="p"), cp.Parameter(name="shift")
    gain = cp.sum(cp.multiply(p, z)) - cp.sum_squares(z) + 3 * shift - cp.sum(p) + 7.0
    return cp.Problem(cp.Maximize(gain), [z <= 0.3, cp.sum(z, axis=1) >= shift]), lambda r: {
        "p": r.normal(size=(2, 3)),
        "shift": -r.random(),
    }


def kinds(seed=7):
    """Positive and negative semidefinite, diagonal and bounded parameters; diagonal and bounded variables."""
    X = cp.Variable((3, 3), name="X", PSD=True)
    D, v = (
        cp.Variable((3, 3), name="D", diag=True),
        cp.Variable(3, name="v", bounds=[-0.2, np.array([0.1, 0.5, np.inf])]),
    )
    up, down = cp.Parameter((3, 3), name="up", PSD=True), cp.Parameter((3, 3), name="down", NSD=True)
    scale, small = cp.Parameter((3, 3), name="scale", diag=True), cp.Parameter(3, name="small", bounds=[-1, 1])
    cost = cp.trace(up @ X) + cp.sum_squares(X - 0.1) + cp.sum_squares(D - scale) + cp.sum_squares(v - small)
    rows = [cp.trace(X) >= 1, X - down >> 0, cp.diag(D) + v <= 1.0]

    def sample(r):
        up, down = r.normal(size=(2, 3, 3))
        return {
            "up": up @ up.T,
            "down": -down @ down.T,
            "scale": np.diag(r.normal(size=3)),
            "small": r.uniform(-1, 1, size=3),
        }

    return cp.Problem(cp.Minimize(cost), rows), sample


def entropy(seed=8):
    """log, entr, kl_div and log_sum_exp, all of which CVXPY writes with exponential cones."""
    rng = np.random.default_rng(seed)
    z, c, p = cp.Variable(3, name="z"), cp.Parameter(3, name="c"), cp.Parameter(name="p")
    prior = rng.dirichlet(np.ones(3))
    gain = cp.sum(cp.entr(z)) - cp.sum(cp.kl_div(z, prior)) + cp.log(z[0] + p) + c @ z
    rows = [cp.sum(z) == 1, cp.log_sum_exp(2 * z) <= 2.2]
    return cp.Problem(cp.Maximize(gain), rows), lambda r: {"c": r.normal(size=3), "p": 0.5 + r.random()}


def utility(seed=9):
    """exp and logistic beside a quadratic cost, a second-order cone and a cone that is written out."""
    A = np.random.default_rng(seed).normal(size=(4, 3))
    z, b, t = cp.Variable(3, name="z"), cp.Parameter(4, name="b"), cp.Variable(name="t")
    cost = cp.sum(cp.logistic(A @ z - b)) + 0.1 * cp.sum_squares(z) + cp.exp(z[0]) + t
    rows = [cp.norm(z) <= 2, cp.ExpCone(z[1] - z[2], 1.0 + 0.1 * z[0], t)]
    return cp.Problem(cp.Minimize(cost), rows), lambda r: {"b": r.normal(size=4)}


def powers(seed=10):
    """Power cones of several exponents."""
    z, t, c = cp.Variable(3, name="z"), cp.Variable(2, name="t"), cp.Parameter(3, name="c", pos=True)
    rows = [cp.PowCone3D(z[:2], z[1:], t, [0.3, 0.8]), cp.sum(z) <= 3]
    cost = c @ z - t[0] - 2 * t[1] + 0.1 * cp.sum_squares(t)
    return cp.Problem(cp.Minimize(cost), rows), lambda r: {"c": 0.2 + 0.3 * r.random(3)}


_MAKERS = (portfolio, mpc, nnls, lasso, ball, semidefinite, offsets, kinds, entropy, utility, powers)
PROBLEMS = {f.__name__: f for f in _MAKERS}


def random_problem(seed):
    """A DPP problem of random sizes, with a quadratic, second-order or semidefinite part, by turns."""
    rng = np.random.default_rng([99, seed])
    n, m, k = rng.integers(3, 7), rng.integers(2, 6), rng.integers(2, 5)
    x, a, b = cp.Variable(n, name="x"), cp.Parameter(n, name="a"), cp.Parameter((m, k), name="b")
    G, H = rng.normal(size=(m, n)), rng.normal(size=(k, n))
    rows = [G @ x <= 9 + b @ rng.normal(size=k), x >= -2, x <= 2]
    cost = a @ x + cp.sum_squares(H @ x - b[0]) + rng.normal() * cp.sum(b)
    match seed % 4:
        case 1:
            rows += [cp.norm(H @ x - b[-1]) <= 6 + a[0]]
        case 2:
            basis = [(R + R.T) / 2 for R in rng.normal(size=(n, 3, 3))]
            rows += [sum(x[i] * basis[i] for i in range(n)) + (9 + a[1]) * np.eye(3) >> 0]
        case 3:
            rows += [cp.norm_inf(x - a) <= 5, H[0] @ x == 0.1 * b[0, 0]]
    sense = cp.Maximize(-cost) if rng.random() < 0.5 else cp.Minimize(cost)
    return cp.Problem(sense, rows), lambda r: {"a": r.normal(size=n), "b": r.normal(size=(m, k))}


def set_values(problem, values):
    for parameter in problem.parameters():
        parameter.value = values[parameter.name()]
