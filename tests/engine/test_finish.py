"""The finish: exact points from active sets, against Clarabel and conditions of optimality written anew here."""

import clarabel
import jax
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.algorithms.osqp import OSQP
from longstep.engine.finisher import Patience

N, ROWS, EQUALITIES = 8, 14, 3


def make_definite(rng):
    root = rng.normal(size=(N, N))
    return root @ root.T + 0.1 * np.eye(N), rng.normal(size=(ROWS, N))


def make_singular(rng):
    root = rng.normal(size=(N, 3))
    return root @ root.T, rng.normal(size=(ROWS, N))


def make_linear(rng):
    return np.zeros((N, N)), rng.normal(size=(ROWS, N))


def make_repeated(rng):
    P, A = make_definite(rng)
    A[EQUALITIES + 1], A[EQUALITIES + 3] = A[EQUALITIES], -2 * A[EQUALITIES + 2]
    return P, A


def make_dependent(rng):
    P, A = make_definite(rng)
    A[2] = A[0] - A[1]
    return P, A


CASES = {
    "definite": make_definite,
    "singular": make_singular,
    "linear": make_linear,
    "repeated rows": make_repeated,
    "dependent equalities": make_dependent,
}


def make_instances(case, count=40, seed=0):
    """A family and instances of it with a box around a feasible point; every fourth has bounds that only touch."""
    rng = np.random.default_rng([seed, *case.encode()])
    P, A = CASES[case](rng)
    A = np.vstack([A, np.eye(N)])
    x = rng.normal(size=(count, N))
    values, q = x @ A.T, rng.normal(size=(count, N))
    wide = rng.exponential(size=(2, *values.shape)) * (rng.random(size=(2, *values.shape)) < 0.8)
    l, u = values - wide[0], values + wide[1] + 1e-3
    l[:, ROWS:], u[:, ROWS:] = values[:, ROWS:] - 3, values[:, ROWS:] + 3
    l[:, EQUALITIES : EQUALITIES + 2] = -np.inf
    l[:, :EQUALITIES] = u[:, :EQUALITIES] = values[:, :EQUALITIES]
    # Weakly active: the minimiser lies on a bound, whose multiplier is zero.
    touching = np.arange(count) % 4 == 3
    q[touching] = -(x[touching] @ P)
    u[touching, -1] = values[touching, -1]
    return ls.QP(P, A, q=q[0], l=l[0], u=u[0]), {"q": q, "l": l, "u": u}


def worst_condition(family, data, solution):
    """How far each point is from the conditions of optimality: feasible, stationary, complementary, of right sign."""
    P, A = family.P.toarray(), family.A.toarray()
    x, y = solution.x, solution.y
    value, up, down = x @ A.T, np.maximum(y, 0), np.maximum(-y, 0)
    slack_up, slack_down = data["u"] - value, value - data["l"]
    slope = x @ P + data["q"] + y @ A
    terms = [
        np.maximum(-np.minimum(slack_up, slack_down), 0),
        np.where(up > 0, up * np.where(np.isfinite(slack_up), slack_up, 1e6), 0),
        np.where(down > 0, down * np.where(np.isfinite(slack_down), slack_down, 1e6), 0),
    ]
    scale = 1 + np.abs(x).max(axis=1) + np.abs(y).max(axis=1)
    return np.maximum(np.abs(np.hstack(terms)).max(axis=1), np.abs(slope).max(axis=1)) / scale


def clarabel_optimum(family, q, l, u):
    P, A = sp.csc_matrix(sp.triu(family.P)), family.A.toarray()
    same, high, low = l == u, np.isfinite(u) & (l != u), np.isfinite(l) & (l != u)
    stacked = sp.csc_matrix(np.vstack([A[same], A[high], -A[low]]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_feas = settings.tol_gap_abs = settings.tol_gap_rel = 1e-11
    cones = [clarabel.ZeroConeT(int(same.sum())), clarabel.NonnegativeConeT(int(high.sum() + low.sum()))]
    solved = clarabel.DefaultSolver(P, q, stacked, np.concatenate([u[same], u[high], -l[low]]), cones, settings).solve()
    return np.array(solved.x), solved.obj_val


@pytest.mark.parametrize("form", [Condensed(), OSQP()], ids=lambda form: type(form).__name__)
@pytest.mark.parametrize("case", CASES)
def test_every_instance_is_solved_exactly(case, form):
    family, data = make_instances(case)
    solution = ls.Solver(family, algorithm=form, finish=5).solve_batch(data, eps_abs=1e-9, eps_rel=1e-9)
    assert solution.solved.all()
    assert solution.exact.all()
    assert (solution.iterations <= 5).mean() > 0.9
    assert worst_condition(family, data, solution).max() < 1e-9
    for k in range(3):
        x, objective = clarabel_optimum(family, *(data[name][k] for name in "qlu"))
        assert abs(solution.objective[k] - objective) < 1e-8 * (1 + abs(objective))
        if case not in ("linear", "singular"):
            assert np.abs(solution.x[k] - x).max() < 1e-7


def test_one_instance_is_as_a_batch_and_says_how():
    family, data = make_instances("definite")
    solver = ls.Solver(family, finish=5)
    batch = solver.solve_batch(data, eps_abs=1e-9, eps_rel=1e-9)
    for k in (0, 3, 7):
        one = solver.solve({name: value[k] for name, value in data.items()}, eps_abs=1e-9, eps_rel=1e-9)
        assert one.exact is True
        assert (one.iterations, one.changes) == (5, batch.changes[k])
        np.testing.assert_allclose(one.x, batch.x[k], atol=1e-11)
        assert batch[k].exact is True
    plain = ls.Solver(family, finish=False).solve({name: value[0] for name, value in data.items()})
    assert plain.exact is False
    assert plain.changes == -1


def test_instances_that_end_before_are_left_alone():
    family, data = make_instances("definite")
    solution = ls.Solver(family, finish=30).solve_batch(data, eps_abs=10.0, eps_rel=1.0)
    assert (solution.iterations < 30).all()
    assert not solution.exact.any()


def test_compiling_is_not_held_against_a_time_limit():
    family, data = make_instances("definite", seed=5)
    solver = ls.Solver(family, finish=4)
    one = {name: value[0] for name, value in data.items()}
    for found in (solver.solve(one, time_limit=5.0), solver.solve_batch(data, time_limit=5.0)):
        assert np.all(found.solved)
    assert solver._finisher._compiled == {1, 2}


def test_infeasible_instances_are_not_finished():
    family, data = make_instances("definite")
    data["l"][:, ROWS], data["u"][:, ROWS] = 5.0, 6.0
    family = ls.QP(
        family.P,
        sp.vstack([family.A, family.A[[ROWS]]]),
        q=data["q"][0],
        l=np.zeros(ROWS + N + 1),
        u=np.ones(ROWS + N + 1),
    )
    data = data | {
        "l": np.hstack([data["l"], np.full((40, 1), -9.0)]),
        "u": np.hstack([data["u"], np.full((40, 1), 4.0)]),
    }
    solution = ls.Solver(family, finish=5).solve_batch(data, max_iter=2000)
    assert not solution.exact.any()
    assert (solution.status == ls.Status.PRIMAL_INFEASIBLE).all()


def test_a_warm_start_is_tried_before_the_first_step():
    family, data = make_instances("definite")
    solver = ls.Solver(family, finish=20)
    cold = solver.solve_batch(data, eps_abs=1e-9, eps_rel=1e-9)
    near = data | {"q": data["q"] + 1e-3}
    warm = solver.solve_batch(near, warm_start=cold, eps_abs=1e-9, eps_rel=1e-9)
    assert (cold.iterations > 0).all()
    assert (warm.iterations == 0).all()
    assert warm.exact.all()
    assert worst_condition(family, near, warm).max() < 1e-9


def test_it_is_saved_and_part_of_what_a_solver_is(tmp_path):
    family, _ = make_instances("definite")
    solver = ls.Solver(family, finish=7)
    solver.save(tmp_path / "a.longstep")
    loaded = ls.Solver.load(tmp_path / "a.longstep")
    assert (loaded.finish, loaded.content_hash()) == (7, solver.content_hash())
    assert ls.Solver(family, finish=8).content_hash() != solver.content_hash()
    assert ls.Solver(family, finish=False).finish is None
    assert ls.Solver(family.astype("float32")).finish is None


@pytest.mark.parametrize("wrong", [-1, "yes", 2.5])
def test_other_values_are_refused(wrong):
    family, _ = make_instances("definite")
    with pytest.raises(ValueError, match="finish must be True, False or a number of steps"):
        ls.Solver(family, finish=wrong)


def test_with_loose_tolerances_it_is_tried_later(tmp_path):
    family, data = make_instances("definite")
    solver = ls.Solver(family, algorithm=Condensed(), finish=2)
    solver.patience = Patience(1e-5, 12)
    patient = ls.Solver(family, algorithm=Condensed(), finish=12)
    # As if that were its only time, by either tolerance; and for tight ones as if there were none.
    for loose in ({"eps_abs": 1e-5, "eps_rel": 0.0}, {"eps_abs": 0.0, "eps_rel": 1e-4}):
        found = solver.solve_batch(data, **loose)
        theirs = patient.solve_batch(data, **loose)
        np.testing.assert_array_equal(found.iterations, theirs.iterations)
        np.testing.assert_array_equal(found.exact, theirs.exact)
        np.testing.assert_array_equal(solver.compile().solve_batch(data, **loose).iterations, found.iterations)
        traced = jax.vmap(solver.function(**loose))(data)
        np.testing.assert_array_equal(traced.iterations, found.iterations)
    for method in (solver, solver.compile()):
        tight = method.solve_batch(data, eps_abs=9e-6, eps_rel=9e-6)
        assert tight.exact.all()
        assert set(tight.iterations) == {2}
    solver.save(tmp_path / "a.longstep")
    loaded = ls.Solver.load(tmp_path / "a.longstep")
    assert (loaded.patience, loaded.content_hash()) == (solver.patience, solver.content_hash())
    assert solver.content_hash() != ls.Solver(family, algorithm=Condensed(), finish=2).content_hash()
