"""What a sample of instances says about all of them: bounds on risks and quantiles that hold with high probability.

N instances are drawn independently from the distribution that the claim is about; none of them was used to train or
select anything. An instance violates a tolerance ε where its metric φ ≥ ε. The risk r is the probability of that, r̂
the fraction of violations. Bounds fail with probability at most δ if tolerance and iteration count are fixed before
the data are seen; J bounds from the same data hold together with probability 1 − Jδ (union bound).

Two methods, valid for every N and every distribution:

- `exact` (Clopper and Pearson 1934) inverts the binomial distribution. No valid bound that grows with the violations
  is anywhere smaller.
- `kl` relaxes the binomial tail to exp(−N·kl(r̂‖r)) (Chernoff). It is a little wider, can be verified by hand, and
  is what the published quantile curves use.

Quantiles are bounded by order statistics (`quantile_bounds`): no tolerance is chosen, so none has to be paid for. The
published curves (`quantile_curves`) are a union bound over 151 tolerances.

A claim "at least p of all instances succeed" needs one bound, which takes all of δ: `risk_upper`, `success_lower`. The
pairs `risk_bounds` and `success_bounds` give δ/2 to each side and hold together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special, stats

BoundMethod: TypeAlias = Literal["kl", "exact"]
# Entry by entry; of numbers it is a number.
Numbers: TypeAlias = np.ndarray | np.float64

_TINY = 1e-300


def kl(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """Return kl(p‖q) = p log(p/q) + (1−p) log((1−p)/(1−q)), of coins with these probabilities; 0·log 0 = 0."""
    p = np.asarray(p, np.float64)
    q = np.asarray(q, np.float64)
    # With the difference in log1p no digits cancel where q is near p.
    difference = q - p
    heads = special.xlog1py(p, difference / np.maximum(p, _TINY))
    return -heads - special.xlog1py(1 - p, -difference / np.maximum(1 - p, _TINY))


def kl_upper(risk: ArrayLike, bound: ArrayLike) -> Numbers:
    """Return kl⁻¹(r̂ | c) = max{p : kl(r̂‖p) ≤ c}, entry by entry; by bisection, to 1e-16 and not too small.

    >>> f"{kl_upper(0.004, math.log(2e5) / 1000):.7f}"
    '0.0230228'
    """
    risk, bound = np.broadcast_arrays(np.asarray(risk, np.float64), np.asarray(bound, np.float64))
    if not ((risk >= 0) & (risk <= 1)).all():
        raise ValueError("risks must lie in [0, 1]")
    if not (bound >= 0).all():
        raise ValueError("the bound on kl must not be negative")
    low = risk.copy()
    high = np.ones_like(risk)
    for _ in range(64):
        middle = (low + high) / 2
        inside = kl(risk, middle) <= bound
        low = np.where(inside, middle, low)
        high = np.where(inside, high, middle)
    return high[()]


def kl_lower(risk: ArrayLike, bound: ArrayLike) -> Numbers:
    """Return min{p : kl(r̂‖p) ≤ c} = 1 − kl⁻¹(1 − r̂ | c)."""
    return 1 - kl_upper(1 - np.asarray(risk, np.float64), bound)


def risk_upper(violations: ArrayLike, instances: ArrayLike, delta: float, method: BoundMethod = "exact") -> Numbers:
    """Return a number that the risk exceeds with probability at most δ, entry by entry.

    kl: kl⁻¹(r̂ | log(1/δ)/N). exact: the risk at which no more than `violations` have probability δ.

    >>> round(float(risk_upper(0, 455, 1e-5)), 6)
    0.024986
    """
    violations, instances = _check_violations(violations, instances)
    return _bound_above(violations, instances, _check_probability(delta), method)


def risk_lower(violations: ArrayLike, instances: ArrayLike, delta: float, method: BoundMethod = "exact") -> Numbers:
    """Return a number that the risk falls below with probability at most δ: 1 − `risk_upper` of the successes."""
    violations, instances = _check_violations(violations, instances)
    return 1 - _bound_above(instances - violations, instances, _check_probability(delta), method)


def risk_bounds(
    violations: ArrayLike, instances: ArrayLike, delta: float, method: BoundMethod = "kl"
) -> tuple[Numbers, Numbers]:
    """Return (lower, upper) between which the risk lies with probability at least 1 − δ.

    kl: kl(r̂‖r) ≤ log(2/δ)/N. exact: the two-sided Clopper–Pearson interval.
    """
    return risk_lower(violations, instances, delta / 2, method), risk_upper(violations, instances, delta / 2, method)


def success_lower(violations: ArrayLike, instances: ArrayLike, delta: float, method: BoundMethod = "exact") -> Numbers:
    """Return a number that the probability of success, 1 − risk, falls below with probability at most δ."""
    return 1 - risk_upper(violations, instances, delta, method)


def success_bounds(
    violations: ArrayLike, instances: ArrayLike, delta: float, method: BoundMethod = "kl"
) -> tuple[Numbers, Numbers]:
    """Return (lower, upper) between which the probability of success lies with probability at least 1 − δ."""
    lower, upper = risk_bounds(violations, instances, delta, method)
    return 1 - upper, 1 - lower


def _bound_by_kl(violations: np.ndarray, instances: np.ndarray, delta: float) -> Numbers:
    """Return the bound on the risk by kl⁻¹."""
    return kl_upper(violations / instances, math.log(1 / delta) / instances)


def _bound_exactly(violations: np.ndarray, instances: np.ndarray, delta: float) -> Numbers:
    """Return the bound on the risk by the binomial distribution."""
    failures = np.minimum(violations, instances - 1)
    return np.where(violations == instances, 1.0, stats.beta.isf(delta, failures + 1, instances - failures))[()]


_UPPER: dict[str, Callable[[np.ndarray, np.ndarray, float], Numbers]] = {"kl": _bound_by_kl, "exact": _bound_exactly}


def _bound_above(violations: np.ndarray, instances: np.ndarray, delta: float, method: BoundMethod) -> Numbers:
    if method not in _UPPER:
        raise ValueError(f"method must be 'kl' or 'exact', got {method!r}")
    return _UPPER[method](violations, instances, delta)


def quantile_bounds(
    values: Float[np.ndarray, "N K"], level: float, delta: float
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Return (upper, lower) bounds on the metric of unseen instances, each of which fails with probability at most δ.

    Of values of N instances (rows) at K iteration counts: at least `level` of all instances are below upper[k], and
    at least `level` are not below lower[k]. With v the most violations whose `risk_upper` is at most 1 − level, upper
    is just above the (v + 1)-th largest value and lower is the (v + 1)-th smallest. That holds for every distribution,
    with ties too. Where N is too small upper is ∞ and lower 0. NaN counts as +∞.

    >>> upper, lower = quantile_bounds(np.arange(1.0, 1001)[:, None], 0.975, 3e-4)
    >>> upper.round(6).tolist(), lower.tolist()
    ([991.0], [10.0])
    """
    values = _check_values(values, level)
    ordered = np.sort(np.where(np.isnan(values), np.inf, values), axis=0)
    allowed = np.arange(len(values))
    most = int(np.sum(risk_upper(allowed, len(values), delta) <= 1 - level)) - 1
    if most < 0:
        return np.full(values.shape[1], np.inf), np.zeros(values.shape[1])
    return np.nextafter(ordered[-1 - most], np.inf), ordered[most]


# 151 tolerances, ten in each decade.
TOLERANCES: Float[np.ndarray, " 151"] = np.logspace(-10, 5, 151)
TOLERANCES.flags.writeable = False


@dataclass(frozen=True, eq=False)
class QuantileCurves:
    """Bounds on quantiles of a metric at K iteration counts.

    `upper[k]` is at least the `level` quantile, `lower[k]` at most the 1 − `level` quantile. `delta` is the probability
    that was given to each of the 2·T bounds of an iteration count, with T tolerances.
    """

    upper: Float[np.ndarray, " K"]
    lower: Float[np.ndarray, " K"]
    level: float
    tolerances: Float[np.ndarray, " T"]
    delta: float

    def confidence(self, counts: int = 1) -> float:
        """Return the probability with which both curves hold at `counts` counts together: 1 − 2·T·counts·δ."""
        return max(0.0, 1 - 2 * self.tolerances.size * counts * self.delta)


def quantile_curves(
    values: Float[np.ndarray, "..."],
    level: float = 0.975,
    delta: float = 1e-5,
    tolerances: ArrayLike | None = None,
    *,
    joint: int = 1,
    method: BoundMethod = "kl",
) -> QuantileCurves:
    """Return curves between which the metric lies: from values of N instances (rows) at K iteration counts.

    Upper: the smallest tolerance whose upper risk bound is < 1 − level, ∞ where there is none. Lower: the largest
    tolerance whose lower risk bound is > level, 0 where there is none. `joint` iteration counts share δ: each bound
    gets δ/joint, so that the curves hold at `joint` iteration counts together with the confidence that they have at one
    of them for joint = 1: `curves.confidence(joint)`. NaN counts as +∞: an instance that blew up is never dropped.

    The published confidence 1 − 2·T·δ is cautious: at one tolerance the two bounds fail with at most δ together.

    >>> quantile_curves(np.full((1000, 1), 1e-7)).confidence()
    0.99698
    """
    values, tolerances = _check_curves(values, level, tolerances, joint)
    delta = _check_probability(delta) / joint
    ordered = np.sort(np.where(np.isnan(values), np.inf, values), axis=0)
    below = np.stack([np.searchsorted(column, tolerances, side="left") for column in ordered.T], axis=1)
    counts, index = np.unique(len(values) - below, return_inverse=True)
    places = index.reshape(below.shape)
    lower, upper = (np.asarray(bound)[places] for bound in risk_bounds(counts, len(values), delta, method))
    # Both bounds fall as the tolerance grows, so both sets of tolerances are connected.
    small = upper < 1 - level
    large = lower > level
    return QuantileCurves(
        upper=np.where(small.any(axis=0), tolerances[np.argmax(small, axis=0)], np.inf),
        lower=np.where(large.any(axis=0), tolerances[np.sum(large, axis=0) - 1], 0.0),
        level=level,
        tolerances=tolerances,
        delta=delta,
    )


def required_samples(success: float, confidence: float, expected: float = 0.0, method: BoundMethod = "exact") -> int:
    """Return how many instances certify "at least `success` of all instances" where a fraction `expected` violates.

    The smallest N such that for N and every larger sample, ⌊expected·N⌋ violations still give `success_lower` ≥
    `success` at this confidence. (A smaller sample may do by chance of the rounding.) `expected` is the observed
    fraction. It varies about the risk, and exceeds it in about every second sample: plan with a larger one.

    >>> required_samples(0.975, 1 - 1e-5)
    455
    """
    risk = 1 - success
    delta = _check_probability(1 - confidence)
    if not 0 < success < 1:
        raise ValueError(f"success must lie in (0, 1), got {success}")
    if not 0 <= expected < risk:
        raise ValueError(
            f"with a fraction {expected} of violations no sample certifies a success of {success}: expect fewer than "
            f"{risk:.6g}, or claim less"
        )
    rate = Fraction(expected).limit_denominator(10**9)

    def holds(violations: np.ndarray, instances: np.ndarray) -> np.ndarray:
        return np.asarray(1 - _bound_above(violations, instances, delta, method) >= success)

    # From here on the kl bound is enough however the violations are rounded, and the exact bound is never wider.
    least = math.log(1 / delta) / float(kl(expected, risk))
    if least > 1e9:
        raise ValueError(f"this takes {least:.1e} instances: expect fewer violations, or claim less than {success}")
    enough = math.ceil(least) + 1
    violations, first, last = _find_last_failing_run(holds, rate, enough)
    while first < last:
        middle = (first + last) // 2
        done = bool(holds(np.asarray(violations), np.asarray(middle)))
        if done:
            last = middle
        else:
            first = middle + 1
    return first


def _find_last_failing_run(
    holds: Callable[[np.ndarray, np.ndarray], np.ndarray], rate: Fraction, enough: int
) -> tuple[int, int, int]:
    """Return violations v and the range of N ≤ `enough` in which the answer lies, with ⌊rate·N⌋ = v below its end.

    While v stays the same a larger N only helps. So all is decided where v jumps, at N = ⌈v/rate⌉.
    """
    if rate == 0:
        return 0, 1, enough
    chunk = 4096
    stop = math.floor(rate * enough) + 1
    while stop > 0:
        violations = np.arange(max(stop - chunk, 0), stop)
        starts = np.maximum(-(-violations * rate.denominator // rate.numerator), 1)
        failing = np.flatnonzero(~holds(violations, starts))
        if failing.size:
            v = int(violations[failing[-1]])
            return v, int(starts[failing[-1]]), -(-(v + 1) * rate.denominator // rate.numerator)
        stop -= chunk
    return 0, 1, 1


def _check_violations(violations: ArrayLike, instances: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    violations, instances = np.broadcast_arrays(np.asarray(violations), np.asarray(instances))
    if not (np.equal(np.mod(violations, 1), 0).all() and np.equal(np.mod(instances, 1), 0).all()):
        raise ValueError("violations and instances are counts: they must be whole numbers")
    if not ((violations >= 0) & (violations <= instances) & (instances >= 1)).all():
        raise ValueError("need 0 ≤ violations ≤ instances and at least one instance")
    return violations, instances


def _check_probability(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(f"delta (or 1 − confidence) must lie in (0, 1), got {delta}")
    return float(delta)


def _check_values(values: ArrayLike, level: float) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values must have the shape (instances, iteration counts), got {values.shape}")
    if not 0.5 <= level < 1:
        raise ValueError(f"level must lie in [0.5, 1), got {level}")
    return values


def _check_curves(
    values: ArrayLike, level: float, tolerances: ArrayLike | None, joint: int
) -> tuple[np.ndarray, np.ndarray]:
    values = _check_values(values, level)
    if tolerances is None:
        tolerances = TOLERANCES
    tolerances = np.array(tolerances, np.float64)
    if tolerances.ndim != 1 or not tolerances.size or not np.isfinite(tolerances).all() or (tolerances <= 0).any():
        raise ValueError("tolerances must be a vector of positive numbers")
    if (np.diff(tolerances) <= 0).any():
        raise ValueError("tolerances must increase")
    if joint < 1:
        raise ValueError(f"joint must be at least 1, got {joint}")
    return values, tolerances
