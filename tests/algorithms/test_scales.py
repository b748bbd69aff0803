"""Scales of residuals in large batches: what decides whether a point counts as solved."""

import jax
import numpy as np
import pytest

import longstep as ls

N, COUNT = 20, 256


def make_families():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(N, N))
    P = root @ root.T + np.eye(N)
    quadratic = ls.Quadratic(P)
    smooth = ls.Smooth(lambda z, x: z @ (P @ z) / 2 + x @ z, lipschitz=quadratic.lipschitz, n=N)
    q = rng.normal(size=(COUNT, N))
    families = {"Quadratic": (quadratic, {"q": q}), "Smooth": (smooth, q)}
    return families | {f"{name} + L1": (ls.Composite(f, ls.L1(0.1)), data) for name, (f, data) in families.items()}


FAMILIES = make_families()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_scale_of_every_instance_is_the_gradient_at_zero(name):
    family, data = FAMILIES[name]
    algorithm = ls.Solver(family).algorithm
    q = data["q"] if isinstance(data, dict) else data

    @jax.jit
    def measure(family, instances, z):
        return algorithm.measure_point(family, instances, ls.Point(z)).dual_scale

    found = measure(family, family.instances(data), np.ones((N, COUNT)))
    np.testing.assert_allclose(found, np.abs(q).max(axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_solved_means_that_residuals_are_small_with_a_time_limit_too(name):
    family, data = FAMILIES[name]
    found = ls.Solver(family).solve_batch(data, eps_abs=1e-9, eps_rel=0.0, max_iter=40, time_limit=100.0)
    assert not found.solved.all()
    assert (found.dual_residual[found.solved] <= 1e-9).all()
