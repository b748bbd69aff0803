"""What a solver computes with, as plain NumPy and SciPy data in float64: all that is written to C."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from ..algorithms.base import Algorithm
from ..algorithms.registry import REGISTERED
from ..algorithms.splitting import Splitting
from ..cones.product import Cones
from ..engine.plan import LadderUse, Plan
from ..families.base import Family
from ..families.conic import Conic
from ..families.elimination import eliminated
from ..families.parameter_range import Seen
from ..families.quadratic_program import QP
from ..schedules.schedule import Schedule
from .condensation import Condensation, Vector, condense

# Jacobi's rotations take about 40·k³ operations.
LARGEST_SEMIDEFINITE = 64


class Generated(Protocol):
    """What code generation needs of a solver."""

    family: Family
    algorithm: Algorithm
    schedule: Schedule
    plan: Plan
    ladder: LadderUse
    finish: int | None
    proximal: float
    seen: Seen | None

    def content_hash(self) -> str:
        """Equal exactly for solvers that give the same iterates."""
        ...


@dataclass(frozen=True)
class Rungs:
    """A ladder: `logs` by rung, the rungs `first`, `last` and `second` (−1: none), and the rule's numbers."""

    logs: Float[np.ndarray, " R"]
    first: int
    last: int
    second: int
    every: int
    threshold: float
    progress: float
    most: int
    marks: tuple[int, ...]
    enough: float
    patience: int
    wait: int


@dataclass(frozen=True)
class Problem:
    """The equilibrated problem, its schedule and its parameter map.

    `gram(g)` is the matrix of the g-th distinct factorization, shift[g]·I + P + A'diag(weights[g])A, plus a fixed part.
    θ has the H steps, the steady state and the rungs of a ladder; the places that are `plain` do without the metric.
    """

    kind: str
    n: int
    constraints: int
    P: sp.csr_array
    A: sp.csr_array
    fixed: sp.csr_array | None
    d: Float[np.ndarray, " n"]
    e: Float[np.ndarray, " rows"]
    c: float
    size_P: float
    size_A: float
    eps_infeasible: float
    theta: dict[str, Float[np.ndarray, " places"]]
    which: Int[np.ndarray, " places"]
    metric: Float[np.ndarray, " metric"] | None
    plain: Bool[np.ndarray, " places"]
    rungs: Rungs | None
    shift: Float[np.ndarray, " factors"]
    weights: Float[np.ndarray, "factors weighted"]
    horizon: int
    warm: bool
    safeguard: str | None
    ends: Int[np.ndarray, " H"]
    data: dict[str, Vector]
    mapped: bool
    size: int
    checks: bool
    seen: Seen | None
    layout: Any
    equality: Bool[np.ndarray, " rows"]
    place: Int[np.ndarray, " rows"]
    free: sp.csr_array
    free_place: Int[np.ndarray, " free"]
    cones: Cones | None
    normalized: bool
    tolerance: Callable[[float], float]
    base: Float[np.ndarray, " size"]
    condensed: Condensation | None = None
    finish: int | None = None
    proximal: float = 0.0

    def gram(self, g: int) -> sp.csr_array:
        """The matrix that the steps with factor g solve with."""
        K = self.P + self.shift[g] * sp.eye_array(self.n) + self.A.T @ sp.diags_array(self.weights[g]) @ self.A
        return sp.csr_array(K if self.fixed is None else K + self.fixed)

    def pattern(self) -> sp.csr_array:
        """Where any of these matrices has entries."""
        K = abs(self.P) + sp.eye_array(self.n) + abs(self.A).T @ abs(self.A)
        return sp.csr_array(K if self.fixed is None else K + abs(self.fixed))


def problem_of(solver: Generated) -> Problem:
    """The plain data of a solver; algorithms and families that C code is not written for are refused."""
    family = solver.family
    algorithm = solver.algorithm
    back_end = _BACK_ENDS.get(algorithm.own("c_back_end"))
    if back_end is not None:
        return back_end(solver, family)
    known = " and ".join(
        f"{kind.__name__} on {kind.family_type.__name__} families" for kind in REGISTERED if kind.own("c_back_end")
    )
    raise ValueError(
        f"C code is written for {known}, not for {type(algorithm).__name__} on {type(family).__name__}. "
        "State the problem as a QP or Conic (from_cvxpy does), or use the solver from Python"
    )


def _common(solver: Generated, family: Any, working: Any = None) -> dict[str, Any]:
    plan = solver.plan
    matrices = family.matrices
    scaling = matrices.scaling
    host = family.host
    d = np.asarray(scaling.d, np.float64)
    c = float(scaling.c)
    guard = plan.safeguard
    D = sp.diags_array(d)
    seen = solver.seen
    layout = family.layout
    theta = {name: np.asarray(values, np.float64) for name, values in plan.theta.items()}
    which = np.asarray(plan.which)
    metric = None if solver.schedule.metric is None else np.asarray(solver.schedule.metric, np.float64)
    plain = np.zeros(which.size, bool) if plan.plain is None else np.asarray(plan.plain)
    shift, weights = _systems(solver.algorithm, family if working is None else working, theta, which, metric, plain)
    return {
        "n": family.n,
        "constraints": family.m,
        "P": _clean(c * (D @ host.P @ D)),
        "d": d,
        "e": np.asarray(scaling.e, np.float64),
        "c": c,
        "size_P": float(matrices.size_P),
        "size_A": float(matrices.size_A),
        "eps_infeasible": float(solver.algorithm.eps_infeasible),
        "theta": theta,
        "which": which,
        "metric": metric,
        "plain": plain,
        "rungs": _rungs(plan),
        "shift": shift,
        "weights": weights,
        "horizon": plan.H,
        "warm": bool(solver.schedule.warm),
        "safeguard": None if guard is None else guard.rule,
        "ends": np.zeros(0, int) if guard is None else np.asarray(guard.ends, int),
        "mapped": family.mapped is not None,
        "seen": seen,
        "layout": layout,
        "tolerance": solver.algorithm.solve_tolerance,
        "base": _base(family),
    }


def _rungs(plan: Plan) -> Rungs | None:
    ladder = plan.ladder
    if ladder is None:
        return None
    second = -1 if ladder.second is None else ladder.second
    rule = {f.name: getattr(ladder, f.name) for f in fields(Rungs) if f.name not in ("logs", "second")}
    return Rungs(logs=np.asarray(ladder.logs, np.float64), second=second, **rule)


def _systems(
    algorithm: Any,
    family: Any,
    theta: dict[str, np.ndarray],
    which: np.ndarray,
    metric: np.ndarray | None,
    plain: np.ndarray,
) -> tuple:
    """Shift and weights of every distinct linear system, by the algorithm's own rule."""
    first = np.unique(which, return_index=True)[1]
    # The switch is local to this thread; the process-wide one is the user's.
    with jax.enable_x64(True):
        each = [{name: jnp.asarray(values[k]) for name, values in theta.items()} for k in first]
        if metric is not None:
            rows = [np.ones_like(metric) if plain[k] else metric for k in first]
            name = algorithm.metric(family).name
            each = [one | {name: jnp.asarray(row)} for one, row in zip(each, rows, strict=True)]
        shift = [np.asarray(algorithm.shift(family, one), np.float64) for one in each]
        weights = [np.asarray(algorithm.weights(family, one), np.float64) for one in each]
    return np.stack(shift), np.stack(weights)


def _qp(solver: Generated, family: QP, working: Any = None) -> Problem:
    """`working` is the family as the steps want it, where that is another."""
    common = _common(solver, family, working)
    kinds = family.host.kinds
    algorithm = solver.algorithm
    assert isinstance(algorithm, Splitting)
    rows = kinds.bounded
    equality = np.asarray(family.equality)
    E = sp.diags_array(common["e"])
    D = sp.diags_array(common["d"])
    free = family.matrices.free
    fixed = None if free is None else _clean(algorithm.free_weight * np.asarray(free.dense(), np.float64))
    scales = {"q": common["c"] * common["d"], "l": common["e"], "u": common["e"]}
    places = {"q": np.arange(family.n), "l": rows, "u": rows}
    data, size = _data(family, scales, places)
    return Problem(
        kind="qp",
        A=_clean(E @ family.host.A[rows] @ D),
        fixed=fixed,
        data=data,
        size=size,
        checks=bool(kinds.can_cross) or not common["mapped"],
        equality=equality,
        place=rows,
        free=_clean(family.host.A[kinds.free]),
        free_place=kinds.free,
        cones=None,
        normalized=False,
        **common,
    )


def _condensed(solver: Generated, family: QP) -> Problem:
    """The program in all its unknowns and rows, for checks, and what the steps are taken in."""
    whole = _qp(solver, family, eliminated(family))
    made = condense(whole)
    return dataclasses.replace(
        whole, kind="condensed", fixed=None, condensed=made, finish=solver.finish, proximal=solver.proximal
    )


def _conic(solver: Generated, family: Conic) -> Problem:
    common = _common(solver, family)
    cones = family.cones
    _check_cones(cones)
    equality = cones.equalities
    E = sp.diags_array(common["e"])
    D = sp.diags_array(common["d"])
    everything = np.arange(family.m)
    places = {"b": everything, "c": np.arange(family.n)}
    data, size = _data(family, {"b": common["e"], "c": common["d"]}, places)
    return Problem(
        kind="conic",
        A=_clean(E @ family.host.A @ D),
        fixed=None,
        data=data,
        size=size,
        checks=True,
        equality=equality,
        place=everything,
        free=sp.csr_array((0, family.n)),
        free_place=np.zeros(0, int),
        cones=cones,
        normalized=family.normalized,
        **common,
    )


_BACK_ENDS: dict[str | None, Callable[..., Problem]] = {"qp": _qp, "condensed": _condensed, "conic": _conic}


def _check_cones(cones: Cones) -> None:
    for cone in cones.parts:
        if cone.c_part is None:
            raise ValueError(
                f"C code is not written for the {cone.title} cone, of which this family has {len(cone.each)}. "
                "Use the solver from Python"
            )
    largest = max(cones.semidefinite, default=0)
    if largest > LARGEST_SEMIDEFINITE:
        raise ValueError(
            f"C code is written for semidefinite cones up to order {LARGEST_SEMIDEFINITE}, this family has one of "
            f"order {largest}: its eigenvalues would take longer than all else. Use the solver from Python"
        )


def _data(family: Any, scales: dict, places: dict) -> tuple[dict[str, Vector], int]:
    """The map from the parameter to each of the data; without a map the parameter is all of the data in a row."""
    host = family.host
    parameter = family.parameter
    data = {}
    lengths = {name: family.n if name in ("q", "c") else family.m for name in scales}
    mapped = family.mapped is not None
    size = parameter.size if mapped else sum(lengths.values())
    begin = 0
    for name, scale in scales.items():
        rows = places[name]
        length = lengths[name]
        if mapped:
            base = np.zeros(length) if host.values[name] is None else host.values[name]
            matrix = parameter.matrices.get(name, sp.csr_array((length, size)))
        else:
            base = np.zeros(length)
            matrix = sp.csr_array((np.ones(length), (np.arange(length), begin + np.arange(length))), (length, size))
        begin += length
        scaled = sp.csr_array(sp.diags_array(scale) @ matrix[rows])
        data[name] = Vector(scale * base[rows], scaled, scale)
    return data, size


def _base(family: Any) -> np.ndarray:
    """The base values in a row, zero where there is none: an instance, for an example."""
    lengths = {name: family.n if name in ("q", "c") else family.m for name in family.host.values}
    values = family.host.values.items()
    return np.concatenate([np.zeros(lengths[name]) if value is None else value for name, value in values])


def _clean(matrix: Any) -> sp.csr_array:
    csr = sp.csr_array(matrix)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr
