"""The finish of cone programs: Newton's method on their conditions of optimality.

With v = y − s, and y = Π_K*(v), every point has y ∈ K*, s = y − v ∈ K and y's = 0. What is left is

    F(x, v) = (Px + A'y + c,  Ax + y − v − b) = 0,

which is piecewise smooth: from where a first-order method has found the piece, a few steps of Newton's method give all
digits, where it would need thousands (as in the refinement of Busseti, Moursi, Boyd 2019). A proximal term ρ on x and
on the multipliers makes every step well defined where solutions or multipliers are not unique; it shrinks while ‖F‖
falls. Steps after which ‖F‖ is a little larger are taken too: they are what leads from one piece to another. A step
costs a factorization, so this is for instances that have taken as many steps as that is worth: one by one, on the host.
"""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..algorithms.scs import SCS
from ..cones.product import Cones
from ..families.base import Encoded
from ..families.conic import Conic
from ..families.point import Point
from ..linalg.matrix import along
from .finish import ACCURACY, Outcome
from .jitted import Key, flatten

# Unknowns x and v beyond which a factorization costs more than it is worth.
MOST = 1000
# Newton steps at most: on the right piece it takes a few.
_STEPS = 40
# The proximal term at first, at most, and by what it is multiplied after a step that brings ‖F‖ down and after others.
_PROXIMAL = 1e-2
_MOST_PROXIMAL = 1e-1
_LESS = 0.6
_MORE = 4.0
# A step after which ‖F‖ is so many times larger is not taken.
_WORSE = 10.0
# ‖F‖ of data of size one at which there is nothing left to gain.
_CLOSE = 1e-14


class Newton:
    """Newton's method for the instances of a family in its working units."""

    def __init__(self, family: Conic):
        self.n = family.n
        self.family = flatten(family)
        self.cones = flatten(family.cones)
        self.P, self.A = (np.asarray(M.dense()) for M in (family.matrices.P, family.matrices.A))

    def seek(self, encoded: Encoded, point: Point) -> Outcome:
        """The exact points of instances near these, where they are found."""
        z, b, c = (np.array(part) for part in _begin(*self.family, encoded, point))
        # One instance, or one in each column.
        columns = np.concatenate([part.reshape(len(part), -1) for part in (z, b, c)]).T
        found: list[tuple[np.ndarray, int]] = []
        for k, column in enumerate(columns):
            # What a batch is padded with is not sought for again.
            again = k > 0 and np.array_equal(column, columns[k - 1])
            found.append(found[-1] if again else self._search(*np.split(column, [len(z), len(z) + len(b)])))
        z = np.stack([each for each, _ in found], axis=-1).reshape(z.shape)
        steps = np.array([count for _, count in found], np.int32).reshape(z.shape[1:])
        return _end(*self.family, encoded, z, steps)

    def _search(self, z: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, int]:
        """The best of what Newton steps from z lead to, and how many they were."""
        here = self._conditions(z, b, c)
        proximal = _PROXIMAL
        steps = 0
        best = z, here.norm
        while best[1] > _CLOSE and steps < _STEPS:
            steps += 1
            after = self._step(z, here, proximal)
            following = None if after is None else self._conditions(after, b, c)
            # Written so that NaN is no progress.
            better = following is not None and following.norm < here.norm
            if not better and best[1] <= ACCURACY:
                # Rounding: this is as good as it gets.
                break
            if following is not None and after is not None and following.norm < _WORSE * here.norm:
                z = after
                here = following
            proximal = _LESS * proximal if better else min(_MORE * proximal, _MOST_PROXIMAL)
            best = min(best, (z, here.norm), key=lambda pair: pair[1])
        return best[0], steps

    def _conditions(self, z: np.ndarray, b: np.ndarray, c: np.ndarray) -> "_Conditions":
        x = z[: self.n]
        v = z[self.n :]
        y, D = (np.asarray(part) for part in _projected(*self.cones, v))
        F = np.concatenate([self.P @ x + self.A.T @ y + c, self.A @ x + y - v - b])
        return _Conditions(F, np.nan_to_num(D, posinf=0.0, neginf=0.0), float(np.linalg.norm(F)))

    def _step(self, z: np.ndarray, here: "_Conditions", proximal: float) -> np.ndarray | None:
        """z after a step; None where it has none."""
        signs = np.r_[np.ones(self.n), -np.ones(len(here.D))]
        J = np.block([[self.P, self.A.T @ here.D], [self.A, here.D - np.eye(len(here.D))]])
        try:
            return z - np.linalg.solve(J + np.diag(proximal * signs), here.F)
        except np.linalg.LinAlgError:
            return None


class TracedNewton(eqx.Module):
    """The same search as a program that JAX can trace; instances one after another, as there, so that those that have
    ended cost nothing."""

    family: Conic
    P: Float[Array, "n n"]
    A: Float[Array, "m n"]

    def __init__(self, family: Conic):
        self.family = family
        self.P = family.matrices.P.dense()
        self.A = family.matrices.A.dense()

    def seek(self, encoded: Encoded, point: Point, running: Bool[Array, "*N"]) -> Outcome:
        """Return the exact points of the running instances near these, where they are found."""
        columns = _begin_search(self.family, encoded, point)

        def find(column: tuple[Array, Array, Array, Array]) -> tuple[Array, Array]:
            *given, going = column
            return jax.lax.cond(going, lambda: self._search(*given), lambda: (given[0], jnp.int32(0)))

        if running.ndim == 0:
            z, steps = find((*columns, running))
        else:
            z, steps = jax.lax.map(find, (*(part.T for part in columns), running))
        return _end_search(self.family, encoded, z.T, steps)

    def _search(
        self, z: Float[Array, " nm"], b: Float[Array, " m"], c: Float[Array, " n"]
    ) -> tuple[Float[Array, " nm"], Int[Array, ""]]:
        """Return the best of what Newton steps from z lead to, and how many they were."""

        def step(at: _Searching) -> _Searching:
            after = z_after(at)
            F, D = self._measure(after, b, c)
            norm = jnp.linalg.norm(F)
            # NaN, of a singular system, is no progress.
            better = norm < at.norm
            rounding = ~better & (at.best_norm <= ACCURACY)
            taken = ~rounding & (norm < _WORSE * at.norm)
            proximal = jnp.where(better, _LESS * at.proximal, jnp.minimum(_MORE * at.proximal, _MOST_PROXIMAL))
            lowest = taken & (norm < at.best_norm)
            return _Searching(
                jnp.where(taken, after, at.z),
                jnp.where(taken, F, at.F),
                jnp.where(taken, D, at.D),
                jnp.where(taken, norm, at.norm),
                proximal,
                jnp.where(lowest, after, at.best),
                jnp.where(lowest, norm, at.best_norm),
                at.steps + 1,
                ~rounding,
            )

        def z_after(at: _Searching) -> Array:
            n = self.family.n
            identity = jnp.eye(self.family.m, dtype=z.dtype)
            signs = jnp.concatenate([jnp.ones(n, z.dtype), -jnp.ones(self.family.m, z.dtype)])
            J = jnp.block([[self.P, self.A.T @ at.D], [self.A, at.D - identity]])
            return at.z - jnp.linalg.solve(J + jnp.diag(at.proximal * signs), at.F)

        def go_on(at: _Searching) -> Bool[Array, ""]:
            return at.going & (at.best_norm > _CLOSE) & (at.steps < _STEPS)

        F, D = self._measure(z, b, c)
        norm = jnp.linalg.norm(F)
        proximal = jnp.asarray(_PROXIMAL, z.dtype)
        first = _Searching(z, F, D, norm, proximal, z, norm, jnp.int32(0), jnp.bool_(True))
        found = jax.lax.while_loop(go_on, step, first)
        return found.best, found.steps

    def _measure(self, z: Float[Array, " nm"], b: Float[Array, " m"], c: Float[Array, " n"]) -> tuple[Array, Array]:
        """Return F, and the derivative of the projection."""
        x = z[: self.family.n]
        v = z[self.family.n :]
        project = self.family.cones.project_dual
        y = project(v)
        D = jax.jacfwd(project)(v)
        F = jnp.concatenate([self.P @ x + self.A.T @ y + c, self.A @ x + y - v - b])
        return F, jnp.where(jnp.isfinite(D), D, 0.0)


class _Searching(NamedTuple):
    """Where a search stands: the point, F, the derivative of the projection and ‖F‖; the proximal term; and the best
    point so far."""

    z: Float[Array, " nm"]
    F: Float[Array, " nm"]
    D: Float[Array, "m m"]
    norm: Float[Array, ""]
    proximal: Float[Array, ""]
    best: Float[Array, " nm"]
    best_norm: Float[Array, ""]
    steps: Int[Array, ""]
    going: Bool[Array, ""]


class _Conditions(NamedTuple):
    """F, the derivative of the projection, and ‖F‖."""

    F: Float[np.ndarray, " nm"]
    D: Float[np.ndarray, "m m"]
    norm: float


@functools.partial(jax.jit, static_argnums=0)
def _begin(key: Key[Conic], leaves: tuple, encoded: Encoded, point: Point) -> tuple[Array, Array, Array]:
    """(x, v) of points, and the data, in working units."""
    return _begin_search(key.unflatten(leaves), encoded, point)


def _begin_search(family: Conic, encoded: Encoded, point: Point) -> tuple[Array, Array, Array]:
    instance = family.decode(encoded)
    start = SCS().init(family, instance, point)
    return start.u.at[family.n :].add(-start.v[family.n :]), instance.b, instance.c


@functools.partial(jax.jit, static_argnums=0)
def _projected(key: Key[Cones], leaves: tuple, v: Float[Array, " m"]) -> tuple[Array, Array]:
    """Π_K*(v) and its derivative."""
    project = key.unflatten(leaves).project_dual
    return project(v), jax.jacfwd(project)(v)


@functools.partial(jax.jit, static_argnums=0)
def _end(
    key: Key[Conic], leaves: tuple, encoded: Encoded, z: Float[Array, "nm *N"], steps: Int[Array, "*N"]
) -> Outcome:
    """The points of (x, v) in the user's units, and how good they are."""
    return _end_search(key.unflatten(leaves), encoded, z, steps)


def _end_search(family: Conic, encoded: Encoded, z: Float[Array, "nm *N"], steps: Int[Array, "*N"]) -> Outcome:
    instance = family.decode(encoded)
    s = family.matrices.scaling
    n = family.n
    dual = family.cones.project_dual(z[n:])
    x, y, slack = (instance.size * part for part in (z[:n], dual, dual - z[n:]))
    point = Point(x * along(s.d, x), y * along(s.e, y), slack / along(s.e, slack))
    residuals = SCS().measure_point(family, instance, point)
    return Outcome(point, residuals, residuals.violation(ACCURACY, ACCURACY) <= 1, jnp.asarray(steps))
