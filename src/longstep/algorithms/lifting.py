"""What (v, z, y) of a QP without its equalities is in all its unknowns and rows: its point, and how good that is."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families.elimination import EliminatedInstance, EliminatedQP
from ..linalg.matrix import along, inner, max_norm, two_norm
from .quadratic import QPState, cut, support
from .residuals import Residuals


def lift(
    family: EliminatedQP,
    instance: EliminatedInstance,
    v: Float[Array, "v *N"],
    z: Float[Array, "i *N"],
    y: Float[Array, "i *N"],
) -> QPState:
    """Return the state in all unknowns and rows, where the multipliers of the equalities are those that make the
    gradient of the Lagrangian vanish on their range."""
    e = family.elimination
    w = instance.offset + e.N.mv(v)
    b = instance.l[e.equalities]
    y = cut(*family.bounds(instance), y)
    inequalities = jnp.concatenate([jnp.zeros_like(b), y])[e.order]
    slope = family.matrices.P.mv(w) + instance.q + family.matrices.A.rmv(inequalities)
    return QPState(w, jnp.concatenate([b, z])[e.order], jnp.concatenate([-e.Y.rmv(slope), y])[e.order])


def measure_lifted(
    family: EliminatedQP,
    instance: EliminatedInstance,
    v: Float[Array, "v *N"],
    z: Float[Array, "i *N"],
    y: Float[Array, "i *N"],
) -> Residuals:
    """Return the residuals of what `lift` returns, without forming the multipliers of the equalities.

    With the slope s = Pw + q + C'y these are −Y's, which leave NN's of it, and add −(Yb)'s to the dual objective.
    """
    e = family.elimination
    scaling = family.matrices.scaling
    to_user = along(1 / jnp.concatenate([scaling.e[e.equalities], scaling.e[e.others]]), z)
    to_user_dual = along(1 / (scaling.d * scaling.c), instance.q)
    low, high = family.bounds(instance)
    # Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not.
    z = jnp.clip(z, low, high)
    y = cut(low, high, y)
    w = instance.offset + e.N.mv(v)
    Pw = family.matrices.P.mv(w)
    b = instance.l[e.equalities]
    values = jnp.concatenate([e.E.mv(w), instance.level + e.A.mv(v)])
    targets = jnp.concatenate([b, z])
    primal = (values - targets) * to_user
    still = Pw + instance.q
    slope = e.N.rmv(still) + e.A.rmv(y)
    left = e.N.mv(slope)
    dual = left * to_user_dual
    terms = jnp.maximum(jnp.maximum(jnp.abs(Pw), jnp.abs(left - still)), jnp.abs(instance.q))
    quadratic = inner(w, Pw) / scaling.c
    linear = inner(instance.q, w) / scaling.c
    # Yb is the offset and N times the origin.
    bound = support(low, high, y) - inner(instance.offset, still) - inner(instance.level, y)
    bound = (bound - inner(instance.origin, slope)) / scaling.c
    return Residuals(
        primal=two_norm(primal),
        dual=two_norm(dual),
        primal_max=max_norm(primal),
        dual_max=max_norm(dual),
        gap=jnp.abs(quadratic + linear + bound),
        primal_scale=max_norm(jnp.maximum(jnp.abs(values), jnp.abs(targets)) * to_user),
        dual_scale=max_norm(terms * to_user_dual),
        gap_scale=jnp.maximum(jnp.maximum(jnp.abs(quadratic), jnp.abs(linear)), jnp.abs(bound)),
        objective=0.5 * quadratic + linear,
    )
