"""What a solver returns: the point, how good it is, and an honest status."""

import enum
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import override

from ..families.names import Layout

if TYPE_CHECKING:
    from ..families.reading import Parameters


class Status(enum.IntEnum):
    """How a solve ended. `status.message` says it in a sentence."""

    RUNNING = 0
    SOLVED = 1
    ITERATION_LIMIT = 2
    TIME_LIMIT = 3
    PRIMAL_INFEASIBLE = 4
    DUAL_INFEASIBLE = 5
    NUMERICAL_FAILURE = 6

    @property
    def words(self) -> str:
        """The status in a word or two."""
        return self.name.lower().replace("_", " ")

    @property
    def message(self) -> str:
        """The status as a sentence that says what to do next."""
        return _MESSAGES[self]


_MESSAGES = {
    Status.RUNNING: "The solve has not ended.",
    Status.SOLVED: "Solved: the residuals and the gap are within eps_abs and eps_rel.",
    Status.ITERATION_LIMIT: (
        "The iteration limit was reached first; the point is the best one checked (with steps=… the last one). "
        "Raise max_iter, loosen eps_abs/eps_rel, or use another schedule."
    ),
    Status.TIME_LIMIT: (
        "The time limit was reached first; the point is the best one seen. Raise time_limit or loosen eps_abs/eps_rel."
    ),
    Status.PRIMAL_INFEASIBLE: (
        "No point satisfies the constraints: `ray_y` certifies it. Check the bounds of this instance."
    ),
    Status.DUAL_INFEASIBLE: (
        "The objective is unbounded below (dual infeasible): moving along `ray_x` lowers it forever."
    ),
    Status.NUMERICAL_FAILURE: (
        "The iterates stopped being finite; the point is the best one checked (with steps=… the last one). "
        "Use float64, smaller steps in the schedule, or check the scale of the data."
    ),
}


INFEASIBLE = (Status.PRIMAL_INFEASIBLE, Status.DUAL_INFEASIBLE)


@dataclass
class Solution:
    """The result of `Solver.solve` (arrays of one instance) or `solve_batch` (leading axis = instances).

    `x`, `y`, `s`: primal, dual, and constraint value `z ≈ Ax` (QP) or slack (Conic); `y`, `s` are None for
    unconstrained families. `objective` is the user's own, with the sign of a maximisation and all constants.
    `ray_x`/`ray_y` hold the certificates of unbounded/infeasible instances, NaN for others; None where there is no such
    instance. `iterations` counts applications of the step; `safeguarded` tells where the safeguard acted, and `outside`
    where the parameter lies outside what training saw (None for a solver that was not learned). `changes` is −1, or
    where the finish made a point exact, how often it changed the active set or the support that the steps had found; of
    cone programs how many Newton steps it took. `time` is wall-clock seconds for the whole call. Of one instance,
    numbers and flags are Python's own.
    """

    x: np.ndarray
    y: np.ndarray | None
    s: np.ndarray | None
    objective: float | np.ndarray
    status: Status | np.ndarray
    iterations: int | np.ndarray
    safeguarded: bool | np.ndarray
    primal_residual: float | np.ndarray
    dual_residual: float | np.ndarray
    ray_x: np.ndarray | None
    ray_y: np.ndarray | None
    time: float
    outside: bool | np.ndarray | None = None
    changes: int | np.ndarray = -1
    layout: Layout | None = field(default=None, repr=False)

    @property
    def exact(self) -> bool | np.ndarray:
        """True where the point is that of its active set, right to rounding: residuals and gap are below 1e-9."""
        return self.changes >= 0  # type: ignore

    @property
    def solved(self) -> bool | np.ndarray:
        """True where the status is SOLVED."""
        return self.status == Status.SOLVED

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """The values of the variables by name, in their own shapes, with a leading axis for a batch."""
        if self.layout is None:
            raise AttributeError("the variables of this family have no names: the point is `x`")
        return self.layout.unpack(self)

    @property
    def message(self) -> str:
        """The status in words; for a batch, how many instances ended how."""
        if isinstance(self.status, Status):
            return self.status.message
        counts = {s: int(np.sum(self.status == s)) for s in Status}
        return ", ".join(f"{c} {s.words}" for s, c in counts.items() if c)

    def __len__(self) -> int:
        if isinstance(self.status, Status):
            raise TypeError("this Solution is of one instance; solve_batch returns one with a length")
        return len(self.status)

    def __getitem__(self, index: int) -> "Solution":
        """Return the solution of one instance of a batch."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"instance {index} of a batch of {len(self)}")

        def pick(value: object) -> object:
            if isinstance(value, np.ndarray) and value.ndim:
                return value[index]
            return value

        names = [f.name for f in fields_of(self) if f.name not in _OF_THE_WHOLE]
        fields: dict[str, Any] = {name: pick(getattr(self, name)) for name in names}
        return one_solution(**fields, time=self.time, layout=self.layout)

    @override
    def __repr__(self) -> str:
        if not isinstance(self.status, Status):
            return f"Solution of {len(self)} instances: {self.message}"
        return (
            f"Solution({self.status.words} after {self.iterations} iterations, objective {self.objective:.6g}, "
            f"primal residual {self.primal_residual:.2e}, dual residual {self.dual_residual:.2e})"
        )


_OF_THE_WHOLE = ("time", "layout")
_NUMBERS = ("objective", "iterations", "safeguarded", "primal_residual", "dual_residual", "outside", "changes")


def one_solution(status: int | np.ndarray, **fields: Any) -> Solution:
    """Return the solution of one instance; numbers and flags, which may come as arrays without axes, become Python's
    own."""
    for name in _NUMBERS:
        value = fields[name]
        if isinstance(value, np.ndarray | np.generic):
            fields[name] = value.item()
    return Solution(**fields, status=Status(int(status)))


# What a run ended with, by name; instances, if several, on the last axis.
Ended: TypeAlias = dict[str, Any]


def make_solution(ended: Ended, seconds: float, layout: Layout | None, parameters: "Parameters") -> Solution:
    """Return the solution: instances on the leading axis, the objective in the user's sense; a ray that no instance has
    is None."""
    status = ended["status"]

    def lead(value: np.ndarray | None) -> np.ndarray | None:
        if value is None or value.ndim == status.ndim:
            return value
        return np.moveaxis(value, 0, -1)

    fields: dict[str, Any] = {name: lead(value) for name, value in ended.items()}
    if layout is not None:
        fields["objective"] = layout.objective(fields["objective"], parameters)
    if status.ndim == 0:
        return one_solution(**fields, time=seconds, layout=layout)
    return Solution(**fields, time=seconds, layout=layout)


def join_pieces(parts: list[Ended], kept: list[int]) -> Ended:
    """Return the pieces of a batch together, padding dropped."""

    def join(name: str) -> np.ndarray | None:
        values = [part[name] for part in parts]
        shape = next((v.shape[:-1] for v in values if v is not None), None)
        if shape is None:
            return None
        pieces = []
        for value, count in zip(values, kept, strict=True):
            if value is None:
                # Only some pieces may have rays.
                pieces.append(np.full((*shape, count), np.nan))
            else:
                pieces.append(value[..., :count])
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces, axis=-1)

    return {name: join(name) for name in parts[0]}
