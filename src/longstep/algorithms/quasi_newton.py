"""Quasi-Newton steps: L-BFGS whose steps are taken only where the objective falls."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree
from typing_extensions import override

from ..families.base import Family
from ..families.smooth import Differentiable, Smooth
from ..linalg.matrix import inner, max_norm
from ..schedules.domain import Interval, Positive
from ..schedules.hyperparameter import Hyperparameter
from .gradient import Unconstrained, unconstrained_residuals

# The part of what the slope promises that f must fall by (Armijo 1966; Nocedal and Wright's value).
_SUFFICIENT = 1e-4
# A step that is not taken is cut to where the slope along it vanishes if f is quadratic there, within these parts.
_CUT = (0.1, 0.5)
# f is known to so many units of rounding.
_ROUNDING = 10.0
# As many pairs as SciPy's L-BFGS-B keeps.
_MEMORY = 10


class Pairs(eqx.Module):
    """The last steps and by how much they changed the gradient, oldest first, with 1/(sᵢ'yᵢ); zeros where none is."""

    s: Float[Array, "m n *N"]
    y: Float[Array, "m n *N"]
    weight: Float[Array, "m *N"]

    def add_pair(self, s: Float[Array, "n *N"], y: Float[Array, "n *N"], good: Bool[Array, "*N"]) -> "Pairs":
        """Return the pairs with one more in place of the oldest, on the instances where it is good."""
        weight = 1 / jnp.where(good, inner(s, y), 1.0)

        def push(stack, row):
            return jnp.where(good, jnp.concatenate([stack[1:], row[None]]), stack)

        return Pairs(push(self.s, s), push(self.y, y), push(self.weight, weight))

    def apply_inverse(self, v: Float[Array, "n *N"], unit: Float[Array, "*N"]) -> Float[Array, "n *N"]:
        """Return Hv, H being `unit` times the identity with the pairs' updates (Nocedal 1980).

        H ← (I − s y'/s'y) H (I − y s'/s'y) + s s'/s'y, for one pair after the other.
        """

        def descend(q, pair):
            s, y, weight = pair
            share = weight * inner(s, q)
            return q - share * y, share

        def ascend(r, pair):
            s, y, weight, share = pair
            return r + (share - weight * inner(y, r)) * s, None

        pairs = self.s, self.y, self.weight
        q, shares = jax.lax.scan(descend, v, pairs, reverse=True)
        r, _ = jax.lax.scan(ascend, unit * q, (*pairs, shares))
        return r


class QuasiNewtonState(eqx.Module):
    """The iterate with its gradient and its value, the pairs, the unit γ of curvature, and what steps are cut to."""

    z: Float[Array, "n *N"]
    gradient: Float[Array, "n *N"]
    value: Float[Array, "*N"]
    pairs: Pairs
    unit: Float[Array, "*N"]
    cut: Float[Array, "*N"]


class QuasiNewton(Unconstrained[Differentiable, PyTree, QuasiNewtonState]):
    """L-BFGS without a line search: z⁺ = z + p, p = −c·t·Hg, g = ∇f(z), where f falls there, and z⁺ = z where not.

    f falls enough where f(z⁺) ≤ f(z) + 1e-4·g'p, or where ∇f(z⁺)'p ≤ 1e-4·g'p, from which that follows for convex f
    and which rounding does not disturb. After a step that was not taken c, which is 1 otherwise, shrinks by a factor
    between 0.1 and 0.5. Every step takes one gradient and one value, at z + p.

    H comes from the last `memory` pairs s = z⁺ − z, y = ∇f(z⁺) − ∇f(z) and σγI, with γ = s'y/y'y of the last one. So
    step sizes are in units of the curvature that an instance has where it stands; γ is 1/L, or 1/Lₓ, before the first
    step. Only pairs with s'y > ε²L‖s‖² are taken, ε being the rounding of numbers.

    The hyperparameters are `step` = t and `scale` = σ.
    """

    memory: int = eqx.field(static=True, default=_MEMORY)

    family_type: ClassVar[type[Family]] = Differentiable
    converges_on: ClassVar[str] = "a nonempty, bounded set of optima"
    symbols: ClassVar[dict[str, str]] = {"step": "step $t$", "scale": r"scale $\sigma$"}
    units: ClassVar[dict[str, str]] = {"step": "1", "scale": "1"}
    theorem: ClassVar[str | None] = (
        "L-BFGS with pairs of a least curvature (Li and Fukushima 2001) and steps that are taken only where f falls by "
        "a part of what its slope promises (Armijo 1966) brings the gradient to zero where f is bounded below on its "
        "level sets and these are bounded, and for convex f the objective to its minimum; L need not be known."
    )

    def __check_init__(self):
        if not isinstance(self.memory, int) or not 1 <= self.memory <= 1000:
            raise ValueError(f"memory must be a whole number of pairs between 1 and 1000, got {self.memory!r}")

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        # Its units are the curvature that each instance has: a quadratic's is known.
        return isinstance(family, Smooth)

    @property
    @override
    def numbers_per_step(self):
        return 20.0 + 9.0 * self.memory

    @override
    def hyperparameters(self, family) -> tuple[Hyperparameter, ...]:
        return (
            Hyperparameter("step", 1.0, Positive(), Interval(0.0, 2.0, margin=1e-3), role="step"),
            Hyperparameter("scale", 1.0, Positive(), Positive(), role="scaling"),
        )

    @override
    def init(self, family, instance, start):
        batch = family.batch(instance)
        z = jnp.zeros((family.n, *batch), family.dtype) if start is None else start.x
        stack = jnp.zeros((self.memory, *z.shape), z.dtype)
        pairs = Pairs(stack, stack, jnp.zeros((self.memory, *batch), z.dtype))
        unit = jnp.broadcast_to(jnp.asarray(family.step_unit(instance) / family.lipschitz, z.dtype), batch)
        value = family.objective(instance, z)
        return QuasiNewtonState(z, family.gradient(instance, z), value, pairs, unit, jnp.ones_like(unit))

    @override
    def step(self, family, instance, theta, factors, extra, state):
        direction = state.pairs.apply_inverse(state.gradient, theta["scale"] * state.unit)
        p = -state.cut * theta["step"] * direction
        z = state.z + p
        ahead = QuasiNewtonState(
            z, family.gradient(instance, z), family.objective(instance, z), state.pairs, state.unit, state.cut
        )
        return settle(family, state, ahead, p)

    @override
    def residuals(self, family, instance, state):
        scale = max_norm(family.gradient_at_zero(instance, state.z))
        return unconstrained_residuals(state.gradient, scale, state.value, 0.0)

    @override
    def coordinates(self, family, instance, state):
        return state.z

    @override
    def safe(self, family, steady):
        return {"step": 1.0, "scale": 1.0}


def settle(
    family: Differentiable, state: QuasiNewtonState, ahead: QuasiNewtonState, p: Float[Array, "n *N"]
) -> QuasiNewtonState:
    """Return the state after the step p from `state` to `ahead`: taken with its pair, or not taken and cut."""
    promised = inner(state.gradient, p)
    slope = inner(ahead.gradient, p)
    finite = jnp.isfinite(ahead.value) & jnp.isfinite(slope)
    epsilon = jnp.finfo(p.dtype).eps
    limit = state.value + _SUFFICIENT * promised + _ROUNDING * epsilon * jnp.abs(state.value)
    taken = finite & ((ahead.value <= limit) | (slope <= _SUFFICIENT * promised))
    y = jnp.where(taken, ahead.gradient - state.gradient, 0.0)
    curvature = inner(p, y)
    good = taken & (curvature > epsilon**2 * family.lipschitz * inner(p, p))
    cut = jnp.where(finite, _divide(-promised, slope - promised, _CUT[1]), _CUT[0])
    return QuasiNewtonState(
        jnp.where(taken, ahead.z, state.z),
        jnp.where(taken, ahead.gradient, state.gradient),
        jnp.where(taken, ahead.value, state.value),
        state.pairs.add_pair(p, y, good),
        jnp.where(good, _divide(curvature, inner(y, y), 1.0), state.unit),
        jnp.where(taken, 1.0, state.cut * jnp.clip(jax.lax.stop_gradient(cut), *_CUT)),
    )


def _divide(a: Float[Array, "*N"], b: Float[Array, "*N"], otherwise: float) -> Float[Array, "*N"]:
    """Return a/b where b > 0, with finite derivatives elsewhere too."""
    positive = b > 0
    return jnp.where(positive, a / jnp.where(positive, b, 1.0), otherwise)
