"""The nonnegative cone: inequalities."""

from typing import ClassVar

import jax.numpy as jnp

from .base import Cone, checked_count


class Nonnegative(Cone):
    """R₊, its own dual."""

    name: ClassVar[str] = "nonnegative"
    title: ClassVar[str] = "nonnegative"
    joint: ClassVar[bool] = False
    scs: ClassVar[str] = "l"
    cvxpy: ClassVar[tuple[str, ...]] = ("NonNeg",)
    cvxpy_dims: ClassVar[str] = "nonneg"
    c_part: ClassVar[str | None] = "project.c"
    empty: ClassVar[int] = 0

    checked = staticmethod(checked_count)

    @property
    def each(self):  # noqa: D102
        return (self.sizes,)

    def project(self, v):  # noqa: D102
        return jnp.maximum(v, 0.0)

    def project_dual(self, v):  # noqa: D102
        return self.project(v)

    def clarabel(self):  # noqa: D102
        return [("NonnegativeConeT", self.sizes)]
