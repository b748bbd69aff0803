"""Reference optima by the finish: those of the reference solvers, and of what the finish does not solve."""

import jax
import numpy as np
import pytest

import longstep as ls
from longstep.data import references
from longstep.data.exact import find_exact

from ..helpers import random_qp

COUNT = 40


def make_qp():
    P, q, A, l, u = random_qp(2, equalities=2, free=1)
    moved = q + 0.3 * np.random.default_rng(0).normal(size=(COUNT, len(q)))
    return ls.QP(P, A, q=q, l=l, u=u), {"q": moved}


def make_lasso():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(8, 12))
    return ls.Composite(ls.Quadratic(A.T @ A), ls.L1(1.0)), {"q": -rng.normal(size=(COUNT, 8)) @ A}


FAMILIES = {"qp": make_qp, "lasso": make_lasso}


def solve(family, data, **options):
    return ls.solve_references(family, data, progress=False, jobs=1, **options)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_finish_finds_the_optima_of_the_reference_solvers(name, monkeypatch):
    family, data = FAMILIES[name]()
    expected = solve(family, data, cache=False)
    monkeypatch.setattr(references, "MANY", COUNT)
    monkeypatch.setattr(references, "_compute", lambda *_: iter(()))
    found = solve(family, data, cache=False)
    assert len(found) == COUNT
    assert found.error.max() < 1e-11
    np.testing.assert_allclose(found.x, expected.x, atol=1e-9)
    np.testing.assert_allclose(found.value, expected.value, atol=1e-10)
    if name == "qp":
        np.testing.assert_allclose(found.y, expected.y, atol=1e-7)
        np.testing.assert_allclose(found.s, found.x @ family.A.toarray().T, atol=1e-12)


def test_families_in_single_precision_have_optima_in_double(monkeypatch):
    family, data = make_lasso()
    expected = solve(family, data, cache=False)
    monkeypatch.setattr(references, "MANY", COUNT)
    monkeypatch.setattr(references, "_compute", lambda *_: iter(()))
    with jax.enable_x64(False):
        found = solve(family.astype("float32"), data, cache=False)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-9)


def test_what_the_finish_does_not_solve_goes_to_the_reference_solvers(monkeypatch, tmp_path):
    family, data = make_qp()
    expected = solve(family, data, cache=False)

    def find_some(*arguments):
        return list(find_exact(*arguments))[1:]

    monkeypatch.setattr(references, "MANY", COUNT)
    monkeypatch.setattr(references, "find_exact", find_some)
    found = solve(family, data, cache=tmp_path)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-9)
    np.testing.assert_array_equal(found.x[:16], expected.x[:16])
    # All of them are kept: nothing is solved again.
    monkeypatch.setattr(references, "_solve", lambda *_: iter(()))
    np.testing.assert_array_equal(solve(family, data, cache=tmp_path).x, found.x)


def test_instances_without_an_optimum_are_refused_as_ever(monkeypatch):
    family = ls.QP(np.eye(2), np.vstack([np.eye(2), np.ones((1, 2))]), q=np.ones(2), l=np.zeros(3), u=np.ones(3))
    bounds = np.tile(np.r_[0.0, 0.0, 0.5], (20, 1))
    bounds[7] = [0.0, 0.0, 3.0]
    data = {"l": bounds, "u": np.tile(np.r_[1.0, 1.0, 4.0], (20, 1))}
    monkeypatch.setattr(references, "MANY", 20)
    with pytest.raises(ls.errors.NoOptimumError, match="instance 7"):
        solve(family, data, cache=False)


def test_other_families_have_none():
    assert list(find_exact(ls.Quadratic(np.eye(2)), {"q": np.ones((3, 2))}, [(0, 3)], 1e-8)) == []
