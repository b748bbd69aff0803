"""From the pattern of a sparse L to panels: columns side by side with the same rows below, some entries of them zero.

Column by column every number is loaded, multiplied and stored alone, and an index with it. In a panel the rows are
gathered once, and the rest are long products. Two kinds are made where a count of operations says so: chains, in which
each column is the parent of that before it in the elimination tree, with a triangle among its own columns; and leaves,
which have no entries among them, as what was eliminated first has. Leaves may come before all else, so they are moved
to each other.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Int

from .ordering import BLOCK, COLUMN, ENTRY, ROW

# Fewer leaves are not worth a panel of their own: they may go with their parents.
_LEAVES = 4


@dataclass(frozen=True)
class Panels:
    """Columns first[s] … first[s+1] of L in a new order, and their rows below; `inner` ones have entries among them.

    `order` has the old place of every column, `source` the entry of the old L that every stored number is, or the
    number of these entries where it is zero. Columns of a panel are padded to whole vectors of `lanes` numbers.
    """

    order: Int[np.ndarray, " order"]
    first: Int[np.ndarray, " starts"]
    rows: list[Int[np.ndarray, "..."]]
    inner: Bool[np.ndarray, " panels"]
    source: Int[np.ndarray, " stored"]
    lanes: int

    @property
    def shapes(self) -> list["Shape"]:
        """The shape of each panel."""
        each = zip(np.diff(self.first).tolist(), self.rows, self.inner.tolist(), strict=True)
        return [Shape(columns, rows.size, inner) for columns, rows, inner in each]


class Shape(NamedTuple):
    """The columns of a panel, its rows below, and whether it has entries among its own columns."""

    columns: int
    rows: int
    inner: bool

    def pad(self, lanes: int) -> int:
        """Return the numbers that are stored for one column and the rows below: whole vectors, unless it is alone."""
        return self.rows if self.columns == 1 else -(-self.rows // lanes) * lanes

    def triangle(self, lanes: int) -> list[range]:
        """Return the own columns as rows that each of them is stored with, from and to whole vectors."""
        if not self.inner:
            return []
        end = -(-self.columns // lanes) * lanes
        return [range((c + 1) // lanes * lanes, end) for c in range(self.columns - 1)]

    def entries(self, lanes: int) -> int:
        """Return how many numbers are stored."""
        return self.columns * self.pad(lanes) + sum(map(len, self.triangle(lanes)))

    def cost(self, lanes: int) -> float:
        """Return what it costs forward and backward, in multiplications of a long product."""
        if self.columns == 1:
            return COLUMN + 2 * ENTRY * self.rows
        # Rows are gathered and scattered once each.
        return BLOCK + 2 * ROW * self.rows + COLUMN * self.columns + 2 * self.entries(lanes)


def choose_panels(lower: sp.csc_matrix, lanes: int) -> Panels:
    """Return the panels of an L, which has unit diagonal and only its entries below that."""
    below = np.split(lower.indices, lower.indptr[1:-1])
    parent = np.array([rows.min() if rows.size else -1 for rows in below])
    groups = _group_leaves(below, parent, lanes)
    taken = np.zeros(len(below), bool)
    taken[[j for columns, _ in groups for j in columns]] = True
    chains = _join_chains(below, parent, np.flatnonzero(~taken), lanes)
    panels = [*groups, *chains]
    order = np.concatenate([np.asarray(columns) for columns, _ in panels]).astype(int)
    place = np.argsort(order)
    first = np.cumsum([0, *(len(columns) for columns, _ in panels)])
    rows = [np.sort(place[rows]) for _, rows in panels]
    inner = np.arange(len(panels)) >= len(groups)
    return Panels(order, first, rows, inner, _locate_entries(lower, order, first, rows, inner, lanes), lanes)


def _group_leaves(below: list[np.ndarray], parent: np.ndarray, lanes: int) -> list[tuple[list[int], np.ndarray]]:
    """Return groups of leaves of the elimination tree, and the rows that any of a group has, where that is cheaper."""
    leaves = [int(j) for j in np.setdiff1d(np.arange(len(below)), parent) if below[j].size]
    # Those that are alike come after each other.
    leaves.sort(key=lambda j: (parent[j], below[j].tolist()))
    groups: list[tuple[list[int], np.ndarray]] = []
    for j in leaves:
        if groups:
            columns, rows = groups[-1]
            union = np.union1d(rows, below[j])
            apart = Shape(len(columns), rows.size, False).cost(lanes) + Shape(1, below[j].size, False).cost(lanes)
            if Shape(len(columns) + 1, union.size, False).cost(lanes) < apart:
                groups[-1] = ([*columns, j], union)
                continue
        groups.append(([j], below[j]))
    return [group for group in groups if len(group[0]) >= _LEAVES]


def _join_chains(
    below: list[np.ndarray], parent: np.ndarray, columns: np.ndarray, lanes: int
) -> list[tuple[list[int], np.ndarray]]:
    """Return these columns in their order, each joined to the one before it that is its child where that is cheaper."""
    chains: list[tuple[list[int], np.ndarray]] = []
    for j in columns.tolist():
        if chains and parent[chains[-1][0][-1]] == j:
            before, rows = chains[-1]
            apart = Shape(len(before), rows.size, True).cost(lanes) + Shape(1, below[j].size, True).cost(lanes)
            if Shape(len(before) + 1, below[j].size, True).cost(lanes) < apart:
                chains[-1] = ([*before, j], below[j])
                continue
        chains.append(([j], below[j]))
    return chains


def _locate_entries(
    lower: sp.csc_matrix, order: np.ndarray, first: np.ndarray, rows: list[np.ndarray], inner: np.ndarray, lanes: int
) -> Int[np.ndarray, " stored"]:
    """Return for every stored number the entry of L that it is; their count where L has none."""
    n = order.size
    wanted_rows = []
    wanted_columns = []
    for s, below in enumerate(rows):
        own = np.arange(first[s], first[s + 1])
        shape = Shape(own.size, below.size, bool(inner[s]))
        # What is padded is like an entry of the diagonal, which L does not have.
        for column, rows_of_column in zip(own, shape.triangle(lanes), strict=False):
            row = first[s] + np.array(rows_of_column)
            wanted_rows.append(np.where((row > column) & (row <= own[-1]), row, column))
            wanted_columns.append(np.full(row.size, column))
        padded = np.tile(own[:, None], shape.pad(lanes))
        padded[:, : below.size] = below
        wanted_rows.append(padded.ravel())
        wanted_columns.append(np.repeat(own, padded.shape[1]))
    wanted = order[np.concatenate(wanted_columns)] * n + order[np.concatenate(wanted_rows)]
    keys = np.repeat(np.arange(n), np.diff(lower.indptr)) * n + lower.indices
    sorting = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys, wanted, sorter=sorting), keys.size - 1)
    found = sorting[at]
    return np.where(keys[found] == wanted, found, keys.size)
