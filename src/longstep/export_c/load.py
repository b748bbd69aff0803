"""The function `load` of a solver in C: from the parameter to the data of an instance, in the order of the steps."""

import numpy as np
import scipy.sparse as sp

from . import emit
from .condensation import Condensation, Vector
from .problem import Problem
from .products import affine_map

_HEAD = "static int load(longstep_workspace *work, const real *parameter)\n{\n"


def qp_load(problem: Problem, rows: np.ndarray, order: np.ndarray, precision: str) -> str:
    """`load`: from the parameter to q, l and u."""
    admissible = emit.part("qp_load.c") if problem.checks else ""
    text, body = _qp_data(problem, rows, order, "place_x[i]", precision)
    return admissible + text + _HEAD + body + _end(problem)


def condensed_load(problem: Problem, c: Condensation, rows: np.ndarray, precision: str) -> str:
    """`load`: from the parameter to q, l and u, and to what the equalities make of them."""
    text, body = _qp_data(problem, rows, np.arange(problem.n), "i", precision)
    for name, vector in c.data.items():
        tables, statements = _affine(name, vector, precision)
        text = text + tables
        body = body + statements
    if problem.checks:
        text += emit.part("condensed_load.c")
    return text + _HEAD + body + _end(problem)


def conic_load(problem: Problem, order: np.ndarray, precision: str) -> str:
    """`load`: from the parameter to b and c."""
    if not problem.mapped:
        return _HEAD + (
            "    for (int32_t i = 0; i < ROWS; ++i) work->b[i] = parameter[i] / one_over_e[i];\n"
            "    for (int32_t i = 0; i < N; ++i) work->c[i] = parameter[ROWS + place_x[i]] * d_scale[i];\n"
            "    work->outside = 0;\n    work->shift = 0;\n    return normalize(work);\n}\n"
        )
    text, body = _mapped(problem, {"b": np.arange(problem.constraints), "c": order}, precision)
    return text + _HEAD + body + "    return normalize(work);\n}\n"


def _end(problem: Problem) -> str:
    return "    return admissible(work);\n}\n" if problem.checks else "    return 1;\n}\n"


def _qp_data(problem: Problem, rows: np.ndarray, order: np.ndarray, place: str, precision: str) -> tuple[str, str]:
    """The tables and the statements for q, l and u; entry i of q is that of the unknown `place`."""
    if problem.mapped:
        return _mapped(problem, {"q": order, "l": rows, "u": rows}, precision)
    n = problem.n
    m = problem.constraints
    return emit.part("bound.c"), (
        f"    for (int32_t i = 0; i < {n}; ++i) work->q[i] = parameter[{place}] / one_over_dc[i];\n"
        "    for (int32_t i = 0; i < ROWS; ++i) {\n"
        f"        work->l[i] = bound(parameter[{n} + place_row[i]]) / one_over_e[i];\n"
        f"        work->u[i] = bound(parameter[{n + m} + place_row[i]]) / one_over_e[i];\n    }}\n"
        "    work->outside = 0;\n    work->shift = 0;\n"
    )


def _mapped(problem: Problem, places: dict[str, np.ndarray], precision: str) -> tuple[str, str]:
    """The tables of the parameter map, and the statements that apply it."""
    text, outside = _seen(problem, precision)
    offset, shift = _shift(problem, precision)
    text += offset
    body = _finite(problem) + outside + shift
    for name, vector in problem.data.items():
        at = places[name]
        chosen = Vector(vector.offset[at], sp.csr_array(vector.matrix[at]), vector.scale[at])
        tables, statements = _affine(name, chosen, precision)
        text = text + tables
        body = body + statements
    return text, body


def _affine(name: str, vector: Vector, precision: str) -> tuple[str, str]:
    """The tables of one of the data, and the statements that make it: its base, then the map."""
    tables, statement = affine_map(name, vector.matrix, precision)
    base = emit.reals(f"base_{name}", vector.offset, precision)
    return base + tables, _copied(f"base_{name}", f"work->{name}", len(vector.offset)) + statement


def _seen(problem: Problem, precision: str) -> tuple[str, str]:
    """Whether the parameter lies outside what training saw: the tables and the function, and the statement."""
    seen = problem.seen
    if seen is None or not problem.mapped:
        return "", "    work->outside = 0;\n"
    columns = {"low": seen.low, "second": seen.second, "before": seen.before, "high": seen.high}
    tables = [emit.reals(f"seen_{name}", values, precision) for name, values in columns.items()]
    tables.append(emit.reals("seen_rounding", seen.rounding, precision))
    sizes = f"#define SEEN_SIZE {problem.size}\n#define SEEN_LONE {seen.lone}\n"
    return "".join([sizes, *tables, emit.part("outside.c")]), "    work->outside = is_outside(parameter);\n"


def _shift(problem: Problem, precision: str) -> tuple[str, str]:
    """What the user's objective has besides ½x'Px + q'x: a constant and a term in the parameter."""
    layout = problem.layout
    if layout is None:
        return "", "    work->shift = 0;\n"
    constant = emit.number(layout.constant, precision)
    if not layout.offset.any():
        return "", f"    work->shift = {constant};\n"
    statement = (
        f"    work->shift = {constant};\n"
        f"    for (int32_t i = 0; i < {problem.size}; ++i) work->shift += objective_offset[i] * parameter[i];\n"
    )
    return emit.reals("objective_offset", layout.offset, precision), statement


def _finite(problem: Problem) -> str:
    return (
        "    int32_t bad = 0;\n"
        f"    for (int32_t i = 0; i < {problem.size}; ++i) bad += wrong(parameter[i]);\n"
        "    if (bad) return 0;\n"
    )


def _copied(source: str, target: str, count: int) -> str:
    # GCC 12 stores wrong numbers for a memcpy from constants such as {1, 1, 0, 0, 0, 0, 0, 0} where it has AVX-512.
    return (
        "    /* One by one: some compilers get a copy of constants wrong. */\n"
        f"    for (int32_t i = 0; i < {count}; ++i) {target}[i] = ((const volatile real *){source})[i];\n"
    )
