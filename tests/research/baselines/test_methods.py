"""Every baseline is a method like any other: `evaluate` and `certify` take it, and verify it again."""

import numpy as np
import pytest

import longstep as ls
from longstep.data.dataset import Split
from longstep.errors import CertificateError
from longstep.evaluation import scheduled
from longstep.research.baselines import classical, packages, warm_starts
from longstep.research.baselines.conjugate_gradient import conjugate_gradients

RNG = np.random.default_rng(3)
ROOT = RNG.normal(size=(12, 6))


def sampled(family, size):
    sizes = {"train": 6, "validation": 40, "test": 12}
    return ls.Dataset.sample(family, lambda rng: rng.normal(size=size), sizes, cache=False, progress=False)


QUADRATIC = ls.Quadratic(ROOT.T @ ROOT + 0.5 * np.eye(6), parameter=ls.Affine(q=-ROOT.T))
LASSO = ls.Composite(ls.Quadratic(ROOT.T @ ROOT, parameter=ls.Affine(q=-ROOT.T), lower_bound=None), ls.L1(0.3))
BOX = ls.QP(ROOT.T @ ROOT, np.eye(6), l=-np.ones(6), u=np.ones(6), parameter=ls.Affine(q=np.eye(6)))
CONE = ls.Conic(
    np.eye(6),
    -np.eye(6),
    ls.Cones(nonnegative=3, second_order=(3,)),
    b=np.zeros(6),
    parameter=ls.Affine(c=np.eye(6)),
)
SIZES = {id(QUADRATIC): 12, id(LASSO): 12, id(BOX): 6, id(CONE): 6}
DATA = {id(f): sampled(f, SIZES[id(f)]) for f in (QUADRATIC, LASSO, BOX, CONE)}

METHODS = {
    "vanilla": (QUADRATIC, scheduled.vanilla),
    "nesterov convex": (QUADRATIC, classical.nesterov_convex),
    "nesterov strongly convex": (QUADRATIC, classical.nesterov_strongly_convex),
    "silver": (QUADRATIC, classical.silver_steps),
    "silver strongly convex": (QUADRATIC, classical.silver_steps_strongly_convex),
    "chebyshev": (QUADRATIC, classical.chebyshev_steps),
    "conjugate gradients": (QUADRATIC, conjugate_gradients),
    "fista": (LASSO, classical.fista),
    "neighbour": (LASSO, lambda f: warm_starts.nearest_neighbour(ls.Solver(f), DATA[id(f)].train)),
    "unit scalings": (CONE, classical.unit_scalings),
    "osqp": (BOX, lambda f: packages.osqp_package(f, DATA[id(f)].train)),
    "scs": (CONE, lambda f: packages.scs_package(f, DATA[id(f)].train)),
    "scs without Anderson": (CONE, lambda f: packages.scs_package(f, DATA[id(f)].train, anderson=0)),
}


@pytest.mark.parametrize("name", METHODS)
def test_evaluated_and_certified_like_a_solver(name):
    family, make = METHODS[name]
    method, data = make(family), DATA[id(family)]
    found = ls.evaluate(method, data.test, 20)
    assert found.values.shape == (12, 21)
    assert np.isfinite(found.values).all()
    assert found.geometric_mean[-1] < 0.1 * found.geometric_mean[0]
    assert found.seconds > 0
    assert found.name == method.name
    certificate = ls.certify(method, data.validation, 20, 1e3, confidence=0.9)
    assert certificate.claims[0].success == pytest.approx(0.1 ** (1 / 40))
    assert certificate.verify(make(family), data.validation) == certificate


def test_hashes_are_all_different():
    hashes = {name: make(family).content_hash() for name, (family, make) in METHODS.items()}
    assert len(set(hashes.values())) == len(hashes)


def test_neighbours_cannot_be_validated_on():
    data = DATA[id(BOX)]
    method = warm_starts.nearest_neighbour(ls.Solver(BOX), data.train)
    split = Split("validation", BOX, data.train.parameters, None)
    with pytest.raises(CertificateError, match="6 of the 6 validation instances were used in training"):
        ls.certify(method, split, 5, 1.0)
