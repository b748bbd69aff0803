"""Tables: exact renderings of a case done by hand, statistics by SciPy, and what is refused."""

import io
import json
import math
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from rich.console import Console
from scipy import stats

import longstep as ls
from longstep._util.text import bound_above, bound_below, seconds_text
from longstep.certificates.certificate import Certificate, Claim
from longstep.certificates.sample import TOLERANCES
from longstep.evaluation.evaluate import Evaluation
from longstep.report.tables import (
    Column,
    Table,
    certificate_table,
    comparison,
    statistics_table,
    tabulate_certified,
)


def evaluation(values, name="a", safeguarded=0, seconds=None, **fields):
    values = np.asarray(values, float)
    about = {"split": "test", "metric": "suboptimality", "measure": "f − f*"}
    about |= {"trained": 0, "method_hash": name, "data_hash": "data", "versions": {}} | fields
    safe = np.arange(len(values)) < safeguarded
    return Evaluation(name=name, values=values, safeguarded=safe, seconds=seconds, **about)


def certificate(claims, lower=(), level=None, **fields):
    about = {"metric": "suboptimality", "measure": "f − f*", "confidence": 0.99, "bound": "kl", "instances": 500}
    about |= {"distinct": 500, "split": "validation", "method": "GradientDescent", "convergence": None}
    about |= {"method_hash": "a", "data_hash": "validation data", "versions": {}} | fields
    return Certificate(claims=tuple(claims), lower=tuple(lower), level=level, **about)


# Geometric means: learned 4, 0.04, 0.4, 0.004, 4e-6; plain 4, 2, 1, 0.5, 0.25; both at 4 instances.
LEARNED = evaluation(
    [[2, 0.02, 0.2, 0.002, 1e-6], [8, 0.08, 0.8, 0.008, 1.6e-5], *[[4, 0.04, 0.4, 0.004, 4e-6]] * 2],
    "learned | 10",
    safeguarded=1,
    seconds=1.82e-5,
)
PLAIN = evaluation(np.outer([1, 1, 1, 1], [4, 2, 1, 0.5, 0.25]), "plain")
TOLERANCE = (0.5, 1e-1, 1e-3)


def test_text_of_a_comparison():
    expected = """\
Iterations until f − f* is at most the tolerance, geometric mean over 4 instances of 'test'
method        5e-1   1e-1  1e-3  95% at 4  max at 4  safeguarded     time
────────────  ────  ─────  ────  ────────  ────────  ───────────  ───────
learned | 10     1  1 (3)     4    1.6e-5    1.6e-5          1/4  18.2 µs
plain            3      –     –    2.5e-1    2.5e-1          0/4
In brackets: from where it stays there. –: not within 4 iterations. Time: 4 iterations, per instance."""
    table = comparison([LEARNED, PLAIN], TOLERANCE)
    assert table.text() == expected
    # Printed, it fits a terminal: the same words in the same order, in lines of at most 80 columns.
    assert max(map(len, str(table).splitlines())) <= 80
    assert str(table).split() == expected.split()


def test_printed_tables_fit_eighty_columns():
    names = {e.name: replace(e, name=f"{e.name}, with a ladder") for e in (LEARNED, PLAIN)}
    wide = comparison(names.values(), [0.5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
    lines = str(wide).splitlines()
    assert max(map(len, wide.text().splitlines()[1:-1])) > 80
    assert max(map(len, lines)) <= 80
    # Two tables of about the same width, not one that is full and one with the last column.
    first, second = (len(line) for line in lines if line.startswith("───"))
    assert abs(first - second) < 15
    assert sum(line.startswith("method") for line in lines) == 2
    for row in wide.cells():
        assert all(cell in str(wide) for cell in row)


def test_markdown_of_a_comparison():
    expected = """\
**Iterations until f − f\\* is at most the tolerance, geometric mean over 4 instances of 'test'**

| method | 5e-1 | 1e-1 | 95% at 0 | max at 0 | 95% at 2 | max at 2 | safeguarded | time |
| :-- | --: | --: | --: | --: | --: | --: | --: | --: |
| learned \\| 10 | 1 | 1 (3) | 8.0e0 | 8.0e0 | 8.0e-1 | 8.0e-1 | 1/4 | 18.2 µs |
| plain | 3 | – | 4.0e0 | 4.0e0 | 1.0e0 | 1.0e0 | 0/4 |  |

In brackets: from where it stays there. –: not within 4 iterations. Time: 4 iterations, per instance."""
    assert comparison([LEARNED, PLAIN], (0.5, 0.1), at=[0, 2]).markdown() == expected


def test_json_of_a_comparison_is_plain_data():
    blown = evaluation(np.array([[1, 0.01, np.inf], [1, 0.01, 0.01]]), "blown", data_hash="data")
    data = comparison([blown, replace(blown, name="again", safeguarded=np.array([True, True]))], [0.1]).to_json()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["columns"] == ["method", "1e-1", "95% at 2", "max at 2", "safeguarded"]
    row = {"method": "blown", "1e-1": [1, None], "95% at 2": None, "max at 2": None, "safeguarded": [0, 2]}
    assert data["rows"] == [row, row | {"method": "again", "safeguarded": [2, 2]}]


def test_a_curve_that_blows_up_is_shown_as_such():
    blown = evaluation([[1, 0.01, np.inf], [1, 0.01, 0.01]])
    line = comparison([blown], [0.1, 1e-3]).text().splitlines()[3]
    assert line.split() == ["a", "1", "(–)", "–", "∞", "∞", "0/2"]


def test_tails_are_quantiles_at_the_asked_iterations():
    values = np.random.default_rng(0).lognormal(sigma=3, size=(237, 61))
    e = evaluation(values)
    for at, columns in ((None, [50]), ([60], [60]), ([7, 20], [7, 20])):
        row = comparison([e], [1e-1], at=at).rows[0]
        wanted = [v for k in columns for v in (np.sort(values[:, k])[math.ceil(0.95 * 237) - 1], values[:, k].max())]
        assert row[2 : 2 + len(wanted)] == tuple(wanted)
    assert "95% at 20" in comparison([evaluation(values[:, :30])]).text()
    assert "95% at 7" in comparison([evaluation(values[:, :8])]).text()


def test_runs_of_different_lengths_say_how_long():
    table = comparison([LEARNED, replace(PLAIN, values=PLAIN.values[:, :3])], [0.1])
    assert [c.name for c in table.columns] == [
        "method", "1e-1", "95% at 2", "max at 2", "safeguarded", "run for", "time",
    ]  # fmt: skip
    assert [row[5] for row in table.rows] == [4, 2]
    assert "–: not within the iterations that the method was run for." in table.note


def test_statistics_at_chosen_iterations():
    values = np.random.default_rng(1).lognormal(sigma=2, size=(301, 31))
    table = statistics_table(evaluation(values), at=[0, 30])
    assert [c.name for c in table.columns] == ["iterations", "geometric mean", "median", "95%", "99%", "max"]
    for row, k in zip(table.rows, (0, 30), strict=True):
        ordered = np.sort(values[:, k])
        wanted = [k, stats.gmean(values[:, k]), ordered[150], ordered[285], ordered[297], ordered[300]]
        np.testing.assert_allclose(row, wanted, rtol=1e-12)
    assert [row[0] for row in statistics_table(evaluation(values)).rows] == [0, 10, 20, 30]
    assert table.title == "a: f − f*, 301 instances of 'test'"


def test_rich_tables_have_everything_at_every_width():
    table = comparison([replace(LEARNED, name="[bold]learned[/bold]"), PLAIN], TOLERANCE, at=[0, 2, 4])
    texts = [c for row in table.cells() for c in row]
    for width in (200, 80, 50):
        stream = io.StringIO()
        Console(file=stream, width=width).print(table)
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        for text in texts:
            assert text in stream.getvalue()
        assert stream.getvalue().count("[bold]learned[/bold]") == sum("method" in line for line in lines)
    assert max(map(len, table.text(50).splitlines()[1:-1])) <= 50
    assert all(text in table.text(50) for text in texts)


# What is refused.


def test_only_the_same_instances_and_metric_are_compared():
    with pytest.raises(ValueError, match=r"'learned . 10' and 'plain' cannot be compared: the instances differ.*split"):
        comparison([LEARNED, replace(PLAIN, data_hash="other", split="validation")])
    with pytest.raises(ValueError, match="metrics are 'suboptimality' and 'gap'"):
        comparison([LEARNED, replace(PLAIN, metric="gap")])
    with pytest.raises(ValueError, match="two evaluations have the name 'plain'"):
        comparison([PLAIN, PLAIN])
    for nothing in ([], [1.0]):
        with pytest.raises(TypeError, match="results of `evaluate`"):
            comparison(nothing)


def test_bad_tolerances_and_counts_are_refused():
    for tolerances in ([], [0.0], [math.inf], [1e-3, 0.0010000001]):
        with pytest.raises(ValueError, match="tolerances must be positive"):
            comparison([PLAIN], tolerances)
    for at in ([], [5], [-1], [2, 2]):
        with pytest.raises(ValueError, match="between 0 and 4"):
            comparison([PLAIN], at=at)
        with pytest.raises(ValueError, match="between 0 and 4"):
            statistics_table(PLAIN, at=at)


# Certificates.

QUANTILES = certificate(
    [Claim(0, math.inf, 0.975, 500), Claim(1, TOLERANCES[52], 0.975, 2)], (TOLERANCES[31], 0.0), 0.975,
    convergence="The steady state converges.", distinct=499,
)  # fmt: skip


def test_text_of_a_certificate():
    expected = """\
GradientDescent: f − f*, certified on 500 instances of 'validation'
iterations    below  on at least  violations  not below, on as many
──────────  ───────  ───────────  ──────────  ─────────────────────
         0        ∞        97.5%     500/500                1.25e-7
         1  1.59e-5        97.5%       2/500                      0
All hold together with confidence 0.99 (kl bounds), for independent instances. ∞: nothing could be certified. Only 499 \
of the instances are distinct. The steady state converges."""
    assert certificate_table(QUANTILES).text() == expected
    single = certificate_table(certificate([Claim(5, 1e-3, 0.97689, 0)], bound="exact"))
    assert single.text().splitlines()[3].split() == ["5", "1.00e-3", "97.6%", "0/500"]
    assert single.rows == ((5, 1e-3, 0.97689, (0, 500)),)


@given(value=st.floats(1e-12, 1e9))
def test_bounds_are_rounded_to_the_safe_side(value):
    above, below = float(bound_above(value)), float(bound_below(value))
    assert value * (1 - 1e-12) <= above <= value * 1.0101
    assert value / 1.0101 <= below <= value * (1 + 1e-12)


def test_powers_of_ten_stay_what_they_are():
    for power, value in zip(range(-10, 6), TOLERANCES[::10], strict=True):
        assert bound_above(value) == bound_below(value) == f"1.00e{power}"


def test_certificates_against_further_instances():
    values = np.stack([np.full(200, 1.0), (np.arange(200) + 0.5) * 5e-8], axis=1)
    claims = [Claim(1, 9e-6, 0.85, 3), Claim(1, 5e-6, 0.52, 9), Claim(1, 1e-6, 0.5, 9), Claim(0, math.inf, 0.9, 9)]
    table = tabulate_certified(certificate(claims), evaluation(values))
    assert [row[0] for row in table.rows] == [1, 1, 1]  # ∞ claims nothing
    for row, claim in zip(table.rows, claims, strict=False):
        successes = sum(value < claim.tolerance for value in values[:, 1])
        assert row[1:6] == (("<", claim.tolerance), claim.success, successes / 200, (successes, 200), row[5])
        assert row[5] == (successes / 200 >= claim.success)
        p = stats.binomtest(successes, 200, claim.success, alternative="less").pvalue
        assert row[6] == pytest.approx(p, rel=1e-9)
    assert [row[5] for row in table.rows] == [True, False, False]
    assert table.note == "1 of 3 claims hold."
    cells = table.text().splitlines()[3].split()
    assert cells == ["1", "<", "9.00e-6", "85%", "90%", "180/200", "yes", "0.99"]
    json.dumps(table.to_json(), allow_nan=False)


def test_lower_curves_are_checked_too():
    values = np.full((100, 2), 1e-6)
    values[:3, 0] = 1e-8
    table = tabulate_certified(QUANTILES, evaluation(values))
    assert [(row[0], row[1][0], row[4], row[5]) for row in table.rows] == [
        (0, "≥", (97, 100), False), (1, "<", (100, 100), True),
    ]  # fmt: skip
    nothing = tabulate_certified(certificate([Claim(1, math.inf, 0.975, 500)], (0.0,), 0.975), evaluation(values))
    assert nothing.rows == ()
    assert nothing.note == "Nothing was certified that could be observed."


def test_only_further_instances_of_the_same_method_count():
    c, e = QUANTILES, evaluation(np.ones((3, 2)))
    with pytest.raises(ValueError, match="of another method"):
        tabulate_certified(c, replace(e, method_hash="b"))
    with pytest.raises(ValueError, match="Evaluate with metric='suboptimality'"):
        tabulate_certified(c, replace(e, metric="gap"))
    with pytest.raises(ValueError, match=r"they cannot confirm it. Evaluate on further ones"):
        tabulate_certified(c, replace(e, data_hash="validation data"))
    with pytest.raises(ValueError, match="speaks of 1 iterations, the evaluation has 0"):
        tabulate_certified(c, replace(e, values=e.values[:, :1]))


def test_a_certificate_of_a_solver_holds_on_its_test_instances():
    family = ls.Quadratic(np.diag([1.0, 2.0]), parameter=ls.Affine(q=np.eye(2)))
    sizes = {"validation": 1000, "test": 500}
    data = ls.Dataset.sample(family, lambda rng: rng.normal(size=2), sizes, references=False)
    solver = ls.Solver(family, step=0.4)
    evaluated = ls.evaluate(solver, data.test, 8, timed=False)
    table = tabulate_certified(ls.certify(solver, data.validation, [4, 8]), evaluated)
    assert len(table.rows) == 4
    for k, (side, bound), certified, observed, _, holds, _ in table.rows:
        column = evaluated.values[:, k]
        assert observed == np.mean(column < bound if side == "<" else column >= bound)
        assert holds
        assert certified == 0.975


def test_times_are_readable():
    shown = {2: "2 s", 0.9996: "1 s", 1.5e-3: "1.5 ms", 18.24e-6: "18.2 µs", 4.44e-8: "44.4 ns", 123.4: "123 s"}
    assert {s: seconds_text(s) for s in shown} == shown
    assert seconds_text(None) == ""


def test_cells_stay_on_one_line():
    table = Table("title", (Column("method"), Column("n")), (("two\nlines", 1), ("b", 22)), "note")
    assert table.text() == "title\nmethod      n\n─────────  ──\ntwo lines   1\nb          22\nnote"
