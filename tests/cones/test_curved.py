"""Projections onto exponential and power cones: exact on all magnitudes, with derivatives, against other solvers."""

import decimal
import itertools

import clarabel
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given

import longstep as ls

CURVED = {
    "exponential": ls.Cones(exponential=1),
    "power 0.03": ls.Cones(power=0.03),
    "power 0.3": ls.Cones(power=0.3),
    "power 0.5": ls.Cones(power=0.5),
    "power 0.95": ls.Cones(power=0.95),
}
PROJECT = {name: (jax.jit(cones.project), jax.jit(cones.project_dual)) for name, cones in CURVED.items()}


def derivative(cones):
    """The derivative along d, and the gradient of the product with d."""
    return jax.jit(lambda v, d: (jax.jvp(cones.project, (v,), (d,))[1], jax.grad(lambda v: cones.project(v) @ d)(v)))


DERIVATIVE = {name: derivative(cones) for name, cones in CURVED.items()}
curved = pytest.mark.parametrize("kind", CURVED)
_SIZES = [0.0, 1e-320, 1e-300, 1e-150, 1e-20, 1e-8, 0.3, 1.0, 1.1, 50.0, 1e8, 1e20, 1e150, 1e300]


def awkward(count=5000):
    """All magnitudes against each other, zeros and ties, and random points of all sizes, as columns."""
    values = [sign * size for size in _SIZES for sign in (1, -1)]
    rng = np.random.default_rng(0)
    random = rng.normal(size=(3, count)) * 10 ** rng.uniform(-6, 6, size=(3, count))
    return np.concatenate([np.array(list(itertools.product(values, repeat=3))).T, random], axis=1)


def inside(kind, p):
    """Membership in the cone, by its definition."""
    x, y, z = p
    if kind == "exponential":
        return (y > 0) & (z > 0) & (x / y <= np.log(z) - np.log(y))
    a = CURVED[kind].power[0]
    return (x >= 0) & (y >= 0) & (np.abs(z) <= x**a * y ** (1 - a))


def inside_dual(kind, w):
    """Membership in the dual cone: (u, v, w) with −u·exp(v/u) ≤ e·w, u < 0; (u/a, v/(1 − a), w) in the cone itself."""
    u, v, w = w
    if kind == "exponential":
        return (u < 0) & (w > 0) & (np.log(-u) + v / u <= 1 + np.log(w))
    a = CURVED[kind].power[0]
    return inside(kind, (u / a, v / (1 - a), w))


def middle(kind):
    """A point in the middle of the cone and of its dual."""
    return np.array([[-1.0], [1.0], [1.0]] if kind == "exponential" else [[1.0], [1.0], [0.0]])


@curved
def test_projections_on_all_magnitudes(kind):
    """In the cone, the rest in the polar cone, at right angles: this characterises the projection (Moreau 1962)."""
    V = awkward()
    size = np.maximum(np.abs(V).max(axis=0), 1e-300)
    # Off denormal numbers, where nothing has sixteen digits.
    V, size = V[:, size >= 1e-280], size[size >= 1e-280]
    project, dual = PROJECT[kind]
    p, d = np.asarray(project(V)) / size, np.asarray(dual(-V)) / size
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p - d, V / size, atol=1e-14)
    assert np.abs(np.sum(p * d, axis=0)).max() < 1e-14
    # Within 1e-13 of the cone, if that much of a point in its middle leads into it.
    assert inside(kind, p + 1e-13 * middle(kind)).all()
    assert inside_dual(kind, d + 1e-13 * middle(kind)).all()
    np.testing.assert_allclose(np.asarray(project(p * size)) / size, p, atol=1e-14)
    np.testing.assert_allclose(np.asarray(dual(d * size)) / size, d, atol=1e-14)


@curved
def test_single_precision(kind):
    V = awkward(2000)
    V = V[:, np.abs(V).max(axis=0) < 1e30].astype(np.float32)
    size = np.maximum(np.abs(V).max(axis=0), 1e-30)
    p = PROJECT[kind][0](jnp.asarray(V))
    assert p.dtype == np.float32
    wide = np.asarray(PROJECT[kind][0](V.astype(np.float64)))
    np.testing.assert_allclose(np.asarray(p) / size, wide / size, atol=1e-6)


@curved
def test_projections_are_clarabels(kind):
    """The nearest point of the cone is a small cone program: minimise ½‖p − v‖², p ∈ K."""
    (name, size), *_ = CURVED[kind].clarabel()[0]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cone = getattr(clarabel, name)(*() if size is None else (size,))
    eye = sp.csc_matrix(np.eye(3))
    for v in np.random.default_rng(2).normal(size=(30, 3)):
        solver = clarabel.DefaultSolver(eye, -v, sp.csc_matrix(-np.eye(3)), np.zeros(3), [cone], settings)
        np.testing.assert_allclose(PROJECT[kind][0](v), solver.solve().x, atol=1e-4)


@pytest.mark.parametrize("rho", [-30.0, -3.0, -0.5, 0.0, 0.2, 1.0, 2.5, 20.0])
@pytest.mark.parametrize(("s", "u"), [(1.0, 1.0), (1e-5, 1.0), (1.0, 1e-5)])
def test_exponential_points_with_a_known_projection(rho, s, u):
    """To p = s(ρ, 1, e^ρ) and w = u(1, 1 − ρ, −e^−ρ) in cone and polar at right angles, with 50 digits."""
    with decimal.localcontext() as context:
        context.prec = 50
        r, s_, u_ = (decimal.Decimal(value) for value in (rho, s, u))
        p = [s_ * r, s_, s_ * r.exp()]
        w = [u_, u_ * (1 - r), -u_ * (-r).exp()]
        v = [float(one + other) for one, other in zip(p, w, strict=True)]
    found = np.asarray(PROJECT["exponential"][0](np.array(v)))
    np.testing.assert_allclose(found, [float(entry) for entry in p], atol=1e-14 * np.abs(v).max())


@pytest.mark.parametrize("a", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("t", "q"), [(0.0, 1.0), (3.0, 1e-6), (-5.0, 2.0), (8.0, 100.0)])
def test_power_points_with_a_known_projection(a, sign, t, q):
    """To p = (e^((1−a)t), e^(−at), ±1) on the cone, p − q·∇(a·log x + (1 − a)·log y − log|z|)."""
    p = np.array([np.exp((1 - a) * t), np.exp(-a * t), sign])
    v = p - q * np.array([a, 1 - a, -1.0]) / p
    np.testing.assert_allclose(ls.Cones(power=a).project(jnp.asarray(v)), p, atol=2e-15 * np.abs(v).max())


@curved
@given(seed=st.integers(0, 10_000))
def test_derivatives_are_those_of_differences(kind, seed):
    rng = np.random.default_rng(seed)
    v, d = rng.normal(size=(2, 3))
    project, size = PROJECT[kind][0], 1e-6
    tangent, gradient = DERIVATIVE[kind](v, d)
    np.testing.assert_allclose(tangent, (project(v + size * d) - project(v - size * d)) / (2 * size), atol=2e-6)
    np.testing.assert_allclose(gradient @ d, tangent @ d, atol=1e-12)


@curved
def test_derivatives_are_finite_symmetric_and_no_expansion_everywhere(kind):
    V = jnp.asarray(awkward(1000))
    jacobians = np.asarray(jax.jit(jax.vmap(jax.jacfwd(CURVED[kind].project), in_axes=1))(V))
    assert np.isfinite(jacobians).all()
    np.testing.assert_allclose(jacobians, np.swapaxes(jacobians, 1, 2), atol=1e-12)
    values = np.linalg.eigvalsh(jacobians)
    assert values.min() > -1e-12
    assert values.max() < 1 + 1e-12


@curved
def test_a_derivative_through_a_loop_and_a_batch(kind):
    """As training takes it: through a scan, for a stack, in reverse."""
    cones = CURVED[kind]
    V = jnp.asarray(np.random.default_rng(4).normal(size=(3, 5)))

    def total(t):
        def step(v, _):
            return cones.project_dual(v - t * cones.project(v) + 0.1), None

        return jnp.sum(jax.lax.scan(step, V, None, length=4)[0] ** 2)

    slope = (total(0.3 + 1e-7) - total(0.3 - 1e-7)) / 2e-7
    np.testing.assert_allclose(jax.jit(jax.grad(total))(0.3), slope, rtol=1e-4)


@curved
def test_what_is_no_number_stays_none(kind):
    found = np.asarray(PROJECT[kind][0](np.array([[np.nan, 1.0, np.inf], [1.0, 2.0, 1.0], [0.5, 3.0, 0.5]])))
    assert np.isnan(found[:, 0]).any()
    assert np.isfinite(found[:, 1]).all()
    assert not np.isfinite(found[:, 2]).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_dual_of_a_product_is_no_cone_of_its_own(seed):
    """Π_K* is the nearest point of K*, found by a search that knows the dual cone alone."""
    v = np.random.default_rng(seed).normal(size=3)

    def dual_point(w):
        # (u, v, w) of the dual exponential cone: u = −t, w = t·exp(−v/t − 1) + more.
        t, y, more = np.exp(np.clip(w[0], -20, 20)), w[1], w[2] ** 2
        return np.array([-t, y, t * np.exp(-y / t - 1) + more])

    tries = [
        scipy.optimize.minimize(lambda w: np.sum((dual_point(w) - v) ** 2), start, method="Nelder-Mead",
                                options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 5000})
        for start in ([0.0, 1.0, 0.1], [-1.0, -0.1, 0.5], [-2.0, 0.5, 0.0])
    ]  # fmt: skip
    best = min(found.fun for found in tries)
    found = np.asarray(ls.Cones(exponential=1).project_dual(jnp.asarray(v)))
    assert np.sum((found - v) ** 2) <= best + 1e-6
    np.testing.assert_allclose(np.sum((found - v) ** 2), best, atol=1e-4)
