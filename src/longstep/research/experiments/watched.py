"""A method of which more is kept than is evaluated."""

import numpy as np
from jaxtyping import PyTree

from ...engine.history import History
from ...evaluation.method import Method


class Watched:
    """A method whose primal and dual residuals are kept beside what is evaluated: one run serves three metrics."""

    def __init__(self, method: Method, constrained: bool):
        self.method = method
        self.family = method.family
        self.constrained = constrained
        self.histories: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name

    def run(self, parameters: PyTree, count: int) -> History:
        """Run the method and keep its residuals."""
        history = self.method.run(parameters, count)
        if self.constrained:
            self.histories.append((np.asarray(history.primal, np.float32), np.asarray(history.dual, np.float32)))
        return history

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return the time of the method alone."""
        return self.method.seconds(parameters, count)

    def content_hash(self) -> str:
        """Return the hash of the method alone."""
        return self.method.content_hash()

    def sides(self, count: int) -> dict[str, np.ndarray]:
        """Return both residuals of all instances; the last chunk is padded at its end."""
        if not self.histories:
            return {}
        joined = (np.concatenate(side)[:count] for side in zip(*self.histories, strict=True))
        return dict(zip(("primal", "dual"), joined, strict=True))
