"""Schedules for the tests, and the comparison of a compiled solver with the one it was made from."""

import shutil
from functools import cache
from pathlib import Path

import numpy as np

import longstep as ls
from longstep.cli.modelfile import load_model

from ..helpers import find_roles

# Those of these that are installed: a build asks for one of them.
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
EXAMPLES = Path(__file__).parents[2] / "examples"


def varied(family, blocks=(4, 6), seed=0, spread=0.2, safeguard="block", **steady):
    """A solver with a schedule around the defaults: factors differ from step to step, two of them are equal."""
    rng, H = np.random.default_rng(seed), sum(blocks)
    plain = ls.Solver(family)
    roles = find_roles(plain.algorithm, family)
    steady = {**plain.schedule.steady, **steady}
    varying = {}
    for name, value in steady.items():
        values = value * 10 ** rng.uniform(-spread, spread, H)
        if roles[name] == "relaxation":
            values = rng.uniform(0.8, 1.8, H)
        elif H > 2:
            values[2] = values[1]
        varying[name] = values
    return ls.Solver(family, ls.Schedule(varying, steady, blocks=blocks), safeguard=safeguard)


def distance(a, b):
    """The largest difference of two arrays, relative to the largest entry, or to one."""
    return 0.0 if a is None or a.size == 0 else float(np.abs(a - b).max() / max(1.0, np.abs(a).max()))


def assert_equal(ours, theirs, rtol=1e-10):
    """A solution of C code against the solver's own."""
    assert ours.status == theirs.status
    assert int(ours.iterations) == int(theirs.iterations)
    assert bool(ours.safeguarded) == bool(theirs.safeguarded)
    for name in ("x", "y", "s"):
        assert distance(getattr(theirs, name), getattr(ours, name)) < rtol, name
    scale = max(1.0, abs(float(theirs.objective)))
    assert abs(float(ours.objective) - float(theirs.objective)) < rtol * scale
    # Residuals are small differences of large numbers.
    for name in ("primal_residual", "dual_residual"):
        a, b = float(getattr(theirs, name)), float(getattr(ours, name))
        assert abs(a - b) < 100 * rtol * max(1.0, a), name
    assert (ours.outside is None) == (theirs.outside is None)
    for name in ("ray_x", "ray_y"):
        a, b = getattr(theirs, name), getattr(ours, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-9 * np.nanmax(np.abs(np.append(a, 0.0))))


@cache
def example(name):
    """An example's family and three of its instances, by name."""
    with load_model(EXAMPLES / f"{name}.py") as file:
        family = ls.from_cvxpy(file.problem).family
        return family, [file.sample(np.random.default_rng([3, k])) for k in range(3)]
