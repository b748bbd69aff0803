"""Proximal gradient, with and without momentum."""

from typing import ClassVar

from jaxtyping import PyTree
from typing_extensions import override

from ..families.base import Family, InstanceT
from ..families.composite import Composite
from ..linalg.matrix import max_norm
from ..schedules.hyperparameter import Hyperparameter
from .gradient import (
    Extrapolated,
    GradientMethod,
    GradientState,
    IterateT,
    Unconstrained,
    step_size,
    unconstrained_residuals,
)
from .performance import ErrorForms, Estimation, Performance


def estimate_proximal_steps(estimation: Estimation, thetas: list[dict[str, float]]) -> ErrorForms:
    """Take y = z + β(z − z⁻), z⁺ = prox_{tg}(y − t∇f(y)), with β = 0 where the schedule has no momentum."""
    z = estimation.start
    previous = estimation.start
    value = -1
    for theta in thetas:
        y = z + theta.get("momentum", 0.0) * (z - previous)
        previous = z
        z, value = estimation.proximal_step(y, theta["step"])
    return {
        "objective": lambda: (0 * z, estimation.gradient(z)[1], value),
        "distance": lambda: (z,),
        "gradient": lambda: (z - estimation.proximal_step(z, 1.0)[0],),
    }


class CompositeMethod(Unconstrained[Composite[InstanceT], InstanceT, IterateT]):
    """What methods for f + g have in common: how a point is judged.

    The optimality residual is L(z − prox_{g/L}(z − ∇f(z)/L)): the gradient where g = 0, and zero exactly at optima.
    """

    family_type: ClassVar[type[Family]] = Composite

    @override
    def residuals(self, family, instance, state):
        L = family.lipschitz
        scale = max_norm(family.gradient_at_zero(instance, state.z))
        forward = state.z - family.gradient(instance, state.z) / L
        residual = L * (state.z - family.g.prox(forward, 1 / L))
        smooth = family.smooth.objective(instance, state.z)
        return unconstrained_residuals(residual, scale, smooth, family.g.value(state.z))


class ProximalGradient(CompositeMethod[PyTree, GradientState], GradientMethod[Composite, PyTree]):
    """z⁺ = prox_{tg}(z − t∇f(z, x)), with hyperparameter `step` = t."""

    theorem: ClassVar[str | None] = (
        "Proximal gradient with a constant step in (0, 2/L), here L = {L:.6g}, converges to a minimiser "
        "(Combettes and Wajs 2005)."
    )
    performance: ClassVar[Performance | None] = Performance(estimate_proximal_steps, ("step",))

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
        return GradientState(family.g.prox(state.z - t * family.gradient(instance, state.z), t), state.z)


class AcceleratedProximalGradient(Extrapolated[Composite, PyTree], ProximalGradient):
    """Take y = z + β(z − z⁻), z⁺ = prox_{tg}(y − t∇f(y, x)), with hyperparameters `step` = t and `momentum` = β.

    In the steady state β = 0.
    """

    theorem: ClassVar[str | None] = ProximalGradient.theorem
    performance: ClassVar[Performance | None] = Performance(estimate_proximal_steps, ("step", "momentum"))

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return False
