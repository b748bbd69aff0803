"""SCS's iteration (O'Donoghue 2021, O'Donoghue, Chu, Parikh, Boyd 2016) with step-varying hyperparameters."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from ..cones.semidefinite import wait_for
from ..families.base import Family
from ..families.conic import Conic, ConicInstance
from ..families.point import Point
from ..linalg.matrix import along, inner, max_norm, two_norm
from ..linalg.systems import solve
from ..schedules.domain import Interval
from ..schedules.hyperparameter import Hyperparameter
from .residuals import Residuals
from .splitting import Splitting, choose_domain, find_metric


class SCSState(eqx.Module):
    """The homogeneous embedding in coordinates that do not depend on θ.

    With u = (x, y, τ) the projected point, ũ the point of the subspace and v = diag(R, r_τ)(u + μ − 2ũ), whose
    y part is the slack s, the next DR variable is μ = R⁻¹v + carry for whatever R comes next, with
    carry = 2ũ − u + α(u − ũ). Vectors hold (x, y); the τ components stand apart.
    """

    u: Float[Array, "nm *N"]
    tau: Float[Array, "*N"]
    v: Float[Array, "nm *N"]
    v_tau: Float[Array, "*N"]
    carry: Float[Array, "nm *N"]
    carry_tau: Float[Array, "*N"]
    first: Bool[Array, "*N"]


class SCS(Splitting[Conic, ConicInstance, SCSState]):
    """Douglas–Rachford on the homogeneous embedding; hyperparameters `r_w`, `r_yz`, `r_ynz`, `r_tau`, `alpha`.

    With M = [[P, A'], [−A, 0]], q = (c, b), R = diag(r_w on x, r_yz on zero-cone rows, r_ynz on the others):

        p = (R+M)⁻¹Rμ,  g = (R+M)⁻¹q
        τ̃ = the positive root of a t² + b t + c₀,
            a = r_τ + g'Rg,  b = μ'Rg − 2p'Rg − r_τη,  c₀ = p'R(p − μ)
        w̃ = p − gτ̃
        w = Π(2w̃ − μ) onto Rⁿ×K*,  τ = max(2τ̃ − η, 0)
        v = diag(R, r_τ)((w, τ) + (μ, η) − 2(w̃, τ̃))
        μ⁺ = R₊⁻¹v + 2w̃ − w + α(w − w̃), and η⁺ likewise, with R₊ of the next step

    τ̃ = 1 in the first step; later (μ, η) is first rescaled to norm √(n+m+1): the embedding is homogeneous.
    Defaults are the C package's (rho_x 1e-6, scale 0.1, alpha 1.5): r_w = rho_x, r_yz = 1/(1000·scale),
    r_ynz = 1/scale, r_τ = 10.
    """

    family_type: ClassVar[type[Family]] = Conic
    eps_infeasible: ClassVar[float] = 1e-7
    theorem: ClassVar[str | None] = (
        "Douglas–Rachford splitting of the homogeneous embedding, with constant positive scalings and relaxation in "
        "(0, 2), converges to an optimal primal-dual pair where there is one (Eckstein and Bertsekas 1992; "
        "O'Donoghue 2021)."
    )
    # min x, ‖(x, y)‖ ≤ y has an optimum, but no multipliers: then the iterates need not converge.
    converges_on: ClassVar[str] = "an optimal primal-dual pair"
    c_back_end: ClassVar[str | None] = "conic"
    remedy: ClassVar[str] = ", raise r_w, or bring r_yz and r_ynz closer together"
    symbols: ClassVar[dict[str, str]] = {
        "r_w": "$r_w$",
        "r_yz": "$r_{yz}$",
        "r_ynz": "$r_{ynz}$",
        "r_tau": r"$r_\tau$",
        "alpha": r"$\alpha$",
    }
    units: ClassVar[dict[str, str]] = {
        "r_w": "cost/unit²",
        "r_yz": "unit²/cost",
        "r_ynz": "unit²/cost",
        "r_tau": "cost",
        "alpha": "1",
    }

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return True

    @override
    def hyperparameters(self, family):
        positive = choose_domain(family)
        inverse = choose_domain(family, 1e-3, 1e6, low_in_double=1e-6)
        return (
            Hyperparameter("r_w", 1e-6, positive, positive, factored=True, role="scaling"),
            Hyperparameter("r_yz", 0.01, inverse, inverse, factored=True, role="penalty"),
            Hyperparameter("r_ynz", 10.0, inverse, inverse, factored=True, role="penalty"),
            Hyperparameter("r_tau", 10.0, positive, positive, role="scaling"),
            Hyperparameter("alpha", 1.5, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    @override
    def shift(self, family, theta):
        """Return r_w."""
        return theta["r_w"]

    @override
    def weights(self, family, theta):
        """Return 1/r_y, one entry for every row: K is what elimination leaves of R + M."""
        return self.weigh_rows(theta, 1 / jnp.where(family.cones.equalities, theta["r_yz"], theta["r_ynz"]))

    @override
    def scaled(self, family, theta, multiple):
        # Penalties are 1/r_y.
        return super().scaled(family, theta, 1 / multiple)

    @override
    def metric_entries(self, family):
        return family.cones.blocks()

    @override
    def weighs_alike(self, family):
        return np.unique(family.cones.equalities).size < 2

    def _r_y(self, family: Conic, theta) -> Float[Array, " m"]:
        r = jnp.where(family.cones.equalities, theta["r_yz"], theta["r_ynz"])
        metric = find_metric(theta)
        if metric is None:
            return r
        return r / metric

    def _r(self, family: Conic, theta) -> Float[Array, " nm"]:
        return jnp.concatenate([jnp.broadcast_to(theta["r_w"], (family.n,)), self._r_y(family, theta)])

    @override
    def solve_tolerance(self, epsilon):
        return epsilon ** (2 / 3)

    def _solve(self, family: Conic, theta, factors, rhs: Float[Array, "nm *N"]) -> Float[Array, "nm *N"]:
        """Return (R+M)⁻¹ rhs."""
        A = family.matrices.A
        n = family.n
        r_y = along(self._r_y(family, theta), rhs)
        x = solve(self.operator(family, theta), factors, rhs[:n] - A.rmv(rhs[n:] / r_y))
        return jnp.concatenate([x, (rhs[n:] + A.mv(x)) / r_y])

    @override
    def prepare_instance(self, family, instance, theta, factors):
        return self._solve(family, theta, factors, jnp.concatenate([instance.c, instance.b]))

    def _solve_both(self, family: Conic, instance: ConicInstance, theta, factors, rhs: Float[Array, "nm *N"]):
        """Return (R+M)⁻¹ rhs and g in one pass over the factor."""
        q = jnp.concatenate([instance.c, instance.b])
        if rhs.ndim == 1:
            both = self._solve(family, theta, factors, jnp.stack([rhs, q], axis=1))
            return both[:, 0], both[:, 1]
        both = self._solve(family, theta, factors, jnp.concatenate([rhs, q], axis=1))
        return both[:, : rhs.shape[1]], both[:, rhs.shape[1] :]

    @override
    def init(self, family, instance, start):
        zero = jnp.zeros((family.n + family.m, *instance.c.shape[1:]), instance.c.dtype)
        one = jnp.ones(instance.c.shape[1:], zero.dtype)
        first = jnp.ones(one.shape, bool)
        if start is None:
            return SCSState(u=zero, tau=one, v=zero, v_tau=0 * one, carry=zero, carry_tau=one, first=first)
        s = family.matrices.scaling
        x = start.x / along(s.d, start.x)
        y = zero[family.n :]
        if start.y is not None:
            y = start.y / along(s.e, start.y)
        if start.s is None:
            slack = instance.size * instance.b - family.matrices.A.mv(x)
        else:
            slack = start.s * along(s.e, start.s)
        # Every step leaves y in K* and s in K; a start need not.
        y = family.cones.project_dual(y)
        slack = family.cones.project(wait_for(slack, y))
        u = jnp.concatenate([x, y]) / instance.size
        v = jnp.concatenate([jnp.zeros_like(x), slack]) / instance.size
        return SCSState(u=u, tau=one, v=v, v_tau=0 * one, carry=u, carry_tau=one, first=first)

    @override
    def step(self, family, instance, theta, factors, extra, state):
        n = family.n
        alpha = theta["alpha"]
        r_tau = theta["r_tau"]
        R = along(self._r(family, theta), state.v)
        mu = state.v / R + state.carry
        eta = state.v_tau / r_tau + state.carry_tau
        norm = jnp.sqrt(inner(mu, mu) + eta * eta)
        rescale = jnp.where(
            state.first | (norm == 0), 1.0, math.sqrt(n + family.m + 1) / jnp.where(norm == 0, 1.0, norm)
        )
        mu = mu * rescale
        eta = eta * rescale

        if extra is None:
            p, g = self._solve_both(family, instance, theta, factors, R * mu)
        else:
            p = self._solve(family, theta, factors, R * mu)
            g = extra
        root = _find_positive_root(
            a=r_tau + inner(g, R * g),
            b=inner(mu - 2 * p, R * g) - r_tau * eta,
            c=inner(p, R * (p - mu)),
        )
        tau_tilde = jnp.where(state.first, 1.0, root)
        w_tilde = p - g * tau_tilde
        reflected = 2 * w_tilde - mu
        u = jnp.concatenate([reflected[:n], family.cones.project_dual(reflected[n:])])
        tau = jnp.maximum(2 * tau_tilde - eta, 0.0)
        return SCSState(
            u=u,
            tau=tau,
            v=R * (u + mu - 2 * w_tilde),
            v_tau=r_tau * (tau + eta - 2 * tau_tilde),
            carry=2 * w_tilde - u + alpha * (u - w_tilde),
            carry_tau=2 * tau_tilde - tau + alpha * (tau - tau_tilde),
            first=jnp.zeros_like(state.first),
        )

    @override
    def residuals(self, family, instance, state):
        matrices = family.matrices
        s = family.matrices.scaling
        n = family.n
        tau = _keep_positive(state.tau)
        x = state.u[:n] / tau
        y = state.u[n:] / tau
        slack = state.v[n:] / tau
        e = along(s.e, y) / instance.size
        d = along(s.d, x) / instance.size
        Ax = matrices.A.mv(x)
        Px = matrices.P.mv(x)
        Aty = matrices.A.rmv(y)
        primal = (Ax + slack - instance.b) / e
        dual = (Px + Aty + instance.c) / d
        # Objective values scale with the square of (b, c).
        square = instance.size**2
        quadratic = square * inner(x, Px)
        linear = square * inner(instance.c, x)
        support = square * inner(instance.b, y)
        return Residuals(
            primal=two_norm(primal),
            dual=two_norm(dual),
            primal_max=max_norm(primal),
            dual_max=max_norm(dual),
            gap=jnp.abs(quadratic + linear + support),
            primal_scale=jnp.maximum(jnp.maximum(max_norm(Ax / e), max_norm(slack / e)), max_norm(instance.b / e)),
            dual_scale=jnp.maximum(jnp.maximum(max_norm(Px / d), max_norm(Aty / d)), max_norm(instance.c / d)),
            gap_scale=jnp.maximum(jnp.maximum(jnp.abs(quadratic), jnp.abs(linear)), jnp.abs(support)),
            objective=0.5 * quadratic + linear,
        )

    @override
    def coordinates(self, family, instance, state):
        return jnp.concatenate([state.u, state.v[family.n :]]) / _keep_positive(state.tau)

    @override
    def extract(self, family, instance, state):
        return self._point(family, instance, state, _keep_positive(state.tau))

    def _point(self, family: Conic, instance: ConicInstance, state: SCSState, tau) -> Point:
        s = family.matrices.scaling
        n = family.n
        scale = instance.size / tau
        x = state.u[:n] * scale
        y = state.u[n:] * scale
        slack = state.v[n:] * scale
        return Point(x=x * along(s.d, x), y=y * along(s.e, y), s=slack / along(s.e, slack))

    @override
    def infeasible(self, family, instance, previous, state, eps):
        # With τ → 0 the point itself, undivided, is the certificate.
        matrices = family.matrices
        s = family.matrices.scaling
        n = family.n
        x = state.u[:n]
        y = state.u[n:]
        slack = state.v[n:]
        e = along(s.e, y)
        d = along(s.d, x)
        # Equilibrated b and c have size one; without that their size must not pass for growth. So, as in the QP
        # case, "small" is measured against the entries of P and A too.
        growth = -inner(instance.b, y)
        descent = -inner(instance.c, x)
        Aty = max_norm(matrices.A.rmv(y) / d)
        Px = max_norm(matrices.P.mv(x) / d)
        moved = max_norm((matrices.A.mv(x) + slack) / e)
        size_y = eps * max_norm(y * e)
        size_x = eps * max_norm(x * d)
        primal = (growth > 0) & (Aty <= eps * growth) & (Aty <= matrices.size_A * size_y)
        still = (Px <= matrices.size_P * size_x) & (moved <= matrices.size_A * size_x)
        return primal, (descent > 0) & (jnp.maximum(moved, Px) <= eps * descent) & still

    @override
    def rays(self, family, instance, previous, state):
        return self._point(family, instance, state, jnp.ones_like(state.tau))


def _find_positive_root(a, b, c):
    """Return the larger root of a t² + b t + c with a > 0 ≥ c, without cancellation."""
    root = jnp.sqrt(jnp.maximum(b * b - 4 * a * c, jnp.finfo(b.dtype).tiny))
    return jnp.where(b > 0, -2 * c / jnp.where(b > 0, b + root, 1.0), (root - b) / (2 * a))


def _keep_positive(tau: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Return τ, kept from zero: a point with τ = 0 then shows as one with huge residuals, not as NaN."""
    return jnp.maximum(tau, 1e-12)
