"""The examples: their families against CVXPY, their solutions and duals against Clarabel, and each as a script."""

import importlib.util
import sys
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls

from .families.cvxpy_problems import set_values
from .families.test_cvxpy import CLARABEL, assert_data_equal_cvxpy, dense

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
FORMS = dict.fromkeys(NAMES, ls.QP) | {"kalman": ls.Conic}
every_example = pytest.mark.parametrize("name", NAMES)


@cache
def load(name):
    """The example as a module of its own, as the command line imports it, and its model."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, ls.from_cvxpy(module.problem)


def test_there_are_six():
    assert NAMES == ["battery", "kalman", "nnls", "portfolio", "quadcopter", "svm"]


@every_example
def test_instance_data_are_those_of_cvxpy(name):
    module, model = load(name)
    assert isinstance(model.family, FORMS[name])
    assert model.family.n <= 200
    for seed in range(3):
        values = module.sample(np.random.default_rng(seed))
        set_values(module.problem, values)
        assert_data_equal_cvxpy(module.problem, model, model.stack(values))
