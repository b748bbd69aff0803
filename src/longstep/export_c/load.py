"""The function `load` of a solver in C: from the parameter to the data of an instance, in the order of the steps."""

import numpy as np
import scipy.sparse as sp

from . import emit
from .condensation import Condensation
from .problem import ExportedProblem
from .products import write_map
from .vectors import Vector


def write_qp_load(problem: ExportedProblem, rows: np.ndarray, order: np.ndarray, precision: str) -> str:
    """Return `load`, from the parameter to q, l and u, with its tables."""
    tables, statements = _write_qp_data(problem, rows, order, "place_x[i]", precision)
    check, load = _write_checked(problem, "qp_load.c", statements)
    return check + tables + load


def write_condensed_load(problem: ExportedProblem, c: Condensation, rows: np.ndarray, precision: str) -> str:
    """Return `load`, from the parameter to q, l and u and to what the equalities make of them, with its tables."""
    tables, statements = _write_qp_data(problem, rows, np.arange(problem.n), "i", precision)
    for name, vector in c.data.items():
        more_tables, more_statements = _write_affine(name, vector, precision)
        tables += more_tables
        statements += more_statements
    check, load = _write_checked(problem, "condensed_load.c", statements)
    return tables + check + load


def write_conic_load(problem: ExportedProblem, order: np.ndarray, precision: str) -> str:
    """Return `load`, from the parameter to b and c, with its tables."""
    if problem.mapped:
        tables, statements = _write_mapped(problem, {"b": np.arange(problem.constraints), "c": order}, precision)
    else:
        tables = ""
        statements = emit.read_part("load_plain_conic.c")
    return tables + emit.fill_part("load.c", statements=statements, result="normalize(work)")


def _write_checked(problem: ExportedProblem, check: str, statements: str) -> tuple[str, str]:
    """Return `admissible` from its part, empty where nothing can be wrong, and `load`, which ends in it."""
    if not problem.checks:
        return "", emit.fill_part("load.c", statements=statements, result="1")
    return emit.read_part(check), emit.fill_part("load.c", statements=statements, result="admissible(work)")


def _write_qp_data(
    problem: ExportedProblem, rows: np.ndarray, order: np.ndarray, place: str, precision: str
) -> tuple[str, str]:
    """Return the tables and the statements for q, l and u; entry i of q is that of the unknown `place`."""
    if problem.mapped:
        return _write_mapped(problem, {"q": order, "l": rows, "u": rows}, precision)
    n = problem.n
    statements = emit.fill_part("load_plain_qp.c", n=n, place=place, first_l=n, first_u=n + problem.constraints)
    return emit.read_part("bound.c"), statements


def _write_mapped(problem: ExportedProblem, places: dict[str, np.ndarray], precision: str) -> tuple[str, str]:
    """Return the tables of the parameter map, and the statements that apply it."""
    tables, outside = _write_seen(problem, precision)
    offset, shift = _write_shift(problem, precision)
    tables += offset
    statements = emit.fill_part("load_check.c", size=problem.size) + outside + shift
    for name, vector in problem.data.items():
        at = places[name]
        chosen = Vector(vector.offset[at], sp.csr_array(vector.matrix[at]), vector.scale[at])
        more_tables, more_statements = _write_affine(name, chosen, precision)
        tables += more_tables
        statements += more_statements
    return tables, statements


def _write_affine(name: str, vector: Vector, precision: str) -> tuple[str, str]:
    """Return the tables of one of the data, and the statements that make it: its base, then the map."""
    tables, statement = write_map(name, vector.matrix, precision)
    base = emit.reals(f"base_{name}", vector.offset, precision)
    # GCC 12 stores wrong numbers for a memcpy from constants such as {1, 1, 0, 0, 0, 0, 0, 0} where it has AVX-512.
    copy = emit.fill_part("load_base.c", name=name, count=len(vector.offset))
    return base + tables, copy + statement


def _write_seen(problem: ExportedProblem, precision: str) -> tuple[str, str]:
    """Return the tables and the function that tell whether training saw the like of a parameter, and the statement."""
    seen = problem.seen
    if seen is None or not problem.mapped:
        return "", "    work->outside = 0;\n"
    columns = {"low": seen.low, "second": seen.second, "before": seen.before, "high": seen.high}
    tables = [emit.reals(f"seen_{name}", values, precision) for name, values in columns.items()]
    tables.append(emit.reals("seen_rounding", seen.rounding, precision))
    sizes = emit.defines({"SEEN_SIZE": problem.size, "SEEN_LONE": seen.lone}) + "\n"
    return "".join([sizes, *tables, emit.read_part("outside.c")]), "    work->outside = is_outside(parameter);\n"


def _write_shift(problem: ExportedProblem, precision: str) -> tuple[str, str]:
    """Return the table and the statements of what the objective has besides ½x'Px + q'x: a constant, a linear term."""
    layout = problem.layout
    if layout is None:
        return "", "    work->shift = 0;\n"
    linear = bool(layout.offset.any())
    constant = emit.number(layout.constant, precision)
    statements = emit.select_features(
        emit.fill_part("load_shift.c", constant=constant, size=problem.size), PARAMETER_TERM=linear
    )
    if not linear:
        return "", statements
    return emit.reals("objective_offset", layout.offset, precision), statements
