"""How far a point is from optimal."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Residuals(eqx.Module):
    """How far a point is from optimal, always in the user's units.

    `primal` and `dual` are 2-norms (metrics, losses, certificates). The `_max` fields are ∞-norms; with the
    matching `_scale` they decide stopping, as in OSQP and SCS: solved when

        primal_max ≤ eps_abs + eps_rel·primal_scale,   dual_max ≤ eps_abs + eps_rel·dual_scale,
        gap ≤ eps_abs + eps_rel·gap_scale.
    """

    primal: Float[Array, "*N"]
    dual: Float[Array, "*N"]
    primal_max: Float[Array, "*N"]
    dual_max: Float[Array, "*N"]
    gap: Float[Array, "*N"]
    primal_scale: Float[Array, "*N"]
    dual_scale: Float[Array, "*N"]
    gap_scale: Float[Array, "*N"]
    objective: Float[Array, "*N"]

    @property
    def worst(self) -> Float[Array, "*N"]:
        """max(primal, dual): the metric of constrained problems."""
        return jnp.maximum(self.primal, self.dual)

    def violation(self, eps_abs, eps_rel) -> Float[Array, "*N"]:
        """Return the largest residual in units of its tolerance: solved means ≤ 1."""
        pairs = (
            (self.primal_max, self.primal_scale),
            (self.dual_max, self.dual_scale),
            (self.gap, self.gap_scale),
        )
        # With both tolerances zero, points must still compare, and a residual of 0 still count as met.
        most = jnp.finfo(self.primal.dtype).max
        ratios = [
            jnp.where(jnp.isfinite(r), jnp.minimum(r / jnp.maximum(eps_abs + eps_rel * scale, 1e-30), most), r)
            for r, scale in pairs
        ]
        return jnp.maximum(jnp.maximum(ratios[0], ratios[1]), ratios[2])
