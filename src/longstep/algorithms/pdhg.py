"""The primal-dual hybrid gradient method (Chambolle and Pock 2011) on quadratic programs: no linear systems."""

from typing import ClassVar

import jax.numpy as jnp
from typing_extensions import override

from ..schedules.domain import Interval, Positive
from ..schedules.hyperparameter import Hyperparameter
from .quadratic import QPMethod, QPState


class PDHG(QPMethod):
    """Steps in x along the gradient, in y along the constraints; hyperparameters `eta` and `omega`.

        w⁺ = w − t(Pw + q + A'y)
        v  = y/s + A(2w⁺ − w),  z⁺ = clip(v, l, u),  y⁺ = s(v − z⁺)

    with s = ηω/‖A‖ and t = η/(ω‖A‖ + ‖P‖/2), so that 1/t − s‖A‖² > ‖P‖/2 for η < 1 and every ω: then it converges
    (Condat 2013; Vũ 2013). For both norms bounds are taken, by the largest row and column sums.
    """

    theorem: ClassVar[str | None] = (
        "The primal-dual hybrid gradient method with 1/t − s‖A‖² > ‖P‖/2, which η < 1 ensures, converges to an optimal "
        "primal-dual pair (Condat 2013; Vũ 2013)."
    )
    symbols: ClassVar[dict[str, str]] = {"eta": r"$\eta$", "omega": r"$\omega$"}
    units: ClassVar[dict[str, str]] = {"eta": "1", "omega": "cost/unit²"}

    @override
    def hyperparameters(self, family):
        return (
            Hyperparameter("eta", 0.99, Positive(), Interval(0.0, 1.0, margin=1e-3), role="step"),
            Hyperparameter("omega", 1.0, Positive(), Positive(), role="scaling"),
        )

    @override
    def prepare_instance(self, family, instance, theta, factors):
        """Return both step sizes."""
        P = jnp.abs(family.matrices.P.dense())
        A = jnp.abs(family.matrices.A.dense())
        norm_P = jnp.max(jnp.sum(P, axis=0), initial=0.0)
        squared = jnp.max(jnp.sum(A, axis=0), initial=0.0) * jnp.max(jnp.sum(A, axis=1), initial=0.0)
        norm_A = jnp.sqrt(jnp.maximum(squared, jnp.finfo(A.dtype).tiny))
        weight = theta["omega"] * norm_A
        return theta["eta"] / (weight + norm_P / 2), theta["eta"] * weight / norm_A**2

    @override
    def step(self, family, instance, theta, factors, extra, state):
        if extra is None:
            extra = self.prepare_instance(family, instance, theta, factors)
        t, s = extra
        P = family.matrices.P
        A = family.matrices.A
        w = state.w - t * (P.mv(state.w) + instance.q + A.rmv(state.y))
        v = state.y / s + A.mv(2 * w - state.w)
        z = jnp.clip(v, instance.l, instance.u)
        return QPState(w, z, s * (v - z))
