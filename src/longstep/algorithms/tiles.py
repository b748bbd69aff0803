"""Short steps of the condensed form in one kernel: a tile of instances stays on the chip over all of them.

Between its products a step reads and writes a few numbers for every inequality of every instance. Left to the compiler
these go to the memory of an accelerator and back at every step, which takes longer than the arithmetic. Here a program
of the grid loads the states of some instances, takes all steps, and writes them back; of the memory each step reads its
matrix alone, which all programs share.

The kernel is written in Pallas and compiled by Triton. It takes the very step that the plain path takes, so that this
is what it is tested against.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..linalg.matrix import product

# Instances of a tile, and warps that work on it: with four, single precision has no room for a tile in registers.
TILE = 32
WARPS = 8
# Rows are padded to a power of two, and to as many as a product of Triton's wants.
_LEAST = 16
# A matrix of a step has to fit beside the states: so many bytes, which is 64 rows in double precision.
_MOST = 1 << 16
# With fewer instances there are not enough tiles for all cores of a chip.
_FEW = 2048
# The first compute capability for which Triton compiles.
_CAPABILITY = (8, 0)

# From ρ⊙(z − a) − y to A K⁻¹A' of it.
Respond: TypeAlias = Callable[[Float[Array, "i *N"]], Float[Array, "i *N"]]


class Rows(NamedTuple):
    """What short steps read of instances, row by row: the values at v = 0, and the bounds, which all may share."""

    level: Float[Array, "i *N"]
    low: Float[Array, "i *one"]
    high: Float[Array, "i *two"]


class Steps(NamedTuple):
    """The steps of a schedule: ρ and α of each, a stack of matrices, and which of them each step has."""

    rho: Float[Array, "H i"]
    alpha: Float[Array, " H"]
    response: Float[Array, "S i i"]
    which: Int[Array, " H"]


def update(
    rho: Float[Array, "i *one"],
    alpha: Float[Array, ""],
    respond: Respond,
    rows: Rows,
    z: Float[Array, "i *N"],
    y: Float[Array, "i *N"],
) -> tuple[Float[Array, "i *N"], Float[Array, "i *N"]]:
    """Return the next (z, y) of a short step."""
    gap = rows.level + respond(rho * (z - rows.level) - y) - z
    return split(rho, alpha, gap, rows.low, rows.high, z, y)


def split(
    rho: Float[Array, "i *one"],
    alpha: Float[Array, ""],
    gap: Float[Array, "i *N"],
    low: Float[Array, "i *two"],
    high: Float[Array, "i *three"],
    z: Float[Array, "i *N"],
    y: Float[Array, "i *N"],
) -> tuple[Float[Array, "i *N"], Float[Array, "i *N"]]:
    """Return the next (z, y) from s − z."""
    # r + y/ρ
    total = z + alpha * gap + (1 / rho) * y
    following = jnp.clip(total, low, high)
    return following, rho * (total - following)


def suits(steps: Steps, z: Float[Array, "i *N"]) -> bool:
    """Return whether the kernel is for steps like these on this machine."""
    devices = jax.devices()
    if len(devices) != 1 or devices[0].platform != "gpu" or z.ndim != 2 or z.shape[1] < _FEW:
        return False
    return _pad(z.shape[0]) ** 2 * z.dtype.itemsize <= _MOST and _find_capability(devices[0]) >= _CAPABILITY


def _find_capability(device: Any) -> tuple[int, ...]:
    """Return the compute capability of a device; of those that have none, as other makers' are, nothing."""
    try:
        return tuple(int(part) for part in str(device.compute_capability).split("."))
    except (AttributeError, ValueError):
        return ()


def take_steps(
    steps: Steps,
    rows: Rows,
    first: int | Int[Array, ""],
    stop: int | Int[Array, ""],
    z: Float[Array, "i N"],
    y: Float[Array, "i N"],
    *,
    tile: int = TILE,
    warps: int = WARPS,
    interpret: bool = False,
) -> tuple[Float[Array, "i N"], Float[Array, "i N"]]:
    """Return (z, y) after steps first … stop − 1, by the kernel; `interpret` runs it on any device, slowly, to test
    it."""
    # Where JAX runs on other machines alone, these may not be installed, and they take a moment to import.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    m, count = z.shape
    padded = _pad(m)
    more = padded - m
    bounds = jnp.stack([jnp.asarray(first, jnp.int32), jnp.asarray(stop, jnp.int32)])
    rho = jnp.pad(steps.rho, ((0, 0), (0, more)), constant_values=1.0)
    response = jnp.pad(steps.response, ((0, 0), (0, more), (0, more)))
    # A tile is (rows, instances); what all instances share is one column of it.
    given = tuple(a.reshape(m, -1) for a in rows)
    kernel = functools.partial(_run_tile, m=m, padded=padded, count=count, tile=tile)
    call = pl.pallas_call(
        kernel,
        out_shape=(jax.ShapeDtypeStruct(z.shape, z.dtype), jax.ShapeDtypeStruct(y.shape, y.dtype)),
        grid=(pl.cdiv(count, tile),),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
        name="condensed_steps",
    )
    return call(bounds, steps.which.astype(jnp.int32), steps.alpha, rho, response, *given, z, y)


def _pad(m: int) -> int:
    """Return the number of rows of a tile."""
    return max(_LEAST, 1 << (m - 1).bit_length())


def _run_tile(
    bounds: Any,
    which: Any,
    alpha: Any,
    rho: Any,
    response: Any,
    level: Any,
    low: Any,
    high: Any,
    z: Any,
    y: Any,
    z_next: Any,
    y_next: Any,
    *,
    m: int,
    padded: int,
    count: int,
    tile: int,
) -> None:
    """Take all steps of the instances of one tile; the arguments are references to whole arrays."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    shape = (padded, tile)
    row = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    column = pl.program_id(0) * tile + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    within = (row < m) & (column < count)
    of_row = jax.lax.broadcasted_iota(jnp.int32, (padded,), 0)

    def load(ref: Any) -> Float[Array, "padded *tile"]:
        if ref.shape[1] == 1:
            return triton.load(ref.at[of_row, 0], mask=of_row < m, other=0.0)[:, None]
        return triton.load(ref.at[row, column], mask=within, other=0.0)

    rows = Rows(load(level), load(low), load(high))

    def step(k: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix = response[which[k]]
        return update(rho[k][:, None], alpha[k], functools.partial(product, matrix), rows, *state)

    z_end, y_end = jax.lax.fori_loop(bounds[0], bounds[1], step, (load(z), load(y)))
    triton.store(z_next.at[row, column], z_end, mask=within)
    triton.store(y_next.at[row, column], y_end, mask=within)
