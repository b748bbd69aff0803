"""A solver as a pure function of JAX, with derivatives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._util.processes import require_threads
from ..families.base import Encoded, Family
from ..families.names import Layout
from ..families.point import Point
from ..families.reading import Parameters
from ..linalg.matrix import make_mappable
from .derivative import make_rule
from .solution import Status
from .traced import TracedEnd, TracedSolve, batch_columns


class TracedSolution(eqx.Module):
    """What a function of a solver returns: arrays, of one instance or, under `vmap`, with further leading axes.

    `x`, `y`, `s` and `objective` are those of `Solution`, and have derivatives; the residuals, in the ∞-norm, and the
    `status`, a number of `Status`, have none.
    """

    x: Float[Array, "*N n"]
    y: Float[Array, "*N m"] | None
    s: Float[Array, "*N m"] | None
    objective: Float[Array, "*N"]
    primal_residual: Float[Array, "*N"]
    dual_residual: Float[Array, "*N"]
    status: Int[Array, "*N"]
    iterations: Int[Array, "*N"]
    layout: Layout | None = eqx.field(static=True)

    @property
    def solved(self) -> Bool[Array, "*N"]:
        """True where the status is SOLVED. Elsewhere the point is the best one checked, and derivatives mean little."""
        return self.status == Status.SOLVED

    @property
    def variables(self) -> dict[str, Float[Array, "..."]]:
        """The values of the variables by name, in their own shapes."""
        if self.layout is None:
            raise AttributeError("the variables of this family have no names: the point is `x`")
        values = {}
        for name, block in self.layout.variables.items():
            value = jnp.where(block.place >= 0, self.x[..., np.maximum(block.place, 0)], 0.0)
            if block.lower is not None or block.upper is not None:
                # What leaves a bound by the tolerance is put on it, without an effect on derivatives.
                value = value + jax.lax.stop_gradient(jnp.clip(value, block.lower, block.upper) - value)
            values[name] = value
        return values


class Function:
    """A solver as a pure function of one instance's parameter; see `Solver.function`."""

    def __init__(self, family: Family, solve: TracedSolve):
        self.family = family
        plain = make_mappable(family)
        solve_one = batch_columns(family, solve)
        attach = make_attach(family)

        def complete(encoded: Encoded, end: TracedEnd) -> TracedSolution:
            end = jax.lax.stop_gradient(end)
            point = attach(encoded, end.point)
            objective = plain.objective(plain.decode(encoded), point.x)
            layout = family.layout
            if layout is not None:
                # What is encoded is the vector whose entries the layout names.
                shift = layout.constant + jnp.asarray(layout.offset, objective.dtype) @ encoded
                objective = layout.sign * (objective + shift)
            return TracedSolution(point.x, point.y, point.s, objective, *end[1:], layout=layout)

        def evaluate(encoded: Encoded) -> TracedSolution:
            # Nobody differentiates steps: the derivative is that of the point, whatever led there.
            return complete(encoded, solve_one(jax.lax.stop_gradient(encoded)))

        self._evaluate = jax.jit(evaluate)
        self._complete = jax.jit(complete)

    def __call__(self, parameter: Parameters = None, **named: Any) -> TracedSolution:
        """Solve one instance, given by its parameter, by a dict of named values or of its data, or by keywords."""
        require_threads()
        if parameter is not None and named:
            raise TypeError(f"give the parameter or its values by name ({', '.join(named)}), not both")
        if parameter is None:
            parameter = named
        return self._evaluate(self.family.trace(parameter))

    def attach(self, parameter: Parameters, solution: TracedSolution) -> TracedSolution:
        """Return a solution of this parameter again, with its derivatives and without solving."""
        require_threads()
        end = TracedEnd(
            Point(solution.x, solution.y, solution.s),
            solution.primal_residual,
            solution.dual_residual,
            solution.status,
            solution.iterations,
        )
        return self._complete(self.family.trace(parameter), end)


def make_attach(family: Family) -> Callable[[Encoded, Point], Point]:
    """Return the function that gives a point back, and from which on JAX knows how it moves with the parameter."""
    rule = make_rule(family)

    @jax.custom_jvp
    def attach(encoded: Encoded, point: Point) -> Point:
        return point

    @attach.defjvp
    def _(primals: tuple[Encoded, Point], tangents: tuple[Encoded, Point]) -> tuple[Point, Point]:
        encoded, point = primals
        # Not the bare point: the rule can be differentiated again.
        here = attach(encoded, point)
        return here, rule(encoded, here, tangents[0])

    return attach
