"""Projections onto products of cones: zero, nonnegative, second-order, positive semidefinite."""

import itertools
import math
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.matrix import product, two_norm


def _sizes(sizes: Any) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(operator.index(k) for k in sizes)


class Cones(eqx.Module):
    """K = {0}^zero × R₊^nonnegative × second-order cones × semidefinite cones, rows in this order.

    A second-order cone of size k is {(t, v): ‖v‖ ≤ t}, t first. A semidefinite cone of order k takes
    k(k+1)/2 rows: the lower triangle by columns, off-diagonal entries times √2 (as in SCS).
    """

    zero: int = eqx.field(static=True, default=0, converter=operator.index)
    nonnegative: int = eqx.field(static=True, default=0, converter=operator.index)
    second_order: tuple[int, ...] = eqx.field(static=True, default=(), converter=_sizes)
    semidefinite: tuple[int, ...] = eqx.field(static=True, default=(), converter=_sizes)

    def __check_init__(self):
        sizes = (self.zero, self.nonnegative, *self.second_order, *self.semidefinite)
        if any(k < 0 for k in sizes):
            raise ValueError(f"cone sizes must be non-negative integers, got {self!r}")
        if any(k == 0 for k in (*self.second_order, *self.semidefinite)):
            raise ValueError(f"second-order and semidefinite cones need a size of at least 1, got {self!r}")

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.zero + self.nonnegative + sum(self.second_order) + sum(map(triangle, self.semidefinite))

    def blocks(self) -> np.ndarray:
        """A number for every row; rows of one second-order or semidefinite cone share theirs."""
        separate = self.zero + self.nonnegative
        sizes = [*self.second_order, *map(triangle, self.semidefinite)]
        joint = np.repeat(np.arange(separate, separate + len(sizes)), sizes)
        return np.concatenate([np.arange(separate), joint]).astype(int)

    def project(self, v: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
        """Π_K(v)."""
        return self._project(v, jnp.zeros_like(v[: self.zero]))

    def project_dual(self, v: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
        """Π_K*(v): free on the zero-cone rows; the other cones are their own duals."""
        return self._project(v, v[: self.zero])

    def _project(self, v, zero_part):
        parts, start = [zero_part], self.zero
        parts.append(jnp.maximum(v[start : start + self.nonnegative], 0.0))
        start += self.nonnegative
        # Neighbours of equal size are projected together.
        for k, group in itertools.groupby(self.second_order):
            count = len(list(group))
            cone = v[start : start + count * k].reshape(count, k, *v.shape[1:])
            parts.append(project_second_order(cone).reshape(count * k, *v.shape[1:]))
            start += count * k
        for k, group in itertools.groupby(self.semidefinite):
            count, rows = len(list(group)), triangle(k)
            cone = after(v[start : start + count * rows], parts[-1]).reshape(count, rows, *v.shape[1:])
            cone = to_triangle(project_semidefinite(to_symmetric(jnp.moveaxis(cone, 1, -1), k)))
            parts.append(jnp.moveaxis(cone, -1, 1).reshape(count * rows, *v.shape[1:]))
            start += count * rows
        return jnp.concatenate(parts)


def after(v: Float[Array, "k *N"], before: Float[Array, "l *N"]) -> Float[Array, "k *N"]:
    """v, to be had only when `before` is there.

    Two batched eigendecompositions that do not depend on each other can block each other for good on a CPU: each waits,
    on a thread that the other needs, for its own pieces (seen with JAX 0.10.2 on two cores). Barriers of XLA are gone
    before it plans the work; a product with zero is not.
    """
    return v + 0 * before[-1:] if before.shape[0] else v


def triangle(k: int) -> int:
    """Rows of a semidefinite cone of order k."""
    return k * (k + 1) // 2


def project_second_order(v: Float[Array, "count k *N"]) -> Float[Array, "count k *N"]:
    """Onto {(t, u): ‖u‖ ≤ t}, along axis 1; finite derivatives everywhere, the apex included."""
    t, u = v[:, :1], v[:, 1:]
    norm = two_norm(jnp.moveaxis(u, 1, 0))[:, None]
    inside, polar = norm <= t, norm <= -t
    ratio = 0.5 * (1.0 + t / jnp.where(norm == 0, 1.0, norm))
    boundary = jnp.concatenate([ratio * norm, ratio * u], axis=1)
    return jnp.where(inside, v, jnp.where(polar, 0.0, boundary))


def to_symmetric(v: Float[Array, "*B t"], k: int) -> Float[Array, "*B k k"]:
    """The symmetric matrix of a scaled lower triangle by columns."""
    place = np.zeros((k, k), int)
    column, row = np.triu_indices(k)
    place[row, column] = place[column, row] = np.arange(triangle(k))
    scale = jnp.asarray(np.where(np.eye(k) > 0, 1.0, math.sqrt(0.5)), v.dtype)
    return v[..., place] * scale


def to_triangle(X: Float[Array, "*B k k"]) -> Float[Array, "*B t"]:
    """The inverse of `to_symmetric`."""
    column, row = np.triu_indices(X.shape[-1])
    scale = jnp.asarray(np.where(row == column, 1.0, math.sqrt(2.0)), X.dtype)
    return X[..., row, column] * scale


@jax.custom_jvp
def project_semidefinite(X: Float[Array, "*B k k"]) -> Float[Array, "*B k k"]:
    """Onto the positive semidefinite matrices."""
    values, vectors = jnp.linalg.eigh(X)
    return product(vectors * jnp.maximum(values, 0.0)[..., None, :], jnp.swapaxes(vectors, -1, -2))


@project_semidefinite.defjvp
def _project_semidefinite_jvp(primals, tangents):
    # Through divided differences of max(λ, 0): eigh's own derivative divides by λᵢ − λⱼ and is NaN at ties.
    (X,), (dX,) = primals, tangents
    values, vectors = jnp.linalg.eigh(X)
    transposed = jnp.swapaxes(vectors, -1, -2)
    positive = jnp.maximum(values, 0.0)
    a, b = values[..., :, None], values[..., None, :]
    mixed = (a > 0) != (b > 0)
    difference = jnp.where(mixed, a - b, 1.0)
    quotient = (positive[..., :, None] - positive[..., None, :]) / difference
    divided = jnp.where(mixed, quotient, (a > 0).astype(X.dtype))
    symmetric = 0.5 * (dX + jnp.swapaxes(dX, -1, -2))
    out = product(vectors * positive[..., None, :], transposed)
    inside = divided * product(product(transposed, symmetric), vectors)
    return out, product(product(vectors, inside), transposed)
