"""Shapes and dtypes of arrays are checked while tests run, wherever the package says what they are."""

import functools
import operator
import types
import typing

import jax
import numpy as np
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_CHECKED = beartype(conf=BeartypeConf(is_pep484_tower=True))


def enforced(function):
    """The function with its annotations of arrays enforced. Others are for pyright: bad input is what tests are about,
    and it has messages of its own."""
    annotations = dict(getattr(function, "__annotations__", {}))
    arrays = {name: _anywhere(hint) for name, hint in annotations.items() if _speaks_of_arrays(hint)}
    if not arrays:
        return function
    function.__annotations__ = arrays
    checked = _CHECKED(function)
    function.__annotations__ = annotations
    return checked


def _speaks_of_arrays(hint) -> bool:
    return _is_array(hint) or any(map(_speaks_of_arrays, typing.get_args(hint)))


def _is_array(hint) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _anywhere(hint):
    """The annotation with JAX's arrays on the host too: programs take either."""
    if _is_array(hint):
        return hint.dtype[jax.Array | np.ndarray, hint.dim_str] if hint.array_type is jax.Array else hint
    origin, parts = typing.get_origin(hint), tuple(map(_anywhere, typing.get_args(hint)))
    if origin in (typing.Union, types.UnionType):
        return functools.reduce(operator.or_, parts)
    return hint if origin is None else origin[parts]
