"""Derivatives of solutions by their parameters: the implicit function theorem on the conditions of optimality.

What an algorithm did to find a point is not differentiated. At a point z with F(z, θ) = 0, moving θ by dθ moves it by

    dz = −(∂F/∂z)⁻¹ (∂F/∂θ) dθ,

with F for families without constraints ∇f(z), or z − prox_{g/L}(z − ∇f(z)/L), which on the support of a lasso is the
gradient there; for cone programs, with v = y − s and y = Π_K*(v), as in Agrawal, Barratt, Boyd, Busseti, Moursi 2019,

    F(x, v) = (Px + A'y + c,  Ax + y − v − b);

and for quadratic programs the conditions of the active set W (Amos, Kolter 2017), the equalities eliminated:

    R dv + A_W'dμ = −dc,    A_W dv = dt_W − da_W.

Rows whose multiplier is zero to rounding are not in W: where a bound is met with no multiplier, the derivative is that
in the direction in which the bound is left. A singular system is solved by the shortest vector that comes closest.
"""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..families.base import Encoded, Family
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.elimination import EliminatedQP, eliminate_equalities
from ..families.point import Point
from ..families.quadratic_program import QP, QPInstance
from ..families.smooth import Differentiable
from ..linalg.least_norm import solve_least_norm
from ..linalg.matrix import make_mappable

# From one encoded parameter, its solution and a tangent of the parameter, linearly in that, to that of the solution.
Rule: TypeAlias = Callable[[Encoded, Point, Encoded], Point]
DataT = TypeVar("DataT")
# The conditions of optimality of data and an unknown vector.
Conditions: TypeAlias = Callable[[DataT, Float[Array, " k"]], Float[Array, " k"]]


def make_rule(family: Family) -> Rule:
    """Return the rule of differentiation of a family's solutions, to be used under `vmap` too."""
    family = make_mappable(family)
    if isinstance(family, QP):
        return ActiveSet(family)
    if isinstance(family, Conic):
        return lambda encoded, point, tangent: _differentiate_conic(family, encoded, point, tangent)
    if isinstance(family, Composite | Differentiable):
        return lambda encoded, point, tangent: _differentiate_unconstrained(family, encoded, point, tangent)
    raise TypeError(f"solutions of {type(family).__name__} families have no rule of differentiation")


class ActiveSet(eqx.Module):
    """The rule of quadratic programs: R and A of what the equalities leave, as arrays."""

    family: EliminatedQP
    R: Float[Array, "v v"]
    A: Float[Array, "i v"]

    def __init__(self, family: QP):
        self.family = make_mappable(eliminate_equalities(family))
        self.R = self.family.elimination.P.dense()
        self.A = self.family.elimination.A.dense()

    def __call__(self, encoded: Encoded, point: Point, tangent: Encoded) -> Point:
        """Return the tangent of the solution."""
        family = self.family
        e = family.elimination
        s = family.matrices.scaling
        kinds = family.host.kinds
        assert point.y is not None
        moved = _push(lambda given: QP.decode(family, given), encoded, tangent)
        # Both bounds of an equality are one number: half of what moves each of them.
        db = 0.5 * (moved.l + moved.u)[e.equalities]
        dv, dmu = self._solve((point.y[kinds.bounded] * s.c / s.e)[e.others], moved, db)
        dw = e.Y.mv(db) + e.N.mv(dv)
        inner = jnp.concatenate([jnp.zeros_like(db), dmu])[e.order]
        slope = family.matrices.P.mv(dw) + moved.q + family.matrices.A.rmv(inner)
        dy = jnp.concatenate([-e.Y.rmv(slope), dmu])[e.order] * s.e / s.c
        dx = s.d * dw
        free = family.free_A.mv(dx)
        ds = jnp.concatenate([family.matrices.A.mv(dw) / s.e, free])[kinds.order]
        return Point(dx, jnp.concatenate([dy, jnp.zeros_like(free)])[kinds.order], ds)

    def _solve(
        self, y: Float[Array, " i"], moved: QPInstance, db: Float[Array, " e"]
    ) -> tuple[Float[Array, " v"], Float[Array, " i"]]:
        """Return dv and dμ, given the multipliers of the inequalities."""
        e = self.family.elimination
        sizes, rows = jax.lax.top_k(jnp.abs(y), min(self.A.shape))
        active = sizes > float(jnp.finfo(y.dtype).eps) ** (2 / 3) * jnp.max(sizes, initial=0.0)
        bound = jnp.where(y > 0, moved.u[e.others], moved.l[e.others]) - e.level.mv(db)
        A = jnp.where(active[:, None], self.A[rows], 0.0)
        K = jnp.block([[self.R, A.T], [A, jnp.diag(active - 1.0)]])
        right = jnp.concatenate([-e.N.rmv(jnp.asarray(moved.q)) - e.cost.mv(db), jnp.where(active, bound[rows], 0.0)])
        found = solve_least_norm(K, right)
        return found[: e.free], jnp.zeros_like(y).at[rows].set(found[e.free :], unique_indices=True)


def _differentiate_conic(family: Conic, encoded: Encoded, point: Point, tangent: Encoded) -> Point:
    s = family.matrices.scaling
    P = family.matrices.P
    A = family.matrices.A
    n = family.n
    assert point.y is not None
    assert point.s is not None

    def scale_data(given: Encoded) -> tuple[Array, Array]:
        instance = family.decode(given)
        return instance.size * instance.b, instance.size * instance.c

    v = point.y / s.e - point.s * s.e
    D = jax.jacfwd(family.cones.project_dual)(v)
    # Of some projections nothing is known at some points, such as the apex of a cone.
    D = jnp.where(jnp.isfinite(D), D, 0.0)
    J = jnp.block([[P.dense(), A.rmv(D)], [A.dense(), D - jnp.eye(family.m, dtype=D.dtype)]])
    db, dc = _push(scale_data, encoded, tangent)
    found = solve_least_norm(J, jnp.concatenate([-dc, db]))
    dv = found[n:]
    dy = D @ dv
    return Point(s.d * found[:n], s.e * dy, (dy - dv) / s.e)


def _differentiate_unconstrained(
    family: Composite | Differentiable, encoded: Encoded, point: Point, tangent: Encoded
) -> Point:
    def measure(given: Encoded, z: Float[Array, " n"]) -> Float[Array, " n"]:
        gradient = family.gradient(family.decode(given), z)
        if isinstance(family, Composite):
            L = family.lipschitz
            return z - family.g.prox(z - gradient / L, 1 / L)
        return gradient

    J = jax.jacfwd(measure, argnums=1)(encoded, point.x)
    moved = _push(lambda given: measure(given, point.x), encoded, tangent)
    return Point(solve_least_norm(J, -moved))


def _push(function: Callable[[Encoded], DataT], encoded: Encoded, tangent: Encoded) -> DataT:
    """Return the tangent of what a function makes of a parameter."""
    return jax.jvp(function, (encoded,), (tangent,))[1]
