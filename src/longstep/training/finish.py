"""When the finish is first tried: after the steps with which a solve costs least."""

from typing import Any

import numpy as np

from ..engine.finish import ACCURACY
from ..engine.finisher import can_finish
from ..engine.solution import Solution
from ..export_c import CompiledSolver
from ..families.quadratic_program import QP
from ..solver import Solver
from .recipe import DEFAULT, Recipe
from .record import Training


def first_try(solver: "Solver | CompiledSolver", parameters: Any) -> Solution:
    """What a solver has when its finish was tried for the first time."""
    # As many at a time as in training: to compile another shape takes longer than to run.
    options: dict[str, Any] = {"chunk": DEFAULT.finish_instances} if isinstance(solver, Solver) else {}
    limits = {"eps_abs": ACCURACY, "eps_rel": ACCURACY, "max_iter": solver.finish or 0}
    return solver.solve_batch(parameters, **limits, **options)


def learn_finish(family: Any, training: Training, parameters: Any, recipe: Recipe) -> int | None:
    """The number of steps that costs least on instances, their mean and their slow ones alike; None without a finish
    or where it is not by active sets.

    A step costs what its products do. A change of the active set costs the multipliers of all its rows and the values
    of all inequalities, and so does every row that the set begins with.
    """
    if not isinstance(family, QP) or not can_finish(family):
        return None
    solver = Solver(family, training, finish=0)
    count = family.count(parameters)
    some = family.select(parameters, np.linspace(0, count - 1, min(count, recipe.finish_instances)).astype(int))
    rows = int(np.sum(~np.asarray(family.equality)))
    free = family.n - int(np.sum(np.asarray(family.equality)))
    costs: dict[int, float] = {}
    for steps in sorted({min(mark, len(training.schedule)) for mark in recipe.finish_marks}, reverse=True):
        solver.finish = steps
        found = first_try(solver, some)
        if not np.mean(found.exact) >= recipe.finish_share:
            continue
        active = np.count_nonzero(np.asarray(found.y), axis=1)
        change = 6 * active**2 + 2 * rows * active + 2 * rows
        each = steps * (2 * free**2 + 4 * rows * free) + (found.changes + active / 3) * change
        costs[steps] = float(np.mean(each) + np.quantile(each, recipe.finish_quantile))
        # Fewer steps leave more changes: once these cost more, they will.
        if costs[steps] > 2 * min(costs.values()):
            break
    return min(costs, key=lambda steps: costs[steps]) if costs else None
