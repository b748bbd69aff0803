"""Rows of a family by the names of the constraints that they come from."""

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.cvxpy.labels import RowName, make_distinct


def test_rows_of_a_qp_are_those_of_their_constraints():
    x, c = cp.Variable((2, 3), name="x"), cp.Parameter((2, 3), name="c")
    M = np.arange(2.0, 8.0).reshape(2, 3)
    constraints = [cp.multiply(M, x) <= 9, cp.sum(x) == 1, x >= -2, x <= 3, x[0, 1] <= 5]
    model = ls.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + cp.sum(cp.multiply(c, x))), constraints))
    texts = [" ".join(str(c).split()) for c in constraints]
    names = model.name_rows()
    A = model.family.A.toarray()
    assert len(names) == model.family.m
    place = model.layout.variables["x"].place
    for name, row in zip(names, A, strict=True):
        if name.constraint == texts[1]:
            np.testing.assert_array_equal(row, np.ones(6))
        elif name.constraint == texts[4]:
            assert row[place[0, 1]] == 1
            assert name.entry == ""
        else:
            i, j = (int(k) for k in name.entry.strip("[]").split(","))
            entry = np.zeros(6)
            entry[place[i, j]] = M[i, j] if name.constraint == texts[0] else 1
            np.testing.assert_array_equal(np.abs(row), entry)
    # The two sides of a bound are one row, and x[0,1] ≤ 5 another.
    assert {n.constraint for n in names} == {texts[0], texts[1], texts[4], f"{texts[2]} and {texts[3]}"}


def test_rows_of_cones_and_rows_that_cvxpy_added():
    x, c = cp.Variable(3, name="x"), cp.Parameter(3, name="c")
    Y = cp.Variable((2, 2), symmetric=True, name="Y")
    constraints = [cp.norm(x) <= 2, Y >> 0, cp.trace(Y) + x[0] == 1, x >= c]
    model = ls.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + Y[0, 1]), constraints))
    names = [name.constraint for name in model.name_rows()]
    assert names.count(str(constraints[0])) == 1
    assert names.count(str(constraints[1])) == 3
    assert names.count(str(constraints[2])) == 1
    assert [n.entry for n in model.name_rows() if n.constraint == str(constraints[3])] == ["[0]", "[1]", "[2]"]
    # The second-order cone of the norm.
    assert names.count("") == 4


def test_labels_are_taken_and_long_texts_cut():
    x, c = cp.Variable(2, name="x"), cp.Parameter(2, name="c")
    bound = x >= -1
    if not hasattr(bound, "set_label"):
        pytest.skip("constraints have labels since CVXPY 1.7")
    bound.set_label("floor")
    model = ls.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x), [bound]))
    assert model.name_rows() == [RowName("floor", "[0]"), RowName("floor", "[1]")]
    assert make_distinct(["a  b\nc", "a b c", "d" * 100]) == ["a b c", "a b c (2)", "d" * 59 + "…"]
