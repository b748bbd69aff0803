"""Warm starts: from the nearest training instance, and from the instance before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.data.dataset import Split
from longstep.research.baselines import warm_starts
from longstep.research.baselines.warm_starts import NearestNeighbour, PreviousSolution, Started, nearest_neighbour
from longstep.research.experiments.kalman import Kalman

from ...helpers import CONES, Case, case_of, random_conic, random_qp


def worst(history, column=0):
    return np.maximum(history.primal, history.dual)[:, column]


def split_of(family, parameters, name="train"):
    return Split(name, family, parameters, ls.solve_references(family, parameters, cache=False, progress=False))


OSQP, SCS = case_of(ls.OSQP), case_of(ls.SCS)
UNCONSTRAINED = [case_of(ls.GradientDescent, kind) for kind in (ls.Quadratic, ls.Smooth)]
ALL = [*UNCONSTRAINED, case_of(ls.ProximalGradient), OSQP, SCS]


def sampled(case: Case, count, seed=0):
    """The family of a case with `count` instances like its own, and their optima."""
    rng = np.random.default_rng(seed)
    shape = case.parameters.shape[1:]
    return split_of(case.family, np.std(case.parameters) * rng.normal(size=(count, *shape)))


@pytest.mark.parametrize("case", ALL, ids=repr)
def test_the_nearest_neighbour_of_a_training_instance_is_itself(case):
    split = sampled(case, 6)
    method = nearest_neighbour(ls.Solver(split.family), split)
    history = method.run(split.parameters, 3)
    zero = ls.Solver(split.family).run(split.parameters, 3)
    assert history.primal.shape == (6, 4)
    assert all(np.isfinite(value).all() for value in vars(history).values())
    assert np.all(worst(history) < 1e-7)
    assert np.all(worst(zero) > 1e-2)


def brute_force(train, rows):
    return np.array([np.argmin([np.linalg.norm(row - other) for other in train]) for row in rows])


def test_neighbours_are_those_of_brute_force_in_chunks_too(monkeypatch):
    split = sampled(OSQP, 50)
    # Far from the origin, where ‖a‖² − 2a'b + ‖b‖² would lose the distances to cancellation.
    moved = Split("train", split.family, split.parameters + 1e6, split.optima)
    rows = 1e6 + np.random.default_rng(3).normal(size=(40, 8)) * 0.3
    expected = brute_force(moved.parameters, rows)
    assert len(set(expected)) > 10
    for pairs in (1 << 24, 7 * 50, 1):
        monkeypatch.setattr(warm_starts, "_PAIRS", pairs)
        np.testing.assert_array_equal(NearestNeighbour(moved).find_nearest(rows), expected)
    point = NearestNeighbour(moved)(rows)
    np.testing.assert_array_equal(point.x, split.optima.x[expected])
    np.testing.assert_array_equal(point.y, split.optima.y[expected])


def test_parameters_may_be_trees():
    family = ls.Smooth(lambda z, x: jnp.sum((z - x["a"]) ** 2) + x["b"] * jnp.sum(z), 2.0, 3)
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(9, 3)), "b": 3 * rng.normal(size=9)}
    split = split_of(family, tree)
    rows = np.column_stack([tree["a"], tree["b"]])
    new = {"a": rng.normal(size=(5, 3)), "b": 3 * rng.normal(size=5)}
    found = NearestNeighbour(split).find_nearest(new)
    np.testing.assert_array_equal(found, brute_force(rows, np.column_stack([new["a"], new["b"]])))


def test_instances_may_be_given_by_name_with_infinite_bounds():
    P, q, A, l, u = random_qp(3, n=6, equalities=1, inequalities=5, free=1)
    family = ls.QP(P, A, q=q, l=l, u=u)
    rng = np.random.default_rng(0)
    split = split_of(family, {"q": q + rng.normal(size=(5, 6)), "u": np.tile(u, (5, 1))})
    assert np.isinf(split.parameters["u"]).any()
    method = nearest_neighbour(ls.Solver(family), split)
    assert np.all(worst(method.run(split.parameters, 0)) < 1e-7)
    new = {"q": q + rng.normal(size=(4, 6))}
    expected = brute_force(split.parameters["q"], new["q"])
    np.testing.assert_array_equal(NearestNeighbour(split).find_nearest(new), expected)


def scalar_sequence():
    """min ½‖x‖² − b'x, x ≤ 1 with b moving on by one entry an instance, as in a receding horizon."""
    family = ls.QP(
        np.eye(4), np.eye(4), q=np.zeros(4), l=np.full(4, -np.inf), u=np.ones(4), parameter=ls.Affine(q=-np.eye(4))
    )
    signal = np.random.default_rng(5).normal(size=12)
    windows = np.stack([signal[t : t + 4] for t in range(8)])
    return family, windows


def forward(point):
    """Every entry takes the place of the one before it; the last one stays."""
    return jax.tree.map(lambda a: np.concatenate([a[..., 1:], a[..., -1:]], axis=-1), point)


def test_previous_solutions_shifted():
    family, windows = scalar_sequence()
    split = split_of(family, windows, "test")
    np.testing.assert_allclose(split.optima.x, np.minimum(windows, 1), atol=1e-9)
    method = warm_starts.previous_solution(ls.Solver(family), split, forward)
    start = method.start(windows)
    np.testing.assert_array_equal(start.x[0], 0)
    np.testing.assert_allclose(start.x[1:, :3], np.minimum(windows[1:, :3], 1), atol=1e-9)
    np.testing.assert_allclose(start.x[1:, 3], np.minimum(windows[:-1, 3], 1), atol=1e-9)
    history = method.run(windows, 10)
    assert history.objective.shape == (8, 11)
    np.testing.assert_allclose(
        history.objective[1:, 0], 0.5 * np.sum(start.x[1:] ** 2 - 2 * windows[1:] * start.x[1:], axis=1)
    )
    # All but one entry are right at once, so the gradient has one entry that is not zero.
    assert np.all(worst(history)[1:] <= np.abs(windows[1:, 3] - np.minimum(windows[:-1, 3], 1)) + 1 + 1e-9)
    unshifted = warm_starts.previous_solution(ls.Solver(family), split)
    np.testing.assert_allclose(unshifted.start(windows).x[1:], np.minimum(windows[:-1], 1), atol=1e-9)
    assert method.content_hash() != unshifted.content_hash()


def test_sequences_begin_at_zero_and_instances_may_come_in_any_order():
    family, windows = scalar_sequence()
    split = split_of(family, windows, "test")
    start = PreviousSolution(split, None, np.array([0, 0, 0, 1, 1, 2, 2, 2]))
    order = np.array([4, 3, 0, 7, 5])
    point = start(windows[order])
    expected = np.stack([split.optima.x[3], np.zeros(4), np.zeros(4), split.optima.x[6], np.zeros(4)])
    np.testing.assert_array_equal(point.x, expected)
    np.testing.assert_array_equal(point.y[[1, 2, 4]], 0)
    with pytest.raises(ValueError, match="instance 1 is not in the sequence 'test'"):
        start(np.concatenate([windows[:1], windows[:1] + 1]))
    with pytest.raises(ValueError, match="must number 8 instances"):
        PreviousSolution(split, None, np.zeros(3))


def test_a_shifted_kalman_window_is_near_the_next_optimum():
    problem = Kalman(horizon=6, length=14)
    windows = problem.draw_windows(np.random.default_rng(0), trajectories=2)
    sizes = {"s": 4, "w": 2, "h": 1, "v": 2, "u": 1, "z": 1}

    def shift(point):
        x = np.array(point.x)
        for name, block in problem.blocks.items():
            part = x[:, block].reshape(len(x), problem.horizon, sizes[name])
            x[:, block] = np.concatenate([part[:, 1:], part[:, -1:]], axis=1).reshape(len(x), -1)
        return ls.Point(x)

    split = split_of(problem.family, windows.measurements, "test")
    firsts, rest = [0, 9], np.setdiff1d(np.arange(18), [0, 9])

    def distance(shift):
        point = PreviousSolution(split, shift, windows.trajectory)(windows.measurements)
        return np.linalg.norm(point.x - split.optima.x, axis=1)

    size = np.linalg.norm(split.optima.x, axis=1)
    np.testing.assert_allclose(distance(shift)[firsts], size[firsts])
    assert np.mean(distance(shift)[rest]) < 0.7 * np.mean(distance(None)[rest]) < 0.7 * np.mean(size[rest])


@pytest.mark.parametrize("case", [OSQP, SCS], ids=repr)
def test_the_first_of_a_sequence_starts_as_the_solver_does(case):
    split = sampled(case, 6)
    solver = ls.Solver(split.family)
    history = warm_starts.previous_solution(solver, split).run(split.parameters, 3)
    cold = solver.run(split.parameters, 3)
    np.testing.assert_allclose(history.dual[0], cold.dual[0], rtol=1e-9)
    np.testing.assert_allclose(history.primal[0], cold.primal[0], rtol=1e-9)
    assert np.all(history.dual[1:, 0] != cold.dual[1:, 0])


def test_a_plain_function_is_a_start_and_is_known_by_its_code():
    split = sampled(OSQP, 4)
    solver, zero = ls.Solver(split.family), np.zeros((4, 8))
    cold = Started(solver, lambda parameters: ls.Point(zero), "zero")
    ones = Started(solver, lambda parameters: ls.Point(zero + 1), "ones")
    assert cold.content_hash() != ones.content_hash()
    np.testing.assert_allclose(cold.run(split.parameters, 4).dual, solver.run(split.parameters, 4).dual, rtol=1e-9)
    seconds = cold.seconds(split.parameters, 2)
    assert seconds.shape == (4,)
    assert np.all(seconds > 0)
    assert cold.family is split.family
    assert cold.name == "zero"


def test_content_hashes_cover_the_data():
    split, other = sampled(OSQP, 4), sampled(OSQP, 4, seed=1)
    solver = ls.Solver(split.family)
    hashes = [
        nearest_neighbour(solver, split).content_hash(),
        nearest_neighbour(solver, other).content_hash(),
        nearest_neighbour(ls.Solver(split.family, rho_ineq=1.0), split).content_hash(),
        warm_starts.previous_solution(solver, split).content_hash(),
        warm_starts.previous_solution(solver, split, sequence=np.arange(4)).content_hash(),
        solver.content_hash(),
    ]
    assert len(set(hashes)) == len(hashes)
    assert nearest_neighbour(solver, split).content_hash() == hashes[0]


def test_what_cannot_be_used_is_refused():
    split = sampled(OSQP, 4)
    bare = Split("train", split.family, split.parameters, None)
    for make in (NearestNeighbour, PreviousSolution):
        with pytest.raises(ValueError, match="'train' has no optima to start from"):
            make(bare)
    P, A, b, c = random_conic(5, CONES["mixed"])
    family = ls.Conic(P, A, CONES["mixed"], b=b, c=c, parameter=ls.Affine(c=P))
    conic = split_of(family, 0.1 * np.random.default_rng(0).normal(size=(3, 10)))
    with pytest.raises(ValueError, match="these parameters have 31 entries, those of the training split 10"):
        NearestNeighbour(conic).find_nearest({"c": np.tile(c, (2, 1))})
