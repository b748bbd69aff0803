"""A solver behind CVXPYlayers: its layers of PyTorch call a longstep solver and take their gradients from it.

CVXPYlayers compiles a problem for SCS, asks its solver for x and y of instances, and for the gradients by the entries
of (q, d) and [A, b]. With P and A fixed those that count are by c = q and by b. The compiled problem is the family's
own, up to the two sides of a row, which a QP has in one.
"""

# Where CVXPYlayers is not installed, a type checker knows nothing of its classes.
# pyright: reportMissingImports=false

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from cvxpy.error import SolverError
from cvxpylayers.interfaces.base import SolverInterface
from jaxtyping import Array, Float

from .._util.threads import one_blas_thread
from ..engine.function import TracedSolution, make_attach
from ..engine.solution import Status
from ..families.conic import Conic
from ..families.names import Layout
from ..families.point import Point
from ..families.quadratic_program import QP
from .context import Context, Entries, place_parameters, read_matrices
from .forms import are_same, make_conic, make_qp
from .program import Parametric
from .rows import RowPairs

if TYPE_CHECKING:
    from ..solver import Solver

# Tensors of PyTorch, which this module does not import.
Tensor: TypeAlias = Any
# From parameter vectors (N, size) to solutions and the multipliers of the compiled problem's rows.
Solve: TypeAlias = Callable[[Array], tuple[TracedSolution, Array]]


class Kept(NamedTuple):
    """What the gradients of N solved instances need: their data and their points."""

    b: Float[np.ndarray, "N m"]
    c: Float[np.ndarray, "N n"]
    point: Point


class LayerSolver(SolverInterface):
    """A solver for `CvxpyLayer(…, solver=…)` of PyTorch. Made by `Model.cvxpylayers_solver`.

    `options` are those of `Solver.function`; the call of a layer overrides them with `solver_args`.
    """

    canon_solver = "SCS"
    # So that a parameter in P reaches us, and is refused by its name.
    supports_quad_obj = True

    def __init__(self, solver: "Solver", layout: Layout, rows: RowPairs, options: Mapping[str, Any]):
        family = solver.family
        assert isinstance(family, QP | Conic)
        self._solver = solver
        self._family = family
        self._layout = layout
        self._rows = rows
        self._options = dict(options)
        self._known = list(inspect.signature(solver.function).parameters)
        self._check_options(self._options)
        self._solves: dict[tuple, Solve] = {}
        self._pull = jax.jit(jax.vmap(_make_pull(family, rows)))
        self._entries: Entries | None = None
        self._names: list[str] = []
        self._given: list[np.ndarray] = []

    def setup(self, ctx: Context) -> None:
        """Take the compiled problem of a layer; another one than the family's is refused."""
        if ctx.gp:
            raise ValueError(
                "the layer has gp=True, and longstep has no geometric programs: take logarithms yourself to make the "
                "problem convex"
            )
        names = [parameter.name() for parameter in ctx.parameters]
        if set(names) != set(self._layout.parameters):
            raise ValueError(
                f"the layer's parameters are {', '.join(names)}; this solver is for another problem, with "
                f"{', '.join(self._layout.parameters)}. Make a model of the layer's problem, from_cvxpy(problem), and "
                "a solver for its family"
            )
        if self._family.m == 0:
            raise ValueError(
                "the problem has no constraints, and CVXPYlayers compiles no matrix A for it: use longstep.torch.Layer"
            )
        data = read_matrices(ctx)
        if not _is_same_problem(self._family, data, place_parameters(ctx, self._layout), self._layout):
            raise ValueError(
                "the layer's problem is another one than this solver's: their matrices differ. Make a model of the "
                "layer's problem, from_cvxpy(problem), and a solver for its family"
            )
        self._entries = Entries.read(ctx)
        self._names = names

    def set_params(self, params: Sequence[np.ndarray]) -> None:
        """Take the values of the parameters of the solve that follows."""
        self._given = list(params)

    def solve_torch_batch(
        self,
        P: Tensor | None,
        q: Tensor,
        A: Tensor,
        dims: object,
        solver_args: Mapping[str, Any],
        needs_grad: bool,
    ) -> tuple[Tensor, Tensor, Kept | None]:
        """Return x and y of N instances, and what their gradients need; q is (N, n + 1), A the entries of [A, b]."""
        assert self._entries is not None
        self._check_options(solver_args)
        parameters = jnp.asarray(self._stack_parameters(len(q)), self._family.dtype)
        with one_blas_thread():
            solved = self._choose_solve({**self._options, **solver_args})(parameters)
            found, y = jax.block_until_ready(solved)
        _check_solved(found)
        primal = q.new_tensor(np.asarray(found.x))
        dual = q.new_tensor(np.asarray(y))
        if not needs_grad:
            return primal, dual, None
        b = self._entries.extract(A.detach().cpu().numpy())
        c = q.detach().cpu().numpy()[:, :-1]
        return primal, dual, Kept(b, c, Point(found.x, found.y, found.s))

    def derivative_torch_batch(self, dprimal: Tensor, ddual: Tensor, saved_state: Kept) -> tuple[None, Tensor, Tensor]:
        """Return the gradients by P, which has none, by q and by the entries of [A, b], given those by x and y."""
        assert self._entries is not None
        given = [*saved_state[:2], *(tensor.detach().cpu().numpy() for tensor in (dprimal, ddual))]
        b, c, dx, dy = (jnp.asarray(array, self._family.dtype) for array in given)
        # Many small systems, where LAPACK's threads are a hindrance.
        with one_blas_thread():
            db, dc = jax.block_until_ready(self._pull(b, c, saved_state.point, dx, dy))
        # The objective's constant moves no solution.
        dq = np.pad(np.asarray(dc), ((0, 0), (0, 1)))
        return None, dprimal.new_tensor(dq), dprimal.new_tensor(self._entries.insert(np.asarray(db)))

    def _stack_parameters(self, count: int) -> np.ndarray:
        """Return the parameter vectors of the instances; what is given once is the same for all."""
        values = {}
        for name, value in zip(self._names, self._given, strict=True):
            values[name] = np.broadcast_to(value, (count, *self._layout.parameters[name].shape))
        return self._layout.stack(values)

    def _choose_solve(self, options: Mapping[str, Any]) -> Solve:
        """Return the compiled solve with these limits, made once."""
        key = tuple(sorted(options.items()))
        if key not in self._solves:
            function = self._solver.function(**options)

            def solve(parameter: Array) -> tuple[TracedSolution, Array]:
                found = function(parameter)
                return found, _expand(self._rows, found.y)

            self._solves[key] = jax.jit(jax.vmap(solve))
        return self._solves[key]

    def _check_options(self, options: Mapping[str, object]) -> None:
        unknown = [name for name in options if name not in self._known]
        if unknown:
            raise ValueError(f"longstep has no option {', '.join(unknown)}; it has {', '.join(self._known)}")


def _make_pull(family: QP | Conic, rows: RowPairs) -> Callable[..., tuple[Array, Array]]:
    """Return the function from b, c, a point and weights of x and y to the gradients by b and c, of one instance."""
    attach = make_attach(family)

    def pull(b: Array, c: Array, point: Point, dx: Array, dy: Array) -> tuple[Array, Array]:
        def evaluate(b: Array, c: Array) -> tuple[Array, Array]:
            moved = attach(family.scale_traced(_arrange_data(family, rows, b, c)), point)
            return moved.x, _expand(rows, moved.y)

        return jax.vjp(evaluate, b, c)[1]((dx, dy))

    return pull


def _arrange_data(family: QP | Conic, rows: RowPairs, b: Array, c: Array) -> dict[str, Array]:
    """Return the data of the family's instance out of those of the compiled problem."""
    if isinstance(family, Conic):
        return {"b": b, "c": c}
    upper = b[rows.own]
    # Of a row without another side any entry will do.
    other = jnp.where(rows.two_sided, -b[rows.opposite], -jnp.inf)
    return {"q": c, "l": jnp.where(family.host.kinds.equality, upper, other), "u": upper}


def _expand(rows: RowPairs, y: Float[Array, " rows"] | None) -> Float[Array, " count"]:
    """Return the multipliers of the compiled problem's rows, as `RowPairs.expand` does, for JAX."""
    assert y is not None
    both = rows.two_sided
    full = jnp.zeros(rows.count, y.dtype).at[rows.own].set(jnp.where(both, jnp.maximum(y, 0.0), y))
    return full.at[rows.opposite[both]].set(jnp.maximum(-y[both], 0.0))


def _is_same_problem(family: QP | Conic, data: Parametric, S: sp.csc_array, layout: Layout) -> bool:
    """Tell whether the matrices of a layer's problem, with v = S x, are those of the family."""
    if family.n != data.A.shape[1]:
        return False
    make = make_conic
    if isinstance(family, QP):
        if data.cones.size != data.cones.zero + data.cones.nonnegative:
            return False
        make = make_qp
        # For SCS, CVXPY turns the sign of equalities.
        turn = sp.diags_array(np.where(np.arange(data.cones.size) < data.cones.zero, -1.0, 1.0))
        data = dataclasses.replace(data, A=turn @ data.A, b=turn @ data.b, M_b=turn @ data.M_b)
    made, _ = make(data, S, layout=layout, equilibrate=False, dtype=family.dtype)
    return are_same(family, made)


def _check_solved(found: TracedSolution) -> None:
    """Refuse instances without a solution: a layer has no place for a status."""
    failed = np.flatnonzero(~np.asarray(found.solved))
    if not failed.size:
        return
    first = int(failed[0])
    status = Status(int(found.status[first]))
    raise SolverError(
        f"{failed.size} of {found.status.size} instances were not solved; the first is instance {first}: "
        f"{status.name.lower().replace('_', ' ')} after {int(found.iterations[first])} steps, with residuals "
        f"{float(found.primal_residual[first]):.1e} and {float(found.dual_residual[first]):.1e}. Give "
        "model.cvxpylayers_solver larger eps_abs, eps_rel or max_iter, or check the parameters"
    )
