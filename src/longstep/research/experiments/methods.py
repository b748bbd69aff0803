"""The rows of an experiment's table: what is compared, and how each is made.

A method is made only where its result is not there yet, so an `Entry` holds the recipe and, for the name of the
result's file, all that the recipe depends on. Methods that need constant hyperparameters, the warm starts and the
networks, are given the best constant: the strongest base there is.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from typing_extensions import Unpack

from ..._util.plain import Json
from ...algorithms.registry import default_algorithm
from ...data.dataset import Split
from ...engine.loop import run_steps
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
from ..baselines.learned_metric import LearnedMetric, train_learned_metric
from ..baselines.metric import ComponentMetric
from ..baselines.networks import compute_outputs, make_features
from ..baselines.packages import osqp_package, scs_package
from ..baselines.warm_starts import Started, nearest_neighbour


class Extent(TypedDict, total=False):
    """How much of the test split a method is run on, and for how long; see `Entry`."""

    instances: int | None
    steps: int | None


class NetworkOptions(TypedDict, total=False):
    """How a network is trained; see `l2ws` and `train_learned_metric`."""

    hidden: tuple[int, ...]
    iterations: int
    batch: int
    seed: int
    progress: bool


@dataclass(frozen=True)
class Entry:
    """A method by a short id and the name that tables show.

    It is run on the first `instances` of the test split (None: all) for `steps` iterations (None: those of the
    experiment's size). `settings` gives plain data, all that `make` depends on; both may train.
    """

    id: str
    name: str
    make: Callable[[], Method]
    settings: Callable[[], Mapping[str, object]] = dict
    instances: int | None = None
    steps: int | None = None


def describe_schedule(schedule: Schedule) -> str:
    """Return a schedule as it enters the settings of an entry."""
    return schedule.to_json()


def make_learned(
    id: str, name: str, family: Family, training: Callable[[], Training], **limits: Unpack[Extent]
) -> Entry:
    """Return the entry of a learned schedule, safeguarded."""

    def settings() -> dict[str, Json]:
        return {"schedule": describe_schedule(training().schedule)}

    return Entry(id, name, lambda: Solver(family, training()), settings, **limits)


def make_vanilla(family: Family, name: str = "vanilla", **limits: Unpack[Extent]) -> Entry:
    """Return the entry of the algorithm's defaults, those of the C packages for OSQP and SCS."""
    settings = {"equilibrated": family.equilibrated}
    return Entry("vanilla", name, lambda: evaluation.vanilla(family), lambda: settings, **limits)


def make_fixed(id: str, name: str, family: Family, values: Mapping[str, float], **limits: Unpack[Extent]) -> Entry:
    """Return the entry of hyperparameters that have these values at every step."""
    settings = {"values": dict(values), "equilibrated": family.equilibrated}

    def make() -> Method:
        return Solver(family, constant(default_algorithm(family).hyperparameters(family), **values))

    return Entry(id, name, make, lambda: settings, **limits)


def make_best_constant(family: Family, training: Training, **limits: Unpack[Extent]) -> Entry:
    """Return the entry of the constant that every learned schedule must beat."""
    settings = {"constant": describe_schedule(training.constant)}
    return Entry(
        "constant", "best constant", lambda: evaluation.best_constant(family, training), lambda: settings, **limits
    )


def make_theoretical(id: str, make: Callable[[], Scheduled], name: str, **limits: Unpack[Extent]) -> Entry:
    """Return the entry of a method from theory, which depends on the family alone."""
    return Entry(id, name, make, **limits)


def make_base(family: Family, training: Training) -> Solver:
    """Return the best constant as a solver, on which warm starts and networks are put."""
    return Solver(family, training.constant, algorithm=training.algorithm)


def make_neighbour(family: Family, training: Training, split: Split, **limits: Unpack[Extent]) -> Entry:
    """Return the entry that starts at the optimum of the nearest training instance."""
    settings = {"constant": describe_schedule(training.constant), "data": split.content_hash()}
    name = f"nearest neighbour, N = {len(split)}"
    return Entry(
        "neighbour", name, lambda: nearest_neighbour(make_base(family, training), split), lambda: settings, **limits
    )


def make_warm_started(
    family: Family, training: Training, split: Split, options: NetworkOptions, **limits: Unpack[Extent]
) -> Entry:
    """Return the entry of L2WS: a network from the parameter to the start."""
    settings = _collect_settings(training, split, options)
    name = f"L2WS, N = {len(split)}"

    def make() -> Method:
        return l2ws(make_base(family, training), split, **options)

    return Entry(f"l2ws-{len(split)}", name, make, lambda: settings, **limits)


def make_learned_metric(
    family: Family, training: Training, split: Split, options: NetworkOptions, **limits: Unpack[Extent]
) -> Entry:
    """Return the entry of LM: a network from the parameter to hyperparameters by component."""
    settings = _collect_settings(training, split, options)
    name = f"LM, N = {len(split)}"

    def make() -> Method:
        return train_learned_metric(make_base(family, training), split, **options)

    return Entry(f"lm-{len(split)}", name, make, lambda: settings, **limits)


def make_osqp(family: QP, split: Split, **limits: Unpack[Extent]) -> Entry:
    """Return the entry of the C package `osqp`, whose rho has settled in training; a solve for every iterate."""
    settings = {"data": split.content_hash()}
    return Entry("package", "osqp package, adapted", lambda: osqp_package(family, split), lambda: settings, **limits)


def make_scs(family: Conic, split: Split, anderson: int, dense: int | None = None, **limits: Unpack[Extent]) -> Entry:
    """Return the entry of the C package `scs`, with its acceleration or without (anderson = 0); see `scs_package`."""
    settings = {"data": split.content_hash(), "anderson": anderson, "dense": dense}
    id = "package"
    name = "scs package, adapted"
    if anderson:
        id += "-anderson"
        name += ", Anderson"
    if dense is not None:
        name += f", rounded up beyond {dense}"

    def make() -> Method:
        return scs_package(family, split, anderson, dense=dense)

    return Entry(id, name, make, lambda: settings, **limits)


def make_unit_scalings(family: Conic, **limits: Unpack[Extent]) -> Entry:
    """Return the entry of SCS with all r = 1 and α = 1, without equilibration: what publications call vanilla."""
    make = functools.partial(classical.unit_scalings, family, 1.0)
    return Entry("published", "published vanilla, unit scalings", make, lambda: {"alpha": 1.0}, **limits)


def _collect_settings(training: Training, split: Split, options: NetworkOptions) -> dict[str, object]:
    """Return all that a network's training depends on; whether progress is shown is not among it."""
    settings: dict[str, object] = {"constant": describe_schedule(training.constant), "data": split.content_hash()}
    settings |= options
    settings.pop("progress", None)
    return settings


@functools.singledispatch
def find_points(method: Method, parameters: PyTree, count: int) -> Float[np.ndarray, "N n"] | None:
    """Return the x of N instances after `count` iterations, for pictures; None where a method does not tell it."""
    return None


@find_points.register
def _(method: Solver, parameters: PyTree, count: int) -> Float[np.ndarray, "N n"]:
    return method.solve_batch(parameters, steps=count).x


@find_points.register
def _(method: Scheduled, parameters: PyTree, count: int) -> Float[np.ndarray, "N n"]:
    return method.solver(count).solve_batch(parameters, steps=count).x


@find_points.register
def _(method: Started, parameters: PyTree, count: int) -> Float[np.ndarray, "N n"]:
    return method.method.solve_batch(parameters, steps=count, warm_start=method.start(parameters)).x


@find_points.register
def _(method: LearnedMetric, parameters: PyTree, count: int) -> Float[np.ndarray, "N n"]:
    inputs = method.standard(make_features(method.family, parameters))
    encoded = method.family.encode(parameters)
    return np.asarray(_run_in_metrics(method.metric, method.network, inputs, encoded, count))


@eqx.filter_jit
def _run_in_metrics(
    metric: ComponentMetric, network: eqx.nn.MLP, inputs: Float[Array | np.ndarray, "N d"], encoded: PyTree, count: int
) -> jax.Array:
    instances = metric.family.decode(encoded)

    def run_one(i: jax.Array, nu: jax.Array) -> jax.Array:
        instance = metric.family.take(instances, i)
        problem = metric.make_problem(nu, instance)
        begin = metric.algorithm.init(metric.family, instance, None)
        state = run_steps(problem, begin, count, 0, lambda state: ())[0]
        return metric.algorithm.extract(metric.family, instance, state).x

    return jax.vmap(run_one)(jnp.arange(len(inputs)), compute_outputs(network, inputs))
