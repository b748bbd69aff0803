"""ADMM on the inequalities of a QP alone: the equalities hold exactly at every step."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from ..families.base import Family
from ..families.elimination import EliminatedInstance, EliminatedQP, eliminated
from ..families.quadratic_program import QP
from ..linalg.matrix import along, max_norm
from ..linalg.systems import Gram, Pattern, solve
from ..schedules.domain import Hyperparameter, Interval, Positive
from .base import relative
from .quadratic import QPMethod, QPState, begin_qp, certify_qp, extract_qp, extract_rays, measure_qp
from .splitting import Splitting


class CondensedState(eqx.Module):
    """(v, z, y) in equilibrated units: free coordinates, split value and dual of the inequalities."""

    v: Float[Array, "v *N"]
    z: Float[Array, "i *N"]
    y: Float[Array, "i *N"]


class Condensed(Splitting[EliminatedQP, EliminatedInstance, CondensedState]):
    """ADMM on a QP without its equalities, hyperparameters `rho`, `alpha`.

    With w = Nv + Yb, whose equalities Ew = b hold for every v, the other rows C, and ρ the vector rho·metric:

        ṽ  = argmin ½w'Pw + q'w + y'(Cw − z) + ½‖Cw − z‖²_ρ    over w = Nv + Yb
        s  = C(Nṽ + Yb)
        r  = αs + (1−α)z
        z⁺ = clip(r + y/ρ, l, u)
        y⁺ = y + ρ⊙(r − z⁺)

    Fewer things are split than in OSQP's form, and there is nothing to choose for the equalities: with the same
    constants it needs fewer steps, or as many, and each is smaller. The linear system is of the order of v, the number
    of unknowns less that of the equalities. Multipliers of the equalities are those that make the gradient of the
    Lagrangian vanish on their range.
    """

    family_type: ClassVar[type[Family]] = QP
    starts_from_rows: ClassVar[bool] = True
    eps_infeasible: ClassVar[float] = QPMethod.eps_infeasible
    theorem: ClassVar[str | None] = (
        "ADMM with constant positive penalties and relaxation in (0, 2) converges to an optimal primal-dual pair, on "
        "the equalities' solutions as elsewhere (Eckstein and Bertsekas 1992)."
    )
    c_back_end: ClassVar[str | None] = "condensed"
    symbols: ClassVar[dict[str, str]] = {"rho": r"$\rho$", "alpha": r"$\alpha$"}
    units: ClassVar[dict[str, str]] = {"rho": "cost/unit²", "alpha": "1"}

    @override
    def prepare_family(self, family: QP, *, training: bool = False) -> EliminatedQP:
        return eliminated(family)

    @override
    def hyperparameters(self, family: QP) -> tuple[Hyperparameter, ...]:
        positive = Positive() if family.dtype == np.float64 else Positive(1e-6, 1e3)
        return (
            Hyperparameter("rho", 0.1, positive, positive, factored=True),
            Hyperparameter("alpha", 1.6, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    @override
    def metric_entries(self, family: QP):
        return np.arange(int((~np.asarray(family.equality)).sum()))

    @override
    def shift(self, family, theta):
        """Zero, or what keeps the system definite where P and the inequalities do not see all directions of v.

        Steps are corrections, so it does not move the fixed point; it slows directions in which nothing is to be found.
        """
        return family.elimination.shift

    @override
    def weights(self, family, theta):
        """ρ, one entry for every inequality."""
        rho = theta["rho"]
        return self.weighted(theta, jnp.broadcast_to(rho, family.elimination.others.shape))

    @override
    def weighs_alike(self, family):
        return True

    @override
    def pattern(self, family: QP) -> Pattern:
        free = family.elimination.free if isinstance(family, EliminatedQP) else family.n
        return Pattern(free)

    @override
    def operator(self, family, theta):
        e = family.elimination
        return Gram(e.P, e.A, self.shift(family, theta), self.weights(family, theta), e.free)

    @override
    def solve_tolerance(self, epsilon):
        # Solves are corrections that vanish with the residuals.
        return 1e-2

    @override
    def init(self, family, instance, start):
        e = family.elimination
        if start is None:
            zero = jnp.zeros_like(instance.level)
            return CondensedState(jnp.zeros_like(instance.cost), zero, zero)
        full = begin_qp(family, instance, start)
        return CondensedState(e.N.rmv(full.w - instance.shift), full.z[e.others], full.y[e.others])

    @override
    def step(self, family, instance, theta, factors, extra, state):
        assert factors is not None
        e = family.elimination
        z = state.z
        y = state.y
        alpha = theta["alpha"]
        rho_vector = self.weights(family, theta)
        rho = along(rho_vector, y)
        one_over_rho = along(1 / rho_vector, y)
        excess = instance.level + e.A.mv(state.v) - z
        slope = e.P.mv(state.v) + instance.cost + e.A.rmv(y + rho * excess)
        dv = solve(self.operator(family, theta), factors, -slope)
        total = z + alpha * (excess + e.A.mv(dv)) + y * one_over_rho
        z_next = jnp.clip(total, instance.l[e.others], instance.u[e.others])
        return CondensedState(state.v + dv, z_next, rho * (total - z_next))

    @override
    def residuals(self, family, instance, state):
        return measure_qp(family, instance, self.lifted(family, instance, state))

    @override
    def balance(self, family, instance, state, residuals):
        # Of what is split alone: equalities hold, and their multipliers, which may be large, say nothing of ρ.
        e = family.elimination
        scaling = family.matrices.scaling
        A = family.matrices.A
        w = instance.shift + e.N.mv(state.v)
        s = A.mv(w)[e.others]
        z = state.z
        unit = along(1 / scaling.e[e.others], state.z)
        inner = jnp.concatenate([jnp.zeros_like(instance.l[e.equalities]), state.y])[e.order]
        terms = jnp.stack([jnp.abs(family.matrices.P.mv(w)), jnp.abs(instance.q), jnp.abs(A.rmv(inner))])
        scale = max_norm(jnp.max(terms, axis=0) * along(1 / (scaling.d * scaling.c), w))
        return (
            relative(max_norm((s - z) * unit), max_norm(jnp.maximum(jnp.abs(s), jnp.abs(z)) * unit)),
            relative(residuals.dual_max, scale),
        )

    @override
    def measure_point(self, family, instance, point):
        # The point itself, not what the equalities make of it.
        return measure_qp(family, instance, begin_qp(family, instance, point))

    @override
    def coordinates(self, family, instance, state):
        return jnp.concatenate([state.v, state.z, state.y])

    @override
    def extract(self, family, instance, state):
        return extract_qp(family, instance, self.lifted(family, instance, state))

    @override
    def infeasible(self, family, instance, previous, state, eps):
        before, after = (self.lifted(family, instance, s) for s in (previous, state))
        primal, dual = certify_qp(family, instance, before, after, eps)
        if family.elimination.apart is None:
            return primal, dual
        alone, _ = certify_qp(family, instance, *self._contradiction(family, instance, after), eps)
        return primal | alone, dual

    @override
    def rays(self, family, instance, previous, state):
        before, after = (self.lifted(family, instance, s) for s in (previous, state))
        found = extract_rays(family, instance, before, after)
        if family.elimination.apart is None:
            return found
        pair = self._contradiction(family, instance, after)
        alone, _ = certify_qp(family, instance, *pair, self.eps_infeasible)
        other = extract_rays(family, instance, *pair)
        assert found.y is not None
        assert other.y is not None
        return eqx.tree_at(lambda p: p.y, found, jnp.where(alone, other.y, found.y))

    def lifted(self, family: EliminatedQP, instance: EliminatedInstance, state: CondensedState) -> QPState:
        """The state in all unknowns and rows."""
        e = family.elimination
        A = family.matrices.A
        w = instance.shift + e.N.mv(state.v)
        b = instance.l[e.equalities]
        z = jnp.concatenate([b, state.z])[e.order]
        inner = jnp.concatenate([jnp.zeros_like(b), state.y])[e.order]
        slope = family.matrices.P.mv(w) + instance.q + A.rmv(inner)
        y = jnp.concatenate([-e.Y.rmv(slope), state.y])[e.order]
        return QPState(w, z, y)

    def _contradiction(
        self, family: EliminatedQP, instance: EliminatedInstance, full: QPState
    ) -> tuple[QPState, QPState]:
        """Two states whose duals differ by what equalities that repeat each other leave of b: a ray, unless zero."""
        e = family.elimination
        assert e.apart is not None
        left = -e.apart.mv(instance.l[e.equalities])
        ray = jnp.concatenate([left, jnp.zeros_like(full.z[e.others])])[e.order]
        zero = QPState(full.w, full.z, jnp.zeros_like(full.y))
        return zero, QPState(full.w, full.z, ray)
