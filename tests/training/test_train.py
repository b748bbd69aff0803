"""Learning schedules: gradients, choices, safety, interruption. Figures live in benchmarks/training.py."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.data.dataset import Split
from longstep.families.point import Point
from longstep.research.experiments import kalman, quadcopter
from longstep.training import steady as steady_module
from longstep.training.constant import judge_level
from longstep.training.instances import gather
from longstep.training.losses import average_logs, resolve_loss
from longstep.training.optimize import require_optax
from longstep.training.program import Program
from longstep.training.recipe import DEFAULT, Recipe
from longstep.training.select import Comparison
from longstep.training.unknowns import Part, Unknowns

from ..helpers import Case, case_of, random_qp


def conic_case():
    problem = kalman.Kalman(horizon=4, length=7)
    return Case("scs", ls.SCS(), problem.family, problem.draw_windows(np.random.default_rng(0), 1).measurements)


SMOOTH, LASSO = case_of(ls.GradientDescent, ls.Smooth), case_of(ls.ProximalGradient)
ADMM, CONIC = case_of(ls.OSQP), conic_case()
FLIGHT = Case("quadcopter", ls.OSQP(), quadcopter.family(), quadcopter.sample_many(4, seed=5))
trained = pytest.mark.parametrize(
    "case", [SMOOTH, LASSO, case_of(ls.AcceleratedProximalGradient), ADMM, CONIC], ids=repr
)
QUIET = {"cache": False, "progress": False}


@cache
def split(case):
    optima = ls.solve_references(case.family, case.parameters, cache=False, jobs=1, progress=False)
    return Split("train", case.family, case.parameters, optima)


def block_of(case, loss, count, memory_limit=None):
    instances = gather(case.family, case.algorithm, split(case), None, loss, Recipe())
    block = Program(instances.task, loss, count, Recipe(), memory_limit)
    other = Point(*(None if a is None else jnp.roll(a, 1, axis=-1) for a in vars(instances.optimum).values()))
    return block, block.stage(block.start(None), block.start(other))


def theta_of(case, count, seed=0):
    rng = np.random.default_rng(seed)
    theta = {}
    for h in case.hyperparameters:
        values = h.default * np.exp(0.2 * rng.normal(size=count)) if h.default else 0.2 * rng.random(count)
        theta[h.name] = np.clip(values, 0.5, 1.8) if h.role == "relaxation" else values
    return theta


@trained
@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(ls.Loss(distance=1.0, tail=1.0), marks=pytest.mark.slow),
        ls.Loss(distance=0.5, metric=1.0, tail=0.5, every=2),
    ],
    ids=["end", "all"],
)
def test_gradient_of_the_block_loss_equals_finite_differences(case, loss):
    count = 4
    block, staged = block_of(case, loss, count)
    theta, slots = theta_of(case, count), np.array([0, 1, 1, 2])
    value, gradient = block.loss_and_gradient(theta, slots, 3, staged)
    factored = {h.name for h in case.hyperparameters if h.factored}
    for name, values in theta.items():
        # Behind the used slots nothing depends on a factored hyperparameter.
        entries = (0, 1, 2) if name in factored else (0, 3)
        for k in entries:
            size = 1e-5 * max(1e-2, abs(values[k]))
            around = []
            for sign in (1, -1):
                moved = {n: v.copy() for n, v in theta.items()}
                moved[name][k] += sign * size
                around.append(block.loss_and_gradient(moved, slots, 3, staged)[0])
            slope = (around[0] - around[1]) / (2 * size)
            assert gradient[name][k] == pytest.approx(slope, rel=1e-3, abs=1e-6 / max(1e-2, abs(values[k]))), (name, k)
        if name in factored:
            assert gradient[name][3] == 0
    assert np.isfinite(value)


@pytest.mark.slow
def test_a_held_value_is_held():
    options = {"horizon": 10, "block": 5, "iterations": 12, "candidates": 10, **QUIET}
    held = ls.train(FLIGHT.family, FLIGHT.parameters, fixed={"alpha": 1.5}, **options)
    assert set(held.schedule.alpha) == {1.5}
    assert held.schedule.steady["alpha"] == 1.5
    assert max(held.comparison.gain) > 1


@pytest.mark.parametrize("case", [LASSO], ids=repr)
def test_a_memory_limit_splits_the_gradient_and_changes_nothing(case):
    loss = resolve_loss(ls.Loss(distance=0.5, metric=1.0, tail=0.5), Recipe())
    whole, staged = block_of(case, loss, 3)
    pieces, staged_pieces = block_of(case, loss, 3, memory_limit=0.7 * whole.memory())
    assert len(pieces.pieces()) > 1
    theta, slots = theta_of(case, 3), np.arange(3)
    a, b = whole.loss_and_gradient(theta, slots, 3, staged), pieces.loss_and_gradient(theta, slots, 3, staged_pieces)
    assert a[0] == pytest.approx(b[0], rel=1e-10)
    for key in theta:
        np.testing.assert_allclose(a[1][key], b[1][key], rtol=1e-7, atol=1e-10)
    with pytest.raises(MemoryError, match="Raise memory_limit"):
        block_of(case, loss, 3, memory_limit=10.0)


def test_errors_below_the_depth_are_all_alike():
    recipe, depth = Recipe(), -10.0
    easy, easier = np.array([-9.0, -11.0, -14.0, -5.0]), np.array([-9.0, -30.0, -10.0, -5.0])
    assert judge_level(easy, recipe, depth) == judge_level(easier, recipe, depth)
    # A slow instance is not outweighed by any digits of the others.
    assert judge_level(np.array([-40.0, -40.0, -40.0, -4.0]), recipe, depth) > judge_level(easy, recipe, depth)
    assert judge_level(np.full(4, -50.0), recipe, depth) == depth
    assert np.isnan(judge_level(np.array([np.nan, -50.0]), recipe, depth))


def test_the_depth_is_a_part_of_the_errors_at_the_start():
    block, _ = block_of(ADMM, resolve_loss("metric", Recipe()), 3)
    start = block.start(None)
    errors = block.task.errors(start).metric
    assert block.floor(start, 1e-3) == pytest.approx(np.mean(errors) + 2 * np.log(1e-3))
    assert block.floor(start, 1e-30) == block.floor(start)


def test_learned_penalties_climb_late():
    held = ls.Schedule({}, dict(ls.Solver(ADMM.family, algorithm=ADMM.algorithm).schedule.steady))
    training = ls.Training(held, held, ADMM.algorithm, Comparison((), (), (), ""), "", {})
    assert ls.Solver(ADMM.family, training).ladder == "late"
    assert ls.Solver(ADMM.family, training, ladder=True).ladder is True
    assert ls.Solver(ADMM.family, algorithm=ADMM.algorithm).ladder is True
    assert ls.Solver(ADMM.family, training.schedule, algorithm=ADMM.algorithm).ladder is False


def test_unknowns_map_to_their_domains_and_back():
    alpha = next(h for h in ADMM.hyperparameters if h.role == "relaxation")
    base = {"alpha": np.array([1.0, 1.2, 1.4, 1.6])}
    unknowns = Unknowns([Part("alpha", np.array([0, -1, 1, 1]), alpha.varying)], base)
    theta, slopes = unknowns.theta(unknowns.start({"alpha": np.array([0.5, 9.0, 1.5, 1.5])}))
    np.testing.assert_allclose(theta["alpha"], [0.5, 1.2, 1.5, 1.5])
    weights = {"alpha": np.array([1.0, 10.0, 2.0, 3.0])}
    nu = unknowns.start(theta)
    for i in range(2):
        move = 1e-6 * np.eye(2)[i]
        change = unknowns.theta(nu + move)[0]["alpha"] - unknowns.theta(nu - move)[0]["alpha"]
        assert unknowns.pull(weights, slopes)[i] == pytest.approx(change @ weights["alpha"] / 2e-6, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", [LASSO, ADMM], ids=repr)
def test_training_beats_the_best_constant_at_every_block_end(case):
    result = ls.train(case.family, split(case), algorithm=case.algorithm, horizon=8, block=4, **QUIET)
    gain = np.array(result.comparison.gain)
    assert (gain >= np.exp(-Recipe().behind / 2) - 1e-9).all()
    assert gain.max() > 1.5
    assert result.comparison.steps[:2] == (4, 8)
    assert "learned" in result.kept
    # The solver that runs it measures the same.
    solver = ls.Solver(case.family, result, safeguard=None)
    history = solver.run(case.parameters, 8)
    if case.family.m:
        error = np.sqrt(history.primal**2 + history.dual**2)
    else:
        error = np.sqrt(np.maximum(history.objective - split(case).optima.value[:, None], 1e-15))
    measured = np.exp(np.mean(np.log(error[:, [4, 8]]), axis=0))
    np.testing.assert_allclose(result.comparison.schedule[:2], measured, rtol=0.05)


def test_the_result_is_reproducible_and_its_record_is_json(tmp_path):
    case = ADMM
    first, second = (ls.train(case.family, split(case), horizon=4, block=4, seed=3, **QUIET) for _ in range(2))
    assert first.schedule == second.schedule
    record = json.loads(json.dumps(first.record))
    assert record["seed"] == 3
    assert record["data_hash"] == second.record["data_hash"]
    assert [p["kind"] for p in record["parts"]] == ["constant", "metric", "block", "steady"]
    assert all(p["loss"] <= p["loss_before"] for p in record["parts"])
    solver = ls.Solver(case.family, first)
    solver.save(tmp_path / "s.longstep")
    assert ls.Solver.load(tmp_path / "s.longstep").record == record


@pytest.mark.slow
def test_alpha_alone_needs_one_factorization_and_a_limit_is_kept():
    case, options = FLIGHT, {"horizon": 10, "block": 10, "iterations": 20, "candidates": 10, "loss": "metric", **QUIET}
    alone = ls.train(case.family, case.parameters, learn="alpha", **options)
    assert len(ls.Solver(case.family, alone, ladder=False).plan.factors.inverse) == 1
    assert len(set(alone.schedule.alpha)) > 1
    limited = ls.train(case.family, case.parameters, factorizations=3, **options)
    assert len(ls.Solver(case.family, limited, ladder=False).plan.factors.inverse) <= 3
    assert len(set(limited.schedule.alpha)) > 3


def test_distances_need_references():
    case = ADMM
    with pytest.raises(ValueError, match=r"and .* has none"):
        ls.train(case.family, case.parameters, loss="distance", **QUIET)


@pytest.mark.slow
def test_warm_starts():
    case, options = LASSO, {"horizon": 3, "block": 3, "iterations": 10, **QUIET}
    previous = ls.train(case.family, split(case), start="previous", **options)
    assert previous.schedule.warm
    assert previous.record["instances"] == len(case.parameters) - 1
    # A function that starts at zero learns what the zero start learns.
    zero = ls.train(case.family, split(case), start=lambda p: Point(np.zeros((len(p), case.family.n))), **options)
    assert zero.schedule.warm
    cold = ls.train(case.family, split(case), **options)
    assert not cold.schedule.warm
    np.testing.assert_allclose(zero.schedule.step, cold.schedule.step)
    with pytest.raises(ValueError, match="one point per instance"):
        ls.train(case.family, split(case), start=lambda p: Point(np.zeros((1, case.family.n))), **options)


def test_blocks_end_at_the_floor():
    """A problem that a few steps solve to rounding gets no steps that are learned on rounding."""
    case = LASSO
    result = ls.train(case.family, split(case), horizon=60, block=6, **QUIET)
    assert 6 <= len(result.schedule) < 60


@pytest.mark.slow
def test_adam_also_learns():
    case = LASSO
    result = ls.train(case.family, split(case), optimizer="adam", iterations=60, horizon=4, block=4, **QUIET)
    assert max(result.comparison.gain) > 1.1


@pytest.mark.slow
def test_float32_and_another_precision():
    case = ADMM
    small = case.family.astype("float32")
    assert small.matrices.P.dense().dtype == jnp.float32
    trained_in_64 = ls.train(small, case.parameters, precision="float64", horizon=3, block=3, iterations=10, **QUIET)
    assert trained_in_64.record["dtype"] == "float64"
    in_32 = ls.train(small, case.parameters, horizon=3, block=3, iterations=10, **QUIET)
    for result in (trained_in_64, in_32):
        assert ls.Solver(small, result).solve_batch(case.parameters, eps_abs=1e-3, eps_rel=1e-3).solved.all()


def test_closed_forms_are_taken():
    quadratic, ball, smooth = case_of(ls.GradientDescent, ls.Quadratic), case_of(ls.HeavyBall), SMOOTH
    size = quadratic.family.parameter.size
    gaussian = ls.Gaussian(np.zeros(size), np.eye(size))
    for case in (quadratic, ball):
        for data in (gaussian, split(case), case.parameters):
            result = ls.train(case.family, data, algorithm=case.algorithm, horizon=6, block=3, **QUIET)
            assert result.record["method"] == "closed form"
            assert all(g >= 1 - 1e-9 for g in result.comparison.gain)
    single = ls.train(smooth.family, split(smooth), loss="distance", block=1, horizon=5, **QUIET)
    assert single.record["method"] == "closed form"
    # The first step by the formula, from zero.
    instances, x = smooth.instances, split(smooth).optima.x
    g = np.asarray(smooth.family.gradient(instances, jnp.zeros((smooth.family.n, len(x))))).T
    assert single.schedule.step[0] == pytest.approx(np.sum(g * -x) / np.sum(g * g), rel=1e-9)
    # What is asked beyond it is learned: here the step alone, with the momentum at zero.
    step_alone = ls.train(ball.family, split(ball), algorithm=ls.HeavyBall(), learn="step", horizon=3, block=3, **QUIET)
    assert step_alone.record["method"] == "progressive"
    assert not step_alone.schedule.momentum.any()
    for case, options in ((ADMM, {}), (smooth, {"block": 1, "loss": "distance"})):
        with pytest.raises(TypeError, match="needs instances"):
            ls.train(case.family, gaussian, **options, **QUIET)


def test_checkpoints_of_a_block():
    expected = {None: (10,), 4: (4, 8, 10), 5: (5, 10), 20: (10,), (2, 6): (2, 6, 10), (6, 10, 12): (6, 10)}
    for every, rows in expected.items():
        assert ls.Loss(metric=1.0, every=every).checkpoints(10) == rows
    for every in (0, (3, 0)):
        with pytest.raises(ValueError, match="checkpoints come every"):
            ls.Loss(metric=1.0, every=every)


def test_a_loss_takes_what_it_does_not_say_from_the_recipe():
    recipe = Recipe(tail=0.3, stress=3.0)
    assert resolve_loss("metric", recipe) == ls.Loss(metric=1.0, tail=0.3, stress=3.0, fall=recipe.fall)
    assert resolve_loss(ls.Loss(metric=1.0, stress=0.0, tail=0.0), recipe).stress == 0.0
    # Methods that converge whatever their penalties are need no stress test.
    assert resolve_loss("metric", recipe, monotone=True).stress == 0.0
    with pytest.raises(ValueError, match="tail weighs the mean of φ² against the geometric mean, at most 1"):
        ls.Loss(metric=1.0, tail=1.5)


@given(
    logs=arrays(np.float64, (3, 5), elements=st.floats(-40, 40)),
    tail=st.floats(0, 1),
)
def test_instances_count_by_both_means(logs, tail):
    """Between the geometric mean and that of the squares, whose logarithm is never below it."""
    geometric = logs.mean(axis=1)
    arithmetic = np.log(np.mean(np.exp(logs), axis=1))
    found = np.asarray(average_logs(jnp.asarray(logs), tail))
    np.testing.assert_allclose(found, (1 - tail) * geometric + tail * arithmetic, rtol=1e-9, atol=1e-9)
    assert np.all(found >= geometric - 1e-9)
    twice = np.concatenate([logs, logs], axis=1)
    shares = np.concatenate([np.ones(logs.shape[1]), np.zeros(logs.shape[1])]) / logs.shape[1]
    np.testing.assert_allclose(average_logs(jnp.asarray(twice), tail, jnp.asarray(shares)), found, rtol=1e-9, atol=1e-9)


def test_the_steady_state_lasts(monkeypatch):
    """Of two candidates the one is kept whose errors are lower in the end, by a solver that runs each."""
    case = ADMM
    choose = steady_module.choose_lasting
    begun = []
    monkeypatch.setattr(steady_module, "choose_lasting", lambda *given: begun.append(given) or choose(*given))
    result = ls.train(case.family, split(case), horizon=2, block=2, iterations=2, metric=False, **QUIET)
    learner = begun[0][0]
    usual = result.constant.steady
    kinds = {h.name: h for h in case.algorithm.hyperparameters(case.family)}
    slow = {name: 100 * value if kinds[name].role == "penalty" else value for name, value in usual.items()}
    plain = {name: 1.0 if kinds[name].role == "relaxation" else value for name, value in usual.items()}
    steps = Recipe().lasting * 2
    data = case.parameters

    def errors(theta):
        return np.log(ls.Solver(case.family, ls.Schedule({}, theta), ladder=False).run(data, steps).worst[:, -1]).mean()

    for pair in ([usual, slow], [slow, plain], [plain, usual]):
        assert choose(learner, learner.start(), pair) == min(pair, key=errors)


class Interrupt(Exception):
    pass


@pytest.mark.parametrize(
    ("case", "dear"), [(LASSO, False), (ADMM, False), pytest.param(ADMM, True, marks=pytest.mark.slow)], ids=str
)
def test_an_interrupted_training_goes_on_bit_for_bit(case, dear, tmp_path):
    # Of lengths 2 and 4.
    options = {"horizon": 6, "block": (2, 4), "iterations": 8, "progress": False}
    if dear:
        options |= {"starts": 3}
    expected = ls.train(case.family, split(case), cache=False, **options)
    for part in ("best constant", "block 1 of 2", "block 2 of 2", "steady state"):

        def stop(event, part=part):
            if event["part"] == part:
                raise Interrupt

        with pytest.raises(Interrupt):
            ls.train(case.family, split(case), cache=tmp_path, callback=stop, **options)
    resumed = ls.train(case.family, split(case), cache=tmp_path, **options)
    assert resumed.schedule == expected.schedule
    assert resumed.comparison.steps[:2] == (2, 6)
    assert resumed.constant == expected.constant
    assert resumed.comparison == expected.comparison
    # A finished one is read, not repeated.
    again = ls.train(case.family, split(case), cache=tmp_path, **options)
    assert again.record == resumed.record
    assert again.schedule == resumed.schedule
    # Damage is noticed, and the training done again.
    (path,) = (tmp_path / "training").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    assert ls.train(case.family, split(case), cache=tmp_path, **options).schedule == expected.schedule


SCRIPT = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import numpy as np, longstep as ls
rng = np.random.default_rng(0)
A = rng.normal(size=(8, 6))
family = ls.Composite(ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), ls.L1(0.4))
result = ls.train(family, rng.normal(size=(5, 8)), horizon=40, block=2, cache=sys.argv[1], progress=False)
print(result.schedule.to_json())
"""


@pytest.mark.slow
def test_a_killed_training_goes_on_bit_for_bit(tmp_path):
    def start(folder):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, text=True)

    process, folder = start(tmp_path / "killed"), tmp_path / "killed" / "training"
    while process.poll() is None and not (folder.is_dir() and any(f.suffix == ".training" for f in folder.iterdir())):
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    outputs = [start(tmp_path / name).communicate(timeout=120)[0] for name in ("killed", "whole")]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])["varying"]["step"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1"),
        ({"block": 0}, "block must be a whole number of at least 1, or several"),
        ({"block": (10, 2.5)}, "block must be a whole number of at least 1, or several"),
        ({"block": ()}, "block must be a whole number of at least 1, or several"),
        ({"loss": "mse"}, "loss must be one of distance, metric, both"),
        ({"optimizer": "sgd"}, "optimizer must be 'lbfgs' or 'adam'"),
        ({"learn": "step"}, "there is no hyperparameter 'step' to learn; there are sigma"),
        ({"learn": []}, "learn names no hyperparameter"),
        ({"learn": "alpha", "fixed": {"alpha": 1.0}}, "alpha is to be learned and fixed at once"),
        ({"fixed": {"alpha": 3.0}}, r"alpha = 3.0 cannot be held: it must lie in \[0.001"),
        ({"start": "warm"}, "start must be 'zero', 'parameter', 'previous' or"),
        ({"algorithm": ls.SCS()}, "SCS solves Conic families, not QP"),
        ({"factorizations": 0}, "factorizations must be a whole number"),
    ],
)
def test_bad_options_are_refused(options, message):
    case = ADMM
    with pytest.raises((ValueError, TypeError), match=message):
        ls.train(case.family, split(case), **options, **QUIET)


def test_bad_data_are_refused():
    case = ADMM
    with pytest.raises(ValueError, match="is for judging schedules"):
        ls.train(case.family, replace(split(case), name="test"), **QUIET)
    with pytest.raises(ValueError, match="of another family"):
        ls.train(CONIC.family, split(case), **QUIET)
    with pytest.raises(ValueError, match="uses the split 'train'"):
        ls.train(case.family, ls.Dataset([replace(split(case), name="mine")]), **QUIET)
    with pytest.raises(ValueError, match="nothing below zero"):
        ls.Loss(distance=-1.0)


def test_of_several_algorithms_the_same_is_kept_from_the_cache(tmp_path):
    P, q, A, l, u = random_qp(5, equalities=3)
    family = ls.QP(P, A, q=q, l=l, u=u)
    parameters = {"q": q + 0.3 * np.random.default_rng(1).normal(size=(5, len(q)))}
    options = {"horizon": 3, "block": 3, "iterations": 4, "candidates": 6, "starts": 1, "metric": False}
    forms = [Condensed(), ls.OSQP()]
    known = [
        ls.train(family, parameters, algorithm=form, cache=tmp_path / "c", progress=False, **options) for form in forms
    ]
    levels = [training.record["parts"][0]["loss"] for training in known]
    wanted = forms[0] if levels[0] <= levels[1] + DEFAULT.form_margin else forms[1]
    for _ in range(2):
        chosen = ls.train(family, parameters, algorithm=forms, cache=tmp_path / "c", progress=False, **options)
        assert type(chosen.algorithm) is type(wanted)
        assert chosen.schedule == known[forms.index(wanted)].schedule


def test_what_needs_optax_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r'optimizer="adam" needs the package optax: pip install'):
        require_optax('optimizer="adam"')


def test_what_has_singular_systems_is_not_kept():
    """Penalties of equalities that nothing bounds go to zero, and r_yz = 1e-14 makes every system singular."""
    A = np.vstack([np.ones((1, 3)), -np.eye(3)])
    cones = ls.Cones(zero=1, nonnegative=3)
    family = ls.Conic(np.eye(3), A, cones, b=np.array([1.0, 0, 0, 0]), parameter=ls.Affine(c=np.eye(3)))
    parameters = np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match="numerically singular"):
        ls.Solver(family, r_yz=1e-14)
    short = {"horizon": 2, "block": 2, "iterations": 1, "candidates": 2, "metric": False}
    result = ls.train(family, parameters, fixed={"r_yz": 1e-14}, **short, **QUIET)
    assert result.kept == "the defaults"
    assert ls.Solver(family, result).solve_batch(parameters).solved.all()
