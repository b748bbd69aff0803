"""The recipe: what it refuses, that it is recorded and names what is cached, and that its numbers are those used."""

import ast
import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import longstep as ls
from longstep.training import recipe as module
from longstep.training.losses import resolve_loss
from longstep.training.recipe import Recipe
from longstep.training.record import About
from longstep.training.settings import Settings

A = np.random.default_rng(0).normal(size=(8, 6))
FAMILY = ls.Composite(ls.Quadratic(A.T @ A, parameter=ls.Affine(q=-A.T)), ls.L1(0.4))
PARAMETERS = np.random.default_rng(1).normal(size=(4, 8))
SHORT = {"horizon": 2, "block": 2, "iterations": 4, "candidates": 6, "progress": False}
FOLDER = Path(module.__file__).parent


def other(recipe, name):
    """The recipe with another value of a field."""
    value = getattr(recipe, name)
    if isinstance(value, bool):
        return replace(recipe, **{name: not value})
    if value is None:
        return replace(recipe, **{name: 3})
    if isinstance(value, tuple):
        return replace(recipe, **{name: (value[0] / 2 if isinstance(value[0], float) else value[0] + 1, *value[1:])})
    return replace(recipe, **{name: value + 1 if isinstance(value, int) else 0.8 * value + 0.15})


def test_the_recipe_is_recorded_and_read_back():
    recipe = Recipe(near=3, scales=[0.5, 2], stress=0)
    record = json.loads(json.dumps(ls.train(FAMILY, PARAMETERS, recipe=recipe, cache=False, **SHORT).record))
    assert Recipe.from_json(record["recipe"]) == recipe
    assert record["recipe"]["scales"] == [0.5, 2.0]
    assert "recipe" not in record["settings"]
    usual = ls.train(FAMILY, PARAMETERS, cache=False, **SHORT).record
    assert Recipe.from_json(usual["recipe"]) == Recipe()
    gaussian = ls.Gaussian(np.zeros(3), np.eye(3))
    exact = ls.train(ls.Quadratic(np.diag([1.0, 2.0, 10.0])), gaussian, recipe=recipe, cache=False, progress=False)
    assert Recipe.from_json(exact.record["recipe"]) == recipe
    with pytest.raises(ValueError, match="no recipe of this version: closer, further"):
        Recipe.from_json({"further": 1.0, **{k: v for k, v in recipe.to_json().items() if k != "closer"}})


def test_another_recipe_is_another_training_in_the_cache(tmp_path):
    def train(recipe=None):
        return ls.train(FAMILY, PARAMETERS, recipe=recipe, cache=tmp_path, **SHORT)

    def kept():
        return len(list((tmp_path / "training").iterdir()))

    train()
    train(Recipe())
    assert kept() == 1
    changed = train(Recipe(stress=0.0))
    assert kept() == 2
    assert changed.record["recipe"]["stress"] == 0.0
    train(Recipe(stress=0))
    assert kept() == 2


def test_every_number_is_in_the_key_of_the_cache():
    settings = Settings(
        horizon=2, lengths=(2,), block=2, loss=resolve_loss("metric", Recipe(), monotone=True), optimizer="lbfgs",
        iterations=4, starts=1, candidates=6, learn=("step",), recipe=Recipe(),
    )  # fmt: skip
    instances = SimpleNamespace(task=SimpleNamespace(family=FAMILY), data_hash="the data")

    def key(recipe):
        about = About(FAMILY, ls.ProximalGradient(), replace(settings, recipe=recipe), None)
        return about.key(instances, None)

    assert key(Recipe()) == key(Recipe())
    keys = {field.name: key(other(Recipe(), field.name)) for field in fields(Recipe)}
    assert len({key(Recipe()), *keys.values()}) == 1 + len(keys)


@cache
def numbers_read():
    """The attributes of recipes that the modules of training read."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        owners = {"recipe", "DEFAULT"} | ({"self"} if path.name == "recipe.py" else set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                owner = node.value
                if getattr(owner, "id", None) in owners or getattr(owner, "attr", None) == "recipe":
                    found.add(node.attr)
    return found


@pytest.mark.parametrize("name", [field.name for field in fields(Recipe)])
def test_every_number_is_in_the_hash_and_is_read(name):
    """A field that no step of training reads would be a number without effect."""
    changed = other(Recipe(), name)
    assert changed.to_json() != Recipe().to_json()
    assert Recipe.from_json(changed.to_json()) == changed
    assert name in numbers_read()


def test_no_number_of_training_stands_elsewhere():
    """Outside the recipe and the closed forms the only floats are 0 and 1, and no constants stand beside functions."""
    for path in FOLDER.glob("*.py"):
        if path.name == "recipe.py":
            continue
        tree = ast.parse(path.read_text())
        numbers = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)}
        assert numbers <= {0.0, 1.0}, path.name
        assigned = [n for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
        assert {t.id for n in assigned for t in n.targets if isinstance(t, ast.Name)} <= {"_VERSION"}, path.name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"searched": 0}, "searched must be a whole number, at least 1, got 0"),
        ({"searched": 2.5}, "searched must be a whole number, at least 1, got 2.5"),
        ({"stress": -1.0}, "stress must be a finite number, at least 0, got -1.0"),
        ({"fall": float("nan")}, "fall must be a finite number, at least 0, got nan"),
        ({"trial": 1.5}, "trial must be a finite number, at most 1 and at least 0, got 1.5"),
        ({"hopeless": "4"}, "hopeless must be a finite number"),
        ({"near": True}, "near must be a whole number"),
        ({"metric_again": 1}, "metric_again must be True or False, got 1"),
        ({"scales": 3.0}, "scales must be several numbers, got 3.0"),
        ({"scales": (0.0,)}, "scales must be a finite number"),
        ({"effort_with_factors": (40,)}, "effort_with_factors must be 2 numbers"),
        ({"effort_with_factors": (40, 0)}, "effort_with_factors must be a whole number, at least 1, got 0"),
        ({"exact_steps": (1.0, 0.5)}, r"steps are looked for from less to more, got \(1.0, 0.5\)"),
    ],
)
def test_an_invalid_recipe_is_refused(values, message):
    with pytest.raises(ValueError, match=f"Recipe: {message}"):
        Recipe(**values)


def test_what_is_no_recipe_is_refused():
    with pytest.raises(TypeError, match=r"algorithm must be an algorithm such as longstep.OSQP\(\).*got 'osqp'"):
        ls.train(FAMILY, PARAMETERS, algorithm="osqp")  # type: ignore
    with pytest.raises(TypeError, match="recipe must be a Recipe"):
        ls.train(FAMILY, PARAMETERS, recipe={"near": 3}, cache=False, **SHORT)  # type: ignore
