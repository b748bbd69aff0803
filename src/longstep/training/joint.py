"""The joint pass: all steps and the steady state once more, together."""

from dataclasses import replace
from time import perf_counter

import numpy as np

from .learner import Learner, Report, make_objective
from .settings import Learned
from .unknowns import Part, Unknowns


def learn_jointly(learner: Learner, blocks: list[Learned], steady: Learned, report: Report) -> Learned:
    """Learn all steps and the steady state at once, from what the blocks found, by the loss at every block's end."""
    s = learner.settings
    begin = perf_counter()
    H = sum(map(len, blocks))
    unknowns, slots, used = find_unknowns(learner, blocks, steady)
    ends = tuple(int(k) for k in np.cumsum([len(block) for block in blocks]))
    program = learner.compile(replace(s.loss, every=ends, stress=0.0), H + s.block)
    objective = make_objective(program, unknowns, slots, used, program.stage(learner.start(), None))
    x = unknowns.start(unknowns.base)
    found = learner.minimise(objective, x, unknowns.reach(x), s.iterations, report)
    theta, _ = unknowns.theta(found.x)
    theta = {name: (value[slots] if name in learner.factored else value)[: H + 1] for name, value in theta.items()}
    return Learned("joint", theta, found.value, found.start, found.evaluations, perf_counter() - begin)


def find_unknowns(learner: Learner, blocks: list[Learned], steady: Learned) -> tuple[Unknowns, np.ndarray, int]:
    """Return the unknowns of all steps and a steady block behind them, with the steps' slots and how many are used."""
    s = learner.settings
    H = sum(map(len, blocks))
    count = H + s.block
    steps = {name: np.concatenate([b.theta[name] for b in blocks]) for name in learner.names}
    tail = {name: np.full(s.block, steady.theta[name][0]) for name in learner.names}
    # Slots: one for every factorization of the steps, then the steady state's; behind them nothing is used.
    groups = np.arange(H) if s.factorizations is None else np.unique(s.groups(H), return_inverse=True)[1]
    last = int(groups[-1]) + 1
    slots = np.append(groups, np.full(s.block, last))
    places = np.arange(count)
    base = {name: np.append(steps[name], tail[name]) for name in learner.names}
    for name in learner.factored:
        firsts = [int(np.flatnonzero(groups == g)[0]) for g in range(last)]
        base[name] = np.append(steps[name][firsts], np.full(count - last, tail[name][0]))
    parts: list[Part] = []
    for h in (h for h in learner.hyperparameters if h.name in learner.learned):
        own = last if h.factored else H
        parts.append(Part(h.name, np.where(places < own, places, -1), h.varying))
        parts.append(Part(h.name, np.where(places >= own, 0, -1), h.steady))
    return Unknowns(parts, base), slots, last + 1
