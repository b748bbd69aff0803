"""The C packages `osqp` and `scs` as methods, in their best use.

Iterate k of an instance is what the package returns for a budget of k iterations from a cold start: tests for
termination off, equilibration and adaptive rule on, in a workspace that was set up on the first training instance and
is updated with the vectors of this one. The adaptive rule starts from the value (OSQP's rho, SCS's scale) on which it
settled in training. What it changes on an instance ends with the instance: without termination it goes on to adapt
after convergence, to nothing but rounding errors, and the next instance would pay for it. So no instance depends on
another, and a workspace is used again only where the last instance left nothing in it.

A run of the package gives one iterate, so that all iterates up to k take k²/2 iterations. Where that is too much,
`dense` is the largest budget up to which all are run; a geometric grid follows, whose columns between repeat the last
budget before them. Counts of iterations beyond `dense` may then come out late, but never early; the name says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import PyTree
from typing_extensions import override

from ..._util.hashing import content_hash
from ...algorithms.registry import default_algorithm
from ...data.dataset import Split
from ...engine.history import History
from ...engine.measure import Measure
from ...evaluation.package_errors import ENDLESS_OSQP, ENDLESS_SCS, Row, prepare_osqp, prepare_scs, split_rows
from ...families.base import Family
from ...families.conic import Conic
from ...families.point import Point
from ...families.quadratic_program import QP

FamilyT = TypeVar("FamilyT", QP, Conic)
# The instances that the adaptive rule settles on, each to this tolerance.
_SETTLING = 10
_SETTLED_EPS = 1e-6
_SETTLING_ITERATIONS = 10_000
# The iterations after which starts of the adaptive rule are compared.
_COMPARED = (10, 20, 40, 80)


def osqp_package(
    family: QP, training: PyTree = None, *, dense: int | None = None, growth: float = 1.1, **settings: object
) -> "OSQPPackage":
    """Return the C package `osqp` as a method; `settings` are its own.

    `training` (a Split, or parameters) are instances of which ten are solved to 1e-6 first, so that rho has settled; it
    starts from there, or from OSQP's default where that is better on these instances. Without it every instance gets a
    workspace of its own and OSQP's default rho. `dense` None runs all budgets.
    """
    return OSQPPackage(family, training, dense, growth, settings)


def scs_package(
    family: Conic,
    training: PyTree = None,
    anderson: int = 10,
    *,
    dense: int | None = None,
    growth: float = 1.1,
    **settings: object,
) -> "SCSPackage":
    """Return the C package `scs` as a method; `anderson` is the memory of its acceleration, `settings` are its own.

    `training` (a Split, or parameters) are instances of which ten are solved to 1e-6 first, so that the scale has
    settled; it starts from there, or from SCS's default where that is better on these instances. Without it every
    instance gets a workspace of its own and SCS's default scale. `dense` None runs all budgets.
    """
    return SCSPackage(family, training, dense, growth, {"acceleration_lookback": int(anderson), **settings})


class TimedAnswer(NamedTuple):
    """What a package returns for one instance, and the seconds it took by its own timers, set-up not counted."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray | None
    seconds: float


class _TimedWorkspace(NamedTuple):
    """A workspace: `solve` updates it with an instance and solves; `clean` tells if nothing of that is left in it."""

    solve: Callable[[Row], TimedAnswer]
    clean: Callable[[], bool]


class CPackage(ABC, Generic[FamilyT]):
    """What both packages have in common: the columns of a run, residuals, times and the hash."""

    package: ClassVar[str]
    family_type: ClassVar[type[Family]]
    reserved: ClassVar[tuple[str, ...]]
    has_slack: ClassVar[bool]

    def __init__(
        self, family: FamilyT, training: PyTree, dense: int | None, growth: float, settings: Mapping[str, object]
    ):
        if not isinstance(family, self.family_type):
            raise TypeError(f"{self.package} solves {self.family_type.__name__} families, not {type(family).__name__}")
        if wrong := [name for name in self.reserved if name in settings]:
            raise ValueError(f"{', '.join(wrong)} cannot be set: budgets, starts and output are this method's own")
        if (dense is not None and dense < 1) or not growth > 1:
            raise ValueError(f"need dense ≥ 1 and growth > 1, got {dense} and {growth}")
        self.family: FamilyT = family
        self.dense = dense
        self.growth = float(growth)
        self.settings = dict(settings)
        self._module = _import_package(self.package)
        self._training: list[Row] = []
        if training is not None:
            parameters = training
            if isinstance(training, Split):
                parameters = training.parameters
            chosen = np.arange(min(_SETTLING, family.count(parameters)))
            self._chosen = family.select(parameters, chosen)
            self._training = split_rows(self.family.data(self._chosen))

    @property
    def name(self) -> str:
        """The package, whether its adaptive rule has settled, and from where on its iterations are rounded up."""
        name = f"{self.package} package"
        if self._training:
            name += ", adapted"
        if self.dense is not None:
            name += f", rounded up beyond {self.dense}"
        return name

    def list_budgets(self, count: int) -> list[int]:
        """Return the budgets that are run: 1, 2, …, dense, then each `growth` times the last, and `count`."""
        chosen = list(range(1, min(self.dense or count, count) + 1))
        while chosen and (following := max(chosen[-1] + 1, int(self.growth * chosen[-1]))) < count:
            chosen.append(following)
        if chosen and chosen[-1] != count:
            chosen.append(count)
        return chosen

    def run(self, parameters: PyTree, count: int) -> History:
        """Return residuals and objectives, arrays (N, count + 1), in the user's units and as for our own solvers.

        Column 0 is the zero start. Where the package returns no point, but a certificate of infeasibility it believes
        in too early, the point of the budget before stands.
        """
        if count < 0:
            raise ValueError(f"the number of iterations must not be negative, got {count}")
        rows = split_rows(self.family.data(parameters))
        n = self.family.n
        m = self.family.m
        slack = None
        if self.has_slack:
            slack = np.zeros(m)
        answers = [TimedAnswer(np.zeros(n), np.zeros(m), slack, 0.0)] * len(rows)
        points = [_stack_points(answers)]
        for budget in self.list_budgets(count):
            for i, answer in enumerate(self._solve_rows(rows, budget, self.start)):
                if all(a is None or np.isfinite(a).all() for a in answer[:3]):
                    answers[i] = answer
            points.append(_stack_points(answers))
        found = self._measure(parameters, points)
        shown = np.searchsorted([0, *self.list_budgets(count)], np.arange(count + 1), side="right") - 1
        columns = {name: values[:, shown] for name, values in vars(found).items() if name != "safeguarded"}
        return History(**columns, safeguarded=found.safeguarded)

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return the seconds (N,) of `count` iterations by the package's own timers: update and solve."""
        if count < 1:
            raise ValueError(f"the package takes at least one iteration, got {count}")
        rows = split_rows(self.family.data(parameters))
        return np.array([answer.seconds for answer in self._solve_rows(rows, count, self.start)])

    def content_hash(self) -> str:
        """Return a SHA-256 of the family, the package's version and settings, budgets and training instances."""
        parts = (self.package, version(self.package), self.settings, self.dense, self.growth, self._training)
        return content_hash(self.family.content_hash(), parts)

    @cached_property
    def _measure(self) -> Measure:
        return Measure(default_algorithm(self.family), self.family)

    @cached_property
    def _prepared(self) -> Callable[..., Any]:
        return self._prepare()

    @cached_property
    def start(self) -> float | None:
        """The value from which the adaptive rule starts; None for the package's default, without training or as good.

        What it settles on is best to go on with, and at times a poor start. So the two are compared on the training
        instances, by the mean logarithm of the residuals after some numbers of iterations.
        """
        if not self._training:
            return None
        return min((self._settle(self._training), None), key=self._measure_level)

    def _measure_level(self, value: float | None) -> float:
        points = [_stack_points(self._solve_rows(self._training, budget, value)) for budget in _COMPARED]
        found = self._measure(self._chosen, points)
        errors = np.nan_to_num(np.maximum(found.primal, found.dual), nan=np.inf)
        return float(np.mean(np.log(np.clip(errors, 1e-12, 1e12))))

    @abstractmethod
    def _prepare(self) -> Callable[..., Any]:
        """Return the function that sets up a workspace."""

    def _solve_rows(self, rows: Sequence[Row], budget: int, value: float | None) -> list[TimedAnswer]:
        answers = []
        workspace = None
        for row in rows:
            if workspace is None or not self._training or not workspace.clean():
                first = (self._training or [row])[0]
                workspace = self._open(first, budget, value)
            answers.append(workspace.solve(row))
        return answers

    @abstractmethod
    def _settle(self, rows: list[Row]) -> float:
        """Solve instances, each from a cold start, in one workspace; return the value on which the rule settles."""

    @abstractmethod
    def _open(self, first: Row, budget: int, value: float | None) -> _TimedWorkspace:
        """Return a workspace set up on `first`, with this value (None: the default) and this budget."""


class OSQPPackage(CPackage[QP]):
    """The `Method` of `osqp_package`."""

    package: ClassVar[str] = "osqp"
    family_type: ClassVar[type[Family]] = QP
    reserved: ClassVar[tuple[str, ...]] = ("max_iter", "warm_starting", "verbose", "polishing")
    # The package's own z is not returned; z = clip(Ax, l, u) is measured, which is never worse.
    has_slack: ClassVar[bool] = False

    @override
    def _prepare(self) -> Callable[..., Any]:
        return prepare_osqp(self.family)

    @override
    def _settle(self, rows: list[Row]) -> float:
        limits = {"eps_abs": _SETTLED_EPS, "eps_rel": _SETTLED_EPS, "max_iter": _SETTLING_ITERATIONS}
        solver = self._prepared(rows[0], **{**self.settings, **limits})
        for row in rows:
            solver.update(**row)
            solver.solve(raise_error=False)
        # `solver.settings` is what was asked for; the C workspace alone knows what became of rho.
        return float(solver._solver.get_settings().rho)

    @override
    def _open(self, first: Row, budget: int, value: float | None) -> _TimedWorkspace:
        options = {**ENDLESS_OSQP, **self.settings, "max_iter": 1}
        if value is not None:
            options["rho"] = value
        solver = self._prepared(first, **options)
        solver.solve(raise_error=False)  # whose times include the set-up
        solver.update_settings(max_iter=budget)
        updates = 0

        def solve(row: Row) -> TimedAnswer:
            nonlocal updates
            solver.update(**row)
            result = solver.solve(raise_error=False)
            updates = result.info.rho_updates
            # Views of the workspace, which the next solve overwrites.
            x = np.array(result.x, np.float64)
            y = np.array(result.y, np.float64)
            return TimedAnswer(x, y, None, result.info.update_time + result.info.solve_time)

        return _TimedWorkspace(solve, lambda: updates == 0)


class SCSPackage(CPackage[Conic]):
    """The `Method` of `scs_package`."""

    package: ClassVar[str] = "scs"
    family_type: ClassVar[type[Family]] = Conic
    reserved: ClassVar[tuple[str, ...]] = ("max_iters", "verbose")
    has_slack: ClassVar[bool] = True

    @property
    @override
    def name(self) -> str:
        """The package, whether its adaptive rule has settled, and whether it accelerates."""
        if self.settings["acceleration_lookback"]:
            return super().name
        return f"{super().name}, no Anderson"

    @override
    def _prepare(self) -> Callable[..., Any]:
        # Its own factorization, where there is a choice: MKL Pardiso, which it would take, is slower on families of
        # this size, and on the robust Kalman filter residuals stop at 1e-9 with it, at 1e-11 without.
        set_up = prepare_scs(self.family)
        if hasattr(self._module, "LinearSolver"):
            return lambda first, **settings: set_up(first, **{"linear_solver": "qdldl", **settings})
        return set_up

    @override
    def _settle(self, rows: list[Row]) -> float:
        limits = {"eps_abs": _SETTLED_EPS, "eps_rel": _SETTLED_EPS, "max_iters": _SETTLING_ITERATIONS}
        solver = self._prepared(rows[0], **{**self.settings, **limits})
        scale = 0.0
        for row in rows:
            solver.update(**row)
            scale = float(solver.solve(warm_start=False)["info"]["scale"])
        return scale

    @override
    def _open(self, first: Row, budget: int, value: float | None) -> _TimedWorkspace:
        options = {**ENDLESS_SCS, **self.settings, "max_iters": budget}
        if value is not None:
            options["scale"] = value
        solver = self._prepared(first, **options)
        updates = 0

        def solve(row: Row) -> TimedAnswer:
            nonlocal updates
            solver.update(**row)
            result = solver.solve(warm_start=False)
            info = result["info"]
            updates = info["scale_updates"]
            # Milliseconds; after an update the set-up time is the update's.
            seconds = 1e-3 * (info["setup_time"] + info["solve_time"])
            return TimedAnswer(np.array(result["x"]), np.array(result["y"]), np.array(result["s"]), seconds)

        # The memory of the acceleration outlives a solve.
        return _TimedWorkspace(solve, lambda: updates == 0 and not self.settings["acceleration_lookback"])


def _import_package(package: str) -> ModuleType:
    """Return a package, or raise an error that says how to get it."""
    try:
        return import_module(package)
    except ImportError:
        raise ImportError(
            f"this baseline runs the C package {package}, which is not installed: pip install {package}"
        ) from None


def _stack_points(points: Sequence[TimedAnswer]) -> Point:
    """Return points with instances on the last axis."""
    # On the host, where a point is said to lie on the device.
    columns: list[Any] = [np.stack(column, axis=-1) for column in zip(*points, strict=True) if column[0] is not None]
    return Point(*columns[:-1])
