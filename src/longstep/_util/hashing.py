"""Content hashes: equal exactly for equal data."""

import contextlib
import functools
import hashlib
import inspect
import sys
import textwrap
import tokenize
import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from typing_extensions import override

# What these functions do is a matter of versions, not of the family.
_LIBRARIES = sys.stdlib_module_names | {"jax", "jaxlib", "numpy", "scipy", "equinox", "longstep"}


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def content_hash(*items: object) -> str:
    """Return a SHA-256 of arrays (dtype, shape, bytes), sparse matrices, numbers, strings and nested containers."""
    digest = hashlib.sha256()
    for item in items:
        _feed(digest, item)
    return digest.hexdigest()


class ByContent(ABC):
    """What is equal where all that defines it is: held by jit, it lets equal families share compiled programs."""

    @abstractmethod
    def hashed(self) -> tuple:
        """Return what defines it."""

    @functools.cached_property
    def fingerprint(self) -> str:
        """The hash of what defines it, made when it is first compared."""
        return content_hash(type(self).__name__, *self.hashed())

    @override
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, ByContent) and type(self) is type(other) and self.fingerprint == other.fingerprint

    @override
    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _feed(digest: _Digest, item: object) -> None:
    if sp.issparse(item):
        csr = sp.csr_array(item)
        _feed(digest, ("sparse", csr.shape, csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data))
    elif isinstance(item, np.ndarray) or _is_of_jax(item):
        array = np.ascontiguousarray(item)
        digest.update(f"array {array.dtype} {array.shape};".encode() + array.tobytes())
    elif isinstance(item, Mapping):
        _feed(digest, tuple(sorted(item.items())))
    elif isinstance(item, tuple | list):
        digest.update(f"sequence {len(item)};".encode())
        for part in item:
            _feed(digest, part)
    elif isinstance(item, str | int | float | bool | bytes | np.generic) or item is None:
        digest.update(f"{type(item).__name__} {item!r};".encode())
    elif isinstance(item, type | types.ModuleType):
        digest.update(f"name {item.__name__};".encode())
    elif callable(item):
        _feed_function(digest, item)
    else:
        raise TypeError(f"cannot hash a {type(item).__name__}, which a function of the family reads")


def _is_of_jax(item: object) -> bool:
    """Tell whether it is an array of JAX, which is not imported for that."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(item, jax.Array)


def _feed_function(digest: _Digest, function: Any) -> None:
    """Feed a function by its name, its source text and all the data it reads (closure, defaults, globals, its object).

    Where the source is not to be found, and where the user prefers it, by the name that the user gave: `function.key`.
    """
    if isinstance(key := getattr(function, "key", None), str):
        _feed(digest, ("key", key))
        return
    name = getattr(function, "__qualname__", getattr(function, "__name__", ""))
    module = getattr(function, "__module__", None) or ""
    if name and module.split(".")[0] in _LIBRARIES:
        _feed(digest, ("library", module, name))
        return
    inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    if getattr(function, "__code__", None) is None and inner is not None:
        _feed(digest, (inner, getattr(function, "args", ()), getattr(function, "keywords", {})))
        return
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(f"cannot hash {function!r}: use a plain function")
    _feed(digest, ("function", function.__qualname__, *_read_source(function)))
    _feed(digest, tuple(cell.cell_contents for cell in function.__closure__ or ()))
    _feed(digest, (function.__defaults__ or (), function.__kwdefaults__ or {}))
    for name in sorted(_list_global_names(code) & set(function.__globals__)):
        value = function.__globals__[name]
        if value is function:
            # A function that calls itself is hashed already.
            value = "itself"
        _feed(digest, (name, value))
    if getattr(function, "__self__", None) is not None:
        _feed(digest, (type(function.__self__).__qualname__, vars(function.__self__)))


def _read_source(function: Any) -> tuple[str, int]:
    """Return the text that a function was made of, and where in its first line it begins, which tells lambdas apart."""
    is_lambda = function.__name__ == "<lambda>"
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        text = ""
    # Code that was run from a string may claim lines of a file that are not its own.
    if ("lambda" if is_lambda else f"def {function.__name__}") not in text:
        raise TypeError(
            f"cannot hash {function!r}: its source is not to be found. Define it in a file, or give it a name of your "
            "own, another one whenever it does something else: function.key = 'my objective, version 1'"
        )
    columns = [start for _, _, start, _ in function.__code__.co_positions() if start] if is_lambda else []
    return text, min(columns, default=0)


def read_methods(cls: type) -> dict[str, str]:
    """Return the source of the methods of a class and of those that it inherits from, but for libraries' classes.

    Methods whose source is not to be found, such as those that dataclasses are given, are left out.
    """
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__.split(".")[0] in _LIBRARIES:
            continue
        for name, member in vars(owner).items():
            function = inspect.unwrap(_find_function(member))
            if isinstance(function, types.FunctionType):
                with contextlib.suppress(TypeError):
                    found[name] = _read_source(function)[0]
    return found


def _find_function(member: Any) -> Any:
    """Return the function behind a class's attribute: that of a static method, a property or Equinox's wrapper."""
    for name in ("__func__", "fget", "func", "method"):
        member = getattr(member, name, member)
    return member


def _list_global_names(code: types.CodeType) -> set[str]:
    nested = [c for c in code.co_consts if hasattr(c, "co_code")]
    return set(code.co_names).union(*map(_list_global_names, nested))
