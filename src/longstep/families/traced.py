"""Parameters that JAX may be tracing: names and shapes can be checked, values cannot."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..linalg.real import read_plain_array
from .affine import Affine, WorkingMap
from .names import Block, Layout

_ONE = "this is a function of one instance: for several, apply jax.vmap to it"


def trace_array(name: str, value: object, shape: tuple[int, ...], dtype: np.dtype) -> Float[Array, "*shape"]:
    """Return a value as an array of this precision; another shape, or what is no real number, is refused."""
    array = value if isinstance(value, jax.Array) else read_plain_array(name, value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real numbers, got complex ones")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}; {_ONE}")
    return jnp.asarray(array, dtype)


def trace_vector(
    parameter: object,
    map_of: Affine | None,
    mapped: WorkingMap | None,
    layout: Layout | None,
    base: Mapping[str, np.ndarray | None],
    dtype: np.dtype,
) -> Float[Array, " size"] | None:
    """Return the vector that a family's parameter map takes, from that vector or from named values; None for the data
    of an instance by name, where values have no names of their own."""
    if isinstance(parameter, Mapping):
        if layout is None:
            return None
        return trace_names(layout, parameter, dtype)
    if map_of is None:
        raise ValueError(
            f"this family has no parameter map, so an instance is given by name, with some of {', '.join(base)}; "
            f"got {type(parameter).__name__}. Give the family parameter=Affine(…) to use parameter vectors."
        )
    if mapped is None:
        missing = [name for name in base if base[name] is None and name not in map_of.matrices]
        raise ValueError(f"an instance needs {', '.join(missing)}: give the family a base value")
    return trace_array("the parameter", parameter, (map_of.size,), dtype)


def trace_data(
    named: Mapping[str, object],
    base: Mapping[str, np.ndarray | None],
    sizes: Mapping[str, int],
    dtype: np.dtype,
) -> dict[str, Float[Array, " rows"]]:
    """Return the data of one instance: those given by name, and the base values of the others."""
    unknown = sorted(str(name) for name in named if name not in base)
    if unknown:
        raise ValueError(f"unknown instance data {', '.join(unknown)}; this family has {', '.join(base)}")
    missing = [name for name in base if name not in named and base[name] is None]
    if missing:
        raise ValueError(
            f"an instance needs {', '.join(missing)}: put it in the instance or give the family a base value"
        )
    return {name: trace_array(name, named.get(name, base[name]), (sizes[name],), dtype) for name in base}


def trace_names(layout: Layout, named: Mapping[str, object], dtype: np.dtype) -> Float[Array, " size"]:
    """Return the parameter vector of named values.

    Where several places of an array are one entry of the vector, as in a symmetric matrix, the entry is their mean:
    so derivatives are symmetric too.
    """
    layout.check_names(named)
    parts = []
    for name, block in layout.parameters.items():
        array = trace_array(f"the value of {name!r}", named[name], block.shape, dtype)
        parts.append(_average_places(block, array.ravel()))
    return jnp.concatenate([jnp.zeros(0, dtype), *parts])


def _average_places(block: Block, flat: Float[Array, " places"]) -> Float[Array, " entries"]:
    held = np.flatnonzero(block.place.ravel() >= 0)
    _, entry, times = np.unique(block.place.ravel()[held], return_inverse=True, return_counts=True)
    if times.size == flat.size:
        return flat[block.first]
    return jnp.zeros(times.size, flat.dtype).at[entry].add(flat[held]) / times.astype(flat.dtype)
