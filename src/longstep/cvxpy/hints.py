"""What could be written better in a CVXPY problem that works as it is."""

import warnings

import cvxpy as cp
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.atom import Atom

from .program import COUNTED
from .refusals import Node, list_parts, walk

# Quadratic atoms, by the names of their classes, and what users write for them. In an objective CVXPY makes their
# argument an unknown unless it is a variable; in constraints they become cones with few unknowns.
_QUADRATIC = {
    "quad_over_lin": "sum_squares",
    "QuadForm": "quad_form",
    "power": "power",
    "Power": "power",
    "PowerApprox": "power",
}
# Fewer new unknowns than this are no trouble.
_FEW = 20


def warn_unnamed(problem: cp.Problem) -> None:
    """Warn of parameters without a name: what CVXPY calls them is a counter that another process counts anew."""
    for parameter in problem.parameters():
        if COUNTED.fullmatch(parameter.name()):
            arguments = f"{parameter.shape}, " if parameter.ndim > 1 else f"{parameter.size}, " * parameter.ndim
            warnings.warn(
                f"a parameter of shape {parameter.shape} has no name: CVXPY calls it {parameter.name()!r} here and "
                "otherwise in the next process, so that neither tables nor saved solvers can name it. Write "
                f'cp.Parameter({arguments}name="…")',
                stacklevel=3,
            )


def describe_added(problem: cp.Problem, unknowns: int) -> str | None:
    """Return what brought most of the unknowns that CVXPY added, and how to write it; None where they are few."""
    own = sum(variable.size for variable in problem.variables())
    objective, *constraints = list_parts(problem)
    atoms = [node for node in walk(objective) if _adds_unknowns(node)]
    atoms += [node for part in constraints for node in walk(part) if _adds_unknowns(node) and not _is_quadratic(node)]
    if unknowns - own < max(own, _FEW) or not atoms:
        return None
    largest = max(atoms, key=_count_entries)
    kind = _QUADRATIC.get(type(largest).__name__, type(largest).__name__)
    names = ", ".join(variable.name() for variable in largest.variables())
    what = f"cp.{kind} of an expression of {names} with {_count_entries(largest)} entries"
    return f"CVXPY made {unknowns} unknowns of {own}, most of them for {what}. {_advise(largest)}"


def _is_quadratic(node: Node) -> bool:
    return type(node).__name__ in _QUADRATIC


def _adds_unknowns(node: Node) -> bool:
    """Tell whether CVXPY puts unknowns in the place of this part of the problem."""
    if not isinstance(node, Atom) or isinstance(node, AffAtom) or not node.variables():
        return False
    return not (_is_quadratic(node) and isinstance(node.args[0], cp.Variable))


def _count_entries(node: Node) -> int:
    return max(arg.size for arg in node.args)


def _advise(atom: Node) -> str:
    """Return how to write an atom with fewer unknowns, where there is a way."""
    free = sum(variable.size for variable in atom.variables())
    if not _is_quadratic(atom):
        return "Each entry takes at least one unknown: nothing but fewer entries would take less"
    if _count_entries(atom) <= free:
        return "Each entry takes an unknown; where a plain variable stands inside of it, none does"
    return (
        f"Multiplied out it has the {free} unknowns of its variables: instead of cp.sum_squares(A @ x - b) write "
        "cp.quad_form(x, A.T @ A) - 2 * (A.T @ b) @ x, which differs by a constant, also where b is a parameter"
    )
