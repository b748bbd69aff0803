"""The metric: one vector of penalties for all steps, learned with constant hyperparameters before the schedule."""

import functools
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.base import State, Theta
from ..engine.jitted import Key
from ..engine.plan import Plan, Problem, factor
from ..schedules.domain import Hyperparameter
from .learner import Learner, Report
from .losses import Errors, Loss, Task
from .optimize import Minimum
from .program import Packed, restricted_task, separate_vectors, take_columns
from .settings import Learned, Values
from .unknowns import Part, Unknowns


@dataclass(frozen=True)
class Care:
    """How cautiously a metric is learned: `weight`·mean((log r)²) in the loss, and the power mean's p."""

    weight: float
    p: float


def learn_metric(learner: Learner, constant: Learned, report: Report) -> Learned:
    """The metric r and constant hyperparameters with it, or the constant as it was where no metric is better on
    instances that it did not see.

    Rows that were never active in training drift to small penalties and are slow where they bind: so r is held near
    one, and the slow instances count. How much of both is decided by cross-validation on the training instances.
    """
    begin = perf_counter()
    recipe = learner.recipe
    declared = learner.declared
    assert declared is not None
    columns = learner.some(recipe.metric_few)
    if recipe.metric_by_half and columns.size >= 4:
        return _learn_by_half(learner, constant, declared, columns, report)
    fit = _Fit(learner, constant, declared, columns)
    all_of_them = np.ones(fit.size, bool)
    before = fit.level(fit.start, all_of_them)
    best = Care(recipe.metric_weights[0], recipe.metric_tail)
    evaluations = 0
    first = fit.start
    if fit.size >= 4:
        usual, lighter, heavier = (Care(weight, recipe.metric_tail) for weight in recipe.metric_weights)
        tried = [_try_halves(fit, usual, report)]
        # What generalizes may need less care, what does not needs more.
        tried.append(_try_halves(fit, lighter if tried[0].level < before else heavier, report))
        evaluations = sum(trial.evaluations for trial in tried)
        lowest = min(tried, key=lambda trial: trial.level)
        if lowest.level >= before:
            return Learned("metric", dict(constant.theta), before, before, evaluations, perf_counter() - begin)
        best = lowest.care
        first = lowest.middle
    found = fit.minimise(best, all_of_them, first, recipe.metric_iterations, report)
    theta, _ = fit.unknowns.theta(found.x)
    values = {name: theta[name] for name in (*learner.names, declared.name)}
    after = fit.level(found.x, all_of_them)
    return Learned("metric", values, after, before, evaluations + found.evaluations, perf_counter() - begin)


class _Trial(NamedTuple):
    """What a care is worth: the level on unseen halves, and the point between what both halves found."""

    care: Care
    level: float
    middle: np.ndarray
    evaluations: int


def _try_halves(fit: "_Fit", care: Care, report: Report) -> _Trial:
    """Learn from each half of the instances, in their order, and judge on the other: data of one time are alike, and
    what lasts is what holds for those of another."""
    early = np.arange(fit.size) < fit.size // 2
    halves = (early, ~early)
    found = [fit.minimise(care, half, fit.start, fit.recipe.metric_trial, report) for half in halves]
    level = float(np.mean([fit.level(f.x, ~half) for f, half in zip(found, halves, strict=True)]))
    middle = np.mean([f.x for f in found], axis=0)
    return _Trial(care, level, middle, sum(f.evaluations for f in found))


def _learn_by_half(
    learner: Learner, constant: Learned, declared: Hyperparameter, columns: np.ndarray, report: Report
) -> Learned:
    """The metric of the first half of these instances, or the constant as it was where that is no worse on the rest."""
    begin = perf_counter()
    recipe = learner.recipe
    half = columns.size // 2
    fit = _Fit(learner, constant, declared, columns[:half])
    judge = _Fit(learner, constant, declared, columns[half:])
    seen = np.ones(fit.size, bool)
    unseen = np.ones(judge.size, bool)
    before = judge.level(judge.start, unseen)
    care = Care(recipe.metric_weights[0], recipe.metric_tail)
    found = fit.minimise(care, seen, fit.start, recipe.metric_iterations, report)
    after = judge.level(found.x, unseen)
    if after >= before:
        return Learned("metric", dict(constant.theta), before, before, found.evaluations, perf_counter() - begin)
    theta, _ = fit.unknowns.theta(found.x)
    values = {name: theta[name] for name in (*learner.names, declared.name)}
    return Learned("metric", values, after, before, found.evaluations, perf_counter() - begin)


class _Fit:
    """The loss of a metric and constants on some instances, each counted or not: one compiled program for all."""

    def __init__(self, learner: Learner, constant: Learned, declared: Hyperparameter, columns: np.ndarray):
        assert declared.entries is not None
        self.learner = learner
        self.declared = declared
        recipe = learner.recipe
        self.recipe = recipe
        self.size = columns.size
        count = recipe.metric_steps
        task = learner.task if columns.size == learner.usual.size else restricted_task(learner.task, columns)
        self.packed = Packed(task)
        self.loss = learner.settings.loss
        self.count = count
        self.forward = learner.usual.restricted(columns)
        self.floor = learner.floor()
        self.every = recipe.metric_every
        self.states = take_columns(learner.start(), columns)
        base = {name: constant.theta[name][:1] for name in learner.names}
        base[declared.name] = np.full(declared.entries.size, declared.default)
        parts = learner.parts(lambda h: Part(h.name, np.zeros(1, int), h.steady))
        self.unknowns = Unknowns([*parts, Part(declared.name, declared.entries, declared.steady)], base)
        self.start = self.unknowns.start(base)
        self.entries = int(declared.entries.max(initial=-1)) + 1

    def minimise(self, care: Care, counted: np.ndarray, x: np.ndarray, iterations: int, report: Report) -> Minimum:
        """The metric and constants with the least loss on the counted instances."""

        def objective(nu: np.ndarray) -> tuple[float, np.ndarray]:
            theta, slope = self.unknowns.theta(nu)
            (value, _), gradient = self._evaluate(theta, counted, care.p)
            pulled = self.unknowns.pull({n: np.asarray(g, np.float64) for n, g in gradient.items()}, slope)
            logs = nu[-self.entries :]
            pulled[-self.entries :] += 2 * care.weight * logs / self.entries
            return float(value) + care.weight * float(np.mean(logs**2)), pulled

        return self.learner.minimise(objective, x, self.unknowns.reach(x), iterations, report)

    def level(self, nu: np.ndarray, counted: np.ndarray) -> float:
        """The log errors of the counted instances at the checkpoints and long after: their mean, a high quantile and
        the worst, which a metric that neglects some rows makes worse, weighted."""
        theta, _ = self.unknowns.theta(nu)
        values = {name: theta[name][0] for name in self.learner.names}
        values[self.declared.name] = theta[self.declared.name]
        recipe = self.learner.recipe
        states = self.states
        found = []
        advance = self.forward.held(values)
        for _ in range(-(-recipe.metric_lasting // self.forward.count)):
            states, errors = advance(states)
            logs = np.maximum(np.asarray(errors.metric, np.float64)[counted], self.floor)
            levels = logs.mean(), np.quantile(logs, recipe.judged_quantile), logs.max()
            found.append(np.average(levels, weights=recipe.metric_judged))
            if found[-1] == self.floor:
                break
        # What is at the floor stays there.
        found += [self.floor] * (-(-recipe.metric_lasting // self.forward.count) - len(found))
        level = float(np.mean(found))
        return level if np.isfinite(level) else recipe.overflow

    def _evaluate(self, theta: Values, counted: np.ndarray, p: float) -> tuple[tuple[Float[Array, ""], Errors], Theta]:
        arrays = {name: jnp.asarray(value) for name, value in theta.items()}
        given = arrays, jnp.asarray(counted, self.learner.task.family.dtype), p
        how = self.count, self.every, self.learner.recipe.metric_again
        return _weighted(self.packed.key, *how, self.loss, self.packed.leaves, *given, self.states)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _weighted(
    key: Key[Task],
    count: int,
    every: int,
    again: bool,
    loss: Loss,
    leaves: tuple,
    theta: Theta,
    counted: Float[Array, " N"],
    p: Float[Array, ""],
    state: State,
) -> tuple[tuple[Float[Array, ""], Errors], Theta]:
    """The loss of constant steps on the counted instances with the errors of all, and its gradient in θ.

    Errors are measured where they count, and nowhere else: that costs more than a step.
    """
    task = key.unflatten(leaves)

    def total(theta: Theta) -> tuple[Float[Array, ""], Errors]:
        algorithm = task.algorithm
        family = task.family
        theta, vectors = separate_vectors(task, theta)
        once = {name: value[0] for name, value in theta.items()} | vectors
        factors = jax.tree.map(lambda a: a[None], factor(algorithm, family, jax.lax.stop_gradient(once)))
        plan = Plan(theta, factors, jnp.zeros(1, jnp.int32), 0, vectors=vectors)
        step = Problem(algorithm, family, plan, task.instance).stepper(0)

        def part(state: State, length: int) -> State:
            return jax.lax.scan(lambda s, _: (step(s), None), state, None, length=length)[0]

        def whole(state: State, _: None) -> tuple[State, Errors]:
            state = part(state, every)
            return state, task.errors(state)

        kept = jax.checkpoint(whole) if again else whole
        after, errors = jax.lax.scan(kept, state, None, length=count // every)
        if count % every:
            last = task.errors(part(after, count % every))
            errors = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), errors, last)
        # Which rows bind is learned in the schedule; penalties of rows are for residuals all the same.
        value = max(loss.metric, loss.identification) * jnp.mean(_power_mean(errors.metric, counted, p))
        if loss.distance and errors.distance is not None:
            value += loss.distance * jnp.mean(_power_mean(errors.distance, counted, p))
        return value, errors

    return jax.value_and_grad(total, has_aux=True)(theta)


def _power_mean(logs: Float[Array, "c N"], counted: Float[Array, " N"], p: Float[Array, ""]) -> Float[Array, " c"]:
    """The power mean of the counted entries; the geometric one for p = 0."""
    share = counted / jnp.sum(counted)
    safe = jnp.where(p > 0, p, 1.0)
    power = jax.nn.logsumexp(safe * logs, axis=-1, b=share) / safe
    return jnp.where(p > 0, power, jnp.sum(share * logs, axis=-1))
