"""The rows of an experiment's table: what is compared, and how each is made.

A method is made only where its result is not there yet, so an `Entry` holds the recipe and, for the name of the
result's file, all that the recipe depends on. Methods that need constant hyperparameters, the warm starts and the
networks, are given the best constant: the strongest base there is.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...algorithms.registry import default_algorithm
from ...data.dataset import Split
from ...engine.loop import steps
from ...evaluation import scheduled as evaluation
from ...evaluation.method import Method
from ...evaluation.scheduled import Scheduled
from ...families.base import Family
from ...families.conic import Conic
from ...families.quadratic_program import QP
from ...schedules.schedule import Schedule, constant
from ...solver import Solver
from ...training.record import Training
from ..baselines import classical
from ..baselines.l2ws import l2ws
from ..baselines.learned_metric import LearnedMetric, Metric, learned_metric
from ..baselines.networks import features, outputs
from ..baselines.packages import osqp_package, scs_package
from ..baselines.warm_starts import Started, nearest_neighbour


@dataclass(frozen=True)
class Entry:
    """A method by a short id and the name that tables show.

    It is run on the first `instances` of the test split (None: all) for `steps` iterations (None: those of the
    experiment's size). `settings` gives plain data, all that `make` depends on; both may train.
    """

    id: str
    name: str
    make: Callable[[], Any]
    settings: Callable[[], Mapping[str, Any]] = dict
    instances: int | None = None
    steps: int | None = None


def described(schedule: Schedule) -> str:
    """A schedule as it enters the settings of an entry."""
    return schedule.to_json()


def learned(id: str, name: str, family: Family, training: Callable[[], Training], **limits: Any) -> Entry:
    """A learned schedule, safeguarded."""

    def settings() -> dict[str, Any]:
        return {"schedule": described(training().schedule)}

    return Entry(id, name, lambda: Solver(family, training()), settings, **limits)


def vanilla(family: Family, name: str = "vanilla", **limits: Any) -> Entry:
    """The algorithm's defaults, those of the C packages for OSQP and SCS."""
    settings = {"equilibrated": family.equilibrated}
    return Entry("vanilla", name, lambda: evaluation.vanilla(family), lambda: settings, **limits)


def held(id: str, name: str, family: Family, values: Mapping[str, float], **limits: Any) -> Entry:
    """Hyperparameters held at given values."""
    settings = {"values": dict(values), "equilibrated": family.equilibrated}

    def make() -> Method:
        return Solver(family, constant(default_algorithm(family).hyperparameters(family), **values))

    return Entry(id, name, make, lambda: settings, **limits)


def best_constant(family: Family, training: Training, **limits: Any) -> Entry:
    """The constant that every learned schedule must beat."""
    settings = {"constant": described(training.constant)}
    return Entry(
        "constant", "best constant", lambda: evaluation.best_constant(family, training), lambda: settings, **limits
    )


def scheduled(id: str, make: Callable[[], Scheduled], name: str, **limits: Any) -> Entry:
    """A method from theory, which depends on the family alone."""
    return Entry(id, name, make, **limits)


def base(family: Family, training: Training) -> Solver:
    """The best constant as a solver, on which warm starts and networks are put."""
    return Solver(family, training.constant, algorithm=training.algorithm)


def neighbour(family: Family, training: Training, split: Split, **limits: Any) -> Entry:
    """The optimum of the nearest training instance as the start."""
    settings = {"constant": described(training.constant), "data": split.content_hash()}
    name = f"nearest neighbour, N = {len(split)}"
    return Entry(
        "neighbour", name, lambda: nearest_neighbour(base(family, training), split), lambda: settings, **limits
    )


def warm_started(family: Family, training: Training, split: Split, options: Mapping[str, Any], **limits: Any) -> Entry:
    """L2WS: a network from the parameter to the start."""
    settings = _settings(training, split, options)
    name = f"L2WS, N = {len(split)}"

    def make() -> Method:
        return l2ws(base(family, training), split, **options)

    return Entry(f"l2ws-{len(split)}", name, make, lambda: settings, **limits)


def metric(family: Family, training: Training, split: Split, options: Mapping[str, Any], **limits: Any) -> Entry:
    """LM: a network from the parameter to hyperparameters by component."""
    settings = _settings(training, split, options)
    name = f"LM, N = {len(split)}"

    def make() -> Method:
        return learned_metric(base(family, training), split, **options)

    return Entry(f"lm-{len(split)}", name, make, lambda: settings, **limits)


def osqp(family: QP, split: Split, **limits: Any) -> Entry:
    """The C package `osqp` in a workspace whose rho has settled on training instances; a solve for every iterate."""
    settings = {"data": split.content_hash()}
    return Entry("package", "osqp package, adapted", lambda: osqp_package(family, split), lambda: settings, **limits)


def scs(family: Conic, split: Split, anderson: int, dense: int | None = None, **limits: Any) -> Entry:
    """The C package `scs` likewise, with its acceleration or without (anderson = 0); see `scs_package` for `dense`."""
    settings = {"data": split.content_hash(), "anderson": anderson, "dense": dense}
    id, name = ("package-anderson", ", Anderson") if anderson else ("package", "")

    def make() -> Method:
        return scs_package(family, split, anderson, dense=dense)

    rounded = "" if dense is None else f", rounded up beyond {dense}"
    return Entry(id, f"scs package, adapted{name}{rounded}", make, lambda: settings, **limits)


def unit_scalings(family: Conic, **limits: Any) -> Entry:
    """SCS with all r = 1 and α = 1, on data that are not equilibrated: what publications call vanilla."""
    make = functools.partial(classical.unit_scalings, family, 1.0)
    return Entry("published", "published vanilla, unit scalings", make, lambda: {"alpha": 1.0}, **limits)


def _settings(training: Training, split: Split, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that a network's training depends on; whether progress is shown is not among it."""
    chosen = {key: value for key, value in options.items() if key != "progress"}
    return {"constant": described(training.constant), "data": split.content_hash(), **chosen}


@functools.singledispatch
def points(method: Any, parameters: Any, count: int) -> Float[np.ndarray, "N n"] | None:
    """The x of N instances after `count` iterations, for pictures; None where a method does not tell it."""
    return None


@points.register
def _(method: Solver, parameters: Any, count: int) -> Any:
    return method.solve_batch(parameters, steps=count).x


@points.register
def _(method: Scheduled, parameters: Any, count: int) -> Any:
    return method.solver(count).solve_batch(parameters, steps=count).x


@points.register
def _(method: Started, parameters: Any, count: int) -> Any:
    return method.method.solve_batch(parameters, steps=count, warm_start=method.start(parameters)).x


@points.register
def _(method: LearnedMetric, parameters: Any, count: int) -> Any:
    inputs = method.standard(features(method.family, parameters))
    encoded = method.family.encode(parameters)
    return np.asarray(_in_their_metrics(method.metric, method.network, inputs, encoded, count))


@eqx.filter_jit
def _in_their_metrics(metric: Metric, network: Any, inputs: Any, encoded: Any, count: int) -> jax.Array:
    instances = metric.family.decode(encoded)

    def one(i: jax.Array, nu: jax.Array) -> jax.Array:
        instance = metric.family.take(instances, i)
        problem = metric.problem(nu, instance)
        begin = metric.algorithm.init(metric.family, instance, None)
        state = steps(problem, begin, count, 0, lambda state: ())[0]
        return metric.algorithm.extract(metric.family, instance, state).x

    return jax.vmap(one)(jnp.arange(len(inputs)), outputs(network, inputs))
