"""The finish of separable composites: from the support of a point to the exact optimum.

A point z of ½z'Pz + q'z + g(z), instances sharing P, is optimal where s = −(Pz + q) is a subgradient of g. Both terms
that have a finish are sets of bounds, on s or on z.

With g = Σ wᵢ|zᵢ| the bounds are −w ≤ s ≤ w, and z are their multipliers: zᵢ > 0 where sᵢ = wᵢ, zᵢ < 0 where
sᵢ = −wᵢ, and zero between. The values of these rows are s = −q − Pz, so the search for an active set finds the
support S with its signs, and P_SS z_S = −q_S − w_S⊙sign. P may be singular: columns that depend on those of the
support are not in it.

With g the indicator of bounds on z it is a quadratic program whose rows are the unknowns, and s are the multipliers.
"""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float

from ..algorithms.proximal import ProximalGradient
from ..families.base import Encoded
from ..families.composite import Composite
from ..families.point import Point
from ..families.quadratic_program import QP, QPInstance
from ..families.smooth import Quadratic, QuadraticInstance
from ..linalg.matrix import along, max_norm
from ..linalg.prox import L1, Box, NonNegative
from .finish import ACCURACY, PROXIMAL, Finish, Outcome, corrections
from .pivoting import ROUNDING, Bounds, Coupling, RowSet, SetSearch, map_instances, pivot, seed


class SupportFinish(SetSearch):
    """The finish of g = Σ wᵢ|zᵢ|: P couples the rows s = −q − Pz."""

    family: Composite[QuadraticInstance]
    weight: Float[Array, " n"]
    coupling: Coupling

    @staticmethod
    def of(family: Composite[QuadraticInstance]) -> "SupportFinish":
        """Take P and the weights of a family, as arrays."""
        smooth = _find_quadratic(family)
        assert isinstance(family.g, L1)
        P = smooth.P.toarray()
        values = smooth.host.eigenvalues
        rank = int(np.sum(values > family.n * np.finfo(np.float64).eps * values[-1]))
        root = np.sqrt(np.maximum(np.diagonal(P), np.finfo(np.float64).tiny))
        coupling = Coupling(jnp.asarray(P), jnp.asarray(root), slots=rank, uneven=False)
        weight = jnp.asarray(np.broadcast_to(family.g.weight, family.n))
        return SupportFinish(family=family, weight=weight, coupling=coupling)

    def seek(self, encoded: Encoded, point: Point) -> Outcome:
        """Return the exact points of instances, from the supports of points near them."""
        instance = self.family.decode(encoded)
        q = jnp.asarray(instance.q)
        each = map_instances(q)
        weight = jnp.broadcast_to(along(self.weight, q), q.shape)
        noise = jnp.broadcast_to(ROUNDING * (1.0 + max_norm(q)), q.shape)

        def search(bounds: Bounds, near: Float[Array, " n"]) -> RowSet:
            return pivot(self.coupling, bounds, seed(self.coupling, _keep_largest(near, self.coupling.slots)))

        found = each(search)(Bounds(-q, -weight, weight, noise), point.x)
        z = each(self._solve)(found, q)
        return _judge(self.family, instance, Point(z), found.changes)

    def _solve(self, found: RowSet, q: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return the point of a support, by steps that correct what is left of its conditions."""
        active = found.side != 0
        places = jnp.where(active, found.rows, q.shape[0])
        bound = found.side * self.weight[found.rows]

        def correct(_: int, z: Float[Array, " n"]) -> Float[Array, " n"]:
            s = -q - self.coupling.gram @ z
            off = jnp.where(active, s[found.rows] - bound, 0.0)
            return z.at[places].add(found.K @ off, mode="drop")

        z = jax.lax.fori_loop(0, corrections(0.0), correct, jnp.zeros_like(q))
        # A wrong sign is the rounding of zero: of an entry whose subgradient is at its bound all the same.
        return z.at[places].set(jnp.where(found.side * z[found.rows] > 0, z[found.rows], 0.0), mode="drop")


class BoundsFinish(eqx.Module):
    """The finish of bounds on z: that of the quadratic program with a row for every unknown."""

    family: Composite[QuadraticInstance]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    finish: Finish

    @staticmethod
    def of(family: Composite[QuadraticInstance], proximal: float) -> "BoundsFinish":
        """Make the quadratic program of a family, and its finish."""
        low, high = read_bounds(family)
        program = QP(_find_quadratic(family).P, sp.eye_array(family.n), q=np.zeros(family.n), l=low, u=high)
        return BoundsFinish(family, jnp.asarray(low), jnp.asarray(high), Finish.of(program, proximal))

    def seek(self, encoded: Encoded, point: Point) -> Outcome:
        """Return the exact points of instances, from the bounds that points near them lie on."""
        instance = self.family.decode(encoded)
        q = jnp.asarray(instance.q)
        low = along(self.low, q)
        high = along(self.high, q)
        slope = -self.family.gradient(instance, point.x)
        # Zero within the bounds, and where it would leave one.
        y = jnp.where(point.x >= high, jnp.maximum(slope, 0.0), 0.0)
        y = jnp.where(point.x <= low, jnp.minimum(slope, 0.0), y)
        scaled = self._scale(q, low, high)
        outcome = self.finish.seek(scaled, Point(point.x, y, point.x))
        # Active rows are their bounds, without the rounding of scales.
        y = jnp.asarray(outcome.point.y)
        z = jnp.where(y > 0, high, jnp.where(y < 0, low, jnp.clip(outcome.point.x, low, high)))
        return _judge(self.family, instance, Point(z), outcome.changes)

    def _scale(self, q: Float[Array, "n *N"], low: Float[Array, "n *one"], high: Float[Array, "n *one"]) -> QPInstance:
        """Return instances in the units of the quadratic program."""
        s = self.finish.family.matrices.scaling
        rows = self.finish.family.host.kinds.bounded
        e = along(s.e, q)
        l, u = (jnp.broadcast_to(e * bound[rows], (len(rows), *q.shape[1:])) for bound in (low, high))
        return QPInstance(s.c * along(s.d, q) * q, l, u)

    @property
    def proximal(self) -> bool:
        """Whether P is singular."""
        return self.finish.proximal

    @property
    def width(self) -> int:
        """How many instances are sought for at a time."""
        return self.finish.width


# Those that begin at the active set of a point.
SetFinish: TypeAlias = Finish | SupportFinish | BoundsFinish


def make_finish(family: Any, proximal: float = PROXIMAL) -> SetFinish:
    """Return the finish of a family that has one by active sets."""
    if isinstance(family, QP):
        return Finish.of(family, proximal)
    if isinstance(family.g, L1):
        return SupportFinish.of(family)
    return BoundsFinish.of(family, proximal)


def has_pieces(family: Composite) -> bool:
    """Tell whether the instances of a family share P, and g is one whose pieces are known, with a bound at least."""
    if not isinstance(family.smooth, Quadratic):
        return False
    if not isinstance(family.g, Box | NonNegative):
        return isinstance(family.g, L1)
    low, high = read_bounds(family)
    return bool(np.any((low < high) & (np.isfinite(low) | np.isfinite(high))))


def count_support(family: Composite, x: Float[np.ndarray, "*N n"]) -> np.ndarray:
    """Return how many rows are active at points: the support, or the unknowns at bounds."""
    if isinstance(family.g, L1):
        return np.count_nonzero(x, axis=-1)
    low, high = read_bounds(family)
    return np.count_nonzero((x <= low) | (x >= high), axis=-1)


def read_bounds(family: Composite) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the bounds on every unknown."""
    g = family.g
    if isinstance(g, NonNegative):
        return np.zeros(family.n), np.full(family.n, np.inf)
    assert isinstance(g, Box)
    return np.broadcast_to(g.low, family.n), np.broadcast_to(g.high, family.n)


def _find_quadratic(family: Composite[QuadraticInstance]) -> Quadratic:
    assert isinstance(family.smooth, Quadratic)
    return family.smooth


def _keep_largest(z: Float[Array, " n"], count: int) -> Float[Array, " n"]:
    """Return z with its `count` largest entries alone."""
    least = jax.lax.top_k(jnp.abs(z), count)[0][-1]
    return jnp.where(jnp.abs(z) >= least, z, 0.0)


def _judge(family: Composite, instance: Any, point: Point, changes: Array) -> Outcome:
    """Return points with their residuals, exact where these are those of an optimum."""
    residuals = ProximalGradient().measure_point(family, instance, point)
    return Outcome(point, residuals, residuals.violation(ACCURACY, ACCURACY) <= 1, changes)
