"""The steady state: learned over a block from where the steps ended; then, of that and its neighbours, what lasts."""

from time import perf_counter
from typing import Any

import numpy as np

from .constant import constant_errors
from .learner import Learner, Report, make_objective
from .program import take_columns
from .recipe import Recipe
from .settings import Learned
from .unknowns import Part, Unknowns


def learn_steady(learner: Learner, states: Any, constant: Learned, blocks: list[Learned], report: Report) -> Learned:
    """Learn one θ for all steps from these states on, and take it or a neighbour of it that lasts."""
    begin = perf_counter()
    count = learner.settings.block
    base = {name: np.full(count, constant.theta[name][0]) for name in learner.names}
    unknowns = Unknowns(learner.parts(lambda h: Part(h.name, np.zeros(count, int), h.steady)), base)
    program = learner.usual
    x = unknowns.start(base)
    staged = program.stage(states, learner.stress(states))
    objective = make_objective(program, unknowns, np.zeros(count, int), 1, staged)
    found = learner.minimise(objective, x, unknowns.reach(x), learner.settings.iterations, report)
    learned = {name: value[0] for name, value in unknowns.theta(found.x)[0].items()}
    first = sum(map(len, blocks)) // count
    theta = choose_lasting(
        learner, states, first, {name: float(constant.theta[name][0]) for name in learner.names}, learned
    )
    values = {name: np.array([value]) for name, value in theta.items()}
    return Learned("steady", values, found.value, found.start, found.evaluations, perf_counter() - begin)


def choose_lasting(
    learner: Learner, states: Any, first: int, constant: dict[str, float], learned: dict[str, float]
) -> dict[str, float]:
    """The steady state that brings errors down most in the long run: the learned one, the constant, these scaled.

    A block is too short to see the rate at which a steady state converges in the end: of those that are about as good
    after many blocks, what counts is where errors will be if they go on falling as they last did. In the first blocks
    none may be behind the constant alone, which began `first` blocks earlier, unless all are.
    """
    recipe = learner.recipe
    few = learner.few()
    program = learner.usual.restricted(few)
    floor = learner.floor()
    began, ended = take_columns((learner.start(), states), few)
    near = recipe.near
    limits = constant_errors(program, began, first + near, constant, _never, learner.tail, floor)[first:]

    def behind(means: list[float]) -> bool:
        return len(means) <= near and means[-1] > limits[len(means) - 1]

    found: list[tuple[list[float], dict[str, float]]] = []
    for give_up in (behind, _never):
        for values in list_neighbours(learner, constant, learned):
            means = constant_errors(program, ended, recipe.lasting, values, give_up, learner.tail, floor)
            if len(means) == recipe.lasting:
                found.append((means, values))
        if found:
            break
    return found[find_fastest([means for means, _ in found], floor, recipe)][1]


def list_neighbours(learner: Learner, constant: dict[str, float], learned: dict[str, float]) -> list[dict[str, float]]:
    """The learned steady state and the constant, and both with all penalties scaled, the knob of the ADMM packages."""
    scaled = [name for name in learner.learned if name in learner.factored]
    scales = (1.0, *learner.recipe.scales) if scaled else (1.0,)
    return [p | {name: p[name] * c for name in scaled} for c in scales for p in (learned, constant)]


def find_fastest(courses: list[list[float]], floor: float, recipe: Recipe) -> int:
    """Which course of mean log errors to go on with: one that ends about as low as the lowest, and of these the one
    that will be lowest at the rate of its last half. Where several will be at the floor, the one that is lowest on the
    way.

    >>> slow, fast = [-4.0, -6.0, -7.0, -7.5, -8.0, -8.2, -8.4, -8.6], [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]
    >>> find_fastest([slow, fast], -60.0, Recipe()), find_fastest([slow, [v + 2 for v in fast]], -60.0, Recipe())
    (1, 0)
    >>> find_fastest([slow, fast], -60.0, Recipe(ahead=0.0)), find_fastest([fast, slow], -8.6, Recipe())
    (0, 1)
    """
    halves = [np.array_split(course[int(len(course) * recipe.late) :], 2) for course in courses]
    ends = [float(np.mean(later)) for _, later in halves]
    by = recipe.ahead
    ahead = [(1 + by) * end - by * float(np.mean(earlier)) for end, (earlier, _) in zip(ends, halves, strict=True)]
    near = [k for k, end in enumerate(ends) if end <= min(ends) + 2 * np.log(recipe.as_good)]
    # Courses at the floor differ by rounding alone, which must not decide.
    above = [0.0 if value < floor + recipe.at_floor else value - floor for value in ahead]
    return min(near, key=lambda k: (above[k], np.mean(courses[k])))


def _never(means: list[float]) -> bool:
    return False
