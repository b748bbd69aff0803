"""The data of an instance as C computes them: affine functions of the parameter, in equilibrated units."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from ..families.affine import Affine
from ..families.conic import Conic
from ..families.quadratic_program import QP

Constrained: TypeAlias = QP | Conic


@dataclass(frozen=True)
class Vector:
    """One of the data of an instance in equilibrated units: scale·(base + M p), or scale·(its own part of p)."""

    offset: Float[np.ndarray, " k"]
    matrix: sp.csr_array
    scale: Float[np.ndarray, " k"]


def map_data(
    family: Constrained, scales: dict[str, np.ndarray], places: dict[str, np.ndarray]
) -> tuple[dict[str, Vector], int]:
    """Return the map from the parameter to each of the data, and the size of the parameter.

    Without a map the parameter is all of the data in a row.
    """
    if family.mapped is None:
        parameter = _split_data({name: _find_base(family, name).size for name in scales})
    else:
        parameter = family.parameter
        assert parameter is not None
    data = {}
    for name, scale in scales.items():
        rows = places[name]
        base = _find_base(family, name)
        if family.mapped is None:
            base = np.zeros(base.size)
        matrix = parameter.matrices.get(name, sp.csr_array((base.size, parameter.size)))
        data[name] = Vector(scale * base[rows], sp.csr_array(sp.diags_array(scale) @ matrix[rows]), scale)
    return data, parameter.size


def _split_data(lengths: dict[str, int]) -> Affine:
    """Return the map that cuts a vector into the data, one after the other."""
    size = sum(lengths.values())
    matrices = {}
    begin = 0
    for name, length in lengths.items():
        place = np.arange(length)
        matrices[name] = sp.csr_array((np.ones(length), (place, begin + place)), (length, size))
        begin += length
    return Affine(**matrices)


def stack_base(family: Constrained) -> np.ndarray:
    """Return the base values in a row, zero where there is none: an instance, for an example."""
    return np.concatenate([_find_base(family, name) for name in family.host.values])


def _find_base(family: Constrained, name: str) -> np.ndarray:
    """Return the base value of one of the data, zero where there is none."""
    value = family.host.values[name]
    if value is not None:
        return value
    return np.zeros(family.n if name in ("q", "c") else family.m)
