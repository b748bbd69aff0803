"""From what the user has (a dataset, a split, bare parameters) to the instances that training runs on."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._util.hashing import content_hash
from ..algorithms.base import Algorithm
from ..data.dataset import Dataset, Split
from ..data.optima import Optima
from ..engine.jitted import Key, flatten
from ..families.base import Encoded, Family
from ..families.point import Point
from ..families.reading import Parameters
from .losses import Loss, Task
from .program import take_columns
from .recipe import Recipe
from .sides import find_sides

Start: TypeAlias = str | Callable[[Parameters], Point] | None


@dataclass(frozen=True)
class Instances:
    """The training instances: the task, where solves begin (None: zero) and the optima, both as columns."""

    task: Task
    start: Point | None
    optimum: Point | None
    count: int
    data_hash: str


def training_split(family: Family, data: Dataset | Split | Parameters) -> Split:
    """Return the split to train on, of this very family."""
    if isinstance(data, Dataset):
        try:
            data = data["train"]
        except KeyError:
            raise ValueError(f"training uses the split 'train', and {data!r} has none; pass the split itself") from None
    if not isinstance(data, Split):
        bare = Split("train", family, data, None)
        family.encode(bare.parameters)
        return bare
    if data.name in ("validation", "test"):
        raise ValueError(
            f"the split {data.name!r} is for judging schedules, not for training: results on it would prove nothing"
        )
    if data.family is not family and data.family.problem_hash() != family.problem_hash():
        raise ValueError(f"{data!r} is of another family than the one to train")
    return data


def gather(family: Family, algorithm: Algorithm, split: Split, start: Start, loss: Loss, recipe: Recipe) -> Instances:
    """Return the instances of a split with what is known of their optima."""
    parameters = split.parameters
    optima = split.optima
    if optima is None:
        make = "Make them with Dataset.sample(…, references=True)"
        if loss.distance:
            raise ValueError(
                f'the loss measures distances to optima, and {split!r} has none. {make}, or use loss="metric"'
            )
        if start == "previous":
            raise ValueError(f'start="previous" begins at optima, and {split!r} has none. {make}')
    optimum = None if optima is None else _columns(family, optima)
    value = None if optima is None else jnp.asarray(optima.value, family.dtype)
    keep = np.arange(len(split))
    if start is None or start in ("zero", "parameter"):
        begin = None
    elif start == "previous":
        # The first instance has no one before it.
        keep = keep[1:]
        begin = take_columns(optimum, slice(-1))
        if not keep.size:
            raise ValueError('start="previous" needs at least two instances in the order in which they come')
    elif callable(start):
        begin = _columns(family, start(parameters))
        sizes = {a.shape[-1] for a in jax.tree.leaves(begin)}
        if sizes != {len(split)}:
            raise ValueError(f"start must give one point per instance, {len(split)} of them, got {sizes}")
    else:
        raise ValueError(
            f"start must be 'zero', 'parameter', 'previous' or a function of the parameters, got {start!r}"
        )
    if len(keep) < len(split):
        parameters = family.select(parameters, keep)
        optimum, value = take_columns((optimum, value), keep)
    sides = find_sides(family, optimum, recipe) if loss.identification else None
    instance, target = _make_instances(*flatten((algorithm, family)), family.encode(parameters), optimum)
    marks = [np.asarray(leaf) for leaf in jax.tree.leaves((optimum, begin))]
    return Instances(
        task=Task(algorithm, family, instance, target, value, sides, rounding=recipe.rounding),
        start=begin,
        optimum=optimum,
        count=len(keep),
        data_hash=content_hash(split.content_hash(), marks),
    )


@functools.partial(jax.jit, static_argnums=0)
def _make_instances(
    key: Key[tuple[Algorithm, Family]], leaves: tuple, encoded: Encoded, optimum: Point | None
) -> tuple[PyTree, Float[Array, "k *N"] | None]:
    """Return the instances, and where their optima lie in the algorithm's coordinates."""
    algorithm, family = key.unflatten(leaves)
    instance = family.decode(encoded)
    if optimum is None:
        return instance, None
    return instance, algorithm.coordinates(family, instance, algorithm.init(family, instance, optimum))


def _columns(family: Family, point: Point | Optima) -> Point:
    """Return the x, y and s of a Point or of Optima (leading axis: instances) as columns."""
    return Point.of(point).map(lambda a: jnp.asarray(np.asarray(a).T, family.dtype))
