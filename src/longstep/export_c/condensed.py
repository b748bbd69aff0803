"""The data of condensed steps as C: products in their coordinates, where solves begin, and what the finish takes."""

import numpy as np
import scipy.sparse as sp

from ..engine.finish import ACCURACY, OUTER, corrections, finish_tables
from ..engine.finisher import Patience
from ..engine.pivoting import DEPENDENT, choose_rounding, limit_changes
from . import emit
from .condensation import Condensation
from .linear import Linear
from .load import write_condensed_load
from .problem import ExportedProblem
from .products import write_free_rows, write_product


def write_condensed(problem: ExportedProblem, c: Condensation, linear: Linear, precision: str) -> list[str]:
    """Return the data of condensed steps, in the coordinates of a condensation, in parts."""
    rows = np.concatenate([c.equalities, c.inner])
    n = problem.n
    A = sp.csr_array(problem.A[rows])
    d = problem.d
    e = problem.e[rows]
    scalars = {"ONE_OVER_C": 1 / problem.c, "C_SCALE": problem.c, **c.bounds, "DELTA": float(problem.shift.max())}
    scalars["ROUNDING"] = 1e3 * emit.REALS[precision].epsilon
    vectors = {
        **{name: problem.theta[name] for name in ("rho", "alpha")},
        "d_scale": d,
        "one_over_dc": 1 / (d * problem.c),
        "one_over_e": 1 / e,
        "e_over_c": e / problem.c,
        "one_over_g_size": 1 / (problem.c * d @ np.abs(c.N)),
    }
    refinements = 0
    if c.normal is not None:
        refinements = max(c.normal.refinements, int(precision == "float"))
    sizes = {
        "WHOLE": n,
        "EQUALITIES": c.equalities.size,
        "INNER": c.inner.size,
        "BY_SYSTEM": int(linear.by_system),
        "NORMAL": int(c.normal is not None or not c.equalities.size),
        "NORMAL_REFINEMENTS": refinements,
        "APART": int(c.apart is not None),
        "LEAST": int(c.least),
        "ROWS_ARE_COORDINATES": int(c.rows_are_coordinates),
    }
    return [
        emit.defines(sizes),
        emit.defines(emit.numbers(scalars, precision)),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        emit.integers("index_t", "place_row", problem.place[rows]),
        _write_inner_rows(c, precision),
        write_product("multiply_reduced", sp.csr_array(c.P), precision),
        write_product("multiply_N", sp.csr_array(c.N), precision),
        write_product("multiply_P", problem.P, precision),
        write_product("multiply_whole", A, precision),
        write_product("multiply_whole_t", sp.csr_array(A.T), precision),
        _write_multipliers(c, precision),
        _write_back(c, precision),
        write_free_rows(problem.free, problem.free_place, precision),
        write_condensed_load(problem, c, rows, precision),
        *_write_start(problem, c, precision),
        *_write_finish(problem, c, precision),
    ]


def order_inner(problem: ExportedProblem, c: Condensation) -> np.ndarray:
    """Return the places, among the inequalities, of those of a condensation."""
    return np.searchsorted(np.flatnonzero(~problem.equality), c.inner)


def _write_inner_rows(c: Condensation, precision: str) -> str:
    """Return products with A, whose first rows are those of the identity, and with its transpose."""
    A = sp.csr_array(c.A)
    rest = sp.csr_array(A[c.alike :])
    if not c.multiplies_apart:
        return write_product("multiply_A", A, precision) + write_product("multiply_At", sp.csr_array(A.T), precision)
    return (
        write_product("multiply_others", rest, precision)
        + write_product("multiply_others_t", sp.csr_array(rest.T), precision)
        + emit.fill_part("inner_rows.c", alike=c.alike)
    )


def _write_multipliers(c: Condensation, precision: str) -> str:
    """Return the map from a slope to the equalities' multipliers, and what repeated equalities leave of b."""
    text = ""
    if c.apart is not None:
        text = write_product("multiply_apart", sp.csr_array(c.apart), precision)
    if not c.equalities.size:
        return text + emit.read_part("no_equalities.c")
    if c.normal is None:
        return text + write_product("multiply_Yt", sp.csr_array(c.Y.T), precision)
    f = c.normal
    return (
        emit.integers("int32_t", "normal_first", f.first)
        + emit.integers(emit.index_type(c.equalities.size), "normal_row", f.row)
        + emit.reals("normal_value", f.value, precision)
        + emit.reals("normal_inverse", f.inverse, precision)
        + emit.read_part("normal.c")
    )


def _write_back(c: Condensation, precision: str) -> str:
    """Return the product from a point to its coordinates, where the rows do not give them."""
    if c.rows_are_coordinates:
        return ""
    return write_product("multiply_back", c.left_inverse(), precision)


def _write_start(problem: ExportedProblem, c: Condensation, precision: str) -> list[str]:
    """Return the map from the parameter to where solves begin, in equilibrated units; [] where that is zero."""
    start = problem.start
    if start is None:
        return []
    at = order_inner(problem, c)
    e = problem.e[c.inner]
    return [
        write_product("multiply_start", sp.csr_array(e[:, None] * start.weights[at]), precision),
        emit.reals("start_offset", e * start.offset[at], precision),
        emit.reals("start_rho", start.rho[at] * problem.c / e**2, precision),
        emit.reals("start_low", start.low, precision),
        emit.reals("start_high", start.high, precision),
    ]


def _write_finish(problem: ExportedProblem, c: Condensation, precision: str) -> list[str]:
    """Return what the finish computes with: the inverse of P, or of P and a proximal term, and what comes of it."""
    if problem.finish is None:
        return []
    patience = problem.patience or Patience(0.0, problem.finish)
    made = finish_tables(c.P, c.A, c.N.T @ c.N, problem.proximal)
    sizes = {
        "SLOTS": c.slots,
        "PANEL": 4,
        "MOST_CHANGES": limit_changes(c.slots),
        "FINISH_AFTER": problem.finish,
        "PATIENCE": patience.steps,
        "FINISH_BY_SETS": 1,
        "FINISH_OUTER": OUTER,
        "FINISH_CORRECTIONS": corrections(made.delta),
        "PROXIMAL": int(made.delta > 0),
    }
    rounding = choose_rounding(made.delta > 0)
    scalars = {
        "DEPENDENT": DEPENDENT,
        "FINISH_ROUNDING": rounding,
        "FINISH_ACCURACY": ACCURACY,
        "PATIENCE_EPS": patience.eps,
    }
    vectors = {"gram": made.gram, "spread": made.spread, "one_over_root": 1 / made.root}
    proximal = ""
    if made.delta:
        proximal = write_product("multiply_proximal", sp.csr_array(made.delta * (c.N.T @ c.N)), precision)
    return [
        emit.defines(sizes),
        emit.defines(emit.numbers(scalars, precision)),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        write_product("multiply_inverse", sp.csr_array(made.inverse), precision),
        proximal,
    ]
