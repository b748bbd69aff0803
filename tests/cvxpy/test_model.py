"""Families from CVXPY problems, against CVXPY's own canonicalization and its solutions by Clarabel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.cvxpy import from_cvxpy
from longstep.families.names import Layout

from .problems import PROBLEMS, lasso, mpc, nnls, offsets, portfolio, random_problem, semidefinite, set_values

TIGHT = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000}
CLARABEL = {"solver": cp.CLARABEL, "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
OLD = tuple(map(int, cp.__version__.split(".")[:2])) < (1, 9)
everything = pytest.mark.parametrize("make", PROBLEMS.values(), ids=PROBLEMS)


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def assert_data_equal_cvxpy(problem, model, x):
    """CVXPY's data for its OSQP or SCS interface, in the current parameter values, against the family's at x."""
    family, data = model.family, model.family.data(x[None])
    if isinstance(family, ls.QP):
        own, _, _ = problem.get_problem_data(cp.OSQP)
        rows, right = np.vstack([dense(own["A"]), dense(own["F"])]), np.concatenate([own["b"], own["G"]])
        left = np.where(np.arange(len(right)) < own["n_eq"], right, -np.inf)
        # Each of CVXPY's rows is one side of one of ours.
        first, both = model.rows.own, model.rows.opposite >= 0
        other = model.rows.opposite[both]
        assert sorted([*first, *other]) == list(range(len(right)))
        np.testing.assert_array_equal(rows[other], -rows[first[both]])
        lower = left[first]
        lower[both] = -right[other]
        rows = rows[first]
        pairs = [(own["q"], data["q"][0]), (right[first], data["u"][0])]
        finite = np.isfinite(lower)
        assert (data["l"][0][~finite] == -np.inf).all()
        pairs.append((lower[finite], data["l"][0][finite]))
        assert (np.asarray(family.host.kinds.equality) == (first < own["n_eq"])).all()
    else:
        own, _, _ = problem.get_problem_data(cp.SCS)
        rows, dims = dense(own["A"]), own["dims"]
        pairs = [(own["c"], data["c"][0]), (own["b"], data["b"][0])]
        further = {"exponential": dims.exp, "power": dims.p3d}
        assert family.cones == ls.Cones(dims.zero, dims.nonneg, dims.soc, dims.psd, **further)
    P = np.zeros((family.n, family.n)) if own.get("P") is None else dense(own["P"])
    for ours, theirs in (*pairs, (P, family.P.toarray()), (rows, family.A.toarray())):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def solved(problem, model, values):
    """Clarabel's solution of the problem and ours, with the parameter."""
    set_values(problem, values)
    problem.solve(**CLARABEL)
    x = model.stack(values)
    solution = ls.Solver(model.family).solve(x, **TIGHT)
    assert solution.solved, solution.message
    return x, solution


def assert_solution_equals_cvxpy(problem, model, x, solution, atol=1e-5):
    for variable in problem.variables():
        np.testing.assert_allclose(model.unpack(solution)[variable.name()], dense(variable.value), atol=atol)
    np.testing.assert_allclose(solution.objective, problem.value, atol=atol)
    duals = model.duals(solution)
    assert list(duals) == [c.id for c in problem.constraints]
    for constraint in problem.constraints:
        expected, found = constraint.dual_value, duals[constraint.id]
        pairs = zip(expected, found, strict=True) if isinstance(expected, list) else [(expected, found)]
        for one, other in pairs:
            np.testing.assert_allclose(dense(other), dense(one), atol=atol)


@everything
def test_instance_data_are_those_of_cvxpy(make):
    problem, sample = make()
    model = from_cvxpy(problem)
    for seed in range(3):
        values = sample(np.random.default_rng(seed))
        set_values(problem, values)
        assert_data_equal_cvxpy(problem, model, model.stack(values))
        assert (model.parameters_now() == model.stack(values)).all()


@pytest.mark.parametrize("seed", range(20))
def test_instance_data_of_random_problems(seed):
    problem, sample = random_problem(seed)
    for form in (None, "conic"):
        model = from_cvxpy(problem, form=form)
        assert isinstance(model.family, ls.Conic) == (form == "conic" or seed % 4 in (1, 2))
        values = sample(np.random.default_rng(seed))
        set_values(problem, values)
        assert_data_equal_cvxpy(problem, model, model.stack(values))


@everything
def test_solutions_objectives_and_duals_are_those_of_clarabel(make):
    problem, sample = make()
    model = from_cvxpy(problem)
    x, solution = solved(problem, model, sample(np.random.default_rng(0)))
    assert_solution_equals_cvxpy(problem, model, x, solution)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_solutions_of_random_problems(seed):
    problem, sample = random_problem(seed)
    model = from_cvxpy(problem)
    x, solution = solved(problem, model, sample(np.random.default_rng(seed)))
    assert_solution_equals_cvxpy(problem, model, x, solution)


def test_a_quadratic_program_as_a_cone_program():
    problem, sample = portfolio()
    model = from_cvxpy(problem, form="conic")
    assert isinstance(model.family, ls.Conic)
    x, solution = solved(problem, model, sample(np.random.default_rng(1)))
    assert_solution_equals_cvxpy(problem, model, x, solution)


def test_forms_are_chosen():
    forms = {name: type(from_cvxpy(make()[0]).family) for name, make in PROBLEMS.items()}
    conic = {"ball", "semidefinite", "kinds", "entropy", "utility", "powers"}
    assert forms == {name: ls.Conic if name in conic else ls.QP for name in PROBLEMS}


@pytest.mark.parametrize("make", [mpc, semidefinite], ids=["mpc", "semidefinite"])
def test_a_batch_has_a_leading_axis_everywhere(make):
    problem, sample = make()
    model, N = from_cvxpy(problem, dtype="float64", equilibrate=True), 3
    each = [sample(np.random.default_rng(k)) for k in range(N)]
    x = model.stack({name: np.stack([values[name] for values in each]) for name in each[0]})
    assert x.shape == (N, model.layout.size)
    assert (x == np.stack([model.stack(values) for values in each])).all()
    for name, value in model.layout.split(x).items():
        np.testing.assert_array_equal(value, np.stack([values[name] for values in each]))
    solution = ls.Solver(model.family).solve_batch(x, **TIGHT)
    named, duals = model.unpack(solution), model.duals(solution)
    for k in range(N):
        one = solution[k]
        for variable in problem.variables():
            assert named[variable.name()].shape == (N, *variable.shape)
            np.testing.assert_array_equal(named[variable.name()][k], model.unpack(solution, k)[variable.name()])
            np.testing.assert_array_equal(named[variable.name()][k], model.unpack(one)[variable.name()])
        for key, value in model.duals(one).items():
            np.testing.assert_array_equal(duals[key][k], value)
            np.testing.assert_array_equal(model.duals(solution, k)[key], value)
        assert solution.objective[k] == one.objective


def test_columns_name_the_entries_of_x():
    model = from_cvxpy(semidefinite()[0])
    assert model.columns == ["C[0,0]", "C[0,1]", "C[0,2]", "C[1,1]", "C[1,2]", "C[2,2]", "level"]
    C = np.array([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    assert model.stack({"C": C, "level": 7.0}).tolist() == [1, 2, 3, 4, 5, 6, 7]
    model = from_cvxpy(mpc()[0])
    values = mpc()[1](np.random.default_rng(0))
    x = model.stack(values)
    assert dict(zip(model.columns, x, strict=True))["target[1,3]"] == values["target"][1, 3]
    shared = model.stack({**values, "start": np.stack([values["start"], -values["start"]])})
    assert shared.shape == (2, x.size)
    start = [k for k, name in enumerate(model.columns) if name.startswith("start")]
    np.testing.assert_array_equal(np.delete(shared, start, axis=1), np.tile(np.delete(x, start), (2, 1)))
    np.testing.assert_array_equal(shared[1, start], -x[start])


def test_parameters_may_be_keys_themselves():
    problem, sample = nnls()
    model, values = from_cvxpy(problem), sample(np.random.default_rng(0))
    assert (model.stack({problem.parameters()[0]: values["b"]}) == model.stack(values)).all()


@pytest.mark.skipif(OLD, reason="sparse parameters and parameters in bounds came with CVXPY 1.9")
@pytest.mark.filterwarnings("ignore:.*sparse CVXPY expression")
def test_sparse_parameters_and_parameters_in_bounds():
    pattern = ([0, 1, 2, 2], [1, 1, 0, 2])
    p = cp.Parameter((3, 3), name="p", sparsity=pattern)
    q = cp.Variable((3, 3), name="q", sparsity=pattern)
    high = cp.Parameter(3, name="high")
    z = cp.Variable(3, name="z", bounds=[-1, high])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(q - p) + cp.sum_squares(z - 1)), [cp.sum(q) == 1])
    model = from_cvxpy(problem)
    value = np.zeros((3, 3))
    value[pattern] = [1.0, -2.0, 0.5, 3.0]
    x, solution = solved(problem, model, {"p": value, "high": np.array([0.2, 0.5, 4.0])})
    assert x.size == 7
    assert_data_equal_cvxpy(problem, model, x)
    np.testing.assert_allclose(model.unpack(solution)["q"], q.value_sparse.toarray(), atol=1e-6)
    np.testing.assert_allclose(model.unpack(solution)["z"], z.value, atol=1e-6)
    with pytest.raises(ValueError, match=r"p\[0, 0\] of instance 0 does not fit: 'p' must be zero outside"):
        model.stack({"p": value + 1, "high": np.ones(3)})


def test_the_problem_is_left_as_it_was():
    problem, sample = mpc()
    set_values(problem, sample(np.random.default_rng(0)))
    problem.solve(**CLARABEL)
    before = {c.id: np.copy(c.dual_value) for c in problem.constraints}
    model = from_cvxpy(problem)
    x = model.stack(sample(np.random.default_rng(1)))
    model.duals(ls.Solver(model.family).solve(x))
    for constraint in problem.constraints:
        np.testing.assert_array_equal(constraint.dual_value, before[constraint.id])
    fresh, _ = mpc()
    from_cvxpy(fresh)
    assert all(p.value is None for p in fresh.parameters())


def test_single_precision_and_no_equilibration():
    problem, _ = nnls()
    model = from_cvxpy(problem, dtype="float32", equilibrate=False)
    assert model.family.dtype == np.float32
    assert not model.family.equilibrated


@everything
def test_layout_survives_json(make):
    problem, sample = make()
    model, values = from_cvxpy(problem), sample(np.random.default_rng(0))
    layout = Layout.from_json(json.loads(json.dumps(model.layout.to_json())))
    x = layout.stack(values)
    np.testing.assert_array_equal(x, model.stack(values))
    point = ls.Point(np.random.default_rng(1).normal(size=model.family.n))
    for name, value in model.unpack(point).items():
        np.testing.assert_array_equal(layout.unpack(point)[name], value)
    assert (layout.sign, layout.constant, layout.columns) == (model.layout.sign, model.layout.constant, model.columns)
    np.testing.assert_array_equal(layout.offset, model.layout.offset)


def test_families_from_cvxpy_are_learned_like_any_other():
    problem, sample = lasso()
    model = from_cvxpy(problem)
    data = ls.Dataset.sample(model.family, lambda r: model.stack(sample(r)), {"train": 4}, cache=False, progress=False)
    set_values(problem, model.layout.split(data.train.parameters[1]))
    problem.solve(**CLARABEL)
    np.testing.assert_allclose(model.unpack(data.train.optima, 1)["z"], problem.var_dict["z"].value, atol=1e-5)


# The counters in CVXPY's default names depend on what was made before, and sets on the hash seed.
_HASHES = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import cvxpy as cp
others = [cp.Variable() + cp.Parameter() for _ in range(int(sys.argv[1]))]
from longstep.cvxpy import from_cvxpy
from tests.cvxpy.problems import PROBLEMS
x, p = cp.Variable(2), cp.Parameter(2)
for problem in (PROBLEMS["portfolio"]()[0], PROBLEMS["kinds"]()[0], cp.Problem(cp.Minimize(cp.norm(x - p)))):
    print(from_cvxpy(problem).structure_hash())
"""


def test_structure_hash_is_the_same_in_every_process():
    root = Path(__file__).parents[2]
    lines = [
        subprocess.run(
            [sys.executable, "-c", _HASHES, str(k)],
            check=True, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONHASHSEED": str(k)},
        ).stdout.split()
        for k in (1, 7)
    ]  # fmt: skip
    assert lines[0] == lines[1]
    assert len(set(lines[0])) == 3
    assert lines[0][0] == from_cvxpy(portfolio()[0]).structure_hash()


def test_structure_hash_tells_problems_apart():
    hashes = [from_cvxpy(make(seed)[0]).structure_hash() for make in (portfolio, mpc) for seed in (0, 1)]
    hashes.append(from_cvxpy(portfolio(0)[0], form="conic").structure_hash())
    assert len(set(hashes)) == 5


x, u = cp.Variable(3, name="x"), cp.Variable(2, name="u")
p, lam = cp.Parameter(3, name="p"), cp.Parameter(nonneg=True, name="lam")
R, S = cp.Parameter((3, 3), name="R"), cp.Parameter((3, 3), name="S", PSD=True)
REFUSED = {
    "no parameter": (cp.sum_squares(x), [], r"no cvxpy.Parameter.*Make what changes"),
    "no variable": (lam + 1, [lam >= 0], r"no variables"),
    "integer": (p[:2] @ cp.Variable(2, name="k", integer=True), [], r"variable 'k' is integer.*Relax it"),
    "boolean": (p[:2] @ cp.Variable(2, name="k", boolean=True), [], r"variable 'k' is boolean"),
    "complex": (p[0] * cp.real(cp.Variable(name="k", complex=True)), [], r"variable 'k' is complex"),
    "non-convex": (p @ x, [cp.norm(x) >= 1], r"not convex.*constraint `1.0 <= Pnorm"),
    "geometric": (lam * cp.inv_prod(cp.Variable(2, pos=True, name="g")) ** -1, [], r"not convex"),
    "product of parameters": (
        lam * (p @ x) + cp.sum_squares(x),
        [],
        r"\(DPP\).*`lam . p @ x` with 'lam', 'p'.*new par",
    ),
    "function of a parameter": (cp.sum_squares(x), [cp.sum(x) <= cp.exp(lam)], r"\(DPP\).*exp\(lam\)"),
    "quadratic form": (cp.quad_form(x, S) + p @ x, [], r"parameter 'S' is the matrix of `QuadForm\(x, S\)`.*constant"),
    "quadratic cost": (lam * cp.sum_squares(x) + p @ x, [], r"parameter 'lam' would change the matrix P.*`term <= t`"),
    "constraint matrix": (
        cp.sum_squares(x),
        [R @ x <= p],
        r"parameter 'R' would change the matrix A.*`R @ x`.*constant",
    ),
    "matrix in a norm": (cp.norm1(R @ x - p), [], r"parameter 'R' would change the matrix A.*`R @ x`"),
    "equal names": (p @ x, [x >= cp.Parameter(3, name="p")], r"two parameters are called 'p'"),
    "no effect": (cp.sum_squares(x) + cp.sum(p), [x >= 1], r"no parameter changes"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refusals_say_what_and_what_to_do(case):
    cost, rows, message = case
    with pytest.raises(ValueError, match=message):
        from_cvxpy(cp.Problem(cp.Minimize(cost), rows))


def test_the_advice_for_a_weight_on_a_quadratic_works():
    t = cp.Variable(name="t")
    problem = cp.Problem(cp.Minimize(lam * t + p @ x), [cp.sum_squares(x) <= t])
    model, values = from_cvxpy(problem), {"lam": 0.7, "p": np.array([1.0, -1.0, 0.5])}
    x_, solution = solved(problem, model, values)
    assert isinstance(model.family, ls.Conic)
    assert_solution_equals_cvxpy(problem, model, x_, solution)


def test_quadratic_costs_that_some_versions_of_cvxpy_lose():
    X, C = cp.Variable((2, 2), name="X", symmetric=True), cp.Parameter((2, 2), name="C")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X) + cp.sum(cp.multiply(C, X))), [X >= -1])
    probe = cp.Problem(cp.Minimize(cp.sum_squares(X)), [X >= 1])
    if probe.get_problem_data(cp.CLARABEL)[0]["P"].nnz:
        x_, solution = solved(problem, from_cvxpy(problem), {"C": np.array([[1.0, 2.0], [0.0, 4.0]])})
        assert_solution_equals_cvxpy(problem, from_cvxpy(problem), x_, solution)
    else:
        with pytest.raises(ValueError, match=r"loses the quadratic cost .* because 'X' is symmetric"):
            from_cvxpy(problem)


def test_wrong_arguments():
    problem, _ = nnls()
    with pytest.raises(TypeError, match=r"takes a cvxpy\.Problem, got str"):
        from_cvxpy("problem")
    with pytest.raises(ValueError, match="form must be"):
        from_cvxpy(problem, form="lp")
    soc = cp.Problem(cp.Minimize(p @ x), [cp.norm(x) <= 1])
    with pytest.raises(ValueError, match=r'not a quadratic program: use form="conic"'):
        from_cvxpy(soc, form="qp")
    reader = cp.Parameter(3, name="reader")
    derived = cp.CallbackParam(lambda: 2 * reader.value, (3,), name="derived")
    with pytest.raises(ValueError, match=r"'derived' has no value, because its callback fails"):
        from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + derived @ x)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"'up', 'small' has no value"),
        (
            {"up": np.eye(3), "small": 0.0, "other": 1.0},
            r"'other' is no parameter of this problem; the problem's parameters are up, small",
        ),
        (
            {"up": np.eye(2), "small": 0.0},
            r"'up' must have shape \(3, 3\), or \(N, 3, 3\) for N instances; got \(2, 2\)",
        ),
        ({"up": np.ones((4, 3, 3)), "small": np.zeros(3)}, r"one common number of instances, got up: 4, small: 3"),
        ({"up": np.eye(3), "small": [0.0, np.nan]}, r"small of instance 1 is nan; it must be finite"),
        ({"up": np.tri(3), "small": 0.0}, r"up\[1, 0\] of instance 0 does not fit: 'up' must be symmetric"),
        ({"up": -np.eye(3), "small": 0.0}, r"'up' of instance 0 must be positive semidefinite; an eigenvalue is -1"),
        ({"up": np.eye(3), "small": [0.0, 2.0]}, r"small of instance 1 is 2, more than its bound 0"),
        ({"up": np.eye(3), "small": "a"}, r"'small' must be real numbers, got text"),
    ],
)
def test_values_that_do_not_fit(values, message):
    up, small = cp.Parameter((3, 3), name="up", PSD=True), cp.Parameter(name="small", nonpos=True)
    X = cp.Variable((3, 3), name="X", symmetric=True)
    model = from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(X - up)), [cp.trace(X) == small]))
    with pytest.raises(ValueError, match=message):
        model.stack(values)


def test_what_cannot_be_known_is_asked_for():
    problem, sample = offsets()
    model = from_cvxpy(problem)
    solved(problem, model, sample(np.random.default_rng(0)))
    fresh = from_cvxpy(offsets()[0])
    with pytest.raises(ValueError, match=r"the parameter 'p', 'shift' has no value yet"):
        fresh.parameters_now()
    unshifted = from_cvxpy(portfolio()[0])
    assert not unshifted.layout.offset.any()


@pytest.mark.filterwarnings("ignore:You are solving a parameterized problem that is not DPP:UserWarning")
def test_quadratic_forms_of_parameters_are_squares():
    # CVXPY itself compiles this anew for every value: quad_form(x − r, Q) counts as breaking its rules for parameters.
    rng = np.random.default_rng(3)
    root = rng.normal(size=(2, 3))
    x, r = cp.Variable(3, name="x"), cp.Parameter(3, name="r")
    cost = cp.quad_form(x - r, cp.psd_wrap(root.T @ root)) + 0.1 * cp.sum_squares(x) + cp.sum(x)
    problem = cp.Problem(cp.Minimize(cost), [x >= -0.5])
    model = from_cvxpy(problem)
    solver = ls.Solver(model.family)
    for _ in range(3):
        value = rng.normal(size=3)
        solution = solver.solve({"r": value}, eps_abs=1e-9, eps_rel=1e-9, max_iter=50_000)
        r.value = value
        problem.solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(solution.variables["x"], x.value, atol=1e-6)
        assert abs(solution.objective - problem.value) < 1e-6
