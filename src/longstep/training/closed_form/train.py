"""Where training has a closed form: gradient descent on quadratics, and single steps on any smooth family."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...algorithms.base import Algorithm
from ...algorithms.gradient import step_size
from ...data.dataset import Split
from ...data.references import solve_references
from ...families.base import Family
from ...families.smooth import Differentiable, Quadratic
from ...schedules.domain import Interval
from ...schedules.hyperparameter import Role
from ...schedules.schedule import Schedule, constant
from ..instances import Start, gather
from ..recipe import Recipe
from ..select import Choice, Comparison
from ..settings import Settings
from .exact import exact_schedule, expected_losses, one_step, polynomials
from .spectrum import ErrorSpectrum, Gaussian


def closed_form(
    family: Family, algorithm: Algorithm, data: Gaussian | Split, start: Start, settings: Settings
) -> Choice | None:
    """Return the exact schedule, the best constant and how they compare; None where training needs gradients.

    The loss must be the distance or the metric alone, at block ends, and all hyperparameters must be learned.
    """
    loss = settings.loss
    simple = (loss.distance == 0) != (loss.metric == 0) and loss.every is None
    hyperparameters = algorithm.hyperparameters(family)
    everything = {h.name for h in hyperparameters} == set(settings.learn)
    if not (simple and everything) or settings.optimizer != "lbfgs":
        return None
    if not algorithm.own("closed_form"):
        return None
    names: dict[Role, str] = {h.role: h.name for h in hyperparameters}
    if isinstance(family, Quadratic):
        return _quadratic(family, algorithm, names, data, start, settings)
    single = set(settings.lengths) == {1} and loss.distance and "momentum" not in names
    if isinstance(family, Differentiable) and single and isinstance(data, Split):
        return _learn_single_steps(family, algorithm, data, start, settings)
    return None


def _quadratic(
    family: Quadratic,
    algorithm: Algorithm,
    names: dict[Role, str],
    data: Gaussian | Split,
    start: Start,
    settings: Settings,
) -> Choice:
    recipe = settings.recipe
    warm = start not in (None, "zero")
    source = _errors(family, algorithm, data, start, settings) if isinstance(data, Split) else data
    if isinstance(source, Gaussian) and warm:
        raise ValueError("with a Gaussian the start is zero; a warm start needs instances")
    objective, power = ("distance", 1) if settings.loss.distance else ("metric", 2)
    found = exact_schedule(
        family, source, horizon=settings.horizon, block=settings.lengths, momentum="momentum" in names,
        objective=objective, recipe=recipe,
    )  # fmt: skip
    spectrum = ErrorSpectrum(family)
    eigenvalues = spectrum.eigenvalues
    weights = spectrum.weights(source)
    steady = found.steady | {names["step"]: _find_lasting_step(family, weights, *_steps(found, names), power, recipe)}
    schedule = Schedule(found.varying, steady, warm=warm, blocks=_join_blocks(found.blocks, recipe))

    def losses(steps: np.ndarray, beta: np.ndarray | None = None) -> np.ndarray:
        return expected_losses(eigenvalues, weights, steps, beta, power=power)

    # The best constant of the same measure, at the same block ends: one number, so one search.
    ends = np.cumsum(schedule.blocks)
    H = int(ends[-1]) if len(ends) else 0
    L = family.lipschitz

    def score(t: float) -> float:
        return float(np.mean(np.log(losses(np.full(H, t))[ends] + 1e-300)))

    least, most = recipe.exact_steps
    best = scipy.optimize.minimize_scalar(score, bounds=(least / L, most / L), method="bounded").x if H else 1 / L
    flat = constant(algorithm.hyperparameters(family), **{names["step"]: float(best)})
    means = [np.sqrt(np.maximum(v[ends], 0)) for v in (losses(*_steps(schedule, names)), losses(np.full(H, best)))]
    measure = "root mean square distance" if power == 1 else "√(2·mean(f − f*))"
    comparison = Comparison(tuple(int(k) for k in ends), *(tuple(map(float, m)) for m in means), measure=measure)
    return Choice(schedule, flat, comparison, "the exact schedule")


def _find_lasting_step(
    family: Quadratic, weights: np.ndarray, steps: np.ndarray, momentum: np.ndarray | None, power: int, recipe: Recipe
) -> float:
    """Return the constant step that brings down most what these steps leave, by the mean logarithm of the losses after
    it.

    2/(L + μ) is best for errors along all eigenvectors alike. Where instances have none along some, as in regression
    with more unknowns than measurements, longer steps are many times faster.
    """
    spectrum = ErrorSpectrum(family)
    values = spectrum.eigenvalues
    eps = float(np.finfo(family.dtype).eps)
    (*_, p) = polynomials(values, steps, momentum)
    scale = np.abs(values) ** (power - 1)
    # Rounding leaves a little of everything.
    left = weights * p**2 + eps**2 * np.mean(weights)
    floor = (1000 * eps) ** 2 * float(np.sum(scale * weights))

    def score(t: float) -> float:
        with np.errstate(over="ignore", under="ignore"):
            losses = [float(np.sum(scale * left * (1 - t * values) ** (2 * k))) for k in recipe.later]
        return float(np.mean(np.log(np.clip(losses, floor, 1e300) + 1e-300)))

    domain = step_size(family)
    assert isinstance(domain.steady, Interval)
    low, high = domain.steady.ends
    # The score has several minima: a grid first.
    candidates = [domain.default, *np.geomspace(max(low, recipe.steady_least * high), high, recipe.steady_grid)]
    best = min(candidates, key=score)
    around = (1 - recipe.steady_near) * best, min((1 + recipe.steady_near) * best, high)
    near = scipy.optimize.minimize_scalar(score, bounds=around, method="bounded").x
    return float(min((best, near), key=score))


def _join_blocks(lengths: Iterable[int], recipe: Recipe) -> list[int]:
    """Return blocks that are long enough for the safeguard."""
    merged: list[int] = []
    for length in lengths:
        if merged and merged[-1] < recipe.watched:
            merged[-1] += length
        else:
            merged.append(length)
    return merged


def _steps(schedule: Schedule, names: dict[Role, str]) -> tuple[np.ndarray, np.ndarray | None]:
    return schedule[names["step"]], schedule[names["momentum"]] if "momentum" in names else None


def _errors(family: Quadratic, algorithm: Algorithm, split: Split, start: Start, settings: Settings) -> np.ndarray:
    """Return z⁰ − z* (N, n); without references the optima of a quadratic are made here."""
    if split.optima is None:
        optima = solve_references(family, split.parameters, cache=False, progress=False)
        split = Split(split.name, family, split.parameters, optima)
    found = gather(family, algorithm, split, start, settings.loss, settings.recipe)
    assert found.optimum is not None
    begin = jnp.zeros_like(found.optimum.x) if found.start is None else found.start.x
    return np.asarray(begin - found.optimum.x, np.float64).T


def _learn_single_steps(
    family: Differentiable, algorithm: Algorithm, split: Split, start: Start, settings: Settings
) -> Choice:
    """Return the published one-step rule, step after step: t = Σ g'(z − z*)/Σ‖g‖²."""
    recipe = settings.recipe
    found = gather(family, algorithm, split, start, settings.loss, recipe)
    assert found.optimum is not None
    instance = found.task.instance
    gradient = jax.jit(lambda z: family.step_unit(instance) * family.gradient(instance, z))
    optimum = np.asarray(found.optimum.x, np.float64)
    first = np.zeros_like(optimum) if found.start is None else np.asarray(found.start.x, np.float64)

    def descend(
        choose: Callable[[np.ndarray, np.ndarray], float], z: np.ndarray = first
    ) -> tuple[list[float], list[float], np.ndarray]:
        steps = []
        distances = []
        for _ in range(settings.horizon):
            g = np.asarray(gradient(jnp.asarray(z, family.dtype)), np.float64)
            steps.append(choose(g, z - optimum))
            z = z - steps[-1] * g
            distances.append(float(np.sqrt(np.mean(np.sum((z - optimum) ** 2, axis=0)))))
        return steps, distances, z

    steps, distances, z = descend(lambda g, e: one_step(g.T, e.T))
    (h,) = algorithm.hyperparameters(family)
    least, most = (c / family.lipschitz for c in recipe.single_steps)
    trials = np.geomspace(least, most, recipe.single_grid)

    def measure_constant(t: float, z: np.ndarray = first) -> list[float]:
        return descend(lambda g, e: t, z)[1]

    flat = min((float(t) for t in trials), key=lambda t: float(np.mean(np.log(measure_constant(t)))))
    every = recipe.watched
    ends = [k for k in range(1, settings.horizon + 1) if k % every == 0 or k == settings.horizon]
    constant = measure_constant(flat)
    comparison = Comparison(
        steps=tuple(ends),
        schedule=tuple(distances[k - 1] for k in ends),
        constant=tuple(constant[k - 1] for k in ends),
        measure="root mean square distance",
    )
    # A step of zero is not admissible, and there is nothing left to step for.
    count = next((k for k, t in enumerate(steps) if t <= 0), len(steps))
    lasting = min((h.default, flat), key=lambda t: measure_constant(t, z)[-1])
    schedule = Schedule(
        {h.name: steps[:count]},
        {h.name: lasting},
        warm=found.start is not None,
        blocks=_join_blocks([1] * count, recipe),
    )
    return Choice(schedule, Schedule({}, {h.name: flat}), comparison, "the exact schedule, one step at a time")
