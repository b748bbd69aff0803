"""What evaluation and certificates ask of a method: a learned solver, a baseline or a C package."""

from typing import Protocol

import numpy as np
from jaxtyping import PyTree

from ..engine.history import History
from ..families.base import Family


class Method(Protocol):
    """Anything that runs a number of iterations on instances of a family; `Solver` is one."""

    @property
    def name(self) -> str:
        """A few words for tables and figures."""
        ...

    @property
    def family(self) -> Family:
        """What it solves."""
        ...

    def run(self, parameters: PyTree, count: int) -> History:
        """Return residuals and objectives (N, count + 1): of the start, and after each of `count` iterations."""
        ...

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return the seconds (N,) that `count` iterations take for each instance, without recording or compiling."""
        ...

    def content_hash(self) -> str:
        """Return a hash, equal exactly for methods with the same iterates: certificates name the method by it."""
        ...
