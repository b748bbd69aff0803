"""The metric: one vector of penalties for all steps, learned with constant hyperparameters before the schedule."""

import functools
import math
from time import perf_counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.base import State, Theta
from ..engine.aside import run_both
from ..engine.factorization import factorize_theta
from ..engine.jitted import Key
from ..engine.plan import Plan
from ..engine.problem import Problem
from ..schedules.hyperparameter import Hyperparameter
from .constant import judge_level
from .learner import Learner, ReportLoss
from .losses import Errors, Loss, Task, average_logs
from .optimize import Minimum
from .program import Packed, select_task, separate_vectors, take_columns
from .rows import guess_metric
from .settings import LearnedPart, Values
from .unknowns import Part, Unknowns


def learn_metric(learner: Learner, constant: LearnedPart, report: ReportLoss) -> LearnedPart:
    """Learn the metric r and constant hyperparameters with it; return the constant as it was where no metric is better
    on instances that it did not see.

    Rows that were never active in training drift to small penalties and are slow where they bind: so r is held near
    where it begins, at ones or at what the optima say, by the weight of mean((log r)²), which is chosen by
    cross-validation on the training instances.
    """
    declared = learner.declared
    assert declared is not None
    columns = learner.spread_instances(learner.recipe.metric_few)
    if learner.recipe.metric_by_half and columns.size >= 4:
        return _learn_by_half(learner, constant, declared, columns, report)
    return _learn_on_all(learner, constant, declared, columns, report)


class _Trial(NamedTuple):
    """What a weight is worth: the level on unseen halves, and the point between what both halves found."""

    weight: float
    level: float
    middle: np.ndarray
    evaluations: int


def _learn_on_all(
    learner: Learner, constant: LearnedPart, declared: Hyperparameter, columns: np.ndarray, report: ReportLoss
) -> LearnedPart:
    """Learn the metric of these instances, with the weight that halves of them favour, if they favour any."""
    begin = perf_counter()
    recipe = learner.recipe
    fit = _Fit(learner, constant, declared, columns)
    whole = np.ones(fit.size, bool)
    before = fit.level(fit.start, whole)
    fit.choose_start(before, whole)
    usual, lighter, heavier = recipe.metric_weights
    weight = usual
    first = fit.start
    evaluations = 0
    if fit.size >= 4:
        tried = [_try_halves(fit, usual, report)]
        # What generalizes may need less care, what does not needs more.
        tried.append(_try_halves(fit, lighter if tried[0].level < before else heavier, report))
        evaluations = sum(trial.evaluations for trial in tried)
        lowest = min(tried, key=lambda trial: trial.level)
        if lowest.level >= before:
            return LearnedPart("metric", dict(constant.theta), before, before, evaluations, perf_counter() - begin)
        weight = lowest.weight
        first = lowest.middle
    found = fit.minimise(weight, whole, first, recipe.metric_iterations, report)
    after = fit.level(found.x, whole)
    evaluations += found.evaluations
    return LearnedPart("metric", fit.read(found.x), after, before, evaluations, perf_counter() - begin)


def _try_halves(fit: "_Fit", weight: float, report: ReportLoss) -> _Trial:
    """Learn from each half of the instances, in their order, and judge on the other: data of one time are alike, and
    what lasts is what holds for those of another."""
    early = np.arange(fit.size) < fit.size // 2
    halves = (early, ~early)

    def learn(half: np.ndarray, report: ReportLoss) -> Minimum:
        return fit.minimise(weight, half, fit.start, fit.recipe.metric_trial, report)

    # Told is what the first half comes to.
    found = run_both(lambda: learn(early, report), lambda: learn(~early, lambda _: None))
    level = float(np.mean([fit.level(f.x, ~half) for f, half in zip(found, halves, strict=True)]))
    middle = np.mean([f.x for f in found], axis=0)
    return _Trial(weight, level, middle, sum(f.evaluations for f in found))


def _learn_by_half(
    learner: Learner, constant: LearnedPart, declared: Hyperparameter, columns: np.ndarray, report: ReportLoss
) -> LearnedPart:
    """Learn the metric of the first half of these instances; return the constant as it was where that is no worse on
    the rest."""
    begin = perf_counter()
    recipe = learner.recipe
    half = columns.size // 2
    fit = _Fit(learner, constant, declared, columns[:half])
    judge = _Fit(learner, constant, declared, columns[half:])
    seen = np.ones(fit.size, bool)
    unseen = np.ones(judge.size, bool)
    before = judge.level(judge.start, unseen)
    found = fit.minimise(recipe.metric_weights[0], seen, fit.start, recipe.metric_iterations, report)
    after = judge.level(found.x, unseen)
    if after >= before:
        return LearnedPart("metric", dict(constant.theta), before, before, found.evaluations, perf_counter() - begin)
    return LearnedPart("metric", fit.read(found.x), after, before, found.evaluations, perf_counter() - begin)


class _Fit:
    """The loss of a metric and constants on some instances, each counted or not: one compiled program for all."""

    def __init__(self, learner: Learner, constant: LearnedPart, declared: Hyperparameter, columns: np.ndarray):
        assert declared.entries is not None
        self.learner = learner
        self.declared = declared
        recipe = learner.recipe
        self.recipe = recipe
        self.size = columns.size
        count = recipe.metric_steps
        task = learner.task if columns.size == learner.usual.size else select_task(learner.task, columns)
        self.packed = Packed(task)
        self.loss = learner.settings.loss
        self.count = count
        self.forward = learner.usual.select_instances(columns)
        self.depth = learner.depth()
        self.every = recipe.metric_every
        self.states = take_columns(learner.start(), columns)
        base = {name: constant.theta[name][:1] for name in learner.names}
        base[declared.name] = np.full(declared.entries.size, declared.default)
        parts = learner.parts(lambda h: Part(h.name, np.zeros(1, int), h.steady))
        self.unknowns = Unknowns([*parts, Part(declared.name, declared.entries, declared.steady)], base)
        self.start = self.unknowns.start(base)
        self.entries = int(declared.entries.max(initial=-1)) + 1
        # Logarithms of the metric that it is held near.
        self.centre = self.start[self.start.size - self.entries :]

    def choose_start(self, before: float, counted: np.ndarray) -> None:
        """Begin, and stay near, where rows are in like units at the optima of training, if errors fall lower there."""
        learner = self.learner
        if learner.optimum is None or not self.unknowns.parts[:-1]:
            return
        split = learner.task.algorithm.find_split(learner.usual.start(learner.optimum))
        if split is None:
            return
        ratios = guess_metric(*split, self.recipe)
        if ratios is None:
            return
        penalties = [h.name for h in learner.hyperparameters if h.role == "penalty" and h.name in learner.learned]
        lowest = before
        for power in self.recipe.metric_powers:
            metric = ratios**power
            usual = float(np.exp(np.mean(np.log(metric))))
            for multiple in self.recipe.metric_multiples:
                base = dict(self.unknowns.base)
                base |= {name: np.full(1, multiple * usual) for name in penalties}
                base[self.declared.name] = metric / usual
                start = self.unknowns.start(base)
                level = self.level(start, counted)
                if level < lowest:
                    lowest = level
                    self.start = start
                    self.centre = start[start.size - self.entries :]

    def minimise(
        self, weight: float, counted: np.ndarray, x: np.ndarray, iterations: int, report: ReportLoss
    ) -> Minimum:
        """Return the metric and constants with the least loss on the counted instances."""

        def objective(nu: np.ndarray) -> tuple[float, np.ndarray]:
            theta, slope = self.unknowns.theta(nu)
            (value, _), gradient = self._evaluate(theta, counted)
            pulled = self.unknowns.pull({n: np.asarray(g, np.float64) for n, g in gradient.items()}, slope)
            logs = nu[nu.size - self.entries :] - self.centre
            pulled[nu.size - self.entries :] += 2 * weight * logs / self.entries
            return float(value) + weight * float(np.mean(logs**2)), pulled

        return self.learner.minimise(objective, x, self.unknowns.reach(x), iterations, report)

    def read(self, nu: np.ndarray) -> Values:
        """Return the constants and the metric at a point."""
        theta, _ = self.unknowns.theta(nu)
        return {name: theta[name] for name in (*self.learner.names, self.declared.name)}

    def level(self, nu: np.ndarray, counted: np.ndarray) -> float:
        """Return the mean level of the counted instances' log errors at the checkpoints and long after, where a metric
        that neglects some rows is worse."""
        found = self.read(nu)
        values = {name: found[name][0] for name in self.learner.names} | {self.declared.name: found[self.declared.name]}
        blocks = math.ceil(self.recipe.metric_lasting / self.forward.count)
        states = self.states
        levels: list[float] = []
        advance = self.forward.hold_constant(values)
        while len(levels) < blocks:
            states, errors = advance(states)
            logs = np.asarray(errors.metric, np.float64)[counted]
            levels.append(judge_level(logs, self.recipe, self.depth))
            if levels[-1] == self.depth:
                # What is that good stays so.
                levels += [self.depth] * (blocks - len(levels))
        level = float(np.mean(levels))
        return level if np.isfinite(level) else self.recipe.overflow

    def _evaluate(self, theta: Values, counted: np.ndarray) -> tuple[tuple[Float[Array, ""], Errors], Theta]:
        arrays = {name: jnp.asarray(value) for name, value in theta.items()}
        shares = jnp.asarray(counted / counted.sum(), self.learner.task.family.dtype)
        how = self.count, self.every, self.learner.recipe.metric_again
        return _weigh_loss(self.packed.key, *how, self.loss, self.packed.leaves, arrays, shares, self.states)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _weigh_loss(
    key: Key[Task],
    count: int,
    every: int,
    again: bool,
    loss: Loss,
    leaves: tuple,
    theta: Theta,
    shares: Float[Array, " N"],
    state: State,
) -> tuple[tuple[Float[Array, ""], Errors], Theta]:
    """Return the loss of constant steps, every instance with its share, the errors, and the gradient in θ.

    Errors are measured where they count, and nowhere else: that costs more than a step.
    """
    task = key.unflatten(leaves)

    def total(theta: Theta) -> tuple[Float[Array, ""], Errors]:
        algorithm = task.algorithm
        family = task.family
        theta, vectors = separate_vectors(task, theta)
        once = {name: value[0] for name, value in theta.items()} | vectors
        factors = jax.tree.map(lambda a: a[None], factorize_theta(algorithm, family, jax.lax.stop_gradient(once)))
        plan = Plan(theta, factors, jnp.zeros(1, jnp.int32), 0, vectors=vectors)
        step = Problem(algorithm, family, plan, task.instance).stepper(0)

        def run_part(state: State, length: int) -> State:
            return jax.lax.scan(lambda s, _: (step(s), None), state, None, length=length)[0]

        def run_stretch(state: State, _: None) -> tuple[State, Errors]:
            state = run_part(state, every)
            return state, task.errors(state)

        kept = jax.checkpoint(run_stretch) if again else run_stretch
        after, errors = jax.lax.scan(kept, state, None, length=count // every)
        if count % every:
            last = task.errors(run_part(after, count % every))
            errors = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), errors, last)
        # Which rows bind is learned in the schedule; penalties of rows are for residuals all the same.
        value = max(loss.metric, loss.identification) * jnp.mean(average_logs(errors.metric, loss.tail or 0.0, shares))
        if loss.distance and errors.distance is not None:
            value += loss.distance * jnp.mean(average_logs(errors.distance, loss.tail or 0.0, shares))
        return value, errors

    return jax.value_and_grad(total, has_aux=True)(theta)
