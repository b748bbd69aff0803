"""The zero cone: equalities."""

from typing import ClassVar

import jax.numpy as jnp
from typing_extensions import override

from .base import Cone, check_count


class ZeroCone(Cone[int]):
    """{0}, whose dual is the whole space."""

    name: ClassVar[str] = "zero"
    title: ClassVar[str] = "zero"
    joint: ClassVar[bool] = False
    equality: ClassVar[bool] = True
    scs: ClassVar[str] = "z"
    cvxpy: ClassVar[tuple[str, ...]] = ("Zero",)
    cvxpy_dims: ClassVar[str] = "zero"
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
        return jnp.zeros_like(v)

    @override
    def project_dual(self, v):
        return v

    @override
    def clarabel(self):
        return [("ZeroConeT", self.sizes)]
