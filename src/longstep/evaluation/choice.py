"""What is kept: of several solvers the one that costs a user least, and when its finish is first tried."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import PyTree

from ..solver import Solver
from .cost import MOST_STEPS, SOON, Cost, limit_steps, list_tolerances, measure_level, solver_cost

# For these it is known when the finish is first tried: solve's own among them.
TRIED = (1e-3, 1e-4, 1e-6)
# Solvers look at residuals every so many steps.
_CHECKED = 5


def choose_solver(candidates: Sequence[Solver], parameters: PyTree) -> int:
    """Return the number of the candidate to keep.

    None is kept that leaves an instance unsolved which another candidate solves; of the others the one with the least
    mean level, and of equals the first.
    """
    if len(candidates) == 1:
        return 0
    family = candidates[0].family
    tolerances = list_tolerances(family)
    most = {eps: limit_steps(family) for eps in tolerances}
    costs: dict[int, list[Cost]] = {}
    for number, solver in enumerate(candidates):
        found: list[Cost] = []
        for eps in tolerances:
            found.append(solver_cost("", solver, parameters, eps, most=most[eps]))
            if most[eps] < limit_steps(family) and found[-1].unsolved:
                # Another has solved all of them in half the time.
                break
        else:
            costs[number] = found
            most = {cost.eps: _wait_at_most(cost, most[cost.eps]) for cost in found}
    solved = [np.logical_or.reduce([cost.done for cost in column]) for column in zip(*costs.values(), strict=True)]
    good = [i for i, found in costs.items() if all((c.done >= s).all() for c, s in zip(found, solved, strict=True))]
    # Where each fails somewhere, the one that leaves the fewest.
    least = min(sum(cost.unsolved for cost in found) for found in costs.values())
    good = good or [i for i, found in costs.items() if sum(cost.unsolved for cost in found) == least]
    return min(good, key=lambda i: float(np.mean([cost.level for cost in costs[i]])))


def foresee_try(steps: np.ndarray, extra: np.ndarray, first: int, last: int) -> int:
    """Return after how many steps, up to `last`, the finish is best first tried, where instances take `steps`
    without it and the finish costs `extra` steps: at once, after `first`, or when it is looked at who is done."""
    marks = [first, *range(_CHECKED * (first // _CHECKED + 1), last + 1, _CHECKED)]
    return min(marks, key=lambda mark: measure_level(np.where(steps <= mark, steps, mark + extra)))


class Tries(NamedTuple):
    """When the finish is first tried: after `tight` steps, and to tolerances of `eps` and looser after `loose`."""

    tight: int
    loose: int
    eps: float


def choose_tries(marks: Sequence[int], measure: Callable[[int, float, int], Cost], limit: int = MOST_STEPS) -> Tries:
    """Return after which of these numbers of steps the finish is first tried, so that the solves to all tolerances that
    are looked at cost least together.

    `measure` returns what it costs to try after `mark` steps to a tolerance, with at most `most` steps, of which the
    first mark has `limit`. Between loose tolerances and tight ones lies the middle of two that were looked at; where
    all are alike, that is ∞.
    """
    costs: list[dict[int, Cost]] = []
    for eps in TRIED:
        found: dict[int, Cost] = {}
        most = limit
        for steps in marks:
            found[steps] = measure(steps, eps, most)
            most = _wait_at_most(found[steps], most)
        costs.append(found)

    def judge(plan: tuple[int, int, int]) -> tuple[int, float]:
        """Return the instances that are left and the level of what a plan costs."""
        tight, loose, count = plan
        used = [found[loose] if k < count else found[tight] for k, found in enumerate(costs)]
        return sum(cost.unsolved for cost in used), sum(cost.level for cost in used)

    # Of equals the first: one number for all tolerances before two, and few steps before many.
    plans = [(steps, steps, 0) for steps in marks]
    pairs = [(tight, loose) for tight in marks for loose in marks if tight != loose]
    plans += [(tight, loose, count) for count in range(1, len(TRIED)) for tight, loose in pairs]
    tight, loose, count = min(plans, key=judge)
    if count == 0:
        return Tries(tight, loose, np.inf)
    return Tries(tight, loose, float(np.sqrt(TRIED[count - 1] * TRIED[count])))


def _wait_at_most(cost: Cost, most: int) -> int:
    """Return for how many steps another candidate is worth waiting: twice as many as this one took."""
    if not cost.done.all():
        return most
    return min(most, 2 * max(int(cost.steps.max()), SOON))
