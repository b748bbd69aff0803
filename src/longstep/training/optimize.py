"""The optimisers of a block: L-BFGS (SciPy's) by default, Adam (Optax's) as published."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import scipy.optimize

from .recipe import Recipe

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class Minimum:
    """The best point seen, its value, the value at the start, and how many evaluations it took."""

    x: np.ndarray
    value: float
    start: float
    evaluations: int


def minimise(
    objective: Objective,
    x: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    optimizer: str,
    iterations: int,
    recipe: Recipe,
    report: Callable[[float], None],
) -> Minimum:
    """Return the best point within bounds that the optimiser finds from x; `report` hears every new best value."""
    watch = _Watch(objective, report, recipe.overflow)
    if x.size == 0:
        watch(x)
    elif optimizer == "lbfgs":
        options = {
            "maxiter": iterations,
            "maxfun": int(iterations * recipe.evaluations),
            "maxcor": recipe.memory,
            "ftol": recipe.least_change,
            "gtol": recipe.least_gradient,
        }
        box = scipy.optimize.Bounds(*bounds)
        scipy.optimize.minimize(watch, x, jac=True, method="L-BFGS-B", bounds=box, options=options)
    elif optimizer == "adam":
        _adam(watch, x, bounds, iterations, recipe.rate)
    else:
        raise ValueError(f"optimizer must be 'lbfgs' or 'adam', got {optimizer!r}")
    assert watch.best is not None
    assert watch.first is not None
    return Minimum(watch.best, watch.value, watch.first, watch.evaluations)


class _Watch:
    """The objective, with the best point seen; what is not finite becomes a high plateau."""

    def __init__(self, objective: Objective, report: Callable[[float], None], overflow: float):
        self.objective = objective
        self.report = report
        self.overflow = overflow
        self.best: np.ndarray | None = None
        self.first: float | None = None
        self.value = np.inf
        self.evaluations = 0

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.objective(x)
        self.evaluations += 1
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            value = self.overflow
            gradient = np.zeros_like(gradient)
        if self.first is None:
            self.first = value
        if self.best is None or value < self.value:
            self.best = x.copy()
            self.value = value
            self.report(value)
        return value, gradient


def require_optax(purpose: str) -> ModuleType:
    """Return the package optax; an ImportError says what to do without it."""
    try:
        import optax
    except ImportError:
        raise ImportError(f"{purpose} needs the package optax: pip install 'longstep[networks]'") from None
    return optax


def _adam(
    objective: Objective, x: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], iterations: int, rate: float
) -> None:
    """Minimise by Adam with a cosine decay of the rate."""
    optax = require_optax('optimizer="adam"')
    transform = optax.adam(optax.cosine_decay_schedule(rate, iterations))
    state = transform.init(x)
    for _ in range(iterations):
        _, gradient = objective(x)
        update, state = transform.update(gradient, state, x)
        x = np.clip(x + np.asarray(update, np.float64), *bounds)
