"""OSQP's iteration (Stellato, Banjac, Goulart, Bemporad, Boyd 2020) with step-varying hyperparameters."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..families.base import Family
from ..families.point import Point
from ..families.quadratic_program import QP
from ..linalg.matrix import along, inner, max_norm, two_norm
from ..linalg.systems import solve
from ..schedules.domain import Hyperparameter, Interval, Positive
from .residuals import Residuals
from .splitting import Splitting


class OSQPState(eqx.Module):
    """(w, z, y) in equilibrated units: primal, split constraint value, dual; without the family's free rows.

    y and not z + y/ρ: with a varying ρ the two are different algorithms, and only in (w, z, y) is the optimum
    a fixed point whatever ρ is.
    """

    w: Float[Array, "n *N"]
    z: Float[Array, "m *N"]
    y: Float[Array, "m *N"]


class OSQP(Splitting):
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

    family_type: ClassVar[type[Family]] = QP
    # As in the C package.
    free_weight: ClassVar[float] = 1e-6
    eps_infeasible: ClassVar[float] = 1e-4
    theorem: ClassVar[str | None] = (
        "ADMM with constant positive penalties and relaxation in (0, 2) converges to an optimal primal-dual pair "
        "(Eckstein and Bertsekas 1992; Stellato et al. 2020)."
    )
    c_back_end: ClassVar[str | None] = "qp"
    symbols: ClassVar[dict[str, str]] = {
        "sigma": r"$\sigma$",
        "rho_eq": r"$\rho_{\mathrm{eq}}$",
        "rho_ineq": r"$\rho_{\mathrm{ineq}}$",
        "alpha": r"$\alpha$",
    }

    def hyperparameters(self, family):  # noqa: D102
        # In single precision the linear systems are singular beyond: training must not go there.
        positive = Positive() if family.dtype == np.float64 else Positive(1e-6, 1e3)
        return (
            Hyperparameter("sigma", 1e-6, positive, positive, factored=True, role="scaling"),
            Hyperparameter("rho_eq", 100.0, positive, positive, factored=True),
            Hyperparameter("rho_ineq", 0.1, positive, positive, factored=True),
            Hyperparameter("alpha", 1.6, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    def shift(self, family, theta):
        """σ."""
        return theta["sigma"]

    def weights(self, family, theta):
        """ρ, one entry for every row."""
        return jnp.where(family.equality, theta["rho_eq"], theta["rho_ineq"])

    def weighs_alike(self, family):  # noqa: D102
        return not family.host.kinds.has_equalities

    def solve_tolerance(self, epsilon):  # noqa: D102
        # Solves are corrections that vanish with the residuals.
        return 1e-2

    def init(self, family, instance, start):  # noqa: D102
        if start is None:
            return OSQPState(jnp.zeros_like(instance.q), jnp.zeros_like(instance.l), jnp.zeros_like(instance.l))
        s = family.matrices.scaling
        w = start.x / along(s.d, start.x)
        e, rows = along(s.e, instance.l), family.host.kinds.bounded
        y = jnp.zeros_like(instance.l) if start.y is None else start.y[rows] * s.c / e
        z = family.matrices.A.mv(w) if start.s is None else start.s[rows] * e
        return OSQPState(w, z, y)

    def step(self, family, instance, theta, factors, extra, state):  # noqa: D102
        w, z, y = state.w, state.z, state.y
        P, A, alpha = family.matrices.P, family.matrices.A, theta["alpha"]
        rho_vector = self.weights(family, theta)
        rho, one_over_rho = along(rho_vector, y), along(1 / rho_vector, y)
        excess = A.mv(w) - z
        slope = P.mv(w) + instance.q + A.rmv(y + rho * excess)
        dw = solve(self.operator(family, theta), factors, -slope)
        v = z + alpha * (excess + A.mv(dw)) + y * one_over_rho
        z_next = jnp.clip(v, instance.l, instance.u)
        return OSQPState(w + alpha * dw, z_next, rho * (v - z_next))

    def residuals(self, family, instance, state):  # noqa: D102
        # Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not.
        z, y = jnp.clip(state.z, instance.l, instance.u), _cut(instance, state.y)
        matrices, s = family.matrices, family.matrices.scaling
        to_user, to_user_dual = along(1 / s.e, state.z), along(1 / (s.d * s.c), state.w)
        Aw, Pw, Aty = matrices.A.mv(state.w), matrices.P.mv(state.w), matrices.A.rmv(y)
        primal, dual = (Aw - z) * to_user, (Pw + instance.q + Aty) * to_user_dual
        quadratic, linear = inner(state.w, Pw) / s.c, inner(instance.q, state.w) / s.c
        support = _support(instance, y) / s.c
        return Residuals(
            primal=two_norm(primal),
            dual=two_norm(dual),
            primal_max=max_norm(primal),
            dual_max=max_norm(dual),
            gap=jnp.abs(quadratic + linear + support),
            primal_scale=max_norm(jnp.maximum(jnp.abs(Aw), jnp.abs(z)) * to_user),
            dual_scale=max_norm(
                jnp.maximum(jnp.maximum(jnp.abs(Pw), jnp.abs(Aty)), jnp.abs(instance.q)) * to_user_dual
            ),
            gap_scale=jnp.maximum(jnp.maximum(jnp.abs(quadratic), jnp.abs(linear)), jnp.abs(support)),
            objective=0.5 * quadratic + linear,
        )

    def coordinates(self, family, instance, state):  # noqa: D102
        return jnp.concatenate([state.w, state.z, state.y])

    def extract(self, family, instance, state):  # noqa: D102
        s, kinds = family.matrices.scaling, family.host.kinds
        e, x = along(s.e, state.z), state.w * along(s.d, state.w)
        y = _cut(instance, state.y) * e / s.c
        z = jnp.clip(state.z, instance.l, instance.u) / e
        if kinds.free.size:
            free = family.free_A.mv(x)
            y = jnp.concatenate([y, jnp.zeros_like(free)])[kinds.order]
            z = jnp.concatenate([z, free])[kinds.order]
        return Point(x, y, z)

    def infeasible(self, family, instance, previous, state, eps):  # noqa: D102
        # Differences of successive iterates converge to certificates (Banjac, Goulart, Stellato, Boyd 2019). "Small" is
        # measured against the entries of P and A where these are small themselves, and against q.
        matrices, s = family.matrices, family.matrices.scaling
        e, d = along(s.e, state.z), along(s.d, state.w)
        dw, dy = state.w - previous.w, _cut(instance, state.y - previous.y)

        size = max_norm(dy * e)
        bounds = jnp.maximum(max_norm(_finite(instance.l) / e), max_norm(_finite(instance.u) / e))
        grows = _support(instance, dy) < -eps * jnp.minimum(bounds, 1.0) * size
        primal = (size > 0) & grows & (max_norm(matrices.A.rmv(dy) / d) < eps * matrices.size_A * size)

        size = max_norm(dw * d)
        Adw, level = matrices.A.mv(dw) / e, eps * matrices.size_A * size
        recedes = jnp.all(
            ((Adw <= level) | ~jnp.isfinite(instance.u)) & ((Adw >= -level) | ~jnp.isfinite(instance.l)), axis=0
        )
        descends = inner(instance.q, dw) / s.c < -eps * max_norm(instance.q / (d * s.c)) * size
        flat = max_norm(matrices.P.mv(dw) / (d * s.c)) <= eps * matrices.size_P * size
        return primal, (size > 0) & descends & flat & recedes

    def rays(self, family, instance, previous, state):  # noqa: D102
        difference = OSQPState(state.w - previous.w, state.z, state.y - previous.y)
        return self.extract(family, instance, difference)


def _support(instance, y: Float[Array, "m *N"]) -> Float[Array, "*N"]:
    """u'y₊ + l'y₋, the support function of [l, u]; y has no part along infinite bounds."""
    return inner(_finite(instance.u), jnp.maximum(y, 0.0)) + inner(_finite(instance.l), jnp.minimum(y, 0.0))


def _finite(bound: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
    return jnp.where(jnp.isfinite(bound), bound, 0.0)


def _cut(instance, dy: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
    """dy without its parts along infinite bounds."""
    dy = jnp.where(jnp.isfinite(instance.u), dy, jnp.minimum(dy, 0.0))
    return jnp.where(jnp.isfinite(instance.l), dy, jnp.maximum(dy, 0.0))
