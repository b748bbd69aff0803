"""What is certain for every instance: worst-case rates on quadratics, and that the steady state converges."""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from ..algorithms.base import Algorithm
from ..engine.rules import RULES
from ..families.base import Family
from ..families.composite import Composite
from ..families.smooth import Differentiable, Quadratic
from ..schedules.domain import Domain, Interval, Positive
from ..schedules.schedule import Schedule
from ..training.closed_form.exact import worst_case_rates
from ..training.closed_form.spectrum import ErrorSpectrum, find_curved
from .gradient_steps import is_gradient_schedule, read_step, read_steps

# Points per degree of the polynomial, for the maximum over an interval.
_DENSITY = 512


def worst_case_rate(family: Quadratic, schedule: Schedule, steps: int) -> Float[np.ndarray, " steps_plus_1"]:
    """Return the smallest ρ_k with ‖z^k − z*‖ ≤ ρ_k‖z⁰ − z*‖ for all parameters and starts, k = 0 … steps (Young 1953).

        ρ_k = max_j |p_k(λ_j)|,  p_0 = 1,  p_{k+1}(λ) = (1 − t_kλ)p_k(λ) + β_k(p_k(λ) − p_{k−1}(λ))

    over the eigenvalues λ_j of P, with p_{−1} = p_0 and, where the schedule has no momentum, β = 0:
    p_k(λ) = Π(1 − t_lλ). Eigenvalues up to 1e-12·L count as zero: no step moves along these directions, and z* is
    the optimum nearest to z⁰.

    >>> worst_case_rate(Quadratic(np.diag([1.0, 4.0])), Schedule({"step": [0.25]}, {"step": 0.4}), 2).round(3)
    array([1.  , 0.75, 0.45])
    """
    values = ErrorSpectrum(family).eigenvalues
    return _compute_rates(values[find_curved(values)], schedule, steps)


def guarded_rate(
    family: Quadratic, schedule: Schedule, steps: int, rule: str, safe: Mapping[str, float]
) -> Float[np.ndarray, " steps_plus_1"]:
    """Return `worst_case_rate` of a schedule under a safeguard with these safe hyperparameters, whatever it does.

    The safeguard decides for an instance as a whole. So ρ_k is the largest of max_j |p_k(λ_j)| over all courses that an
    instance can take: every block that it does not spend on safe steps may end well, or be undone.
    """
    values = ErrorSpectrum(family).eigenvalues
    course = _Courses(values[find_curved(values)], schedule, steps, rule, safe)
    course.follow(0, 0, 0, False, np.ones_like(course.values), np.ones_like(course.values))
    return course.worst


class _Courses:
    """All courses of an instance of a quadratic under the safeguard, and the largest |p_k| of what they return."""

    def __init__(self, values: np.ndarray, schedule: Schedule, steps: int, rule: str, safe: Mapping[str, float]):
        self.values = values
        self.schedule = schedule
        self.steps = steps
        self.safe = safe
        # The steps between judgements, and the number of failures after which an instance keeps to safe steps.
        kind = RULES[rule]
        self.lengths = (1,) * len(schedule)
        if kind.by_block:
            self.lengths = schedule.blocks
        self.most = kind.most_failures
        self.worst = np.zeros(steps + 1)
        self.worst[0] = 1.0

    def follow(self, k: int, block: int, failures: int, safe: bool, p: np.ndarray, previous: np.ndarray) -> None:
        """Follow all courses from a block on, which begins after k steps with p and, a step before, `previous`."""
        anchor = (p, previous)
        inside = block < len(self.lengths)
        end = self.steps
        if inside:
            end = k + self.lengths[block]
        for number in range(k, min(end, self.steps)):
            theta = self.schedule[number]
            if safe and inside:
                theta = self.safe
            step, momentum = read_step(theta)
            with np.errstate(over="ignore", invalid="ignore"):
                p, previous = p - step * self.values * p + momentum * (p - previous), p
            self._note(number + 1, p)
            if inside and not safe:
                # A run that ends here returns to the block's start where the merit did not fall.
                self._note(number + 1, anchor[0])
        if end >= self.steps:
            return
        self.follow(end, block + 1, failures, safe and failures >= self.most, p, previous)
        if not safe:
            self.follow(end, block + 1, failures + 1, True, *anchor)

    def _note(self, k: int, p: np.ndarray) -> None:
        largest = np.max(np.abs(p), initial=0.0)
        if np.isnan(largest):
            largest = np.inf
        self.worst[k] = max(self.worst[k], largest)


def interval_rate(L: float, mu: float, schedule: Schedule, steps: int) -> Float[np.ndarray, " steps_plus_1"]:
    """Return `worst_case_rate` over all quadratics with eigenvalues in [mu, L]: max |p_k(λ)| over the interval.

    Never below the maximum and at most 5e-6 of it above. A polynomial of degree k is largest on the interval by at
    most the factor 1/cos(kπ/2m) compared to m + 1 Chebyshev points (Ehlich and Zeller 1964); here m = 512·steps.

    >>> interval_rate(4.0, 1.0, Schedule({}, {"step": 0.4}), 2).round(3)
    array([1.  , 0.6 , 0.36])
    """
    if not 0 < L < np.inf or not 0 <= mu <= L:
        raise ValueError(f"need 0 < L < ∞ and 0 ≤ mu ≤ L, got L = {L}, mu = {mu}")
    m = _DENSITY * max(steps, 1)
    values = (L + mu + (L - mu) * np.cos(np.pi * np.arange(m + 1) / m)) / 2
    return _compute_rates(values, schedule, steps) / np.cos(np.arange(steps + 1) * np.pi / (2 * m))


def _compute_rates(
    values: Float[np.ndarray, " n"], schedule: Schedule, steps: int
) -> Float[np.ndarray, " steps_plus_1"]:
    """Return max |p_k| over these eigenvalues; infinite from where it overflows."""
    if not is_gradient_schedule(schedule):
        raise ValueError(
            "worst-case rates are for gradient descent, with hyperparameters step and perhaps momentum; "
            f"the schedule has {', '.join(schedule.names)}"
        )
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    with np.errstate(over="ignore", invalid="ignore"):
        rates = worst_case_rates(values, *read_steps(schedule, steps))
    return np.where(np.isnan(rates), np.inf, rates)


@dataclass(frozen=True)
class SteadyStateStatement:
    """Whether the steady state provably converges, by which theorem, and what was checked for it."""

    holds: bool
    sentence: str
    condition: str
    theorem: str

    @override
    def __str__(self) -> str:
        return f"{self.sentence} Checked: {self.condition}. {self.theorem}"


def state_convergence(algorithm: Algorithm, family: Family, schedule: Schedule) -> SteadyStateStatement:
    """Return that the steady state converges on every instance that can be solved, whatever the steps before it.

    Checks each hyperparameter of the steady state against the range that the algorithm declares for this family,
    without the margin that training keeps from its ends.

    >>> from longstep import GradientDescent, chebyshev
    >>> family, schedule = Quadratic(np.diag([1.0, 4.0])), chebyshev(4.0, 1.0, 3)
    >>> state_convergence(GradientDescent(), family, schedule).condition
    '0 < step = 0.4 < 0.5'
    """
    algorithm.check_family(family)
    hyperparameters = algorithm.hyperparameters(family)
    steady = schedule.steady
    if set(steady) != {h.name for h in hyperparameters}:
        raise ValueError(
            f"{type(algorithm).__name__} has the hyperparameters {', '.join(h.name for h in hyperparameters)}; "
            f"the schedule has {', '.join(schedule.names)}"
        )
    checks = [
        (_state_range(h.steady, h.name, steady[h.name]), _admits(h.steady, steady[h.name])) for h in hyperparameters
    ]
    failed = [text for text, admitted in checks if not admitted]
    name = type(algorithm).__name__
    H = len(schedule)
    before = "The"
    if H:
        before = f"Whatever happens before step {H}, the"
    if failed:
        sentence = f"The steady state of {name} need not converge: it is not true that {', '.join(failed)}."
    elif algorithm.own("theorem") is None:
        sentence = f"Whether the steady state of {name} converges is not known."
    else:
        where = f"on every instance with {algorithm.converges_on}"
        sentence = f"{before} steady state of {name} converges, in exact arithmetic, {where}."
    condition = ", ".join(text for text, _ in checks)
    holds = not failed and algorithm.own("theorem") is not None
    return SteadyStateStatement(holds, sentence, condition, _state_theorem(algorithm, family))


def says_the_same(stated: str | None, found: str | None) -> bool:
    """Tell whether a text on convergence is the one found now; warn of one of 0.1 that said too much."""
    if stated == found:
        return True
    # 0.1 spoke of an optimum, which does not imply the primal-dual pair that SCS goes to.
    former = (found or "").replace("with an optimal primal-dual pair", "with an optimum")
    if stated != former.replace(" where there is one", ""):
        return False
    warnings.warn(f"longstep 0.1 promised too much of convergence. What holds: {found}", stacklevel=4)
    return True


def _state_theorem(algorithm: Algorithm, family: Family) -> str:
    # Of the class itself: a subclass may take other steps, for which nothing is proved.
    theorem = algorithm.own("theorem")
    if theorem is None:
        return "No theorem is known for this algorithm: the ranges are those that it declares."
    sentence = theorem.format(L=getattr(family, "lipschitz", 0.0))
    if _has_own_units(family):
        sentence += " A step t is one of t·L/Lₓ, with the constant Lₓ of the instance."
    return sentence


def _has_own_units(family: Family) -> bool:
    return isinstance(family, Differentiable | Composite) and family.units == "instance"


def _admits(domain: Domain, value: float) -> bool:
    # The theorems ask for the open interval; the margin is the trainer's.
    if isinstance(domain, Interval):
        domain = Interval(domain.low, domain.high)
    return bool(domain.contains(value))


@functools.singledispatch
def _state_range(domain: Domain, name: str, value: float) -> str:
    return f"{name} = {value:.6g} in {domain.describe()}"


@_state_range.register
def _(domain: Interval, name: str, value: float) -> str:
    return f"{domain.low:.6g} < {name} = {value:.6g} < {domain.high:.6g}"


@_state_range.register
def _(domain: Positive, name: str, value: float) -> str:
    return f"{name} = {value:.6g} > 0"
