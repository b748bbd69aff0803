"""Exact worst cases of gradient schedules over whole classes of functions, by performance estimation.

The largest error after K steps over all L-smooth (μ-strongly) convex f, in any dimension, is the value of a
semidefinite program of size about K (Drori and Teboulle 2014; Taylor, Hendrickx and Glineur 2017). Its unknowns are
the inner products of iterates and gradients, its constraints the inequalities between values and gradients of such an f
at finitely many points; where these hold, such an f exists.

Without loss of generality L = 1, ‖z⁰ − z*‖ ≤ 1, z* = 0, f* = g* = 0 and ∇f(z*) = 0: a linear term may move from f
to g, proximal gradient steps stay the same.

Steps many times 2/L make iterates grow by orders of magnitude. So every unknown vector is measured in a unit of its
own: first a bound on its growth, then its length in the worst case that was found with these.
"""

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from .._util.progress import Bar
from ..algorithms.base import Algorithm
from ..algorithms.performance import Criterion, Performance
from ..algorithms.registry import REGISTERED
from ..schedules.schedule import Schedule
from .gradient_steps import STEP

# The worst case of each criterion is proportional to this power of L.
_POWER: dict[Criterion, int] = {"objective": 1, "distance": 0, "gradient": 2}
# Relative accuracy of the worst case: what is aimed at, in two rounds mostly, and what is enough.
_GOAL = 1e-5
_ENOUGH = 1e-3
_ROUNDS = 7


def worst_case(
    algorithm: Algorithm,
    schedule: Schedule,
    steps: int,
    *,
    L: float,
    mu: float = 0.0,
    criterion: Criterion = "objective",
) -> float:
    """Return the worst error after `steps` ≥ 1 steps of the schedule from any z⁰, per unit of ‖z⁰ − z*‖².

    Over all f with an L-Lipschitz gradient and strong convexity mu ≥ 0, and for proximal gradient methods all convex
    g besides. Beyond its step-varying steps the schedule is in its steady state. The error is

        objective:  f(z) − f*  (with g: f + g)
        distance:   ‖z − z*‖²
        gradient:   ‖∇f(z)‖²  (with g: ‖L(z − prox_{g/L}(z − ∇f(z)/L))‖²)

    No function does worse: the solver's dual solution is mended until it proves that, up to rounding. Some function
    comes within 0.1 % and 1e-6 (times L, 1, L²) of it, usually 1e-5 of it; where the solver is not that accurate an
    error is raised. 20 steps take a second, 20 proximal ones about twenty. With mu = 0 the distance need not fall.
    """
    form = _find_form(algorithm, schedule, steps, L, mu, criterion)
    thetas = [{**schedule[k], STEP: schedule[k][STEP] * L} for k in range(steps)]
    estimation = _Estimation(mu / L, capacity=2 * steps + 3)
    found = estimation.solve(*form.iterate(estimation, thetas)[criterion]())
    if found.gap <= _ENOUGH + 1e-6 / found.upper:
        return found.upper * L ** _POWER[criterion]
    raise RuntimeError(
        f"the worst case after {steps} steps was not found accurately enough: with L = 1 it is about "
        f"{found.lower:.3g}, the bound that was proved is {found.upper:.3g}. Take fewer steps"
    )


def worst_case_curve(
    algorithm: Algorithm,
    schedule: Schedule,
    counts: Iterable[int],
    *,
    L: float,
    mu: float = 0.0,
    criterion: Criterion = "objective",
    progress: bool = False,
) -> Float[np.ndarray, " counts"]:
    """Return `worst_case` after each number of steps in `counts`; every one is a semidefinite program of its own."""
    counts = list(counts)
    values = []
    with Bar("worst cases", len(counts), progress) as advance:
        for count in counts:
            values.append(worst_case(algorithm, schedule, count, L=L, mu=mu, criterion=criterion))
            advance(1)
    return np.array(values)


# A vector by its coefficients over the unknown vectors, and matrices M that stand for ⟨M, G⟩ with their Gram matrix G.
_Vector: TypeAlias = Float[np.ndarray, " u"]
_Matrices: TypeAlias = Float[np.ndarray, "m size size"]
_Points: TypeAlias = list[tuple[_Vector, _Vector, int]]


def _interpolate(points: _Points, mu: float, inverse: float, u: int, v: int) -> tuple[_Matrices, np.ndarray]:
    """Return the inequalities ⟨gram, G⟩ + value·F ≤ 0 of a convex function with curvature from mu to 1/inverse = L.

    It is minimal at 0. Between any two points i and j, with x = x_i − x_j and s = s_i − s_j,

        F_j − F_i + ⟨s_j, x⟩ + (‖s‖²/L + μ‖x‖² − 2(μ/L)⟨s, x⟩) / (2(1 − μ/L)) ≤ 0.
    """
    X, S, V = (np.zeros((len(points) + 1, size)) for size in (u, u, v))
    for k, (x, s, index) in enumerate(points):
        X[k] = x[:u]
        S[k] = s[:u]
        V[k, index] = 1.0
    i, j = np.nonzero(~np.eye(len(X), dtype=bool))
    x = (X[i] - X[j])[:, None]
    s = (S[i] - S[j])[:, None]
    squares = inverse * s.mT * s + mu * x.mT * x - 2 * mu * inverse * s.mT * x
    grams = S[j][:, None].mT * x + squares / (2 * (1 - mu * inverse))
    return (grams + grams.mT) / 2, V[j] - V[i]


class _Found(NamedTuple):
    """The error of a function that the solver found, about the largest possible one, a bound for all, and G."""

    lower: float
    upper: float
    gram: Float[np.ndarray, "u u"]

    @property
    def gap(self) -> float:
        return abs(1 - self.lower / self.upper)


class _Estimation:
    """An estimation problem with L = 1 and optimum 0; `length` bounds the iterates so far, but for momentum."""

    def __init__(self, mu: float, capacity: int):
        self.mu = mu
        self.capacity = capacity
        self.length = 1.0
        self.f = []
        self.g = []
        self.lengths = []
        self.start = self.add_unknown()

    def add_unknown(self) -> _Vector:
        """Return a new unknown vector."""
        self.lengths.append(self.length)
        return np.eye(self.capacity)[len(self.lengths) - 1]

    def evaluate(self, points: _Points, x: _Vector, gradient: _Vector) -> int:
        """Return the index of the value at x, where the function has this (sub)gradient."""
        points.append((x, gradient, len(self.f) + len(self.g)))
        return points[-1][2]

    def gradient(self, z: _Vector) -> tuple[_Vector, int]:
        """Return ∇f(z) and the index of f(z)."""
        found = self.add_unknown()
        return found, self.evaluate(self.f, z, found)

    def proximal_step(self, y: _Vector, t: float) -> tuple[_Vector, int]:
        """Return z = prox_{tg}(y − t∇f(y)) and the index of g(z). Unknown is z: its subgradient often vanishes."""
        gradient, _ = self.gradient(y)
        self.length *= max(1.0, t - 1)
        z = self.add_unknown()
        return z, self.evaluate(self.g, z, (y - z) / t - gradient)

    def solve(self, x: _Vector, *values: int) -> _Found:
        """Maximise ‖x‖² + Σ F_i over the values; return what was found."""
        lengths = np.array(self.lengths)
        u = len(self.lengths)
        v = len(self.f) + len(self.g)
        f = _interpolate(self.f, self.mu, 1.0, u, v)
        g = _interpolate(self.g, 0.0, 0.0, u, v)
        grams, linear = (np.concatenate(both) for both in zip(f, g, strict=True))
        program = _Program(grams, linear, np.outer(x, x)[:u, :u], np.isin(np.arange(v), values).astype(float))
        best = _Found(np.nan, np.inf, np.eye(u))
        padding = 1e-8
        for _ in range(_ROUNDS):
            found = program.change_units(lengths).solve(padding)
            stalled = best.gap / 2 < found.gap < 1
            if not best.gap < found.gap:
                best = found
            goal = _GOAL
            if stalled:
                goal = _ENOUGH
            if best.gap <= goal:
                break
            if np.isfinite(found.upper):
                # The start has length 1, and what vanishes in the worst case still needs a unit.
                lengths[1:] *= np.clip(np.sqrt(np.diag(found.gram)) / lengths, 1e-2, 1e2)[1:]
            else:
                padding *= 10
        return best


class _Program(NamedTuple):
    """Maximise unit·(⟨gram, G⟩ + value·F) where G ⪰ 0, G₀₀ ≤ 1 and ⟨grams_i, G⟩ + values_i·F ≤ 0 for all i."""

    grams: _Matrices
    values: Float[np.ndarray, "m v"]
    gram: Float[np.ndarray, "u u"]
    value: Float[np.ndarray, " v"]
    unit: float = 1.0
    units: "Float[np.ndarray, 'u u'] | float" = 1.0

    def change_units(self, lengths: _Vector) -> "_Program":
        """Return the same with unknown vectors in units of these lengths; all else in units to match."""
        units = np.outer(lengths, lengths)
        grams = self.grams * units
        gram = self.gram * units
        size = np.max(np.abs(grams), axis=(1, 2))[:, None]
        # A value is as large as the inequalities between its point and the optimum.
        alone = np.count_nonzero(self.values, axis=1) == 1
        scale = np.max(np.abs(self.values[alone]) * size[alone], axis=0)
        values = self.values * scale
        value = self.value * scale
        size = np.maximum(size, np.max(np.abs(values), axis=1, keepdims=True))
        unit = max(np.max(np.abs(gram)), np.max(value))
        return _Program(grams / size[:, None], values / size, gram / unit, value / unit, unit, units)

    def solve(self, padding: float) -> _Found:
        """Solve the dual program and return what was found.

        Minimise τ over λ ≥ 0 with Σ λ_i values_i = value and Σ λ_i grams_i + τE₀₀ − gram ⪰ padding·I. A solution
        inexact by less than the padding is feasible without it. The bound rises by padding·trace G.
        """
        import clarabel

        m, u, _ = self.grams.shape
        v = self.value.size
        column, row = np.tril_indices(u)
        weights = np.where(row == column, 1.0, np.sqrt(2.0))
        matrices = np.column_stack([(self.grams[:, row, column] * weights).T, np.eye(row.size)[0]])
        A = sp.vstack([np.column_stack([self.values.T, np.zeros(v)]), -sp.eye(m, m + 1), -sp.csc_matrix(matrices)])
        b = np.concatenate([self.value, np.zeros(m), -(self.gram + padding * np.eye(u))[row, column] * weights])
        cones = [clarabel.ZeroConeT(v), clarabel.NonnegativeConeT(m), clarabel.PSDTriangleConeT(u)]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = 100
        settings.equilibrate_enable = False
        # Tighter than can be reached at times; what is returned then is checked all the same.
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
        data = (sp.csc_matrix((m + 1, m + 1)), np.eye(m + 1)[m], sp.csc_matrix(A), b)
        solution = clarabel.DefaultSolver(*data, cones, settings).solve()
        multipliers = np.nan_to_num(solution.x)
        duals = np.nan_to_num(solution.z)
        G = np.zeros((u, u))
        F = -duals[:v]
        G[row, column] = G[column, row] = duals[v + m :] / weights
        # What violated constraints add to the error has the price of their multipliers.
        excess = np.append(np.tensordot(self.grams, G) + self.values @ F, G[0, 0] - 1)
        lower = np.sum(self.gram * G) + self.value @ F - multipliers @ np.maximum(excess, 0)
        return _Found(self.unit * float(lower), self.unit * self.prove_bound(multipliers), G * self.units)

    def prove_bound(self, multipliers: Float[np.ndarray, " multipliers"]) -> float:
        """Return τ where λ ≥ 0 and τ prove that it bounds the error, otherwise infinite:

        ⟨gram, G⟩ + value·F ≤ ⟨gram − Σ λ_i grams_i, G⟩ + (value − Σ λ_i values_i)·F ≤ τG₀₀ + 0 ≤ τ.
        """
        tau = multipliers[-1]
        multipliers = np.maximum(multipliers[:-1], 0)
        left = self.value - multipliers @ self.values
        # The inequalities between a point and the optimum contain one value: they take what is left of it.
        alone = np.count_nonzero(self.values, axis=1) == 1
        for index in np.flatnonzero(left):
            row = np.argmax(alone & (self.values[:, index] * left[index] > 0))
            multipliers[row] += left[index] / self.values[row, index]
        slack = np.tensordot(multipliers, self.grams, axes=1) - self.gram
        slack[0, 0] += tau
        rounding = np.finfo(float).eps * len(slack) * (np.sum(multipliers) + tau)
        if np.linalg.eigvalsh(slack)[0] >= rounding:
            return float(tau)
        return np.inf


def _find_form(
    algorithm: Algorithm, schedule: Schedule, steps: int, L: float, mu: float, criterion: Criterion
) -> Performance:
    """Return the algorithm's form for performance estimation; what has no worst case is refused."""
    form: Performance | None = algorithm.own("performance")
    if form is None:
        known = ", ".join(kind.__name__ for kind in REGISTERED if kind.own("performance"))
        raise TypeError(f"worst cases are known for {known}, not for {type(algorithm).__name__}")
    if set(schedule.names) != set(form.names):
        raise ValueError(
            f"{type(algorithm).__name__} has the hyperparameters {', '.join(sorted(form.names))}; "
            f"the schedule has {', '.join(schedule.names)}"
        )
    if criterion not in _POWER:
        raise ValueError(f"criterion must be one of {', '.join(_POWER)}, got {criterion!r}")
    if not 0 < L < np.inf or not 0 <= mu < L:
        raise ValueError(f"need 0 ≤ mu < L < ∞, got L = {L}, mu = {mu}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not all(schedule[k][STEP] > 0 for k in range(steps)):
        raise ValueError("all steps of the schedule must be positive")
    return form
