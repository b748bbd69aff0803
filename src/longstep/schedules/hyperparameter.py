"""A hyperparameter of an algorithm."""

from typing import Literal, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Int

from .domain import Domain

# What a hyperparameter does in a step.
Role: TypeAlias = Literal["step", "momentum", "penalty", "scaling", "relaxation"]


class Hyperparameter(eqx.Module):
    """A hyperparameter of an algorithm on a family: its name, default, and the two domains.

    `factored` says that the cached factors depend on it. Its `role` is what others ask for, not its name. A scalar has
    a value for every step; a vector has one for all steps, with an entry for every row, and `entries` says which: rows
    that must share one, as those of one second-order cone, have the same number.
    """

    name: str = eqx.field(static=True)
    default: float = eqx.field(static=True)
    varying: Domain
    steady: Domain
    factored: bool = eqx.field(static=True, default=False)
    role: Role = eqx.field(static=True, kw_only=True)
    entries: Int[np.ndarray, " rows"] | None = None
