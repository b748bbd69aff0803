"""From a schedule to a plan: every factorization made once, offline; and the problem that a plan is run on."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree
from numpy.typing import DTypeLike

from .._util.memory import usable
from ..algorithms.base import Algorithm, Course, Number, State, Theta, Trimmed
from ..algorithms.residuals import Residuals
from ..families.base import Family
from ..linalg.systems import (
    ALWAYS,
    Factored,
    LinearSystem,
    Pattern,
    Picked,
    choose,
    factorize,
    factorize_by,
    refinements_for,
)
from ..schedules.schedule import Schedule
from .forecast import require_factors
from .rules import RULES, Safeguard

TreeT = TypeVar("TreeT")

# After so many steps in the steady state who is not done goes on with the fallback.
_PATIENCE = 1000
# Whether there is a ladder: from the start of the steady state, or only for those that are not done after long.
LadderUse: TypeAlias = bool | Literal["late"]


class Ladder(eqx.Module):
    """Rungs to which an instance may move in the steady state: multiples of its penalties and, behind them, of the
    fallback's penalties without the metric, where these are others.

    `logs` are the logarithms of the multiples, ascending in each part: entry j is place H + 1 + j of the plan. `first`
    is the steady state's own rung, `last` the last one of its part; `second` is the fallback's own rung, to which those
    go that are not done after `patience` steps, or whose residuals fell by less than exp(`enough`) between 100 and 200
    steps, 200 and 400, and so on. Every so many steps, an instance whose residuals are out of balance by more than
    exp(`threshold`) moves, `most` times at most, unless they fell by exp(`progress`) since the last look; not before
    `wait` steps.
    """

    logs: Float[Array, " R"]
    # An array, so that ladders that begin late share their programs with the others.
    wait: Int[Array, ""]
    first: int = eqx.field(static=True)
    last: int = eqx.field(static=True)
    second: int | None = eqx.field(static=True)
    every: int = eqx.field(static=True, default=10)
    threshold: float = eqx.field(static=True, default=math.log(2.5))
    progress: float = eqx.field(static=True, default=math.log(2.0))
    most: int = eqx.field(static=True, default=8)
    marks: tuple[int, ...] = eqx.field(static=True, default=(50, 100, 200, 400))
    enough: float = eqx.field(static=True, default=math.log(10.0))
    patience: int = eqx.field(static=True, default=_PATIENCE)


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


class Problem(eqx.Module):
    """What is run: an algorithm with a plan, on the instances of a family.

    Where these are `encoded`, every step decodes them for itself: with many instances a few additions cost less than
    reading what they would give from memory.
    """

    algorithm: Algorithm
    family: Family
    plan: Plan
    given: PyTree
    encoded: bool = eqx.field(static=True, default=False)

    @property
    def instance(self) -> PyTree:
        """The instances."""
        if not self.encoded:
            return self.given
        return self.family.decode(self.given)

    def stepper(self, k: Number, safe: Theta | None = None, once: bool = False) -> Callable[[State], State]:
        """Return the map state ↦ next state of step k, with what does not depend on the state computed here, for many
        steps.

        Steps that are taken `once` compute it themselves. `safe` replaces θ^k, not its factors.
        """
        theta, factors = self.plan.own().at(k, once)
        if safe is not None:
            theta = safe | self.plan.vectors
        extra = None
        if not once:
            extra = self.algorithm.prepare_instance(self.family, self.instance, theta, factors)
        return lambda state: self.algorithm.step(self.family, self.instance, theta, factors, extra, state)

    @property
    def shortens(self) -> bool:
        """Whether steps of the schedule are shorter where nobody looks at what they reach."""
        return self.algorithm.shortens(self.family, self.plan.own().factors)

    def shortcut(self, k: Number, once: bool = False) -> Callable[[Trimmed], Trimmed]:
        """Return the map trimmed state ↦ next trimmed state of step k; see `stepper`."""
        theta, factors = self.plan.own().at(k, once)
        return lambda state: self.algorithm.short_step(self.family, self.instance, theta, factors, state)

    def kernel(self, state: Trimmed) -> Callable[[Number, Number, Trimmed], Trimmed] | None:
        """Return what takes several short steps at once, where there is such a thing for this machine."""
        plan = self.plan.own()
        if not plan.together or plan.factors is None:
            return None
        course = Course(plan.H, plan.theta_at, plan.factors, plan.which[: plan.H])
        return self.algorithm.take_together(self.family, self.instance, course, state)

    def residuals(self, state: State) -> Residuals:
        """Residuals of a state."""
        return self.algorithm.residuals(self.family, self.instance, state)


def factorize_theta(algorithm: Algorithm, family: Family, theta: Theta, solves: float = ALWAYS) -> LinearSystem | None:
    """Return what is cached for the linear system of θ, for so many solves; None for an algorithm that solves none."""
    if algorithm.pattern(family) is None:
        return None
    return factorize(algorithm.operator(family, theta), solves)


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
        rungs = _make_rungs(algorithm, family, schedule)
    table, plain = _list_places(schedule, rungs)
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    trusted = False
    if not factored:
        which = np.zeros(plain.size, int)
        factors = None
    else:
        kept = _choose_precision(family, _find_pattern(algorithm, family, schedule), precision)
        tolerance = algorithm.solve_tolerance(float(np.finfo(family.dtype).eps))
        pairs, which = _factorize_all(algorithm, family, schedule, table, plain, kept)
        errors = np.array([float(e) for _, e in pairs])[which]
        own = len(schedule) + 1
        trusted = algorithm.trusts(family, float(errors[:own].max()))
        refinements = refinements_for(float(errors[:own].max()), tolerance)
        if rungs is not None and (bad := errors[own:] ** (refinements + 1) > tolerance).any():
            # A rung must not be singular where the schedule is not, nor cost all others a refinement.
            rungs = rungs.without(bad)
            table, plain = _list_places(schedule, rungs)
            pairs, which = _factorize_all(algorithm, family, schedule, table, plain, kept)
        factors = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one for one, _ in pairs))
        factors = factors.refined(max(float(e) for _, e in pairs), tolerance)
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


def _list_places(schedule: Schedule, rungs: "_Rungs | None") -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return θ at all places, the rungs' behind the schedule's, and which places do without the metric."""
    table = schedule.stacked()
    if rungs is None:
        return table, np.zeros(len(schedule) + 1, bool)
    table = {name: np.append(values, rungs.theta[name]) for name, values in table.items()}
    own = np.zeros(len(schedule) + 1, bool)
    return table, np.append(own, rungs.plain & (schedule.metric is not None))


def _find_pattern(algorithm: Algorithm, family: Family, schedule: Schedule) -> Pattern:
    """Return what all systems of a plan have in common: with a metric the weights of rows differ."""
    pattern = algorithm.pattern(family)
    assert pattern is not None
    return replace(pattern, spectral=pattern.spectral and schedule.metric is None)


def _choose_precision(family: Family, pattern: Pattern, precision: np.dtype | None) -> np.dtype:
    """Return what factors are kept in: a lower precision is for those that are more than a vector."""
    vector = family.n * family.dtype.itemsize
    if precision is None or choose(pattern, ALWAYS).bytes(pattern, family.dtype.itemsize) <= vector:
        return family.dtype
    return precision


def _factorize_all(
    algorithm: Algorithm,
    family: Family,
    schedule: Schedule,
    table: dict[str, np.ndarray],
    plain: np.ndarray,
    kept: np.dtype,
) -> tuple[list[tuple[LinearSystem, Float[Array, ""]]], np.ndarray]:
    """Return a factor and its error for every distinct system, and which of them each place has."""
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    keys = np.column_stack([*(table[name] for name in factored), plain])
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    pattern = _find_pattern(algorithm, family, schedule)
    back_end = choose(pattern, ALWAYS, usable() / len(distinct), kept.itemsize)
    require_factors(back_end, pattern, len(distinct), kept)
    like = jnp.zeros((), kept)
    vectors = algorithm.vectors(family, schedule.metric)
    # A local switch: the process-wide one is the user's.
    with jax.enable_x64(True):
        exact = _convert(family, jnp.float64)
        pairs = []
        for key in distinct:
            theta = dict(zip(factored, map(jnp.float64, key[:-1]), strict=True))
            for name, given in vectors.items():
                theta[name] = jnp.asarray(given, jnp.float64)
                if key[-1]:
                    theta[name] = jnp.ones_like(theta[name])
            pairs.append(_factorize_exactly(algorithm, exact, theta, back_end, like))
    return pairs, which.ravel()


# Neighbouring rungs differ by this factor, and reach so many to both sides; those of large dense factors are fewer.
_RATIO = 5.0
_REACH = 4
_REACH_OF_LARGE = 2
_LARGE = 500


@dataclass(frozen=True)
class _Rungs:
    """The θ of a ladder's rungs, on the host."""

    theta: dict[str, np.ndarray]
    logs: np.ndarray
    plain: np.ndarray
    first: int
    last: int
    second: int | None

    def without(self, bad: np.ndarray) -> "_Rungs | None":
        """Return the rungs on both sides of the steady state's up to the first bad one; likewise of the fallback's."""
        parts = []
        start = 0
        for middle, end in ((self.first, self.last), (self.second, self.logs.size - 1)):
            if middle is None or bad[middle]:
                parts.append(np.zeros(0, int))
            else:
                low = middle
                high = middle
                while low > start and not bad[low - 1]:
                    low -= 1
                while high < end and not bad[high + 1]:
                    high += 1
                parts.append(np.arange(low, high + 1))
            start = self.last + 1
        first, second = parts
        if not first.size:
            return None
        places = np.concatenate(parts)
        own = None
        if second.size:
            own = int(first.size + np.flatnonzero(second == self.second)[0])
        return _Rungs(
            theta={name: values[places] for name, values in self.theta.items()},
            logs=self.logs[places],
            plain=self.plain[places],
            first=int(np.flatnonzero(first == self.first)[0]),
            last=first.size - 1,
            second=own,
        )

    def make_ladder(self, dtype: np.dtype, late: bool) -> Ladder:
        wait = 0
        if late:
            wait = _PATIENCE
        return Ladder(jnp.asarray(self.logs, dtype), jnp.int32(wait), self.first, self.last, self.second)


def _make_rungs(algorithm: Algorithm, family: Family, schedule: Schedule) -> _Rungs | None:
    """Return multiples of the steady penalties, then of the fallback's where these are others; None without
    penalties."""
    steady = schedule.steady
    usual = schedule.fallback
    if usual is None:
        usual = {h.name: h.default for h in algorithm.hyperparameters(family)}
    if algorithm.scaled(family, steady, 2.0) == steady:
        return None
    reach = _REACH
    if family.n > _LARGE and not family.sparse:
        reach = _REACH_OF_LARGE
    logs = np.arange(-reach, reach + 1) * math.log(_RATIO)
    parts = [steady]
    second = None
    if schedule.metric is not None or steady != usual:
        parts = [steady, usual]
        second = logs.size + reach
    each = [algorithm.scaled(family, part, float(np.exp(log))) for part in parts for log in logs]
    return _Rungs(
        theta={name: np.array([one[name] for one in each]) for name in steady},
        logs=np.tile(logs, len(parts)),
        plain=np.repeat([False, True][: len(parts)], logs.size),
        first=reach,
        last=logs.size - 1,
        second=second,
    )


def _make_safeguard(rule: type[Safeguard], algorithm: Algorithm, family: Family, schedule: Schedule) -> Safeguard:
    ends = np.zeros(len(schedule), bool)
    ends[np.cumsum(schedule.blocks) - 1] = True
    safe = algorithm.safe(family, schedule.steady)
    return rule({name: jnp.asarray(value, family.dtype) for name, value in safe.items()}, jnp.asarray(ends))


@eqx.filter_jit
def _factorize_exactly(
    algorithm: Algorithm, family: Family, theta: Theta, back_end: type[LinearSystem], like: Float[Array, ""]
) -> tuple[LinearSystem, Float[Array, ""]]:
    """Return one factor in the precision of `like`, and the error of its inverse in that precision."""
    K = algorithm.operator(family, theta)
    made = _convert(factorize_by(back_end, K), like.dtype)
    return made, made.error(K)


def _convert(tree: TreeT, dtype: DTypeLike) -> TreeT:
    """Return a tree with its real numbers in this precision."""

    def convert(leaf: PyTree) -> PyTree:
        if eqx.is_inexact_array(leaf):
            return leaf.astype(dtype)
        return leaf

    return jax.tree.map(convert, tree)
