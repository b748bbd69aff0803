"""Content hashes: equal exactly for equal data."""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp


def content_hash(*items: Any) -> str:
    """SHA-256 over arrays (dtype, shape, bytes), sparse matrices, numbers, strings and nested containers."""
    digest = hashlib.sha256()
    for item in items:
        _feed(digest, item)
    return digest.hexdigest()


def _feed(digest: Any, item: Any) -> None:
    if sp.issparse(item):
        csr = sp.csr_array(item)
        _feed(digest, ("sparse", csr.shape, csr.indptr.astype(np.int64), csr.indices.astype(np.int64), csr.data))
    elif isinstance(item, np.ndarray | jax.Array):
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
    elif callable(item):
        _feed_function(digest, item)
    else:
        raise TypeError(f"cannot hash {type(item).__name__}")


def _feed_function(digest: Any, function: Any) -> None:
    """A function by its name, code, constants and the data it closes over; never by its address."""
    code = getattr(function, "__code__", None)
    if code is None:
        inner = getattr(function, "func", None)
        if inner is None:
            raise TypeError(f"cannot hash {function!r}: use a plain function or functools.partial of one")
        _feed(digest, (inner, function.args, function.keywords))
        return
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    _feed(digest, ("function", function.__qualname__))
    _feed_code(digest, code)
    _feed(digest, (tuple(cells), function.__defaults__ or ()))


def _feed_code(digest: Any, code: Any) -> None:
    _feed(digest, (code.co_code, code.co_names))
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            _feed_code(digest, constant)
        else:
            _feed(digest, repr(constant))
