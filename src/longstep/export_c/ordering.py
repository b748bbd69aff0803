"""From the pattern of a symmetric matrix to the blocks of its LDLᵀ factorization: an order, and what goes together.

With the unknowns in the order of elimination, block J with the rows R below it, the factorization is

    forward, in order:         b_R ← b_R − C b_J,          C = L_RJ L_JJ⁻¹
    backward, in reverse:      x_J = M b_J − Cᵀ x_R,       M = (L_JJ L_JJᵀ)⁻¹

All of it are products with small dense blocks. Blocks of one column are the usual sparse LDLᵀ; one block of all
columns is the dense inverse. Between the two lies what is fastest: a larger block stores some zeros and is done in
fewer, longer vector operations. Columns that nothing was eliminated into and that have the same rows below, as
residuals in least squares have, go together too; their M is diagonal.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Int
from scipy.sparse.linalg import splu

METHODS = ("auto", "sparse", "blocks", "inverse", "augmented")
# Columns of a block are padded to multiples of this many numbers, measured on x86: 256 bits.
LANES = {"double": 4, "float": 8}
# A block's own overhead and that of an indexed row, in multiplications of a long product; and what an entry of
# column-wise LDLᵀ costs, where every number is loaded, multiplied and stored alone, and a column.
BLOCK = 20.0
ROW = 2.0
ENTRY = 4.0
COLUMN = 6.0
# Blocks have functions of their own, a few hundred bytes for each shape.
_MOST_SHAPES = 64
_MOST_BLOCKS = 600


@dataclass(frozen=True)
class BlockCosts:
    """What a block costs, in units of one multiplication of a long product.

    A block of j columns with r rows below costs  block + entry·(w(r)·j + w(j)·(j + r)) + row·r,  with w(k) the length k
    rounded up to whole vectors: products are taken column by column, C forward, and M and Cᵀ backward.
    """

    block: float
    row: float
    vector: int

    def __call__(self, columns: int, rows: int, diagonal: bool = False) -> float:
        """Return the cost of one block, whose M may be diagonal."""
        up = -(-rows // self.vector) * self.vector
        wide = -(-columns // self.vector) * self.vector
        return self.block + up * columns + wide * (count_M(columns, diagonal) + rows) + self.row * rows


def count_M(columns: int, diagonal: bool) -> int:
    """Return the numbers in a column of M: one where M is diagonal."""
    return 1 if diagonal else columns


@dataclass(frozen=True)
class Blocks:
    """The order of elimination and its blocks: columns start[s] … start[s+1] of the permuted matrix, and rows below."""

    order: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " starts"]
    rows: list[Int[np.ndarray, "..."]]
    diagonal: list[bool]

    @property
    def widths(self) -> Int[np.ndarray, " blocks"]:
        """The number of columns of each block."""
        return np.diff(self.start)

    @property
    def entries(self) -> int:
        """Numbers that one factor has: C and M of every block."""
        return sum(j * (count_M(j, diagonal) + r) for j, r, diagonal in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int, bool]]:
        """Columns, rows below, and whether M is diagonal, of each block."""
        sizes = zip(self.widths, self.rows, self.diagonal, strict=True)
        return [(int(j), r.size, diagonal) for j, r, diagonal in sizes]

    def cost(self, costs: BlockCosts) -> float:
        """Return the cost of one solve."""
        return sum(costs(*shape) for shape in self.shapes)


class ChosenMethod(NamedTuple):
    """A method, its blocks, and what one solve costs by it."""

    method: str
    blocks: Blocks
    cost: float


def choose_method(pattern: sp.csr_array, method: str, lanes: int) -> ChosenMethod:
    """Return the blocks of the method that was asked for; `auto` takes the cheapest by the cost model, which counts
    what one right-hand side costs on one core, where `linalg.systems` counts long products of many."""
    costs = BlockCosts(BLOCK, ROW, lanes)
    n = pattern.shape[0]
    whole = join_columns(n)
    if method == "inverse":
        return ChosenMethod(method, whole, whole.cost(costs))
    alone = order_columns(pattern)
    by_columns = ChosenMethod("sparse", alone, 2 * ENTRY * (alone.entries - n) + COLUMN * n)
    if method == "sparse":
        return by_columns
    blocks = choose_blocks(pattern, costs)
    in_blocks = ChosenMethod("blocks", blocks, blocks.cost(costs))
    if method == "blocks":
        return in_blocks
    options = [ChosenMethod("inverse", whole, whole.cost(costs)), by_columns]
    if len(blocks.rows) <= _MOST_BLOCKS and len(set(blocks.shapes)) <= _MOST_SHAPES:
        options.append(in_blocks)
    return min(options, key=lambda choice: choice.cost)


def join_columns(n: int) -> Blocks:
    """Return one block of all columns: the dense inverse."""
    return Blocks(np.arange(n), np.array([0, n]), [np.zeros(0, int)], [False])


def order_columns(pattern: sp.csr_array) -> Blocks:
    """Return blocks of one column, in minimum degree order: sparse LDLᵀ with the fewest numbers."""
    order = order_by_degree(pattern)
    n = pattern.shape[0]
    return Blocks(order, np.arange(n + 1), eliminate(pattern, order), [False] * n)


def choose_blocks(pattern: sp.csr_array, costs: BlockCosts) -> Blocks:
    """Return the cheapest blocks of a few orders: minimum degree, and the order that the unknowns have."""
    orders = [np.arange(pattern.shape[0]), order_by_degree(pattern)]
    return min((merge_columns(pattern, order, costs) for order in orders), key=lambda blocks: blocks.cost(costs))


def order_by_degree(pattern: sp.csr_array) -> Int[np.ndarray, " n"]:
    """Return SuperLU's multiple minimum degree order of a symmetric pattern."""
    n = pattern.shape[0]
    off = sp.csc_array(pattern - sp.diags_array(pattern.diagonal()))
    off.data = np.full(off.nnz, -1.0)
    # Diagonally dominant, so that nothing is pivoted.
    matrix = sp.csc_array(off + sp.diags_array(np.asarray(abs(off).sum(axis=1)).ravel() + 1.0))
    options = {"SymmetricMode": True}
    factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    order = np.empty(n, int)
    order[factor.perm_c] = np.arange(n)
    return order


def eliminate(pattern: sp.csr_array, order: Int[np.ndarray, " n"]) -> list[Int[np.ndarray, " r"]]:
    """Return the rows below the diagonal of every column of L, in permuted numbers."""
    n = pattern.shape[0]
    permuted = sp.csc_array(pattern[order][:, order])
    below: list[np.ndarray] = []
    children: list[list[int]] = [[] for _ in range(n)]
    for j in range(n):
        column = permuted.indices[permuted.indptr[j] : permuted.indptr[j + 1]]
        parts = [column[column > j], *(below[c][below[c] > j] for c in children[j])]
        below.append(np.unique(np.concatenate(parts)))
        if below[j].size:
            children[below[j][0]].append(j)
    return below


def merge_columns(pattern: sp.csr_array, order: Int[np.ndarray, " n"], costs: BlockCosts) -> Blocks:
    """Return blocks of single columns, joined with their parents in the elimination tree wherever that is cheaper.

    The rows of a column are among its parent and the parent's rows, so a joined block has the parent's rows.
    """
    below = eliminate(pattern, order)
    n = len(below)
    parent = np.array([rows[0] if rows.size else -1 for rows in below])
    members = [[j] for j in range(n)]
    owner = np.arange(n)
    rows = [r.size for r in below]
    alive = np.ones(n, bool)
    diagonal = np.zeros(n, bool)
    for group in _group_leaves(below, parent, costs.vector):
        members[group[-1]], diagonal[group[-1]] = group, True
        owner[group], alive[group[:-1]] = group[-1], False
    changed = True
    while changed:
        changed = False
        for j in range(n):
            if not alive[j] or parent[j] < 0:
                continue
            p = _find_owner(owner, parent[j])
            a = len(members[j])
            b = len(members[p])
            if costs(a + b, rows[p]) < costs(a, rows[j], diagonal[j]) + costs(b, rows[p]):
                members[p] = members[j] + members[p]
                owner[j], alive[j], changed = p, False, True
    tops = [p for p in range(n) if alive[p]]
    # The tops of other trees have no parent.
    parents = [-1 if parent[p] < 0 else _find_owner(owner, parent[p]) for p in tops]
    return _arrange(order, below, tops, members, parents, diagonal)


def _group_leaves(below: list, parent: np.ndarray, least: int) -> list[list[int]]:
    """Return groups of at least `least` leaves of the elimination tree that have the same rows below."""
    groups: dict[bytes, list[int]] = {}
    for j in np.setdiff1d(np.arange(len(below)), parent):
        if below[j].size:
            groups.setdefault(below[j].tobytes(), []).append(int(j))
    return [group for group in groups.values() if len(group) >= max(least, 2)]


def _find_owner(owner: np.ndarray, j: int) -> int:
    while owner[j] != j:
        j = int(owner[j])
    return int(j)


def _arrange(order: np.ndarray, below: list, tops: list, members: list, parents: list, diagonal: np.ndarray) -> Blocks:
    """Return blocks in postorder, so that each one's columns are neighbours and come before its parent's."""
    children: dict[int, list[int]] = {}
    for top, parent in zip(tops, parents, strict=True):
        children.setdefault(parent, []).append(top)
    sequence = []
    stack = list(reversed(children.get(-1, [])))
    while stack:
        top = stack.pop()
        sequence.append(top)
        stack.extend(children.get(top, []))
    sequence.reverse()
    columns = np.concatenate([np.sort(members[top]) for top in sequence])
    place = np.argsort(columns)
    # The top of a block, its last column, has the rows of all of it.
    rows = [np.sort(place[below[top]]) for top in sequence]
    start = np.cumsum([0, *(len(members[top]) for top in sequence)])
    return Blocks(order[columns], start, rows, [bool(diagonal[top]) for top in sequence])
