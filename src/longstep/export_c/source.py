"""The C source of a solver: its numbers in the order of elimination, and the parts that compute with them."""

import re

import numpy as np
import scipy.sparse as sp

from ..cones.product import Cones
from ..engine.rules import BlockRule
from . import emit
from .condensed import order_inner, write_condensed
from .cones import write_cones
from .linear import Linear
from .load import write_conic_load, write_qp_load
from .newton import write_newton
from .problem import ExportedProblem
from .products import write_free_rows, write_product
from .vectors import Vector

# The least tolerance that makes sense in float; double has none.
LEAST_EPS = {"double": 0.0, "float": 1e-6}


def rename_prefix(text: str, prefix: str) -> str:
    """Return a text of the parts, which are written with the prefix longstep, with another prefix."""
    return re.sub(r"\blongstep_", f"{prefix}_", re.sub(r"\bLONGSTEP_", f"{prefix.upper()}_", text))


def write_data(problem: ExportedProblem, linear: Linear, precision: str, apart: bool) -> str:
    """Return the private header: every number that the solver computes with, and the code made for its patterns.

    Those of the factors are not in it where they are kept `apart`.
    """
    common = _write_common(problem, linear, precision, apart)
    if problem.condensed is not None:
        own = write_condensed(problem, problem.condensed.reorder(linear.order), linear, precision)
    elif problem.cones is None:
        own = _write_qp(problem, linear, precision)
    else:
        own = _write_conic(problem, problem.cones, linear, precision)
    return "\n".join([*common, *own])


def _write_common(problem: ExportedProblem, linear: Linear, precision: str, apart: bool) -> list[str]:
    """Return what the data of all kinds of solvers have, in parts."""
    return [
        _write_scalars(problem, linear, precision),
        *_write_metric(problem, linear.order, precision),
        *_write_ladder(problem, precision),
        *_write_steps(problem, linear, precision, apart),
    ]


def _write_scalars(problem: ExportedProblem, linear: Linear, precision: str) -> str:
    """Return the sizes, the numbers and the functions of this precision, by name."""
    real = emit.REALS[precision]
    vectors = [*problem.data.values(), *_list_condensed_data(problem)]
    largest = max(problem.n, problem.constraints, problem.size, *(v.matrix.nnz for v in vectors))
    number = 0
    rule = BlockRule
    if problem.safeguard is not None:
        number = problem.safeguard.c_number
        rule = problem.safeguard
    sign = 1
    if problem.layout is not None:
        sign = problem.layout.sign
    scalars = {
        "N": len(linear.order),
        "ROWS": problem.A.shape[0],
        "HORIZON": problem.horizon,
        "FACTOR_SIZE": linear.factors.shape[1],
        "SAFEGUARD": f"{number} /* 1: after each block, 2: after each step */",
        "REFINEMENTS": linear.refinements,
        "GROWTH": int(rule.growth),
        "FAILURES": f"{rule.most_failures} /* after so many, safe steps to the end */",
        "ROOT_EPSILON": emit.number(real.epsilon**0.5, precision),
        "EPS_INFEASIBLE": emit.number(problem.eps_infeasible, precision),
        "OBJECTIVE_SIGN": sign,
        "SIZE_P": emit.number(problem.size_P, precision),
        "SIZE_A": emit.number(problem.size_A, precision),
    }
    typedef = f"\ntypedef {emit.index_type(largest)} index_t;"
    return "\n".join([emit.defines(scalars), name_functions(precision), typedef, emit.read_part("prelude.c")])


def name_functions(precision: str) -> str:
    """Return the limits and the functions of this precision, by name."""
    real = emit.REALS[precision]
    limits = {f"REAL_{name}": f"{real.limits}_{name}" for name in ("MAX", "MIN")}
    limits["EPSILON"] = f"{real.limits}_EPSILON"
    functions = ("sqrt", "fabs", "copysign", "fmax", "exp", "log")
    return emit.defines(limits | {name.upper(): name + real.suffix for name in functions})


def _write_steps(problem: ExportedProblem, linear: Linear, precision: str, apart: bool) -> list[str]:
    """Return where blocks end, the factors and which of them each step takes, and how they and maps are applied."""
    parts = []
    if problem.safeguard is not None and problem.safeguard.by_block:
        parts.append(emit.integers("uint8_t", "ends", problem.ends))
    kind = "uint8_t" if linear.factors.shape[0] < 256 else "uint16_t"
    factors = "static const real *factors;\n"
    if not apart:
        factors = emit.reals("factors", linear.factors, precision)
    parts += [emit.integers(kind, "which", problem.which), factors, linear.code]
    maps = _list_condensed_data(problem)
    if problem.mapped:
        maps += problem.data.values()
    if any(vector.matrix.nnz for vector in maps):
        parts.append(emit.read_part("affine.c"))
    return parts


def _list_condensed_data(problem: ExportedProblem) -> list[Vector]:
    return [] if problem.condensed is None else list(problem.condensed.data.values())


def list_features(problem: ExportedProblem) -> dict[str, bool]:
    """Return what some solvers have and others lack, by the names in the parts."""
    return {
        "METRIC": problem.metric is not None,
        "LADDER": problem.rungs is not None,
        "CONDENSED": problem.condensed is not None,
        "FINISH": problem.finish is not None,
        "PREDICTED": problem.start is not None,
    }


def _order_metric(problem: ExportedProblem, order: np.ndarray) -> np.ndarray:
    """Return the places of the metric's entries in the order of the rows that have penalties."""
    if problem.condensed is None:
        return _order_rows(problem)
    return order_inner(problem, problem.condensed.reorder(order))


def _write_metric(problem: ExportedProblem, order: np.ndarray, precision: str) -> list[str]:
    """Return the metric in the order of the rows, and ones behind it where places do without it; [] without one."""
    if problem.metric is None:
        return []
    rows = problem.metric[_order_metric(problem, order)]
    some_plain = bool(problem.plain.any())
    tables = emit.reals("metric", rows, precision)
    if some_plain:
        tables = emit.reals("metric", np.concatenate([rows, np.ones_like(rows)]), precision)
        tables += f"#define METRIC_SIZE {rows.size}\n" + emit.integers("uint8_t", "plain", problem.plain)
    return [tables + emit.select_features(emit.read_part("metric.c"), SOME_PLAIN=some_plain)]


def _write_ladder(problem: ExportedProblem, precision: str) -> list[str]:
    """Return the ladder's rungs and rule; [] without one."""
    rungs = problem.rungs
    if rungs is None:
        return []
    real = emit.REALS[precision]
    scalars = {
        "RUNGS": rungs.logs.size,
        "RUNG_FIRST": rungs.first,
        "RUNG_LAST": rungs.last,
        "RUNG_SECOND": f"({rungs.second}) /* -1: there is none */",
        "RUNG_EVERY": rungs.every,
        "RUNG_THRESHOLD": emit.number(rungs.threshold, precision),
        "RUNG_PROGRESS": emit.number(rungs.progress, precision),
        "RUNG_ENOUGH": emit.number(rungs.enough, precision),
        "RUNG_FIRST_MARK": rungs.marks[0],
        "RUNG_AT_MARK(k)": "(" + " || ".join(f"(k) == {mark}" for mark in rungs.marks) + ")",
        "RUNG_WAIT": rungs.wait,
        "RUNG_MOST": rungs.most,
        "RUNG_PATIENCE": rungs.patience,
        "RUNG_TINY": emit.number(real.tiny**0.25, precision),
    }
    return [emit.defines(scalars) + "\n" + emit.reals("rung_log", rungs.logs, precision)]


def _order_rows(problem: ExportedProblem) -> np.ndarray:
    """Return the order of the rows: equalities first, then by entries, so that loops do alike things; cones stay."""
    if problem.cones is not None:
        return np.arange(problem.constraints)
    return np.lexsort((np.diff(problem.A.indptr), ~problem.equality))


def _write_qp(problem: ExportedProblem, linear: Linear, precision: str) -> list[str]:
    rows = _order_rows(problem)
    order = linear.order
    A = sp.csr_array(problem.A[rows][:, order])
    P = sp.csr_array(problem.P[order][:, order])
    d = problem.d[order]
    e = problem.e[rows]
    c = problem.c
    scalars = {"ONE_OVER_C": 1 / c, "C_SCALE": c}
    vectors = {
        **{name: problem.theta[name] for name in ("rho_eq", "rho_ineq", "alpha")},
        "d_scale": d,
        "one_over_dc": 1 / (d * c),
        "one_over_e": 1 / e,
        "e_over_c": e / c,
    }
    return [
        emit.defines({"EQUALITIES": int(problem.equality.sum()), "P_BY_SYSTEM": int(linear.by_system)}),
        emit.defines(emit.numbers(scalars, precision)),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        _write_refining(problem, linear, precision),
        emit.integers("index_t", "place_x", order),
        emit.integers("index_t", "place_row", problem.place[rows]),
        write_product("multiply_A", A, precision),
        write_product("multiply_At", sp.csr_array(A.T), precision),
        write_product("multiply_P", P, precision),
        write_free_rows(problem.free, problem.free_place, precision),
        write_qp_load(problem, rows, order, precision),
    ]


def _write_refining(problem: ExportedProblem, linear: Linear, precision: str) -> str:
    """Return what the system that a step solves has besides P and A."""
    if not linear.spare:
        return ""
    order = linear.order
    fixed = sp.csr_array((problem.n, problem.n))
    if problem.fixed is not None:
        fixed = problem.fixed[order][:, order]
    tables = emit.reals("sigma", problem.theta["sigma"], precision)
    return tables + write_product("multiply_fixed", sp.csr_array(fixed), precision)


def _write_conic(problem: ExportedProblem, cones: Cones, linear: Linear, precision: str) -> list[str]:
    order = linear.order
    A = sp.csr_array(problem.A[:, order])
    P = sp.csr_array(problem.P[order][:, order])
    d = problem.d[order]
    scalars = {
        "NORMALIZED": int(problem.normalized),
        "ROOT_SIZE": emit.number(float(np.sqrt(problem.n + problem.constraints + 1)), precision),
    }
    vectors = {
        **{name: problem.theta[name] for name in ("r_w", "r_yz", "r_ynz", "r_tau", "alpha")},
        "d_scale": d,
        "one_over_d": 1 / d,
        "one_over_e": 1 / problem.e,
    }
    return [
        emit.defines(scalars),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        emit.integers("index_t", "place_x", order),
        write_product("multiply_A", A, precision),
        write_product("multiply_At", sp.csr_array(A.T), precision),
        write_product("multiply_P", P, precision),
        *write_cones(cones, precision, list_features(problem)),
        emit.read_part("conic_load.c"),
        write_conic_load(problem, order, precision),
        *write_newton(problem, A, P, precision),
    ]
