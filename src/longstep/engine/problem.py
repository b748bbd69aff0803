"""The problem that a plan is run on."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import PyTree

from ..algorithms.base import Algorithm, Course, Number, State, Theta, Trimmed
from ..algorithms.residuals import Residuals
from ..families.base import Family
from .plan import Plan


class Problem(eqx.Module):
    """What is run: an algorithm with a plan, on the instances of a family.

    Where these are `encoded`, every step decodes them for itself: with many instances a few additions cost less than
    reading what they would give from memory.
    """

    algorithm: Algorithm
    family: Family
    plan: Plan
    given: PyTree
    encoded: bool = eqx.field(static=True, default=False)

    @property
    def instance(self) -> PyTree:
        """The instances."""
        if not self.encoded:
            return self.given
        return self.family.decode(self.given)

    def stepper(self, k: Number, safe: Theta | None = None, once: bool = False) -> Callable[[State], State]:
        """Return the map state ↦ next state of step k, with what does not depend on the state computed here, for many
        steps.

        Steps that are taken `once` compute it themselves. `safe` replaces θ^k, not its factors.
        """
        theta, factors = self.plan.own().at(k, once)
        if safe is not None:
            theta = safe | self.plan.vectors
        extra = None
        if not once:
            extra = self.algorithm.prepare_instance(self.family, self.instance, theta, factors)
        return lambda state: self.algorithm.step(self.family, self.instance, theta, factors, extra, state)

    @property
    def shortens(self) -> bool:
        """Whether steps of the schedule are shorter where nobody looks at what they reach."""
        return self.algorithm.shortens(self.family, self.plan.own().factors)

    def shortcut(self, k: Number, once: bool = False) -> Callable[[Trimmed], Trimmed]:
        """Return the map trimmed state ↦ next trimmed state of step k; see `stepper`."""
        theta, factors = self.plan.own().at(k, once)
        return lambda state: self.algorithm.short_step(self.family, self.instance, theta, factors, state)

    def kernel(self, state: Trimmed) -> Callable[[Number, Number, Trimmed], Trimmed] | None:
        """Return what takes several short steps at once, where there is such a thing for this machine."""
        plan = self.plan.own()
        if not plan.together or plan.factors is None:
            return None
        course = Course(plan.H, plan.theta_at, plan.factors, plan.which[: plan.H])
        return self.algorithm.take_together(self.family, self.instance, course, state)

    def residuals(self, state: State) -> Residuals:
        """Return the residuals of a state."""
        return self.algorithm.residuals(self.family, self.instance, state)
