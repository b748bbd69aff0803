"""The C source of a solver: its numbers in the order of elimination, and the parts that compute with them."""

import re

import numpy as np
import scipy.sparse as sp

from ..cones.product import Cones
from ..engine.finish import ACCURACY, DEPENDENT, OUTER, ROUNDING, corrections, finish_tables, most_changes
from . import emit
from .condensation import Condensation
from .linear import Linear
from .load import condensed_load, conic_load, qp_load
from .problem import Problem
from .products import product

# The least tolerance that makes sense in float; double has none.
LEAST_EPS = {"double": 0.0, "float": 1e-6}
_SAFEGUARDS = {None: 0, "block": 1, "step": 2}


def renamed(text: str, prefix: str) -> str:
    """The parts are written with the prefix longstep."""
    return re.sub(r"\blongstep_", f"{prefix}_", re.sub(r"\bLONGSTEP_", f"{prefix.upper()}_", text))


def data_source(problem: Problem, linear: Linear, precision: str) -> str:
    """The private header: every number that the solver computes with, and the code made for its patterns."""
    common = _common(problem, linear, precision)
    if problem.condensed is not None:
        own = _condensed(problem, problem.condensed.ordered(linear.order), linear, precision)
    elif problem.cones is None:
        own = _qp(problem, linear, precision)
    else:
        own = _conic(problem, problem.cones, linear, precision)
    return "\n".join([*common, *own])


def _common(problem: Problem, linear: Linear, precision: str) -> list[str]:
    factors = linear.factors
    maps = [*problem.data.values(), *(() if problem.condensed is None else problem.condensed.data.values())]
    largest = max(problem.n, problem.constraints, problem.size, *(v.matrix.nnz for v in maps))
    root = {"double": np.finfo(np.float64).eps ** 0.5, "float": float(np.sqrt(np.finfo(np.float32).eps))}[precision]
    lines = [
        f"#define N {len(linear.order)}",
        f"#define ROWS {problem.A.shape[0]}",
        f"#define HORIZON {problem.horizon}",
        f"#define FACTOR_SIZE {factors.shape[1]}",
        f"#define SAFEGUARD {_SAFEGUARDS[problem.safeguard]} /* 1: after each block, 2: after each step */",
        f"#define REFINEMENTS {linear.refinements}",
        f"#define GROWTH {10 if problem.safeguard == 'step' else 1}",
        f"#define FAILURES {1 if problem.safeguard == 'step' else 2} /* after so many, safe steps to the end */",
        f"#define ROOT_EPSILON {emit.number(root, precision)}",
        f"#define EPS_INFEASIBLE {emit.number(problem.eps_infeasible, precision)}",
        f"#define OBJECTIVE_SIGN {1 if problem.layout is None else problem.layout.sign}",
        f"#define SIZE_P {emit.number(problem.size_P, precision)}",
        f"#define SIZE_A {emit.number(problem.size_A, precision)}",
        f"#define REAL_MAX {'DBL_MAX' if precision == 'double' else 'FLT_MAX'}",
        f"#define SQRT {'sqrt' if precision == 'double' else 'sqrtf'}",
        f"#define FABS {'fabs' if precision == 'double' else 'fabsf'}",
        f"#define COPYSIGN {'copysign' if precision == 'double' else 'copysignf'}",
        f"#define FMAX {'fmax' if precision == 'double' else 'fmaxf'}",
        f"\ntypedef {emit.index_type(largest)} index_t;",
        emit.part("prelude.c"),
    ]
    arrays = [
        emit.integers("uint8_t" if factors.shape[0] < 256 else "uint16_t", "which", problem.which),
        emit.reals("factors", factors, precision),
        linear.code,
    ]
    maps = [*(problem.data.values() if problem.mapped else ())]
    maps += [] if problem.condensed is None else problem.condensed.data.values()
    if any(vector.matrix.nnz for vector in maps):
        arrays.append(emit.part("affine.c"))
    if problem.safeguard == "block":
        arrays.insert(0, emit.integers("uint8_t", "ends", problem.ends))
    more = [text for text in (_metric(problem, linear.order, precision), _ladder(problem, precision)) if text]
    return ["\n".join(lines), *more, *arrays]


def has(problem: Problem) -> dict[str, bool]:
    """What some solvers have and others lack, by the names in the parts."""
    return {
        "METRIC": problem.metric is not None,
        "LADDER": problem.rungs is not None,
        "CONDENSED": problem.condensed is not None,
        "FINISH": problem.finish is not None,
    }


def _metric_order(problem: Problem, order: np.ndarray) -> np.ndarray:
    """The metric's entries in the order of the rows that have penalties."""
    if problem.condensed is None:
        return row_order(problem)
    return np.searchsorted(np.flatnonzero(~problem.equality), problem.condensed.ordered(order).inner)


def _metric(problem: Problem, order: np.ndarray, precision: str) -> str:
    """The metric in the order of the rows; where places do without it, ones behind it."""
    if problem.metric is None:
        return ""
    rows = problem.metric[_metric_order(problem, order)]
    some = bool(problem.plain.any())
    values = np.concatenate([rows, np.ones_like(rows)]) if some else rows
    tables = emit.reals("metric", values, precision)
    if not some:
        return tables + "static const real *metric_of(int32_t k)\n{\n    (void)k;\n    return metric;\n}\n"
    tables += f"#define METRIC_SIZE {rows.size}\n" + emit.integers("uint8_t", "plain", problem.plain)
    return tables + "static const real *metric_of(int32_t k)\n{\n    return metric + plain[k] * METRIC_SIZE;\n}\n"


def _ladder(problem: Problem, precision: str) -> str:
    """The ladder's rungs and rule."""
    rungs = problem.rungs
    if rungs is None:
        return ""
    tiny = float(np.finfo(np.float64 if precision == "double" else np.float32).tiny) ** 0.25
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
        "RUNG_TINY": emit.number(tiny, precision),
        "LOG": "log" if precision == "double" else "logf",
    }
    text = "".join(f"#define {name} {value}\n" for name, value in scalars.items())
    return text + emit.reals("rung_log", rungs.logs, precision)


def row_order(problem: Problem) -> np.ndarray:
    """Equalities first; then by the number of entries, so that loops over rows do alike things. Cones stay in order."""
    if problem.cones is not None:
        return np.arange(problem.constraints)
    return np.lexsort((np.diff(problem.A.indptr), ~problem.equality))


def _qp(problem: Problem, linear: Linear, precision: str) -> list[str]:
    rows = row_order(problem)
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
        f"#define EQUALITIES {int(problem.equality.sum())}",
        f"#define P_BY_SYSTEM {int(linear.by_system)}",
        *(f"#define {name} {emit.number(value, precision)}" for name, value in scalars.items()),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        _refining(problem, linear, precision),
        emit.integers("index_t", "place_x", order),
        emit.integers("index_t", "place_row", problem.place[rows]),
        product("multiply_A", A, precision),
        product("multiply_At", sp.csr_array(A.T), precision),
        product("multiply_P", P, precision),
        _free_rows(problem, precision),
        qp_load(problem, rows, order, precision),
    ]


def _condensed(problem: Problem, c: Condensation, linear: Linear, precision: str) -> list[str]:
    rows = np.concatenate([c.equalities, c.inner])
    n = problem.n
    A = sp.csr_array(problem.A[rows])
    d = problem.d
    e = problem.e[rows]
    scalars = {"ONE_OVER_C": 1 / problem.c, "C_SCALE": problem.c, **c.bounds, "DELTA": float(problem.shift.max())}
    scalars["ROUNDING"] = 1e3 * float(np.finfo(np.float64 if precision == "double" else np.float32).eps)
    vectors = {
        **{name: problem.theta[name] for name in ("rho", "alpha")},
        "d_scale": d,
        "one_over_dc": 1 / (d * problem.c),
        "one_over_e": 1 / e,
        "e_over_c": e / problem.c,
        "one_over_g_size": 1 / (problem.c * d @ np.abs(c.N)),
    }
    refinements = 0 if c.normal is None else max(c.normal.refinements, int(precision == "float"))
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
        *(f"#define {name} {value}" for name, value in sizes.items()),
        *(f"#define {name} {emit.number(value, precision)}" for name, value in scalars.items()),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        emit.integers("index_t", "place_row", problem.place[rows]),
        _inner_rows(c, precision),
        product("multiply_reduced", sp.csr_array(c.P), precision),
        product("multiply_N", sp.csr_array(c.N), precision),
        product("multiply_P", problem.P, precision),
        product("multiply_whole", A, precision),
        product("multiply_whole_t", sp.csr_array(A.T), precision),
        _multipliers(c, precision),
        "" if c.rows_are_coordinates else product("multiply_back", c.left_inverse(), precision),
        _free_rows(problem, precision),
        condensed_load(problem, c, rows, precision),
        *([] if problem.finish is None else _finish(c, problem.finish, problem.proximal, precision)),
    ]


def _finish(c: Condensation, after: int, proximal: float, precision: str) -> list[str]:
    """What the finish computes with: the inverse of P, or of P and a proximal term, and what comes of it."""
    made = finish_tables(c.P, c.A, c.N.T @ c.N, proximal)
    sizes = {
        "SLOTS": c.slots,
        "PANEL": 4,
        "MOST_CHANGES": most_changes(c.slots),
        "FINISH_AFTER": after,
        "FINISH_OUTER": OUTER,
        "FINISH_CORRECTIONS": corrections(made.delta),
        "PROXIMAL": int(made.delta > 0),
    }
    scalars = {"DEPENDENT": DEPENDENT, "FINISH_ROUNDING": ROUNDING, "FINISH_ACCURACY": ACCURACY}
    vectors = {"gram": made.gram, "spread": made.spread, "one_over_root": 1 / made.root}
    return [
        *(f"#define {name} {value}" for name, value in sizes.items()),
        *(f"#define {name} {emit.number(value, precision)}" for name, value in scalars.items()),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        product("multiply_inverse", sp.csr_array(made.inverse), precision),
        product("multiply_proximal", sp.csr_array(made.delta * (c.N.T @ c.N)), precision) if made.delta else "",
    ]


def _inner_rows(c: Condensation, precision: str) -> str:
    """Products with A, whose first rows are those of the identity, and with its transpose."""
    A = sp.csr_array(c.A)
    rest = sp.csr_array(A[c.alike :])
    if not c.multiplies_apart:
        return product("multiply_A", A, precision) + product("multiply_At", sp.csr_array(A.T), precision)
    head = "(const real *restrict x, real *restrict out)\n{\n"
    return (
        product("multiply_others", rest, precision)
        + product("multiply_others_t", sp.csr_array(rest.T), precision)
        + f"static void multiply_A{head}    for (int32_t i = 0; i < {c.alike}; ++i) out[i] = x[i];\n"
        f"    multiply_others(x, out + {c.alike});\n}}\n"
        f"static void multiply_At{head}    multiply_others_t(x + {c.alike}, out);\n"
        f"    for (int32_t i = 0; i < {c.alike}; ++i) out[i] += x[i];\n}}\n"
    )


def _multipliers(c: Condensation, precision: str) -> str:
    """From a slope to the equalities' multipliers, and what repeated equalities leave of b."""
    text = "" if c.apart is None else product("multiply_apart", sp.csr_array(c.apart), precision)
    if not c.equalities.size:
        return text + "static void solve_normal(real *x)\n{\n    (void)x;\n}\n"
    if c.normal is None:
        return text + product("multiply_Yt", sp.csr_array(c.Y.T), precision)
    f = c.normal
    return (
        emit.integers("int32_t", "normal_first", f.first)
        + emit.integers(emit.index_type(c.equalities.size), "normal_row", f.row)
        + emit.reals("normal_value", f.value, precision)
        + emit.reals("normal_inverse", f.inverse, precision)
        + emit.part("normal.c")
    )


def _refining(problem: Problem, linear: Linear, precision: str) -> str:
    """What the system that a step solves has besides P and A."""
    if not linear.spare:
        return ""
    order = linear.order
    fixed = sp.csr_array((problem.n, problem.n)) if problem.fixed is None else problem.fixed[order][:, order]
    tables = emit.reals("sigma", problem.theta["sigma"], precision)
    return tables + product("multiply_fixed", sp.csr_array(fixed), precision)


def _conic(problem: Problem, cones: Cones, linear: Linear, precision: str) -> list[str]:
    order = linear.order
    double = precision == "double"
    A = sp.csr_array(problem.A[:, order])
    P = sp.csr_array(problem.P[order][:, order])
    d = problem.d[order]
    scalars = {
        "ZERO": cones.zero,
        "NONNEGATIVE": cones.nonnegative,
        "SECOND_ORDERS": len(cones.second_order),
        "SECOND_ORDER_ROWS": sum(cones.second_order),
        "SEMIDEFINITES": len(cones.semidefinite),
        "NORMALIZED": int(problem.normalized),
        "ROOT_SIZE": emit.number(float(np.sqrt(problem.n + problem.constraints + 1)), precision),
        "EPSILON": "DBL_EPSILON" if double else "FLT_EPSILON",
        "REAL_MIN": "DBL_MIN" if double else "FLT_MIN",
    }
    vectors = {
        **{name: problem.theta[name] for name in ("r_w", "r_yz", "r_ynz", "r_tau", "alpha")},
        "d_scale": d,
        "one_over_d": 1 / d,
        "one_over_e": 1 / problem.e,
    }
    parts = []
    for cone in cones.parts:
        # What has no sizes of its own is a loop of project.c.
        if cone.joint and cone.c_part is not None:
            parts += [emit.integers("int32_t", cone.name, cone.sizes), emit.part(cone.c_part)]
    return [
        *(f"#define {name} {value}" for name, value in scalars.items()),
        *(emit.reals(name, value, precision) for name, value in vectors.items()),
        emit.integers("index_t", "place_x", order),
        product("multiply_A", A, precision),
        product("multiply_At", sp.csr_array(A.T), precision),
        product("multiply_P", P, precision),
        *parts,
        emit.part("project.c"),
        emit.part("conic_load.c"),
        conic_load(problem, order, precision),
    ]


def _free_rows(problem: Problem, precision: str) -> str:
    """Rows that no instance bounds have the value Ax and no multiplier."""
    if problem.free_place.size == 0:
        return "static void free_rows(longstep_result *r)\n{\n    (void)r;\n}\n"
    count = problem.free_place.size
    return (
        product("multiply_free", problem.free, precision)
        + emit.integers("index_t", "place_free", problem.free_place)
        + "static void free_rows(longstep_result *r)\n{\n"
        f"    real value[{count}];\n    multiply_free(r->x, value);\n"
        f"    for (int32_t i = 0; i < {count}; ++i) {{\n"
        "        r->y[place_free[i]] = 0;\n        r->s[place_free[i]] = value[i];\n    }\n}\n"
    )
