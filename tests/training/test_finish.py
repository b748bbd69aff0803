"""What is learned of the finish."""

from dataclasses import replace

import numpy as np
import pytest

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.engine.finish import PROXIMAL
from longstep.training.finish import Trials, learn_finish, try_first
from longstep.training.recipe import DEFAULT

from ..helpers import random_qp


def flat(seed=0, n=8):
    """A linear program with bounds on all unknowns, whose costs vary, and instances."""
    rng = np.random.default_rng(seed)
    A = np.vstack([np.eye(n), rng.random((5, n))])
    u = np.concatenate([np.ones(n), rng.uniform(1, 3, 5)])
    family = ls.QP(np.zeros((n, n)), A, q=np.zeros(n), l=np.concatenate([np.zeros(n), np.full(5, -np.inf)]), u=u)
    return family, {"q": rng.normal(size=(12, n))}


def trained(family, data):
    options = {"horizon": 4, "block": 4, "iterations": 2, "candidates": 4, "metric": False, "cache": False}
    return ls.train(family, data, algorithm=Condensed(), **options, progress=False)


def test_the_proximal_term_is_the_one_with_which_most_become_exact(tmp_path):
    family, data = flat()
    training = trained(family, data)
    assert training.record["proximal"] in DEFAULT.finish_proximal
    # Terms with which nothing becomes exact, and a good one.
    recipe = replace(DEFAULT, finish_proximal=(1e12, 1e-3, 1e10))
    assert learn_finish(family, training, data, recipe)["proximal"] == 1e-3
    solver = ls.Solver(family, replace(training, record=training.record | {"proximal": 1e-3}))
    assert solver.proximal == 1e-3
    assert np.all(try_first(solver, data).exact)
    solver.save(tmp_path / "a.longstep")
    again = ls.Solver.load(tmp_path / "a.longstep")
    assert (again.proximal, again.content_hash()) == (solver.proximal, solver.content_hash())
    again.proximal = 1e12
    assert not np.any(try_first(again, data).exact)
    assert again.content_hash() != solver.content_hash()


def test_a_definite_program_needs_no_proximal_term():
    P, q, A, l, u = random_qp(3, equalities=2)
    family = ls.QP(P, A, q=q, l=l, u=u)
    data = {"q": q + 0.1 * np.random.default_rng(0).normal(size=(6, len(q)))}
    training = trained(family, data)
    assert "proximal" not in training.record
    assert ls.Solver(family, training).proximal == PROXIMAL


def test_blocks_follow_each_other_while_they_pay():
    family, data = flat()
    options = {"block": 4, "iterations": 6, "candidates": 4, "metric": False, "cache": False, "progress": False}
    length = replace(DEFAULT, horizon=16)
    shorter = ls.train(family, data, algorithm=Condensed(), horizon=None, recipe=length, **options)
    assert 0 < len(shorter.schedule) < 16
    assert shorter.record["finish"] <= len(shorter.schedule)
    assert np.all(try_first(ls.Solver(family, shorter), data).exact)
    looked_at = []

    def falls_twice(trials):
        looked_at.append(max(trials.rehearsal.points))
        return len(looked_at) < 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trials, "is_falling", falls_twice)
        longer = ls.train(family, data, algorithm=Condensed(), horizon=None, recipe=length, **options)
    assert looked_at == [4, 8, 12]
    assert len(longer.schedule) == 12
