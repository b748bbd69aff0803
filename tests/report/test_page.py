"""The page of a report: well-formed, alone, right in every number, safe with every name, and read by a real browser."""

import html
import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import longstep as ls
from longstep._util.storage import FileFormatError
from longstep._util.text import count_text, error_text, reached_text, seconds_text
from longstep.algorithms.condensed import Condensed
from longstep.cli import app
from longstep.evaluation.evaluate import TOLERANCES
from longstep.report import svg
from longstep.report.document import ReportDocument, load_document
from longstep.report.facts import describe_learned
from longstep.report.markup import Markup, tag
from longstep.report.page import make_page, write_page
from longstep.schedules.schedule import Schedule, constant
from longstep.training.record import Training
from longstep.training.select import Comparison

QUICK = {"horizon": 5, "block": 5, "iterations": 3, "candidates": 4, "cache": False, "progress": False}
SIZES = {"train": 8, "validation": 330, "test": 8}
# A name that would end an attribute, open an element and begin an entity.
ODD = '<b>&"'
SCRIPT = "<script>alert('x')</script>"
VOID = ("input", "meta", "br")


class Reader(HTMLParser):
    """A page as its elements and tables; an end without a beginning, or the reverse, is an error."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.names, self.attributes, self.words = [], [], [], []
        self.tables, self.hits, self.labels, self.labelled = [], [], [], False
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.labelled = ("class", "label") in attrs
        assert len({name for name, _ in attrs}) == len(attrs), attrs
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "title" and "svg" in self.stack:
            self.hits.append("")

    def handle_endtag(self, tag):
        assert self.stack, tag
        assert self.stack.pop() == tag
        self.words.append(" ")

    def handle_data(self, data):
        if "style" in self.stack or "script" in self.stack:
            return
        self.words.append(data)
        if "table" in self.stack and self.stack[-1] != "table" and ("td" in self.stack or "th" in self.stack):
            self.tables[-1][-1][-1] += data
        elif self.stack[-1:] == ["title"] and "svg" in self.stack:
            self.hits[-1] += data
        elif self.stack[-1:] == ["text"] and self.labelled:
            self.labels.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="module")
def report():
    """A tiny learned family whose every name is odd, with a metric on its rows."""
    # But for names the problem of tests/test_learning.py, so that nothing is compiled twice.
    x, c, low = cp.Variable(3, name=ODD), cp.Parameter(3, name=SCRIPT), cp.Parameter(name="low")
    bound = x >= low
    if hasattr(bound, "set_label"):
        bound.set_label(ODD)
    cost = cp.sum_squares(np.diag([1.0, 2.0, 5.0]) @ x) + c @ x
    problem = cp.Problem(cp.Maximize(-cost), [bound, cp.sum(x) == 1])
    samples = {SCRIPT: lambda rng: rng.normal(size=3), "low": lambda rng: -1 - rng.uniform()}
    _, report = ls.learn(problem, lambda rng: {k: f(rng) for k, f in samples.items()}, sizes=SIZES, **QUICK)
    training = report.training
    schedule = training.schedule
    rows = training.algorithm.metric_groups(report.data.train.family).size
    steps = {"rho": [0.1, 3.0], "alpha": [1.0, 1.9]}
    made = ls.Schedule(steps, schedule.steady, metric=np.linspace(0.5, 40.0, rows))
    return replace(report, training=replace(training, schedule=made))


@pytest.fixture(scope="module")
def page(report):
    return make_page(report.to_document())


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


@pytest.fixture(scope="module")
def folder(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    written = report.save(folder)
    assert folder / "report.html" in written
    return folder


# The page itself.


def test_it_is_well_formed_and_begins_with_the_verdict(report, page, read):
    assert page.startswith("<!DOCTYPE html>")
    assert read.names.count("html") == read.names.count("main") == 1
    ids = [value for _, name, value in read.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value for _, name, value in read.attributes if name == "for"} <= set(ids)
    assert report.verdict in read.text
    assert read.text.index(report.verdict) < read.text.index("Before and now")


def test_nothing_is_fetched(page, read):
    assert "://" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert not [name for _, name, _ in read.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert "link" not in read.names
    assert read.names.count("script") == 1


def test_names_are_escaped(report, page, read):
    assert ODD in read.text
    assert SCRIPT in read.text
    assert f"{ODD}[0]" in " ".join(read.hits)
    assert ODD not in page
    assert SCRIPT not in page
    assert html.escape(ODD) in page
    # Of elements called so there are those that the page has itself: one for each figure of the verdict.
    assert read.names.count("b") == page.count("<b>") == 3
    odd = replace(report, notes=[SCRIPT], command=f"learn {SCRIPT}")
    assert Reader(make_page(odd.to_document())).names.count("script") == 1


def test_rows_of_costs_are_the_reports(report, read):
    tables = [table for table in read.tables if table[0][1:3] == ["mean", "median"]]
    assert len(tables) == 2
    for eps, table in zip((1e-3, 1e-6), tables, strict=True):
        shown = {row[0].split(" (")[0]: row[1:] for row in table[1:]}
        costs = [cost for cost in report.costs.rows if cost.eps == eps]
        assert set(shown) == {cost.name for cost in costs} == {"learned", "best constant", "defaults", "osqp package"}
        now = costs[0]
        for cost in costs:
            wanted = [np.where(cost.done, cost.steps, cost.most).mean(), np.median(cost.steps)]
            wanted += [np.quantile(cost.steps, 0.95), cost.steps.max()]
            cells = [*map(count_text, wanted), str(cost.unsolved), seconds_text(cost.seconds)]
            cells[0] = f"≥ {cells[0]}" if cost.unsolved else cells[0]
            assert shown[cost.name][:6] == cells
            ratio = np.median(cost.steps) / max(np.median(now.steps), 1)
            assert shown[cost.name][6] == ("" if cost is now else f"{ratio:.3g}")
    assert [row[0] for row in tables[0][1:]] == [
        "osqp package (before)", "defaults (before)", "best constant", "learned (now)",
    ]  # fmt: skip


def test_iterations_to_tolerances_are_the_evaluations(report, read):
    (table,) = [table for table in read.tables if table[0][1:2] == ["over instances"]]
    for evaluation in report.evaluations:
        curves = {"mean": evaluation.geometric_mean, "median": evaluation.median}
        curves |= {"95%": evaluation.quantile(0.95), "worst": evaluation.maximum}
        for words, curve in curves.items():
            (row,) = [row for row in table if row[:2] == [evaluation.name, words]]
            assert row[2:-1] == [reached_text(evaluation.reached(t, curve)) for t in TOLERANCES]
            assert row[-1] == error_text(curve[-1])
    assert [row[0] for row in table[1:]].count("osqp package") == 4


def test_every_row_has_its_convergence_with_its_tail(report, read):
    for e in report.evaluations:
        for k in (0, 3, e.iterations):
            late = e.quantile(0.95)[k]
            errors = f"median {error_text(e.median[k])}, 95% {error_text(late)}, worst {error_text(e.maximum[k])}"
            assert f"k = {k}: {errors}" in read.hits
    package = report.package
    errors = f"median {error_text(np.sort(package.values[:, 5])[3])}, 95% {error_text(package.values[:, 5].max())}"
    assert any(hit.startswith(f"k = 10: {errors}") for hit in read.hits)
    assert "osqp package, 8 instances" in read.text


def test_the_share_of_solved_instances_is_told(report, read):
    cost = report.costs.of("defaults")[0]
    told = [hit for hit in read.hits if re.match(r"[\d,]+ steps: ", hit)]
    assert told
    for hit in told:
        count = int(hit.split(" ")[0].replace(",", ""))
        shares = [
            f"{name} {100 * np.mean(c.done & (c.steps <= count)):.3g}%"
            for name, c in ((name, report.costs.of(name)) for name in report.costs.names)
            for c in [c[0], c[1]]
        ]
        assert any(share in hit for share in shares if share.startswith("defaults"))
    assert any(f"defaults {100 * np.mean(cost.steps <= 1000):.3g}%" in hit for hit in told)


def test_schedule_metric_time_promise_and_origin(report, read):
    training = report.training
    assert f"step 1: rho {training.schedule['rho'][1]:.4g}" in read.hits
    assert any(hit.startswith(f"[2] ({ODD}[2]): penalty × {training.schedule.metric[2]:.3g}") for hit in read.hits)
    rows = {row[0]: row[1] for table in read.tables for row in table if len(row) == 4}
    for phase in ("references", "training", "selection", "test", "certificate"):
        assert rows[phase] == seconds_text(report.timing[phase])
    assert f"{report.certificate.exact.changes} changes of the active set" in read.text
    for claim in report.certificate.claims:
        assert report.certificate.sentence(claim) in read.text
    assert report.command in read.text
    assert report.command.startswith("longstep.learn(problem, samples, sizes=")
    for name, version in training.record["versions"].items():
        assert f"{name} {version}" in read.text


def test_constraints_that_are_not_drawn_are_told(report):
    document = report.to_document()
    (group,) = document.learned.metric
    many = tuple(replace(group, name=f"constraint number {i}") for i in range(30))
    found = Reader(make_page(replace(document, learned=replace(document.learned, metric=many))))
    assert "These are 24 of 30 constraints; report.json has all." in found.text
    assert found.text.count("constraint number") == 24


def test_it_is_whole_without_script_and_has_both_axes(page, read):
    classes = [value for _, name, value in read.attributes if name == "class"]
    # Two panels of shares, four of errors.
    assert classes.count("as-log") == classes.count("as-lin") == 6
    assert read.names.count("input") == 4
    assert "@media print" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    # What is pointed at is told by the browser itself too.
    assert read.hits.count("") == 0
    assert len(read.hits) == classes.count("hit")


def test_both_axes_of_every_panel_have_a_unit(read):
    # Ranges have one axis, with methods beside it; shares and errors are drawn in two scales.
    panels = read.names.count("figure")
    assert len(read.labels) == 2 * 1 + 2 * 2 * 2 + 4 * 2 * 2 + 2 * (panels - 2 - 2 - 4)
    assert all(re.search(r" \[[^\]]+\]$", label) for label in read.labels), read.labels
    for label in ("instances solved [%]", "error [units of the problem]", "rho [cost/unit²]", "metric [1]"):
        assert label in read.labels


def test_a_notebook_shows_the_same_page(report, page):
    framed = report._repr_html_()
    (source,) = [value for _, name, value in Reader(framed).attributes if name == "srcdoc"]
    assert source == page


# What it is made of.


def test_a_saved_report_gives_the_same_page(report, page, folder):
    assert make_page(load_document(folder)) == make_page(load_document(folder / "report.json")) == page
    assert (folder / "report.html").read_text() == page


def test_reports_of_earlier_versions_have_a_page(folder):
    fields = json.loads((folder / "report.json").read_text())
    kept = ("table", "kept", "instances", "memory", "certificate", "notes", "costs", "verdict", "timing", "seconds")
    old = {name: fields[name] for name in kept}
    old["costs"] = [{k: v for k, v in row.items() if k != "steps"} for row in old["costs"]]
    found = Reader(make_page(ReportDocument.of(old)))
    assert fields["verdict"] in found.text
    assert "Before and now" in found.text
    assert "Convergence" not in found.text
    older = old | {"costs": None, "verdict": None}
    assert "Kept: " in Reader(make_page(ReportDocument.of(older))).text


def test_unconstrained_families_have_a_verdict_of_their_iterations():
    family = ls.Quadratic(np.diag([1.0, 4.0]), parameter=ls.Affine(q=np.eye(2)))
    past = np.random.default_rng(0).normal(size=(12, 2))
    _, report = ls.learn(family, past, **QUICK)
    found = Reader(make_page(report.to_document()))
    learned = report.evaluations[0]
    tolerance = min(t for t in TOLERANCES if learned.reached(t)[1] is not None)
    told = ", ".join(f"{e.name} {e.reached(tolerance)[1] or 'never'}" for e in report.evaluations)
    assert f"stays below {tolerance:.0e}".replace("e-0", "e-") + f": {told}." in found.text
    assert "error [units of the objective]" in found.text
    assert "rarely independent" in found.text


def test_it_is_written_whole_or_not_at_all(report, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before")

    def fail(*arguments):
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no room"):
            write_page(report.to_document(), path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
    write_page(report.to_document(), path)
    assert path.read_text().startswith("<!DOCTYPE html>")


# The command.


def invoke(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)], prog_name="longstep")


def test_the_command_makes_the_page(report, page, folder, tmp_path):
    result = invoke(folder, "--out", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    assert report.verdict in result.stdout
    assert (tmp_path / "a.html").read_text() == page
    result = invoke(folder / "report.json", "--out", tmp_path / "b.html", "--json")
    assert json.loads(result.stdout)["verdict"] == report.verdict
    assert (tmp_path / "b.html").read_text() == page


def changed(folder, path, **fields):
    path.write_text(json.dumps(json.loads((folder / "report.json").read_text()) | fields))
    return path


def test_bad_input_is_refused_with_what_to_do(folder, tmp_path):
    fields = json.loads((folder / "report.json").read_text())
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.json").write_text("not JSON")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "mpc.longstep").write_bytes(b"")
    broken = fields["certificate"] | {"confidence": 0.5}
    ragged = [e | {"curves": e["curves"] | {"median": [1.0]}} for e in fields["evaluations"]]
    cases = {
        tmp_path / "nowhere": "there is no file",
        tmp_path / "empty": "there is no report.json in the folder",
        tmp_path / "text.json": "is damaged or is not a longstep file",
        tmp_path / "list.json": "holds a list, not an object",
        tmp_path / "bytes.json": "is no JSON",
        tmp_path / "mpc.longstep": "is a solver, and a page is made of a report",
        folder / "certificate.json": "holds a certificate of longstep, not a report",
        changed(folder, tmp_path / "notes.json", notes=3): "3 is not a list",
        changed(folder, tmp_path / "kept.json", kept=None): "None is not a text",
        changed(folder, tmp_path / "costs.json", costs=[{"method": "a"}]): "KeyError: 'eps'",
        changed(folder, tmp_path / "curves.json", evaluations=ragged): "curves differ in length",
        changed(folder, tmp_path / "sealed.json", certificate=broken): "has been changed since it was made",
    }
    for source, words in cases.items():
        result = invoke(source, "--out", tmp_path / "page.html")
        assert result.exit_code == 1, source
        (line,) = result.stderr.strip().splitlines()
        assert line.startswith("Error: ")
        assert words in line, line
        assert result.stdout == ""
        assert not (tmp_path / "page.html").exists()
    for source in ("nowhere", "empty", "mpc.longstep", "costs.json"):
        assert "longstep learn … --report" in invoke(tmp_path / source, "--out", tmp_path / "page.html").stderr
    result = invoke(folder, "--out", tmp_path)
    assert f"--out {tmp_path} is a folder: name a file" in result.stderr
    with pytest.raises(FileFormatError, match="is not a report"):
        ReportDocument.of({"kept": "x"})


# Its parts.


@pytest.mark.parametrize("kind", ["log", "lin"])
@pytest.mark.parametrize(("low", "high"), [(1e-13, 10.0), (0.02, 0.4), (1.0, 1000.0), (3.0, 3.1)])
def test_scales_keep_the_order_and_have_round_ticks(kind, low, high):
    scale = svg.Scale(low, high, 200.0, 10.0, kind)
    places = [scale.place(v) for v in np.linspace(low, high, 9)]
    assert places[0] == 200
    assert places[-1] == 10
    assert places == sorted(places, reverse=True)
    assert scale.place(math.inf) == scale.place(math.nan) == 10
    assert scale.place(-math.inf) == 200
    ticks = scale.choose_ticks()
    room = 1e-6 * (low if kind == "log" else high - low)
    assert all(low - room <= t <= high * (1 + 1e-6) for t in ticks)
    assert len(ticks) <= 9
    assert len({svg.show_number(t) for t in ticks}) == len(ticks)
    assert len(ticks) >= 2 or (kind == "log" and high < 2 * low)


def test_elements_escape_what_is_no_markup():
    assert tag("p", "<", Markup("<br>"), title='"') == '<p title="&quot;">&lt;<br></p>'
    assert tag("input", checked=True, id=None, class_="a") == '<input checked class="a">'


# A browser.

PROBE = """
<script>
window.addEventListener("load", function () {
  var hit = document.querySelector("figure.panel .hit");
  hit.dispatchEvent(new PointerEvent("pointerenter"));
  document.getElementById("errors-lin").click();
  var shown = Array.from(document.querySelectorAll(".as-log")).map(function (drawn) {
    return drawn.getBoundingClientRect().width > 0;
  });
  document.body.dataset.read = hit.closest("figure").querySelector(".read").textContent;
  document.body.dataset.shown = shown.join(",");
  document.body.dataset.overflow = String(document.documentElement.scrollWidth - window.innerWidth);
});
</script>
"""


@pytest.mark.parametrize("width", [1300, 500])
def test_a_browser_runs_it_without_an_error(page, tmp_path, width):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no chromium here to open the page with")
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"{PROBE}</body>"))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", "--virtual-time-budget=3000"]
    done = subprocess.run([browser, *options, path.as_uri()], capture_output=True, text=True, timeout=60, check=False)
    assert "CONSOLE" not in done.stderr, done.stderr
    (body,) = re.findall(r"<body[^>]*>", done.stdout)
    found = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', body)}
    assert re.match(r"osqp package: median \d+, 95% \d+, worst \d+", found["read"])
    # The switch of errors turns the four panels of errors to their linear axis, and leaves the shares.
    assert found["shown"] == "true,true,false,false,false,false"
    assert float(found["overflow"]) <= 0


@pytest.mark.parametrize(("algorithm", "named"), [(Condensed(), [1, 3]), (ls.OSQP(), [0, 1, 3])])
def test_rows_without_bounds_have_no_entry_of_the_metric(algorithm, named):
    A = np.vstack([np.ones(3), np.eye(3)])
    family = ls.QP(np.eye(3), A, q=np.zeros(3), l=[1.0, 0.0, -np.inf, 0.0], u=[1.0, 2.0, np.inf, 2.0])
    metric = np.arange(1.0, 1.0 + len(named))
    schedule = Schedule({}, constant(algorithm.hyperparameters(family)).steady, metric=metric)
    training = Training(schedule, schedule, algorithm, Comparison((), (), (), ""), "the constant", {})
    facts = describe_learned(training, family, None)
    found = [(entry, value) for g in facts["metric"] for entry, value in zip(g["entries"], g["values"], strict=True)]
    assert found == [(f"row {i}", value) for i, value in zip(named, metric, strict=True)]
