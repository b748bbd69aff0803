"""The semidefinite relaxation of maximum cut on random graphs, by SCS's iteration.

    maximise tr(CW)  subject to  Wᵢᵢ = 1,  W ⪰ 0

C is the Laplacian of an Erdős–Rényi graph with k nodes. The unknowns are W's lower triangle by columns, off-diagonal
entries times √2 (n = k(k+1)/2), so that the cone's rows are −I; with the diagonal's k zero rows above them, every row
of A has one entry and P = 0: the matrix to factor is diagonal. The parameter is the upper triangle of C by rows (the
same order), unscaled. The optimal value is that of −tr(CW).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from typing_extensions import override

from longstep import Affine, Cones, Conic, Training

from . import methods
from .experiment import Experiment
from .methods import Entry, Extent
from .sizes import Size


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

    def draw_laplacian(self, rng: np.random.Generator) -> np.ndarray:
        """Return the Laplacian (nodes, nodes) of a random graph: degrees on the diagonal, −1 for every edge."""
        edges = np.triu(rng.random((self.nodes, self.nodes)) < self.probability, 1).astype(float)
        edges += edges.T
        return np.diag(edges.sum(axis=0)) - edges

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the upper triangle by rows (k(k+1)/2,) of a random graph's Laplacian."""
        return self.draw_laplacian(rng)[self.triangle]

    def make_matrix(self, x: np.ndarray) -> np.ndarray:
        """Return W (…, nodes, nodes) from the family's unknowns (…, n)."""
        row, column = self.triangle
        W = np.zeros((*x.shape[:-1], self.nodes, self.nodes))
        W[..., row, column] = W[..., column, row] = x * np.where(row == column, 1.0, np.sqrt(0.5))
        return W


_SMALL = Size(few=60, slow=60, timed=0, hidden=(30, 30), l2ws=40, lm=10)


class MaxcutExperiment(Experiment[Conic]):
    """Residuals are measured, so only the networks and the neighbour need optima, of training instances."""

    name = "maxcut"
    title = "Maximum cut, SCS"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL,
            problem={"nodes": 8}, validation=600, test=60, steps=120, certified=(10, 20, 30), horizon=10,
            package_steps=60,
            training={"iterations": 8, "candidates": 12, "starts": 1}
        ),
        "reference": Size(
            validation=600, test=200, few=50, slow=10, timed=10, steps=200, certified=(10, 20, 30, 40, 50)
        ),
        "paper": Size(few=50, slow=10, timed=10, steps=200, l2ws=150, lm=30, certified=(10, 20, 30, 40, 50)),
    }  # fmt: skip
    references = ("train",)
    # Where starts are all that they are for, Clarabel's last digit on large cones does not matter.
    accuracy = 1e-7

    @cached_property
    def problem(self) -> Maxcut:
        """The problem at this size."""
        return Maxcut(**self.size.problem)

    @override
    def train_main(self) -> Training:
        return self.learn("schedule", loss="metric")

    @override
    def list_entries(self) -> list[Entry]:
        family = self.family
        size = self.size
        training = self.train_main()
        plain = Maxcut(**self.size.problem, equilibrate=False).family
        slow: Extent = {"instances": size.package, "steps": size.package_steps}
        return [
            methods.make_learned("learned", f"learned, N = {size.train}", family, self.train_main, instances=size.few),
            methods.make_best_constant(family, training, instances=size.few),
            methods.make_vanilla(family, "vanilla, SCS's defaults", instances=size.few),
            methods.make_unit_scalings(plain, instances=size.few),
            *self.list_networks(training, steps=min(100, size.steps)),
            methods.make_scs(family, self.trained_on, 0, **slow),
            methods.make_scs(family, self.trained_on, 10, **slow),
        ]
