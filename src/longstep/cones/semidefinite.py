"""The cone of positive semidefinite matrices."""

import itertools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from ..linalg.matrix import product
from .base import Cone, check_orders


class Semidefinite(Cone[tuple[int, ...]]):
    """Positive semidefinite matrices, its own dual; a size is the order k of the matrix.

    One takes k(k+1)/2 rows: the lower triangle by columns, off-diagonal entries times √2 (as in SCS).
    """

    name: ClassVar[str] = "semidefinite"
    title: ClassVar[str] = "semidefinite"
    scs: ClassVar[str] = "s"
    cvxpy: ClassVar[tuple[str, ...]] = ("PSD", "SvecPSD")
    cvxpy_dims: ClassVar[str] = "psd"
    always_kept: ClassVar[bool] = True
    c_part: ClassVar[str | None] = "semidefinite.c"
    # Jacobi's rotations, by which C finds eigenvalues, take about 40·k³ operations.
    largest_in_c: ClassVar[int] = 64

    check_sizes = staticmethod(check_orders)

    @property
    @override
    def each(self):
        return tuple(map(triangle, self.sizes))

    @override
    def project(self, v):
        parts = []
        start = 0
        # Neighbours of equal size are projected together.
        for k, group in itertools.groupby(self.sizes):
            count = len(list(group))
            rows = triangle(k)
            cone = v[start : start + count * rows]
            cone = (wait_for(cone, parts[-1]) if parts else cone).reshape(count, rows, *v.shape[1:])
            cone = to_triangle(project_semidefinite(to_symmetric(jnp.moveaxis(cone, 1, -1), k)))
            parts.append(jnp.moveaxis(cone, -1, 1).reshape(count * rows, *v.shape[1:]))
            start += count * rows
        return jnp.concatenate(parts)

    @override
    def project_dual(self, v):
        return self.project(v)

    @override
    def clarabel(self):
        return [("PSDTriangleConeT", k) for k in self.sizes]

    @override
    def clarabel_order(self):
        """Return our rows in Clarabel's order: lower triangles by columns, where Clarabel has upper ones."""
        parts = [np.arange(0)]
        start = 0
        for k in self.sizes:
            column, row = np.triu_indices(k)
            ours = np.zeros((k, k), int)
            ours[row, column] = ours[column, row] = start + np.arange(len(row))
            parts.append(np.concatenate([ours[: j + 1, j] for j in range(k)]))
            start += len(row)
        return np.concatenate(parts)

    @override
    def refuse_c(self) -> str | None:
        largest = max(self.sizes, default=0)
        if largest <= self.largest_in_c:
            return super().refuse_c()
        return (
            f"C code is written for semidefinite cones up to order {self.largest_in_c}, this family has one of order "
            f"{largest}: its eigenvalues would take longer than all else"
        )

    @property
    @override
    def c_matrix(self) -> int:
        return max((k * k for k in self.sizes), default=1)

    @override
    def count_c_derivatives(self) -> dict[str, int]:
        return {"VALUES": sum(self.sizes), "VECTORS": sum(k * k for k in self.sizes)}


def wait_for(v: Float[Array, "k *N"], before: Float[Array, "l *N"]) -> Float[Array, "k *N"]:
    """Return v, to be had only when `before` is there.

    Two batched eigendecompositions that do not depend on each other can block each other for good on a CPU: each waits,
    on a thread that the other needs, for its own pieces (seen with JAX 0.10.2 on two cores). Barriers of XLA are gone
    before it plans the work; a product with zero is not.
    """
    return v + 0 * jnp.sum(before, axis=0) if before.shape[0] else v


def triangle(k: int) -> int:
    """Return the rows of a semidefinite cone of order k."""
    return k * (k + 1) // 2


def to_symmetric(v: Float[Array, "*B t"], k: int) -> Float[Array, "*B k k"]:
    """Return the symmetric matrix of a scaled lower triangle by columns."""
    place = np.zeros((k, k), int)
    column, row = np.triu_indices(k)
    place[row, column] = place[column, row] = np.arange(triangle(k))
    scale = jnp.asarray(np.where(np.eye(k) > 0, 1.0, math.sqrt(0.5)), v.dtype)
    return v[..., place] * scale


def to_triangle(X: Float[Array, "*B k k"]) -> Float[Array, "*B t"]:
    """Return the inverse of `to_symmetric`."""
    column, row = np.triu_indices(X.shape[-1])
    scale = jnp.asarray(np.where(row == column, 1.0, math.sqrt(2.0)), X.dtype)
    return X[..., row, column] * scale


@jax.custom_jvp
def project_semidefinite(X: Float[Array, "*B k k"]) -> Float[Array, "*B k k"]:
    """Project onto the positive semidefinite matrices."""
    values, vectors = jnp.linalg.eigh(X)
    return product(vectors * jnp.maximum(values, 0.0)[..., None, :], jnp.swapaxes(vectors, -1, -2))


@project_semidefinite.defjvp
def _project_semidefinite_jvp(primals, tangents):
    # Through divided differences of max(λ, 0): eigh's own derivative divides by λᵢ − λⱼ and is NaN at ties.
    (X,), (dX,) = primals, tangents
    values, vectors = jnp.linalg.eigh(X)
    transposed = jnp.swapaxes(vectors, -1, -2)
    positive = jnp.maximum(values, 0.0)
    a = values[..., :, None]
    b = values[..., None, :]
    mixed = (a > 0) != (b > 0)
    difference = jnp.where(mixed, a - b, 1.0)
    quotient = (positive[..., :, None] - positive[..., None, :]) / difference
    divided = jnp.where(mixed, quotient, (a > 0).astype(X.dtype))
    symmetric = 0.5 * (dX + jnp.swapaxes(dX, -1, -2))
    out = product(vectors * positive[..., None, :], transposed)
    inside = divided * product(product(transposed, symmetric), vectors)
    return out, product(product(vectors, inside), transposed)
