"""One block of steps: learned from where the last one left each instance, the best of several starts."""

from time import perf_counter

import numpy as np

from ..algorithms.base import State
from .learner import Learner, ReportLoss, make_objective
from .optimize import Minimum, Objective
from .settings import LearnedPart, Values
from .unknowns import Part, Unknowns


def learn_block(
    learner: Learner, length: int, states: State, constant: LearnedPart, blocks: list[LearnedPart], report: ReportLoss
) -> LearnedPart:
    """Learn the next steps from the states after the blocks so far."""
    s = learner.settings
    begin = perf_counter()
    first = sum(map(len, blocks))
    previous = blocks[-1].theta if blocks else None
    unknowns, slots, used = find_unknowns(learner, first, length, constant, previous)
    program = learner.program(length)
    stress = learner.stress(states)
    objective = make_objective(program, unknowns, slots, used, program.stage(states, stress))
    rng = np.random.default_rng([s.seed, first, *b"block"])
    starts = draw_starts(learner, unknowns, length, previous, rng)
    found = learn_from(learner, objective, starts, unknowns.reach(unknowns.start(unknowns.base)), report)
    theta, _ = unknowns.theta(found.x)
    theta = {name: value[slots] if name in learner.factored else value for name, value in theta.items()}
    return LearnedPart("block", theta, found.value, found.start, found.evaluations, perf_counter() - begin)


def find_unknowns(
    learner: Learner, first: int, length: int, constant: LearnedPart, previous: Values | None
) -> tuple[Unknowns, np.ndarray, int]:
    """Return the unknowns of a block that begins at step `first`, with the slots of its steps and how many are used."""
    s = learner.settings
    base = {name: np.full(length, constant.theta[name][0]) for name in learner.names}
    slots = np.arange(length)
    used = length
    frozen = 0
    if s.factorizations is not None:
        groups = s.groups(first + length)
        distinct, slots = np.unique(groups[first:], return_inverse=True)
        used = len(distinct)
        # A group that began in an earlier block is learned already.
        frozen = int(first > 0 and groups[first - 1] == groups[first])
    by_slot = np.full(length, -1)
    by_slot[frozen:used] = np.arange(used - frozen)
    if frozen and previous is not None:
        for name in learner.factored:
            base[name][0] = previous[name][-1]
    parts = learner.parts(lambda h: Part(h.name, by_slot if h.factored else np.arange(length), h.varying))
    return Unknowns(parts, base), slots, used


def draw_starts(
    learner: Learner, unknowns: Unknowns, length: int, previous: Values | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return where the optimiser starts: at the constant, at the block before, and others at random."""
    recipe = learner.recipe
    count = learner.settings.starts
    centre = unknowns.start(unknowns.base)
    starts = [centre]
    if previous is not None and count > 1:
        starts.append(unknowns.start({name: np.resize(previous[name], length) for name in learner.names}))
    while len(starts) < count:
        starts.append(centre + recipe.scattered * rng.normal(size=unknowns.size))
    return starts


def learn_from(
    learner: Learner, objective: Objective, starts: list[np.ndarray], bounds: tuple, report: ReportLoss
) -> Minimum:
    """Return the minimum found from the start that short trials favour, with the evaluations of all."""
    iterations = learner.settings.iterations
    if len(starts) == 1:
        return learner.minimise(objective, starts[0], bounds, iterations, report)
    tried = max(int(iterations * learner.recipe.trial), 1)
    found = [learner.minimise(objective, x, bounds, tried, report) for x in starts]
    begun = min(found, key=lambda m: m.value).x
    best = learner.minimise(objective, begun, bounds, max(iterations - tried, 1), report)
    evaluations = sum(m.evaluations for m in found) + best.evaluations
    return Minimum(best.x, best.value, found[0].start, evaluations)
