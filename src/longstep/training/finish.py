"""When the finish is first tried: after the steps with which a solve costs least."""

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..engine import batching
from ..engine.finish import ACCURACY, PROXIMAL
from ..engine.finisher import Finisher, finishes_by_sets
from ..engine.separable import make_finish
from ..engine.solution import Solution
from ..engine.stopping import Limits
from ..engine.walk import Rehearsal
from ..export_c import CompiledSolver
from ..families.base import Family
from ..families.point import Point
from ..families.reading import Parameters
from ..solver import Solver
from .recipe import DEFAULT, Recipe
from .record import Training


def try_first(solver: "Solver | CompiledSolver", parameters: Any) -> Solution:
    """Return what a solver has when its finish was tried for the first time."""
    # As many at a time as in training: to compile another shape takes longer than to run.
    options: dict[str, Any] = {"chunk": DEFAULT.finish_instances} if isinstance(solver, Solver) else {}
    limits = {"eps_abs": ACCURACY, "eps_rel": ACCURACY, "max_iter": solver.finish or 0}
    return solver.solve_batch(parameters, **limits, **options)


class Trials:
    """Tries of the finish on training instances after numbers of steps: how many stay inexact, and what solves cost
    that end with it."""

    def __init__(
        self, family: Family, make: Callable[[float], Finisher], rehearsal: Rehearsal, count: int, recipe: Recipe
    ):
        self.family = family
        self.recipe = recipe
        self.rehearsal = rehearsal
        self.count = count
        self.is_singular = make_finish(family).proximal
        self.proximal = PROXIMAL
        self._costs: dict[int, float] = {}
        self._make = make
        self._finisher = make(PROXIMAL)

    @staticmethod
    def of(family: Family, working: Family, parameters: Parameters, recipe: Recipe) -> "Trials":
        """Begin with no points yet; `add` takes them."""
        count = min(family.count(parameters), recipe.finish_instances)
        some = family.select(parameters, spread_out(family.count(parameters), count, _width(count)))
        rehearsal = Rehearsal(working.encode(some), {}, Limits.of(ACCURACY))
        return Trials(family, lambda proximal: Finisher(working, proximal), rehearsal, count, recipe)

    def add(self, steps: int, point: Point) -> None:
        """Take the points (columns) of all instances after `steps` steps."""
        columns = spread_out(point.x.shape[-1], self.count, _width(self.count))
        self.rehearsal.points[steps] = point.map(lambda a: np.asarray(a)[..., columns])

    def compile(self) -> None:
        """Compile the finish, by a try of which nothing comes."""
        point = next(iter(self.rehearsal.points.values()))
        self._finisher.compile(self.rehearsal.encoded, point, self.rehearsal.limits)

    def is_falling(self) -> bool:
        """Return whether the last points that were taken made solves cheaper, or none were yet good enough to tell."""
        points = self.rehearsal.points
        if not self._costs and self.is_singular:
            self.use(find_proximal(self, {min(points), max(points)}))
        for steps in points.keys() - self._costs.keys():
            self._costs[steps] = self.judge(steps, min(self._costs.values(), default=np.inf))
        last = self._costs[max(points)]
        before = min(self._costs[steps] for steps in points if steps != max(points))
        return not np.isfinite(before) or last < self.recipe.lengthening * before

    def use(self, proximal: float) -> None:
        """Try with this proximal term from now on."""
        if proximal != self.proximal:
            self.proximal = proximal
            self._finisher = self._make(proximal)

    def measure(self, steps: int, count: int) -> tuple[float, float]:
        """Return the share of `count` instances that stays inexact after these steps, and what the finish costs."""
        places = spread_out(self.count, min(count, self.count))
        found = self.rehearsal.finish(self._finisher, steps, places)
        each = steps + found.cost(self.family, self.is_singular)[places]
        inexact = 1 - float(np.mean(found.exact[places]))
        return inexact, float(np.mean(each) + np.quantile(each, self.recipe.finish_quantile))

    def judge(self, steps: int, least: float) -> float:
        """Return what solves cost that end after these steps, ∞ where too many instances stay inexact. Where it is far
        above `least`, a few of them tell enough."""
        recipe = self.recipe
        inexact, cost = self.measure(steps, recipe.finish_trial)
        if inexact > 2 * (1 - recipe.finish_share):
            return np.inf
        if cost <= recipe.finish_likely * least:
            inexact, cost = self.measure(steps, recipe.finish_instances)
        return cost if inexact <= 1 - recipe.finish_share else np.inf


def spread_out(count: int, most: int, width: int | None = None) -> np.ndarray:
    """Return the numbers of `most` of `count` instances, evenly chosen, the last one again and again up to a width."""
    chosen = np.linspace(0, count - 1, most).astype(int)
    return chosen[np.minimum(np.arange(width or most), most - 1)]


def _width(count: int) -> int:
    """Return how many columns a batch of `count` instances has."""
    return batching.divide(count, count)[0][1]


def find_proximal(trials: Trials, places: Collection[int]) -> float:
    """Return the proximal term with which fewest instances stay inexact after these steps: after few, from where a bad
    one shows, and after many. Of those the first, unless another costs clearly less."""
    recipe = trials.recipe

    @functools.cache
    def measure(proximal: float, count: int) -> tuple[float, float]:
        trials.use(proximal)
        inexact, cost = zip(*(trials.measure(steps, count) for steps in places), strict=True)
        return sum(inexact), sum(cost)

    tried = {proximal: measure(proximal, recipe.finish_trial) for proximal in recipe.finish_proximal}
    likely = _choose_cheapest(tried, recipe.finish_likely)
    usual = recipe.finish_proximal[0]
    if _choose_proximal(likely, recipe) == usual and measure(usual, recipe.finish_few)[0] == 0:
        return usual
    if len(likely) > 1:
        # A few do not tell which of them has the shorter tail.
        likely = _choose_cheapest({proximal: measure(proximal, recipe.finish_few) for proximal in likely}, np.inf)
    return _choose_proximal(likely, recipe)


def _choose_proximal(costs: dict[float, float], recipe: Recipe) -> float:
    """Return the first of these terms, or that which costs least where it costs clearly less."""
    first = next(iter(costs))
    best = min(costs, key=lambda proximal: costs[proximal])
    if costs[best] < recipe.finish_gain * costs[first]:
        return best
    return first


def _choose_cheapest(tried: dict[float, tuple[float, float]], within: float) -> dict[float, float]:
    """Return what those cost of which fewest instances stay inexact, and at most `within` times the least."""
    fewest = min(inexact for inexact, _ in tried.values())
    good = {proximal: cost for proximal, (inexact, cost) in tried.items() if inexact == fewest}
    least = min(good.values())
    return {proximal: cost for proximal, cost in good.items() if cost <= within * least}


def learn_finish(
    family: Family, training: Training, parameters: Parameters, recipe: Recipe, proximal: float | None = None
) -> dict[str, Any]:
    """Return what a training has on record of its finish: `finish`, the number of steps that costs least on instances,
    their mean and their slow ones alike, and `proximal`, the term with which most become exact, unless it is known.
    Nothing where there is no finish or it is not by active sets."""
    if not finishes_by_sets(family):
        return {}
    marks = sorted(set(recipe.finish_marks), reverse=True)
    solver = Solver(family, training, finish=0)
    count = min(family.count(parameters), recipe.finish_instances)
    some = family.select(parameters, spread_out(family.count(parameters), count))
    rehearsal = solver.rehearse(some, marks, ACCURACY)
    trials = Trials(family, solver.make_finisher, rehearsal, count, recipe)
    record: dict[str, Any] = {}
    if trials.is_singular:
        record["proximal"] = find_proximal(trials, {marks[0], marks[-1]}) if proximal is None else proximal
        trials.use(record["proximal"])
    likely = _list_likely(trials, marks)
    costs: dict[int, float] = {}
    for steps in likely:
        inexact, cost = trials.measure(steps, recipe.finish_instances)
        if inexact <= 1 - recipe.finish_share:
            costs[steps] = cost
        if len(costs) == recipe.finish_finalists:
            break
    if costs:
        record["finish"] = min(costs, key=lambda steps: costs[steps])
    return record


def _list_likely(trials: Trials, marks: Sequence[int]) -> list[int]:
    """Return after which of these numbers of steps, the largest first, the finish may pay: on a few instances, the
    cheapest first."""
    recipe = trials.recipe
    costs: dict[int, float] = {}
    for steps in marks:
        inexact, cost = trials.measure(steps, recipe.finish_trial)
        if inexact > 2 * (1 - recipe.finish_share):
            continue
        costs[steps] = cost
        # Fewer steps leave more changes: once these cost more, they will. Where steps are next to nothing beside the
        # finish, fewer of them save nothing.
        least = min(costs.values())
        if cost > recipe.finish_likely * least or steps < (1 - recipe.lengthening) * least:
            break
    return sorted(costs, key=lambda steps: costs[steps])
