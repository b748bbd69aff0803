"""Where a batch runs: how many instances at a time, and how they are spread over several devices."""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import numpy as np

from .._util.memory import measure_available

SolvedT = TypeVar("SolvedT")
TreeT = TypeVar("TreeT")

# On one CPU pieces that fit the cache beat one wide product; accelerators want width.
_ON_CPU = 512
_ON_ACCELERATORS = 100_000
# Pieces up to this width have few shapes, and batches of up to so many such pieces one: it takes seconds to compile.
_NARROW = 64
_FEW = 4
# A run holds so many copies of its state: the present, previous and best one, the safeguard's, and work space.
_COPIES = 12


def workers() -> int:
    """Return how many pieces of a batch run side by side: as many as there are cores where one CPU is the only
    device."""
    if not _has_one_cpu():
        return 1
    return count_cores()


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def wants_width() -> bool:
    """Return whether as many instances as fit into memory should run at a time, as on accelerators."""
    return not _has_one_cpu()


def chunk(numbers: int, itemsize: int) -> int:
    """Return how many instances run at a time whose states have `numbers` numbers: what is fast, and fits into
    memory."""
    if not wants_width():
        return _ON_CPU
    devices = len(jax.devices())
    return max(min(_ON_ACCELERATORS * devices, devices * count_fitting(_COPIES * numbers * itemsize)), devices)


def choose_narrow(count: int) -> int:
    """Return how many of `count` instances run at a time where all numbers of them share one shape: on a CPU."""
    if not _has_one_cpu():
        return count
    return _NARROW


def count_fitting(size: float) -> int:
    """Return how many instances fit into half the memory of a device, each of which takes `size` bytes."""
    return int(0.5 * measure_available() / max(size, 1))


def divide(count: int, largest: int) -> list[tuple[int, int]]:
    """Return (start, width) of the equal pieces of a batch, none wider than `largest` but for rounding.

    All have one shape, and few shapes are compiled: up to _NARROW instances widths are powers of two, a few times as
    many are pieces of that width, and others are rounded up to what the devices divide.
    """
    side_by_side = workers()
    devices = len(jax.devices())
    number = -(-count // largest)
    if count >= 2 * _NARROW:
        number = -(-number // side_by_side) * side_by_side
    width = -(-count // number)
    if width <= _NARROW:
        width = 1 << (width - 1).bit_length()
    elif _has_one_cpu() and count <= _FEW * _NARROW:
        width = _NARROW
    else:
        width = -(-width // 4) * 4
    width = -(-width // devices) * devices
    return [(start, width) for start in range(0, count, width)]


def widen(count: int, like: int) -> int:
    """Return a number of instances, `count` or more, whose pieces have the shape of those of `like` many."""
    if not (_has_one_cpu() and _NARROW < like <= _FEW * _NARROW):
        return like
    return -(-count // _NARROW) * _NARROW


def run(solve: Callable[[int, int], SolvedT], pieces: list[tuple[int, int]]) -> list[SolvedT]:
    """Return what `solve(start, width)` gives for every piece, in order."""
    if workers() == 1 or len(pieces) == 1:
        return [solve(*piece) for piece in pieces]
    # The compiled program releases the interpreter, and pieces that fit the cache beat one wide product.
    return list(_open_threads("pieces", workers()).map(lambda piece: solve(*piece), pieces))


def run_within(work: Callable[[int], SolvedT], items: Sequence[int]) -> list[SolvedT]:
    """Return what `work` gives for every item, in order, several at a time; called from a piece or by itself."""
    if workers() == 1 or len(items) == 1:
        return [work(item) for item in items]
    return list(_open_threads("within", workers()).map(work, items))


def spread(arrays: TreeT, axis: int) -> TreeT:
    """Put host arrays with instances on `axis`, an equal part on every device; the compiled program follows them.

    On one device they stay where they are: the program takes them there.
    """
    devices = jax.devices()
    if len(devices) == 1:
        return arrays
    mesh = jax.sharding.Mesh(np.array(devices), ("instances",))

    def put(array: np.ndarray) -> jax.Array:
        names: list[str | None] = [None] * np.ndim(array)
        names[axis] = "instances"
        return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names)))

    return jax.tree.map(put, arrays)


def share_everywhere(arrays: TreeT) -> TreeT:
    """Put arrays that all instances share on every device."""
    devices = jax.devices()
    if len(devices) == 1:
        return arrays
    mesh = jax.sharding.Mesh(np.array(devices), ("instances",))
    return jax.device_put(arrays, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


@functools.cache
def _open_threads(name: str, number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix=f"longstep-{name}")


def _has_one_cpu() -> bool:
    devices = jax.devices()
    return len(devices) == 1 and devices[0].platform == "cpu"
