"""Progressive training: block after block from where the last one left each instance, the steady state at the end."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import jax
import numpy as np

from ..families.point import Point
from .block import Block, Part, Unknowns, Values, single, take_columns
from .constant import best_constant, constant_errors
from .losses import TAILED, Errors, Loss, Task
from .optimize import Minimum, minimise
from .walk import NEAR, Walk

Report = Callable[[float], None]
# The search for the best constant looks at so many instances at most: it needs the mean, not the tail.
_SEARCHED = 25
# Steps over which constants are compared, at least.
_SETTLED = 60
# How far apart, in unconstrained units, the steps of a block are at its start.
_ASUNDER = 0.05
# A trial that tells which start is worth going on from takes this part of the iterations.
_TRIAL = 1 / 3
# From so many unknowns on, trials of methods that solve linear systems are made in single precision: less than half the
# time, but programs of their own.
_DEAR = 300
# Blocks over which steady states are compared.
_LASTING = 30


@dataclass(frozen=True)
class Settings:
    """How a schedule is learned; `train` says what each of them means.

    Blocks have `lengths`; constants and the steady state are looked at over steps `block` at a time.
    """

    horizon: int
    lengths: tuple[int, ...]
    block: int
    loss: Loss
    optimizer: str
    iterations: int
    starts: int
    candidates: int
    learn: tuple[str, ...]
    fixed: Mapping[str, float] = field(default_factory=dict)
    factorizations: int | None = None
    joint: bool | None = None
    seed: int = 0

    def groups(self, count: int) -> np.ndarray:
        """Which factorization each of the first steps uses, where their number is limited; the last is the steady's."""
        assert self.factorizations is not None
        return np.arange(count) * (self.factorizations - 1) // max(self.horizon, 1)


@dataclass(frozen=True)
class Learned:
    """One finished part of a training: `constant`, `block`, `steady`, or `joint`, all steps once more.

    `theta` holds what was learned, by name: one value for every step (for `constant` and `steady` one value; for
    `joint` the steady state comes last).
    """

    kind: str
    theta: Values
    loss: float
    loss_before: float
    evaluations: int
    seconds: float


class Progressive:
    """Learns a schedule for a task, one `Learned` part after the other.

    Parts that are given (from a checkpoint) are not learned again; the states after them are computed by the same
    programs, so that a resumed training goes on exactly as it would have.
    """

    def __init__(
        self, task: Task, start: Point | None, optimum: Point | None, settings: Settings, memory_limit: float | None
    ):
        self.task, self.settings = task, settings
        self.hyperparameters = task.algorithm.hyperparameters(task.family)
        self.names = [h.name for h in self.hyperparameters]
        self._factored = {h.name for h in self.hyperparameters if h.factored}
        # With one factorization for all steps, what it depends on stays at the best constant.
        held = self._factored if settings.factorizations == 1 else set()
        self.learned = [name for name in settings.learn if name not in held]
        self._programs: dict[int, Block] = {}
        self._rough: dict[int, Block] = {}
        self._limit, self._start, self._optimum = memory_limit, start, optimum
        self.memory_pieces = 1
        self.walk: Walk | None = None

    def parts(self, given: list[Learned], report: Callable[[str, float], None]) -> Iterator[Learned]:
        """The parts in order: constant, blocks, steady, joint. Blocks end early when the errors are at their floor."""
        s, waiting = self.settings, list(given)

        def part(kind: str, text: str, learn: Callable[[Report], Learned]) -> Learned:
            if waiting:
                found = waiting.pop(0)
                assert found.kind == kind, f"the checkpoint holds {found.kind} where {kind} was expected"
                return found
            return learn(lambda loss: report(text, loss))

        constant = part("constant", "best constant", self._constant)
        yield constant
        states, blocks = self.start(), []
        floor, level = self.floor(), np.inf
        for number, length in enumerate(s.lengths):
            text = f"block {number + 1} of {len(s.lengths)}"
            given_to = (length, states, level, constant, blocks)
            blocks.append(part("block", text, lambda r, a=given_to: self._block(r, *a)))
            yield blocks[-1]
            states, errors = self.advance(blocks[-1].theta, states)
            level = float(np.quantile(errors.metric, 0.25))
            # Blocks that are learned on rounding would only add danger.
            if level <= floor:
                break
        steady = part("steady", "steady state", lambda r: self._steady(r, states, constant, blocks))
        yield steady
        self.walk = Walk(self, [constant, *blocks, steady])
        if waiting or s.joint or (s.joint is None and self.walk.behind()):
            yield part("joint", "all blocks together", lambda r: self._joint(r, blocks, steady))

    def start(self) -> Any:
        """The states at the start."""
        return self.program(self.settings.block).start(self._start)

    def advance(self, theta: Values, states: Any) -> tuple[Any, Errors]:
        """The states and errors after steps with θ given step by step."""
        length = len(theta[self.names[0]])
        slots, used = np.arange(length), length
        if all(len(set(theta[name])) == 1 for name in self._factored):
            slots, used = np.zeros(length, int), 1
        return self.program(length).forward(theta, slots, used, states)

    def program(self, count: int) -> Block:
        """The compiled steps of a block of this length."""
        if count not in self._programs:
            self._programs[count] = Block(self.task, self.settings.loss, count, self._limit)
            self.memory_pieces = max(self.memory_pieces, len(self._programs[count].pieces()))
        return self._programs[count]

    def _trials(self, count: int, level: float) -> tuple[Block, int]:
        """The steps of a block for trials, and from how many starts.

        Where steps are dear they are in single precision, until errors are at its rounding; from then on in the block's
        own, from half as many starts.
        """
        program, starts, family = self.program(count), self.settings.starts, self.task.family
        if starts == 1 or not self._factored or family.n <= _DEAR or family.dtype != np.float64:
            return program, starts
        if count not in self._rough:
            self._rough[count] = program.rough(self._limit)
        rough = self._rough[count]
        return (rough, starts) if level > rough.floor(single(self.start())) else (program, max(starts // 2, 1))

    def floor(self) -> float:
        """The mean log error at which rounding is all that is left to learn."""
        return self.program(self.settings.block).floor(self.start())

    @property
    def tail(self) -> float:
        """How much the worst instances count where constants are compared; few instances know less of them."""
        return 0.25 if self.program(self.settings.block).size < TAILED else 0.5

    def _stress(self, states: Any) -> Any:
        """Where the stress test starts: every other instance where all of them began, as if nothing had worked so far,
        the rest at the optimum of another instance or, if that is not known, at its state."""
        program = self.program(self.settings.block)
        source = states if self._optimum is None else self._optimum
        other = jax.tree.map(lambda a: np.roll(a, 1, axis=-1) if np.ndim(a) else a, source)
        other = other if self._optimum is None else program.start(other)
        odd = np.arange(program.size) % 2 == 1
        return jax.tree.map(lambda a, b: np.where(odd, a, b) if np.ndim(a) else a, self.start(), other)

    def _constant(self, report: Report) -> Learned:
        s, begin = self.settings, perf_counter()
        program = self.program(s.block)
        few = np.arange(min(program.size, _SEARCHED))
        block = program.restricted(few)
        # A constant is for good: one that is best for ten steps may be the worst for a hundred.
        blocks = max(-(-s.horizon // s.block) + 1, -(-_SETTLED // s.block))
        values, before, score = best_constant(
            block, block.start(take_columns(self._start, few)), blocks, self.hyperparameters, s.fixed,
            candidates=s.candidates, tail=self.tail, seed=s.seed, report=report,
        )  # fmt: skip
        theta = {name: np.array([value]) for name, value in values.items()}
        return Learned("constant", theta, score, before, s.candidates, perf_counter() - begin)

    def _block(
        self, report: Report, length: int, states: Any, level: float, constant: Learned, blocks: list[Learned]
    ) -> Learned:
        s, begin = self.settings, perf_counter()
        first = sum(len(b.theta[self.names[0]]) for b in blocks)
        previous = blocks[-1].theta if blocks else None
        unknowns, slots, used = self._unknowns(first, length, constant, previous)
        block, centre = self.program(length), unknowns.start(unknowns.base)
        stress = self._stress(states)
        objective = trial = self._objective(block, unknowns, slots, used, block.stage(states, stress))
        rough, count = self._trials(length, level)
        if rough is not block:
            trial = self._objective(rough, unknowns, slots, used, rough.stage(*single((states, stress))))
        # At the constant itself all steps are alike, and gradients take long to tell them apart.
        rng = np.random.default_rng([s.seed, first, *b"block"])
        starts = [centre + _ASUNDER * rng.normal(size=unknowns.size)]
        if previous is not None:
            starts.append(unknowns.start({name: np.resize(previous[name], length) for name in self.names}))
        starts = starts[:count]
        while len(starts) < count:
            starts.append(centre + rng.normal(size=unknowns.size))
        bounds = unknowns.reach(centre)
        found = self._best(objective, starts, bounds, report, trial)
        theta, _ = unknowns.theta(found.x)
        theta = {name: value[slots] if name in self._factored else value for name, value in theta.items()}
        return Learned("block", theta, found.value, found.start, found.evaluations, perf_counter() - begin)

    def _unknowns(
        self, first: int, length: int, constant: Learned, previous: Values | None
    ) -> tuple[Unknowns, np.ndarray, int]:
        """The unknowns of a block that begins at step `first`, with the slots of its steps and how many are used."""
        s = self.settings
        base = {name: np.full(length, constant.theta[name][0]) for name in self.names}
        slots, used, frozen = np.arange(length), length, 0
        if s.factorizations is not None:
            groups = s.groups(first + length)
            distinct, slots = np.unique(groups[first:], return_inverse=True)
            used = len(distinct)
            # A group that began in an earlier block is learned already.
            frozen = int(first > 0 and groups[first - 1] == groups[first])
        by_slot = np.full(length, -1)
        by_slot[frozen:used] = np.arange(used - frozen)
        if frozen and previous is not None:
            for name in self._factored:
                base[name][0] = previous[name][-1]
        parts = [
            Part(h.name, by_slot if h.factored else np.arange(length), h.varying)
            for h in self.hyperparameters
            if h.name in self.learned
        ]
        return Unknowns(parts, base), slots, used

    def _steady(self, report: Report, states: Any, constant: Learned, blocks: list[Learned]) -> Learned:
        """Learned over a block from where the steps ended; then, of that and its neighbours, what lasts."""
        s, begin = self.settings, perf_counter()
        count = s.block
        base = {name: np.full(count, constant.theta[name][0]) for name in self.names}
        parts = [Part(h.name, np.zeros(count, int), h.steady) for h in self.hyperparameters if h.name in self.learned]
        unknowns = Unknowns(parts, base)
        block, x = self.program(count), unknowns.start(base)
        staged = block.stage(states, self._stress(states))
        objective = self._objective(block, unknowns, np.zeros(count, int), 1, staged)
        found = self._best(objective, [x], unknowns.reach(x), report)
        learned = {name: value[0] for name, value in unknowns.theta(found.x)[0].items()}
        first = sum(len(b.theta[self.names[0]]) for b in blocks) // count
        theta = self._lasting(states, first, {name: float(v[0]) for name, v in constant.theta.items()}, learned)
        values = {name: np.array([value]) for name, value in theta.items()}
        return Learned("steady", values, found.value, found.start, found.evaluations, perf_counter() - begin)

    def _lasting(
        self, states: Any, first: int, constant: dict[str, float], learned: dict[str, float]
    ) -> dict[str, float]:
        """The steady state that brings errors down most in the long run: the learned one, the constant, these scaled.

        A block is too short to see the rate at which a steady state converges in the end: of those that are about as
        good after many blocks, what counts is where errors will be if they go on falling as they last did. What is
        scaled is the penalty as a whole, the knob of both ADMM packages. In the first blocks none may be behind the
        constant alone, which began `first` blocks earlier, unless all are.
        """
        program = self.program(self.settings.block)
        few = np.arange(min(program.size, _SEARCHED))
        block, floor = program.restricted(few), self.floor()
        began, ended = take_columns((self.start(), states), few)
        limits = constant_errors(block, began, first + NEAR, constant, lambda means: False, self.tail, floor)[first:]

        def behind(means: list[float]) -> bool:
            return len(means) <= NEAR and means[-1] > limits[len(means) - 1]

        scaled = [name for name in self.learned if name in self._factored]
        scales = (1.0, 0.1, 0.3, 3.0) if scaled else (1.0,)
        choices = [p | {name: p[name] * c for name in scaled} for c in scales for p in (learned, constant)]
        found: list[tuple[list[float], dict[str, float]]] = []
        for give_up in (behind, lambda means: False):
            for values in choices:
                means = constant_errors(block, ended, _LASTING, values, give_up, self.tail, floor)
                if len(means) == _LASTING:
                    found.append((means, values))
            if found:
                break
        return found[_fastest([means for means, _ in found], floor)][1]

    def _joint(self, report: Report, blocks: list[Learned], steady: Learned) -> Learned:
        """All steps and the steady state at once, from what the blocks found, by the loss at every block's end.

        It is for schedules that are behind the constant in the mean, so the mean is what counts, not the tail.
        """
        s, begin = self.settings, perf_counter()
        H = sum(len(b.theta[self.names[0]]) for b in blocks)
        count = H + s.block
        steps = {name: np.concatenate([b.theta[name] for b in blocks]) for name in self.names}
        tail = {name: np.full(s.block, steady.theta[name][0]) for name in self.names}
        # Slots: one for every factorization of the steps, then the steady state's; behind them nothing is used.
        groups = np.arange(H) if s.factorizations is None else np.unique(s.groups(H), return_inverse=True)[1]
        last = int(groups[-1]) + 1
        slots, places = np.append(groups, np.full(s.block, last)), np.arange(count)
        base = {name: np.append(steps[name], tail[name]) for name in self.names}
        for name in self._factored:
            firsts = [int(np.flatnonzero(groups == g)[0]) for g in range(last)]
            base[name] = np.append(steps[name][firsts], np.full(count - last, tail[name][0]))
        parts = []
        for h in (h for h in self.hyperparameters if h.name in self.learned):
            own = last if h.factored else H
            parts.append(Part(h.name, np.where(places < own, places, -1), h.varying))
            parts.append(Part(h.name, np.where(places >= own, 0, -1), h.steady))
        unknowns = Unknowns(parts, base)
        ends = tuple(int(k) for k in np.cumsum([len(b.theta[self.names[0]]) for b in blocks]))
        block = Block(self.task, replace(s.loss, every=ends, stress=0.0, tail=0.0), count, self._limit)
        objective = self._objective(block, unknowns, slots, last + 1, block.stage(self.start(), None))
        x = unknowns.start(base)
        found = self._best(objective, [x], unknowns.reach(x), report)
        theta, _ = unknowns.theta(found.x)
        theta = {name: (value[slots] if name in self._factored else value)[: H + 1] for name, value in theta.items()}
        return Learned("joint", theta, found.value, found.start, found.evaluations, perf_counter() - begin)

    def _objective(self, block: Block, unknowns: Unknowns, slots: np.ndarray, used: int, staged: list):
        # The best of several trials is gone on from: its last point is asked for again.
        known: dict[bytes, tuple[float, np.ndarray]] = {}

        def objective(nu: np.ndarray) -> tuple[float, np.ndarray]:
            key = nu.tobytes()
            if key not in known:
                theta, slope = unknowns.theta(nu)
                value, gradient = block.loss_and_gradient(theta, slots, used, staged)
                known[key] = value, unknowns.pull(gradient, slope)
            return known[key]

        return objective

    def _best(
        self, objective: Any, starts: list[np.ndarray], bounds: tuple, report: Report, trial: Any = None
    ) -> Minimum:
        """The best of several starts by short trials, gone on from, with the evaluations of all."""
        s, begun, tried, first, evaluations = self.settings, starts[0], 0, None, 0
        if len(starts) > 1:
            tried = max(int(s.iterations * _TRIAL), 1)
            found = [minimise(trial, np.clip(x, *bounds), bounds, s.optimizer, tried, report) for x in starts]
            begun, first = min(found, key=lambda m: m.value).x, found[0].start
            evaluations = sum(m.evaluations for m in found)
        best = minimise(objective, np.clip(begun, *bounds), bounds, s.optimizer, max(s.iterations - tried, 1), report)
        return Minimum(best.x, best.value, best.start if first is None else first, evaluations + best.evaluations)


def _fastest(courses: list[list[float]], floor: float) -> int:
    """Which course of mean log errors to go on with: one that ends within a factor of two of the lowest, in errors, and
    of these the one that will be lowest after half as many blocks more, at the rate of its last half. Where several
    will be at the floor, the one that is lowest on the way.

    >>> slow, fast = [-4.0, -6.0, -7.0, -7.5, -8.0, -8.2, -8.4, -8.6], [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0]
    >>> _fastest([slow, fast], floor=-60.0), _fastest([slow, [v + 2 for v in fast]], floor=-60.0)
    (1, 0)
    >>> _fastest([fast, slow], floor=-8.6)
    1
    """
    halves = [np.array_split(course[len(course) // 2 :], 2) for course in courses]
    ends = [float(np.mean(later)) for _, later in halves]
    ahead = [3 * end - 2 * float(np.mean(earlier)) for end, (earlier, _) in zip(ends, halves, strict=True)]
    near = [k for k, end in enumerate(ends) if end <= min(ends) + 2 * np.log(2)]
    # Courses at the floor differ by rounding alone, which must not decide.
    above = [0.0 if value < floor + 0.1 else value - floor for value in ahead]
    return min(near, key=lambda k: (above[k], np.mean(courses[k])))
