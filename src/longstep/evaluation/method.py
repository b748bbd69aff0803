"""What evaluation and certificates ask of a method: a learned solver, a baseline or a C package."""

from typing import Any, Protocol

import numpy as np

from ..engine.solution import History
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

    def run(self, parameters: Any, count: int) -> History:
        """Residuals and objectives of the start (column 0) and after each of `count` iterations, (N, count + 1)."""
        ...

    def seconds(self, parameters: Any, count: int) -> np.ndarray:
        """Wall-clock seconds (N,) that `count` iterations take for each instance, without recording or compiling."""
        ...

    def content_hash(self) -> str:
        """Equal exactly for methods that give the same iterates: certificates name the method by it."""
        ...
