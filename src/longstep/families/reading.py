"""What users give, read: precisions, parameters, named data and vectors."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike, DTypeLike

from .._util.processes import require_jax
from ..linalg.real import real_array

# What the user gives for one instance or several: an array, arrays by name, a list of these, or any pytree.
Parameters: TypeAlias = PyTree


def resolve_dtype(dtype: DTypeLike) -> np.dtype:
    """Return float32 or float64, refused where JAX would silently round it."""
    resolved: np.dtype = np.dtype(dtype)
    if resolved.name not in ("float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64, got {resolved}")
    require_jax(resolved)
    return resolved


def convert_lists(parameter: Parameters) -> Parameters:
    """Return lists of numbers as arrays, also in a dict; other parameters, pytrees included, as they are."""
    if isinstance(parameter, dict):
        return {name: convert_lists(value) for name, value in parameter.items()}

    if isinstance(parameter, list | tuple) and _has_numbers_alone(parameter):
        return np.asarray(parameter)
    return parameter


def _has_numbers_alone(parameter: object) -> bool:
    """Return whether lists, inside of each other, end in numbers everywhere."""
    if isinstance(parameter, list | tuple):
        return all(map(_has_numbers_alone, parameter))
    return isinstance(parameter, int | float | np.number)


def count_parameters(parameters: Parameters) -> int:
    """Return N, the common leading length of all leaves."""
    shapes = [np.shape(a) for a in jax.tree.leaves(parameters)]
    lengths = {next(iter(shape), None) for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        found = ", ".join(sorted(map(str, lengths)))
        raise ValueError(f"stacked parameters need one common leading axis of instances, got lengths {found}")
    return int(lengths.pop() or 0)


def check_array(name: str, value: object, shape: tuple[int, ...], infinite: bool = False) -> np.ndarray:
    """Return `value` as float64 of that shape, without NaN and, unless allowed, without infinities.

    A single vector is repeated for every instance.
    """
    array = real_array(name, value)
    if array.shape == shape[1:]:
        array = np.broadcast_to(array, shape)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape[1:]} (or {shape} for {shape[0]} instances), got {array.shape}")
    bad = ~np.isfinite(array)
    advice = "; it must be finite"
    if infinite:
        bad = np.isnan(array)
        advice = ""
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = f"instance {where[0]}, entry {', '.join(map(str, where[1:]))}"
        raise ValueError(f"{name} is {array[where]} at {at}{advice}")
    return array


def is_named(parameters: Parameters) -> bool:
    """Return whether these are instances by their data, as a dict of arrays or a list of dicts."""
    if isinstance(parameters, Mapping):
        return True
    return isinstance(parameters, Sequence) and len(parameters) > 0 and isinstance(parameters[0], Mapping)


def read_named(parameters: Parameters, base: Mapping[str, np.ndarray | None]) -> dict:
    """Return the data of instances by name, over base values; unknown names and uneven lists are refused."""
    if not isinstance(parameters, Mapping):
        keys = set().union(*parameters)
        uneven = [k for k in keys if not all(k in p for p in parameters)]
        if uneven:
            raise ValueError(f"{', '.join(sorted(uneven))} is given for some instances and not for others")
        try:
            parameters = {k: np.stack([real_array(k, p[k]) for p in parameters]) for k in keys}
        except ValueError as error:
            if "same shape" not in str(error):
                raise
            raise ValueError("the instances of a batch differ in their shapes") from None
        for name, value in parameters.items():
            if value.ndim != 2:
                raise ValueError(f"{name} of an instance must be a vector, got shape {value.shape[1:]}")
    unknown = sorted(set(parameters) - set(base))
    if unknown:
        raise ValueError(f"unknown instance data {', '.join(unknown)}; this family has {', '.join(base)}")
    return {k: parameters.get(k, base[k]) for k in base}


def optional_vector(name: str, value: ArrayLike | None, size: int, infinite: bool = False) -> np.ndarray | None:
    """Return a base value: absent, or one checked vector."""
    if value is None:
        return None
    return check_array(name, value, (1, size), infinite)[0].copy()


def columns(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Turn instances on the leading axis (N, k) into columns (k, N)."""
    return np.ascontiguousarray(array.T, dtype)
