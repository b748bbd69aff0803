"""The linear system of a step in its augmented form, whose L is sparse: its numbers, and C code that applies them."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.linalg import spsolve_triangular

from ..linalg.systems import Augmented, Factors
from . import emit
from .factors import make_probes
from .ordering import ROW
from .panels import Panels, choose_panels
from .problem import ExportedProblem


@dataclass(frozen=True)
class AugmentedForm:
    """The augmented form of a problem's systems, and the panels of L that all of its factors have.

    `order` are the unknowns as they are eliminated, `place` are their places among all that is.
    """

    augmented: Augmented
    panels: Panels
    order: Int[np.ndarray, " n"]
    place: Int[np.ndarray, " n"]

    @staticmethod
    def of(problem: ExportedProblem, lanes: int) -> "AugmentedForm":
        """Return the form of a problem; what rows that no instance bounds add to P stays with P."""
        P = problem.P
        if problem.fixed is not None:
            P = sp.csr_array(P + problem.fixed)
        augmented = Augmented(P, problem.A)
        lower, _, nodes = augmented.factorize(1.0, np.ones(augmented.m))
        panels = choose_panels(lower, lanes)
        eliminated = nodes[panels.order]
        place = np.flatnonzero(eliminated < problem.n)
        return AugmentedForm(augmented, panels, eliminated[place], place)

    @property
    def cost(self) -> float:
        """What one solve costs, in multiplications of a long product; unknowns go into the system and out of it."""
        panels = self.panels
        return sum(shape.cost(panels.lanes) for shape in panels.shapes) + 2 * ROW * self.augmented.n

    @property
    def room(self) -> int:
        """How many numbers a solve works with: the system's, and those of the rows below a panel."""
        panels = self.panels
        return self.augmented.order + max(panels.lanes, *(shape.pad(panels.lanes) for shape in panels.shapes))

    def factorize(self, problem: ExportedProblem) -> list[Factors]:
        """Return the distinct factors of a problem."""
        return [
            self.augmented.factorize(float(shift), weights)
            for shift, weights in zip(problem.shift, problem.weights, strict=True)
        ]

    def pack(self, factors: list[Factors]) -> Float[np.ndarray, "factors size"]:
        """Return the numbers of each factor: L by panels, then the inverse of D."""
        panels = self.panels
        return np.stack(
            [
                np.concatenate([np.append(f.lower.data, 0.0)[panels.source], 1 / f.diagonal[panels.order]])
                for f in factors
            ]
        )

    def write(self) -> str:
        """Return the tables that all factors have in common, and `solve`."""
        panels = self.panels
        order = self.augmented.order
        rows = np.cumsum([0, *(shape.rows for shape in panels.shapes)])
        values = np.cumsum([0, *(shape.entries(panels.lanes) for shape in panels.shapes)])
        sizes = {"ORDER": order, "PANELS": len(panels.shapes), "L_SIZE": values[-1], "LANES": panels.lanes}
        index = emit.index_type(order)
        return (
            emit.defines(sizes)
            + f"\ntypedef {index} index_l;\n"
            + emit.integers("int32_t", "panel_column", panels.first)
            + emit.integers("int32_t", "panel_row", rows)
            + emit.integers("int32_t", "panel_value", values)
            + emit.integers(index, "panel_inner", [len(shape.triangle(panels.lanes)) for shape in panels.shapes])
            + emit.integers(index, "L_row", np.concatenate(panels.rows))
            + emit.integers(index, "place_t", self.place)
            + emit.read_part("augmented.c")
        )


def measure_error(problem: ExportedProblem, g: int, factors: Factors, dtype: np.dtype) -> float:
    """Return max |K·K⁻¹ − I| of solves with factor g in this precision."""
    n = problem.n
    probes = make_probes(n)
    right = np.zeros((factors.order.size, probes.shape[1]), dtype)
    place = np.argsort(factors.order)[:n]
    right[place] = probes
    L = sp.csc_array(factors.lower.astype(dtype) + sp.eye_array(factors.order.size, dtype=dtype))
    half = spsolve_triangular(L, right, lower=True, unit_diagonal=True)
    half *= (1 / factors.diagonal).astype(dtype)[:, None]
    x = spsolve_triangular(L.T, half, lower=False, unit_diagonal=True)[place].astype(np.float64)
    return float(np.abs(problem.apply_gram(g, x) - probes).max())
