"""The C packages as methods, against the packages called directly and against our own iterates."""

import re
import sys
import time
from pathlib import Path

import numpy as np
import osqp
import pytest
import scipy.sparse as sp
import scs

import longstep as ls
from longstep.data.dataset import Split
from longstep.research.baselines import packages
from longstep.research.baselines.packages import osqp_package, scs_package

from ...helpers import CONES, random_conic, random_qp

ROOT = Path(__file__).parents[3]
N, TRAIN = 3, 4
FIELDS = ("primal", "dual", "primal_max", "dual_max", "objective", "gap")
# What only iterations that never end need.
NEVER_OSQP = {"eps_abs": 1e-300, "eps_rel": 0.0, "eps_prim_inf": 1e-300, "eps_dual_inf": 1e-300, "check_termination": 0}
NEVER_SCS = {"eps_abs": 0.0, "eps_rel": 0.0, "eps_infeas": 0.0}


def test_experiments_and_benchmarks_count_exactly():
    """Counts on a grid are rounded up, which a fast machine has no need of."""
    folders = Path(packages.__file__).parents[1] / "experiments", ROOT / "benchmarks"
    files = [path for folder in folders for path in folder.glob("*.py")]
    assert len(files) > 20
    assert [path.name for path in files if re.search(r"\bdense=\d", path.read_text())] == []


def test_what_is_timed_as_the_package_is_without_our_map(monkeypatch):
    """benchmarks/parameters.py: the caller's own product takes a state to the bounds, and nothing of ours."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import parameters

    move = np.zeros((4, 12))
    move[0, :2] = 1.0, 0.5
    A = np.vstack([np.ones(3), np.eye(3)])
    l, u = np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 2.0, 2.0, 2.0])
    family = ls.QP(np.eye(3), A, q=np.arange(3.0), l=l, u=u, parameter=ls.Affine(l=move, u=move))
    expected = ls.Solver(family).solve(np.full(12, 0.1), eps_abs=1e-9, eps_rel=1e-9).x
    solve = parameters.package(family)

    def ours(*arguments, **options):
        raise AssertionError("the package's time would have ours in it")

    for owner in (ls.QP, type(family).__mro__[1], ls.Affine):
        for name in ("data", "encode", "decode", "merge_data", "vectors", "batch_one", "check_parameters", "__call__"):
            if hasattr(owner, name):
                monkeypatch.setattr(owner, name, ours)
    np.testing.assert_allclose(solve(np.full(12, 0.1)).x, expected, atol=1e-2)


def qp(**options):
    P, q, A, l, u = random_qp(0, n=20, equalities=4, inequalities=25, free=2)
    return ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(20)), **options)


def conic(kind="mixed", **options):
    P, A, b, c = random_conic(7, CONES[kind])
    return ls.Conic(P, A, CONES[kind], b=b, c=c, parameter=ls.Affine(c=P), **options)


def drawn(family, count, seed):
    return 0.3 * np.random.default_rng(seed).normal(size=(count, family.parameter.size))


def qp_errors(family, data, x, y):
    """Residuals of a point in NumPy, with z = clip(Ax, l, u)."""
    q, l, u = data
    primal, dual = family.A @ x - np.clip(family.A @ x, l, u), family.P @ x + q + family.A.T @ y
    support = np.sum(np.where(y > 0, np.where(np.isinf(u), 0, u) * y, np.where(np.isinf(l), 0, l) * y))
    quadratic = x @ (family.P @ x)
    return norms(primal, dual) | {"objective": 0.5 * quadratic + q @ x, "gap": abs(quadratic + q @ x + support)}


def norms(primal, dual):
    errors = {"primal": primal, "dual": dual}
    two = {name: np.linalg.norm(v) for name, v in errors.items()}
    return two | {f"{name}_max": np.max(np.abs(v)) for name, v in errors.items()}


def conic_errors(family, data, x, y, s):
    b, c = data
    primal, dual, quadratic = family.A @ x + s - b, family.P @ x + c + family.A.T @ y, x @ (family.P @ x)
    return norms(primal, dual) | {"objective": 0.5 * quadratic + c @ x, "gap": abs(quadratic + c @ x + b @ y)}


def check_column(history, i, k, errors, rtol=1e-9):
    for name, value in errors.items():
        np.testing.assert_allclose(getattr(history, name)[i, k], value, rtol=rtol, atol=1e-10, err_msg=f"{name} at {k}")


def osqp_directly(family, set_up_on, row, k, **settings):
    solver = osqp.OSQP()
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    solver.setup(
        P, set_up_on[0], A, set_up_on[1], set_up_on[2], verbose=False, warm_starting=False, max_iter=k,
        **NEVER_OSQP, **settings,
    )  # fmt: skip
    solver.update(q=row[0], l=row[1], u=row[2])
    result = solver.solve(raise_error=False)
    assert result.info.iter == k
    return result.x.copy(), result.y.copy()


def scs_directly(family, set_up_on, row, k, **settings):
    k_ = family.cones
    data = {"P": sp.csc_matrix(sp.triu(family.P)), "A": sp.csc_matrix(family.A), "b": set_up_on[0], "c": set_up_on[1]}
    cone = {"z": k_.zero, "l": k_.nonnegative, "q": list(k_.second_order), "s": list(k_.semidefinite)}
    cone |= {"ep": k_.exponential, "p": list(k_.power)}
    options = {"linear_solver": "qdldl", **NEVER_SCS, **settings}
    solver = scs.SCS(data, cone, verbose=False, max_iters=k, **options)
    solver.update(b=row[0], c=row[1])
    result = solver.solve(warm_start=False)
    return result["x"], result["y"], result["s"]


def instance(family, parameters, i):
    # Copies, because osqp reads a new q as if it were contiguous, and rows of an array need not be.
    return [values[i].copy() for values in family.data(parameters).values()]


def test_osqp_without_training_is_the_package_as_it_comes():
    family = qp()
    parameters = drawn(family, N, 1)
    history = osqp_package(family, dense=3, growth=2.0).run(parameters, 130)
    for i in range(N):
        row = instance(family, parameters, i)
        for k in (1, 2, 3, 6, 12, 96, 130):  # rho moves at 50 and 100
            check_column(history, i, k, qp_errors(family, row, *osqp_directly(family, row, row, k)))
        # Between two budgets the column of the lower one stands.
        for name in FIELDS:
            assert np.all(getattr(history, name)[i, 6:12] == getattr(history, name)[i, 6])
    zero = ls.Solver(family).run(parameters, 0)
    np.testing.assert_allclose(history.primal[:, 0], zero.primal[:, 0])
    np.testing.assert_allclose(history.dual[:, 0], np.linalg.norm(family.data(parameters)["q"], axis=1))


def test_osqp_starts_from_the_rho_on_which_training_settled():
    family = qp()
    train, parameters = drawn(family, TRAIN, 2), drawn(family, N, 1)
    method = osqp_package(family, train, dense=5)
    # The same by hand: what the workspace adapts to on one instance it takes along to the next.
    first = instance(family, train, 0)
    by_hand = osqp.OSQP()
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    by_hand.setup(P, first[0], A, first[1], first[2], verbose=False, eps_abs=1e-6, eps_rel=1e-6, warm_starting=False)
    for i in range(TRAIN):
        row = instance(family, train, i)
        by_hand.update(q=row[0], l=row[1], u=row[2])
        assert by_hand.solve(raise_error=False).info.status == "solved"
    assert method.start is not None
    assert method.start != pytest.approx(0.1)
    history = method.run(parameters, 5)
    by_hand.update_settings(max_iter=5, check_termination=0)
    for i in range(N):
        row = instance(family, parameters, i)
        by_hand.update(q=row[0], l=row[1], u=row[2])
        result = by_hand.solve(raise_error=False)
        check_column(history, i, 5, qp_errors(family, row, result.x, result.y))


def test_what_osqp_adapts_on_one_instance_does_not_reach_the_next():
    family = qp()
    train, parameters = drawn(family, TRAIN, 2), drawn(family, N, 1)
    eager = {"adaptive_rho_interval": 10, "adaptive_rho_tolerance": 1.1}
    method = osqp_package(family, train, dense=1, growth=30.0, **eager)
    history = method.run(parameters, 30)
    first = instance(family, train, 0)
    for i in range(N):
        row = instance(family, parameters, i)
        check_column(
            history, i, 30, qp_errors(family, row, *osqp_directly(family, first, row, 30, rho=method.start, **eager))
        )
    # One workspace that takes its rho along does otherwise.
    solver = osqp.OSQP()
    P, A = sp.csc_matrix(sp.triu(family.P)), sp.csc_matrix(family.A)
    settings = {"rho": method.start, "verbose": False, "warm_starting": False, "max_iter": 30, **NEVER_OSQP, **eager}
    solver.setup(P, first[0], A, first[1], first[2], **settings)
    for i in range(N):
        row = instance(family, parameters, i)
        solver.update(q=row[0], l=row[1], u=row[2])
        result = solver.solve(raise_error=False)
        assert result.info.rho_updates > 0
    carried = qp_errors(family, row, result.x, result.y)["dual"]
    assert abs(carried / history.dual[-1, 30] - 1) > 1e-3


def test_scs_instances_do_not_depend_on_one_another():
    family = conic()
    train, parameters = drawn(family, TRAIN, 2), drawn(family, N, 1)
    method = scs_package(family, train, dense=1, growth=25.0)
    history = method.run(parameters, 25)
    for i in range(N):
        alone = method.run(parameters[i : i + 1], 25)
        for name in FIELDS:
            np.testing.assert_allclose(getattr(alone, name)[0], getattr(history, name)[i], rtol=1e-8, atol=1e-12)
    # The memory of Anderson acceleration in a workspace that is used again does change them.
    data, cone = {"P": sp.csc_matrix(sp.triu(family.P)), "A": sp.csc_matrix(family.A)}, CONES["mixed"]
    cones = {"z": cone.zero, "l": cone.nonnegative, "q": list(cone.second_order), "s": list(cone.semidefinite)}
    first = instance(family, train, 0)
    solver = scs.SCS(
        {**data, "b": first[0], "c": first[1]}, cones, verbose=False, max_iters=25, scale=method.start or 0.1,
        linear_solver="qdldl", **NEVER_SCS,
    )  # fmt: skip
    for i in range(N):
        row = instance(family, parameters, i)
        solver.update(b=row[0], c=row[1])
        result = solver.solve(warm_start=False)
    carried = conic_errors(family, row, result["x"], result["y"], result["s"])["dual"]
    assert abs(carried / history.dual[-1, 25] - 1) > 1e-3


def test_osqp_without_its_rules_is_our_iteration():
    family = qp(equilibrate=False)
    parameters = drawn(family, N, 1)
    history = osqp_package(family, scaling=0, adaptive_rho=False).run(parameters, 40)
    ours = ls.Solver(family, ladder=False).run(parameters, 40)
    # Ours measures its own z, which lies in [l, u] but is not the nearest point there.
    for name in ("dual", "dual_max", "objective", "gap"):
        np.testing.assert_allclose(getattr(history, name), getattr(ours, name), rtol=1e-7, atol=1e-9)
    assert np.all(history.primal <= ours.primal + 1e-9)


@pytest.mark.parametrize("kind", ["mixed", "second_order", "all"])
@pytest.mark.parametrize("anderson", [0, 10])
def test_scs_without_training_is_the_package_as_it_comes(kind, anderson):
    family = conic(kind)
    parameters = drawn(family, N, 1)
    history = scs_package(family, anderson=anderson, dense=2, growth=3.0).run(parameters, 150)
    for i in range(N):
        row = instance(family, parameters, i)
        for k in (1, 2, 6, 18, 54, 150):
            point = scs_directly(family, row, row, k, acceleration_lookback=anderson)
            check_column(history, i, k, conic_errors(family, row, *point), rtol=1e-7)
        assert np.all(history.dual[i, 18:54] == history.dual[i, 18])


def test_scs_starts_from_the_scale_on_which_training_settled():
    family = conic()
    train, parameters = drawn(family, TRAIN, 2), drawn(family, N, 1)
    method = scs_package(family, Split("train", family, train, None), dense=1, growth=30.0)
    first = instance(family, train, 0)
    settled = method._settle(method._training)
    assert settled != pytest.approx(0.1)
    for start in (settled, None):
        # A cached property: what the comparison on training instances found is put aside.
        method.start = start
        history = method.run(parameters, 140)
        for i in range(N):
            row = instance(family, parameters, i)
            for k in (1, 30, 140):
                point = scs_directly(family, first, row, k, **({} if start is None else {"scale": start}))
                check_column(history, i, k, conic_errors(family, row, *point), rtol=1e-7)


@pytest.mark.parametrize(("package", "make"), [(osqp_package, qp), (scs_package, conic)])
def test_the_adaptive_rule_starts_where_that_is_better_on_training_instances(package, make):
    family = make()
    train = drawn(family, TRAIN, 2)
    chosen = package(family, train)

    def level(start):
        method = package(family, train)
        method.start = start
        history = method.run(train, 80)
        return np.mean(np.log(np.maximum(history.primal, history.dual)[:, [10, 20, 40, 80]]))

    both = {start: level(start) for start in (None, chosen._settle(chosen._training))}
    assert chosen.start == min(both, key=both.get)


@pytest.mark.parametrize("kind", ["mixed", "second_order"])
def test_scs_without_its_rules_is_our_iteration(kind):
    family = conic(kind, equilibrate=False)
    parameters = drawn(family, N, 1)
    method = scs_package(family, anderson=0, normalize=False, adaptive_scale=False, rho_x=1e-4, dense=12)
    history = method.run(parameters, 12)
    ours = ls.Solver(family, r_w=1e-4, ladder=False).run(parameters, 12)
    for name in FIELDS:
        theirs, own = getattr(history, name)[:, 1:], getattr(ours, name)[:, 1:]
        np.testing.assert_allclose(theirs, own, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("make", [lambda: (osqp_package, qp()), lambda: (scs_package, conic())])
def test_they_are_methods(make):
    package, family = make()
    train, parameters = drawn(family, TRAIN, 2), drawn(family, N, 1)
    method = package(family, train, dense=2, growth=2.0)
    assert method.family is family
    history = method.run(parameters, 9)
    for name, value in vars(history).items():
        assert value.shape == ((N,) if name == "safeguarded" else (N, 10)), name
        assert np.isfinite(value).all()
    assert not history.safeguarded.any()
    assert method.run(parameters, 0).primal.shape == (N, 1)
    begin = time.perf_counter()
    seconds = method.seconds(parameters, 2000)
    assert seconds.shape == (N,)
    # Seconds, not milliseconds, and parts of what went by on our clock.
    assert np.all(seconds > 0)
    assert np.sum(seconds) < time.perf_counter() - begin


def test_content_hashes_tell_settings_and_training_apart():
    family, cone = qp(), conic()
    methods = [
        osqp_package(family),
        osqp_package(family, drawn(family, 2, 0)),
        osqp_package(family, drawn(family, 2, 1)),
        osqp_package(family, alpha=1.0),
        osqp_package(family, dense=10),
        osqp_package(family, growth=2.0),
        osqp_package(qp(equilibrate=False)),
        scs_package(cone),
        scs_package(cone, anderson=0),
        scs_package(cone, drawn(cone, 2, 0)),
        ls.Solver(family),
        ls.Solver(cone),
    ]
    hashes = [method.content_hash() for method in methods]
    assert len(set(hashes)) == len(hashes)
    assert osqp_package(family, drawn(family, 2, 1)).content_hash() == hashes[2]
    assert len({method.name for method in methods[:2] + methods[7:10]}) == 5


def test_budgets_are_dense_and_then_geometric():
    method = osqp_package(qp(), dense=5, growth=1.5)
    assert method.list_budgets(0) == []
    assert method.list_budgets(3) == [1, 2, 3]
    assert method.list_budgets(5) == [1, 2, 3, 4, 5]
    assert method.list_budgets(20) == [1, 2, 3, 4, 5, 7, 10, 15, 20]
    assert osqp_package(qp(), dense=1, growth=1.01).list_budgets(4) == [1, 2, 3, 4]
    assert "rounded up beyond 5" in method.name


def test_counts_are_not_rounded_unless_asked_for():
    method = osqp_package(qp())
    assert method.list_budgets(200) == list(range(1, 201))
    assert "rounded" not in method.name


def test_bad_input_is_refused():
    family = qp()
    with pytest.raises(TypeError, match="osqp solves QP families, not Conic"):
        osqp_package(conic())
    with pytest.raises(TypeError, match="scs solves Conic families, not QP"):
        scs_package(family)
    with pytest.raises(ValueError, match="max_iter cannot be set"):
        osqp_package(family, max_iter=5)
    with pytest.raises(ValueError, match="growth > 1"):
        osqp_package(family, growth=1.0)
    with pytest.raises(ValueError, match="must not be negative"):
        osqp_package(family).run(drawn(family, N, 1), -1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "osqp", None)
    with pytest.raises(ImportError, match="pip install osqp"):
        osqp_package(qp())


def test_where_no_point_is_returned_the_last_one_stands(monkeypatch):
    # SCS gives NaN for x and s where it takes an instance for infeasible.
    family = conic()
    method, parameters = scs_package(family), drawn(family, N, 1)
    answers = method._solve_rows

    def without(rows, budget, value):
        found = answers(rows, budget, value)
        if budget in (1, 3):
            found[1] = found[1]._replace(x=np.full(family.n, np.nan), s=np.full(family.m, np.nan))
        return found

    expected = method.run(parameters, 4)
    monkeypatch.setattr(method, "_solve_rows", without)
    history = method.run(parameters, 4)
    np.testing.assert_array_equal(history.dual[[0, 2]], expected.dual[[0, 2]])
    np.testing.assert_array_equal(history.dual[1], expected.dual[1][[0, 0, 2, 2, 4]])
