"""The order of elimination and its blocks, against dense factorizations and QDLDL's counts."""

import numpy as np
import pytest
import scipy.sparse as sp

from longstep.export_c.ordering import (
    BlockCosts,
    choose_blocks,
    eliminate,
    join_columns,
    merge_columns,
    order_by_degree,
    order_columns,
)
from longstep.research.experiments import quadcopter


def random_pattern(seed, n=30, density=0.08):
    rng = np.random.default_rng(seed)
    half = sp.csr_array(rng.random((n, n)) < density, dtype=float)
    return sp.csr_array(half + half.T + n * sp.eye_array(n))


def apply_blocks(blocks, K, b):
    """The two passes of the module's docstring, written with dense linear algebra."""
    order, x = blocks.order, b[blocks.order].copy()
    root = np.linalg.cholesky(K[np.ix_(order, order)])
    parts = []
    for s, rows in enumerate(blocks.rows):
        own = np.arange(blocks.start[s], blocks.start[s + 1])
        L = root[np.ix_(own, own)]
        parts.append((own, rows, root[np.ix_(rows, own)] @ np.linalg.inv(L), np.linalg.inv(L @ L.T)))
    for own, rows, C, _ in parts:
        x[rows] -= C @ x[own]
    for own, rows, C, M in reversed(parts):
        x[own] = M @ x[own] - C.T @ x[rows]
    out = np.empty_like(x)
    out[order] = x
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("costs", [BlockCosts(0, 0, 1), BlockCosts(20, 2, 4), BlockCosts(1e6, 0, 4)])
def test_blocks_solve_the_system(seed, costs):
    pattern = random_pattern(seed)
    rng = np.random.default_rng(seed)
    values = np.triu(rng.normal(size=pattern.shape))
    K = np.where(pattern.toarray() != 0, values + values.T, 0.0) + 40 * np.eye(30)
    b = rng.normal(size=30)
    for blocks in (choose_blocks(pattern, costs), order_columns(pattern), join_columns(30)):
        assert sorted(blocks.order) == list(range(30))
        np.testing.assert_allclose(apply_blocks(blocks, K, b), np.linalg.solve(K, b), rtol=1e-10)


def test_symbolic_rows_are_those_of_the_factor():
    pattern = random_pattern(1)
    order = order_by_degree(pattern)
    root = np.linalg.cholesky(pattern.toarray()[np.ix_(order, order)])
    for j, rows in enumerate(eliminate(pattern, order)):
        np.testing.assert_array_equal(rows, j + 1 + np.flatnonzero(np.abs(root[j + 1 :, j]) > 1e-14))


def test_minimum_degree_keeps_the_factor_sparse():
    family = quadcopter.family()
    P, A = abs(family.P), abs(family.A)
    pattern = sp.csr_array(P + A.T @ A)
    fewest = sum(r.size for r in order_columns(pattern).rows)
    natural = sum(r.size for r in eliminate(pattern, np.arange(family.n)))
    assert fewest <= 2100
    assert fewest < natural


def test_costs_decide():
    """Free blocks stay single columns, dear ones become one."""
    pattern = random_pattern(2, density=0.02)
    order = order_by_degree(pattern)
    small, large = (merge_columns(pattern, order, BlockCosts(block, 0, 1)) for block in (0, 1e9))
    assert len(large.rows) < len(small.rows)
    for blocks, costs in ((small, BlockCosts(0, 0, 1)), (large, BlockCosts(1e9, 0, 1))):
        assert blocks.cost(costs) <= order_columns(pattern).cost(costs)
