"""The loss for identification: rows on another side of their bounds than at the optimum."""

import jax
import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.algorithms.osqp import OSQP
from longstep.training.recipe import DEFAULT
from longstep.training.sides import find_sides

from ..helpers import random_qp

OPTIONS = {"horizon": 4, "block": 4, "iterations": 5, "candidates": 4, "metric": False, "cache": False}


def make_data(count=16):
    P, q, A, l, u = random_qp(3, equalities=2, free=1)
    moved = q + 0.5 * np.random.default_rng(0).normal(size=(count, len(q)))
    family = ls.QP(P, A, q=q, l=l, u=u)
    optima = ls.solve_references(family, {"q": moved}, cache=False, progress=False, jobs=1)
    return family, {"q": moved}, optima


def make_point(optima):
    return ls.Point(*(np.asarray(part).T for part in (optima.x, optima.y, optima.s)))


def test_no_row_is_on_a_wrong_side_at_the_optimum_and_each_that_is_counts():
    family, data, optima = make_data()
    point = make_point(optima)
    sides = find_sides(family, point, DEFAULT)
    instances = family.instances(data)
    at_optimum = np.exp(np.asarray(sides.measure(family, instances, point)))
    rows = np.array(sides.rows)
    active = np.abs(optima.y[:, rows]) > 1e-6
    assert active.any()
    assert not active.all()
    # All multipliers dropped: as many rows are wrong as were active, each by a part of what it varies by.
    dropped = ls.Point(point.x, np.zeros_like(point.y), point.s)
    wrong = np.exp(np.asarray(sides.measure(family, instances, dropped)))
    assert (wrong > at_optimum)[active.any(axis=1)].all()
    # A free row far beyond its upper bound is on a wrong side.
    k, row = np.argwhere(~active & (family.host.values["u"][rows] < np.inf))[0]
    beyond = point.s.copy()
    beyond[rows[row], k] += 1e3
    moved = np.exp(np.asarray(sides.measure(family, instances, ls.Point(point.x, point.y, beyond))))
    assert moved[k] > at_optimum[k] + 1
    np.testing.assert_allclose(np.delete(moved, k), np.delete(at_optimum, k))


@pytest.mark.parametrize("form", [Condensed(), OSQP()], ids=lambda form: type(form).__name__)
def test_training_leaves_fewer_rows_on_a_wrong_side_than_the_defaults(form):
    family, data, optima = make_data()
    split = ls.Dataset.from_parameters(family, {"train": data}, cache=False, jobs=1, progress=False)
    trained = ls.train(family, split, algorithm=form, loss="identification", start="zero", **OPTIONS, progress=False)
    sides = find_sides(family, make_point(optima), DEFAULT)
    solution = ls.Solver(family, trained, finish=False).solve_batch(data, steps=4)
    usual = ls.Solver(family, finish=False, algorithm=form).solve_batch(data, steps=4)

    def count(found):
        return float(np.mean(sides.measure(family, family.instances(data), make_point(found))))

    assert count(solution) < count(usual)


def test_its_gradient_is_finite_where_bounds_are_infinite():
    family, data, optima = make_data()
    point = make_point(optima)
    sides = find_sides(family, point, DEFAULT)
    instances = family.instances(data)

    def total(y, s):
        return sides.measure(family, instances, ls.Point(point.x, y, s)).sum()

    for slope in jax.grad(total, (0, 1))(0.5 * point.y, point.s + 0.1):
        assert np.isfinite(slope).all()
        assert np.any(slope != 0)


@pytest.mark.parametrize("kind", ["without optima", "without inequalities", "no QP"])
def test_what_it_is_not_for_is_refused(kind):
    family, data, _ = make_data()
    if kind == "without inequalities":
        family = ls.QP(np.eye(2), np.ones((1, 2)), q=np.ones(2), l=np.ones(1), u=np.ones(1))
        data = {"q": np.ones((3, 2))}
    if kind == "no QP":
        family = ls.Composite(ls.Quadratic(np.eye(2)), ls.L1(0.1))
        data = {"q": np.ones((3, 2))}
    if kind != "without optima":
        data = ls.Dataset.from_parameters(family, {"train": data}, cache=False, jobs=1, progress=False)
    with pytest.raises(ValueError, match='the loss "identification" is for QPs'):
        ls.train(family, data, loss="identification", **OPTIONS, progress=False)
