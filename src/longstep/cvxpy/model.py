"""A family from a CVXPY problem, with the way from named parameters to it and from its solutions back."""

import dataclasses
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import override

from .._util.hashing import content_hash
from ..engine.solution import Solution, Status
from ..families.conic import Conic
from ..families.names import Layout
from ..families.point import Point
from ..families.quadratic_program import QP
from .labels import RowName, join_names, make_distinct, name_rows
from .rows import RowPairs

if TYPE_CHECKING:
    import cvxpy

    from ..export_c import CompiledSolver
    from ..solver import Solver
    from .interface import Interface
    from .program import Compiled


# What CVXPY asks OSQP and SCS for where the user asks for nothing.
_TOLERANCES = {"eps_abs": 1e-5, "eps_rel": 1e-5}
# Gradients are as good as the point at which they are taken.
_LAYER_TOLERANCES = {"eps_abs": 1e-8, "eps_rel": 1e-8}


def from_cvxpy(
    problem: "cvxpy.Problem",
    *,
    form: Literal["qp", "conic"] | None = None,
    equilibrate: bool = True,
    dtype: DTypeLike = "float64",
) -> "Model":
    """Return the family of a CVXPY problem: its instances are the values of its parameters.

    The problem must follow CVXPY's rules for parameters (DPP), and the parameters may enter linear costs, right-hand
    sides and bounds only: instances share P and A. Quadratic programs become a QP family in OSQP's form, others a
    Conic family in SCS's, unless `form` says otherwise. CVXPY compiles the problem once, here; then x ↦ (q, l, u), or
    (b, c), is one sparse matrix.

    >>> import cvxpy as cp, numpy as np
    >>> x, c = cp.Variable(2, name="x"), cp.Parameter(2, name="c")
    >>> model = from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x), [x >= -1]))
    >>> model.family.n, model.columns
    (2, ['c[0]', 'c[1]'])
    >>> from longstep import Solver
    >>> solution = Solver(model.family).solve(model.stack({"c": [1.0, 4.0]}), eps_abs=1e-8, eps_rel=1e-8)
    >>> bool(np.allclose(model.unpack(solution)["x"], [-0.5, -1.0], atol=1e-5))
    True
    """
    cp = _require_cvxpy()
    from .forms import make_conic, make_qp
    from .hints import describe_added, warn_unnamed
    from .interface import ConicInterface, QPInterface
    from .leaves import place_parameters, place_variables
    from .program import compile_problem, extract_matrices, rewrite_quadratics
    from .refusals import check_problem

    if form not in (None, "qp", "conic"):
        raise ValueError(f"form must be 'qp', 'conic' or None, got {form!r}")
    check_problem(problem)
    warn_unnamed(problem)
    # A problem of our own over the same objects: the user's keeps what CVXPY compiled for other solvers.
    own = rewrite_quadratics(problem)
    form = form or _choose_form(own)
    interface: type[Interface] = ConicInterface
    make = make_conic
    if form == "qp":
        interface = QPInterface
        make = make_qp
    compiled = compile_problem(own, interface(), form)
    data = extract_matrices(own, compiled)
    parameters, S = place_parameters(own, compiled)
    sign = 1
    if isinstance(problem.objective, cp.Maximize):
        sign = -1
    layout = Layout(
        parameters,
        place_variables(own, compiled),
        sign=sign,
        constant=data.d,
        offset=data.m_d @ S,
    )
    family, rows = make(data, S, layout=layout, equilibrate=equilibrate, dtype=dtype)
    hint = describe_added(problem, family.n)
    notes = []
    if hint is not None:
        notes.append(hint)
    return Model(family, rows, own, compiled, interface, S, notes)


class Model:
    """A CVXPY problem as a family. Made by `from_cvxpy`.

    `family` is a QP or a Conic whose parameter is the vector x of all parameter values (`layout` says in which order);
    `stack` makes x from named values, `unpack` and `duals` go back from a solution. `notes` say what could be written
    with fewer unknowns.
    """

    def __init__(
        self,
        family: "QP | Conic",
        rows: RowPairs,
        problem: "cvxpy.Problem",
        compiled: "Compiled",
        interface: "type[Interface]",
        S: sp.csc_array,
        notes: list[str],
    ):
        from .program import hash_structure

        assert family.layout is not None
        self.family = family
        self.layout = family.layout
        self.rows = rows
        self.problem = problem
        self.notes = notes
        self._compiled = compiled
        self._interface = interface
        self._pick = S.indices[S.indptr[:-1]]
        self._parts = hash_structure(compiled.program)

    @property
    def columns(self) -> list[str]:
        """A name for every entry of x: `mu[0]`, `C[0,1]`, `price`."""
        return self.layout.columns

    def stack(self, named: "Mapping[str | cvxpy.Parameter, ArrayLike]") -> Float[np.ndarray, "*N size"]:
        """Return values by parameter name (or cvxpy.Parameter) as x (size,), or (N, size) for N instances."""
        return self.layout.stack({_name_parameter(key): value for key, value in named.items()})

    def parameters_now(self) -> Float[np.ndarray, " size"]:
        """Return x from the values that the problem's parameters have now."""
        values = {p.name(): _read_value(p) for p in self.problem.parameters()}
        missing = [name for name, value in values.items() if value is None]
        if missing:
            raise ValueError(f"the parameter {', '.join(map(repr, missing))} has no value yet: set its .value")
        return self.layout.stack(values)

    def unpack(self, solution: "Solution | Point", index: int | None = None) -> dict[str, np.ndarray]:
        """Return the variables' values by name, in their CVXPY shapes; with a leading axis for a whole batch."""
        return self.layout.unpack(solution, index)

    def duals(self, solution: Solution, index: int | None = None) -> dict[int, Any]:
        """Return dual values by constraint id, as `constraint.dual_value` would be; with a leading axis for a batch.

        CVXPY's own inversion makes them, instance by instance.
        """
        if not isinstance(solution.status, Status):
            if index is None:
                each = [self.duals(solution, k) for k in range(len(solution))]
                return {key: _stack_duals([values[key] for values in each]) for key in each[0]}
            solution = solution[index]
        assert solution.y is not None
        return self._invert(dataclasses.replace(solution, y=self.rows.expand(solution.y), status=Status.SOLVED))

    def _invert(self, solution: Solution) -> dict[int, Any]:
        """Return dual values by constraint id out of the multipliers of CVXPY's rows."""
        found = self._compiled.chain.invert(solution, list(self._compiled.inverse))
        return {
            c.id: _format_dual(c, found.dual_vars[c.id]) for c in self.problem.constraints if c.id in found.dual_vars
        }

    def name_rows(self) -> list[RowName]:
        """Return for every row of the family the constraint it belongs to, by its label or as CVXPY writes it.

        RowPairs that CVXPY added, for bounds of variables or for functions that it rewrites, have no name.
        """
        empty = Solution(
            x=np.zeros(self.family.n),
            y=None,
            s=None,
            objective=0.0,
            status=Status.SOLVED,
            iterations=0,
            safeguarded=False,
            primal_residual=0.0,
            dual_residual=0.0,
            ray_x=None,
            ray_y=None,
            time=0.0,
            layout=self.layout,
        )
        constraints = self.problem.constraints
        # Labels are of CVXPY 1.7 and later.
        texts = make_distinct([getattr(c, "label", None) or str(c) for c in constraints])
        named = {c.id: text for c, text in zip(constraints, texts, strict=True)}
        full = name_rows(named, self.rows.count, lambda y: self._invert(dataclasses.replace(empty, y=y)))
        return [
            join_names(full[own], full[other] if other >= 0 else None)
            for own, other in zip(self.rows.own, self.rows.opposite, strict=True)
        ]

    def cvxpy_solver(self, solver: "Solver | CompiledSolver", **options: Any) -> Any:
        """Return a solver for `problem.solve(solver=…)` out of a longstep Solver of this family, as it is or compiled.

        It sets values, duals and status of the problem it was made for, or of the same problem built again, and
        refuses others. `options` are defaults for `Solver.solve`; `problem.solve(solver=…, eps_abs=…)` overrides them.
        Tolerances are those with which CVXPY calls OSQP and SCS, 1e-5, in double precision, and 1e-4 in single.
        The status is `user_limit` where the tolerances are not met, with the point that was reached.
        """
        self._check_family(solver)
        single = self.family.dtype == np.float32 or getattr(solver, "precision", "double") == "float"
        if not single:
            options = _TOLERANCES | options
        return self._interface(solver, self._parts, lambda v: v[self._pick], self.rows.expand, options)

    def cvxpylayers_solver(self, solver: "Solver", **options: Any) -> Any:
        """Return a solver for `CvxpyLayer(problem, …, solver=…)` out of a longstep Solver of this family.

        It is for CVXPYlayers' layers of PyTorch. Instances run as one batch, and gradients are those of
        `Solver.function`, whose limits `options` are; tolerances are 1e-8 in double precision and 1e-4 in single. A
        layer of another problem is refused, and so are instances that are not solved to the tolerances.
        """
        try:
            from .layers import LayerSolver
        except ImportError as error:
            raise ImportError(
                "cvxpylayers_solver needs CVXPYlayers 1.2 or later: pip install 'longstep[cvxpylayers]'"
            ) from error
        self._check_family(solver)
        if self.family.dtype == np.float64:
            options = _LAYER_TOLERANCES | options
        return LayerSolver(solver, self.layout, self.rows, options)

    def _check_family(self, solver: "Solver | CompiledSolver") -> None:
        from .forms import are_same

        if not are_same(solver.family, self.family):
            raise ValueError("the solver is for another family than this model's: make it with Solver(model.family, …)")

    def structure_hash(self) -> str:
        """Return a SHA-256 of the compiled problem: equal for the same one built again, in whatever process."""
        return content_hash(type(self.family).__name__, self._parts)

    @override
    def __repr__(self) -> str:
        f = self.family
        return f"Model({type(f).__name__}, n={f.n}, m={f.m}, {self.layout.size} parameter entries: " + (
            f"{', '.join(self.layout.parameters)})"
        )


def _choose_form(problem: "cvxpy.Problem") -> Literal["qp", "conic"]:
    """Return the form for a problem: a quadratic program where it is one."""
    from .refusals import is_qp

    if is_qp(problem):
        return "qp"
    return "conic"


def _require_cvxpy() -> ModuleType:
    """Return the module, or raise an error that says how to get it."""
    try:
        import cvxpy
    except ImportError:
        raise ImportError("from_cvxpy needs CVXPY: pip install cvxpy") from None
    return cvxpy


def _name_parameter(key: "str | cvxpy.Parameter") -> str:
    if isinstance(key, str):
        return key
    return key.name()


def _read_value(parameter: "cvxpy.Parameter") -> Any:
    """Return the value of a parameter as CVXPY keeps it: a number, an array or a sparse one."""
    if getattr(parameter, "sparse_idx", None) is not None:
        return parameter.value_sparse
    return parameter.value


def _format_dual(constraint: "cvxpy.Constraint", raw: Any) -> Any:
    """Return the value in the constraint's own format, with the constraint left as it was."""
    before = [dual.value for dual in constraint.dual_variables]
    constraint.save_dual_value(raw)
    found = constraint.dual_value
    for dual, value in zip(constraint.dual_variables, before, strict=True):
        dual.save_value(value)
    return found


def _stack_duals(values: list[Any]) -> np.ndarray | list[np.ndarray]:
    """Return the dual values of a batch with a leading axis; of cones with several parts, part by part."""
    if isinstance(values[0], list | tuple):
        return [np.stack([value[k] for value in values]) for k in range(len(values[0]))]
    return np.stack(values)
