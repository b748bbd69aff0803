"""CVXPY's parametric program as plain matrices: one column of each for every entry of the parameter x.

For a DPP problem CVXPY's canonicalization is affine in the parameters. It keeps it as sparse tensors, one column for
every entry of the vector v of all parameter values and a last one for the constant:

    vec(P) = T_P (v, 1),   (q, d) = T_q (v, 1),   vec([A, b]) = T_A (v, 1).

Where T_P and the part of T_A that is A have nothing but a last column, the problems of all parameters share P and A.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.error import SolverError
from cvxpy.expressions.leaf import Leaf
from cvxpy.reductions.solvers.solver import Solver as CvxpySolver
from cvxpy.reductions.solvers.solving_chain import SolvingChain

from .._util.hashing import content_hash
from ..cones.product import Cones
from ..cones.registry import KINDS
from ..linalg.matrix import to_csr
from .refusals import refuse_form, refuse_matrix

# What CVXPY calls variables and parameters that the user did not name: a counter, which another process counts anew.
COUNTED = re.compile(r"(var|param)\d+")


# CVXPY's parametric programs, whose classes and fields its versions name differently.
ParametricProgram: TypeAlias = Any


@dataclass(frozen=True)
class Compiled:
    """What CVXPY made of a problem for one of the interfaces, and how it takes a solution back."""

    program: ParametricProgram
    chain: SolvingChain
    inverse: list


def rewrite_quadratics(problem: cp.Problem) -> cp.Problem:
    """Return a problem over the same objects in which quad_form(x − r, Q) with a parameter r is ‖R(x − r)‖², R'R = Q.

    CVXPY takes the first for one that does not follow its rules for parameters, though the second does.
    """
    objective = type(problem.objective)(_rewrite(problem.objective.expr))
    return cp.Problem(objective, problem.constraints)


def _rewrite(node: Any) -> Any:
    """Return an expression with its quadratic forms rewritten; itself where there are none."""
    if isinstance(node, QuadForm) and node.args[0].parameters() and node.args[1].is_constant():
        values, vectors = np.linalg.eigh(np.asarray(node.args[1].value, np.float64))
        # CVXPY has checked the sign; what is left of the other is rounding.
        sign = 1.0 if values.sum() >= 0 else -1.0
        kept = sign * values > 1e-15 * np.abs(values).max(initial=0.0)
        R = np.sqrt(sign * values[kept])[:, None] * vectors[:, kept].T
        return sign * cp.sum_squares(R @ cp.vec(node.args[0], order="F"))
    inner = [_rewrite(arg) for arg in node.args]
    if all(a is b for a, b in zip(inner, node.args, strict=True)):
        return node
    return node.copy(inner)


def compile_problem(problem: cp.Problem, interface: CvxpySolver, form: str) -> Compiled:
    """Return what CVXPY's own reductions make of a problem, up to the parametric program."""
    with _fill_values(problem):
        try:
            data, chain, inverse = problem.get_problem_data(interface)
        except SolverError as error:
            raise refuse_form(form, error) from error
    assert chain is not None
    return Compiled(data["param_prob"], chain, inverse)


@contextlib.contextmanager
def _fill_values(problem: cp.Problem) -> Iterator[None]:
    """Give every parameter some value: CVXPY computes the matrices of one instance on its way."""
    missing = [p for p in problem.parameters() if not _has_value(p)]
    for parameter in missing:
        parameter.save_value(np.ones(parameter.shape))
    try:
        yield
    finally:
        for parameter in missing:
            parameter.save_value(None)


def _has_value(parameter: cp.Parameter) -> bool:
    if not isinstance(parameter, cp.CallbackParam):
        return parameter._value is not None
    try:
        return parameter.value is not None
    except Exception as error:
        raise ValueError(
            f"parameter {parameter.name()!r} has no value, because its callback fails ({error}). "
            "Give the parameters that it reads a value first"
        ) from error


@dataclass(frozen=True)
class Parametric:
    """Minimise ½x'Px + (q + M_q v)'x + d + m_d'v with the rows Ax + b + M_b v in zero, nonnegative and other cones.

    v is the vector of all parameter values as CVXPY orders it.
    """

    P: sp.csr_array
    A: sp.csr_array
    q: np.ndarray
    M_q: sp.csr_array
    b: np.ndarray
    M_b: sp.csr_array
    d: float
    m_d: np.ndarray
    cones: Cones

    @property
    def rows(self) -> int:
        """The number of equality rows, which come first."""
        return self.cones.zero


def extract_matrices(problem: cp.Problem, compiled: Compiled) -> Parametric:
    """Return the matrices of a compiled problem; refused where a parameter has entries in P or A."""
    prog = compiled.program
    n = prog.x.size
    last = prog.total_param_size
    T_q = sp.csc_array(_read_linear_cost(prog))
    T_A = sp.csc_array(prog.A)
    m = T_A.shape[0] // (n + 1)
    T_P = sp.csc_array((n * n, last + 1))
    if prog.P is not None:
        T_P = sp.csc_array(prog.P)
    _check_fixed(problem, compiled, T_P[:, :last], "P")
    _check_fixed(problem, compiled, T_A[: m * n, :last], "A")
    P = T_P[:, [last]].reshape((n, n), order="F")
    A = T_A[: m * n, [last]].reshape((m, n), order="F")
    return Parametric(
        P=to_csr(P),
        A=to_csr(A),
        q=T_q[:n, [last]].toarray().ravel(),
        M_q=to_csr(T_q[:n, :last]),
        b=T_A[m * n :, [last]].toarray().ravel(),
        M_b=to_csr(T_A[m * n :, :last]),
        d=float(T_q[[n], [last]].sum()),
        m_d=T_q[[n], :last].toarray().ravel(),
        cones=read_cones(prog, m),
    )


def read_cones(prog: ParametricProgram, m: int) -> Cones:
    """Return the cones of the m rows of a program."""
    dims = getattr(prog, "cone_dims", None)
    if dims is not None:
        return Cones(**{kind.name: getattr(dims, kind.cvxpy_dims) for kind in KINDS})
    zero = sum(c.size for c in prog.constraints if type(c).__name__ == "Zero")
    return Cones(zero, m - zero)


def _read_linear_cost(prog: ParametricProgram) -> sp.csc_array:
    """Return T_q, which cone programs called c before CVXPY 1.7."""
    if hasattr(prog, "q"):
        return prog.q
    return prog.c


def _check_fixed(problem: cp.Problem, compiled: Compiled, tensor: sp.csc_array, matrix: str) -> None:
    tensor.eliminate_zeros()
    moving = np.flatnonzero(np.diff(tensor.indptr))
    if moving.size:
        final = compose_ids(compiled.chain, "param")
        for parameter in problem.parameters():
            (own,) = final.get(parameter.id, [parameter.id])
            column = compiled.program.param_id_to_col[own]
            size = compiled.program.param_id_to_size[own]
            if ((moving >= column) & (moving < column + size)).any():
                raise refuse_matrix(problem, parameter, matrix)


def compose_ids(chain: SolvingChain, kind: str) -> dict[int, list[int]]:
    """Return the ids under which the program knows leaves that CVXPY's reductions replaced (since 1.9)."""
    compose = getattr(chain, f"compose_{kind}_id_map", None)
    if compose is None:
        return {}
    return compose()


def read_parameters(prog: ParametricProgram) -> np.ndarray:
    """Return the current v."""
    v = np.zeros(prog.total_param_size)
    for parameter in prog.parameters:
        value = parameter.value
        if sp.issparse(value):
            value = value.toarray()
        column = prog.param_id_to_col[parameter.id]
        v[column : column + parameter.size] = np.asarray(value, np.float64).ravel(order="F")
    return v


def hash_structure(prog: ParametricProgram) -> dict[str, str]:
    """Return hashes of everything that makes two compiled problems the same family, by part; no counters, no ids.

    Numbers count to nine digits of the largest one beside them, so that another machine's last bit does not matter.
    """
    last = prog.total_param_size
    layout = [(prog.param_id_to_col[p.id], _read_name(p), p.shape) for p in prog.parameters]
    kinds = [(type(c).__name__, c.size) for c in prog.constraints]
    exponents = [np.round(c.alpha.value, 9) for c in prog.constraints if hasattr(c, "alpha")]
    return {
        "sizes": content_hash(prog.x.size, last, kinds, *exponents),
        "parameters": content_hash(sorted(layout, key=lambda entry: entry[0])),
        "variables": content_hash([(_read_name(v), v.shape) for v in prog.variables]),
        "quadratic cost": "" if prog.P is None else _hash_rounded(prog.P),
        "linear cost": _hash_rounded(_read_linear_cost(prog)),
        "constraints": _hash_rounded(prog.A),
    }


def _read_name(leaf: Leaf) -> str | None:
    """Return the user's name of a variable or parameter; None where it has none."""
    if COUNTED.fullmatch(leaf.name()):
        return None
    return leaf.name()


def _hash_rounded(tensor: sp.spmatrix | sp.sparray) -> str:
    # By columns: the tensor has as many rows as A has entries, zeros included.
    matrix = sp.csc_array(tensor, copy=True)
    matrix.sum_duplicates()
    largest = float(f"{np.abs(matrix.data).max(initial=0.0):.9g}")
    # A power of two divides without rounding.
    exponent = 0
    if 0 < largest < np.inf:
        exponent = int(np.ceil(np.log2(largest)))
    matrix.data = np.round(matrix.data / 2.0**exponent, 9) + 0.0
    matrix.eliminate_zeros()
    indices = (array.astype(np.int64) for array in (matrix.indptr, matrix.indices))
    return content_hash(exponent, tuple(matrix.shape), *indices, matrix.data)
