"""Classical methods with hyperparameters from theory, at every step for as long as a run goes on."""

import math
from collections.abc import Callable

import numpy as np

from ...algorithms.base import Algorithm
from ...algorithms.gradient import GradientDescent
from ...algorithms.proximal import AcceleratedProximalGradient
from ...algorithms.scs import SCS
from ...evaluation.scheduled import Scheduled, hold_schedule
from ...families.composite import Composite
from ...families.conic import Conic
from ...families.smooth import Differentiable
from ...schedules.classical import chebyshev, silver, silver_strongly_convex
from ...schedules.schedule import Schedule, constant
from .momentum import Nesterov


def unit_scalings(family: Conic, alpha: float | None = None) -> Scheduled:
    """Return SCS with all r = 1, which published comparisons call vanilla; `alpha` is the default one or given.

    Those comparisons do not equilibrate either: for them the family is made with `equilibrate=False`.
    """
    SCS().check_family(family)
    values: dict[str, float] = dict.fromkeys(("r_w", "r_yz", "r_ynz", "r_tau"), 1.0)
    if alpha is not None:
        values["alpha"] = alpha
    return hold_schedule("unit scalings", family, SCS(), constant(SCS().hyperparameters(family), **values))


def nesterov(family: Differentiable) -> Scheduled:
    """Return Nesterov's method, for strongly convex functions where the family is known to be, else for convex ones."""
    Nesterov().check_family(family)
    if family.strong_convexity > 0:
        return nesterov_strongly_convex(family)
    return nesterov_convex(family)


def nesterov_strongly_convex(family: Differentiable) -> Scheduled:
    """Return step 4/(3L + μ) and momentum (√(3κ+1) − 2)/(√(3κ+1) + 2), κ = L/μ: the best pair for quadratics.

    Lessard, Recht and Packard (2016).

    >>> import numpy as np
    >>> from longstep import Quadratic
    >>> method = nesterov_strongly_convex(Quadratic(np.diag([1.0, 5.0])))
    >>> method.schedule_for(2)[1]
    {'step': 0.25, 'momentum': 0.3333333333333333}
    """
    L, mu = _require_convexity(family, Nesterov(), "nesterov_convex")
    root = math.sqrt(3 * L / mu + 1)
    step = 4 / (3 * L + mu)
    momentum = (root - 2) / (root + 2)
    return _schedule_momentum(
        "Nesterov, strongly convex", family, Nesterov(), step, lambda count: np.full(count, momentum)
    )


def nesterov_convex(family: Differentiable) -> Scheduled:
    """Return step 1/L and, after step k = 0, 1, …, the extrapolation y = z⁺ + k/(k+3)·(z⁺ − z), where the next begins.

    So f − f* ≤ 2L‖z⁰ − z*‖²/(k+1)² after k steps (Nesterov 1983; Su, Boyd and Candès 2016).
    """
    Nesterov().check_family(family)

    def momentum(count: int) -> np.ndarray:
        k = np.arange(count)
        return _delay(k / (k + 3))

    return _schedule_momentum("Nesterov, convex", family, Nesterov(), 1 / family.lipschitz, momentum)


def fista(family: Composite) -> Scheduled:
    """Return proximal steps of 1/L with FISTA's momentum (Beck and Teboulle 2009).

    After step k = 0, 1, … the extrapolation, from which step k + 1 goes on, is

        y = z⁺ + (t_k − 1)/t_{k+1}·(z⁺ − z),  t_0 = 1,  t_{k+1} = (1 + √(1 + 4t_k²))/2
    """
    AcceleratedProximalGradient().check_family(family)

    def momentum(count: int) -> np.ndarray:
        t = np.ones(count + 1)
        for k in range(count):
            t[k + 1] = (1 + math.sqrt(1 + 4 * t[k] ** 2)) / 2
        return _delay((t[:-1] - 1) / t[1:])

    return _schedule_momentum("FISTA", family, AcceleratedProximalGradient(), 1 / family.lipschitz, momentum)


def silver_steps(family: Differentiable) -> Scheduled:
    """Return the silver steps for convex functions: one infinite sequence, of which a run takes as many as it needs."""
    GradientDescent().check_family(family)

    def steps(count: int) -> np.ndarray:
        return silver(family.lipschitz, max(1, count.bit_length())).step[:count]

    return _schedule_steps("silver steps", family, steps)


def silver_steps_strongly_convex(family: Differentiable, power: int | None = None) -> Scheduled:
    """Return the 2^power silver steps for strongly convex functions, again and again until the run ends.

    The default is the least power with 2^power ≥ κ^{log_ρ 2}, ρ = 1 + √2, which is ⌈log_ρ κ⌉: up to there a longer
    block contracts faster per step, beyond it by one per cent at most.
    """
    L, mu = _require_convexity(family, GradientDescent(), "silver_steps")
    if power is None:
        power = math.ceil(math.log(L / mu) / math.log(1 + math.sqrt(2)) - 1e-9)
    block = silver_strongly_convex(L, mu, power).step
    return _schedule_steps(f"silver steps, blocks of {len(block)}", family, lambda count: np.resize(block, count))


def chebyshev_steps(family: Differentiable, block: int = 10) -> Scheduled:
    """Return Young's steps for blocks of `block` steps, in Leja's order, again and again until the run ends.

    At the end of every block no other steps have a smaller worst-case error on quadratics with spectrum in [μ, L].
    """
    L, mu = _require_convexity(family, GradientDescent(), "silver_steps")
    steps = chebyshev(L, mu, block).step
    return _schedule_steps(f"Chebyshev steps, blocks of {block}", family, lambda count: np.resize(steps, count))


def _schedule_steps(name: str, family: Differentiable, steps: Callable[[int], np.ndarray]) -> Scheduled:
    """Return gradient descent with these steps; the steady state is never reached."""
    steady = {"step": 1 / family.lipschitz}
    return Scheduled(name, family, GradientDescent(), lambda count: Schedule({"step": steps(count)}, steady))


def _schedule_momentum(
    name: str,
    family: Differentiable | Composite,
    algorithm: Algorithm,
    step: float,
    momentum: Callable[[int], np.ndarray],
) -> Scheduled:
    """Return a method with one step size and this momentum; the steady state is never reached."""
    steady = {"step": step, "momentum": 0.0}

    def schedule_for(count: int) -> Schedule:
        return Schedule({"step": np.full(count, step), "momentum": momentum(count)}, steady)

    return Scheduled(name, family, algorithm, schedule_for)


def _delay(extrapolation: np.ndarray) -> np.ndarray:
    """Return the momentum of each step from the extrapolation after the step before it; the first step has none."""
    return np.concatenate([[0.0], extrapolation])[: len(extrapolation)]


def _require_convexity(family: Differentiable, algorithm: Algorithm, otherwise: str) -> tuple[float, float]:
    """Return L and μ; refuse a family with μ = 0."""
    algorithm.check_family(family)
    if family.strong_convexity <= 0:
        raise ValueError(f"this method needs strong convexity, but the family has μ = 0; use {otherwise} instead")
    return family.lipschitz, family.strong_convexity
