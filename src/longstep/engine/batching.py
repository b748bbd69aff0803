"""Where a batch runs: how many instances at a time, and how they are spread over several devices."""

import os
from typing import Any

import jax
import numpy as np

from .._util.memory import available

# On one CPU pieces that fit the cache beat one wide product; accelerators want width.
_ON_CPU, _ON_ACCELERATORS = 512, 100_000
# A run holds so many copies of its state: the present, previous and best one, the safeguard's, and work space.
_COPIES = 12


def workers() -> int:
    """How many pieces of a batch run side by side: as many as there are cores where one CPU is the only device."""
    return (os.cpu_count() or 1) if _one_cpu() else 1


def chunk(numbers: int, itemsize: int) -> int:
    """How many instances run at a time whose states have so many numbers: what is fast, and fits into memory."""
    if _one_cpu():
        return _ON_CPU
    devices = len(jax.devices())
    fits = int(0.5 * devices * available() / max(_COPIES * numbers * itemsize, 1))
    return max(min(_ON_ACCELERATORS * devices, fits), devices)


def spread(arrays: Any, axis: int) -> Any:
    """Host arrays with instances on `axis`, an equal part on every device; the compiled program follows them.

    On one device they stay where they are: the program takes them there.
    """
    devices = jax.devices()
    if len(devices) == 1:
        return arrays
    mesh = jax.sharding.Mesh(np.array(devices), ("instances",))

    def put(array: Any) -> Any:
        names = [None] * np.ndim(array)
        names[axis] = "instances"  # type: ignore
        return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names)))

    return jax.tree.map(put, arrays)


def everywhere(arrays: Any) -> Any:
    """Arrays that all instances share, on every device."""
    devices = jax.devices()
    if len(devices) == 1:
        return arrays
    mesh = jax.sharding.Mesh(np.array(devices), ("instances",))
    return jax.device_put(arrays, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


def _one_cpu() -> bool:
    devices = jax.devices()
    return len(devices) == 1 and devices[0].platform == "cpu"
