"""A longstep solver behind CVXPYlayers: solutions, multipliers and gradients are those that diffcp finds."""

import re
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'longstep[torch]'")
layers = pytest.importorskip(
    "cvxpylayers.torch", reason="CVXPYlayers is not installed: pip install 'longstep[cvxpylayers]'"
)
pytest.importorskip("cvxpylayers.interfaces.base", reason="CVXPYlayers is older than 1.2")

# CVXPYlayers hands NumPy 2 a tensor of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# diffcp has no quadratic costs, and interior points lose half of their digits on the cones that stand for them.
DIFFCP = {"solve_method": "SCS", "mode": "dense", "eps": 1e-13, "max_iters": 200_000}
TIGHT = {"eps_abs": 1e-11, "eps_rel": 1e-11, "max_iter": 50_000}


def portfolio():
    """A QP with an equality, two-sided rows and bounds, some of which hold; P and A are fixed."""
    rng = np.random.default_rng(0)
    F = rng.normal(size=(8, 3))
    w = cp.Variable(8, name="w")
    returns = cp.Parameter(8, name="returns")
    total = cp.Parameter(name="total", nonneg=True)
    risk = cp.quad_form(w, F @ F.T + 0.1 * np.eye(8)) / 2
    rows = [cp.sum(w) == total, w >= 0, w <= 0.4]
    values = [rng.normal(size=(3, 8)), np.array([0.9, 1.0, 1.1])]
    return cp.Problem(cp.Maximize(returns @ w - risk), rows), [returns, total], [w], values


def tracking():
    """An SOCP: a norm in the cost and another one in a constraint, both with active and inactive cones."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(6, 4))
    x = cp.Variable(4, name="x")
    b = cp.Parameter(6, name="b")
    radius = cp.Parameter(name="radius", nonneg=True)
    objective = cp.Minimize(cp.norm(A @ x - b) + cp.sum_squares(x) / 2)
    values = [rng.normal(size=(3, 6)), np.array([0.3, 0.5, 5.0])]
    return cp.Problem(objective, [cp.norm(x[:3]) <= radius, x >= -1]), [b, radius], [x], values


def lasso():
    """The lasso, with residuals and absolute values as CVXPY writes them."""
    rng = np.random.default_rng(2)
    A = rng.normal(size=(12, 6))
    x = cp.Variable(6, name="x")
    b = cp.Parameter(12, name="b")
    return (
        cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) / 2 + 2 * cp.norm1(x))),
        [b],
        [x],
        [rng.normal(size=(3, 12))],
    )


PROBLEMS = {"qp": portfolio, "socp": tracking, "lasso": lasso}


def make_layer(problem, parameters, variables, form=None, **options):
    model = ls.from_cvxpy(problem, form=form)
    solver = model.cvxpylayers_solver(ls.Solver(model.family, ladder=False), **{**TIGHT, **options})
    return layers.CvxpyLayer(problem, parameters=parameters, variables=variables, solver=solver)


def to_tensors(values):
    return [torch.tensor(value, requires_grad=True) for value in values]


def differentiate(layer, values, **options):
    """Return what a layer gives, and the gradients of a weighted sum of it."""
    tensors = to_tensors(values)
    found = layer(*tensors, **options)
    rng = np.random.default_rng(5)
    total = sum((torch.tensor(rng.normal(size=part.shape)) * part).sum() for part in found)
    total.backward()
    return [part.detach().numpy() for part in found], [tensor.grad.numpy() for tensor in tensors]


def assert_agree(found, expected):
    """Within 1e-6 of the largest entry."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("name", PROBLEMS)
def test_solutions_and_gradients_are_those_of_diffcp(name):
    problem, parameters, variables, values = PROBLEMS[name]()
    ours = differentiate(make_layer(problem, parameters, variables), values)
    layer = layers.CvxpyLayer(problem, parameters=parameters, variables=variables)
    theirs = differentiate(layer, values, solver_args=DIFFCP)
    assert all(np.abs(slope).max() > 1e-3 for slope in theirs[1])
    assert_agree(ours[0], theirs[0])
    assert_agree(ours[1], theirs[1])


@pytest.mark.parametrize("form", ["qp", "conic"])
def test_multipliers_have_the_gradients_of_diffcp_too(form):
    problem, parameters, variables, values = portfolio()
    equality, positive, most = problem.constraints
    wanted = [*variables, equality.dual_variables[0], positive.dual_variables[0], most.dual_variables[0]]
    ours = differentiate(make_layer(problem, parameters, wanted, form=form), values)
    theirs = differentiate(
        layers.CvxpyLayer(problem, parameters=parameters, variables=wanted), values, solver_args=DIFFCP
    )
    # Both sides of w hold somewhere: the family has them in one row, CVXPYlayers in two.
    assert (ours[0][2] > 1e-3).any()
    assert (ours[0][3] > 1e-3).any()
    assert_agree(ours[0], theirs[0])
    assert_agree(ours[1], theirs[1])


def test_a_layer_of_one_instance_and_one_with_shared_values_are_rows_of_a_batch():
    problem, parameters, variables, (returns, total) = portfolio()
    layer = make_layer(problem, parameters, variables)
    (every,), (slopes, _) = differentiate(layer, [returns, np.full(3, total[1])])
    (shared,), (again, _) = differentiate(layer, [returns, total[1]])
    assert shared.shape == (3, 8)
    np.testing.assert_allclose(shared, every, atol=1e-9)
    np.testing.assert_allclose(again, slopes, atol=1e-7)
    (one,) = layer(*to_tensors([returns[1], total[1]]))
    assert one.shape == (8,)
    np.testing.assert_allclose(one.detach(), every[1], atol=1e-9)
    with torch.no_grad():
        (bare,) = layer(*to_tensors([returns[1], total[1]]))
    assert not bare.requires_grad
    np.testing.assert_allclose(bare, every[1], atol=1e-9)


def test_symmetric_parameters_of_a_semidefinite_program():
    C = cp.Parameter((3, 3), symmetric=True, name="C")
    X = cp.Variable((3, 3), symmetric=True, name="X")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X - C)), [X >> 0, cp.trace(X) == 1])
    rng = np.random.default_rng(4)
    half = rng.normal(size=(2, 3, 3))
    values = [half + np.swapaxes(half, 1, 2)]
    ours = differentiate(make_layer(problem, [C], [X]), values)
    theirs = differentiate(layers.CvxpyLayer(problem, parameters=[C], variables=[X]), values, solver_args=DIFFCP)
    assert_agree(ours[0], theirs[0])
    assert_agree(ours[1], theirs[1])


def test_tensors_in_single_precision_have_gradients_in_it():
    problem, parameters, variables, values = lasso()
    layer = make_layer(problem, parameters, variables)
    expected = differentiate(layer, values)
    b = torch.tensor(values[0], dtype=torch.float32, requires_grad=True)
    (x,) = layer(b)
    np.testing.assert_allclose(x.detach(), expected[0][0], atol=1e-5)
    (torch.tensor(np.random.default_rng(5).normal(size=x.shape)) * x).sum().backward()
    assert b.grad.dtype == torch.float32
    np.testing.assert_allclose(b.grad, expected[1][0], atol=1e-5)


def test_matrices_that_change_are_refused_by_the_name_of_the_parameter():
    problem, parameters, variables, _ = lasso()
    model = ls.from_cvxpy(problem)
    solver = model.cvxpylayers_solver(ls.Solver(model.family))
    x = variables[0]
    b = parameters[0]
    A = np.random.default_rng(2).normal(size=(12, 6))
    weight = cp.Parameter(name="b", nonneg=True)
    moving = cp.Problem(cp.Minimize(cp.sum_squares(A @ x) + x[0]), [weight * x[1] <= 1])
    with pytest.raises(ValueError, match=r"'b' would change the matrix A .* share P and A"):
        layers.CvxpyLayer(moving, parameters=[weight], variables=[x], solver=solver)
    P = cp.Parameter((6, 6), PSD=True, name="b")
    quadratic = cp.Problem(cp.Minimize(cp.quad_form(x, P) + cp.sum(x)), [x >= 0])
    with pytest.raises(ValueError, match=r"'b' would change the matrix P .* share P and A"):
        layers.CvxpyLayer(quadratic, parameters=[P], variables=[x], solver=solver)
    other = cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) / 2 + 3 * cp.norm1(x)))
    with pytest.raises(ValueError, match="another one than this solver's"):
        layers.CvxpyLayer(other, parameters=[b], variables=[x], solver=solver)
    c = cp.Parameter(12, name="c")
    renamed = cp.Problem(cp.Minimize(cp.sum_squares(A @ x - c) / 2 + 2 * cp.norm1(x)))
    with pytest.raises(ValueError, match="another problem, with b"):
        layers.CvxpyLayer(renamed, parameters=[c], variables=[x], solver=solver)
    with pytest.raises(ValueError, match="no option eps; it has eps_abs"):
        model.cvxpylayers_solver(ls.Solver(model.family), eps=1e-3)
    with pytest.raises(ValueError, match="another family than this model's"):
        model.cvxpylayers_solver(ls.Solver(ls.from_cvxpy(other).family))


def test_a_problem_without_constraints_is_refused():
    x = cp.Variable(3, name="x")
    c = cp.Parameter(3, name="c")
    with pytest.raises(ValueError, match=r"no constraints.*longstep\.torch\.Layer"):
        make_layer(cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x)), [c], [x])


def test_a_geometric_program_is_refused():
    model = ls.from_cvxpy(lasso()[0])
    solver = model.cvxpylayers_solver(ls.Solver(model.family))
    size = cp.Variable(pos=True)
    limit = cp.Parameter(pos=True, name="b", value=1.0)
    problem = cp.Problem(cp.Minimize(1 / size), [size <= limit])
    with pytest.raises(ValueError, match="gp=True"):
        layers.CvxpyLayer(problem, parameters=[limit], variables=[size], solver=solver, gp=True)


def test_instances_without_a_solution_are_told():
    problem, parameters, variables, (returns, _) = portfolio()
    layer = make_layer(problem, parameters, variables)
    # Eight weights of at most 0.4 have no sum of 5.
    with pytest.raises(
        cp.SolverError, match="1 of 3 instances were not solved; the first is instance 1: primal infeas"
    ):
        layer(*to_tensors([returns, np.array([1.0, 5.0, 1.0])]))
    with pytest.raises(cp.SolverError, match=r"3 of 3 .* iteration limit after 10 steps"):
        layer(*to_tensors([returns, np.ones(3)]), solver_args={"max_iter": 10})
    with pytest.raises(ValueError, match=r"returns\[0\] of instance 0 is nan"):
        layer(*to_tensors([np.full((3, 8), np.nan), np.ones(3)]))
    with pytest.raises(ValueError, match="no option tol"):
        layer(*to_tensors([returns, np.ones(3)]), solver_args={"tol": 1e-3})


def test_the_example_of_the_documentation_runs():
    page = (Path(__file__).parents[2] / "docs" / "functions.md").read_text()
    blocks = re.findall(r"``` \{ \.python \.cvxpylayers \}\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "functions.md", "exec"), {})
