"""Shapes and dtypes of arrays are checked while tests run, wherever the package says what they are.

A method that overrides another need not say them again: what it leaves out is what the overridden one says.
"""

import functools
import inspect
import operator
import sys
import types
import typing

import jax
import numpy as np
import typing_extensions
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, install_import_hook, jaxtyped

_CHECKED = beartype(conf=BeartypeConf(is_pep484_tower=True))
_mark = typing_extensions.override


def install():
    """Check all that the package's functions take and return, from its first import on."""
    install_import_hook("longstep", "tests.typecheck.enforced")
    typing_extensions.override = override


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


def override(member):
    """`typing_extensions.override`, by which every override of the package is known: it takes the annotations that it
    lacks from the method that it overrides. Which that is, is known when it is first called."""
    if isinstance(member, property):
        return property(override(member.fget))
    if isinstance(member, classmethod | staticmethod):
        return type(member)(override(member.__func__))
    if not member.__module__.startswith("longstep."):
        return _mark(member)

    @functools.cache
    def complete():
        plain = inspect.unwrap(member)
        owner = functools.reduce(getattr, member.__qualname__.split(".")[:-1], sys.modules[member.__module__])
        plain.__annotations__ = _inherited(owner, member.__name__) | plain.__annotations__
        return jaxtyped(plain, typechecker=enforced)

    @functools.wraps(member)
    def call(*args, **kwargs):
        return complete()(*args, **kwargs)

    return _mark(call)


def _inherited(owner, name) -> dict[str, object]:
    """The annotations of arrays in what the classes above say of a method, the nearest first."""
    found = {}
    for parent in reversed(owner.__mro__[1:]):
        function = _plain_function(vars(parent).get(name))
        if function is None:
            continue
        for key, hint in function.__annotations__.items():
            read = _evaluate(hint, function.__globals__)
            if _speaks_of_arrays(read):
                found[key] = read
    return found


def _evaluate(hint, names):
    """An annotation that may be quoted; None where what it names is imported for type checkers alone."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)
    except NameError:
        return None


def _plain_function(member):
    """The function inside a member of a class, which may be a property or have been wrapped; None if there is none."""
    for inside in ("fget", "__func__", "__wrapped__"):
        member = inspect.unwrap(getattr(member, inside, member))
    return member if isinstance(member, types.FunctionType) else None


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
