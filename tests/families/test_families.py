"""Families: what an instance is, and that equal families are equal."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.linalg.matrix import squared_norm_bound
from longstep.research.experiments import quadcopter

from ..helpers import CONES, random_conic, random_qp

SCALE = 1.0


def test_parameters_and_named_data_give_the_same_instance():
    family = quadcopter.family()
    X = quadcopter.sample_many(5, seed=0)
    data = family.data(X)
    by_name = family.instances({"l": data["l"], "u": data["u"]})
    by_parameter = family.instances(X)
    for name in ("q", "l", "u"):
        np.testing.assert_allclose(getattr(by_name, name), getattr(by_parameter, name), atol=1e-12)
    np.testing.assert_allclose(data["l"][:, :12], -X)


def test_conic_parameters():
    P, A, b, c = random_conic(0, CONES["mixed"])
    M = np.random.default_rng(0).normal(size=(len(b), 3))
    family = ls.Conic(P, A, CONES["mixed"], b=b, c=c, parameter=ls.Affine(b=M))
    X = np.random.default_rng(1).normal(size=(4, 3))
    one, other = family.instances(X), family.instances({"b": b + X @ M.T})
    np.testing.assert_allclose(one.b * one.size, other.b * other.size, atol=1e-12)


def test_row_kinds_follow_from_base_values():
    l, u = np.array([0.0, 1.0, -np.inf, -np.inf]), np.array([0.0, 2.0, 5.0, np.inf])
    A = np.eye(4)
    kinds = ls.QP(np.eye(4), A, q=np.zeros(4), l=l, u=u).host.kinds
    assert kinds.equality.tolist() == [True, False, False, False]
    assert kinds.is_free.tolist() == [False, False, False, True]
    M = np.zeros((4, 1))
    M[0] = 1.0
    moved = ls.QP(np.eye(4), A, q=np.zeros(4), l=l, u=u, parameter=ls.Affine(u=M)).host.kinds
    assert not moved.equality.any()  # only the upper bound moves with the parameter
    together = ls.QP(np.eye(4), A, q=np.zeros(4), l=l, u=u, parameter=ls.Affine(l=M, u=M)).host.kinds
    assert together.equality[0]
    assert ls.QP(np.eye(4), A, equalities=[1, 2]).host.kinds.equality.tolist() == [False, True, True, False]


def test_dense_and_sparse_input_make_equal_families():
    P, q, A, l, u = random_qp(0)
    one = ls.QP(P, A, q=q, l=l, u=u)
    other = ls.QP(sp.coo_matrix(P), sp.csc_array(A), q=list(q), l=l, u=u)
    assert one.content_hash() == other.content_hash()
    assert one.content_hash() != ls.QP(P, A, q=q + 1e-15, l=l, u=u).content_hash()
    assert one.content_hash() != ls.QP(P, A, q=q, l=l, u=u, equilibrate=False).content_hash()
    assert one.content_hash() != ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(12))).content_hash()


def test_rows_of_a_cone_share_one_scale_also_where_each_row_has_one_entry():
    cones = ls.Cones(nonnegative=1, second_order=(3,), semidefinite=(2,))
    size = np.array([2.0, 1.0, 5.0, 20.0, 3.0, 0.1, 7.0])
    a = np.array([-1.0, 0.3, 1.0, -2.0, 0.5, 1.0, -0.4])
    family = ls.Conic(np.eye(7), -np.diag(size), cones, b=np.zeros(7), c=-a)
    e = np.asarray(family.matrices.scaling.e)
    assert np.ptp(e[1:4]) == np.ptp(e[4:]) == 0 < np.ptp(e)
    ours = ls.Solver(family).solve({}, eps_abs=1e-9, eps_rel=1e-9)
    x = cp.Variable(7)
    t, r = x[1:4], np.sqrt(2)
    matrix = cp.bmat([[3 * x[4], 0.1 / r * x[5]], [0.1 / r * x[5], 7 * x[6]]])
    inside = [x[0] >= 0, cp.SOC(t[0], cp.multiply([5.0, 20.0], t[1:])), matrix >> 0]
    cp.Problem(cp.Minimize(cp.sum_squares(x - a)), inside).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(ours.x, x.value, atol=1e-6)


def test_objectives_are_in_the_users_units():
    P, q, A, l, u = random_qp(1)
    x = np.random.default_rng(0).normal(size=(len(q), 2))
    family = ls.QP(P, A, q=q, l=l, u=u)
    value = family.objective(family.instances([{}, {"q": q}][:1] * 2), jnp.asarray(x))
    np.testing.assert_allclose(value, [0.5 * v @ P @ v + q @ v for v in x.T], rtol=1e-10)
    P, A, b, c = random_conic(1, CONES["mixed"])
    family = ls.Conic(P, A, CONES["mixed"], b=b, c=c)
    x = np.random.default_rng(0).normal(size=(len(c), 2))
    value = family.objective(family.instances([{}, {}]), jnp.asarray(x))
    np.testing.assert_allclose(value, [0.5 * v @ P @ v + c @ v for v in x.T], rtol=1e-10)


def test_smooth_takes_any_pytree():
    def fit(z, x):
        return 0.5 * x["weight"] * jnp.sum((x["A"] @ z - x["b"]) ** 2)

    rng = np.random.default_rng(0)
    family = ls.Smooth(fit, lipschitz=60.0, n=3)
    X = {"A": rng.normal(size=(4, 5, 3)), "b": rng.normal(size=(4, 5)), "weight": rng.uniform(0.5, 1, 4)}
    solution = ls.Solver(family).solve_batch(X, eps_abs=1e-9, eps_rel=0.0, max_iter=50_000)
    for k in range(4):
        np.testing.assert_allclose(solution.x[k], np.linalg.lstsq(X["A"][k], X["b"][k], rcond=None)[0], atol=1e-6)
    one = ls.Solver(family).solve({k: v[1] for k, v in X.items()}, eps_abs=1e-9, eps_rel=0.0, max_iter=50_000)
    np.testing.assert_allclose(one.x, solution.x[1], atol=1e-9)


def scaled_fit(z, x):
    return 0.5 * x["scale"] * jnp.sum((x["A"] @ z - x["b"]) ** 2)


def scaled_lipschitz(x):
    return x["scale"] * squared_norm_bound(x["A"], 50)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("algorithm", [ls.GradientDescent(), ls.HeavyBall(), ls.ProximalGradient()])
def test_steps_are_in_units_of_the_instance(algorithm, dtype):
    """A problem times a number has the same iterates, however large its L is against the family's."""
    rng = np.random.default_rng(0)
    family = ls.Smooth(scaled_fit, 7.0, 3, lipschitz_of=scaled_lipschitz, dtype=dtype)
    assert family.units == "instance"
    if algorithm.family_type is ls.Composite:
        family = ls.Composite(family, ls.NonNegative())
    scale = np.array([1e-3, 1.0, 2.0, 1e4])
    same = {"A": rng.random((5, 3)), "b": rng.normal(size=5)}
    X = {name: np.repeat(value[None], 4, axis=0) for name, value in same.items()} | {"scale": scale}
    varying = {h.name: np.array([0.2, 0.5]) / (7 if h.role == "step" else 1) for h in algorithm.hyperparameters(family)}
    steady = {h.name: h.default for h in algorithm.hyperparameters(family)}
    solver = ls.Solver(family, ls.Schedule(varying, steady), algorithm=algorithm, safeguard=None)
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    for count in (1, 2, 50):
        x = solver.solve_batch(X, steps=count).x
        np.testing.assert_allclose(x, np.repeat(x[:1], 4, axis=0), atol=tolerance)
        one = {name: value[3] for name, value in X.items()}
        np.testing.assert_allclose(solver.solve(one, steps=count).x, x[3], atol=tolerance)
    first, A, b = 0.2 / np.linalg.norm(same["A"], 2) ** 2, same["A"], same["b"]
    z = first * A.T @ b
    z = np.maximum(z, 0) if algorithm.family_type is ls.Composite else z
    np.testing.assert_allclose(solver.solve_batch(X, steps=1).x[0], z, rtol=1e-5)


def test_units_are_part_of_the_family():
    old, own = (ls.Smooth(scaled_fit, 7.0, 3, lipschitz_of=f) for f in (None, scaled_lipschitz))
    assert old.content_hash() == ls.Smooth(scaled_fit, 7.0, 3).content_hash() != own.content_hash()
    assert own.astype("float32").widen().content_hash() == own.content_hash()
    assert "Lₓ of the instance" in str(ls.guarantee(ls.Solver(own)).convergence)
    assert "Lₓ" not in str(ls.guarantee(ls.Solver(old)).convergence)


def test_single_steps_are_learned_in_units_of_the_instance():
    """On one problem at many scales the exact step is that of the problem itself."""
    rng = np.random.default_rng(0)
    family = ls.Smooth(scaled_fit, 7.0, 3, lipschitz_of=scaled_lipschitz)
    X = {"A": np.repeat(rng.random((1, 5, 3)), 3, axis=0), "b": np.repeat(rng.normal(size=(1, 5)), 3, axis=0)}
    options = {"horizon": 4, "block": 1, "loss": "distance", "cache": False, "progress": False}
    found = []
    for scale in (np.ones(3), np.array([0.01, 1.0, 100.0])):
        split = ls.Dataset.from_parameters(family, {"train": X | {"scale": scale}}, references=["train"], cache=False)
        found.append(ls.train(family, split, **options).schedule.step)
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_functions_are_hashed_by_what_they_do():
    def make(scale, shift=0.0):
        return ls.Smooth(lambda z, x: scale * z @ z + shift, 2.0, 2).content_hash()

    def reads_a_global():
        return ls.Smooth(lambda z, x: SCALE * z @ z, 2.0, 2).content_hash()

    global SCALE  # noqa: PLW0603 (what a user's notebook does)
    before = reads_a_global()
    SCALE = 2.0
    assert before != reads_a_global()
    SCALE = 1.0
    assert before == reads_a_global()

    class Holder:
        def __init__(self, scale):
            self.scale = scale

        def objective(self, z, x):
            return self.scale * z @ z

    hashes = {ls.Smooth(Holder(s).objective, 2.0, 2).content_hash() for s in (1.0, 2.0, 1.0)}
    assert len(hashes) == 2
    assert make(1.0) == make(1.0)
    assert make(1.0) != make(2.0)
    assert make(np.eye(2)) == make(np.eye(2))
    assert make(np.eye(2)) != make(2 * np.eye(2))


def test_functions_are_hashed_by_their_text_or_their_key():
    def hashed(function):
        return ls.Smooth(function, 2.0, 2).content_hash()

    def single(z, x):
        return z @ z

    def double(z, x):
        return 2 * z @ z

    single.__qualname__ = double.__qualname__ = "objective"
    first, second = lambda z, x: z @ z, lambda z, x: 2 * z @ z  # fmt: skip
    assert len({hashed(f) for f in (single, double, first, second)}) == 4
    scope = {}
    exec("def nowhere(z, x):\n    return z @ z", scope)
    with pytest.raises(TypeError, match="its source is not to be found"):
        hashed(scope["nowhere"])
    scope["nowhere"].key = "squares"
    named = hashed(scope["nowhere"])
    double.key = "squares"
    assert hashed(double) == named
    double.key = "twice the squares"
    assert hashed(double) != named


def test_quadcopter_has_its_sizes():
    family = quadcopter.family()
    assert (family.n, family.m) == (172, 304)
    assert int(family.host.kinds.equality.sum()) == 132
    assert family.parameter is not None
    assert family.parameter.size == 12


def test_a_family_is_shown_in_a_line():
    x, c = cp.Variable(2, name="x"), cp.Parameter(2, name="c")
    model = ls.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x), [x >= -1]))
    assert repr(model.family) == "QP(n=2, m=2, float64, parameters c)"
    assert repr(ls.Quadratic(np.eye(2), q=np.zeros(2))) == "Quadratic(n=2, m=0, float64)"
