"""Batches on several devices, and factors in less precision than the iterates."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import longstep as ls
from longstep.engine import batching
from longstep.research.experiments import quadcopter

from ..helpers import CONES, random_conic, random_qp

# Solves batches whose sizes the devices do not divide, on as many devices as it is told, and prints what came out.
BATCHES = """
import json, jax, numpy as np
jax.config.update("jax_enable_x64", True)
import longstep as ls
from longstep.engine import batching
from longstep.research.experiments import quadcopter
solver = ls.Solver(quadcopter.family(), ls.Schedule({"sigma": [1e-3] * 4, "rho_eq": [10.0, 20, 30, 40],
    "rho_ineq": [1.0, 2, 3, 4], "alpha": [1.5] * 4}, {"sigma": 1e-3, "rho_eq": 50.0, "rho_ineq": 0.5, "alpha": 1.6}))
X = quadcopter.sample_many(21, seed=0)
found = [solver.solve_batch(X, steps=9), solver.solve_batch(X, chunk=5, time_limit=100.0)]
found.append(solver.solve_batch(X, warm_start=found[0], steps=9))
smooth = ls.Smooth(lambda z, x: 0.5 * ((z - x["a"]) ** 2).sum(), n=3, lipschitz=1.0, strong_convexity=1.0)
found.append(ls.Solver(smooth).solve_batch({"a": np.arange(33.0).reshape(11, 3)}))
solved = [[s.iterations.tolist(), s.x.tolist()] for s in found]
print(json.dumps({"devices": len(jax.devices()), "workers": batching.workers(), "solved": solved}))
"""


def outcome(count: int) -> dict:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", BATCHES], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_several_devices_give_what_one_gives():
    one, four = outcome(1), outcome(4)
    assert (four["devices"], four["workers"]) == (4, 1)
    assert (one["devices"], one["workers"]) == (1, os.cpu_count())
    for (counts, values), (others, again) in zip(one["solved"], four["solved"], strict=True):
        assert counts == others
        np.testing.assert_allclose(again, values, atol=1e-10)


@pytest.mark.parametrize("name", ["qp", pytest.param("second_order", marks=pytest.mark.slow), "mixed"])
def test_factors_in_float32_give_solutions_in_float64(name):
    if name == "qp":
        P, q, A, l, u = random_qp(0)
        family, parameter = ls.QP(P, A, q=q, l=l, u=u), {"q": q}
    else:
        P, A, b, c = random_conic(0, CONES[name])
        family, parameter = ls.Conic(P, A, CONES[name], b=b, c=c), {"b": b}
    exact, mixed = ls.Solver(family), ls.Solver(family, factors="float32")
    assert mixed.plan.factors.inverse.dtype == np.float32
    assert exact.plan.factors.inverse.dtype == np.float64
    limits = {"eps_abs": 1e-10, "eps_rel": 0.0, "max_iter": 100_000}
    ours, theirs = mixed.solve(parameter, **limits), exact.solve(parameter, **limits)
    assert ours.status.name == theirs.status.name == "SOLVED"
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-8)
    float32 = ls.Solver(family.astype("float32")).solve(parameter, **limits | {"max_iter": 2000})
    assert np.abs(float32.x - theirs.x).max() > 1e-8
    assert mixed.content_hash() != exact.content_hash()


def test_float32_factors_are_saved_and_refused_where_there_are_none(tmp_path):
    family = quadcopter.family()
    solver = ls.Solver(family, factors="float32")
    solver.save(tmp_path / "mixed.longstep")
    loaded = ls.Solver.load(tmp_path / "mixed.longstep")
    assert loaded.factors == "float32"
    assert loaded.content_hash() == solver.content_hash()
    assert ls.Solver(family, factors="float64").content_hash() == ls.Solver(family).content_hash()
    with pytest.raises(ValueError, match="GradientDescent has no factorizations: leave factors='float32' out"):
        ls.Solver(ls.Quadratic(np.eye(2), q=np.zeros(2)), factors="float32")
    with pytest.raises(ValueError, match="factors must be 'float32', 'float64' or None, got 'half'"):
        ls.Solver(family, factors="half")  # type: ignore
    with pytest.raises(ValueError, match="a float32 family keeps its factors in float32"):
        ls.Solver(quadcopter.family(dtype="float32"), factors="float64")


def test_a_chunk_fits_into_memory(monkeypatch):
    assert batching.chunk(1000, 8) == 512
    monkeypatch.setattr(batching, "_has_one_cpu", lambda: False)
    monkeypatch.setattr(batching, "measure_available", lambda: 2**40)
    assert batching.chunk(1000, 8) == 100_000
    monkeypatch.setattr(batching, "measure_available", lambda: 2 * 12 * 8 * 1000 * 77)
    assert batching.chunk(1000, 8) == 77
    monkeypatch.setattr(batching, "measure_available", lambda: 10)
    assert batching.chunk(1000, 8) == 1
