"""Gradient descent, with and without momentum."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families.base import Family
from ..families.smooth import Differentiable
from ..linalg.matrix import max_norm, two_norm
from ..schedules.domain import Fixed, Hyperparameter, Interval, Positive, Real
from ..solution import Point, Residuals
from .base import Algorithm


class GradientState(eqx.Module):
    """The iterate and the one before it."""

    z: Float[Array, "n *N"]
    z_previous: Float[Array, "n *N"]


def step_size(family: Any) -> Hyperparameter:
    """The step of a gradient method: any positive value, and strictly inside (0, 2/L) in the steady state.

    The default is 2/(L + μ) for strongly convex families and 1/L otherwise.
    """
    L, mu = family.lipschitz, family.strong_convexity
    steady = Interval(0.0, 2 / L, margin=1e-3 * (2 / L))
    default = min(2 / (L + mu), steady.ends[1]) if mu > 0 else 1 / L
    return Hyperparameter("step", default, Positive(), steady)


# β = 0 in the steady state, so that 0 < t < 2/L alone guarantees convergence.
MOMENTUM = Hyperparameter("momentum", 0.0, Real(), Fixed(0.0))


def start_at(family: Family, instance: Any, start: Point | None) -> GradientState:
    """Both iterates at the start, or at zero."""
    z = jnp.zeros((family.n, *family.batch(instance)), family.dtype) if start is None else start.x
    return GradientState(z, z)


def unconstrained_residuals(
    residual: Float[Array, "n *N"], scale: Float[Array, "*N"], objective: Float[Array, "*N"]
) -> Residuals:
    """Residuals of a problem without constraints: the optimality residual is the dual one."""
    zero = jnp.zeros_like(objective)
    return Residuals(
        primal=zero,
        dual=two_norm(residual),
        primal_max=zero,
        dual_max=max_norm(residual),
        gap=zero,
        primal_scale=zero,
        dual_scale=scale,
        gap_scale=zero,
        objective=objective,
    )


class GradientDescent(Algorithm):
    """z⁺ = z − t∇f(z, x), with hyperparameter `step` = t."""

    family_type: ClassVar[type[Family]] = Differentiable

    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:  # noqa: D102
        return (step_size(family),)

    def init(self, family, instance, start):  # noqa: D102
        return start_at(family, instance, start)

    def step(self, family, instance, theta, factors, extra, state):  # noqa: D102
        return GradientState(state.z - theta["step"] * family.gradient(instance, state.z), state.z)

    def residuals(self, family, instance, state):  # noqa: D102
        # ∇f(0) sets the scale of eps_rel: it is the residual of the zero start.
        scale = max_norm(family.gradient(instance, jnp.zeros_like(state.z)))
        gradient = family.gradient(instance, state.z)
        return unconstrained_residuals(gradient, scale, family.objective(instance, state.z))

    def extract(self, family, instance, state):  # noqa: D102
        return Point(state.z)


class HeavyBall(GradientDescent):
    """z⁺ = z − t∇f(z, x) + β(z − z⁻), with hyperparameters `step` = t and `momentum` = β."""

    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:  # noqa: D102
        return step_size(family), MOMENTUM

    def step(self, family, instance, theta, factors, extra, state):  # noqa: D102
        z = state.z - theta["step"] * family.gradient(instance, state.z)
        return GradientState(z + theta["momentum"] * (state.z - state.z_previous), state.z)
