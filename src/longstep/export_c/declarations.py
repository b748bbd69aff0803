"""What a generated header declares, read by cffi: functions and the layout of structs, for Python without a compiler.

cffi reads C slowly. That is done once, where the library is built; what lies beside the library is Python that makes
the same types at once.
"""

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cffi import FFI

# What cffi does not read of a header: what is for C++, and lines of the preprocessor that define no whole number.
_UNREAD = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\n|^#(?!define \w+ +\d+\s)[^\n]*\n", re.MULTILINE | re.DOTALL)
_NUMBERS = {"double": np.float64, "float": np.float32, "int32_t": np.int32}


def write_declarations(header: str) -> str:
    """Return what a header declares as Python, for `read_declarations`."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(_UNREAD.sub("", header))
    ffi.set_source("longstep", None, compiler_verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "declarations.py"
        ffi.emit_python_code(str(path))
        return path.read_text(encoding="utf-8")


def read_declarations(path: Path) -> "FFI":
    """Return what a header declares, from the file that was written for it."""
    names: dict[str, Any] = {}
    exec(compile(path.read_bytes(), path, "exec"), names)
    return names["ffi"]


def make_dtype(ffi: "FFI", name: str) -> np.dtype:
    """Return the NumPy type with the layout of a type of C."""
    return _convert(ffi, ffi.typeof(name))


def _convert(ffi: "FFI", kind: "FFI.CType") -> np.dtype:
    """Return the NumPy type of a type of C that is a number, or an array or a struct of these."""
    if kind.kind == "array":
        return np.dtype((_convert(ffi, kind.item), kind.length))
    if kind.kind != "struct":
        return np.dtype(_NUMBERS[kind.cname])
    fields = {name: (_convert(ffi, field.type), field.offset) for name, field in kind.fields}
    formats, offsets = zip(*fields.values(), strict=True)
    return np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(kind.cname)})
