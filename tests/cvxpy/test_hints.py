"""What is said of CVXPY problems that work but could be written better; the rewriting is tried."""

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.cvxpy import from_cvxpy

A = np.random.default_rng(0).normal(size=(60, 4))


@pytest.mark.parametrize(
    ("shape", "line"),
    [((3,), 'cp.Parameter(3, name="…")'), ((1, 3), 'cp.Parameter((1, 3), name="…")'), ((), 'cp.Parameter(name="…")')],
)
def test_a_parameter_without_a_name_is_told_the_line_to_write(shape, line):
    x, p = cp.Variable(3, name="x"), cp.Parameter(shape)
    with pytest.warns(UserWarning, match="has no name") as caught:
        from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + cp.sum(cp.multiply(cp.vec(p, order="F"), x)))))
    assert len(caught) == 1
    assert line in str(caught[0].message)


def test_least_squares_are_multiplied_out():
    x, b = cp.Variable(4, name="x"), cp.Parameter(60, name="b")
    bounds = [x >= 0, x <= 1]
    wide = from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)), bounds))
    assert wide.family.n == 64
    (note,) = wide.notes
    assert "made 64 unknowns of 4" in note
    assert "sum_squares of an expression of x with 60 entries" in note
    # What it advises, as it stands there.
    advice = "cp.quad_form(x, A.T @ A) - 2 * (A.T @ b) @ x"
    assert advice in note
    small = from_cvxpy(cp.Problem(cp.Minimize(eval(advice)), bounds))
    assert small.family.n == 4
    assert small.notes == []
    value = {"b": A @ [0.3, 1.5, 0.0, 0.7] + 0.1}
    found = [ls.Solver(m.family).solve(m.stack(value), eps_abs=1e-8, eps_rel=1e-8) for m in (wide, small)]
    np.testing.assert_allclose(found[0].variables["x"], found[1].variables["x"], atol=1e-5)


def test_what_needs_its_unknowns_is_said_to():
    x, b = cp.Variable(4, name="x"), cp.Parameter(60, name="b")
    (note,) = from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(A @ x - b)))).notes
    assert "made 64 unknowns of 4" in note
    assert "cp.norm1" in note
    assert "quad_form" not in note


def test_a_cone_of_many_rows_has_no_hint():
    x, b = cp.Variable(4, name="x"), cp.Parameter(60, name="b")
    model = from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum_squares(A @ x - b) <= 1]))
    assert model.family.n < 10
    assert model.notes == []
