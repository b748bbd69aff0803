"""CVXPY's solver interfaces for longstep's two forms: how CVXPY hands over a problem and takes back a solution.

Each is used twice: without a solver, so that CVXPY compiles a problem for it, and with one in `problem.solve`.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cvxpy.settings as s
import numpy as np
from cvxpy.error import SolverError
from cvxpy.reductions.solution import Solution as CvxpySolution
from cvxpy.reductions.solution import failure_solution
from cvxpy.reductions.solvers import utilities
from cvxpy.reductions.solvers.conic_solvers.scs_conif import SCS
from cvxpy.reductions.solvers.qp_solvers.qp_solver import QpSolver
from cvxpy.reductions.solvers.solver import Solver as CvxpySolver
from typing_extensions import override

from ..cones.registry import KINDS
from ..engine.solution import Solution, Status
from .program import ParametricProgram, hash_structure, read_parameters

if TYPE_CHECKING:
    from ..export_c import CompiledSolver
    from ..solver import Solver

_STATUS = {
    Status.SOLVED: s.OPTIMAL,
    Status.ITERATION_LIMIT: s.USER_LIMIT,
    Status.TIME_LIMIT: s.USER_LIMIT,
    Status.PRIMAL_INFEASIBLE: s.INFEASIBLE,
    Status.DUAL_INFEASIBLE: s.UNBOUNDED,
    Status.NUMERICAL_FAILURE: s.SOLVER_ERROR,
}
_CONES = {name for kind in KINDS for name in kind.cvxpy}
_CITATION = """@article{sambharya2024learning,
  title = {Learning Algorithm Hyperparameters for Fast Parametric Convex Optimization},
  author = {Sambharya, Rajiv and Stellato, Bartolomeo},
  journal = {arXiv:2411.15717},
  year = {2024}
}
"""


class Interface(CvxpySolver):
    """What both forms have in common.

    `solver` is a longstep Solver of the family whose compiled problem has `parts` as its structure; `parameter` maps
    CVXPY's vector of parameter values to the family's, `expand` the family's multipliers to those of CVXPY's rows.
    `options` are defaults for `solver.solve`.
    """

    def __init__(
        self,
        solver: "Solver | CompiledSolver | None" = None,
        parts: Mapping[str, str] | None = None,
        parameter: Callable[[np.ndarray], np.ndarray] | None = None,
        expand: Callable[[np.ndarray], np.ndarray] | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self._solver = solver
        self._parts = parts
        self._parameter = parameter
        self._expand = expand
        self._options = dict(options or {})
        self._checked = None
        self._known: list[str] = []
        if solver is not None:
            known = inspect.signature(solver.solve).parameters
            self._known = [name for name in known if name not in ("parameter", "warm_start")]
            self._check_options(self._options)

    @override
    def name(self) -> Any:
        """Return what CVXPY calls it."""
        return "LONGSTEP"

    @override
    def import_solver(self) -> None:
        """Import nothing: this is the solver."""

    @override
    def supports_quad_obj(self) -> bool:
        """Tell that both forms have P."""
        return True

    @override
    def cite(self, data: Any) -> str:
        """Return the citation of the published method."""
        return _CITATION

    @override
    def solve_via_data(
        self, data: Any, warm_start: bool, verbose: bool, solver_opts: Any, solver_cache: Any = None
    ) -> Solution:
        """Solve for the current parameter values; another problem than the one learned is refused.

        CVXPY asks for a warm start unless told not to. One is made only with a schedule that is meant for it: with
        any other it would skip the learned steps.
        """
        if self._solver is None or self._parameter is None:
            raise SolverError("this interface has no solver; make one with model.cvxpy_solver(solver)")
        program = data[s.PARAM_PROB]
        if program is not self._checked:
            self._check_structure(program)
            self._checked = program
        options = {k: v for k, v in (solver_opts or {}).items() if k != "use_quad_obj"}
        self._check_options(options)
        cache = solver_cache
        if cache is None:
            cache = {}
        start = None
        if warm_start and self._solver.schedule.warm:
            start = cache.get(self.name())
        x = self._parameter(read_parameters(program))
        solution = self._solver.solve(x, warm_start=start, **{**self._options, **options})
        if solution.status == Status.SOLVED:
            cache[self.name()] = solution
        if self._expand is not None and solution.y is not None:
            solution = dataclasses.replace(solution, y=self._expand(solution.y))
        if verbose:
            print(f"{self._solver!r}\n{solution!r}\n{solution.message}")
        return solution

    @override
    def invert(self, solution: Solution, inverse_data: Any) -> CvxpySolution:
        """Return the solution of the compiled problem, with an honest status."""
        assert isinstance(solution.status, Status)
        status = _STATUS[solution.status]
        attr = {s.SOLVE_TIME: solution.time, s.NUM_ITERS: int(solution.iterations), s.EXTRA_STATS: solution}
        if status not in s.SOLUTION_PRESENT:
            return failure_solution(status, attr)
        primal = {inverse_data[self.VAR_ID]: np.asarray(solution.x, np.float64)}
        duals = self._split_duals(np.asarray(solution.y, np.float64), inverse_data)
        # CVXPY's compiled problem is a minimisation.
        assert solution.layout is not None
        value = float(solution.objective) * solution.layout.sign
        return CvxpySolution(status, value, primal, duals, attr)

    def _split_duals(self, y: np.ndarray, inverse_data: Mapping[str, Any]) -> dict[int | str, Any]:
        """Return the multipliers by CVXPY's ids of its constraints."""
        if self.EQ_CONSTR not in inverse_data:
            # Before CVXPY 1.8 a QP has them in one vector, which a later reduction takes apart.
            return {self.DUAL_VAR_ID: y}
        extract = getattr(self, "extract_dual_value", utilities.extract_dual_value)
        zero = inverse_data[self.DIMS].zero
        equalities = utilities.get_dual_values(y[:zero], extract, inverse_data[self.EQ_CONSTR])
        return equalities | utilities.get_dual_values(y[zero:], extract, inverse_data[self.NEQ_CONSTR])

    def _check_structure(self, program: ParametricProgram) -> None:
        if program.total_param_size == 0:
            raise SolverError(
                "CVXPY compiled the problem with its parameters as constants (ignore_dpp=True?); "
                "this solver needs them as parameters"
            )
        found = hash_structure(program)
        expected = self._parts or {}
        different = [part for part, value in expected.items() if found[part] != value]
        if different:
            raise SolverError(
                f"this solver was learned for another problem: they differ in their {', '.join(different)}. "
                "Make a model of this problem, from_cvxpy(problem), and a solver for its family"
            )

    def _check_options(self, options: Mapping[str, object]) -> None:
        unknown = [name for name in options if name not in self._known]
        if unknown:
            raise SolverError(f"longstep has no option {', '.join(unknown)}; it has {', '.join(self._known)}")


class QPInterface(Interface, QpSolver):
    """Equalities and inequalities with a quadratic cost: OSQP's form."""


class ConicInterface(Interface, SCS):
    """SCS's form: its order of cones and of their rows, but none of the cones we lack."""

    SUPPORTED_CONSTRAINTS = [cone for cone in SCS.SUPPORTED_CONSTRAINTS if cone.__name__ in _CONES]  # noqa: RUF012
