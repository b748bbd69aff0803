"""What a solver computes with, as plain NumPy and SciPy data in float64: all that is written to C."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from ..algorithms.base import Algorithm
from ..algorithms.registry import REGISTERED
from ..algorithms.splitting import Splitting
from ..cones.product import Cones
from ..engine.finisher import Patience, can_finish
from ..engine.plan import Plan
from ..engine.rules import Safeguard
from ..engine.rungs import LadderUse
from ..engine.start import LearnedStart
from ..families.base import Family
from ..families.conic import Conic
from ..families.elimination import eliminate_equalities
from ..families.names import Layout
from ..families.parameter_range import Seen
from ..families.quadratic_program import QP
from ..linalg.matrix import ArrayLike2D
from ..schedules.schedule import Schedule
from .condensation import Condensation, condense
from .vectors import Constrained, Vector, map_data, stack_base


class Generated(Protocol):
    """What code generation needs of a solver."""

    family: Family
    algorithm: Algorithm
    schedule: Schedule
    plan: Plan
    ladder: LadderUse
    finish: int | None
    patience: Patience | None
    proximal: float
    seen: Seen | None
    start: LearnedStart | None

    def content_hash(self) -> str:
        """Return a hash, equal exactly for solvers that give the same iterates."""
        ...


@dataclass(frozen=True)
class LadderNumbers:
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
class ExportedProblem:
    """The equilibrated problem, its schedule and its parameter map.

    `gram(g)` is the matrix of the g-th distinct factorization, shift[g]·I + P + A'diag(weights[g])A, plus a fixed part.
    θ has the H steps, the steady state and the rungs of a ladder; the places that are `plain` do without the metric.
    `sparse` says that the solver itself solves by sparse factors.
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
    rungs: LadderNumbers | None
    shift: Float[np.ndarray, " factors"]
    weights: Float[np.ndarray, "factors weighted"]
    horizon: int
    warm: bool
    safeguard: type[Safeguard] | None
    ends: Int[np.ndarray, " H"]
    data: dict[str, Vector]
    mapped: bool
    size: int
    checks: bool
    seen: Seen | None
    layout: Layout | None
    equality: Bool[np.ndarray, " rows"]
    place: Int[np.ndarray, " rows"]
    free: sp.csr_array
    free_place: Int[np.ndarray, " free"]
    cones: Cones | None
    normalized: bool
    tolerance: Callable[[float], float]
    base: Float[np.ndarray, " size"]
    sparse: bool
    condensed: Condensation | None = None
    finish: int | None = None
    patience: Patience | None = None
    proximal: float = 0.0
    start: LearnedStart | None = None

    def gram(self, g: int) -> sp.csr_array:
        """Return the matrix that the steps with factor g solve with."""
        K = self.P + self.shift[g] * sp.eye_array(self.n) + self.A.T @ sp.diags_array(self.weights[g]) @ self.A
        if self.fixed is not None:
            K = K + self.fixed
        return sp.csr_array(K)

    def apply_gram(self, g: int, x: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n N"]:
        """Return gram(g)·x without that matrix, which may be dense where P and A are not."""
        out = self.P @ x + self.shift[g] * x + self.A.T @ (self.weights[g][:, None] * (self.A @ x))
        return out if self.fixed is None else out + self.fixed @ x

    def pattern(self) -> sp.csr_array:
        """Return a matrix that has entries where any of these has."""
        K = abs(self.P) + sp.eye_array(self.n) + abs(self.A).T @ abs(self.A)
        if self.fixed is not None:
            K = K + abs(self.fixed)
        return sp.csr_array(K)


def extract_problem(solver: Generated) -> ExportedProblem:
    """Return the plain data of a solver; algorithms and families that C code is not written for are refused."""
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


class _Common(TypedDict):
    """The fields of `ExportedProblem` that all kinds of problems have alike."""

    n: int
    constraints: int
    P: sp.csr_array
    d: np.ndarray
    e: np.ndarray
    c: float
    size_P: float
    size_A: float
    eps_infeasible: float
    theta: dict[str, np.ndarray]
    which: np.ndarray
    metric: np.ndarray | None
    plain: np.ndarray
    rungs: LadderNumbers | None
    shift: np.ndarray
    weights: np.ndarray
    horizon: int
    warm: bool
    safeguard: type[Safeguard] | None
    ends: np.ndarray
    mapped: bool
    seen: Seen | None
    layout: Layout | None
    tolerance: Callable[[float], float]
    base: np.ndarray
    sparse: bool


def _extract_common(solver: Generated, family: Constrained, working: Constrained) -> _Common:
    """Return what all kinds of problems have; `working` is the family as the steps want it."""
    plan = solver.plan
    matrices = family.matrices
    scaling = matrices.scaling
    host = family.host
    d = np.asarray(scaling.d, np.float64)
    c = float(scaling.c)
    guard = plan.safeguard
    D = sp.diags_array(d)
    theta = {name: np.asarray(values, np.float64) for name, values in plan.theta.items()}
    which = np.asarray(plan.which)
    metric = None if solver.schedule.metric is None else np.asarray(solver.schedule.metric, np.float64)
    plain = np.zeros(which.size, bool)
    if plan.plain is not None:
        plain = np.asarray(plan.plain)
    rule = None
    ends = np.zeros(0, int)
    if guard is not None:
        rule = type(guard)
        ends = np.asarray(guard.ends, int)
    shift, weights = _evaluate_systems(solver.algorithm, working, theta, which, metric, plain)
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
        "rungs": _extract_rungs(plan),
        "shift": shift,
        "weights": weights,
        "horizon": plan.H,
        "warm": bool(solver.schedule.warm),
        "safeguard": rule,
        "ends": ends,
        "mapped": family.mapped is not None,
        "seen": solver.seen,
        "layout": family.layout,
        "tolerance": solver.algorithm.solve_tolerance,
        "base": stack_base(family),
        "sparse": family.sparse,
    }


def _extract_rungs(plan: Plan) -> LadderNumbers | None:
    ladder = plan.ladder
    if ladder is None:
        return None
    second = -1
    if ladder.second is not None:
        second = ladder.second
    rule = {f.name: getattr(ladder, f.name) for f in fields(LadderNumbers) if f.name not in ("logs", "second", "wait")}
    return LadderNumbers(logs=np.asarray(ladder.logs, np.float64), second=second, wait=int(ladder.wait), **rule)


def _evaluate_systems(
    algorithm: Algorithm,
    family: Constrained,
    theta: dict[str, np.ndarray],
    which: np.ndarray,
    metric: np.ndarray | None,
    plain: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and weights of every distinct linear system, by the algorithm's own rule."""
    assert isinstance(algorithm, Splitting)
    first = np.unique(which, return_index=True)[1]
    # The switch is local to this thread; the process-wide one is the user's.
    with jax.enable_x64(True):
        each = [{name: jnp.asarray(values[k]) for name, values in theta.items()} for k in first]
        for name, vector in algorithm.vectors(family, metric).items():
            rows = np.where(plain[first, None], 1.0, vector)
            each = [one | {name: jnp.asarray(row)} for one, row in zip(each, rows, strict=True)]
        shift = [np.asarray(algorithm.shift(family, one), np.float64) for one in each]
        weights = [np.asarray(algorithm.weights(family, one), np.float64) for one in each]
    return np.stack(shift), np.stack(weights)


def _extract_qp(solver: Generated, family: QP, working: QP | None = None) -> ExportedProblem:
    """Return the program in all its unknowns and rows; `working` is the family as the steps want it, if another."""
    common = _extract_common(solver, family, working or family)
    kinds = family.host.kinds
    algorithm = solver.algorithm
    assert isinstance(algorithm, Splitting)
    rows = kinds.bounded
    equality = np.asarray(family.equality)
    E = sp.diags_array(common["e"])
    D = sp.diags_array(common["d"])
    free = family.matrices.free
    fixed = None
    if free is not None:
        fixed = _clean(algorithm.free_weight * np.asarray(free.dense(), np.float64))
    scales = {"q": common["c"] * common["d"], "l": common["e"], "u": common["e"]}
    places = {"q": np.arange(family.n), "l": rows, "u": rows}
    data, size = map_data(family, scales, places)
    return ExportedProblem(
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


def _extract_condensed(solver: Generated, family: QP) -> ExportedProblem:
    """Return the program in all its unknowns and rows, for checks, with the coordinates that steps are taken in."""
    whole = _extract_qp(solver, family, eliminate_equalities(family))
    made = condense(whole)
    # Steps in less precision than the finish are for batches.
    after = solver.finish if can_finish(family) else None
    finish = {"finish": after, "patience": solver.patience, "proximal": solver.proximal}
    return dataclasses.replace(whole, kind="condensed", fixed=None, condensed=made, start=solver.start, **finish)


def _extract_conic(solver: Generated, family: Conic) -> ExportedProblem:
    common = _extract_common(solver, family, family)
    cones = family.cones
    _check_cones(cones)
    equality = cones.equalities
    E = sp.diags_array(common["e"])
    D = sp.diags_array(common["d"])
    everything = np.arange(family.m)
    places = {"b": everything, "c": np.arange(family.n)}
    data, size = map_data(family, {"b": common["e"], "c": common["d"]}, places)
    return ExportedProblem(
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
        finish=solver.finish,
        patience=solver.patience,
        **common,
    )


_BACK_ENDS: dict[str | None, Callable[..., ExportedProblem]] = {
    "qp": _extract_qp,
    "condensed": _extract_condensed,
    "conic": _extract_conic,
}


def _check_cones(cones: Cones) -> None:
    for cone in cones.parts:
        reason = cone.refuse_c()
        if reason is not None:
            raise ValueError(f"{reason}. Use the solver from Python")


def _clean(matrix: ArrayLike2D) -> sp.csr_array:
    csr = sp.csr_array(matrix)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    return csr
