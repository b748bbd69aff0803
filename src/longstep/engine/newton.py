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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._util.threads import one_blas_thread
from ..algorithms.scs import SCS
from ..cones.product import Cones
from ..families.base import Encoded
from ..families.conic import Conic
from ..families.point import Point
from ..linalg.matrix import along
from .finish import ACCURACY, Outcome
from .jitted import Key, flatten

# Of NumPy or of JAX.
ArrayT = TypeVar("ArrayT", np.ndarray, Array)

# Unknowns x and v beyond which a factorization costs more than it is worth.
MOST = 1000
# Newton steps at most: on the right piece it takes a few.
STEPS = 40
# The proximal term at first, at most, and by what it is multiplied after a step that brings ‖F‖ down and after others.
PROXIMAL = 1e-2
MOST_PROXIMAL = 1e-1
LESS = 0.6
MORE = 4.0
# A step after which ‖F‖ is so many times larger is not taken.
WORSE = 10.0
# ‖F‖ of data of size one at which there is nothing left to gain.
CLOSE = 1e-14


class _Searching(NamedTuple, Generic[ArrayT]):
    """Where a search stands: the point, F, the derivative of the projection and ‖F‖; the proximal term; and the best
    point so far."""

    z: Float[ArrayT, " nm"]
    F: Float[ArrayT, " nm"]
    D: Float[ArrayT, "m m"]
    norm: Float[ArrayT, ""]
    proximal: Float[ArrayT, ""]
    best: Float[ArrayT, " nm"]
    best_norm: Float[ArrayT, ""]
    steps: Int[ArrayT, ""]
    going: Bool[ArrayT, ""]


@dataclass(frozen=True)
class _Search(Generic[ArrayT]):
    """The search from one point of one instance with data b and c, in the arrays of NumPy or of JAX (`xp`).

    `project` gives Π_K*(v) and its derivative, `solve` the solution of a linear system, NaN where it has none.
    """

    xp: Any
    P: Float[ArrayT, "n n"]
    A: Float[ArrayT, "m n"]
    b: Float[ArrayT, " m"]
    c: Float[ArrayT, " n"]
    project: Callable[[ArrayT], tuple[ArrayT, ArrayT]]
    solve: Callable[[ArrayT, ArrayT], ArrayT]

    def begin(self, z: Float[ArrayT, " nm"]) -> _Searching[ArrayT]:
        """Return a search that begins at z."""
        xp = self.xp
        F, D = self._measure(z)
        norm = xp.linalg.norm(F)
        return _Searching(
            z=z,
            F=F,
            D=D,
            norm=norm,
            proximal=xp.asarray(PROXIMAL, z.dtype),
            best=z,
            best_norm=norm,
            steps=xp.asarray(0, "int32"),
            going=xp.asarray(True),
        )

    def goes_on(self, at: _Searching[ArrayT]) -> Bool[ArrayT, ""] | np.bool_:
        """Tell whether there is anything left to gain, and a step left to take."""
        return at.going & (at.best_norm > CLOSE) & (at.steps < STEPS)

    def advance(self, at: _Searching[ArrayT]) -> _Searching[ArrayT]:
        """Return the search after one more step, taken or not."""
        xp = self.xp
        z = self._step(at)
        F, D = self._measure(z)
        norm = xp.linalg.norm(F)
        # NaN, of a singular system, is no progress.
        better = norm < at.norm
        # What does not get better at this point is rounding.
        rounding = ~better & (at.best_norm <= ACCURACY)
        taken = ~rounding & (norm < WORSE * at.norm)
        lowest = taken & (norm < at.best_norm)
        return _Searching(
            z=xp.where(taken, z, at.z),
            F=xp.where(taken, F, at.F),
            D=xp.where(taken, D, at.D),
            norm=xp.where(taken, norm, at.norm),
            proximal=xp.where(better, LESS * at.proximal, xp.minimum(MORE * at.proximal, MOST_PROXIMAL)),
            best=xp.where(lowest, z, at.best),
            best_norm=xp.where(lowest, norm, at.best_norm),
            steps=at.steps + 1,
            going=~rounding,
        )

    def _measure(self, z: Float[ArrayT, " nm"]) -> tuple[ArrayT, ArrayT]:
        """Return F, and the derivative of the projection."""
        n = len(self.c)
        x = z[:n]
        v = z[n:]
        y, D = self.project(v)
        F = self.xp.concatenate([self.P @ x + self.A.T @ y + self.c, self.A @ x + y - v - self.b])
        return F, self.xp.where(self.xp.isfinite(D), D, 0.0)

    def _step(self, at: _Searching[ArrayT]) -> Float[ArrayT, " nm"]:
        """Return z after a step; NaN where it has none."""
        xp = self.xp
        signs = xp.concatenate([xp.ones_like(self.c), -xp.ones_like(self.b)])
        J = xp.block([[self.P, self.A.T @ at.D], [self.A, at.D - xp.eye(len(self.b))]])
        return at.z - self.solve(J + xp.diag(at.proximal * signs), at.F)


class Newton:
    """Newton's method for the instances of a family in its working units, on the host: the loop and the linear systems
    are NumPy's, because LAPACK called from programs of JAX on several threads at once takes all of them, and long."""

    def __init__(self, family: Conic):
        self.family = flatten(family)
        self.cones = flatten(family.cones)
        self.P, self.A = (np.asarray(M.dense()) for M in (family.matrices.P, family.matrices.A))

    def seek(self, encoded: Encoded, point: Point) -> Outcome:
        """Return the exact points of instances near these, where they are found."""
        z, b, c = (np.array(part) for part in _begin(*self.family, encoded, point))
        # One instance, or one in each column.
        columns = np.concatenate([part.reshape(len(part), -1) for part in (z, b, c)]).T
        found: list[tuple[np.ndarray, int]] = []
        # Other instances are sought for at the same time.
        with one_blas_thread():
            for k, column in enumerate(columns):
                # What a batch is padded with is not sought for again.
                if k > 0 and np.array_equal(column, columns[k - 1]):
                    found.append(found[-1])
                else:
                    found.append(self._search(*np.split(column, [len(z), len(z) + len(b)])))
        z = np.stack([each for each, _ in found], axis=-1).reshape(z.shape)
        steps = np.array([count for _, count in found], np.int32).reshape(z.shape[1:])
        return _end(*self.family, encoded, z, steps)

    def _search(self, z: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the best of what Newton steps from z lead to, and how many they were."""
        search = _Search(xp=np, P=self.P, A=self.A, b=b, c=c, project=self._project, solve=_solve_on_host)
        # Where a system is singular, what follows is NaN, and not taken.
        with np.errstate(invalid="ignore"):
            at = search.begin(z)
            while search.goes_on(at):
                at = search.advance(at)
        return at.best, int(at.steps)

    def _project(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, D = _project_and_differentiate(*self.cones, v)
        return np.asarray(y), np.asarray(D)


def _solve_on_host(J: np.ndarray, F: np.ndarray) -> np.ndarray:
    try:
        return np.linalg.solve(J, F)
    except np.linalg.LinAlgError:
        return np.full_like(F, np.nan)


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
        project = functools.partial(_project, self.family.cones)
        search = _Search(xp=jnp, P=self.P, A=self.A, b=b, c=c, project=project, solve=jnp.linalg.solve)
        found = jax.lax.while_loop(search.goes_on, search.advance, search.begin(z))
        return found.best, found.steps


@functools.partial(jax.jit, static_argnums=0)
def _begin(key: Key[Conic], leaves: tuple, encoded: Encoded, point: Point) -> tuple[Array, Array, Array]:
    """Return (x, v) of points, and the data, in working units."""
    return _begin_search(key.unflatten(leaves), encoded, point)


def _begin_search(family: Conic, encoded: Encoded, point: Point) -> tuple[Array, Array, Array]:
    instance = family.decode(encoded)
    start = SCS().init(family, instance, point)
    return start.u.at[family.n :].add(-start.v[family.n :]), instance.b, instance.c


@functools.partial(jax.jit, static_argnums=0)
def _project_and_differentiate(key: Key[Cones], leaves: tuple, v: Float[Array, " m"]) -> tuple[Array, Array]:
    return _project(key.unflatten(leaves), v)


def _project(cones: Cones, v: Float[Array, " m"]) -> tuple[Array, Array]:
    """Return Π_K*(v) and its derivative."""
    return cones.project_dual(v), jax.jacfwd(cones.project_dual)(v)


@functools.partial(jax.jit, static_argnums=0)
def _end(
    key: Key[Conic], leaves: tuple, encoded: Encoded, z: Float[Array, "nm *N"], steps: Int[Array, "*N"]
) -> Outcome:
    """Return the points of (x, v) in the user's units, and how good they are."""
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
