"""From a schedule to a plan: every factorization made once, offline."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .algorithms.base import Algorithm
from .families.base import Family
from .forecast import require_factors
from .linalg.factor import Inverse, inverse_error, refinements_for
from .run import Plan, Safeguard
from .schedules.schedule import Schedule


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
        dense = algorithm.factor_size(family) > family.n
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
        if isinstance(factors, Inverse):
            count = refinements_for(error, algorithm.solve_tolerance(float(np.finfo(family.dtype).eps)))
            factors = Inverse(factors.inverse, count)
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
    factor = algorithm.prepare(family, theta)
    factor = jax.tree.map(lambda a: a.astype(like.dtype), factor)
    return factor, inverse_error(algorithm.gram(family, theta), factor)
