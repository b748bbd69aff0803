"""Solvers of reference optima, one for each kind of family: functions of plain data that workers can be sent."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.sparse as sp
from jaxtyping import PyTree

from ..cones.base import ClarabelCone
from ..families.base import Family
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.quadratic_program import QP
from ..families.reading import Parameters
from ..families.smooth import Quadratic, Smooth
from .optima import Optima, Optimum, make_symmetric_solver, require, solve_conic, solve_qp, solve_quadratic

Arguments = ParamSpec("Arguments")
FamilyT = TypeVar("FamilyT", bound=Family)


@dataclass(frozen=True)
class _CompiledParts:
    """A composite family's functions, compiled: ∇f, the prox of g with its derivative, and the Hessian of f."""

    gradient: Callable
    prox: Callable
    hessian: Callable


@functools.singledispatch
def make_worker(family: Family) -> tuple[Callable[[PyTree, int, float], Optima], Callable[[Parameters], PyTree]]:
    """Return a function of (data, first number, accuracy) that can be sent to a worker, and the map to its data."""
    raise TypeError(f"no reference solver is known for {type(family).__name__}")


@make_worker.register
def _(family: QP):
    return functools.partial(_solve_qps, sp.csc_array(family.P), sp.csc_array(family.A)), family.data


@make_worker.register
def _(family: Conic):
    matrices = (sp.csc_array(family.P), sp.csc_array(family.A))
    return functools.partial(_solve_conics, *matrices, family.cones.clarabel()), family.data


@make_worker.register
def _(family: Quadratic):
    return functools.partial(_solve_quadratics, family.P.toarray()), family.data


@make_worker.register
def _(family: Smooth):
    return functools.partial(_solve_smooths, widen(family)), lambda parameters: parameters


@make_worker.register
def _(family: Composite):
    wide = widen(family)
    return functools.partial(_solve_composites, wide, _compile_parts(wide)), lambda parameters: parameters


def widen(family: FamilyT) -> FamilyT:
    """Return the same family in float64: references are never made in less."""
    with jax.enable_x64(True):
        wide = family.widen()
    assert isinstance(wide, type(family))
    return wide


def _use_float64(work: Callable[Arguments, Optima]) -> Callable[Arguments, Optima]:
    """Return a function that works in 64 bits."""

    # The switch is local to the thread that does the work.
    @functools.wraps(work)
    def work_in_float64(*arguments: Arguments.args, **named: Arguments.kwargs) -> Optima:
        with jax.enable_x64(True):
            return work(*arguments, **named)

    return work_in_float64


def _solve_qps(P: sp.csc_array, A: sp.csc_array, data: dict[str, np.ndarray], first: int, accuracy: float) -> Optima:
    rows = zip(data["q"], data["l"], data["u"], strict=True)
    names = _name_instances(first)
    return Optima.stack(
        [require(solve_qp(P, A, q, l, u, w), accuracy, w) for (q, l, u), w in zip(rows, names, strict=False)]
    )


def _solve_conics(
    P: sp.csc_array,
    A: sp.csc_array,
    cones: tuple[Sequence[ClarabelCone], np.ndarray],
    data: dict[str, np.ndarray],
    first: int,
    accuracy: float,
) -> Optima:
    rows = zip(data["b"], data["c"], _name_instances(first), strict=False)
    return Optima.stack([require(solve_conic(P, A, cones, b, c, w), accuracy, w) for b, c, w in rows])


def _solve_quadratics(P: np.ndarray, data: dict[str, np.ndarray], first: int, accuracy: float) -> Optima:
    rows = zip(data["q"], _name_instances(first), strict=False)
    solve = make_symmetric_solver(P)
    return Optima.stack([require(solve_quadratic(P, solve, q, w), accuracy, w) for q, w in rows])


@_use_float64
def _solve_smooths(family: Smooth, parameters: Parameters, first: int, accuracy: float) -> Optima:
    instances = family.instances(parameters)
    value = jax.jit(lambda z, i: family.objective(i, z))
    slope = jax.jit(lambda z, i: family.gradient(i, z))
    hessian = jax.jit(jax.jacfwd(lambda z, i: family.gradient(i, z)))
    out = []
    for k, what in zip(range(family.count(parameters)), _name_instances(first), strict=False):
        instance = family.take(instances, k)
        zero = np.zeros(family.n)
        scale = 1 + float(np.max(np.abs(slope(zero, instance))))
        options = {"gtol": 1e-3 * accuracy * scale, "maxiter": 1000}
        x = scipy.optimize.minimize(value, zero, (instance,), "trust-exact", slope, hessian, options=options).x
        for _ in range(3):  # full Newton steps take a good point to rounding
            g = np.asarray(slope(x, instance))
            step = np.linalg.lstsq(np.asarray(hessian(x, instance)), g, rcond=None)[0]
            if np.max(np.abs(slope(x - step, instance))) < np.max(np.abs(g)):
                x = x - step
        error = float(np.max(np.abs(slope(x, instance)))) / scale
        out.append(require(Optimum(x, None, None, float(value(x, instance)), error), accuracy, what))
    return Optima.stack(out)


@_use_float64
def _solve_composites(
    family: Composite, parts: _CompiledParts, parameters: Parameters, first: int, accuracy: float
) -> Optima:
    instances = family.instances(parameters)
    points = np.array(_run_fista(family, instances, 200)).T
    out = []
    for k, what in zip(range(family.count(parameters)), _name_instances(first), strict=False):
        instance = family.take(instances, k)
        x, error = _run_newton(family, parts, instance, points[k].astype(np.float64))
        for count in (2000, 20_000, 200_000):
            if error <= accuracy:
                break
            # Not yet on the right coordinates (or not separable, where patience alone must do).
            points[k] = np.asarray(_run_fista(family, instance, count, jnp.asarray(points[k], family.dtype)))
            x, error = _run_newton(family, parts, instance, points[k].astype(np.float64))
        value = float(family.objective(instance, jnp.asarray(x, family.dtype)))
        out.append(require(Optimum(x, None, None, value, error), accuracy, what))
    return Optima.stack(out)


@functools.partial(jax.jit, static_argnums=(2,))
def _run_fista(family: Composite, instances: PyTree, count: int, start: jax.Array | None = None) -> jax.Array:
    """Return the points after `count` steps of FISTA, its momentum restarted where it points uphill.

    O'Donoghue and Candès, 2015.
    """
    t = 1 / family.lipschitz
    z = jnp.zeros((family.n, *family.batch(instances)), family.dtype)
    if start is not None:
        z = start

    def step(_, carry):
        z, y, age = carry
        following = family.g.prox(y - t * family.gradient(instances, y), t)
        uphill = jnp.sum((y - following) * (following - z), axis=0) > 0
        age = jnp.where(uphill, 0.0, age + 1)
        return following, following + age / (age + 3) * (following - z), age

    return jax.lax.fori_loop(0, count, step, (z, z, jnp.zeros(family.batch(instances), family.dtype)))[0]


def _run_newton(family: Composite, parts: _CompiledParts, instance: PyTree, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Solve z = prox_{tg}(z − t∇f(z)) for separable g from x; return the best point and its error.

    A step of this semismooth Newton method is Newton's on the coordinates where the prox moves with its argument, the
    prox's own value elsewhere. The error is the residual, relative to the gradient at zero.
    """
    t = 1 / family.lipschitz
    scale = 1 + float(np.max(np.abs(parts.gradient(jnp.zeros(family.n, family.dtype), instance))))
    best = x
    least = np.inf
    for _ in range(50):
        gradient = np.asarray(parts.gradient(x, instance), np.float64)
        fixed, moves = (np.asarray(a, np.float64) for a in parts.prox(x - t * gradient))
        error = float(np.max(np.abs(x - fixed))) / (t * scale)
        if not error < least:
            break
        best = x
        least = error
        active = moves > 0.5
        hessian = parts.hessian(x, instance)
        step = fixed - x
        inside = np.ix_(active, active)
        outside = np.ix_(active, ~active)
        # On the active coordinates prox(v) = v − shift, so the residual there is t(∇f + shift/t).
        rhs = (fixed - x)[active] / t - hessian[outside] @ step[~active]
        if active.any():
            step[active] = make_symmetric_solver(hessian[inside])(rhs)
        x = x + step
    return best, least


def _compile_parts(family: Composite) -> _CompiledParts:
    """Return a family's functions, compiled."""
    t = 1 / family.lipschitz
    gradient = jax.jit(lambda z, i: family.gradient(i, z))
    prox = jax.jit(lambda v: jax.jvp(lambda v: family.g.prox(v, t), (v,), (jnp.ones_like(v),)))
    if isinstance(family.smooth, Quadratic):
        P = family.smooth.P.toarray()
        return _CompiledParts(gradient, prox, lambda z, i: P)
    second = jax.jit(jax.jacfwd(lambda z, i: family.gradient(i, z)))
    return _CompiledParts(gradient, prox, lambda z, i: np.asarray(second(z, i), np.float64))


def _name_instances(first: int) -> Iterator[str]:
    """Yield what messages call the instances from number `first` on."""
    for k in itertools.count(first):
        yield f"instance {k}"
