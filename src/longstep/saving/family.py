"""A family as JSON and arrays, and made again of these, every array looked at before it is used."""

import functools
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from .._util import memory
from .._util.optional import map_given
from ..cones.product import Cones
from ..errors import FileFormatError
from ..families.affine import Affine
from ..families.base import Family
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.names import Layout
from ..families.quadratic_program import QP
from ..families.smooth import Quadratic
from ..linalg.matrix import LONGEST, ArrayLike2D
from ..linalg.prox import L1, Box, NonNegative, Prox, Zero

# Columns that a matrix may have in the smallest file, and one more for every byte of a larger one: without a bound a
# few bytes that name a shape would fill the memory. A file has the range of every entry of a parameter that was seen.
_COLUMNS = 2**20
# Bytes that are needed, about, to build what a family keeps of a column, and of an entry of a dense block.
_COLUMN_BYTES = 64
_ENTRY_BYTES = 24
_PROXES: dict[str, type[Prox]] = {p.__name__: p for p in (Zero, L1, NonNegative, Box)}


# What a file says of a family besides its arrays; how Schedule and Cones are told is their own matter.
Description: TypeAlias = dict[str, Any]


class _Writer:
    """Puts arrays under a prefix and remembers what is absent."""

    def __init__(self, arrays: dict[str, np.ndarray], prefix: str = ""):
        self.arrays = arrays
        self.prefix = prefix

    def vector(self, name: str, value: np.ndarray | None) -> None:
        if value is not None:
            self.arrays[self.prefix + name] = np.asarray(value)

    def matrix(self, name: str, value: ArrayLike2D) -> None:
        csr = sp.csr_array(value)
        self.vector(f"{name}.data", csr.data)
        self.vector(f"{name}.indices", csr.indices.astype(np.int64))
        self.vector(f"{name}.indptr", csr.indptr.astype(np.int64))
        self.vector(f"{name}.shape", np.array(csr.shape, np.int64))

    def parameter(self, value: Affine | None) -> None:
        if value is not None:
            for name, matrix in value.matrices.items():
                self.matrix(f"parameter.{name}", matrix)


class _Reader:
    """Takes arrays by name, checked."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays
        self.most_columns = _COLUMNS + sum(array.nbytes for array in arrays.values())

    def vector(self, name: str) -> np.ndarray | None:
        found = self.arrays.get(name)
        if found is not None and (found.ndim != 1 or found.dtype.kind not in "fb"):
            raise FileFormatError(f"{name} in the file is not a vector of numbers, but {found.dtype} {found.shape}")
        return found

    def matrix(self, name: str) -> sp.csr_array:
        """Return a sparse matrix whose every index was looked at: SciPy trusts them, and reads beyond its end."""
        data, indices, indptr, shape = (self.arrays[f"{name}.{p}"] for p in ("data", "indices", "indptr", "shape"))
        kinds = (data.dtype.kind, indices.dtype.kind, indptr.dtype.kind, shape.dtype.kind)
        if kinds != ("f", "i", "i", "i") or any(a.ndim != 1 for a in (data, indices, indptr, shape)) or len(shape) != 2:
            raise FileFormatError(f"{name} in the file is not a sparse matrix")
        rows, columns = (int(size) for size in shape)
        fits = len(indptr) == rows + 1 and len(data) == len(indices) and 0 <= columns <= self.most_columns
        if not fits or indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
            raise FileFormatError(f"the rows of {name} in the file do not fit its shape {rows}×{columns}")
        if len(indices) and not (indices.min() >= 0 and indices.max() < columns):
            raise FileFormatError(f"{name} in the file has an entry outside its {columns} columns")
        dense = int((np.diff(indptr) > LONGEST).sum()) * columns
        memory.require(_COLUMN_BYTES * columns + _ENTRY_BYTES * dense, f"{name}, {rows}×{columns},", "")
        return sp.csr_array((data, indices, indptr), shape=(rows, columns))

    def parameter(self, names: list[str]) -> Affine | None:
        if not names:
            return None
        return Affine(**{name: self.matrix(f"parameter.{name}") for name in names})


@functools.singledispatch
def describe_family(family: Family, arrays: dict[str, np.ndarray]) -> Description | None:
    """Return the family as JSON, its arrays put aside; None for one that a file cannot hold."""
    return None


@describe_family.register
def _(family: QP, arrays: dict[str, np.ndarray]) -> Description:
    writer = _put_constrained(family, arrays, ("q", "l", "u"))
    writer.vector("equalities", family.host.kinds.equality)
    writer.vector("free", family.host.kinds.is_free)
    return {**_describe_common(family), "type": "QP", "equilibrate": family.host.equilibrate}


@describe_family.register
def _(family: Conic, arrays: dict[str, np.ndarray]) -> Description:
    _put_constrained(family, arrays, ("b", "c"))
    cones = family.cones.to_json()
    return {**_describe_common(family), "type": "Conic", "equilibrate": family.host.equilibrate, "cones": cones}


@describe_family.register
def _(family: Quadratic, arrays: dict[str, np.ndarray]) -> Description:
    writer = _Writer(arrays)
    writer.matrix("P", family.P)
    writer.vector("q", family.host.q)
    writer.parameter(family.parameter)
    return {**_describe_common(family), "type": "Quadratic", "lower_bound": family.lower_bound}


@describe_family.register
def _(family: Composite, arrays: dict[str, np.ndarray]) -> Description | None:
    smooth = describe_family(family.smooth, arrays)
    name = type(family.g).__name__
    if smooth is None or _PROXES.get(name) is not type(family.g):
        arrays.clear()
        return None
    values = {key: np.asarray(value).tolist() for key, value in vars(family.g).items()}
    return {"type": "Composite", "smooth": smooth, "prox": name, "values": values}


def _put_constrained(family: "QP | Conic", arrays: dict[str, np.ndarray], names: tuple[str, ...]) -> _Writer:
    writer = _Writer(arrays)
    writer.matrix("P", family.P)
    writer.matrix("A", family.A)
    for name in names:
        writer.vector(name, family.host.values[name])
    writer.parameter(family.parameter)
    return writer


def _describe_common(family: QP | Conic | Quadratic) -> Description:
    layout = family.layout
    parameter = []
    if family.parameter is not None:
        parameter = list(family.parameter.matrices)
    return {"layout": map_given(Layout.to_json, layout), "dtype": str(family.dtype), "parameter": parameter}


def build_family(description: Description, arrays: Mapping[str, np.ndarray]) -> Family:
    """Return the family that a file describes."""
    reader = _Reader(arrays)
    kind = description["type"]
    if kind == "Composite":
        prox = _PROXES[description["prox"]](**description["values"])
        smooth = build_family(description["smooth"], arrays)
        if not isinstance(smooth, Quadratic):
            raise FileFormatError("the smooth part of the family in the file is no quadratic")
        return Composite(smooth, prox)
    common: dict[str, Any] = {
        "parameter": reader.parameter(description["parameter"]),
        "dtype": description["dtype"],
    }
    if kind == "Quadratic":
        lower = description["lower_bound"]
        return Quadratic(reader.matrix("P"), q=reader.vector("q"), lower_bound=lower, **common)
    if description.get("layout") is not None:
        common["layout"] = Layout.from_json(description["layout"])
    common["equilibrate"] = _read_switch("equilibrate", description["equilibrate"])
    if kind == "QP":
        bounds = {name: reader.vector(name) for name in ("q", "l", "u", "equalities", "free")}
        return QP(reader.matrix("P"), reader.matrix("A"), **bounds, **common)
    if kind == "Conic":
        cones = Cones(**description["cones"])
        b = reader.vector("b")
        c = reader.vector("c")
        return Conic(reader.matrix("P"), reader.matrix("A"), cones, b=b, c=c, **common)
    raise FileFormatError(f"the file holds a family of type {kind!r}, which this longstep lacks")


def _read_switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, neither true nor false")
    return value
