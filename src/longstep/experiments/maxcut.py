"""The semidefinite relaxation of maximum cut on random graphs, by SCS's iteration.

    maximise tr(CW)  subject to  Wᵢᵢ = 1,  W ⪰ 0

C is the Laplacian of an Erdős–Rényi graph with k nodes. The unknowns are W's lower triangle by columns, off-diagonal
entries times √2 (n = k(k+1)/2), so that the cone's rows are −I; with the diagonal's k zero rows above them, every row
of A has one entry and P = 0: the matrix to factor is diagonal. The parameter is the upper triangle of C by rows (the
same order), unscaled. The optimal value is that of −tr(CW).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from longstep import Affine, Cones, Conic


@dataclass(frozen=True)
class Maxcut:
    """Maximum cut on graphs of `nodes` nodes that have each edge with the given probability.

    >>> problem = Maxcut(nodes=4)
    >>> problem.family.n, problem.family.m, problem.sample(np.random.default_rng(0)).shape
    (10, 14, (10,))
    """

    nodes: int = 70
    probability: float = 0.5
    equilibrate: bool = True
    dtype: str = "float64"

    @cached_property
    def triangle(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column in the upper triangle of every entry of a parameter."""
        return np.triu_indices(self.nodes)

    @cached_property
    def family(self) -> Conic:
        """The conic program with the Laplacian's triangle as its parameter."""
        row, column = self.triangle
        n = len(row)
        diagonal = np.flatnonzero(row == column)
        A = sp.vstack([sp.eye_array(n, format="csr")[diagonal], -sp.eye_array(n)])
        # tr(CW) = Σ C_ii W_ii + Σ_{i<j} (√2 C_ij)(√2 W_ij)
        scale = np.where(row == column, 1.0, np.sqrt(2.0))
        return Conic(
            None,
            A,
            Cones(zero=self.nodes, semidefinite=(self.nodes,)),
            b=np.concatenate([np.ones(self.nodes), np.zeros(n)]),
            c=np.zeros(n),
            parameter=Affine(c=-sp.diags_array(scale)),
            equilibrate=self.equilibrate,
            dtype=self.dtype,
        )

    def laplacian(self, rng: np.random.Generator) -> np.ndarray:
        """The Laplacian (nodes, nodes) of a random graph: degrees on the diagonal, −1 for every edge."""
        edges = np.triu(rng.random((self.nodes, self.nodes)) < self.probability, 1).astype(float)
        edges += edges.T
        return np.diag(edges.sum(axis=0)) - edges

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """The upper triangle by rows (k(k+1)/2,) of a random graph's Laplacian."""
        return self.laplacian(rng)[self.triangle]

    def matrix(self, x: np.ndarray) -> np.ndarray:
        """W (…, nodes, nodes) from the family's unknowns (…, n)."""
        row, column = self.triangle
        W = np.zeros((*x.shape[:-1], self.nodes, self.nodes))
        W[..., row, column] = W[..., column, row] = x * np.where(row == column, 1.0, np.sqrt(0.5))
        return W
