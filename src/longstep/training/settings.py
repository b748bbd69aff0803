"""What is asked of a training, checked, and what each of its parts finds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..algorithms.base import Algorithm
from ..families.base import Family
from ..linalg.real import real_number
from ..schedules.domain import Hyperparameter
from .losses import Loss
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
    joint: bool | None = None
    metric: bool = True
    start: str = "zero"
    lengthening: bool = False
    seed: int = 0

    def groups(self, count: int) -> np.ndarray:
        """Which factorization each of the first steps uses, where their number is limited; the last is the steady's."""
        assert self.factorizations is not None
        return np.arange(count) * (self.factorizations - 1) // max(self.horizon, 1)


@dataclass(frozen=True)
class Learned:
    """One finished part of a training: `constant`, `block`, `steady`, or `joint`, all steps once more.

    `theta` holds what was learned, by name: one value for every step (for `constant` and `steady` one value; for
    `joint` the steady state comes last).
    """

    kind: str
    theta: Values
    loss: float
    loss_before: float
    evaluations: int
    seconds: float

    def __len__(self) -> int:
        """How many steps it has."""
        return len(next(iter(self.theta.values())))


def choose_recipe(family: Family) -> Recipe:
    """Return the numbers to train a family with, where nobody says otherwise."""
    return SPARSE if family.sparse else DEFAULT


def choose_effort(recipe: Recipe, algorithm: Algorithm, family: Family) -> Effort:
    """Iterations for a block and starts, by what a step costs."""
    pattern = algorithm.pattern(family)
    if pattern is None:
        return recipe.effort_without_factors
    if pattern.spectral:
        return recipe.effort_with_shared_eigenvectors
    return recipe.effort_with_factors if family.n <= recipe.large else recipe.effort_with_large_factors


def check_count(name: str, value: int) -> int:
    """The whole number, at least 1."""
    if int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return int(value)


def check_fixed(hyperparameters: tuple[Hyperparameter, ...], fixed: Mapping[str, float]) -> dict[str, float]:
    """The values to hold, each inside its domain."""
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
    """The names to learn: those that are named, or all that are not held."""
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
