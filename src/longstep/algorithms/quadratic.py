"""What methods on quadratic programs share: their state, residuals, points and certificates of infeasibility."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from typing_extensions import override

from ..families.base import Family
from ..families.point import Point
from ..families.quadratic_program import QP, QPInstance
from ..linalg.matrix import AnyArray, along, inner, max_norm, two_norm
from .base import Algorithm
from .residuals import Residuals


class QPState(eqx.Module):
    """(w, z, y) in equilibrated units: primal, split constraint value, dual; without the family's free rows.

    y and not z + y/ρ: with a varying ρ the two are different algorithms, and only in (w, z, y) is the optimum
    a fixed point whatever ρ is.
    """

    w: Float[Array, "n *N"]
    z: Float[Array, "m *N"]
    y: Float[Array, "m *N"]


class QPMethod(Algorithm[QP, QPInstance, QPState]):
    """A method on QPs whose state is (w, z, y): what is left to say is its step."""

    family_type: ClassVar[type[Family]] = QP
    eps_infeasible: ClassVar[float] = 1e-4

    @override
    def init(self, family, instance, start):
        return begin_qp(family, instance, start)

    @override
    def residuals(self, family, instance, state):
        return measure_qp(family, instance, state)

    @override
    def coordinates(self, family, instance, state):
        return jnp.concatenate([state.w, state.z, state.y])

    @override
    def extract(self, family, instance, state):
        return extract_qp(family, instance, state)

    @override
    def infeasible(self, family, instance, previous, state, eps):
        return certify_qp(family, instance, previous, state, eps)

    @override
    def rays(self, family, instance, previous, state):
        return extract_rays(family, instance, previous, state)


def condensing_pays(family: QP) -> bool:
    """Return whether a step without the equalities takes fewer operations than one with them."""
    equalities = np.asarray(family.equality)
    free = family.n - int(np.sum(equalities))
    rows = int(np.sum(~equalities))
    return 2 * free**2 + 3 * free * rows < family.n**2


def begin_qp(family: QP, instance: QPInstance, start: Point | None) -> QPState:
    """Return the state at a start in the user's units, or at zero."""
    if start is None:
        return QPState(jnp.zeros_like(instance.q), jnp.zeros_like(instance.l), jnp.zeros_like(instance.l))
    s = family.matrices.scaling
    w = start.x / along(s.d, start.x)
    e = along(s.e, instance.l)
    rows = family.host.kinds.bounded
    y = jnp.zeros_like(instance.l)
    if start.y is not None:
        y = start.y[rows] * s.c / e
    if start.s is None:
        return QPState(w, family.matrices.A.mv(w), y)
    return QPState(w, start.s[rows] * e, y)


def measure_qp(family: QP, instance: QPInstance, state: QPState) -> Residuals:
    """Return the residuals of (w, z, y) in the user's units."""
    # Every step leaves z in [l, u] and y without parts along infinite bounds; a start need not.
    z = jnp.clip(state.z, instance.l, instance.u)
    y = cut(instance.l, instance.u, state.y)
    matrices = family.matrices
    s = family.matrices.scaling
    to_user = along(1 / s.e, state.z)
    to_user_dual = along(1 / (s.d * s.c), state.w)
    Aw = matrices.A.mv(state.w)
    Pw = matrices.P.mv(state.w)
    Aty = matrices.A.rmv(y)
    primal = (Aw - z) * to_user
    dual = (Pw + instance.q + Aty) * to_user_dual
    quadratic = inner(state.w, Pw) / s.c
    linear = inner(instance.q, state.w) / s.c
    dual_part = support(instance.l, instance.u, y) / s.c
    return Residuals(
        primal=two_norm(primal),
        dual=two_norm(dual),
        primal_max=max_norm(primal),
        dual_max=max_norm(dual),
        gap=jnp.abs(quadratic + linear + dual_part),
        primal_scale=max_norm(jnp.maximum(jnp.abs(Aw), jnp.abs(z)) * to_user),
        dual_scale=max_norm(jnp.maximum(jnp.maximum(jnp.abs(Pw), jnp.abs(Aty)), jnp.abs(instance.q)) * to_user_dual),
        gap_scale=jnp.maximum(jnp.maximum(jnp.abs(quadratic), jnp.abs(linear)), jnp.abs(dual_part)),
        objective=0.5 * quadratic + linear,
    )


def extract_qp(family: QP, instance: QPInstance, state: QPState) -> Point:
    """Return the point of (w, z, y) in the user's units."""
    s = family.matrices.scaling
    kinds = family.host.kinds
    e = along(s.e, state.z)
    x = state.w * along(s.d, state.w)
    y = cut(instance.l, instance.u, state.y) * e / s.c
    z = jnp.clip(state.z, instance.l, instance.u) / e
    if kinds.free.size:
        free = family.free_A.mv(x)
        y = jnp.concatenate([y, jnp.zeros_like(free)])[kinds.order]
        z = jnp.concatenate([z, free])[kinds.order]
    return Point(x, y, z)


def certify_qp(
    family: QP, instance: QPInstance, previous: QPState, state: QPState, eps: float | Float[Array, ""]
) -> tuple[Bool[Array, "*N"], Bool[Array, "*N"]]:
    """Return whether two successive states certify that the primal, and that the dual, has no feasible point."""
    # Differences of successive iterates converge to certificates (Banjac, Goulart, Stellato, Boyd 2019). "Small" is
    # measured against the entries of P and A where these are small themselves, and against q.
    matrices = family.matrices
    s = family.matrices.scaling
    e = along(s.e, state.z)
    d = along(s.d, state.w)
    dw = state.w - previous.w
    dy = cut(instance.l, instance.u, state.y - previous.y)

    size = max_norm(dy * e)
    bounds = jnp.maximum(max_norm(_drop_infinite(instance.l) / e), max_norm(_drop_infinite(instance.u) / e))
    grows = support(instance.l, instance.u, dy) < -eps * jnp.minimum(bounds, 1.0) * size
    primal = (size > 0) & grows & (max_norm(matrices.A.rmv(dy) / d) < eps * matrices.size_A * size)

    size = max_norm(dw * d)
    Adw = matrices.A.mv(dw) / e
    level = eps * matrices.size_A * size
    recedes = jnp.all(
        ((Adw <= level) | ~jnp.isfinite(instance.u)) & ((Adw >= -level) | ~jnp.isfinite(instance.l)), axis=0
    )
    descends = inner(instance.q, dw) / s.c < -eps * max_norm(instance.q / (d * s.c)) * size
    flat = max_norm(matrices.P.mv(dw) / (d * s.c)) <= eps * matrices.size_P * size
    return primal, (size > 0) & descends & flat & recedes


def extract_rays(family: QP, instance: QPInstance, previous: QPState, state: QPState) -> Point:
    """Return the certificates behind `certify_qp` in the user's units."""
    difference = QPState(state.w - previous.w, state.z, state.y - previous.y)
    return extract_qp(family, instance, difference)


def support(l: Float[AnyArray, "m *one"], u: Float[AnyArray, "m *two"], y: Float[Array, "m *N"]) -> Float[Array, "*N"]:
    """Return u'y₊ + l'y₋, the support function of [l, u]; y has no part along infinite bounds."""
    return jnp.sum(_drop_infinite(u) * jnp.maximum(y, 0.0) + _drop_infinite(l) * jnp.minimum(y, 0.0), axis=0)


def cut(l: Float[AnyArray, "m *one"], u: Float[AnyArray, "m *two"], y: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
    """Return y without its parts along infinite bounds."""
    y = jnp.where(jnp.isfinite(u), y, jnp.minimum(y, 0.0))
    return jnp.where(jnp.isfinite(l), y, jnp.maximum(y, 0.0))


def _drop_infinite(bound: Float[AnyArray, "m *N"]) -> Float[Array, "m *N"]:
    return jnp.where(jnp.isfinite(bound), bound, 0.0)
