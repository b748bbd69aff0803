"""ADMM on the inequalities of a QP alone: the equalities hold exactly at every step."""

import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from ..families.base import Family
from ..families.elimination import EliminatedInstance, EliminatedQP, eliminate_equalities
from ..families.quadratic_program import QP
from ..linalg.matrix import along, max_norm
from ..linalg.systems import Gram, Pattern, respond, solve
from ..schedules.domain import Interval
from ..schedules.hyperparameter import Hyperparameter
from .base import compute_log_ratio
from .lifting import lift, measure_lifted
from .quadratic import (
    QPMethod,
    QPState,
    begin_qp,
    certify_qp,
    condensing_pays,
    extract_qp,
    extract_rays,
    measure_qp,
)
from .splitting import Splitting, choose_domain
from .tiles import Rows, Steps, split, suits, take_steps, update

# Cached inverses are trusted whose error is below this power of ε: 3e-13, in single precision 3e-6. Residuals then end
# within about ten times of where corrections bring them, which is ρ times ε too.
_TRUSTED = 0.8


class SplitPair(eqx.Module):
    """(z, y) in equilibrated units: split value and dual of the inequalities. Exact steps depend on nothing else."""

    z: Float[Array, "i *N"]
    y: Float[Array, "i *N"]


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

    With A = CN, K = N'PN + A'diag(ρ)A and the value a of Cw at v = 0, whose cost is c, that is

        ṽ = K⁻¹(A't − c),  s = a + Aṽ,  t = ρ⊙(z − a) − y.

    Where v = 0 is the minimiser on the equalities' solutions, c is zero, and s = a + A K⁻¹A't takes one product with a
    matrix that is made in advance, if rows are few: v is then formed by the last step of several. Where the cached
    inverse is not good enough for that, ṽ is the last v and a correction by it, which vanishes in the end.

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

    tried_first: ClassVar[bool] = True

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return isinstance(family, QP) and (exact or not large or condensing_pays(family))

    @override
    def prepare_family(self, family: QP, *, training: bool = False) -> EliminatedQP:
        return eliminate_equalities(family)

    @override
    def hyperparameters(self, family: QP) -> tuple[Hyperparameter, ...]:
        positive = choose_domain(family)
        return (
            Hyperparameter("rho", 0.1, positive, positive, factored=True, role="penalty"),
            Hyperparameter("alpha", 1.6, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    @override
    def metric_entries(self, family: QP):
        return np.arange(int((~np.asarray(family.equality)).sum()))

    @override
    def shift(self, family, theta):
        """Return zero, or what keeps the system definite where P and the inequalities do not see all directions of v.

        Steps are corrections then, so it does not move the fixed point; it slows directions in which nothing is to be
        found.
        """
        return family.elimination.ridge

    @override
    def weights(self, family, theta):
        """Return ρ, one entry for every inequality."""
        rho = theta["rho"]
        return self.weigh_rows(theta, jnp.broadcast_to(rho, family.elimination.others.shape))

    @override
    def weighs_alike(self, family):
        return True

    @override
    def pattern(self, family: QP) -> Pattern:
        if not isinstance(family, EliminatedQP):
            return Pattern(family.n)
        e = family.elimination
        if not e.centred:
            return Pattern(e.free)
        return Pattern(e.free, rows=e.others.size)

    @override
    def operator(self, family, theta):
        e = family.elimination
        weights = self.weights(family, theta)
        return Gram(e.P, e.A, self.shift(family, theta), weights, e.free, asks_rows=e.centred)

    @override
    def solve_tolerance(self, epsilon):
        # Solves are corrections that vanish with the residuals, but for those that are trusted.
        return 1e-2

    @override
    def trusts(self, family, error):
        return family.elimination.seen and error <= float(np.finfo(family.dtype).eps) ** _TRUSTED

    @override
    def init(self, family, instance, start):
        e = family.elimination
        if start is None:
            zero = jnp.zeros_like(instance.level)
            return CondensedState(instance.origin, zero, zero)
        full = begin_qp(family, instance, start)
        return CondensedState(e.N.rmv(full.w - instance.offset), full.z[e.others], full.y[e.others])

    @override
    def step(self, family, instance, theta, factors, extra, state):
        assert factors is not None
        e = family.elimination
        K = self.operator(family, theta)
        z = state.z
        y = state.y
        rho = along(K.weights, y)
        if factors.trusted and e.seen:
            v = solve(K, factors, e.A.rmv(rho * (z - instance.level) - y) - instance.cost)
            gap = instance.level + e.A.mv(v) - z
        else:
            excess = instance.level + e.A.mv(state.v) - z
            dv = solve(K, factors, -(e.P.mv(state.v) + instance.cost + e.A.rmv(y + rho * excess)))
            v = state.v + dv
            gap = excess + e.A.mv(dv)
        return CondensedState(v, *split(rho, theta["alpha"], gap, *family.bounds(instance), z, y))

    @override
    def shortens(self, family, factors):
        return factors is not None and factors.trusted and factors.response is not None

    @override
    def trim(self, state):
        return SplitPair(state.z, state.y)

    @override
    def short_step(self, family, instance, theta, factors, state):
        assert factors is not None
        assert factors.response is not None
        K = self.operator(family, theta)
        respond_to = functools.partial(respond, K, factors.response)
        rows = Rows(instance.level, *family.bounds(instance))
        return SplitPair(*update(along(K.weights, state.y), theta["alpha"], respond_to, rows, state.z, state.y))

    @override
    def take_together(self, family, instance, course, state):
        if course.factors.response is None:
            return None
        rho, alpha = jax.vmap(lambda k: (self.weights(family, course.theta(k)), course.theta(k)["alpha"]))(
            jnp.arange(course.length)
        )
        steps = Steps(rho, alpha, course.factors.response, course.which)
        if not suits(steps, state.z):
            return None
        rows = Rows(instance.level, *family.bounds(instance))
        return lambda first, stop, state: SplitPair(*take_steps(steps, rows, first, stop, state.z, state.y))

    @override
    def residuals(self, family, instance, state):
        return measure_lifted(family, instance, state.v, state.z, state.y)

    @override
    def balance(self, family, instance, state, residuals):
        # Of what is split alone: equalities hold, and their multipliers, which may be large, say nothing of ρ.
        e = family.elimination
        scaling = family.matrices.scaling
        A = family.matrices.A
        w = instance.offset + e.N.mv(state.v)
        s = A.mv(w)[e.others]
        z = state.z
        unit = along(1 / scaling.e[e.others], state.z)
        inner = jnp.concatenate([jnp.zeros_like(instance.l[e.equalities]), state.y])[e.order]
        terms = jnp.stack([jnp.abs(family.matrices.P.mv(w)), jnp.abs(instance.q), jnp.abs(A.rmv(inner))])
        scale = max_norm(jnp.max(terms, axis=0) * along(1 / (scaling.d * scaling.c), w))
        return (
            compute_log_ratio(max_norm((s - z) * unit), max_norm(jnp.maximum(jnp.abs(s), jnp.abs(z)) * unit)),
            compute_log_ratio(residuals.dual_max, scale),
        )

    @override
    def measure_point(self, family, instance, point):
        # The point itself, not what the equalities make of it.
        return measure_qp(family, instance, begin_qp(family, instance, point))

    @override
    def coordinates(self, family, instance, state):
        return jnp.concatenate([state.v, state.z, state.y])

    @override
    def find_split(self, state):
        return state.z, state.y

    @override
    def extract(self, family, instance, state):
        return extract_qp(family, instance, self.lift_state(family, instance, state))

    @override
    def infeasible(self, family, instance, previous, state, eps):
        before, after = (self.lift_state(family, instance, s) for s in (previous, state))
        primal, dual = certify_qp(family, instance, before, after, eps)
        if family.elimination.apart is None:
            return primal, dual
        alone, _ = certify_qp(family, instance, *self._contradiction(family, instance, after), eps)
        return primal | alone, dual

    @override
    def rays(self, family, instance, previous, state):
        before, after = (self.lift_state(family, instance, s) for s in (previous, state))
        found = extract_rays(family, instance, before, after)
        if family.elimination.apart is None:
            return found
        pair = self._contradiction(family, instance, after)
        alone, _ = certify_qp(family, instance, *pair, self.eps_infeasible)
        other = extract_rays(family, instance, *pair)
        assert found.y is not None
        assert other.y is not None
        return eqx.tree_at(lambda p: p.y, found, jnp.where(alone, other.y, found.y))

    def lift_state(self, family: EliminatedQP, instance: EliminatedInstance, state: CondensedState) -> QPState:
        """Return the state in all unknowns and rows."""
        return lift(family, instance, state.v, state.z, state.y)

    def _contradiction(
        self, family: EliminatedQP, instance: EliminatedInstance, full: QPState
    ) -> tuple[QPState, QPState]:
        """Return two states whose duals differ by what equalities that repeat each other leave of b: a ray, unless
        zero."""
        e = family.elimination
        assert e.apart is not None
        left = -e.apart.mv(instance.l[e.equalities])
        ray = jnp.concatenate([left, jnp.zeros_like(full.z[e.others])])[e.order]
        zero = QPState(full.w, full.z, jnp.zeros_like(full.y))
        return zero, QPState(full.w, full.z, ray)
