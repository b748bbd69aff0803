"""Products of cones: what a conic program asks of all its cones together."""

from collections.abc import Iterable
from typing import Any, SupportsIndex

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from .base import ClarabelCone, Cone
from .registry import KINDS


class Cones(eqx.Module):
    """K = {0}^zero × R₊^nonnegative × second-order × semidefinite × exponential × power cones, rows in this order.

    - `zero`, `nonnegative`: the number of rows.
    - `second_order`: the size of every cone {(t, v): ‖v‖ ≤ t}, t first.
    - `semidefinite`: the order k of every matrix, which takes k(k+1)/2 rows: the lower triangle by columns,
      off-diagonal entries times √2.
    - `exponential`: the number of cones {(x, y, z): y·exp(x/y) ≤ z, y > 0}, closed, of three rows each.
    - `power`: the exponent a, 0 < a < 1, of every cone {(x, y, z): xᵃ·y¹⁻ᵃ ≥ |z|, x, y ≥ 0} of three rows.

    All conventions are SCS's. A size that was given is an attribute: `cones.second_order`.

    >>> cones = Cones(zero=1, second_order=(3,), exponential=2)
    >>> cones.size, cones.second_order, cones.power
    (10, (3,), ())
    """

    kinds: tuple[Cone, ...] = eqx.field(static=True)

    def __init__(
        self,
        zero: SupportsIndex = 0,
        nonnegative: SupportsIndex = 0,
        second_order: int | Iterable[SupportsIndex] = (),
        semidefinite: int | Iterable[SupportsIndex] = (),
        **further: object,
    ):
        given: dict[str, object] = {
            "zero": zero,
            "nonnegative": nonnegative,
            "second_order": second_order,
            "semidefinite": semidefinite,
        }
        given |= further
        unknown = [name for name in given if name not in {kind.name for kind in KINDS}]
        if unknown:
            known = ", ".join(kind.name for kind in KINDS)
            raise TypeError(f"there is no cone {', '.join(map(repr, unknown))}; the cones are {known}")
        self.kinds = tuple(kind(given.get(kind.name, kind.empty)) for kind in KINDS)

    def __getattr__(self, name: str) -> Any:
        if name in {kind.name for kind in KINDS}:
            return next(kind.sizes for kind in self.kinds if kind.name == name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @override
    def __repr__(self) -> str:
        return f"Cones({', '.join(f'{cone.name}={cone.sizes!r}' for cone in self.parts)})"

    @property
    def parts(self) -> list[Cone]:
        """The kinds of cones that have rows, in the order of the rows."""
        return [cone for cone in self.kinds if cone.rows]

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(cone.rows for cone in self.kinds)

    @property
    def equalities(self) -> Bool[np.ndarray, " m"]:
        """Which rows are equalities: those of the zero cone."""
        return np.repeat([cone.equality for cone in self.kinds], [cone.rows for cone in self.kinds])

    def blocks(self) -> Int[np.ndarray, " m"]:
        """Return a number for every row; rows that must share one scale, as those of a second-order cone, share
        theirs."""
        sizes = []
        for cone in self.kinds:
            if cone.joint:
                sizes += cone.each
            else:
                sizes += [1] * cone.rows
        return np.repeat(np.arange(len(sizes)), np.array(sizes, int))

    def project(self, v: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
        """Return Π_K(v)."""
        parts = [cone.project(part) for cone, part in self._split(v)]
        return jnp.concatenate(parts) if parts else v

    def project_dual(self, v: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
        """Return Π_K*(v), each cone onto its own dual."""
        parts = [cone.project_dual(part) for cone, part in self._split(v)]
        return jnp.concatenate(parts) if parts else v

    def _split(self, v: Float[Array, "m *N"]) -> list[tuple[Cone, Float[Array, "rows *N"]]]:
        ends = np.cumsum([cone.rows for cone in self.parts])
        return [(cone, v[end - cone.rows : end]) for cone, end in zip(self.parts, ends, strict=True)]

    def clarabel(self) -> tuple[list[ClarabelCone], Int[np.ndarray, " m"]]:
        """Return Clarabel's cones, each as its class and what it is made with, and our rows in their order."""
        starts = np.cumsum([0, *(cone.rows for cone in self.parts)])
        order = [start + cone.clarabel_order() for start, cone in zip(starts[:-1], self.parts, strict=True)]
        return [pair for cone in self.parts for pair in cone.clarabel()], np.concatenate([np.arange(0), *order])

    def scs(self) -> dict[str, int | list[int] | list[float]]:
        """Return the dictionary of cones of the package `scs`."""
        return {cone.scs: cone.to_json() for cone in self.parts}

    def to_json(self) -> dict[str, int | list[int] | list[float]]:
        """Return the sizes by name, from which `Cones(**sizes)` makes the same product."""
        return {cone.name: cone.to_json() for cone in self.kinds if cone.rows or cone.always_kept}

    def hashed(self) -> tuple:
        """Return what a content hash is made of."""
        always = tuple(cone.sizes for cone in self.kinds if cone.always_kept)
        return *always, *((cone.name, cone.sizes) for cone in self.parts if not cone.always_kept)
