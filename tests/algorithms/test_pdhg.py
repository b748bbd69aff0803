"""An algorithm that is one file and one line: all that the library does, it does with it."""

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.pdhg import PDHG

from ..helpers import random_qp

# Steps that are learned, evaluated and certified.
H = 5


@pytest.fixture(scope="module")
def family() -> ls.QP:
    P, q, A, l, u = random_qp(0, n=6, equalities=2, inequalities=6)
    return ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(6)))


@pytest.fixture(scope="module")
def data(family) -> ls.Dataset:
    sizes = {"train": 8, "validation": 60, "test": 20}
    draw = lambda rng: 0.3 * rng.normal(size=6)  # noqa: E731
    return ls.Dataset.sample(family, draw, sizes, seed=0, cache=False, progress=False, references=["train"])


@pytest.fixture(scope="module")
def training(family, data) -> ls.Training:
    options = {"horizon": H, "block": H, "iterations": 10, "starts": 1, "candidates": 10}
    return ls.train(family, data, algorithm=PDHG(), **options, cache=False, progress=False)


def test_it_solves(family):
    x = np.linspace(-1, 1, 6)
    found = ls.Solver(family, algorithm=PDHG()).solve(x, eps_abs=1e-9, eps_rel=0, max_iter=200_000)
    assert found.status == ls.Status.SOLVED
    d = family.data(x[None])
    q, l, u = (d[k][0] for k in "qlu")
    equal, lower, upper = l == u, (l > -np.inf) & (l < u), (u < np.inf) & (l < u)
    A = family.A.toarray()
    rows = np.vstack([A[equal], A[upper], -A[lower]])
    cones = [clarabel.ZeroConeT(int(equal.sum())), clarabel.NonnegativeConeT(int(upper.sum() + lower.sum()))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    b = np.concatenate([u[equal], u[upper], -l[lower]])
    P = sp.csc_matrix(np.triu(family.P.toarray()))
    exact = clarabel.DefaultSolver(P, q, sp.csc_matrix(rows), b, cones, settings).solve()
    np.testing.assert_allclose(found.x, exact.x, atol=1e-6)
    np.testing.assert_allclose(found.objective, exact.obj_val, atol=1e-7)


def test_it_knows_infeasible_instances():
    family = ls.QP(np.eye(1), np.ones((2, 1)), q=[0.0], l=[1.0, -np.inf], u=[np.inf, 0.0])
    solver = ls.Solver(family, algorithm=PDHG())
    assert solver.solve({}, max_iter=100_000).status == ls.Status.PRIMAL_INFEASIBLE
    family = ls.QP(np.zeros((1, 1)), np.ones((1, 1)), q=[1.0], l=[-np.inf], u=[0.0])
    assert ls.Solver(family, algorithm=PDHG()).solve({}, max_iter=100_000).status == ls.Status.DUAL_INFEASIBLE


def test_it_learns_saves_evaluates_and_certifies(family, data, training, tmp_path):
    solver = ls.Solver(family, training)
    defaults = ls.evaluate(ls.Solver(family, algorithm=PDHG()), data.test, H, timed=False)
    learned = ls.evaluate(solver, data.test, H, timed=False)
    assert learned.geometric_mean[-1] < 0.5 * defaults.geometric_mean[-1]

    solver.save(tmp_path / "pdhg.longstep")
    loaded = ls.Solver.load(tmp_path / "pdhg.longstep")
    assert loaded.content_hash() == solver.content_hash()
    # As it was evaluated, so that nothing is compiled again.
    ours, theirs = (s.run(data.test.parameters, H).dual for s in (loaded, solver))
    np.testing.assert_array_equal(ours, theirs)

    certificate = ls.certify(solver, data.validation, H, progress=False)
    assert certificate.verify(solver, data.validation).claims == certificate.claims
    assert "Condat" in str(ls.guarantee(solver).convergence)


def test_c_code_is_refused(family, tmp_path):
    with pytest.raises(ValueError, match="Condensed on QP families and SCS on Conic families, not for PDHG on QP"):
        ls.generate_c(ls.Solver(family, algorithm=PDHG()), tmp_path)
