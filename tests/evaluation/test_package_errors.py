"""The packages' errors step by step, against an implementation of the same that is not theirs."""

import sys

import numpy as np
import pytest

import longstep as ls
from longstep.evaluation import package_errors
from longstep.evaluation.package_errors import measure_package
from longstep.research.baselines.packages import osqp_package, scs_package

from ..helpers import CONES, random_conic, random_qp


def qp():
    P, q, A, l, u = random_qp(0, n=20, equalities=4, inequalities=25, free=2)
    return ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(20)))


def conic():
    P, A, b, c = random_conic(7, CONES["mixed"])
    return ls.Conic(P, A, CONES["mixed"], b=b, c=c, parameter=ls.Affine(c=P))


@pytest.mark.parametrize(("make", "package"), [(qp, osqp_package), (conic, scs_package)])
def test_errors_are_those_of_the_package_with_so_many_steps(make, package):
    family = make()
    parameters = 0.3 * np.random.default_rng(1).normal(size=(4, family.parameter.size))
    found = measure_package(family, parameters, 20)
    assert found.counts == (1, 2, 3, 5, 7, 10, 15, 20)
    history = package(family).run(parameters, 20)
    wanted = np.maximum(history.primal, history.dual)[:, list(found.counts)]
    np.testing.assert_allclose(found.values, wanted, rtol=1e-6)
    document = found.to_json()
    assert document["method"] == f"{'osqp' if make is qp else 'scs'} package"
    assert document["curves"]["maximum"] == found.values.max(axis=0).tolist()
    assert document["curves"]["median"] == np.sort(found.values, axis=0)[1].tolist()


def test_large_families_run_fewer_instances(monkeypatch):
    family = qp()
    parameters = np.zeros((60, 20))
    assert len(measure_package(family, parameters, 3).values) == 50
    monkeypatch.setattr(package_errors, "_MOST_WORK", 1.0)
    assert len(measure_package(family, parameters, 3).values) == 5


def test_there_may_be_no_package(monkeypatch):
    smooth = ls.Quadratic(np.eye(2), parameter=ls.Affine(q=np.eye(2)))
    assert measure_package(smooth, np.zeros((3, 2)), 10) is None
    monkeypatch.setitem(sys.modules, "osqp", None)
    monkeypatch.setattr(package_errors, "find_spec", lambda name: None)
    assert measure_package(qp(), np.zeros((3, 20)), 10) is None
