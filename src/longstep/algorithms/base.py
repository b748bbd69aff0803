"""What run.py, the solver and the trainer ask of an algorithm."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._util.hashing import read_methods
from .._util.plain import Json
from ..families.base import Family, InstanceT
from ..families.point import Point
from ..linalg.systems import Factored, Gram, Pattern
from ..schedules.hyperparameter import Hyperparameter
from .performance import Performance
from .residuals import Residuals

# The hyperparameters of a step by name: scalars and, where the schedule has one, the vector.
Theta: TypeAlias = dict[str, Float[Array, "..."]]
# A state of some algorithm, to those who run any: they carry it and never look into it.
State: TypeAlias = PyTree
# What of a state the next step reads, where that is not all.
Trimmed: TypeAlias = PyTree
# What `prepare_instance` makes of an instance and θ: for `step` alone.
Extra: TypeAlias = PyTree
# The number of a step or of a place, known when a program is compiled or only when it runs.
Number: TypeAlias = int | Int[Array, ""]
FamilyT = TypeVar("FamilyT", bound=Family)
StateT = TypeVar("StateT")


class Course(NamedTuple):
    """The steps of a schedule: how many, θ of each, the factors of all, and which of them each step has."""

    length: int
    theta: Callable[[Number], Theta]
    factors: Factored
    which: Int[Array, " places"]


class Algorithm(eqx.Module, Generic[FamilyT, InstanceT, StateT]):
    """A fixed-point iteration z⁺ = T_θ(z, x): one step, pure, for one instance or a stack of instances.

    No loop, no jit, no loss. Instances are the working (equilibrated) ones of the family; points and residuals are
    in the user's units. The state must be in coordinates that do not depend on θ: the law is that the optimum is
    a fixed point for every admissible θ.
    """

    family_type: ClassVar[type[Family]]
    # Whether the values and multipliers of the inequalities are all that a start is.
    starts_from_rows: ClassVar[bool] = False
    eps_infeasible: ClassVar[float] = 0.0
    # What an instance must have for the iterates to converge.
    converges_on: ClassVar[str] = "an optimum"
    # How hyperparameters are written in figures.
    symbols: ClassVar[dict[str, str]] = {}
    # … and their units, in those of the cost and of unknowns or rows as they are equilibrated; 1 is none.
    units: ClassVar[dict[str, str]] = {}
    # Whether `learn` tries it before the others that it tries: its step is the smaller one.
    tried_first: ClassVar[bool] = False
    # Which hyperparameters to change where the linear system is numerically singular: words behind "Use float64".
    remedy: ClassVar[str] = ""
    # What else is known of an algorithm, each looked up by `own`: why the steady state converges, in a sentence that
    # may name {L}; its steps on unknown functions; which of the C back ends takes them; and whether they are along the
    # gradient and the last step alone, z⁺ = z − t∇f(z) + β(z − z⁻), for which the best schedules have closed forms.
    theorem: ClassVar[str | None] = None
    performance: ClassVar[Performance | None] = None
    c_back_end: ClassVar[str | None] = None
    closed_form: ClassVar[bool | None] = None

    @overload
    @classmethod
    def own(cls, name: Literal["theorem", "c_back_end"]) -> str | None: ...

    @overload
    @classmethod
    def own(cls, name: Literal["performance"]) -> Performance | None: ...

    @overload
    @classmethod
    def own(cls, name: Literal["closed_form"]) -> bool | None: ...

    @classmethod
    def own(cls, name: str) -> str | Performance | bool | None:
        """Return what this very class says of itself, or None: a subclass takes other steps, and inherits no proof."""
        return vars(cls).get(name)

    @abstractmethod
    def hyperparameters(self, family: FamilyT) -> tuple[Hyperparameter, ...]:
        """Return the scalar hyperparameters with their domains and defaults on this family."""

    @property
    def numbers_per_step(self) -> float:
        """Numbers that reverse mode keeps for a step of an instance, the stress test's included, in units of n + m."""
        return 15.0

    def prepare_family(self, family: FamilyT, *, training: bool = False) -> FamilyT:
        """Return the family as the steps want it, made once on the host; what is given to all other methods.

        In `training` penalties change at every step: what all of them have in common may be worth having.
        """
        return family

    def metric(self, family: FamilyT) -> Hyperparameter | None:
        """Return the hyperparameter that is a vector, with an entry for every row that has a penalty; None without
        one."""
        return None

    def metric_groups(self, family: FamilyT) -> Int[np.ndarray, " rows"] | None:
        """Return for every row with a penalty the number of its entry in the metric; None where there is no metric."""
        metric = self.metric(family)
        if metric is None:
            return None
        return metric.entries

    def vectors(self, family: FamilyT, metric: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return a metric by the name that is declared for it; nothing where either is None."""
        declared = self.metric(family)
        if metric is None or declared is None:
            return {}
        return {declared.name: metric}

    def pattern(self, family: FamilyT) -> Pattern | None:
        """Return what is known of the linear systems of all steps; None for an algorithm that solves none."""
        return None

    def operator(self, family: FamilyT, theta: Theta) -> Gram:
        """Return the operator that steps with θ solve with. It depends on θ and never on the instance: factored
        offline."""
        raise NotImplementedError(f"{type(self).__name__} solves no linear systems")

    def solve_tolerance(self, epsilon: float) -> float:
        """Return the error of a cached inverse that needs no refinement, in arithmetic of this epsilon."""
        return epsilon

    def trusts(self, family: FamilyT, error: float) -> bool:
        """Return whether steps may take the solutions of a cached inverse with this error as they are."""
        return False

    def prepare_instance(self, family: FamilyT, instance: InstanceT, theta: Theta, factors: Factored | None) -> Extra:
        """Return what depends on θ and the instance but not on the iterate."""
        return None

    @abstractmethod
    def init(self, family: FamilyT, instance: InstanceT, start: Point | None) -> StateT:
        """Return the state to begin with: zero, or a start in the user's units."""

    @abstractmethod
    def step(
        self,
        family: FamilyT,
        instance: InstanceT,
        theta: Theta,
        factors: Factored | None,
        extra: Extra,
        state: StateT,
    ) -> StateT:
        """Return one application of T_θ; `extra` is what prepare_instance returned for this θ, or None: not computed
        yet."""

    def shortens(self, family: FamilyT, factors: Factored | None) -> bool:
        """Return whether there is a `short_step` with these factors."""
        return False

    def trim(self, state: StateT) -> Trimmed:
        """Return what of a state short steps go on from."""
        return state

    def short_step(
        self, family: FamilyT, instance: InstanceT, theta: Theta, factors: Factored | None, state: Trimmed
    ) -> Trimmed:
        """Return the state after a `step` between others, at which nobody looks but the next step."""
        raise NotImplementedError(f"{type(self).__name__} has no short steps")

    def take_together(
        self, family: FamilyT, instance: InstanceT, course: Course, state: Trimmed
    ) -> Callable[[Number, Number, Trimmed], Trimmed] | None:
        """Return the map (first, stop, state) ↦ the state after short steps first … stop − 1, by a kernel that takes
        them all; None where there is none for this machine."""
        return None

    @abstractmethod
    def residuals(self, family: FamilyT, instance: InstanceT, state: StateT) -> Residuals:
        """Return how far the state's point is from optimal."""

    def measure_point(self, family: FamilyT, instance: InstanceT, point: Point) -> Residuals:
        """Return how far a point in the user's units is from optimal."""
        return self.residuals(family, instance, self.init(family, instance, point))

    @abstractmethod
    def extract(self, family: FamilyT, instance: InstanceT, state: StateT) -> Point:
        """Return the state's point in the user's units."""

    @abstractmethod
    def coordinates(self, family: FamilyT, instance: InstanceT, state: StateT) -> Float[Array, "k *N"]:
        """Return the state in the coordinates in which training measures distances: the same for every θ."""

    def find_split(self, state: StateT) -> tuple[Float[Array, "i *N"], Float[Array, "i *N"]] | None:
        """Return the values of the rows and their multipliers, which penalties relate, one entry for each of the
        metric; None where a state has no such rows."""
        return None

    def log_metric(self, residuals: Residuals, optimum: Float[Array, "*N"] | None) -> Float[Array, "*N"]:
        """Return the logarithm of the (squared) error that is evaluated, kept from −∞ at rounding, for training.

        `optimum` is the optimal value where it is known.
        """
        rounding = 10 * jnp.finfo(residuals.dual.dtype).eps
        return jnp.log(residuals.primal**2 + residuals.dual**2 + rounding**2)

    def measure(self, optimum: Float[Array, "*N"] | None) -> str:
        """Return what `log_metric` measures, in words: its root."""
        return "√(primal² + dual²) of the residuals, geometric mean"

    def log_floor(self, start: Float[Array, "*N"], optimum: Float[Array, "*N"] | None) -> Float[Array, "*N"]:
        """Return the value of `log_metric` at which little but rounding is left, from its value at the start."""
        return start + 2 * jnp.log(jnp.finfo(start.dtype).eps ** 0.7)

    def scaled(self, family: FamilyT, theta: dict[str, float], multiple: float) -> dict[str, float]:
        """Return θ with all penalties `multiple` times as strong; θ itself where there are none."""
        return theta

    def balance(
        self, family: FamilyT, instance: InstanceT, state: StateT, residuals: Residuals
    ) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
        """Return the logarithms of the relative primal and dual residuals, whose balance OSQP adapts penalties by."""
        return (
            compute_log_ratio(residuals.primal_max, residuals.primal_scale),
            compute_log_ratio(residuals.dual_max, residuals.dual_scale),
        )

    def safe(self, family: FamilyT, steady: dict[str, float]) -> dict[str, float]:
        """Return the hyperparameters that the safeguard falls back on; they share the steady state's factors."""
        return steady

    def merit(self, family: FamilyT, residuals: Residuals) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
        """Return what the safeguard wants to see fall, and how much growth is mere rounding."""
        scale = 1 + jnp.maximum(residuals.primal_scale, residuals.dual_scale)
        return residuals.worst, jnp.sqrt(jnp.finfo(scale.dtype).eps) * scale

    def ratio_merit(self, family: FamilyT, residuals: Residuals) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
        """Return a merit whose growth is told as a multiple, because zero is its best value, and what is rounding."""
        return self.merit(family, residuals)

    def infeasible(
        self,
        family: FamilyT,
        instance: InstanceT,
        previous: StateT,
        state: StateT,
        eps: float | Float[Array, ""],
    ) -> tuple[Bool[Array, "*N"], Bool[Array, "*N"]]:
        """Return whether two successive states certify that the primal, and that the dual, has no feasible point."""
        never = jnp.zeros(family.batch(instance), bool)
        return never, never

    def rays(self, family: FamilyT, instance: InstanceT, previous: StateT, state: StateT) -> Point:
        """Return the certificates behind `infeasible`: y a direction of dual growth, x of primal descent."""
        raise NotImplementedError(f"{type(self).__name__} does not detect infeasibility")

    def identity(self) -> tuple[object, ...]:
        """Return what tells this algorithm from all others in hashes: its class, and the values of its fields.

        Of a class that is not longstep's own, what it does as well: the source of its methods, where it is to be found.
        """
        own = type(self)
        fields = self.fields()
        if own.__module__.split(".")[0] != "longstep":
            return f"{own.__module__}.{own.__qualname__}", fields, read_methods(own)
        if not fields:
            return (own.__name__,)
        return own.__name__, fields

    def fields(self) -> dict[str, Json]:
        """Return the values of its fields by name, as plain data: what its class is called with to make it again."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        """Return whether `learn` trains it on a family of its kind, which has an exact finish or not, and takes long to
        learn on or not."""
        return False

    def check_family(self, family: Family) -> None:
        """Refuse a family that this algorithm does not solve."""
        if not isinstance(family, self.family_type):
            raise TypeError(
                f"{type(self).__name__} solves {self.family_type.__name__} families, not {type(family).__name__}"
            )


def compute_log_ratio(residual: Float[Array, "*N"], scale: Float[Array, "*N"]) -> Float[Array, "*N"]:
    """Return log(residual/scale), finite where one of them vanishes."""
    tiny = jnp.finfo(residual.dtype).tiny ** 0.25
    return jnp.log(residual / (scale + tiny) + tiny)
