"""The nonnegative cone: inequalities."""

from typing import ClassVar

import jax.numpy as jnp
from typing_extensions import override

from .base import Cone, check_count


class Nonnegative(Cone[int]):
    """R₊, its own dual."""

    name: ClassVar[str] = "nonnegative"
    title: ClassVar[str] = "nonnegative"
    joint: ClassVar[bool] = False
    scs: ClassVar[str] = "l"
    cvxpy: ClassVar[tuple[str, ...]] = ("NonNeg",)
    cvxpy_dims: ClassVar[str] = "nonneg"
    always_kept: ClassVar[bool] = True
    c_part: ClassVar[str | None] = "project.c"
    empty: ClassVar[int] = 0

    check_sizes = staticmethod(check_count)

    @property
    @override
    def each(self):
        return (self.sizes,)

    @override
    def project(self, v):
        return jnp.maximum(v, 0.0)

    @override
    def project_dual(self, v):
        return self.project(v)

    @override
    def clarabel(self):
        return [("NonnegativeConeT", self.sizes)]
