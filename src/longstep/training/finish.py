"""When the finish is first tried: after the steps with which a solve costs least."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..engine.finish import ACCURACY
from ..engine.finisher import finish_cost, finishes_by_sets
from ..engine.separable import make_finish
from ..engine.solution import Solution
from ..export_c import CompiledSolver
from ..solver import Solver
from .recipe import DEFAULT, Recipe
from .record import Training


def first_try(solver: "Solver | CompiledSolver", parameters: Any) -> Solution:
    """What a solver has when its finish was tried for the first time."""
    # As many at a time as in training: to compile another shape takes longer than to run.
    options: dict[str, Any] = {"chunk": DEFAULT.finish_instances} if isinstance(solver, Solver) else {}
    limits = {"eps_abs": ACCURACY, "eps_rel": ACCURACY, "max_iter": solver.finish or 0}
    return solver.solve_batch(parameters, **limits, **options)


def _best_proximal(
    solver: Solver, marks: list[int], attempt: Callable[[int], tuple[float, float]], recipe: Recipe
) -> float:
    """The proximal term with which fewest instances stay inexact, after few steps, from where a bad one shows, and
    after many; of those the first, unless another costs clearly less."""
    tried: dict[float, tuple[float, float]] = {}
    for proximal in recipe.finish_proximal:
        solver.proximal = proximal
        inexact, cost = zip(*(attempt(steps) for steps in {marks[0], marks[-1]}), strict=True)
        tried[proximal] = sum(inexact), sum(cost)
    least = min(inexact for inexact, _ in tried.values())
    good = {proximal: cost for proximal, (inexact, cost) in tried.items() if inexact == least}
    first = next(iter(good))
    best = min(good, key=lambda proximal: good[proximal])
    return best if good[best] < recipe.finish_gain * good[first] else first


def learn_finish(family: Any, training: Training, parameters: Any, recipe: Recipe) -> dict[str, Any]:
    """What a training has on record of its finish: `finish`, the number of steps that costs least on instances, their
    mean and their slow ones alike, and `proximal`, the term with which most become exact. Nothing where there is no
    finish or it is not by active sets."""
    if not finishes_by_sets(family):
        return {}
    solver = Solver(family, training, finish=0)
    count = family.count(parameters)
    some = family.select(parameters, np.linspace(0, count - 1, min(count, recipe.finish_instances)).astype(int))

    def attempt(steps: int) -> tuple[float, float]:
        """The share that stays inexact, and what it costs."""
        solver.finish = steps
        found = first_try(solver, some)
        each = steps + finish_cost(family, found)
        return 1 - float(np.mean(found.exact)), float(np.mean(each) + np.quantile(each, recipe.finish_quantile))

    marks = sorted({min(mark, len(training.schedule)) for mark in recipe.finish_marks}, reverse=True)
    record: dict[str, Any] = {}
    if make_finish(family).proximal:
        record["proximal"] = solver.proximal = _best_proximal(solver, marks, attempt, recipe)
    costs: dict[int, float] = {}
    for steps in marks:
        inexact, cost = attempt(steps)
        if not inexact <= 1 - recipe.finish_share:
            continue
        costs[steps] = cost
        # Fewer steps leave more changes: once these cost more, they will.
        if cost > 2 * min(costs.values()):
            break
    return record | ({"finish": min(costs, key=lambda steps: costs[steps])} if costs else {})
