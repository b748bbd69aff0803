"""The steady state: learned over a block from where the steps ended, and kept where it lasts."""

from time import perf_counter

import numpy as np

from ..algorithms.base import State
from .constant import measure_constant
from .learner import Learner, ReportLoss, make_objective
from .program import take_columns
from .settings import LearnedPart
from .unknowns import Part, Unknowns


def learn_steady(learner: Learner, states: State, constant: LearnedPart, report: ReportLoss) -> LearnedPart:
    """Learn one θ for all steps from these states on; return it, the constant, or one of these with scaled penalties,
    whichever lasts."""
    begin = perf_counter()
    count = learner.settings.block
    base = {name: np.full(count, constant.theta[name][0]) for name in learner.names}
    unknowns = Unknowns(learner.parts(lambda h: Part(h.name, np.zeros(count, int), h.steady)), base)
    program = learner.usual
    x = unknowns.start(base)
    staged = program.stage(states, learner.stress(states))
    objective = make_objective(program, unknowns, np.zeros(count, int), 1, staged)
    found = learner.minimise(objective, x, unknowns.reach(x), learner.settings.iterations, report)
    learned = {name: float(value[0]) for name, value in unknowns.theta(found.x)[0].items()}
    held = {name: float(constant.theta[name][0]) for name in learner.names}
    theta = choose_lasting(learner, states, list_neighbours(learner, [learned, held]))
    values = {name: np.array([value]) for name, value in theta.items()}
    return LearnedPart("steady", values, found.value, found.start, found.evaluations, perf_counter() - begin)


def list_neighbours(learner: Learner, candidates: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return the candidates, then each with all penalties scaled, the knob of the ADMM packages."""
    scaled = [name for name in learner.learned if name in learner.factored]
    found = list(candidates)
    if scaled:
        for scale in learner.recipe.scales:
            found += [theta | {name: scale * theta[name] for name in scaled} for theta in candidates]
    return found


def choose_lasting(learner: Learner, states: State, candidates: list[dict[str, float]]) -> dict[str, float]:
    """Return the candidate with the lowest errors after many blocks from these states on: one block is too short to see
    a rate. Where several are as good as is asked for by then, that which is best on the way."""
    few = learner.choose_few()
    program = learner.usual.select_instances(few)
    begun = take_columns(states, few)
    blocks = learner.recipe.lasting
    levels = [measure_constant(program, begun, blocks, values, learner.depth()) for values in candidates]
    best = min(range(len(candidates)), key=lambda k: (levels[k][-1], np.mean(levels[k])))
    return candidates[best]
