"""Square systems that may be singular."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float

from .matrix import product

# Pivots and singular values below this part of the largest, times the order and the rounding unit, are zero.
_ROUNDING = 10.0


def solve_least_norm(J: Float[Array, "k k"], r: Float[Array, " k"]) -> Float[Array, " k"]:
    """Return J⁻¹r or, where J is singular to rounding, J⁺r: the shortest of the vectors that come closest to r.

    It is linear in r, for both modes of differentiation, and costs a factorization of J; of a stack of matrices
    under `vmap`, where the singular value decompositions are made only if one of them is singular.
    """
    if r.shape[0] == 0:
        return r

    def solve(direction: "_Solve") -> Callable[..., Float[Array, " k"]]:
        return lambda _, right: direction(J[None], right[None, :, None])[0, :, 0]

    return jax.lax.custom_linear_solve(lambda z: product(J, z), r, solve(_along), solve(_across))


_Solve = Callable[[Float[Array, "N k k"], Float[Array, "N k c"]], Float[Array, "N k c"]]


def _make_solve(transposed: bool) -> _Solve:
    """Return the solve of N systems, or of their transposes, with c right-hand sides each."""
    program = jax.jit(functools.partial(_solve_stack, transposed))

    @custom_vmap
    def solve(J: Array, right: Array) -> Array:
        return program(J, right)

    @solve.def_vmap
    def _(count: int, batched: list[bool], J: Array, right: Array) -> tuple[Array, bool]:
        # Further right-hand sides of the same systems are further columns, and further systems a longer stack.
        if not batched[0]:
            N, k, c = right.shape[1:]
            wide = jnp.moveaxis(right, 0, 2).reshape(N, k, count * c)
            return jnp.moveaxis(solve(J, wide).reshape(N, k, count, c), 2, 0), True
        if not batched[1]:
            right = jnp.broadcast_to(right, (count, *right.shape))
        found = solve(J.reshape(-1, *J.shape[2:]), right.reshape(-1, *right.shape[2:]))
        return found.reshape(right.shape), True

    return solve


def _solve_stack(transposed: bool, J: Float[Array, "N k k"], right: Float[Array, "N k c"]) -> Float[Array, "N k c"]:
    factor, pivots = jax.vmap(jax.scipy.linalg.lu_factor)(J)
    # Of the matrix itself in both directions, so that they agree on what is singular.
    direct = jax.vmap(functools.partial(jax.scipy.linalg.lu_solve, trans=int(transposed)))((factor, pivots), right)
    sizes = jnp.abs(jnp.diagonal(factor, axis1=1, axis2=2))
    floor = _ROUNDING * J.shape[-1] * float(jnp.finfo(J.dtype).eps)
    singular = jnp.min(sizes, axis=1) <= floor * jnp.max(sizes, axis=1)

    def shorten() -> Array:
        return jnp.where(singular[:, None, None], _apply_pseudo_inverse(J, right, singular, floor, transposed), direct)

    return jax.lax.cond(jnp.any(singular), shorten, lambda: direct)


def _apply_pseudo_inverse(
    J: Float[Array, "N k k"], right: Float[Array, "N k c"], singular: Bool[Array, " N"], floor: float, transposed: bool
) -> Float[Array, "N k c"]:
    # The others need not be finite.
    left, values, other = jnp.linalg.svd(jnp.where(singular[:, None, None], J, 0.0))
    kept = values > floor * values[:, :1]
    inverse = jnp.where(kept, 1 / jnp.where(kept, values, 1.0), 0.0)[..., None]
    if transposed:
        return product(left, inverse * product(other, right))
    return product(jnp.swapaxes(other, 1, 2), inverse * product(jnp.swapaxes(left, 1, 2), right))


_along = _make_solve(False)
_across = _make_solve(True)
