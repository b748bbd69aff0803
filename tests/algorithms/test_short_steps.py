"""Short steps of the condensed form, one by one and by a kernel, against whole steps and against formulae."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.algorithms.tiles import Rows, Steps, suits, take_steps

STEPS = 12


def family(dtype="float64"):
    """Few inequalities beside unknowns, so that one product with their values is less work than three."""
    rng = np.random.default_rng(0)
    n, equalities, rows = 20, 6, 18
    root = rng.normal(size=(n, n))
    A = rng.normal(size=(equalities + rows, n))
    values = A @ rng.normal(size=n)
    low, high = values - rng.uniform(0, 0.5, len(A)), values + rng.uniform(0, 0.5, len(A))
    low[:equalities] = high[:equalities] = values[:equalities]
    low[-4:] = -np.inf
    move = ls.Affine(q=np.eye(n))
    return ls.QP(root @ root.T / n + np.eye(n) / 10, A, q=np.zeros(n), l=low, u=high, parameter=move, dtype=dtype)


def sample(count):
    return 3 * np.random.default_rng(1).normal(size=(count, 20))


def schedule(safeguarded=False):
    """As many factors as steps; or with penalties from the fifth on after which residuals grow."""
    rho = np.geomspace(0.8, 1.25, STEPS)
    alpha = np.full(STEPS, 1.2)
    if safeguarded:
        rho[4:] = np.tile([1e-2, 1e2], (STEPS - 4) // 2)
    return ls.Schedule({"rho": rho, "alpha": alpha}, {"rho": 1.0, "alpha": 1.6}, blocks=[4] * (STEPS // 4))


@pytest.mark.parametrize("safeguarded", [False, True])
def test_points_are_those_of_whole_steps(safeguarded):
    """`run` looks at every iterate, so that it takes whole steps; `solve` looks at the last alone."""
    solver = ls.Solver(family(), schedule(safeguarded), algorithm=Condensed())
    assert solver.plan.trusted
    assert solver.plan.factors.response is not None
    x = sample(5)
    history = solver.run(x, STEPS + 2)
    assert history.safeguarded.any() == safeguarded
    for k in (1, 7, STEPS + 2):
        found = solver.solve_batch(x, steps=k)
        np.testing.assert_allclose(found.primal_residual, history.primal_max[:, k], rtol=1e-6, atol=1e-11)
        np.testing.assert_allclose(found.dual_residual, history.dual_max[:, k], rtol=1e-6, atol=1e-11)
        np.testing.assert_allclose(found.objective, history.objective[:, k], rtol=1e-9)


def test_where_memory_is_short_the_smaller_factors_are_kept(monkeypatch):
    ample = ls.Solver(family(), schedule(), algorithm=Condensed())
    v = ample.plan.factors.inverse.inverse.shape[-1]
    monkeypatch.setattr("longstep.engine.factorization.measure_usable", lambda: 8 * v**2 * (STEPS + 1))
    short = ls.Solver(family(), schedule(), algorithm=Condensed())
    assert short.plan.factors.response is None
    assert short.plan.factors.inverse.shape == (STEPS + 1, v, v)
    x = sample(3)
    np.testing.assert_allclose(short.solve_batch(x, steps=STEPS).x, ample.solve_batch(x, steps=STEPS).x, atol=1e-9)


def numbers(dtype, m, count, shared):
    """Steps of a family of m inequalities, `count` instances, bounds that all share or that each has."""
    rng = np.random.default_rng(m)
    roots = rng.normal(size=(3, m, m)) / np.sqrt(2 * m)
    width = 1 if shared else count
    low = -rng.uniform(0.1, 1.0, (m, width))
    high = np.where(rng.random((m, width)) < 0.3, np.inf, rng.uniform(0.1, 1.0, (m, width)))
    which = jnp.asarray(rng.integers(0, 3, STEPS), jnp.int32)
    arrays = (
        *(rng.uniform(0.5, 2.0, (STEPS, m)), rng.uniform(1.0, 1.8, STEPS), roots @ roots.transpose(0, 2, 1)),
        *(rng.normal(size=(m, count)), low, high, rng.normal(size=(m, count)), rng.normal(size=(m, count))),
    )
    rho, alpha, response, level, low, high, z, y = (jnp.asarray(a, dtype) for a in arrays)
    return Steps(rho, alpha, response, which), Rows(level, low, high), z, y


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("m", "count", "shared"), [(5, 3, False), (16, 70, True), (33, 40, False)])
def test_the_kernel_takes_the_steps_of_the_formula(dtype, m, count, shared):
    """z⁺ = clip(r + y/ρ, l, u), y⁺ = y + ρ(r − z⁺), with r = αs + (1 − α)z and s = a + G(ρ(z − a) − y)."""
    steps, rows, z, y = numbers(dtype, m, count, shared)
    first, stop = 2, 9
    found = jax.jit(lambda *bounds: take_steps(steps, rows, *bounds, z, y, interpret=True))(first, stop)
    rho, alpha, response, which = (np.asarray(a, np.float64) for a in steps)
    level, low, high, z, y = (np.asarray(a, np.float64) for a in (*rows, z, y))
    for k in range(first, stop):
        weight = rho[k][:, None]
        s = level + response[int(which[k])] @ (weight * (z - level) - y)
        r = alpha[k] * s + (1 - alpha[k]) * z
        z_next = np.clip(r + y / weight, low, high)
        z, y = z_next, y + weight * (r - z_next)
    tolerance = 1e-11 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(found[0], z, atol=tolerance * np.abs(z).max())
    np.testing.assert_allclose(found[1], y, atol=tolerance * np.abs(y).max())


def test_the_kernel_is_written_for_graphics_cards_and_used_on_no_others():
    steps, rows, z, y = numbers("float64", 62, 64, True)
    traced = jax.jit(lambda *bounds: take_steps(steps, rows, *bounds, z, y)).trace(0, STEPS)
    assert "condensed_steps" in traced.lower(lowering_platforms=("cuda",)).as_text()
    if jax.devices()[0].platform == "cpu":
        assert not suits(steps, jnp.zeros((62, 100_000)))


@pytest.mark.parametrize("algorithm", [Condensed(), ls.OSQP()], ids=str)
def test_steps_in_single_precision_have_a_finish_in_double(algorithm):
    x = sample(12)
    single = family("float32")
    assert ls.Solver(single, algorithm=algorithm).finish is None
    solver = ls.Solver(single, algorithm=algorithm, finish=20)
    tight = {"eps_abs": 1e-9, "eps_rel": 0.0, "max_iter": 200}
    found = solver.solve_batch(x, **tight)
    assert found.exact.all()
    assert found.x.dtype == found.y.dtype == np.float64
    optima = ls.solve_references(family(), x, progress=False, cache=False, jobs=1)
    np.testing.assert_allclose(found.x, optima.x, atol=1e-9)
    one = solver.solve(x[0], **tight)
    assert one.exact
    np.testing.assert_allclose(one.x, found.x[0], atol=1e-10)
    with pytest.raises(ValueError, match=r"a function of JAX cannot do: make it with finish=False"):
        solver.function()
