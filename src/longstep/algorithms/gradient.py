"""Gradient descent, with and without momentum."""

from typing import ClassVar, Protocol, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree
from typing_extensions import override

from ..families.base import Family, InstanceT
from ..families.composite import Composite
from ..families.point import Point
from ..families.smooth import Differentiable
from ..linalg.matrix import max_norm, two_norm
from ..schedules.domain import Fixed, Interval, Positive, Real
from ..schedules.hyperparameter import Hyperparameter
from .base import Algorithm
from .performance import ErrorForms, Estimation, Performance
from .residuals import Residuals


class Iterate(Protocol):
    """A state with a point z."""

    @property
    def z(self) -> Float[Array, "n *N"]:
        """The point."""
        ...


# Families with a gradient, of the whole objective or of its smooth part.
SmoothT = TypeVar("SmoothT", bound=Differentiable | Composite)
IterateT = TypeVar("IterateT", bound=Iterate)


class GradientState(eqx.Module):
    """The iterate and the one before it."""

    z: Float[Array, "n *N"]
    z_previous: Float[Array, "n *N"]


def step_size(family: Differentiable | Composite) -> Hyperparameter:
    """Return the step of a gradient method: any positive value, and strictly inside (0, 2/L) in the steady state.

    The default is 2/(L + μ) for strongly convex families and 1/L otherwise. Where instances have an Lₓ of their own,
    the step is one of t·L/Lₓ.
    """
    L = family.lipschitz
    mu = family.strong_convexity
    steady = Interval(0.0, 2 / L, margin=1e-3 * (2 / L))
    default = min(2 / (L + mu), steady.ends[1]) if mu > 0 else 1 / L
    return Hyperparameter("step", default, Positive(), steady, role="step")


# β = 0 in the steady state, so that 0 < t < 2/L alone guarantees convergence.
MOMENTUM = Hyperparameter("momentum", 0.0, Real(), Fixed(0.0), role="momentum")


def unconstrained_residuals(
    residual: Float[Array, "n *N"], scale: Float[Array, "*N"], smooth: Float[Array, "*N"], g: Float[ArrayLike, "*N"]
) -> Residuals:
    """Return the residuals of a problem without constraints: the optimality residual is the dual one.

    The objective is smooth + g, NaN where the smooth part overflowed; g may be infinite.
    """
    zero = jnp.zeros_like(smooth)
    return Residuals(
        primal=zero,
        dual=two_norm(residual),
        primal_max=zero,
        dual_max=max_norm(residual),
        gap=zero,
        primal_scale=zero,
        dual_scale=scale,
        gap_scale=zero,
        objective=jnp.where(jnp.isfinite(smooth), smooth + g, jnp.nan),
    )


def estimate_gradient_steps(estimation: Estimation, thetas: list[dict[str, float]]) -> ErrorForms:
    """Take z⁺ = z − t∇f(z) + β(z − z⁻), with β = 0 where the schedule has no momentum."""
    z = estimation.start
    previous = estimation.start
    for theta in thetas:
        t = theta["step"]
        beta = theta.get("momentum", 0.0)
        z, previous = z - t * estimation.gradient(z)[0] + beta * (z - previous), z
        estimation.length *= max(1.0, t - 1)
    return {
        "objective": lambda: (0 * z, estimation.gradient(z)[1]),
        "distance": lambda: (z,),
        "gradient": lambda: (estimation.gradient(z)[0],),
    }


class Unconstrained(Algorithm[SmoothT, InstanceT, IterateT]):
    """What methods for objectives without constraints have in common: states with a point z, and what falls."""

    @override
    def extract(self, family, instance, state):
        return Point(state.z)

    @override
    def log_metric(self, residuals, optimum):
        # The suboptimality is quadratic in the distance: it counts as a square already.
        if optimum is None:
            return super().log_metric(residuals, optimum)
        rounding = 10 * jnp.finfo(optimum.dtype).eps * (1 + jnp.abs(optimum))
        return jnp.log(jnp.maximum(residuals.objective - optimum, rounding))

    @override
    def measure(self, optimum):
        if optimum is None:
            return "norm of the gradient, geometric mean"
        return "√(f − f*), geometric mean"

    @override
    def log_floor(self, start, optimum):
        if optimum is None:
            return super().log_floor(start, optimum)
        return jnp.log(1000 * jnp.finfo(start.dtype).eps * (1 + jnp.abs(optimum)))

    @override
    def merit(self, family, residuals):
        objective = residuals.objective
        return objective, 100 * jnp.finfo(objective.dtype).eps * (1 + jnp.abs(objective))

    @override
    def ratio_merit(self, family, residuals):
        if family.lower_bound is None:
            return super().merit(family, residuals)
        objective, rounding = self.merit(family, residuals)
        return objective - family.lower_bound, rounding


class GradientMethod(Unconstrained[SmoothT, InstanceT, GradientState]):
    """What gradient descent and proximal gradient have in common: their state, and what is safe."""

    symbols: ClassVar[dict[str, str]] = {"step": "step $t$", "momentum": r"momentum $\beta$"}
    units: ClassVar[dict[str, str]] = {"step": "unit²/cost", "momentum": "1"}

    @override
    def init(self, family, instance, start):
        z = jnp.zeros((family.n, *family.batch(instance)), family.dtype) if start is None else start.x
        return GradientState(z, z)

    @override
    def coordinates(self, family, instance, state):
        return state.z

    @override
    def safe(self, family, steady):
        return {**dict.fromkeys(steady, 0.0), "step": 1 / family.lipschitz}


class Extrapolated(GradientMethod[SmoothT, InstanceT]):
    """The step of another gradient method, taken from y = z + β(z − z⁻); adds the hyperparameter `momentum` = β."""

    @override
    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:
        return step_size(family), MOMENTUM

    @override
    def step(self, family, instance, theta, factors, extra, state):
        y = state.z + theta["momentum"] * (state.z - state.z_previous)
        ahead = super().step(family, instance, theta, factors, extra, GradientState(y, y))
        return GradientState(ahead.z, state.z)


class GradientDescent(GradientMethod[Differentiable, PyTree]):
    """Take z⁺ = z − t∇f(z, x), with hyperparameter `step` = t."""

    family_type: ClassVar[type[Family]] = Differentiable
    theorem: ClassVar[str | None] = (
        "Gradient descent with a constant step in (0, 2/L), here L = {L:.6g}, converges to a minimiser (Polyak 1987)."
    )
    performance: ClassVar[Performance | None] = Performance(estimate_gradient_steps, ("step",))
    closed_form: ClassVar[bool | None] = True

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return True

    @override
    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:
        return (step_size(family),)

    @override
    def step(self, family, instance, theta, factors, extra, state):
        t = theta["step"] * family.step_unit(instance)
        return GradientState(state.z - t * family.gradient(instance, state.z), state.z)

    @override
    def residuals(self, family, instance, state):
        # ∇f(0) sets the scale of eps_rel: it is the residual of the zero start.
        scale = max_norm(family.gradient_at_zero(instance, state.z))
        gradient = family.gradient(instance, state.z)
        return unconstrained_residuals(gradient, scale, family.objective(instance, state.z), 0.0)


class HeavyBall(GradientDescent):
    """Take z⁺ = z − t∇f(z, x) + β(z − z⁻), with hyperparameters `step` = t and `momentum` = β.

    In the steady state β = 0.
    """

    theorem: ClassVar[str | None] = GradientDescent.theorem
    performance: ClassVar[Performance | None] = Performance(estimate_gradient_steps, ("step", "momentum"))
    closed_form: ClassVar[bool | None] = True

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return False

    @override
    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:
        return step_size(family), MOMENTUM

    @override
    def step(self, family, instance, theta, factors, extra, state):
        z = state.z - theta["step"] * family.step_unit(instance) * family.gradient(instance, state.z)
        return GradientState(z + theta["momentum"] * (state.z - state.z_previous), state.z)
