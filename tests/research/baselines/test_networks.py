"""The neural-network baselines: what they are untrained, what training gives, and that it is done right."""

import functools
import json
import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import longstep as ls
from longstep.data.dataset import Split
from longstep.linalg.matrix import MappableMatrix
from longstep.research.baselines import metric as metrics
from longstep.research.baselines import networks
from longstep.research.baselines.l2ws import L2WS, NetworkStart, Scales, UnrolledBase, l2ws
from longstep.research.baselines.learned_metric import LearnedMetric, UnrolledMetric, train_learned_metric
from longstep.research.baselines.metric import ComponentMetric, choose_components

from ...helpers import CASES, case_of, random_conic, random_qp

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(8, 5))
QUADRATIC = ls.Quadratic(ROOT.T @ ROOT + 0.1 * np.eye(5), parameter=ls.Affine(q=-ROOT.T))
LASSO = ls.Composite(QUADRATIC, ls.L1(0.4))
P, Q, A, L, U = random_qp(3, n=4, equalities=1, inequalities=4)
BOX = ls.QP(P, A, q=Q, l=L, u=U, parameter=ls.Affine(q=np.eye(4)))
CONES = ls.Cones(zero=1, nonnegative=3, second_order=(3,))
PC, AC, B, C = random_conic(5, CONES, n=4)
CONIC = ls.Conic(PC, AC, CONES, b=B, c=C, parameter=ls.Affine(c=0.1 * np.eye(4)))


SIZES = {"QUADRATIC": 300, "LASSO": 200, "BOX": 60, "CONIC": 30}


def data(family):
    """Splits with optima; the unseen instances are called `selection`. Families are not hashable, their names are."""
    return _data(next(name for name in SIZES if globals()[name] is family))


@functools.cache
def _data(name):
    family, sizes = globals()[name], {"train": SIZES[name], "selection": 100}
    d = family.parameter.size
    return ls.Dataset.sample(family, lambda rng: rng.normal(size=d), sizes, cache=False, jobs=1, progress=False)


def few(family):
    """The first thirty training instances."""
    return data(family).train.select(range(30))


def untrained(solver, parameters, **fields):
    rows = networks.make_features(solver.family, parameters)
    standard, metric = networks.Standard(rows, solver.family.dtype), ComponentMetric.of_solver(solver)
    network = networks.make_perceptron(standard.size, metric.size, (4, 4), 0, solver.family.dtype)
    return LearnedMetric(solver, metric, standard, network, {"instances": len(rows), **fields})


def with_outputs(method, nu):
    """The same method with a network that says ν to everything."""
    network = eqx.tree_at(lambda m: m.layers[-1].bias, method.network, jnp.asarray(nu, method.family.dtype))
    return LearnedMetric(method.solver, method.metric, method.standard, network, method.record)


def check_equal(a, b, rtol=1e-9, atol=1e-10):
    for name in ("primal", "dual", "objective"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol, err_msg=name)


def mark_slow(case):
    """One with penalties is looked at each time."""
    quick = case is case_of(ls.OSQP)
    return pytest.param(case, id=repr(case), marks=[] if quick else pytest.mark.slow)


def has_metric(algorithm):
    """Whether a metric is known for algorithms of this class, or of one that it is made from."""
    return choose_components.dispatch(type(algorithm)) is not choose_components.dispatch(object)


@pytest.mark.parametrize("case", [mark_slow(case) for case in CASES if has_metric(case.algorithm)])
def test_an_untrained_metric_is_the_base(case):
    solver = ls.Solver(case.family, algorithm=case.algorithm, ladder=False)
    history = untrained(solver, case.parameters).run(case.parameters, 25)
    assert history.primal.shape == (4, 26)
    assert not history.safeguarded.any()
    check_equal(history, solver.run(case.parameters, 25))


@pytest.mark.slow
def test_no_iterations_of_training_leave_the_base():
    solver, train = ls.Solver(LASSO, step=0.03), few(LASSO)
    method = train_learned_metric(solver, train, hidden=(4,), iterations=0, progress=False)
    assert np.all(method.pick_hyperparameters(train.parameters) == 0.03)
    check_equal(method.run(train.parameters, 20), solver.run(train.parameters, 20))
    assert method.record["start"] == method.record["best"] == method.record["final"]


@pytest.mark.slow
def test_steps_by_coordinate_are_those_of_numpy():
    parameters = data(LASSO).train.parameters[:3]
    nu = np.linspace(-0.5, 0.3, 5)
    method = with_outputs(untrained(ls.Solver(LASSO), parameters), nu)
    t = method.pick_hyperparameters(parameters)[0]
    np.testing.assert_allclose(t, method.solver.schedule.steady["step"] * np.exp(nu), rtol=1e-2)
    H, q = QUADRATIC.P, -parameters @ ROOT
    z = np.zeros((3, 5))
    for _ in range(12):
        v = z - t * (z @ H + q)
        z = np.sign(v) * np.maximum(np.abs(v) - 0.4 * t, 0)
    objective = 0.5 * np.sum(z * (z @ H), axis=1) + np.sum(q * z, axis=1) + 0.4 * np.abs(z).sum(axis=1)
    np.testing.assert_allclose(method.run(parameters, 12).objective[:, -1], objective, rtol=1e-12)


def test_penalties_by_row_are_those_of_numpy():
    family = ls.QP(P, A, q=Q, l=L, u=U, parameter=ls.Affine(q=np.eye(4)), equilibrate=False)
    parameter = np.array([0.3, -1.0, 0.5, 2.0])
    both = np.stack([parameter, -parameter])
    method = with_outputs(untrained(ls.Solver(family, sigma=1e-3), both), np.linspace(-1.0, 1.5, 5))
    sigma, alpha, q = 1e-3, 1.6, Q + parameter
    rho = method.pick_hyperparameters(both)[0] * np.where(family.equality, 100.0, 0.1)
    w, z, y = np.zeros(4), np.zeros(5), np.zeros(5)
    K = P + sigma * np.eye(4) + A.T @ np.diag(rho) @ A
    for _ in range(15):
        ahead = np.linalg.solve(K, sigma * w - q + A.T @ (rho * z - y))
        w, r = alpha * ahead + (1 - alpha) * w, alpha * A @ ahead + (1 - alpha) * z
        z = np.clip(r + y / rho, L, U)
        y = y + rho * (r - z)
    history = method.run(both, 15)
    np.testing.assert_allclose(history.primal[0, -1], np.linalg.norm(A @ w - z), rtol=1e-9)
    np.testing.assert_allclose(history.dual[0, -1], np.linalg.norm(P @ w + q + A.T @ y), rtol=1e-9)


@pytest.mark.slow
def test_scs_converges_in_any_metric_that_respects_the_cones():
    # Rows of one second-order cone share their weight; otherwise the fixed point would be another problem's.
    train = data(CONIC).train
    method = untrained(ls.Solver(CONIC), train.parameters)
    assert method.metric.size == 1 + 3 + 1
    method = with_outputs(method, [1.0, -1.5, 0.5, 0.8, -2.0])
    r = method.pick_hyperparameters(train.parameters)
    assert len(np.unique(r[0])) == 5
    history = method.run(train.parameters, 1500)
    assert np.max(history.primal[:, -1]) < 1e-6
    np.testing.assert_allclose(history.objective[:, -1], train.optima.value, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", [BOX, CONIC], ids=["qp", "conic"])
def test_the_gradient_of_the_metric_loss_is_a_finite_difference(family):
    solver, train = ls.Solver(family), few(family)
    method = untrained(solver, train.parameters)
    training = networks.TrainingData(solver, train)
    batch, unrolled = training.take_batch(np.arange(3)), UnrolledMetric(method.metric, 8)
    leaves, structure = jax.tree.flatten(eqx.filter(method.network, eqx.is_inexact_array))
    rng = np.random.default_rng(1)
    point, direction = ([0.3 * rng.normal(size=a.shape) for a in leaves] for _ in range(2))
    static = eqx.filter(method.network, eqx.is_inexact_array, inverse=True)

    @eqx.filter_jit
    def loss(unrolled, t):
        moved = [a + t * d for a, d in zip(point, direction, strict=True)]
        return networks.log_mean(unrolled(eqx.combine(jax.tree.unflatten(structure, moved), static), batch))

    slope = eqx.filter_jit(lambda unrolled, t: jax.grad(lambda t: loss(unrolled, t))(t))(unrolled, 0.0)
    h = 1e-5
    difference = (loss(unrolled, h) - loss(unrolled, -h)) / (2 * h)
    assert abs(slope) > 1e-4
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


@pytest.mark.slow
def test_a_trained_metric_is_better_on_unseen_qps():
    splits, solver = data(BOX), ls.Solver(BOX)
    options = {"hidden": (32, 32), "iterations": 60, "learning_rate": 1e-2, "progress": False}
    method = train_learned_metric(solver, splits.train, batch=16, **options)
    assert method.record["best"] < method.record["start"] - 2
    assert method.record["batch"] == 16
    assert method.record["held_out"] == 6
    assert json.loads(json.dumps(method.record))["instance_hashes"] == splits.train.instance_hashes()
    for split in splits:
        ours, base = (np.log(m.run(split.parameters, 30).worst[:, -1]).mean() for m in (method, solver))
        assert ours < base - 1, split.name
    whole = method.run(splits.selection.parameters, 30, chunk=100)
    check_equal(method.run(splits.selection.parameters, 30, chunk=7), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("optima", [True, False], ids=["distance", "metric"])
def test_a_trained_metric_is_better_on_unseen_lassos(optima):
    splits, solver = data(LASSO), ls.Solver(LASSO)
    train = splits.train if optima else Split("train", LASSO, splits.train.parameters, None)
    options = {"hidden": (16, 16), "iterations": 60, "learning_rate": 5e-3, "progress": False}
    method = train_learned_metric(solver, train, steps=15, **options)
    assert method.record["best"] < method.record["start"] - 0.5
    for split in splits:
        runs = (m.run(split.parameters, 15) for m in (method, solver))
        ours, base = (np.mean(h.objective[:, -1] - split.optima.value) for h in runs)
        assert ours < base, split.name


@pytest.mark.slow
def test_learned_starts_of_an_affine_solution_map_beat_zero():
    # With short steps all directions are left to the network, not only the slow ones.
    splits, solver = data(QUADRATIC), ls.Solver(QUADRATIC, step=0.1 / QUADRATIC.lipschitz)
    options = {"hidden": (64, 64), "iterations": 200, "learning_rate": 5e-3, "progress": False}
    method = l2ws(solver, splits.train, batch=64, **options)
    assert isinstance(method, L2WS)
    assert method.record["best"] < method.record["start"] - 4
    assert method.weights == 8 * 64 + 64 + 64 * 64 + 64 + 64 * 5 + 5 == method.record["weights"]
    for split in splits:
        learned, zero = (m.run(split.parameters, 10).dual for m in (method, solver))
        assert np.mean(learned[:, 0] ** 2) < 0.05 * np.mean(zero[:, 0] ** 2)
        assert np.mean(learned[:, 10] ** 2) < 0.05 * np.mean(zero[:, 10] ** 2)
    assert (method.seconds(splits.train.parameters, 3) > 0).all()
    x = method.start(splits.selection.parameters).x
    error = x - splits.selection.optima.x
    assert np.linalg.norm(error) < 0.3 * np.linalg.norm(splits.selection.optima.x)


@pytest.mark.slow
@pytest.mark.parametrize("family", [BOX, CONIC], ids=["qp", "conic"])
def test_starts_are_judged_after_the_steps_of_the_base(family):
    """The loss is the distance after the steps that the solver itself takes from the network's start."""
    solver, train = ls.Solver(family), few(family)
    training = networks.TrainingData(solver, train)
    scales = Scales.of(family, training)
    network = networks.make_perceptron(4, scales.ends[-1], (8,), 0, family.dtype)
    network = eqx.tree_at(lambda m: m.layers[-1].weight, network, replace_fn=lambda w: w + 0.3)
    unrolled = UnrolledBase(solver.algorithm, family, solver.plan, scales, 6)
    logs = eqx.filter_jit(unrolled)(network, training.take_batch(np.arange(30)))
    start = NetworkStart(solver, training.standard, scales, network)(train.parameters)
    reached = solver.solve_batch(train.parameters, warm_start=start, steps=6)
    s, o = family.matrices.scaling, train.optima
    size = 1.0 if family is BOX else np.asarray(family.instances(train.parameters).size)[:, None]
    c = float(s.c)
    parts = ((reached.x - o.x) / np.asarray(s.d), (reached.y - o.y) * c / np.asarray(s.e))
    gaps = np.concatenate([*parts, (reached.s - o.s) * np.asarray(s.e)], axis=1) / size
    np.testing.assert_allclose(np.exp(logs), np.sum(gaps**2, axis=1), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("learn", "family"), [(l2ws, QUADRATIC), (train_learned_metric, QUADRATIC)])
def test_training_is_reproducible(learn, family):
    train, solver = few(family), ls.Solver(family)

    def trained(seed, base=solver):
        return learn(base, train, hidden=(4,), steps=3, iterations=10, batch=8, seed=seed, progress=False)

    first = trained(0)
    assert first.record["best"] < first.record["start"]
    assert first.content_hash() == trained(0).content_hash()
    name = solver.schedule.names[0]
    other = ls.Solver(family, **{name: 0.9 * solver.schedule.steady[name]})
    assert len({m.content_hash() for m in (first, trained(1), trained(0, other))}) == 3


def test_batches_are_shuffles_of_all_instances():
    stream = networks._draw_batches(np.arange(5, 17), 4, np.random.default_rng(0))
    epochs = [np.concatenate([next(stream) for _ in range(3)]) for _ in range(2)]
    assert all(sorted(epoch) == list(range(5, 17)) for epoch in epochs)
    assert list(epochs[0]) != list(epochs[1])


@pytest.mark.slow
def test_single_precision_runs_as_the_base_does():
    family = ls.QP(P, A, q=Q, l=L, u=U, parameter=ls.Affine(q=np.eye(4)), dtype="float32")
    parameters = few(BOX).parameters
    train = Split("train", family, parameters, few(BOX).optima)
    method = train_learned_metric(ls.Solver(family), train, hidden=(4,), iterations=2, progress=False)
    assert all(a.dtype == np.float32 for a in networks.list_weights(method.network))
    history = untrained(ls.Solver(family), parameters).run(parameters, 20)
    assert history.dual.dtype == np.float32
    check_equal(history, ls.Solver(BOX).run(parameters, 20), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_single_precision_needs_no_switch():
    code = (
        "import numpy as np, jax, longstep as ls\n"
        "from longstep.research.baselines.l2ws import l2ws\n"
        "from longstep.research.baselines.learned_metric import learned_metric\n"
        "from longstep.research.experiments import quadcopter\n"
        "family = quadcopter.family('float32')\n"
        "data = ls.Dataset.sample(family, quadcopter.sample, {'train': 6}, cache=False, progress=False, jobs=1)\n"
        "solver, p = ls.Solver(family), data.train.parameters\n"
        "for learn in (learned_metric, l2ws):\n"
        "    method = learn(solver, data.train, hidden=(4,), iterations=3, progress=False)\n"
        "    assert method.record['best'] < method.record['start']\n"
        "    assert np.isfinite(method.run(p, 5).dual).all() and (method.seconds(p, 5) > 0).all()\n"
        "assert not jax.config.jax_enable_x64\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JAX_ENABLE_X64": "0"})


@pytest.mark.slow
def test_large_sparse_matrices_stay_sparse(monkeypatch):
    monkeypatch.setattr(metrics, "_DENSE", 0)
    sparse = ls.Solver(ls.QP(np.eye(300), np.eye(300), q=np.zeros(300), l=-np.ones(300), u=np.ones(300)))
    assert isinstance(ComponentMetric.of_solver(sparse).family.matrices.A, MappableMatrix)
    q = {"q": np.random.default_rng(0).normal(size=(3, 300))}
    check_equal(untrained(sparse, q).run(q, 10), sparse.run(q, 10))


def test_inputs_are_all_that_varies():
    named = {"q": np.random.default_rng(0).normal(size=(6, 4)), "u": np.tile(np.where(L == U, U, U + 1), (6, 1))}
    rows = networks.make_features(BOX, named)
    assert rows.shape == (6, 4 + 2 * 5)
    standard = networks.Standard(rows, BOX.dtype)
    assert standard.size == 4
    np.testing.assert_allclose(standard(rows).std(axis=0), 1.0)
    one_by_one = [{k: v[i] for k, v in named.items()} for i in range(6)]
    np.testing.assert_array_equal(networks.make_features(BOX, one_by_one), rows)
    smooth = case_of(ls.GradientDescent, ls.Smooth)
    assert networks.make_features(smooth.family, smooth.parameters).shape == (4, 9 * 6)
    # Far outside of what was seen an input says no more than that.
    assert np.abs(standard(1e9 * np.nan_to_num(rows, posinf=0, neginf=0))).max() == 10


def test_what_cannot_be_trained_is_refused():
    splits = data(QUADRATIC)
    varying = ls.Solver(QUADRATIC, ls.Schedule({"step": [0.1, 0.2]}, {"step": 0.1}))
    solver = ls.Solver(QUADRATIC)
    for learn in (l2ws, train_learned_metric):
        with pytest.raises(ValueError, match="2 step-varying steps"):
            learn(varying, splits.train)
        with pytest.raises(ValueError, match="another family"):
            learn(ls.Solver(BOX), splits.train)
        with pytest.raises(ValueError, match="for judging"):
            learn(solver, Split("test", QUADRATIC, splits.train.parameters, None))
        with pytest.raises(ValueError, match="one width"):
            learn(solver, splits.train, hidden=(3, 4))
        with pytest.raises(ValueError, match="all the same"):
            learn(solver, Split("train", QUADRATIC, np.ones((4, 8)), None))
    with pytest.raises(ValueError, match="regresses on optima"):
        l2ws(solver, Split("train", QUADRATIC, splits.train.parameters, None))
    rows = np.array([[1.0, np.inf], [2.0, 3.0]])
    with pytest.raises(ValueError, match=r"entry 1 .* infinite in some"):
        networks.Standard(rows, QUADRATIC.dtype)
    with pytest.raises(ValueError, match="instance 0 has nan"):
        networks.Standard(np.array([[1.0], [2.0]]), QUADRATIC.dtype)(np.array([[np.nan]]))
    method = untrained(solver, splits.train.parameters)
    with pytest.raises(ValueError, match="must not be negative"):
        method.run(splits.train.parameters, -1)
    with pytest.raises(ValueError, match="empty"):
        method.run(splits.train.parameters[:0], 1)
