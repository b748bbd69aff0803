"""What CVXPYlayers knows of a compiled problem, as the matrices of `program` and as the entries that move.

CVXPYlayers keeps the entries of [A, b] that are not zero, by columns, and for each how it depends on the vector v of
all parameter values: values = T (v, 1). Those of b are the last.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from ..families.names import Layout
from ..linalg.matrix import to_csr
from .program import Parametric, read_cones
from .refusals import refuse_matrix

# CVXPYlayers' record of a compiled problem (`LayersContext`).
Context: TypeAlias = Any


@dataclass(frozen=True)
class Entries:
    """Where the entries of b lie among those of [A, b], and which rows of b they are; the other rows are zero."""

    count: int
    start: int
    rows: Int[np.ndarray, " entries"]
    m: int

    @staticmethod
    def read(ctx: Context) -> "Entries":
        """Return the entries of a layer's problem."""
        indices, starts, (m, _) = ctx.reduced_A.problem_data_index
        start = int(starts[-2])
        return Entries(len(indices), start, np.asarray(indices[start:]), m)

    def extract(self, values: Float[np.ndarray, "N count"]) -> Float[np.ndarray, "N m"]:
        """Return b of N instances, out of the entries of [A, b]."""
        b = np.zeros((len(values), self.m), values.dtype)
        b[:, self.rows] = values[:, self.start :]
        return b

    def insert(self, b: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N count"]:
        """Return the entries of [A, b] of N instances, with zeros for those of A."""
        values = np.zeros((len(b), self.count), b.dtype)
        values[:, self.start :] = b[:, self.rows]
        return values


def read_matrices(ctx: Context) -> Parametric:
    """Return the matrices of a layer's problem, rows Ax + b ∈ K; refused where a parameter has entries in P or A."""
    entries = Entries.read(ctx)
    T_q = sp.csc_array(ctx.q)
    T_A = sp.csc_array(ctx.reduced_A.reduced_mat)
    n = T_q.shape[0] - 1
    last = T_q.shape[1] - 1
    _check_fixed(ctx, T_A[: entries.start, :last], "A")
    indices, starts, _ = ctx.reduced_A.problem_data_index
    A = sp.csc_array((_read_constant(T_A[: entries.start]), indices[: entries.start], starts[:-1]), (entries.m, n))
    place = sp.csr_array(
        (np.ones(entries.rows.size), (entries.rows, np.arange(entries.rows.size))), (entries.m, entries.rows.size)
    )
    T_b = sp.csc_array(place @ T_A[entries.start :])
    return Parametric(
        P=_read_quadratic(ctx, n),
        A=to_csr(A),
        q=_read_constant(T_q[:n]),
        M_q=to_csr(T_q[:n, :last]),
        b=_read_constant(T_b),
        M_b=to_csr(T_b[:, :last]),
        d=float(_read_constant(T_q[n:])[0]),
        m_d=T_q[n:, :last].toarray().ravel(),
        cones=read_cones(ctx, entries.m),
    )


def place_parameters(ctx: Context, layout: Layout) -> sp.csc_array:
    """Return the matrix S of v = S x, with v CVXPYlayers' vector of parameter values and x the family's."""
    columns = [place for _, places in _list_parameters(ctx, layout) for place in places]
    return sp.csc_array((np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), layout.size))


def _list_parameters(ctx: Context, layout: Layout) -> list[tuple[cp.Parameter, np.ndarray]]:
    """Return the parameters in the order of v, each with the places in x of its entries there."""
    found: list[Any] = [None] * len(ctx.parameters)
    for i, parameter in enumerate(ctx.parameters):
        place = layout.parameters[parameter.name()].place
        triangle = ctx.param_triu_indices[i]
        entries = place.ravel(order="F")
        if triangle is not None:
            entries = place[..., triangle[0], triangle[1]].ravel()
        found[ctx.user_order_to_col_order[i]] = (parameter, entries)
    return found


def _read_quadratic(ctx: Context, n: int) -> sp.csr_array:
    T_P = ctx.reduced_P.reduced_mat
    if T_P is None:
        return to_csr(sp.csr_array((n, n)))
    T_P = sp.csc_array(T_P)
    _check_fixed(ctx, T_P[:, :-1], "P")
    indices, starts, shape = ctx.reduced_P.problem_data_index
    return to_csr(sp.csc_array((_read_constant(T_P), indices, starts), shape))


def _read_constant(tensor: sp.csc_array) -> Float[np.ndarray, " entries"]:
    """Return the last column: what does not depend on parameters."""
    return tensor[:, [-1]].toarray().ravel()


def _check_fixed(ctx: Context, tensor: sp.csc_array, matrix: str) -> None:
    moving = np.flatnonzero(abs(tensor).sum(axis=0))
    if not moving.size:
        return
    order = np.argsort(ctx.user_order_to_col_order)
    sizes = [_count_entries(ctx, i) for i in order]
    which = int(np.searchsorted(np.cumsum(sizes), moving[0], side="right"))
    raise refuse_matrix(ctx.problem, ctx.parameters[order[which]], matrix)


def _count_entries(ctx: Context, i: int) -> int:
    """Return how many entries of v a parameter has."""
    triangle = ctx.param_triu_indices[i]
    if triangle is None:
        return ctx.parameters[i].size
    return len(triangle[0])
