"""When the finish is first tried: after the steps with which a solve costs least."""

from typing import Any

import numpy as np

from ..engine.finish import ACCURACY
from ..engine.finisher import finishes_by_sets
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


class _Attempts:
    """Tries of the finish on training instances, each with its share that stays inexact and what it costs."""

    def __init__(self, family: Any, training: Training, parameters: Any, marks: list[int], recipe: Recipe):
        self.family = family
        self.recipe = recipe
        self.solver = Solver(family, training, finish=0)
        count = family.count(parameters)
        self.places = _spread_out(count, recipe.finish_instances)
        self.rehearsal = self.solver.rehearse(family.select(parameters, self.places), marks, ACCURACY)
        self.finisher = self.solver.make_finisher(self.solver.proximal)
        self.is_singular = make_finish(family).proximal

    def use(self, proximal: float) -> None:
        """Try with this term from now on."""
        self.finisher = self.solver.make_finisher(proximal)

    def measure(self, steps: int, count: int) -> tuple[float, float]:
        """Return the share of so many instances that stays inexact after these steps, and what the finish costs."""
        places = _spread_out(len(self.places), count)
        found = self.rehearsal.finish(self.finisher, steps, places)
        each = steps + found.cost(self.family, self.is_singular)[places]
        inexact = 1 - float(np.mean(found.exact[places]))
        return inexact, float(np.mean(each) + np.quantile(each, self.recipe.finish_quantile))


def _spread_out(count: int, most: int) -> np.ndarray:
    """Return the numbers of so many of `count` instances, evenly chosen."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def _best_proximal(attempts: _Attempts, marks: list[int], recipe: Recipe) -> float:
    """The proximal term with which fewest instances stay inexact, after few steps, from where a bad one shows, and
    after many; of those the first, unless another costs clearly less."""
    places = {marks[0], marks[-1]}

    def measure(proximal: float, count: int) -> tuple[float, float]:
        attempts.use(proximal)
        inexact, cost = zip(*(attempts.measure(steps, count) for steps in places), strict=True)
        return sum(inexact), sum(cost)

    tried = {proximal: measure(proximal, recipe.finish_trial) for proximal in recipe.finish_proximal}
    likely = _cheapest(tried, recipe.finish_likely)
    if len(likely) > 1:
        # A few do not tell which of them has the shorter tail.
        likely = _cheapest({proximal: measure(proximal, recipe.finish_few) for proximal in likely}, np.inf)
    first = next(iter(likely))
    best = min(likely, key=lambda proximal: likely[proximal])
    return best if likely[best] < recipe.finish_gain * likely[first] else first


def _cheapest(tried: dict[float, tuple[float, float]], within: float) -> dict[float, float]:
    """Return what those cost of which fewest instances stay inexact, and at most so many times the least."""
    fewest = min(inexact for inexact, _ in tried.values())
    good = {proximal: cost for proximal, (inexact, cost) in tried.items() if inexact == fewest}
    least = min(good.values())
    return {proximal: cost for proximal, cost in good.items() if cost <= within * least}


def learn_finish(family: Any, training: Training, parameters: Any, recipe: Recipe) -> dict[str, Any]:
    """What a training has on record of its finish: `finish`, the number of steps that costs least on instances, their
    mean and their slow ones alike, and `proximal`, the term with which most become exact. Nothing where there is no
    finish or it is not by active sets."""
    if not finishes_by_sets(family):
        return {}
    marks = sorted({min(mark, len(training.schedule)) for mark in recipe.finish_marks}, reverse=True)
    attempts = _Attempts(family, training, parameters, marks, recipe)
    record: dict[str, Any] = {}
    if attempts.is_singular:
        record["proximal"] = _best_proximal(attempts, marks, recipe)
        attempts.use(record["proximal"])
    costs: dict[int, float] = {}
    for steps in marks:
        # A few tell whether it is worth trying all.
        inexact, cost = attempts.measure(steps, recipe.finish_trial)
        hopeless = inexact > 2 * (1 - recipe.finish_share) or (
            costs and cost > recipe.finish_likely * min(costs.values())
        )
        if not hopeless:
            inexact, cost = attempts.measure(steps, recipe.finish_instances)
        if not inexact <= 1 - recipe.finish_share:
            continue
        costs[steps] = cost
        # Fewer steps leave more changes: once these cost more, they will.
        if cost > recipe.finish_likely * min(costs.values()):
            break
    return record | ({"finish": min(costs, key=lambda steps: costs[steps])} if costs else {})
