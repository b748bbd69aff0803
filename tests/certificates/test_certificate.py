"""Certificates: what they say follows from the counts, and whatever does not match is refused with its own message."""

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import longstep as ls
from longstep.algorithms.condensed import Condensed
from longstep.certificates.certificate import _describe_convergence
from longstep.certificates.sample import TOLERANCES, kl_upper
from longstep.data.dataset import Split
from longstep.errors import CertificateError
from longstep.report.tables import comparison

from ..helpers import CONES, find_roles, random_conic, random_qp

SIZES = {"train": 8, "validation": 400, "test": 400, "selection": 5}


def draw(rng):
    return rng.normal(size=4)


@pytest.fixture(scope="module")
def data():
    family = ls.Quadratic(np.diag([1.0, 2.0, 5.0, 9.0]), parameter=ls.Affine(q=np.eye(4)))
    return ls.Dataset.sample(family, draw, SIZES, cache=False, progress=False)


@pytest.fixture(scope="module")
def solver(data):
    return ls.Solver(data.train.family, ls.train(data.train.family, data, horizon=6, block=3, cache=False))


@pytest.fixture(scope="module")
def certificate(solver, data):
    return ls.certify(solver, data.validation, [3, 6], [1e-2, 1e-5], confidence=0.99)


def test_claims_are_clopper_pearson_bounds_of_the_counts(solver, data, certificate):
    values = ls.evaluate(solver, data.validation, 6, timed=False).values
    assert [(c.iterations, c.tolerance) for c in certificate.claims] == [(3, 1e-2), (3, 1e-5), (6, 1e-2), (6, 1e-5)]
    for c in certificate.claims:
        assert c.violations == np.sum(values[:, c.iterations] >= c.tolerance)
        one_sided = stats.binomtest(400 - c.violations, 400, alternative="greater")
        # Four claims share 1 − 0.99.
        assert c.success == pytest.approx(one_sided.proportion_ci(1 - 0.01 / 4, "exact").low, abs=1e-12)
    assert len({c.violations for c in certificate.claims}) > 1, "all claims alike: the test sees nothing"


def test_quantile_certificates_follow_method_six(solver, data):
    found = ls.certify(solver, data.validation, [2, 4], level=0.9, confidence=0.99, bound="kl")
    values = ls.evaluate(solver, data.validation, 4, timed=False).values
    c = math.log(2 * 2 * 2 * 151 / 0.01) / 400
    for claim, lower in zip(found.claims, found.lower, strict=True):
        risks = np.array([np.mean(values[:, claim.iterations] >= t) for t in TOLERANCES])
        assert claim.tolerance == TOLERANCES[kl_upper(risks, c) < 0.1][0]
        assert lower == TOLERANCES[1 - kl_upper(1 - risks, c) > 0.9][-1]
        assert lower < claim.tolerance
    assert found.bound == "kl"


def test_quantiles_are_order_statistics(solver, data):
    found = ls.certify(solver, data.validation, [2, 4], level=0.9, confidence=0.99)
    values = ls.evaluate(solver, data.validation, 4, timed=False).values
    # Two sides at two iteration counts share 1 − 0.99; so many violations are just as unlikely where the risk is 0.1.
    most = max(v for v in range(400) if stats.binom.cdf(v, 400, 0.1) <= 0.01 / 4)
    for claim, lower in zip(found.claims, found.lower, strict=True):
        ordered = np.sort(values[:, claim.iterations])
        assert claim.violations == most
        assert claim.tolerance == np.nextafter(ordered[-1 - most], np.inf)
        assert lower == ordered[most]
    published = ls.certify(solver, data.validation, [2, 4], level=0.9, confidence=0.99, bound="kl")
    assert all(a.tolerance < b.tolerance for a, b in zip(found.claims, published.claims, strict=True))


def test_it_holds_on_the_test_split(solver, data, certificate):
    values = ls.evaluate(solver, data.test, 6, timed=False).values
    for c in certificate.claims:
        assert np.mean(values[:, c.iterations] < c.tolerance) >= c.success


def test_sentence_says_what_is_needed(certificate):
    text = str(certificate)
    for words in ("After 3 iterations f − f* is below 0.01 on at least", "with confidence 0.99", "400 unseen instances",
                  "drawn independently", "hold together", "converges"):  # fmt: skip
        assert words in text


def test_percentages_are_rounded_down(solver, data):
    claim = ls.certify(solver, data.validation, 6, 1e6, confidence=0.9).claims[0]
    assert claim.success == pytest.approx(0.1 ** (1 / 400))
    assert "at least 99.4%" in str(ls.certify(solver, data.validation, 6, 1e6, confidence=0.9))


def test_no_tolerance_can_be_certified_from_few_instances(solver, data, tmp_path):
    few = data.validation.select(range(20))
    found = ls.certify(solver, few, 6)
    assert math.isinf(found.claims[0].tolerance)
    assert "nothing could be certified" in str(found)
    found.save(tmp_path / "c.json")
    assert ls.Certificate.load(tmp_path / "c.json") == found
    found.verify(solver, few)


def test_saved_loaded_and_verified(solver, data, certificate, tmp_path):
    path = tmp_path / "deep" / "certificate.json"
    certificate.save(path)
    loaded = ls.Certificate.load(path)
    assert loaded == certificate
    assert loaded.verify(solver, data.validation) == certificate
    solver.save(tmp_path / "s.longstep")
    loaded.verify(ls.Solver.load(tmp_path / "s.longstep"), data.validation)


@pytest.mark.parametrize("field", ["claims", "confidence", "instances", "versions", "split"])
def test_a_tampered_file_is_refused(certificate, tmp_path, field):
    fields = certificate.to_json()
    if field == "claims":
        fields["claims"][0]["success"] = 0.9999
    else:
        fields[field] = {"longstep": "9"} if field == "versions" else 0.5
    (tmp_path / "c.json").write_text(json.dumps(fields))
    with pytest.raises(CertificateError, match="changed since it was made"):
        ls.Certificate.load(tmp_path / "c.json")


def test_a_forged_hash_does_not_help(solver, data, certificate):
    better = replace(certificate.claims[0], success=0.9999)
    forged = ls.Certificate.from_json(replace(certificate, claims=(better, *certificate.claims[1:])).to_json())
    with pytest.raises(CertificateError, match="does not say the same"):
        forged.verify(solver, data.validation)
    with pytest.raises(CertificateError, match="does not say the same"):
        replace(certificate, instances=4000).verify(solver, data.validation)


def test_another_schedule_is_refused(data, certificate):
    with pytest.raises(CertificateError, match="another solver"):
        certificate.verify(ls.Solver(data.train.family), data.validation)


def test_other_data_are_refused(solver, data, certificate):
    with pytest.raises(CertificateError, match="other data"):
        certificate.verify(solver, data.validation.select(range(399)))


@pytest.mark.parametrize("name", ["train", "test", "selection"])
def test_other_splits_are_refused(solver, data, name):
    with pytest.raises(CertificateError, match=f"split '{name}' cannot be used"):
        ls.certify(solver, data[name], 3, 1e-2)


def test_instances_that_were_trained_on_are_refused(solver, data, tmp_path):
    seen = np.concatenate([data.validation.parameters[:30], data.train.parameters[3:5]])
    split = Split("validation", data.train.family, seen, None)
    with pytest.raises(CertificateError, match=r"2 of the 32 validation instances were used in training .* number 30"):
        ls.certify(solver, split, 3, 1e-2)
    solver.save(tmp_path / "s.longstep")
    with pytest.raises(CertificateError, match="used in training"):
        ls.certify(ls.Solver.load(tmp_path / "s.longstep"), split, 3, 1e-2)


def test_another_version_is_a_warning_and_a_recomputation(solver, data, certificate):
    older = replace(certificate, versions=certificate.versions | {"longstep": "0.0.1"})
    with pytest.warns(UserWarning, match=r"longstep 0\.0\.1"):
        older.verify(solver, data.validation)


def test_repeated_instances_are_told(solver, data):
    twice = Split("validation", data.train.family, np.repeat(data.validation.parameters[:10], 2, axis=0), None)
    assert ls.certify(solver, twice, 3, 1.0, metric="residual").distinct == 10


def test_metrics_of_the_user(solver, data):
    def scaled(history, optima):
        return 10 * np.asarray(history.dual)

    found = ls.certify(solver, data.validation, 6, 1e-2, metric=scaled)
    assert found.verify(solver, data.validation, metric=scaled) == found
    with pytest.raises(CertificateError, match="metric"):
        found.verify(solver, data.validation, metric="dual")
    with pytest.raises(ValueError, match="metric must be one of"):
        found.verify(solver, data.validation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "iterations must be"),
        (([3, 3],), "iterations must be"),
        ((3, -1.0), "tolerances must be"),
        ((3, []), "tolerances must be"),
    ],
)
def test_bad_arguments(solver, data, arguments, message):
    with pytest.raises(CertificateError, match=message):
        ls.certify(solver, data.validation, *arguments)
    with pytest.raises(CertificateError, match="confidence"):
        ls.certify(solver, data.validation, 3, 1.0, confidence=1.0)


def test_guarantees_are_saved_and_verified(solver, data, tmp_path):
    found = ls.guarantee(solver, [3, 6])
    lam, steps = np.array([1.0, 2.0, 5.0, 9.0]), np.asarray(solver.schedule.step)
    expected = [np.max(np.abs(np.prod(1 - np.outer(lam, steps[:k]), axis=1))) for k in (3, 6)]
    np.testing.assert_allclose(found.unguarded, expected, rtol=1e-9)
    assert all(rate >= alone for rate, alone in zip(found.rates, expected, strict=True))
    assert "where the safeguard does not act" in str(found)
    bare = ls.guarantee(ls.Solver(data.train.family, solver.schedule, safeguard=None), [3, 6])
    assert bare.rates == bare.unguarded == found.unguarded
    assert "safeguard" not in str(bare)
    assert found.convergence.holds
    found.save(tmp_path / "g.json")
    loaded = ls.Guarantee.load(tmp_path / "g.json")
    assert loaded == found
    assert loaded.verify(solver) == found
    with pytest.raises(CertificateError, match="another solver"):
        loaded.verify(ls.Solver(data.train.family))
    with pytest.raises(CertificateError, match="not a certificate of longstep, but a guarantee"):
        ls.Certificate.load(tmp_path / "g.json")
    with pytest.raises(CertificateError, match="rates"):
        replace(found, rates=(0.1, 0.1)).verify(solver)


def test_worst_cases_are_for_gradient_methods():
    family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    assert ls.guarantee(ls.Solver(family), 5).rates == ()
    with pytest.raises(CertificateError, match="not OSQP"):
        ls.guarantee(ls.Solver(family), 5, worst_cases=True)


def test_worst_cases_of_a_schedule(data):
    family = data.train.family
    found = ls.guarantee(ls.Solver(family, step=1 / 9), [1, 2], worst_cases=True)
    # Constant steps 1/L on merely convex functions give L/(4K + 2); strong convexity can only help.
    assert all(w <= 9 / (4 * k + 2) * (1 + 1e-6) for k, w in zip((1, 2), found.worst, strict=True))
    assert "for every function with L = 9 and μ = 1" in str(found)


# Certificates are about what `solve` returns.


def returned(solver, parameters, k):
    """2-norm residuals of the points that `solve_batch(steps=k)` returns, in float64 and in the user's own units."""
    points = solver.solve_batch(parameters, steps=k)
    family = solver.family
    data = family.data(parameters)
    x, y = points.x.astype(float), points.y.astype(float)
    linear, target = (data["c"], data["b"]) if isinstance(family, ls.Conic) else (data["q"], 0.0)
    dual = np.linalg.norm((family.P @ x.T).T + linear + (family.A.T @ y.T).T, axis=1)
    sign = 1 if isinstance(family, ls.Conic) else -1
    primal = np.linalg.norm((family.A @ x.T).T + sign * points.s.astype(float) - target, axis=1)
    return primal, dual


def wild_solver(dtype="float64", seed=0):
    """Steps so long that inside blocks most instances are worse than where the block began."""
    P, q, A, l, u = random_qp(seed, n=8, equalities=2, inequalities=7)
    family = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(8)), dtype=dtype)
    solver = ls.Solver(family)
    rng, H = np.random.default_rng(seed), 12
    varying = {name: value * 10 ** rng.uniform(-1.5, 1.5, H) for name, value in solver.schedule.steady.items()}
    varying["alpha"] = rng.uniform(0.1, 1.9, H)
    return ls.Solver(family, ls.Schedule(varying, solver.schedule.steady, blocks=(4, 4, 4)))


def wild_schedule(solver, rng, blocks=(4, 4, 4)):
    """Steps of all lengths; a relaxation, where there is one, from its own range."""
    H, steady = sum(blocks), solver.schedule.steady
    varying = {name: value * 10 ** rng.uniform(-1.5, 1.5, H) for name, value in steady.items()}
    for name, role in find_roles(solver.algorithm, solver.family).items():
        if role == "relaxation":
            varying[name] = rng.uniform(0.1, 1.9, H)
    return ls.Schedule(varying, steady, blocks=blocks)


def wild_kind(kind):
    """Others: in few unknowns, in the condensed form, by SCS, and with the safeguard of single steps."""
    P, q, A, l, u = random_qp(1, n=3, equalities=1, inequalities=3) if kind == "small" else random_qp(0, n=8)
    family = ls.QP(P, A, q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(len(q), 8)))
    algorithm = Condensed() if kind == "condensed" else None
    if kind == "conic":
        cones = CONES["mixed"]
        P, A, b, c = random_conic(7, cones)
        family = ls.Conic(P, A, cones, b=b, c=c, parameter=ls.Affine(c=np.eye(len(c), 8)))
    schedule = wild_schedule(ls.Solver(family, algorithm=algorithm), np.random.default_rng(3))
    return ls.Solver(family, schedule, algorithm=algorithm, safeguard="step" if kind == "step" else "block")


PARAMETERS = np.random.default_rng(9).normal(size=(60, 8))
KINDS = {
    **{kind: functools.partial(wild_kind, kind) for kind in ("small", "condensed", "conic", "step")},
    "jax": wild_solver,
    "float32": lambda: wild_solver("float32"),
    "c": lambda: wild_solver().compile(),
    "c float": lambda: wild_solver().compile(precision="float"),
}


@pytest.mark.parametrize("kind", ["small", "condensed", "conic", "step", "jax", "float32", "c", "c float"])
def test_errors_are_of_the_points_that_solve_returns(kind):
    solver = KINDS[kind]()
    history = solver.run(PARAMETERS, 14)
    moved = 0
    counts, least = ((3, 6, 14), 10) if kind == "small" else (range(15), 30)
    # In single precision two programs that add in another order part by so much, over steps as long as these.
    rtol = 1e-2 if kind == "float32" else 1e-6
    for k in counts:
        primal, dual = returned(solver, PARAMETERS, k)
        np.testing.assert_allclose(history.primal[:, k], primal, rtol=rtol, atol=1e-9)
        np.testing.assert_allclose(history.dual[:, k], dual, rtol=rtol, atol=1e-9)
        if 0 < k < 12:
            moved += np.sum(np.isclose(history.dual[:, k], history.dual[:, k // 4 * 4]))
    assert moved > least or kind == "step", "no run ended inside a block that failed: the test sees nothing"
    assert history.safeguarded.any()


@pytest.mark.parametrize("kind", ["jax", "c", "c float"])
def test_certificates_hold_for_what_solve_returns_inside_a_block(kind):
    solver = KINDS[kind]()
    rng = np.random.default_rng(0)
    validation = Split("validation", solver.family, rng.normal(size=(400, 8)), None)
    certificate = ls.certify(solver, validation, [2, 6], level=0.9, confidence=0.99, metric="dual")
    further = rng.normal(size=(400, 8))
    for claim in certificate.claims:
        assert np.mean(returned(solver, further, claim.iterations)[1] < claim.tolerance) > 0.85
    assert certificate.verify(solver, validation) == certificate
    other = KINDS["jax" if kind != "jax" else "c"]()
    with pytest.raises(CertificateError, match="another solver"):
        certificate.verify(other, validation)


def test_evaluations_tell_of_instances_that_were_trained_on(solver, data):
    mixed = np.concatenate([data.test.parameters[:5], data.train.parameters[:2]])
    with pytest.warns(
        UserWarning, match=r"2 of the 7 instances of 'test' were used in training \(the first is number 5\)"
    ):
        found = ls.evaluate(solver, Split("test", data.train.family, mixed, None), 5, timed=False)
    assert found.trained == 2
    assert "2 of the instances were used in training" in str(comparison([found]))
    assert ls.evaluate(solver, data.test, 5, timed=False).trained == 0
    assert ls.evaluate(solver, data.train, 5, timed=False).trained == 8


# Guarantees.


def test_rates_hold_whatever_the_safeguard_does():
    """Seven eigenvalues, a schedule that solves them exactly at its end, and steps on which instances are sent back."""
    lam = np.array([0.05, 0.1, 0.4, 1.0, 2.0, 5.0, 9.0])
    family = ls.Quadratic(np.diag(lam), parameter=ls.Affine(q=np.eye(7)))
    schedule = ls.Schedule({"step": 1 / lam}, {"step": 0.2}, blocks=(3, 2, 2))
    x = np.random.default_rng(0).normal(size=(3000, 7)) * 10 ** np.random.default_rng(1).uniform(-3, 1, size=(3000, 7))
    for safeguard in ("block", "step", None):
        solver = ls.Solver(family, schedule, safeguard=safeguard)
        found = ls.guarantee(solver, range(1, 11))
        reached = np.zeros(10)
        for k in range(1, 11):
            z = solver.solve_batch(x, steps=k).x
            reached[k - 1] = np.max(np.linalg.norm(z + x / lam, axis=1) / np.linalg.norm(x / lam, axis=1))
        assert np.all(reached <= np.array(found.rates) * (1 + 1e-9) + 1e-8)
        if safeguard == "block":
            assert found.unguarded[6] < 1e-8
            assert reached[6] > 0.1, "the safeguard never acted: the test sees nothing"


def test_what_scs_needs_is_a_pair():
    """min x, ‖(x, y)‖ ≤ y: every y ≥ 0 with x = 0 is optimal, and there are no multipliers."""
    family = ls.Conic(
        None, -np.array([[0.0, 1], [1, 0], [0, 1]]), ls.Cones(second_order=(3,)), b=np.zeros(3), c=[1.0, 0]
    )
    text = str(ls.guarantee(ls.Solver(family)))
    assert "on every instance with an optimal primal-dual pair" in text
    assert "on every instance with an optimum" in str(ls.guarantee(wild_solver()))


def test_a_subclass_inherits_no_theorem():
    class Mine(ls.OSQP):
        """Takes other steps."""

    solver = ls.Solver(wild_solver().family, algorithm=Mine())
    assert "Eckstein" not in str(ls.guarantee(solver))
    assert "Whether the steady state of Mine converges is not known" in str(ls.guarantee(solver))
    assert _describe_convergence(solver) is None
    assert "Eckstein" in str(ls.guarantee(wild_solver()))
    assert "converges, in exact arithmetic" in _describe_convergence(wild_solver())


# Files of others.


def resealed(document, **changes):
    """A document with other content and the hash that fits it."""
    fields = {k: v for k, v in document.items() if k not in ("longstep", "version", "hash")} | changes
    return {"longstep": document["longstep"], "version": 1, **fields, "hash": ls.Certificate._hash(fields)}


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": None}, {"claims": [1]}, {"claims": [{}]}, {"claims": {"a": 1}}, {"lower": "abc"}, {"level": "high"},
        {"confidence": 2}, {"bound": "none"}, {"instances": 1.5}, {"instances": True}, {"versions": [1]},
        {"metric": 3}, {"convergence": {}}, {"method_hash": None}, {"level": 1e400},
    ],
    ids=repr,
)  # fmt: skip
def test_a_sealed_certificate_of_odd_content_is_refused(certificate, changes):
    document = json.loads(json.dumps(resealed(certificate.to_json(), **changes)))
    with pytest.raises(CertificateError):
        ls.Certificate.from_json(document)
    gone = resealed({k: v for k, v in certificate.to_json().items() if k not in changes})
    with pytest.raises(CertificateError, match="does not say what a certificate says"):
        ls.Certificate.from_json(gone)


@pytest.mark.parametrize("iterations", [10**9, 10**9 + 1, 10**30, 10**400])
def test_iterations_that_nobody_can_take_are_refused(solver, data, certificate, iterations):
    odd = (replace(certificate.claims[0], iterations=iterations), *certificate.claims[1:])
    with pytest.raises(CertificateError, match=r"cannot be computed again|iterations must be"):
        replace(certificate, claims=odd).verify(solver, data.validation)
    if iterations > 10**9:
        claims = [{**certificate.to_json()["claims"][0], "iterations": iterations}]
        with pytest.raises(CertificateError, match="does not say what"):
            ls.Certificate.from_json(resealed(certificate.to_json(), claims=claims))
        with pytest.raises(CertificateError, match="iterations must be"):
            replace(ls.guarantee(solver, 3), iterations=(iterations,)).verify(solver)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1]", "3", '{"longstep": "certificate", "version": "a"}', "\x00", "{}"]
)
def test_files_that_are_no_certificates(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CertificateError):
        ls.Certificate.load(tmp_path / "c.json")


@pytest.fixture(scope="module")
def programs():
    P, q, A, l, u = random_qp(3, equalities=2)
    family = ls.QP(P, A, q=q, l=l, u=u)
    parameters = {"q": q + np.random.default_rng(1).normal(size=(400, len(q)))}
    return family, ls.Dataset.from_parameters(family, {"validation": parameters}, iid=True, references=False)


def test_exactness_is_certified_by_order_statistics(programs, certificate):
    family, data = programs
    solver = ls.Solver(family, finish=2)
    found = ls.certify(solver, data.validation, [5, 10])
    tried = solver.solve_batch(data.validation.parameters, eps_abs=1e-9, eps_rel=1e-9, max_iter=2)
    changes = np.where(tried.exact, tried.changes, np.inf)
    # Two numbers of steps and the finish share 1 − 0.997; so many violations still prove 97.5%.
    allowed = max(v for v in range(400) if stats.binom.cdf(v, 400, 0.025) <= 0.003 / 3)
    claim = found.exact
    assert claim is not None
    assert claim.changes == np.sort(changes)[-1 - allowed]
    assert 0 < claim.changes < changes.max(), "all alike: the test sees nothing"
    assert (claim.steps, claim.success, claim.violations) == (2, 0.975, np.sum(changes > claim.changes))
    assert f"After 2 steps and at most {claim.changes} changes of the active set the point is exact" in str(found)
    assert ls.Certificate.from_json(found.to_json()) == found
    assert found.verify(solver, data.validation) == found
    assert certificate.exact is None, "there is no finish"


def test_exactness_of_c_is_that_of_jax(programs):
    family, data = programs
    solver = ls.Solver(family, algorithm=Condensed(), finish=2)
    claims = [ls.certify(s, data.validation, [4]).exact for s in (solver, solver.compile())]
    assert claims[0] is not None
    assert claims[0] == claims[1]
    assert ls.certify(solver.compile(precision="float"), data.validation, [4]).exact is None


def test_too_few_exact_points_claim_nothing():
    A = np.array([[1.0, 0], [0, 1], [1, 1]])
    family = ls.QP(np.eye(2), A, q=np.ones(2), u=np.array([1.0, 1.0, 9.0]))
    # Two numbers up to 1 do not add up to 5.
    sums = np.where(np.random.default_rng(2).random(300) < 0.2, 5.0, 1.5)
    lower = np.stack([0 * sums, 0 * sums, sums], axis=1)
    data = ls.Dataset.from_parameters(family, {"validation": {"l": lower}}, iid=True, references=False)
    found = ls.certify(ls.Solver(family, finish=2), data.validation, 5)
    assert found.exact is not None
    assert found.exact.changes == math.inf
    assert 30 < found.exact.violations < 90
    assert f"all but {found.exact.violations} of 300" in str(found)
    assert ls.Certificate.from_json(found.to_json()) == found
