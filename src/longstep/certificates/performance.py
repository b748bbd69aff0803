"""Exact worst cases of gradient schedules over whole classes of functions, by performance estimation.

The largest error after K steps over all L-smooth (μ-strongly) convex f, in any dimension, is the value of a
semidefinite program of size about K (Drori and Teboulle 2014; Taylor, Hendrickx and Glineur 2017). Its unknowns are
the inner products of iterates and gradients, its constraints the inequalities between values and gradients of such an f
at finitely many points; where these hold, such an f exists. PEPit writes the program, Clarabel solves it.

Without loss of generality L = 1, ‖z⁰ − z*‖ ≤ 1, z* = 0, f* = g* = 0 and ∇f(z*) = 0: a linear term may move from f
to g, proximal gradient steps stay the same.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float

from ..algorithms.base import Algorithm
from ..algorithms.gradient import GradientDescent, HeavyBall
from ..algorithms.proximal import AcceleratedProximalGradient, ProximalGradient
from ..progress import Bar
from ..schedules.schedule import Schedule

Criterion: TypeAlias = Literal["objective", "distance", "gradient"]
# The worst case of each criterion is proportional to this power of L.
_POWER: dict[Criterion, int] = {"objective": 1, "distance": 0, "gradient": 2}
# Tighter than the solver can reach at times; what it returns then is checked all the same.
_ACCURACY = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
# The first is enough for most programs; large worst cases come with large multipliers, and larger errors of these.
_PADDINGS = (1e-8, 1e-6, 1e-4, 1e-2)
_MISSING = "worst cases need PEPit and CVXPY with Clarabel: pip install 'longstep[worst-cases]'"


def worst_case(
    algorithm: Algorithm,
    schedule: Schedule,
    steps: int,
    *,
    L: float,
    mu: float = 0.0,
    criterion: Criterion = "objective",
) -> float:
    """The worst error after `steps` ≥ 1 steps of the schedule from any z⁰, per unit of ‖z⁰ − z*‖².

    Over all f with an L-Lipschitz gradient and strong convexity mu ≥ 0, and for proximal gradient methods all convex
    g besides. Beyond its step-varying steps the schedule is in its steady state. The error is

        objective:  f(z) − f*  (with g: f + g)
        distance:   ‖z − z*‖²
        gradient:   ‖∇f(z)‖²  (with g: ‖L(z − prox_{g/L}(z − ∇f(z)/L))‖²)

    No function does worse: the solver's dual solution is mended until it proves that, up to rounding. Some function
    comes within 0.1 % and 1e-5 (times L, 1, L²) of it, usually within 1e-6. Where the solver is not that accurate an
    error is raised: mostly for schedules with steps many times 2/L, whose worst cases are astronomical. 10 steps
    take half a second, 20 several. With mu = 0 the distance need not fall: its worst case is then at least 1.
    """
    form = _checked(algorithm, schedule, steps, L, mu, criterion)
    thetas = [{**schedule[k], "step": schedule[k]["step"] * L} for k in range(steps)]
    lower = upper = np.nan
    for padding in _PADDINGS:
        estimation = _Estimation(mu / L)
        lower, upper = estimation.solve(form.iterate(estimation, thetas)[criterion](), padding)
        if np.isfinite(upper) and upper - lower <= 1e-3 * abs(upper) + 1e-5:
            return upper * L ** _POWER[criterion]
    found = "the solver failed" if np.isnan(lower) else f"with L = 1 it lies between {lower:.3g} and {upper:.3g}"
    raise RuntimeError(
        f"the worst case was not found accurately enough: {found}. Take fewer steps; a schedule with steps many times "
        "2/L may have a worst case too large to compute"
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
    """`worst_case` after each number of steps in `counts`; every one is a semidefinite program of its own."""
    counts, values = list(counts), []
    with Bar("worst cases", len(counts), progress) as advance:
        for count in counts:
            values.append(worst_case(algorithm, schedule, count, L=L, mu=mu, criterion=criterion))
            advance(1)
    return np.array(values)


class _Estimation:
    """An estimation problem with L = 1 and optimum 0."""

    def __init__(self, mu: float):
        try:
            import cvxpy  # noqa: F401
            from PEPit import PEP
            from PEPit.expression import null_expression
            from PEPit.functions import ConvexFunction, SmoothStronglyConvexFunction
            from PEPit.point import null_point
        except ImportError as error:
            raise ImportError(_MISSING) from error
        self.problem = PEP()
        self.f: Any = self.problem.declare_function(SmoothStronglyConvexFunction, L=1.0, mu=mu)
        self.g: Any = self.problem.declare_function(ConvexFunction)
        for function in (self.f, self.g):
            function.add_point((null_point, null_point, null_expression))
        self.start: Any = self.problem.set_initial_point()
        self.problem.set_initial_condition(self.start**2 <= 1)
        # s ∈ ∂g(prox_{tg}(y)) is as large as the iterates after multiplication by t; everything else is already.
        self.scales: dict[int, float] = {}

    def prox(self, y: Any, t: float) -> tuple[Any, Any]:
        """z = y − ts = prox_{tg}(y) with s ∈ ∂g(z), and g(z)."""
        from PEPit.primitive_steps import proximal_step

        z, subgradient, value = proximal_step(y, self.g, t)
        self.scales[subgradient.counter] = t
        return z, value

    def solve(self, error: Any, padding: float) -> tuple[float, float]:
        """The error of a function that the solver found, about the largest possible one, and a bound for all.

        Maximises the error + padding·Σ‖u‖² over the unknowns u of the Gram matrix. A dual solution of that, inexact by
        less than the padding, is a strictly feasible one for the error alone.
        """
        import cvxpy
        from PEPit.point import Point

        scales = np.array([self.scales.get(i, 1.0) for i in range(Point.counter)])
        padded = error
        for u, scale in zip(Point.list_of_leaf_points, scales, strict=True):
            padded = padded + padding * (scale * u) ** 2
        self.problem.set_performance_metric(padded)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            # What the solver says of its accuracy is checked by `bound` instead.
            warnings.simplefilter("ignore", UserWarning)
            try:
                value = self.problem.solve(verbose=0, solver="CLARABEL", **_ACCURACY)
            except cvxpy.SolverError:
                value = None
        return (np.nan, np.inf) if value is None else (float(error.eval()), self.bound(error, scales))

    def bound(self, error: Any, scales: Float[np.ndarray, " u"]) -> float:
        """A bound on the error from multipliers λ ≥ 0 of the constraints c ≤ 0, infinite where they prove none.

        error − Σ λc = constant + (linear in the function values) + ⟨M, G⟩ is at most the constant where the linear part
        vanishes and M ⪯ 0, because the Gram matrix G is positive semidefinite.
        """
        from PEPit.tools.expressions_to_matrices import expression_to_matrices

        of_functions = (*self.f.list_of_class_constraints, *self.g.list_of_class_constraints)
        constraints = (*self.problem.list_of_constraints, *of_functions)
        multipliers = np.array([max(float(constraint.eval_dual()), 0.0) for constraint in constraints])
        rows = [expression_to_matrices(constraint.expression) for constraint in constraints]
        grams, linears, constants = (np.array(column) for column in zip(*rows, strict=True))
        gram, linear, constant = expression_to_matrices(error)
        left = linear - multipliers @ linears
        # The inequalities between a point and the optimum contain one function value: they take what is left of it.
        for index in np.flatnonzero(left):
            unit = np.sign(left[index]) * np.eye(left.size)[index]
            (row,) = np.flatnonzero((linears == unit).all(axis=1))[:1]
            multipliers[row] += abs(left[index])
        matrix = gram - np.tensordot(multipliers, grams, axes=1)
        proved = np.max(np.linalg.eigvalsh(matrix / np.outer(scales, scales))) <= 0
        return float(constant - multipliers @ constants) if proved else np.inf


_Thetas: TypeAlias = list[dict[str, float]]
_Errors: TypeAlias = dict[Criterion, Callable[[], Any]]


def _gradient(estimation: _Estimation, thetas: _Thetas) -> _Errors:
    """z⁺ = z − t∇f(z) + β(z − z⁻), with β = 0 where the schedule has no momentum."""
    f, z, previous = estimation.f, estimation.start, estimation.start
    for theta in thetas:
        beta = theta.get("momentum", 0.0)
        z, previous = z - theta["step"] * f.gradient(z) + beta * (z - previous), z
    return {"objective": lambda: f(z), "distance": lambda: z**2, "gradient": lambda: f.gradient(z) ** 2}


def _proximal_gradient(estimation: _Estimation, thetas: _Thetas) -> _Errors:
    """y = z + β(z − z⁻), z⁺ = prox_{tg}(y − t∇f(y)), with β = 0 where the schedule has no momentum."""
    f, z, previous, value = estimation.f, estimation.start, estimation.start, None
    for theta in thetas:
        t, y = theta["step"], z + theta.get("momentum", 0.0) * (z - previous)
        previous = z
        z, value = estimation.prox(y - t * f.gradient(y), t)
    return {
        "objective": lambda: f(z) + value,
        "distance": lambda: z**2,
        "gradient": lambda: (z - estimation.prox(z - f.gradient(z), 1.0)[0]) ** 2,
    }


class _Form(NamedTuple):
    iterate: Callable[[_Estimation, _Thetas], _Errors]
    names: set[str]


# By exact type: a subclass may take other steps.
_FORMS: dict[type[Algorithm], _Form] = {
    GradientDescent: _Form(_gradient, {"step"}),
    HeavyBall: _Form(_gradient, {"step", "momentum"}),
    ProximalGradient: _Form(_proximal_gradient, {"step"}),
    AcceleratedProximalGradient: _Form(_proximal_gradient, {"step", "momentum"}),
}


def _checked(algorithm: Algorithm, schedule: Schedule, steps: int, L: float, mu: float, criterion: Criterion) -> _Form:
    form = _FORMS.get(type(algorithm))
    if form is None:
        known = ", ".join(kind.__name__ for kind in _FORMS)
        raise TypeError(f"worst cases are known for {known}, not for {type(algorithm).__name__}")
    if set(schedule.names) != form.names:
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
    if not all(schedule[k]["step"] > 0 for k in range(steps)):
        raise ValueError("all steps of the schedule must be positive")
    return form
