"""Which CVXPY problems can be a family, and a sentence for those that cannot: what is wrong, where, what to do."""

import functools
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, TypeAlias

import cvxpy as cp
from cvxpy.atoms.affine.binary_operators import BinaryOperator
from cvxpy.atoms.quad_form import QuadForm

from ..cones.registry import KINDS

# An objective, a constraint or an expression, for which CVXPY has no class in common.
Node: TypeAlias = Any

_DPP = "https://www.cvxpy.org/tutorial/dpp/index.html"


def check_problem(problem: object) -> None:
    """Refuse, before any work, what no chain of CVXPY's reductions makes a QP or a cone program with fixed P and A."""
    if not isinstance(problem, cp.Problem):
        raise TypeError(f"from_cvxpy takes a cvxpy.Problem, got {type(problem).__name__}")
    if not problem.parameters():
        raise ValueError(
            "the problem has no cvxpy.Parameter, so there is no family of instances to learn from. "
            "Make what changes between instances a cvxpy.Parameter"
        )
    if not problem.variables():
        raise ValueError("the problem has no variables: there is nothing to solve")
    _check_leaves(problem)
    _check_convex(problem)
    _check_quadratic_parameters(problem)
    _check_parametrized(problem)
    _check_kept_quadratics(problem)


def is_qp(problem: cp.Problem) -> bool:
    """Tell whether CVXPY can write it as a QP; before 1.8 its own test overlooks semidefinite constraints."""
    plain = {"Equality", "Zero", "Inequality", "NonPos", "NonNeg"}
    return problem.is_qp() and all(type(c).__name__ in plain for c in problem.constraints)


def refuse_form(form: str, error: Exception) -> ValueError:
    """Return why CVXPY could not bring the problem to this form."""
    if form == "qp":
        return ValueError(f'the problem is not a quadratic program: use form="conic" or leave the form to us ({error})')
    cones = ", ".join(kind.title for kind in KINDS)
    return ValueError(f"CVXPY cannot write the problem with the cones that longstep has ({cones}): {error}")


def refuse_matrix(problem: cp.Problem, parameter: cp.Parameter, matrix: str) -> ValueError:
    """Return what is wrong with a parameter whose tensor has entries in P or A."""
    name = parameter.name()
    product = _find_product(problem, parameter, matrix)
    at = ""
    if product:
        at = f" in {product}"
    if matrix == "P":
        advice = (
            "Bound the quadratic term by a new variable, `term <= t`, and put t in its place in the objective: the "
            f"problem is then a cone program in which {name!r} is a linear cost"
        )
    else:
        advice = (
            "Move it out of products with variables, into linear costs, right-hand sides or bounds; or make it a "
            "constant and learn one family for each of its values"
        )
    return ValueError(
        f"parameter {name!r} would change the matrix {matrix} from instance to instance: it multiplies variables{at}. "
        f"The instances of a family share P and A. {advice}"
    )


def _check_leaves(problem: cp.Problem) -> None:
    for kind, leaves in (("variable", problem.variables()), ("parameter", problem.parameters())):
        for leaf in leaves:
            if leaf.is_complex():
                raise ValueError(
                    f"{kind} {leaf.name()!r} is complex: write the problem in its real and imaginary parts"
                )
        twice = [name for name, count in Counter(leaf.name() for leaf in leaves).items() if count > 1]
        if twice:
            raise ValueError(f"two {kind}s are called {twice[0]!r}: give each a name of its own, name=…")
    for variable in problem.variables():
        for attribute in ("boolean", "integer"):
            if variable.attributes[attribute]:
                raise ValueError(
                    f"variable {variable.name()!r} is {attribute}: longstep solves convex problems, without integers. "
                    "Relax it, or solve this problem with a mixed-integer solver"
                )
    for constraint in problem.constraints:
        if type(constraint).__name__ == "FiniteSet":
            raise ValueError(
                f"the constraint {shorten(constraint)} lets a variable have a finite set of values: not convex"
            )


def _check_convex(problem: cp.Problem) -> None:
    if problem.is_dcp():
        return
    parts = [("objective", problem.objective), *(("constraint", c) for c in problem.constraints)]
    kind, part = next((kind, part) for kind, part in parts if not part.is_dcp())
    hint = ""
    if problem.is_dgp():
        hint = " It is a geometric program: take logarithms yourself to make it convex."
    elif problem.is_dqcp():
        hint = " It is quasiconvex: fix the level and make it a parameter."
    raise ValueError(
        f"the problem is not convex by CVXPY's rules (DCP): see the {kind} {shorten(part)}.{hint} "
        "Only convex problems can be families"
    )


def _check_quadratic_parameters(problem: cp.Problem) -> None:
    for part in list_parts(problem):
        for node in walk(part):
            if isinstance(node, QuadForm) and node.args[1].parameters():
                names = ", ".join(repr(p.name()) for p in node.args[1].parameters())
                raise ValueError(
                    f"parameter {names} is the matrix of {shorten(node)}, so it would change the matrix P from "
                    "instance to instance. The instances of a family share P and A: make it a constant and learn one "
                    "family for each of its values"
                )


def _check_parametrized(problem: cp.Problem) -> None:
    if problem.is_dpp():
        return
    node = next(part for part in list_parts(problem) if not part.is_dpp())
    while True:
        inner = [arg for arg in node.args if not arg.is_dpp()]
        if not inner:
            break
        node = inner[0]
    names = ", ".join(repr(p.name()) for p in node.parameters())
    raise ValueError(
        f"the problem does not follow CVXPY's rules for parameters (DPP): see {shorten(node)} with {names}. "
        "Parameters must enter affinely: replace a product or a function of parameters by one new parameter that holds "
        f"its value ({_DPP})"
    )


def _check_kept_quadratics(problem: cp.Problem) -> None:
    """Refuse a quadratic cost that CVXPY before 1.9 drops: of a variable that it stores by a part of its entries.

    See its PR 3384.
    """
    for node in walk(problem.objective.expr):
        inner = next(iter(node.args), None)
        if isinstance(inner, cp.Variable) and node.is_quadratic() and not node.is_affine():
            parts = [kind for kind in ("symmetric", "PSD", "NSD", "diag", "sparsity") if inner.attributes.get(kind)]
            if parts and _drops_quadratics():
                raise ValueError(
                    f"CVXPY {version('cvxpy')} loses the quadratic cost {shorten(node)}, because {inner.name()!r} is "
                    f"{parts[0]}. Upgrade CVXPY to 1.9.3 or later, or use a plain variable that is equal to it there"
                )


@functools.cache
def _drops_quadratics() -> bool:
    X = cp.Variable((2, 2), symmetric=True)
    data, _, _ = cp.Problem(cp.Minimize(cp.sum_squares(X)), [X >= 1]).get_problem_data(cp.CLARABEL)
    return data["P"].nnz == 0


def _find_product(problem: cp.Problem, parameter: cp.Parameter, matrix: str) -> str | None:
    """Return the first product of the parameter with variables; where a quadratic term is meant, in the objective."""
    objective, *constraints = list_parts(problem)
    parts = [*constraints, objective]
    if matrix == "P":
        parts = [objective, *constraints]
    for part in parts:
        for node in walk(part):
            mixed = parameter in node.parameters() and node.variables()
            if mixed and isinstance(node, BinaryOperator | QuadForm):
                return shorten(node)
    return None


def list_parts(problem: cp.Problem) -> list[Node]:
    """Return the objective and the constraints."""
    return [problem.objective, *problem.constraints]


def walk(part: Node) -> Iterator[Node]:
    """Yield all subexpressions, innermost first."""
    for arg in part.args:
        yield from walk(arg)
    yield part


def shorten(part: object) -> str:
    """Return an expression in at most 80 characters."""
    text = " ".join(str(part).split())
    if len(text) > 80:
        text = f"{text[:77]}…"
    return f"`{text}`"
