"""The zero cone: equalities."""

from typing import ClassVar

import jax.numpy as jnp

from .base import Cone, checked_count


class Zero(Cone):
    """{0}, whose dual is the whole space."""

    name: ClassVar[str] = "zero"
    title: ClassVar[str] = "zero"
    joint: ClassVar[bool] = False
    equality: ClassVar[bool] = True
    scs: ClassVar[str] = "z"
    cvxpy: ClassVar[tuple[str, ...]] = ("Zero",)
    cvxpy_dims: ClassVar[str] = "zero"
    c_part: ClassVar[str | None] = "project.c"
    empty: ClassVar[int] = 0

    checked = staticmethod(checked_count)

    @property
    def each(self):  # noqa: D102
        return (self.sizes,)

    def project(self, v):  # noqa: D102
        return jnp.zeros_like(v)

    def project_dual(self, v):  # noqa: D102
        return v

    def clarabel(self):  # noqa: D102
        return [("ZeroConeT", self.sizes)]
