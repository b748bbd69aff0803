"""From a schedule to a plan: every factorization made once, offline; and the problem that a plan is run on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.base import Algorithm, Theta
from ..algorithms.residuals import Residuals
from ..families.base import Family
from ..linalg.systems import ALWAYS, Factored, LinearSystem, Picked, choose, factorize
from ..schedules.schedule import Schedule
from .forecast import require_factors


class Safeguard(eqx.Module):
    """How a run notices that learned steps fail on an instance, and what it does instead.

    `block`: where the merit (objective, or residual) did not fall over a block, the instance returns to the block's
    start and takes a block of steps with the safe θ before it joins the schedule again; after the second time it keeps
    them. `step`: a step after which it grew more than tenfold is taken back, and the safe θ are kept from then on. Both
    need nothing but the instance itself; the steady state is the same for all.
    """

    rule: str = eqx.field(static=True)
    safe: dict[str, Float[Array, ""]]
    ends: Bool[Array, " H"]

    def block_ends(self) -> Int[Array, " H"]:
        """For every step, the number of steps after which the next judgement is due."""
        following = jnp.arange(1, self.ends.size + 1, dtype=jnp.int32)
        if self.rule == "step":
            return following
        return jax.lax.cummin(jnp.where(self.ends, following, self.ends.size), reverse=True)


class Plan(eqx.Module):
    """A schedule ready to run: H + 1 values of θ (the last one steady) and their factors.

    Steps that share all factored hyperparameters share one factor: `which[k]` is its place in the stack.
    """

    theta: dict[str, Float[Array, " H+1"]]
    factors: Factored | None
    which: Int[Array, " H+1"]
    H: int = eqx.field(static=True)
    safeguard: Safeguard | None = None

    def at(self, k: Any, once: bool = False) -> tuple[Theta, Any]:
        """θ^k and its factor, for k ≤ H; the factor of a step that is taken `once` stays in the stack until then."""
        theta = {name: values[k] for name, values in self.theta.items()}
        if once and self.factors is not None:
            return theta, Picked(self.factors, self.which[k])
        return theta, jax.tree.map(lambda a: a[self.which[k]], self.factors)


class Problem(eqx.Module):
    """What is run: an algorithm with a plan, on the instances of a family.

    Where these are `encoded`, every step decodes them for itself: with many instances a few additions cost less than
    reading what they would give from memory.
    """

    algorithm: Algorithm
    family: Family
    plan: Plan
    given: Any
    encoded: bool = eqx.field(static=True, default=False)

    @property
    def instance(self) -> Any:
        """The instances."""
        return self.family.decode(self.given) if self.encoded else self.given

    def stepper(self, k: Any, safe: Theta | None = None, once: bool = False):
        """The map state ↦ next state of step k, with what does not depend on the state computed here, for many steps.

        Steps that are taken `once` compute it themselves. `safe` replaces θ^k, not its factors.
        """
        theta, factors = self.plan.at(k, once)
        theta = theta if safe is None else safe
        extra = None if once else self.algorithm.prepare_instance(self.family, self.instance, theta, factors)
        return lambda state: self.algorithm.step(self.family, self.instance, theta, factors, extra, state)

    def residuals(self, state: Any) -> Residuals:
        """Residuals of a state."""
        return self.algorithm.residuals(self.family, self.instance, state)


def factor(algorithm: Algorithm, family: Family, theta: Theta, solves: float = ALWAYS) -> LinearSystem | None:
    """What is cached for the linear system of θ, for so many solves; None for an algorithm that solves none."""
    if algorithm.pattern(family) is None:
        return None
    return factorize(algorithm.operator(family, theta), solves)


def make_plan(
    algorithm: Algorithm,
    family: Family,
    schedule: Schedule,
    safeguard: str | None = None,
    precision: np.dtype | None = None,
) -> Plan:
    """Factor once for every distinct set of factored hyperparameters, in float64 whatever the family's precision.

    Dense factors are kept in the family's precision, or in a lower one.
    """
    table = schedule.stacked()
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    keys = np.stack([table[name] for name in factored], axis=1) if factored else np.zeros((len(schedule) + 1, 0))
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    factors = None
    if factored:
        pattern = algorithm.pattern(family)
        assert pattern is not None
        dense = choose(pattern, ALWAYS).size(pattern) > family.n
        kept = precision if dense and precision is not None else family.dtype
        require_factors(algorithm, family, len(distinct), kept)
        like = jnp.zeros((), kept)
        # A local switch: the process-wide one is the user's.
        with jax.enable_x64(True):
            exact = jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, family)
            thetas = [dict(zip(factored, map(jnp.float64, key), strict=True)) for key in distinct]
            pairs = [_factor(algorithm, exact, theta, like) for theta in thetas]
            factors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(factor for factor, _ in pairs))
            error = max(float(e) for _, e in pairs)
        factors = factors.refined(error, algorithm.solve_tolerance(float(np.finfo(family.dtype).eps)))
    theta = {name: jnp.asarray(values, family.dtype) for name, values in table.items()}
    guard = _safeguard(algorithm, family, schedule, safeguard) if safeguard and len(schedule) else None
    return Plan(theta, factors, jnp.asarray(which.ravel(), jnp.int32), len(schedule), guard)


def _safeguard(algorithm: Algorithm, family: Family, schedule: Schedule, rule: str) -> Safeguard:
    ends = np.zeros(len(schedule), bool)
    ends[np.cumsum(schedule.blocks) - 1] = True
    safe = algorithm.safe(family, schedule.steady)
    return Safeguard(rule, {name: jnp.asarray(value, family.dtype) for name, value in safe.items()}, jnp.asarray(ends))


@eqx.filter_jit
def _factor(algorithm: Any, family: Any, theta: Any, like: Any) -> tuple[Any, Any]:
    """One factor in the precision of `like`, and the error of its inverse in that precision."""
    K = algorithm.operator(family, theta)
    factor = jax.tree.map(lambda a: a.astype(like.dtype), factorize(K, ALWAYS))
    return factor, factor.error(K)
