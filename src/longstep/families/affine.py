"""The affine map from a parameter vector to the data of an instance."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float
from typing_extensions import override

from .._util.hashing import ByContent
from ..linalg.matrix import ArrayLike2D, Matrix, SparseMatrix, along, make_matrix, to_csr
from ..linalg.real import real_array


class Affine(ByContent):
    """q(x) = q + M_q x, l(x) = l + M_l x, …: the family's base values plus a matrix times the parameter.

    Data without a matrix keep their base value. A missing base value counts as zero where a matrix is given.

    >>> import numpy as np
    >>> Affine(q=np.eye(2)).size
    2
    """

    def __init__(self, **matrices: ArrayLike2D):
        if not matrices:
            raise ValueError("Affine needs at least one matrix, for example Affine(q=M)")
        self.matrices = {name: to_csr(M) for name, M in matrices.items()}
        sizes = {M.shape[1] for M in self.matrices.values()}
        if len(sizes) > 1:
            shapes = ", ".join(f"{k}: {M.shape}" for k, M in self.matrices.items())
            raise ValueError(f"the matrices of Affine must have one common number of columns, got {shapes}")
        self.size = int(sizes.pop())
        for name, M in self.matrices.items():
            if not np.isfinite(M.data).all():
                raise ValueError(f"the matrix of {name} has NaN or infinite entries")

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse matrices that do not fit the family's data."""
        for name, M in self.matrices.items():
            if name not in sizes:
                raise ValueError(f"Affine has a matrix for {name}, but this family has {', '.join(sizes)}")
            if M.shape[0] != sizes[name]:
                raise ValueError(f"the matrix of {name} has {M.shape[0]} rows but {name} has {sizes[name]} entries")

    def check_parameters(self, parameters: np.ndarray) -> np.ndarray:
        """Return N parameters as a finite float64 array (N, size)."""
        parameters = real_array("the parameter", parameters)
        if parameters.ndim != 2 or parameters.shape[1] != self.size:
            raise ValueError(
                f"a parameter of this family has {self.size} entries, got an array of shape {parameters.shape[1:]}"
            )
        if not np.isfinite(parameters).all():
            row, entry = np.argwhere(~np.isfinite(parameters))[0]
            raise ValueError(f"parameter {row} has {parameters[row, entry]} in entry {entry}; it must be finite")
        return parameters

    def __call__(self, parameters: np.ndarray, base: Mapping[str, np.ndarray | None]) -> dict:
        """Return the data of N instances from parameters (N, size), on the host in float64."""
        parameters = self.check_parameters(parameters)
        named = dict(base)
        for name, M in self.matrices.items():
            named[name] = np.asarray((M @ parameters.T).T)
            offset = base[name]
            if offset is not None:
                named[name] = named[name] + offset
        return named

    def find_same_rows(self, first: str, second: str, size: int) -> np.ndarray:
        """Return the rows in which two of the data move alike with the parameter."""
        zero = sp.csr_array((size, self.size))
        gap = abs(self.matrices.get(first, zero) - self.matrices.get(second, zero))
        return np.asarray(gap.sum(axis=1)).ravel() == 0

    @override
    def hashed(self) -> tuple:
        return tuple(sorted(self.matrices.items()))


class WorkingMap(eqx.Module):
    """The same map in equilibrated units on the device, so that a new batch of parameters costs one product."""

    offsets: dict[str, Float[Array, " rows"]]
    matrices: dict[str, Matrix]

    @property
    def selects(self) -> bool:
        """Whether every entry of the data has at most one entry of the parameter in it."""
        return all(isinstance(M, SparseMatrix) and M.width <= 1 for M in self.matrices.values())

    def __call__(self, parameters: Float[Array, "size *N"]) -> dict[str, Float[Array, "rows *N"]]:
        """Return the data of N parameters, as columns."""
        data = {}
        for name, offset in self.offsets.items():
            column = along(offset, parameters)
            if name in self.matrices:
                data[name] = column + self.matrices[name].mv(parameters)
            else:
                data[name] = jnp.broadcast_to(column, (*offset.shape, *parameters.shape[1:]))
        return data


def make_working_map(
    parameter: Affine | None,
    base: Mapping[str, np.ndarray | None],
    scales: Mapping[str, np.ndarray],
    rows: Mapping[str, np.ndarray],
    dtype: np.dtype,
) -> WorkingMap | None:
    """Return the device map scales·(base + M x), restricted to `rows`; None where a parameter does not give
    everything."""
    if parameter is None or any(base[k] is None and k not in parameter.matrices for k in base):
        return None
    offsets = {}
    matrices = {}
    for name, value in base.items():
        scale = scales[name][rows[name]]
        offset = value
        if offset is None:
            offset = np.zeros(len(scales[name]))
        offsets[name] = jnp.asarray(scale * offset[rows[name]], dtype)
        if name in parameter.matrices:
            M = parameter.matrices[name][rows[name]]
            matrices[name] = make_matrix(sp.diags_array(scale) @ M, dtype)
    return WorkingMap(offsets, matrices)
