"""Trusted optima of single instances: Clarabel and closed forms, polished, and checked against the KKT conditions.

Plain NumPy and SciPy on the user's own data, so that workers of a pool need nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ..cones.base import ClarabelCone
from ..errors import InaccurateReferenceError, NoOptimumError


@dataclass(frozen=True)
class Optimum:
    """One optimum: primal x, dual y, slack s (both None without constraints), optimal value, largest KKT error."""

    x: np.ndarray
    y: np.ndarray | None
    s: np.ndarray | None
    value: float
    error: float


@dataclass(frozen=True)
class Optima:
    """Optima of N instances: x (N, n), y and s (N, m) or None, value (N,), error (N,) the relative KKT errors."""

    x: np.ndarray
    y: np.ndarray | None
    s: np.ndarray | None
    value: np.ndarray
    error: np.ndarray

    def __len__(self) -> int:
        return len(self.value)

    def select(self, index: np.ndarray) -> "Optima":
        """Return some of them, by their numbers."""
        return replace(self, **{name: array[index] for name, array in vars(self).items() if array is not None})

    @staticmethod
    def stack(optima: Sequence[Optimum]) -> "Optima":
        """Return single optima as those of N instances."""
        return _combine(np.stack, optima)

    @staticmethod
    def join(parts: "Sequence[Optima]") -> "Optima":
        """Return the optima of parts of the instances, one after the other."""
        return _combine(np.concatenate, parts)


def _combine(join: Callable[[list[Any]], np.ndarray], items: Sequence[Optimum | Optima]) -> Optima:
    """Return the optima of all items; what they lack without constraints is None here too."""
    arrays: dict[str, Any] = {}
    for field in fields(Optima):
        values = [getattr(item, field.name) for item in items]
        arrays[field.name] = None
        if values[0] is not None:
            arrays[field.name] = join(values)
    return Optima(**arrays)


def require(optimum: Optimum, accuracy: float, what: str) -> Optimum:
    """Return the optimum; refuse one whose relative KKT error is not within the accuracy."""
    if not optimum.error <= accuracy:
        raise InaccurateReferenceError(
            f"the reference optimum of {what} has a relative KKT error of {optimum.error:.1e}, but {accuracy:.1e} was "
            "asked for. Check the scale of the data or ask for a looser accuracy"
        )
    return optimum


def solve_qp(P: sp.csc_array, A: sp.csc_array, q: np.ndarray, l: np.ndarray, u: np.ndarray, what: str) -> Optimum:
    """Minimise ½x'Px + q'x over l ≤ Ax ≤ u and return the optimum.

    By Clarabel, then by an exact solve on the active rows it found.
    """
    import clarabel

    equal = l == u
    upper = (u < np.inf) & (l < u)
    lower = (l > -np.inf) & (l < u)
    rows = sp.csc_array(sp.vstack([A[equal], A[upper], -A[lower]]))
    cones = [clarabel.ZeroConeT(int(equal.sum())), clarabel.NonnegativeConeT(int(upper.sum() + lower.sum()))]
    x, dual, _ = _run_clarabel(P, q, rows, np.concatenate([u[equal], u[upper], -l[lower]]), cones, what)
    y = np.zeros(len(l))
    sizes = np.cumsum([equal.sum(), upper.sum()])
    y[equal] += dual[: sizes[0]]
    y[upper] += dual[sizes[0] : sizes[1]]
    y[lower] -= dual[sizes[1] :]
    candidates = [(x, y)]
    # A polished point shows which rows were taken for active wrongly; a few rounds settle them.
    for _ in range(6):
        polished = _polish(P, A, q, l, u, *candidates[-1])
        if polished is None:
            break
        candidates.append(polished)
        if measure_qp_error(P, A, q, l, u, *polished) <= 1e-13:
            break
    errors = [measure_qp_error(P, A, q, l, u, *candidate) for candidate in candidates]
    x, y = candidates[int(np.argmin(errors))]
    return Optimum(x, y, A @ x, float(0.5 * x @ (P @ x) + q @ x), min(errors))


def _polish(
    P: sp.csc_array,
    A: sp.csc_array,
    q: np.ndarray,
    l: np.ndarray,
    u: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Solve the KKT system with the active rows as equalities and return x and y; None where it is singular.

    By regularised LU with iterative refinement.
    """
    z = A @ x
    at_upper = (u - z < y) | (l == u)
    at_lower = (z - l < -y) & (l < u)
    active = np.flatnonzero(at_upper | at_lower)
    target = np.where(at_upper, u, l)[active]
    n = len(q)
    k = len(active)
    kkt = sp.csc_array(P)
    if k:
        kkt = sp.csc_array(sp.block_array([[P, A[active].T], [A[active], None]]))
    rhs = np.concatenate([-q, target])
    solution = np.concatenate([x, y[active]])
    shift = 1e-9 * sp.diags_array(np.concatenate([np.ones(n), -np.ones(k)]))
    try:
        factor = sp.linalg.splu(sp.csc_matrix(kkt + shift))
    except RuntimeError:
        return None
    for _ in range(20):
        solution = solution + factor.solve(rhs - kkt @ solution)
    if not np.isfinite(solution).all():
        return None
    full = np.zeros_like(y)
    full[active] = solution[n:]
    return solution[:n], full


def measure_qp_error(
    P: sp.csc_array,
    A: sp.csc_array,
    q: np.ndarray,
    l: np.ndarray,
    u: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
) -> float:
    """Return the largest relative violation of feasibility, stationarity and complementarity."""
    z = A @ x
    Px = P @ x
    Aty = A.T @ y
    primal = np.max(np.maximum(np.maximum(l - z, z - u), 0), initial=0.0) / (1 + _norm(z))
    dual = _norm(Px + q + Aty) / (1 + max(_norm(Px), _norm(q), _norm(Aty)))
    with np.errstate(invalid="ignore"):
        slack = np.where(y > 0, u - z, np.where(y < 0, z - l, 0.0))
    complementary = _norm(np.minimum(np.abs(slack), np.abs(y))) / (1 + min(_norm(z), _norm(y)))
    return float(max(primal, dual, complementary))


def solve_conic(
    P: sp.csc_array,
    A: sp.csc_array,
    cones: tuple[Sequence[ClarabelCone], np.ndarray],
    b: np.ndarray,
    c: np.ndarray,
    what: str,
) -> Optimum:
    """Minimise ½x'Px + c'x over Ax + s = b, s ∈ K by Clarabel; return the optimum.

    `cones` has Clarabel's by name and size, and our rows in their order.
    """
    import clarabel

    names, order = cones
    kinds = [getattr(clarabel, name)(*() if size is None else (size,)) for name, size in names]
    x, dual, slack = _run_clarabel(P, c, sp.csc_array(A[order]), b[order], kinds, what)
    y = np.empty_like(dual)
    s = np.empty_like(slack)
    y[order] = dual
    s[order] = slack
    Px = P @ x
    Ax = A @ x
    Aty = A.T @ y
    primal = _norm(Ax + s - b) / (1 + max(_norm(Ax), _norm(s), _norm(b)))
    stationary = _norm(Px + c + Aty) / (1 + max(_norm(Px), _norm(c), _norm(Aty)))
    quadratic = x @ Px
    linear = c @ x
    support = b @ y
    gap = abs(quadratic + linear + support) / (1 + max(abs(quadratic), abs(linear), abs(support)))
    return Optimum(x, y, s, float(0.5 * quadratic + linear), float(max(primal, stationary, gap)))


def _run_clarabel(
    P: sp.csc_array, q: np.ndarray, A: sp.csc_array, b: np.ndarray, cones: list, what: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return x, dual values and slacks of min ½x'Px + q'x over Ax + s = b, s in the cones."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 500
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    # Cones of no rows confuse Clarabel's presolve.
    cones = [c for c in cones if getattr(c, "dim", 1) > 0]
    solver = clarabel.DefaultSolver(sp.csc_matrix(sp.triu(P)), q, sp.csc_matrix(A), b, cones, settings)
    result = solver.solve()
    status = str(result.status)
    if "Infeasible" in status:
        kind = "dual"
        if "Primal" in status:
            kind = "primal"
        raise NoOptimumError(f"{what} has no optimum: Clarabel finds it {kind} infeasible")
    return np.array(result.x), np.array(result.z), np.array(result.s)


def make_symmetric_solver(P: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return b ↦ P⁻¹b for a positive semidefinite P, factored once; by least squares where P is singular."""
    factor, info = scipy.linalg.lapack.dpotrf(P, lower=True)
    pivots = np.abs(np.diag(factor))
    # Rounding lets some singular matrices pass.
    if info or pivots.min() < 1e-7 * pivots.max():
        return lambda b: scipy.linalg.lstsq(P, b)[0]

    def solve(b: np.ndarray) -> np.ndarray:
        x = scipy.linalg.cho_solve((factor, True), b)
        return x + scipy.linalg.cho_solve((factor, True), b - P @ x)

    return solve


def solve_quadratic(P: np.ndarray, solve: Callable[[np.ndarray], np.ndarray], q: np.ndarray, what: str) -> Optimum:
    """Minimise ½x'Px + q'x by the normal equations and return the optimum; `solve` is b ↦ P⁻¹b."""
    x = solve(-q)
    error = _norm(P @ x + q) / (1 + _norm(q))
    if error > 1e-6:
        raise ValueError(f"{what} has no minimum: q is not in the range of P, so the objective is unbounded below")
    return Optimum(x, None, None, float(0.5 * x @ (P @ x) + q @ x), float(error))


def _norm(v: np.ndarray) -> float:
    """Return ‖v‖∞."""
    return float(np.max(np.abs(v), initial=0.0))
