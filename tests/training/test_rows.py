"""What optima say of the penalties of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.schedules.schedule import Schedule
from longstep.training.recipe import Recipe
from longstep.training.rows import guess_metric


def draw_rows(seed, rows=7, instances=9):
    rng = np.random.default_rng(seed)
    z, y = rng.normal(size=(2, rows, instances))
    y[0] = 0
    z[1] = 0
    y[2] = z[2] = 0
    return z, y


@given(st.integers(0, 10_000))
def test_rows_in_other_units_have_the_penalties_of_these_units(seed):
    z, y = draw_rows(seed)
    unit = 10.0 ** np.random.default_rng(seed + 1).uniform(-2, 2, (len(z), 1))
    ratios = guess_metric(z, y, Recipe())
    others = guess_metric(unit * z, y / unit, Recipe())
    known = np.arange(len(z)) != 2
    np.testing.assert_allclose(others[known], (ratios / unit[:, 0] ** 2)[known], rtol=1e-9)
    assert np.all(np.isfinite(ratios) & (ratios > 0))


def test_ratios_are_those_of_the_optima():
    z = np.array([[3.0, 4.0], [100.0, 100.0]])
    y = np.array([[6.0, 8.0], [1.0, 1.0]])
    np.testing.assert_allclose(guess_metric(z, y, Recipe()), [2.0, 0.01])
    assert guess_metric(z, np.zeros_like(y), Recipe()) is None


def mixed_units():
    """A random QP whose rows are in units from a ten thousandth to ten thousand of the usual one."""
    rng = np.random.default_rng(5)
    n = 8
    unit = 10.0 ** rng.uniform(-4, 4, 2 * n)
    A = unit[:, None] * np.concatenate([rng.normal(size=(n, n)), np.eye(n)])
    q = rng.normal(size=n)
    P = np.diag(rng.uniform(0.5, 2, n))
    family = ls.QP(P, A, q=q, l=-0.3 * unit, u=0.3 * unit, equilibrate=False)
    return family, {"q": q + rng.normal(size=(30, n))}


def count_steps(family, data, **schedule):
    metric = schedule.pop("metric", None)
    solver = ls.Solver(family, Schedule({}, schedule, metric=metric), algorithm=Condensed(), ladder=False)
    found = solver.solve_batch(data, eps_abs=1e-8, eps_rel=1e-4, max_iter=2000)
    return np.asarray(found.iterations)


def test_rows_in_units_of_all_sizes_are_solved():
    family, data = mixed_units()
    optima = ls.solve_references(family, data, cache=False, progress=False)
    ratios = guess_metric(family.A @ optima.x.T, optima.y.T, Recipe())
    guessed = count_steps(family, data, rho=1.0, alpha=1.6, metric=ratios)
    held = [count_steps(family, data, rho=rho, alpha=1.6) for rho in 10.0 ** np.arange(-8, 9)]
    assert np.quantile(guessed, 0.9) < 150
    assert min(map(np.median, held)) > 3 * np.median(guessed)


def test_training_begins_at_what_optima_say():
    family, data = mixed_units()
    split = ls.Dataset.from_parameters(family, {"train": data}, cache=False, progress=False)
    recipe = Recipe(metric_iterations=5, metric_trial=3, candidates=5)
    options = {"algorithm": Condensed(), "horizon": 5, "block": 5, "recipe": recipe, "cache": False}
    trained = ls.train(family, split, progress=False, start="zero", loss="both", **options)
    # Three decades around one are as far as it gets from ones.
    assert np.ptp(np.log10(trained.schedule.metric)) > 6.1


@pytest.mark.parametrize("field", ["metric_powers", "metric_multiples"])
def test_no_powers_leave_the_metric_at_ones(field):
    assert Recipe(**{field: ()}).to_json()[field] == []
