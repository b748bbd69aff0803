"""What is asked of a training, checked, and what each of its parts finds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..algorithms.base import Algorithm
from ..families.base import Family
from ..linalg.real import real_number
from ..schedules.domain import Fixed
from ..schedules.hyperparameter import Hyperparameter
from ..schedules.lengths import block_lengths
from .losses import Loss, resolve_loss
from .recipe import DEFAULT, SPARSE, Effort, Recipe

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Settings:
    """How a schedule is learned; `train` says what each of them means.

    Blocks have `lengths`; constants and the steady state are looked at over steps `block` at a time. `lengthening` says
    that there are as many blocks as pay.
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
    recipe: Recipe
    fixed: Mapping[str, float] = field(default_factory=dict)
    factorizations: int | None = None
    metric: bool = True
    start: str = "zero"
    lengthening: bool = False
    seed: int = 0

    def groups(self, count: int) -> np.ndarray:
        """Return which factorization each of the first steps uses, where their number is limited; the last is the
        steady's."""
        assert self.factorizations is not None
        return np.arange(count) * (self.factorizations - 1) // max(self.horizon, 1)


@dataclass(frozen=True)
class Wanted:
    """What the caller of `train` asked for, None where nothing: `settle` makes settings of it."""

    recipe: Recipe
    horizon: int | None
    block: int | Sequence[int]
    loss: "str | Loss | None"
    learn: Iterable[str] | None
    fixed: Mapping[str, float] | None
    factorizations: int | None
    optimizer: str
    iterations: int | None
    starts: int | None
    candidates: int | None
    metric: bool
    start: str
    seed: int

    def settle(self, family: Family, algorithm: Algorithm, work: Family) -> Settings:
        """Return the settings for an algorithm on a family, which works on `work`; what is not asked for is the
        recipe's."""
        recipe = self.recipe
        hyperparameters = algorithm.hyperparameters(family)
        usual_iterations, usual_starts = choose_effort(recipe, algorithm, work)
        factorizations = recipe.factorizations
        if self.factorizations is not None:
            factorizations = check_count("factorizations", self.factorizations)
        fixed = check_fixed(hyperparameters, self.fixed or {})
        searched = max(1, len(list_searched(hyperparameters, fixed)))
        horizon = check_count("horizon", _choose(self.horizon, recipe.horizon))
        return Settings(
            horizon=horizon,
            lengths=block_lengths(horizon, self.block),
            block=int(np.ravel(self.block)[0]),
            loss=resolve_loss(self.loss or "metric", recipe, monotone=algorithm.metric(family) is not None),
            optimizer=self.optimizer,
            iterations=check_count("iterations", _choose(self.iterations, usual_iterations)),
            starts=check_count("starts", _choose(self.starts, usual_starts)),
            candidates=check_count("candidates", _choose(self.candidates, recipe.candidates * searched)),
            learn=check_learn(hyperparameters, self.learn, fixed),
            recipe=recipe,
            fixed=fixed,
            factorizations=factorizations,
            metric=self.metric,
            start=self.start,
            lengthening=self.horizon is None,
            seed=self.seed,
        )


def list_searched(hyperparameters: Iterable[Hyperparameter], fixed: Mapping[str, float]) -> list[Hyperparameter]:
    """Return those whose best constant is not known beforehand."""
    return [h for h in hyperparameters if h.name not in fixed and not isinstance(h.steady, Fixed)]


def _choose(wanted: int | None, usual: int) -> int:
    """Return what is wanted, or the usual where that is nothing."""
    if wanted is None:
        return usual
    return wanted


@dataclass(frozen=True)
class LearnedPart:
    """One finished part of a training: `constant`, `metric`, `block` or `steady`.

    `theta` holds what was learned, by name: one value for every step, for `constant` and `steady` one value.
    """

    kind: str
    theta: Values
    loss: float
    loss_before: float
    evaluations: int
    seconds: float

    def __len__(self) -> int:
        """Return how many steps it has."""
        return len(next(iter(self.theta.values())))


def choose_recipe(family: Family) -> Recipe:
    """Return the numbers to train a family with, where nobody says otherwise."""
    return SPARSE if family.sparse else DEFAULT


def choose_effort(recipe: Recipe, algorithm: Algorithm, family: Family) -> Effort:
    """Return iterations for a block and starts, by what a step costs."""
    return recipe.effort_without_factors if algorithm.pattern(family) is None else recipe.effort_with_factors


def check_count(name: str, value: int) -> int:
    """Return the whole number, at least 1."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return int(value)


def check_fixed(hyperparameters: tuple[Hyperparameter, ...], fixed: Mapping[str, float]) -> dict[str, float]:
    """Return the values to hold, each inside its domain."""
    known = {h.name: h for h in hyperparameters}
    for name, value in fixed.items():
        if name not in known:
            raise ValueError(f"there is no hyperparameter {name!r} to fix; there are {', '.join(known)}")
        if not known[name].steady.contains(real_number(name, value)):
            raise ValueError(f"{name} = {value} cannot be held: it must lie in {known[name].steady.describe()}")
    return {name: float(value) for name, value in fixed.items()}


def check_learn(
    hyperparameters: tuple[Hyperparameter, ...], learn: Iterable[str] | None, fixed: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the names to learn: those that are named, or all that are not held."""
    names = [h.name for h in hyperparameters]
    if learn is None:
        return tuple(name for name in names if name not in fixed)
    chosen = (learn,) if isinstance(learn, str) else tuple(learn)
    for name in chosen:
        if name not in names:
            raise ValueError(f"there is no hyperparameter {name!r} to learn; there are {', '.join(names)}")
        if name in fixed:
            raise ValueError(f"{name} is to be learned and fixed at once")
    if not chosen:
        raise ValueError("learn names no hyperparameter; leave it out to learn all")
    return chosen
