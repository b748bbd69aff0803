"""OSQP's iteration (Stellato, Banjac, Goulart, Bemporad, Boyd 2020) with step-varying hyperparameters."""

from typing import ClassVar

import jax.numpy as jnp
from typing_extensions import override

from ..families.base import Family
from ..families.quadratic_program import QP, QPInstance
from ..linalg.matrix import along
from ..linalg.systems import solve
from ..schedules.domain import Interval
from ..schedules.hyperparameter import Hyperparameter
from .quadratic import QPMethod, QPState, condensing_pays
from .splitting import Splitting, choose_domain


class OSQP(Splitting[QP, QPInstance, QPState], QPMethod):
    """ADMM on a QP, hyperparameters `sigma`, `rho_eq`, `rho_ineq`, `alpha`.

    With ρ the vector of rho_eq on the family's equality rows and rho_ineq on the others:

        (P + σI + A'diag(ρ)A) w̃ = σw − q + A'(ρ⊙z − y)
        w⁺ = αw̃ + (1−α)w
        r  = αAw̃ + (1−α)z
        z⁺ = clip(r + y/ρ, l, u)
        y⁺ = y + ρ⊙(r − z⁺)

    The linear system is solved for w̃ − w, whose right-hand side −(Pw + q + A'(y + ρ⊙(Aw − z))) vanishes at the
    optimum: rounding in the cached inverse then cannot move the fixed point, in float32 either. With v = r + y/ρ,
    which is z + α(Aw̃ − z) + y/ρ, the last two lines are z⁺ = clip(v, l, u) and y⁺ = ρ⊙(v − z⁺).
    Defaults are the C package's: sigma 1e-6, rho 0.1 (1000 times that on equalities), alpha 1.6.
    """

    # As in the C package.
    free_weight: ClassVar[float] = 1e-6
    theorem: ClassVar[str | None] = (
        "ADMM with constant positive penalties and relaxation in (0, 2) converges to an optimal primal-dual pair "
        "(Eckstein and Bertsekas 1992; Stellato et al. 2020)."
    )
    c_back_end: ClassVar[str | None] = "qp"
    remedy: ClassVar[str] = ", raise sigma, or bring rho_eq and rho_ineq closer together"
    symbols: ClassVar[dict[str, str]] = {
        "sigma": r"$\sigma$",
        "rho_eq": r"$\rho_{\mathrm{eq}}$",
        "rho_ineq": r"$\rho_{\mathrm{ineq}}$",
        "alpha": r"$\alpha$",
    }
    units: ClassVar[dict[str, str]] = {
        "sigma": "cost/unit²",
        "rho_eq": "cost/unit²",
        "rho_ineq": "cost/unit²",
        "alpha": "1",
    }

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        # With an exact finish the condensed form is as good, and has it in C too.
        return isinstance(family, QP) and not exact and not (large and condensing_pays(family))

    @override
    def hyperparameters(self, family):
        positive = choose_domain(family)
        return (
            Hyperparameter("sigma", 1e-6, positive, positive, factored=True, role="scaling"),
            Hyperparameter("rho_eq", 100.0, positive, positive, factored=True, role="penalty"),
            Hyperparameter("rho_ineq", 0.1, positive, positive, factored=True, role="penalty"),
            Hyperparameter("alpha", 1.6, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    @override
    def shift(self, family, theta):
        """Return σ."""
        return theta["sigma"]

    @override
    def weights(self, family, theta):
        """Return ρ, one entry for every row."""
        return self.weigh_rows(theta, jnp.where(family.equality, theta["rho_eq"], theta["rho_ineq"]))

    @override
    def weighs_alike(self, family):
        return not family.host.kinds.has_equalities

    @override
    def solve_tolerance(self, epsilon):
        # Solves are corrections that vanish with the residuals.
        return 1e-2

    @override
    def step(self, family, instance, theta, factors, extra, state):
        assert factors is not None
        w = state.w
        z = state.z
        y = state.y
        P = family.matrices.P
        A = family.matrices.A
        alpha = theta["alpha"]
        rho_vector = self.weights(family, theta)
        rho = along(rho_vector, y)
        one_over_rho = along(1 / rho_vector, y)
        excess = A.mv(w) - z
        slope = P.mv(w) + instance.q + A.rmv(y + rho * excess)
        dw = solve(self.operator(family, theta), factors, -slope)
        v = z + alpha * (excess + A.mv(dw)) + y * one_over_rho
        z_next = jnp.clip(v, instance.l, instance.u)
        return QPState(w + alpha * dw, z_next, rho * (v - z_next))
