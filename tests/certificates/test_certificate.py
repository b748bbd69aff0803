"""Certificates: what they say follows from the counts, and whatever does not match is refused with its own message."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import longstep as ls
from longstep.certificates.document import CertificateError
from longstep.certificates.sample import TOLERANCES, kl_upper
from longstep.families.dataset import Split

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
    found = ls.certify(solver, data.validation, [2, 4], level=0.9, confidence=0.99)
    values = ls.evaluate(solver, data.validation, 4, timed=False).values
    c = math.log(2 * 2 * 2 * 151 / 0.01) / 400
    for claim, lower in zip(found.claims, found.lower, strict=True):
        risks = np.array([np.mean(values[:, claim.iterations] >= t) for t in TOLERANCES])
        assert claim.tolerance == TOLERANCES[kl_upper(risks, c) < 0.1][0]
        assert lower == TOLERANCES[1 - kl_upper(1 - risks, c) > 0.9][-1]
        assert lower < claim.tolerance
    assert found.bound == "kl"


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
    assert "no tolerance" in str(found)
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
    np.testing.assert_allclose(found.rates, expected, rtol=1e-9)
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
