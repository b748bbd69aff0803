"""The factors of a plan: one for every distinct linear system, made in float64."""

from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from numpy.typing import DTypeLike

from .._util.memory import measure_usable
from ..algorithms.base import Algorithm, Theta
from ..families.base import Family
from ..linalg.systems import ALWAYS, LinearSystem, Pattern, choose, factorize, factorize_by
from ..schedules.schedule import Schedule
from .forecast import require_factors

TreeT = TypeVar("TreeT")


def factorize_theta(algorithm: Algorithm, family: Family, theta: Theta, solves: float = ALWAYS) -> LinearSystem | None:
    """Return what is cached for the linear system of θ, for `solves` solves; None for an algorithm that solves none."""
    if algorithm.pattern(family) is None:
        return None
    return factorize(algorithm.operator(family, theta), solves)


def find_pattern(algorithm: Algorithm, family: Family, schedule: Schedule) -> Pattern:
    """Return what all systems of a plan have in common: with a metric the weights of rows differ."""
    pattern = algorithm.pattern(family)
    assert pattern is not None
    return replace(pattern, spectral=pattern.spectral and schedule.metric is None)


def choose_precision(family: Family, pattern: Pattern, precision: np.dtype | None) -> np.dtype:
    """Return what factors are kept in: a lower precision is for those that are more than a vector."""
    vector = family.n * family.dtype.itemsize
    if precision is None or choose(pattern, ALWAYS).bytes(pattern, family.dtype.itemsize) <= vector:
        return family.dtype
    return precision


def factorize_all(
    algorithm: Algorithm,
    family: Family,
    schedule: Schedule,
    table: dict[str, np.ndarray],
    plain: np.ndarray,
    kept: np.dtype,
) -> tuple[list[tuple[LinearSystem, Float[Array, ""]]], np.ndarray]:
    """Return a factor and its error for every distinct system, and which of them each place has."""
    factored = [h.name for h in algorithm.hyperparameters(family) if h.factored]
    keys = np.column_stack([*(table[name] for name in factored), plain])
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    pattern = find_pattern(algorithm, family, schedule)
    back_end = choose(pattern, ALWAYS, measure_usable() / len(distinct), kept.itemsize)
    require_factors(back_end, pattern, len(distinct), kept)
    like = jnp.zeros((), kept)
    vectors = algorithm.vectors(family, schedule.metric)
    # A local switch: the process-wide one is the user's.
    with jax.enable_x64(True):
        exact = _convert(family, jnp.float64)
        pairs = []
        for key in distinct:
            theta = dict(zip(factored, map(jnp.float64, key[:-1]), strict=True))
            for name, given in vectors.items():
                theta[name] = jnp.asarray(given, jnp.float64)
                if key[-1]:
                    theta[name] = jnp.ones_like(theta[name])
            pairs.append(_factorize_exactly(algorithm, exact, theta, back_end, like))
    return pairs, which.ravel()


@eqx.filter_jit
def _factorize_exactly(
    algorithm: Algorithm, family: Family, theta: Theta, back_end: type[LinearSystem], like: Float[Array, ""]
) -> tuple[LinearSystem, Float[Array, ""]]:
    """Return one factor in the precision of `like`, and the error of its inverse in that precision."""
    K = algorithm.operator(family, theta)
    made = _convert(factorize_by(back_end, K), like.dtype)
    return made, made.error(K)


def _convert(tree: TreeT, dtype: DTypeLike) -> TreeT:
    """Return a tree with its real numbers in this precision."""

    def convert(leaf: PyTree) -> PyTree:
        if eqx.is_inexact_array(leaf):
            return leaf.astype(dtype)
        return leaf

    return jax.tree.map(convert, tree)
