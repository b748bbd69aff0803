"""The rules of the safeguard: when a run judges an instance, by what, and where it goes on if learned steps failed."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from typing_extensions import override

from ..algorithms.base import Algorithm, State
from ..algorithms.residuals import Residuals
from ..families.base import Family


class Safeguard(eqx.Module):
    """How a run notices that learned steps fail on an instance, which takes steps with the `safe` θ then.

    It needs nothing but the instance itself; the steady state is the same for all. `ends` says after which steps a
    block ends.
    """

    safe: dict[str, Float[Array, ""]]
    ends: Bool[Array, " H"]

    # Its name among the options of a solver, its number in C, and what the README of C code says that it does.
    name: ClassVar[str]
    c_number: ClassVar[int]
    words: ClassVar[str]
    # How many times as large the merit may be at a judgement as it was at the last.
    growth: ClassVar[float]
    # After so many failures an instance keeps to safe steps.
    most_failures: ClassVar[int]
    # Whether an instance that failed returns to where its block began, or to the state before the step.
    by_block: ClassVar[bool]

    @abstractmethod
    def list_judgements(self) -> Int[Array, " H"]:
        """Return for every step the number of steps after which the next judgement is due."""

    @abstractmethod
    def measure(
        self, algorithm: Algorithm, family: Family, residuals: Residuals
    ) -> tuple[Float[Array, "*N"], Float[Array, "*N"]]:
        """Return the merit of states with these residuals, and how much growth of it is mere rounding."""

    @abstractmethod
    def keep_anchor(self, state: State) -> State | None:
        """Return what of the state at a judgement an instance may have to return to; None where that is not kept."""


class BlockRule(Safeguard):
    """Where the merit (objective, or residual) did not fall over a block, the instance returns to the block's start and
    takes a block of safe steps before it joins the schedule again; after the second time it keeps to them."""

    name: ClassVar[str] = "block"
    c_number: ClassVar[int] = 1
    words: ClassVar[str] = (
        "where residuals did not fall over a block of steps, it is undone and a block of safe steps is taken"
    )
    growth: ClassVar[float] = 1.0
    most_failures: ClassVar[int] = 2
    by_block: ClassVar[bool] = True

    @override
    def list_judgements(self):
        following = jnp.arange(1, self.ends.size + 1, dtype=jnp.int32)
        return jax.lax.cummin(jnp.where(self.ends, following, self.ends.size), reverse=True)

    @override
    def measure(self, algorithm, family, residuals):
        return algorithm.merit(family, residuals)

    @override
    def keep_anchor(self, state):
        return state


class StepRule(Safeguard):
    """A step after which the merit grew more than tenfold is taken back, and safe steps are taken from then on."""

    name: ClassVar[str] = "step"
    c_number: ClassVar[int] = 2
    words: ClassVar[str] = "a step after which residuals grew tenfold is undone, and safe steps are taken from then on"
    growth: ClassVar[float] = 10.0
    most_failures: ClassVar[int] = 1
    by_block: ClassVar[bool] = False

    @override
    def list_judgements(self):
        return jnp.arange(1, self.ends.size + 1, dtype=jnp.int32)

    @override
    def measure(self, algorithm, family, residuals):
        return algorithm.ratio_merit(family, residuals)

    @override
    def keep_anchor(self, state):
        # The loop has the state before the step.
        return None


RULES: dict[str, type[Safeguard]] = {rule.name: rule for rule in (BlockRule, StepRule)}
