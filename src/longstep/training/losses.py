"""What training brings down: logarithms of distances to the optimum, of what is evaluated, of rows on a wrong side."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..algorithms.base import Algorithm, State
from ..families.base import Family
from ..families.quadratic_program import QP
from .recipe import DEFAULT, Recipe
from .sides import Sides


@dataclass(frozen=True)
class Loss:
    """distance·log‖z − z*‖² + metric·log φ² + identification·log ω, averaged over instances and over the checkpoints of
    a block.

    φ is what is evaluated: √(primal² + dual²) of the residuals for constrained problems, which needs no reference
    optima, and √(f − f*) for the others, or the norm of the gradient where f* is not known.
    ω counts, smoothly, the inequalities of a QP that are on another side of their bounds than at the optimum: where it
    is zero, the finish has nothing to change. The mean over instances is (1 − tail)·mean log φ² + tail·log mean φ²:
    with `tail` = 0 the geometric mean, which tables show, with 1 the published one, where the worst instances decide.
    Checkpoints are every `every` steps, or after the steps that it names, and the block's end; None is the end alone,
    which is as good inside of the block and to compile half of it (`benchmarks/ablation.py`).

    `stress` is the weight of a stress test that keeps schedules from blowing up on unseen instances: every block is
    also run from states far off the path that it is made for, the start and another instance's optimum, and the mean
    of softplus(log φ² after − log φ² before + fall) is added. Nothing is asked there but that errors fall a little,
    `fall` = 2 by default. ADMM methods, which converge whatever their penalties are, have none. What is None here is
    the recipe's.
    """

    distance: float = 0.0
    metric: float = 0.0
    identification: float = 0.0
    tail: float | None = None
    every: int | tuple[int, ...] | None = None
    stress: float | None = None
    fall: float | None = None

    def __post_init__(self):
        parts = (self.distance, self.metric, self.identification)
        if min(*parts, self.tail or 0.0, self.stress or 0.0, self.fall or 0.0) < 0 or sum(parts) == 0:
            raise ValueError(f"a loss needs distance, metric or identification > 0, and nothing below zero, got {self}")
        if self.tail is not None and self.tail > 1:
            raise ValueError(f"tail weighs the mean of φ² against the geometric mean, at most 1, got {self.tail}")
        if self.every is not None and min(self.every if isinstance(self.every, tuple) else (self.every,)) < 1:
            raise ValueError(f"checkpoints come every 1, 2, … steps, got every={self.every}")

    def checkpoints(self, count: int) -> tuple[int, ...]:
        """Return after which of `count` steps errors count."""
        inner = () if self.every is None else self.every
        inner = inner if isinstance(inner, tuple) else range(inner, count, inner)
        return (*sorted({k for k in inner if k < count}), count)

    def combine(self, errors: "Errors") -> Float[Array, ""]:
        """Return the loss of errors (checkpoints, N)."""
        total = jnp.zeros((), errors.metric.dtype)
        parts = (
            (self.distance, errors.distance), (self.metric, errors.metric), (self.identification, errors.sides)
        )  # fmt: skip
        for weight, logs in parts:
            if weight and logs is not None:
                total += weight * jnp.mean(average_logs(logs, self.tail or 0.0))
        if errors.growth is not None:
            total += (self.stress or 0.0) * jnp.mean(jax.nn.softplus(errors.growth + (self.fall or 0.0)))
        return total


def resolve_loss(loss: "str | Loss", recipe: Recipe, *, monotone: bool = False) -> Loss:
    """Return a loss by its name, with the recipe's numbers where it has none.

    ADMM's steps (`monotone`) need no stress test.
    """
    both = Loss(distance=recipe.distance_in_both, metric=1.0)
    sides = Loss(metric=recipe.metric_in_identification, identification=1.0)
    named = {"distance": Loss(distance=1.0), "metric": Loss(metric=1.0), "both": both, "identification": sides}
    if not isinstance(loss, Loss):
        if loss not in named:
            raise ValueError(f"loss must be one of {', '.join(named)} or a Loss(…), got {loss!r}")
        loss = named[loss]
    usual: dict[str, object] = {"tail": recipe.tail, "stress": recipe.stress, "fall": recipe.fall}
    if monotone:
        usual["stress"] = 0.0
    return replace(loss, **{name: value for name, value in usual.items() if getattr(loss, name) is None})


def average_logs(
    logs: Float[Array, "c N"], tail: float, shares: Float[Array, " N"] | None = None
) -> Float[Array, " c"]:
    """Return (1 − tail)·mean log φ² + tail·log mean φ² over the instances, each with its share where there are any."""
    if shares is None:
        shares = jnp.full(logs.shape[-1], 1 / logs.shape[-1], logs.dtype)
    geometric = jnp.sum(shares * logs, axis=-1)
    return (1 - tail) * geometric + tail * jax.nn.logsumexp(logs, axis=-1, b=shares)


class Errors(eqx.Module):
    """The logarithms of squared errors of each instance, in both measures, and of the rows on a wrong side; `growth` is
    that of the stress test."""

    distance: Float[Array, "..."] | None
    metric: Float[Array, "..."]
    growth: Float[Array, " N"] | None = None
    sides: Float[Array, "..."] | None = None

    def split(self, stress: int, before: "Errors") -> "Errors":
        """Return the errors of the instances themselves, with the growth of the stress test's, the last `stress`
        columns."""
        if not stress:
            return self
        own = jax.tree.map(lambda a: a[..., :-stress], self)
        return Errors(own.distance, own.metric, self.metric[-1, -stress:] - before.metric[-stress:], own.sides)


class Task(eqx.Module):
    """The training instances with what is known of their optima."""

    algorithm: Algorithm
    family: Family
    instance: PyTree
    target: Float[Array, "k *N"] | None
    optimum: Float[Array, "*N"] | None
    sides: Sides | None = None
    stress: int = eqx.field(static=True, default=0)
    rounding: float = eqx.field(static=True, default=DEFAULT.rounding)

    def errors(self, state: State) -> Errors:
        """Return the errors of a state, kept from −∞ at rounding."""
        residuals = self.algorithm.residuals(self.family, self.instance, state)
        epsilon = self.rounding * jnp.finfo(residuals.dual.dtype).eps
        distance = None
        if self.target is not None:
            square = jnp.sum((self.algorithm.coordinates(self.family, self.instance, state) - self.target) ** 2, axis=0)
            distance = jnp.log(square + epsilon**2 * (1 + jnp.sum(self.target**2, axis=0)))
        wrong = None
        if self.sides is not None:
            point = self.algorithm.extract(self.family, self.instance, state)
            assert isinstance(self.family, QP)
            wrong = self.sides.measure(self.family, self.instance, point)
        return Errors(distance, self.algorithm.log_metric(residuals, self.optimum), sides=wrong)
