"""From a schedule to a plan: every factorization made once, offline."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.base import Algorithm, Number, Theta
from ..families.base import Family
from ..linalg.systems import Factored, LinearSystem, Picked, refinements_for
from ..schedules.schedule import Schedule
from .factorization import choose_precision, factorize_all, find_pattern
from .rules import RULES, Safeguard
from .rungs import Ladder, LadderUse, Rungs, make_rungs


class Plan(eqx.Module):
    """A schedule ready to run: H + 1 values of θ (the last one steady) and their factors; then those of a ladder.

    Steps that share all factored hyperparameters share one factor: `which[k]` is its place in the stack. `vectors` are
    the hyperparameters that all steps have in common; `plain` tells which places do without them. `trusted`: the
    factors of the schedule's own places are known to be as good as rounding lets them be. `together`: steps may be
    taken by a kernel that takes many.
    """

    theta: dict[str, Float[Array, "places *n"]]
    factors: LinearSystem | None
    which: Int[Array, " places"]
    H: int = eqx.field(static=True)
    safeguard: Safeguard | None = None
    vectors: Theta = eqx.field(default_factory=dict)
    ladder: Ladder | None = None
    plain: Bool[Array, " places"] | None = None
    trusted: bool = eqx.field(static=True, default=False)
    together: bool = eqx.field(static=True, default=True)

    def at(self, k: Number, once: bool = False) -> tuple[Theta, Factored | None]:
        """Return θ^k and its factor, for k ≤ H or on a rung of the ladder; the factor of a step that is taken `once`
        stays in the stack until then."""
        theta = self.theta_at(k)
        if once and self.factors is not None:
            return theta, Picked(self.factors, self.which[k])
        return theta, jax.tree.map(lambda a: a[self.which[k]], self.factors)

    def theta_at(self, k: Number) -> Theta:
        """Return θ^k, for k ≤ H or on a rung of the ladder."""
        theta = {name: values[k] for name, values in self.theta.items()} | self.vectors
        if self.plain is not None:
            theta |= {name: jnp.where(self.plain[k], 1.0, vector) for name, vector in self.vectors.items()}
        return theta

    @property
    def on_host(self) -> bool:
        """Whether the host solves, one instance after the other."""
        return self.factors is not None and self.factors.on_host

    def own(self) -> "Plan":
        """Return the plan as the schedule's own places see it, where the factors of a ladder's rungs may be worse."""
        if not self.trusted or self.factors is None:
            return self
        return replace(self, factors=self.factors.trust())


def make_plan(
    algorithm: Algorithm,
    family: Family,
    schedule: Schedule,
    safeguard: str | None = None,
    precision: np.dtype | None = None,
    ladder: LadderUse = False,
) -> Plan:
    """Return the plan of a schedule, with a factor for every distinct set of factored hyperparameters, made in float64
    whatever the family's precision.

    Dense factors are kept in the family's precision, or in a lower one. With a `ladder` further rungs are factored.
    """
    rungs = None
    if ladder:
        rungs = make_rungs(algorithm, family, schedule)
    table, plain = _list_places(schedule, rungs)
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    trusted = False
    if not factored:
        which = np.zeros(plain.size, int)
        factors = None
    else:
        kept = choose_precision(family, find_pattern(algorithm, family, schedule), precision)
        tolerance = algorithm.solve_tolerance(float(np.finfo(family.dtype).eps))
        pairs, which = factorize_all(algorithm, family, schedule, table, plain, kept)
        errors = np.array([float(e) for _, e in pairs])[which]
        own = len(schedule) + 1
        trusted = algorithm.trusts(family, float(errors[:own].max()))
        refinements = refinements_for(float(errors[:own].max()), tolerance, algorithm.remedy)
        if rungs is not None and (bad := errors[own:] ** (refinements + 1) > tolerance).any():
            # A rung must not be singular where the schedule is not, nor cost all others a refinement.
            rungs = rungs.drop_bad(bad)
            table, plain = _list_places(schedule, rungs)
            pairs, which = factorize_all(algorithm, family, schedule, table, plain, kept)
        factors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one for one, _ in pairs))
        factors = factors.refine(max(float(e) for _, e in pairs), tolerance)
        if not trusted:
            factors = factors.distrust()
    theta = {name: jnp.asarray(values, family.dtype) for name, values in table.items()}
    guard = None
    if safeguard is not None and len(schedule):
        guard = _make_safeguard(RULES[safeguard], algorithm, family, schedule)
    vectors = algorithm.vectors(family, schedule.metric)
    climbed = None
    if rungs is not None:
        climbed = rungs.make_ladder(family.dtype, late=ladder == "late")
    without = None
    if plain.any():
        without = jnp.asarray(plain)
    return Plan(
        theta=theta,
        factors=factors,
        which=jnp.asarray(which, jnp.int32),
        H=len(schedule),
        safeguard=guard,
        vectors={name: jnp.asarray(vector, family.dtype) for name, vector in vectors.items()},
        ladder=climbed,
        plain=without,
        trusted=trusted,
    )


def _list_places(schedule: Schedule, rungs: Rungs | None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return θ at all places, the rungs' behind the schedule's, and which places do without the metric."""
    table = schedule.stacked()
    if rungs is None:
        return table, np.zeros(len(schedule) + 1, bool)
    table = {name: np.append(values, rungs.theta[name]) for name, values in table.items()}
    own = np.zeros(len(schedule) + 1, bool)
    return table, np.append(own, rungs.plain & (schedule.metric is not None))


def _make_safeguard(rule: type[Safeguard], algorithm: Algorithm, family: Family, schedule: Schedule) -> Safeguard:
    ends = np.zeros(len(schedule), bool)
    ends[np.cumsum(schedule.blocks) - 1] = True
    safe = algorithm.safe(family, schedule.steady)
    return rule({name: jnp.asarray(value, family.dtype) for name, value in safe.items()}, jnp.asarray(ends))
