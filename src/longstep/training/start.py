"""A start from the parameter, by ridge regression on the optima of training.

Sambharya, Hall, Amos and Stellato (2023) learn warm starts by networks; an affine map costs less than a step.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.dataset import Split
from ..engine.finisher import changes_cost, product_cost
from ..engine.start import LearnedStart, complete
from ..families.point import Point
from ..families.quadratic_program import QP
from .instances import Instances
from .learner import Learner
from .recipe import Recipe
from .settings import Values
from .sides import balance_rows, clean_multipliers, find_inequalities


@dataclass(frozen=True)
class Prediction:
    """A start, and the points (columns) that it gives training instances which it was not fitted to; one of
    `start_zero` begins at zero, so that the schedule does without a good prediction too."""

    start: LearnedStart
    points: Point


def fit_start(instances: Instances, split: Split, recipe: Recipe) -> Prediction | None:
    """Return the start that the optima of training predict; None where it cannot be told, or is too large."""
    algorithm = instances.task.algorithm
    family = instances.task.family
    if not algorithm.starts_from_rows or instances.optimum is None or instances.start is not None:
        return None
    assert isinstance(family, QP)
    encoded = family.encode(split.parameters)
    if family.mapped is None or not isinstance(encoded, np.ndarray) or encoded.shape[1] < 2 * recipe.start_folds:
        return None
    inequality = find_inequalities(family)
    if not 0 < inequality.sum() * len(encoded) <= recipe.start_entries:
        return None
    assert instances.optimum.y is not None
    assert instances.optimum.s is not None
    s = np.asarray(instances.optimum.s, np.float64)[inequality]
    y = clean_multipliers(np.asarray(instances.optimum.y, np.float64)[inequality], recipe)
    rho = balance_rows(family, s, y, recipe)
    w = s + y / rho[:, None]
    weights, offset, predicted = regress(np.asarray(encoded, np.float64), w, recipe)
    predicted[:, :: recipe.start_zero] = np.nan
    dtype = family.dtype
    points = complete(family, jnp.asarray(encoded), jnp.asarray(predicted, dtype), jnp.asarray(rho, dtype))
    return Prediction(LearnedStart(weights, offset, rho, encoded.min(axis=1), encoded.max(axis=1)), points)


def pays(learner: Learner, theta: Values, points: Point) -> bool:
    """Return whether a solve with constant θ costs less from these points than from zero: k steps, and the changes of
    the active set that are left after them, at the best k, in the mean and at slow instances alike; the prediction
    has its price."""
    program = learner.usual
    recipe = learner.recipe
    values = {name: value[0] if name in learner.names else value for name, value in theta.items()}
    optimum = learner.optimum
    assert optimum is not None
    assert optimum.y is not None
    family = program.task.family
    assert isinstance(family, QP)
    inequality = find_inequalities(family)
    target = np.sign(clean_multipliers(np.asarray(optimum.y)[inequality], recipe))
    active = np.count_nonzero(target, axis=0)
    assert family.parameter is not None
    price = product_cost(family, family.parameter.size)

    def judge(begin: Point | None) -> float:
        signs = program.visit_signs(values, program.start(begin), recipe.start_steps)
        differing = np.count_nonzero(signs[:, inequality] != target, axis=1)
        steps = np.arange(recipe.start_steps + 1)[:, None]
        cost = steps + changes_cost(family, differing, active)
        return float(np.min(cost.mean(axis=1) + np.quantile(cost, recipe.finish_quantile, axis=1)))

    return judge(points) + 2 * price < recipe.start_gain * judge(None)


def regress(
    p: Float[np.ndarray, "p N"], w: Float[np.ndarray, "i N"], recipe: Recipe
) -> tuple[Float[np.ndarray, "i p"], Float[np.ndarray, " i"], Float[np.ndarray, "i N"]]:
    """Return weights and offset of the affine map from p to w, and what maps that were fitted without an instance and
    its neighbours in time predict for it; the ridge is that with which these predictions are best."""
    count = p.shape[1]
    folds = np.arange(count) * recipe.start_folds // count
    unit = w.std(axis=1, keepdims=True) + recipe.start_active * (1 + np.abs(w).max(axis=1, keepdims=True))
    predicted = np.zeros((len(recipe.start_ridges), *w.shape))
    for fold in range(recipe.start_folds):
        left_out = folds == fold
        maps = _fit_ridges(p[:, ~left_out], w[:, ~left_out], recipe.start_ridges)
        for at, (weights, offset) in enumerate(maps):
            predicted[at][:, left_out] = offset[:, None] + weights @ p[:, left_out]
    errors = np.mean(((predicted - w) / unit) ** 2, axis=(1, 2))
    best = int(np.argmin(errors))
    weights, offset = _fit_ridges(p, w, recipe.start_ridges[best : best + 1])[0]
    return weights, offset, predicted[best]


def _fit_ridges(
    p: np.ndarray, w: np.ndarray, ridges: tuple[float, ...]
) -> list[tuple[Float[np.ndarray, "i p"], Float[np.ndarray, " i"]]]:
    """Return weights and offset for every ridge, on features of mean 0 and variance 1."""
    mean = p.mean(axis=1, keepdims=True)
    spread = p.std(axis=1, keepdims=True)
    varies = spread > np.sqrt(np.finfo(np.float64).eps) * np.abs(mean)
    features = np.where(varies, (p - mean) / np.where(varies, spread, 1.0), 0.0)
    level = w.mean(axis=1)
    left, singular, right = np.linalg.svd(features, full_matrices=False)
    along_right = (w - level[:, None]) @ right.T
    maps = []
    for ridge in ridges:
        shrunk = singular / (singular**2 + ridge * p.shape[1])
        weights = ((along_right * shrunk) @ left.T) / np.where(varies, spread, 1.0).T
        maps.append((weights, level - weights @ mean[:, 0]))
    return maps
