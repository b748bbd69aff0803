"""Conjugate gradients: the best that any method can do on one quadratic with gradients alone."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float
from typing_extensions import override

from ...algorithms.gradient import GradientDescent
from ...evaluation.scheduled import Scheduled
from ...families.base import Family
from ...families.smooth import Quadratic
from ...linalg.matrix import inner
from ...schedules.schedule import Schedule


class ConjugateState(eqx.Module):
    """The iterate, its residual −∇f(z) by recurrence, and the search direction."""

    z: Float[Array, "n *N"]
    r: Float[Array, "n *N"]
    d: Float[Array, "n *N"]


class ConjugateGradient(GradientDescent):
    """Hestenes and Stiefel's method on ½z'Pz + q'z, without hyperparameters. From r = −(Pz + q) and d = r:

        γ  = r'r / d'Pd
        z⁺ = z + γd
        r⁺ = r − γPd
        d⁺ = r⁺ + (r⁺'r⁺ / r'r) d

    At the solution, where r = 0, and along directions without curvature, d'Pd ≤ 10εL d'd, which on singular P rounding
    errors bring in, γ = 0 and the iterate stays.
    """

    family_type: ClassVar[type[Family]] = Quadratic
    theorem: ClassVar[str | None] = "Conjugate gradients end after as many steps as P has eigenvalues."

    @override
    def hyperparameters(self, family) -> tuple:
        return ()

    @override
    def init(self, family, instance, start) -> Any:
        z = super().init(family, instance, start).z
        r = -family.gradient(instance, z)
        return ConjugateState(z, r, r)

    @override
    def step(self, family, instance, theta, factors, extra, state) -> Any:
        z = state.z
        r = state.r
        d = state.d
        Pd = family.matrix.mv(d)
        rr = inner(r, r)
        flat = 10 * jnp.finfo(z.dtype).eps * family.lipschitz * inner(d, d)
        gamma = _divide(rr, inner(d, Pd), flat)
        r_next = r - gamma * Pd
        return ConjugateState(z + gamma * d, r_next, r_next + _divide(inner(r_next, r_next), rr, 0.0) * d)


def _divide(a: Float[Array, "*N"], b: Float[Array, "*N"], least: Float[ArrayLike, "*N"]) -> Float[Array, "*N"]:
    """Return a/b, and 0 where b is at most `least`."""
    return jnp.where(b > least, a / jnp.where(b > least, b, 1.0), 0.0)


def conjugate_gradients(family: Quadratic) -> Scheduled:
    """Return conjugate gradients from zero.

    >>> import numpy as np
    >>> family = Quadratic(np.diag([1.0, 2.0, 10.0]))
    >>> history = conjugate_gradients(family).run({"q": np.ones((1, 3))}, 3)
    >>> bool(history.dual[0, 3] < 1e-12)  # three eigenvalues, three steps
    True
    """
    return Scheduled("conjugate gradients", family, ConjugateGradient(), lambda count: Schedule({}, {}))
