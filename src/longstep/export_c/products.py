"""Products with the constant sparse matrices of a problem, as C functions."""

import itertools

import numpy as np
import scipy.sparse as sp

from . import emit

# Up to this many entries products are written out, about twelve bytes of code each: measured twice as fast as loops on
# the quadcopter, whose rows have three entries.
_STRAIGHT = 4000
# And this many a row on average: longer ones are loops that a compiler can make vectors of.
_SHORT = 8
# Matrices with more entries than this part of all are multiplied as dense ones.
_DENSE = 0.7
# What an entry costs that is written out, and one that is looked up, in multiplications of a dense product.
_WRITTEN = 2.0
_INDEXED = 4.0


def product_cost(matrix: sp.csr_array) -> float:
    """Return what the product with a vector costs, in multiplications of a dense product."""
    if matrix.nnz > _DENSE * matrix.shape[0] * matrix.shape[1]:
        return matrix.shape[0] * matrix.shape[1]
    return (_WRITTEN if _is_straight(matrix) else _INDEXED) * matrix.nnz


def _is_straight(matrix: sp.csr_array) -> bool:
    return matrix.nnz <= min(_STRAIGHT, _SHORT * matrix.shape[0])


def write_product(name: str, matrix: sp.csr_array, precision: str) -> str:
    """Return the function `name(x, out)` of out = matrix·x, with its tables."""
    m, n = matrix.shape
    if matrix.nnz == 0:
        return emit.fill_part("product_zero.c", name=name, m=m)
    if m == n and abs(matrix - sp.diags_array(matrix.diagonal())).nnz == 0:
        data = emit.reals(f"{name}_value", matrix.diagonal(), precision)
        return data + emit.fill_part("product_diagonal.c", name=name, m=m)
    if matrix.nnz > _DENSE * m * n:
        data = emit.reals(f"{name}_value", matrix.toarray(), precision)
        return data + emit.fill_part("product_dense.c", name=name, m=m, n=n)
    if _is_straight(matrix):
        return emit.fill_part("product_straight.c", name=name, rows=_write_rows(matrix, precision))
    index = emit.index_type(n)
    data = (
        emit.integers("int32_t", f"{name}_first", matrix.indptr)
        + emit.integers(index, f"{name}_column", matrix.indices)
        + emit.reals(f"{name}_value", matrix.data, precision)
    )
    return data + emit.fill_part("product_sparse.c", name=name, index=index, m=m)


def _write_rows(matrix: sp.csr_array, precision: str) -> str:
    """Return one statement a row: no loop is left, and no index is loaded."""
    lines = []
    for i, (a, b) in enumerate(itertools.pairwise(matrix.indptr)):
        entries = zip(matrix.data[a:b], matrix.indices[a:b], strict=True)
        terms = " + ".join(f"{emit.number(v, precision)} * x[{j}]" for v, j in entries)
        lines.append(f"    out[{i}] = {terms or 0};")
    return "\n".join(lines)


def write_map(name: str, matrix: sp.csr_array, precision: str) -> tuple[str, str]:
    """Return the tables of out += matrix·p, and the statement that applies them to `work->name`."""
    rows = np.flatnonzero(np.diff(matrix.indptr))
    if rows.size == 0:
        return "", ""
    first = np.concatenate([[0], np.cumsum(np.diff(matrix.indptr)[rows])])
    tables = (
        emit.integers("index_t", f"map_{name}_row", rows)
        + emit.integers("index_t", f"map_{name}_first", first)
        + emit.integers("index_t", f"map_{name}_column", matrix.indices)
        + emit.reals(f"map_{name}_value", matrix.data, precision)
    )
    arguments = ", ".join(f"map_{name}_{part}" for part in ("row", "first", "column", "value"))
    return tables, f"    add_map({rows.size}, {arguments}, parameter, work->{name});\n"


def write_free_rows(matrix: sp.csr_array, places: np.ndarray, precision: str) -> str:
    """Return the function for rows that no instance bounds: they have the value Ax and no multiplier."""
    text = emit.select_features(emit.fill_part("free_rows.c", count=places.size), ANY_FREE=places.size > 0)
    if places.size == 0:
        return text
    return write_product("multiply_free", matrix, precision) + emit.integers("index_t", "place_free", places) + text
