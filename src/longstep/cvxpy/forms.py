"""The two forms: families out of the matrices of a compiled problem, and whether two of them are the same."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from ..families.affine import Affine
from ..families.base import Family
from ..families.conic import Conic
from ..families.names import Layout
from ..families.quadratic_program import QP
from ..linalg.matrix import to_csr
from .program import Parametric
from .rows import RowPairs

# Numbers that differ by less, absolutely and relatively, are those of two machines.
_SAME = 1e-9


def make_qp(
    data: Parametric, S: sp.csc_array, *, layout: Layout, equilibrate: bool, dtype: DTypeLike
) -> tuple[QP, RowPairs]:
    """Return the family: rows Ax + b = 0 and Ax + b ≥ 0 as l ≤ Ax ≤ u, the latter with their sign turned."""
    m = data.A.shape[0]
    k = data.rows
    turn = sp.diags_array(np.where(np.arange(m) < k, 1.0, -1.0))
    A = to_csr(turn @ data.A)
    u = -(turn @ data.b)
    moving = to_csr(-(turn @ data.M_b @ S))
    rows = RowPairs.pair(A, u, moving, k)
    equalities = rows.own < k
    both = rows.two_sided
    l = np.where(equalities, u[rows.own], -np.inf)
    l[both] = -u[rows.opposite[both]]
    # Opposite rows move alike, equalities on both sides.
    lower = sp.diags_array((equalities | both).astype(float)) @ moving[rows.own]
    family = QP(
        data.P,
        A[rows.own],
        q=data.q,
        l=l,
        u=u[rows.own],
        equalities=equalities,
        parameter=_make_map(q=data.M_q @ S, l=lower, u=moving[rows.own]),
        layout=layout,
        equilibrate=equilibrate,
        dtype=dtype,
    )
    return family, rows


def make_conic(
    data: Parametric, S: sp.csc_array, *, layout: Layout, equilibrate: bool, dtype: DTypeLike
) -> tuple[Conic, RowPairs]:
    """Return the family: rows Ax + b ∈ K as (−A)x + s = b, s ∈ K."""
    family = Conic(
        data.P,
        -data.A,
        data.cones,
        b=data.b,
        c=data.q,
        parameter=_make_map(b=data.M_b @ S, c=data.M_q @ S),
        layout=layout,
        equilibrate=equilibrate,
        dtype=dtype,
    )
    return family, RowPairs.separate(family.m)


def _make_map(**matrices: sp.sparray) -> Affine:
    """Return the parameter map of the matrices that have entries; refuse a map without any."""
    moving = {name: M for name, M in matrices.items() if abs(M).sum() > 0}
    if not moving:
        raise ValueError("no parameter changes the constraints or the cost of any variable: all instances are the same")
    return Affine(**moving)


def are_same(first: Family, second: Family) -> bool:
    """Tell whether two families are the same problem, up to the last bits in which machines differ."""
    if type(first) is not type(second) or not isinstance(first, QP | Conic) or not isinstance(second, QP | Conic):
        return False
    if first.problem_hash() == second.problem_hash():
        return True
    ours = _collect_numbers(first)
    theirs = _collect_numbers(second)
    return ours.keys() == theirs.keys() and all(_are_close(ours[name], theirs[name]) for name in ours)


def _collect_numbers(family: QP | Conic) -> dict[str, np.ndarray | sp.csr_array]:
    """Return everything that defines a family of matrices, by name; large matrices stay sparse."""
    found: dict[str, np.ndarray | sp.csr_array] = {"P": family.P, "A": family.A}
    found |= {name: value for name, value in family.host.values.items() if value is not None}
    if family.parameter is not None:
        found |= {f"map of {name}": to_csr(M) for name, M in family.parameter.matrices.items()}
    if isinstance(family, Conic):
        found |= {f"cone {name}": np.array(sizes, float) for name, sizes in family.cones.to_json().items()}
    return found


def _are_close(first: np.ndarray | sp.csr_array, second: np.ndarray | sp.csr_array) -> bool:
    """Tell whether numbers are the same up to some of their last bits."""
    if first.shape != second.shape:
        return False
    if isinstance(first, np.ndarray):
        return np.allclose(first, second, rtol=_SAME, atol=_SAME)
    return not (abs(first - second) > _SAME * (1 + abs(second).max())).nnz
