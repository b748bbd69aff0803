"""Functions of the host inside compiled programs, for what XLA has no operation: factors of sparse matrices.

XLA calls a foreign function with a frame of pointers (its FFI, `xla/ffi/api/c_api.h`). Here the function is one of
Python that ctypes makes callable from C: it reads and writes the program's own buffers. `jax.pure_callback` would put
its arguments on the device again, from a thread on which the device may be waiting for it, and then hangs
(jax-ml/jax#25861).
"""

import ctypes
import functools
import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped

_TARGET = "longstep_host"
# Of the C interface: the kind of extension that asks for a handler's version, the types of entries, and the code of an
# error inside the handler.
_METADATA = 1
_TYPES = {4: np.dtype("int32"), 8: np.dtype("uint32"), 11: np.dtype("float32"), 12: np.dtype("float64")}
_INTERNAL = 13


class HostFunction(Protocol):
    """What a program may call: it reads arrays and fills one."""

    def __call__(self, inputs: Sequence[np.ndarray], output: np.ndarray) -> None:
        """Fill the output from the inputs."""
        ...


_functions: weakref.WeakValueDictionary[int, HostFunction] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def register(function: HostFunction) -> Int[Array, ""]:
    """Return the number by which programs know a function; it is theirs as long as somebody else holds it."""
    _register_target()
    number = next(_numbers)
    _functions[number] = function
    return jnp.int32(number)


def call(
    number: Int[Array, ""], inputs: Sequence[Shaped[Array, "..."]], like: jax.ShapeDtypeStruct
) -> Shaped[Array, "..."]:
    """Return what the function of this number makes of the arrays; it must be pure. Under `vmap` it is called for one
    after the other."""
    return jax.ffi.ffi_call(_TARGET, like, vmap_method="sequential")(number, *inputs)


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(_Extension)),
]


class _Version(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_Extension)),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    )


class _Metadata(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("version", _Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    )


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", ctypes.POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dimensions", ctypes.POINTER(ctypes.c_int64)),
    )


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("buffers", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    )


class _Failure(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


class _Interface(ctypes.Structure):
    # What comes after the first function is not used.
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("make_error", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Failure))),
    )


class _Frame(ctypes.Structure):
    # What comes after the results, attributes among it, is not used.
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("extension", ctypes.POINTER(_Extension)),
        ("interface", ctypes.POINTER(_Interface)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
    )


def _view(buffer: _Buffer) -> np.ndarray:
    """Return the array that a buffer holds, without a copy."""
    dtype = _TYPES[buffer.type]
    shape = tuple(buffer.dimensions[: buffer.rank])
    size = dtype.itemsize * math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * size).from_address(buffer.data)
    return np.frombuffer(memory, dtype).reshape(shape)


def _answer(frame: _Frame) -> None:
    """Tell the version that was asked for: the caller's own, which has the fields above where it has others."""
    asked = ctypes.cast(frame.extension, ctypes.POINTER(_MetadataExtension)).contents.metadata.contents
    asked.version.major = 0
    asked.version.minor = _minor()
    asked.traits = 0


@functools.cache
def _minor() -> int:
    """Return the minor version of the interface that the installed jaxlib has, from its header."""
    with open(f"{jax.ffi.include_dir()}/xla/ffi/api/c_api.h", encoding="utf-8") as header:
        for line in header:
            if line.startswith("#define XLA_FFI_API_MINOR"):
                return int(line.split()[2])
    raise RuntimeError("this jaxlib does not say which version of the foreign function interface it has")


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
def _handle(pointer) -> int | None:
    """Run one call of a program: None, or an error of XLA's."""
    frame = pointer.contents
    if frame.extension and frame.extension.contents.type == _METADATA:
        _answer(frame)
        return None
    try:
        number, *inputs = (_view(frame.arguments.buffers[i].contents) for i in range(frame.arguments.size))
        _functions[int(number)](inputs, _view(frame.results.buffers[0].contents))
    except BaseException as error:  # whatever it is, it must not pass through C
        text = f"{type(error).__name__}: {error}".encode()
        failed = _Failure(ctypes.sizeof(_Failure), None, text, _INTERNAL)
        return frame.interface.contents.make_error(ctypes.byref(failed))
    return None


_registered: set[str] = set()


def _register_target() -> None:
    """Make the handler known to XLA, once."""
    if _registered:
        return
    # Nothing may fail in the handler's first call, which asks for it.
    _minor()
    address = ctypes.cast(_handle, ctypes.c_void_p).value
    jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(address), platform="cpu")
    _registered.add(_TARGET)
