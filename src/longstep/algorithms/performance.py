"""What performance estimation asks of an algorithm: its steps on unknown functions, as combinations of vectors."""

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias

from jaxtyping import Float
from numpy import ndarray

Criterion: TypeAlias = Literal["objective", "distance", "gradient"]
Coefficients: TypeAlias = Float[ndarray, " k"]
# ‖x‖² + Σ F_i as (x, *i), for each criterion.
ErrorForms: TypeAlias = dict[Criterion, Callable[[], tuple]]


class Estimation(Protocol):
    """An unknown function with L = 1 and the points at which it is asked; vectors are coefficients in unknown ones.

    `length` bounds how long the next unknown vector may be.
    """

    length: float

    @property
    def start(self) -> Coefficients:
        """z⁰ − z*."""
        ...

    def gradient(self, z: Coefficients) -> tuple[Coefficients, int]:
        """Return ∇f(z), and the index of f(z)."""
        ...

    def proximal_step(self, y: Coefficients, t: float) -> tuple[Coefficients, int]:
        """Return prox_{tg}(y − t∇f(y)), and the index of the value of g there."""
        ...


class Performance(NamedTuple):
    """An algorithm's form for performance estimation: its steps, sizes in units of 1/L, and its hyperparameters."""

    iterate: Callable[[Estimation, list[dict[str, float]]], ErrorForms]
    names: tuple[str, ...]
