"""Claims and tables of the texts against the kept rows, and the runner on jobs of its own."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from evidence.__main__ import list_texts, main
from evidence.claims import Quantity, check_words, follow, judge, read_claims, read_text
from evidence.jobs import read_jobs
from evidence.tables import EXPERIMENTS, MARKED, TABLES, merge_cells, read_rows, render, rewrite

ROOT = Path(__file__).parent.parent
JOBS = read_jobs(ROOT / "evidence" / "jobs.toml")
CLAIMS = read_claims(ROOT / "evidence" / "claims.toml")
ROWS = read_rows(ROOT / "evidence" / "rows")
VERDICTS = judge(CLAIMS, {name: kept["results"] for name, kept in ROWS.items() if name != "said"}, {})
MEASURES = re.compile(r"`(make [\w-]+|python benchmarks/\w+\.py)[^`]*`")


def test_claims_stand_in_the_texts_with_their_numbers():
    assert check_words(CLAIMS, list(JOBS), ROOT) == []


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claims_are_well_formed(claim):
    for quantity in claim.quantities:
        assert quantity.target is not None
        assert quantity.direction in ("at most", "at least", "about")
        # Without a tolerance only counts can be `about` something.
        assert quantity.direction != "about" or quantity.tolerance > 0 or float(quantity.target).is_integer()
        assert quantity.quick is None or JOBS[quantity.job].quick, f"{quantity.job} has no quick form"


def test_the_kept_rows_bear_the_claims_out():
    assert not [f"{v.claim.id}: {v.quantity.said}, {v.shown} {v.reason}" for v in VERDICTS if v.holds is False]
    assert sum(v.holds is True for v in VERDICTS) > 20


@pytest.mark.parametrize("page", list_texts(ROOT), ids=lambda page: page.name)
def test_tables_are_what_the_rows_give(page):
    text = page.read_text(encoding="utf-8")
    assert rewrite(text, ROWS, VERDICTS) == text, "run python -m evidence --write"
    assert text.count("<!-- evidence:") == len(MARKED.findall(text)), "a marker has no end"


def test_every_table_is_in_a_text_and_has_rows_or_its_old_lines():
    marked = {found["name"] for page in list_texts(ROOT) for found in MARKED.finditer(page.read_text(encoding="utf-8"))}
    assert marked == {*TABLES, "claims", "runs"}
    for name, table in TABLES.items():
        assert set(table.jobs) <= set(JOBS)
        assert len(render(name, ROWS, VERDICTS)) > 3
    assert not [name for name in ROWS if name not in JOBS and name != "said"]


@pytest.mark.parametrize("job", JOBS.values(), ids=lambda job: job.name)
def test_commands_are_there(job):
    """The script with all its options, and what they write."""
    for command in filter(None, (job.command, job.quick)):
        words = shlex.split(command)
        assert words[0] == "python"
        if words[1] == "-m":
            assert words[2] in ("longstep", "tests.fuzz")
            continue
        script = (ROOT / words[1]).read_text(encoding="utf-8")
        for option in (word for word in words if word.startswith("--")):
            assert f'"{option}"' in script, f"{words[1]} has no {option}"
        assert "{out}" in command or job.result
    assert len(job.seeds) == 1 or "{seed}" in job.command


def test_make_targets_of_the_texts_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert "evidence" in targets
    for page in list_texts(ROOT):
        asked = re.findall(r"`make ([\w-]+)", page.read_text(encoding="utf-8"))
        assert set(asked) <= targets, page.name


def test_measured_sentences_of_the_readme_are_claims():
    """A sentence with a figure and the command that measures it has a claim, or a table right after it."""
    text = read_text(ROOT / "README.md").split("## What it does well")[1]
    claimed = [(at, at + len(c.words)) for c in CLAIMS if c.file == "README.md" and (at := text.find(c.words)) >= 0] + [
        (found.start() - 400, found.end()) for found in re.finditer("<!-- evidence:", text)
    ]
    ends = [0, *(found.end() for found in re.finditer(r"[.:] (?=[A-Z*<|-])", text)), len(text)]
    for begin, end in pairwise(ends):
        sentence = text[begin:end]
        if MEASURES.search(sentence) and re.search(r"\d", MEASURES.sub("", sentence)):
            assert any(first < end and begin < last for first, last in claimed), f"no claim covers: {sentence}"


def read_table(lines):
    """The rows of a Markdown table by their first cell that is not empty, without its links."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return cells[0], cells[2:]


# What the overview calls the rows of the page of logistic regression.
LOGISTIC = EXPERIMENTS["reproduce_logistic"][1]


def test_the_overview_of_logistic_regression_is_the_run_of_its_page():
    overview = (ROOT / "docs" / "results.md").read_text().splitlines()
    begin = next(k for k, line in enumerate(overview) if line.startswith("| [logistic]"))
    end = next(k for k, line in enumerate(overview) if line.startswith("| [lasso]"))
    page = (ROOT / "docs" / "results" / "logistic.md").read_text().split("\n\n")
    _, rows = read_table(next(part for part in page if part.startswith("| method")).splitlines())
    theirs = {name: cells for name, *cells in rows}
    _, ours = read_table(["| | |", "| | |", *overview[begin:end]])
    found = {name: cells for _, name, *cells in ours if not name.startswith("*")}
    assert set(found) == set(LOGISTIC)
    for name, cells in found.items():
        of_page = theirs[LOGISTIC[name]]
        assert cells[:6] == of_page[:6], name
        assert cells[6].split(" ")[0] in (of_page[6], ""), name


def test_the_overview_compares_networks_as_the_page_of_the_filter_does():
    overview = (ROOT / "docs" / "results.md").read_text()
    page = (ROOT / "docs" / "results" / "kalman.md").read_text().split("\n\n")
    _, rows = read_table(next(part for part in page if part.startswith("| method")).splitlines())
    theirs = {name: " ".join(cells[:6]) for name, *cells in rows}
    assert f"L2WS takes {theirs['L2WS, N = 1000']} iterations" in overview
    assert f"from 10 instances, {theirs['learned, N = 10']} (first" in overview


def test_the_overview_says_how_many_lie_between_the_certified_curves():
    said = float(re.search(r"lie at least ([\d.]+)% of", (ROOT / "docs" / "results.md").read_text())[1])
    pages = [path.read_text() for path in (ROOT / "docs" / "results").glob("*.md")]
    found = [
        float(text) for page in pages for text in re.findall(r"At least ([\d.]+)% of the test instances lie", page)
    ]
    assert len(found) == 5
    assert said == min(found)


def test_the_overview_is_at_most_the_research_code_but_where_it_says():
    """First touch against first touch, for the first row of each experiment."""
    overview = (ROOT / "docs" / "results.md").read_text()
    head, rows = read_table([line for line in overview.splitlines() if line.startswith("|")])
    columns = [k for k, name in enumerate(head) if name.startswith("1e-")]
    experiment, worse = "", set()
    learned: dict[str, list[str]] = {}
    for cells in rows[: next(k for k, cells in enumerate(rows) if "maxcut" in cells[0]) + 4]:
        experiment = re.sub(r"[\[\]]|\(.*?\)", "", cells[0]) or experiment
        if cells[1].startswith("learned") and cells[1] != "learned with momentum, exact":
            learned.setdefault(experiment, cells)
        if "research code" in cells[1]:
            for k in columns:
                ours, theirs = learned[experiment][k].split(" ")[0], cells[k].strip("*")
                if theirs.isdigit() and not (ours.isdigit() and int(ours) <= int(theirs)):
                    worse.add((experiment, head[k]))
    assert worse == {("logistic", "1e-1"), ("lasso 64×128", "1e-4")}


# Tables of counts, with what stands in the text before each: the norm, and both counts or which one was not kept.
COUNTED = {
    "samples.md": {
        "samples": ("2-norm", "suboptimality", "in brackets from where it stays"),
        "networks": ("∞-norm", "suboptimality", "first"),
    },
    "development.md": {
        "ablation": ("2-norm", "suboptimality", "is first at most", "it stays"),
        "designs": ("2-norm", "∞-norm", "is first at", "stays there"),
        "starts": ("Counts as above", "∞-norm", "first and from where", "stay"),
        "growth": ("∞-norm", "until `solve` ends"),
    },
    "results.md": {"results": ("2-norm", "f − f", "in brackets from where it stays")},
    "evidence.md": {
        "wins": ("∞-norm", "until `solve` ends", "first touch is the end", "every 5 steps"),
        "real": ("∞-norm", "until `solve` ends", "first touch is the end", "every 5 steps"),
        "front_door": ("∞-norm", "until `solve` ends"),
        "front_door_loose": ("∞-norm", "until `solve` ends"),
        "real_loose": ("∞-norm", "until `solve` ends"),
    },
    "c.md": {"latency_exact": ("∞-norm",), "latency_problems": ("∞-norm",)},
    "../README.md": {
        "real_front": ("∞-norm", "until `solve` ends", "first touch is the end"),
        "latency": ("∞-norm",),
    },
}
# Counts that stand in sentences and in tables without rows, with what their paragraph, or the one before, says.
SAID = {
    "../README.md": {"within one iteration of": ("f − f", "first below", "stays")},
    "c.md": {"| without the finish | 1781": ("∞-norm", "until `solve` ends", "every 5 steps")},
    "guide.md": {"1.5e-4 to 5.9e-3": ("2-norm",)},
    "results.md": {"4, 11 and 79": ("1e-1, 1e-2 and 1e-3", "first touches of the mean of f − f", "not kept")},
    "ten-minutes.md": {
        "half of the unseen instances": ("∞-norm", "every 5 steps"),
        "Of 50 test instances": ("∞-norm",),
        "`95% at 50` and `max at 50`": ("2-norm", "first at most", "in brackets from where it stays"),
    },
    "../CHANGELOG.md": {
        "8 15 20 25 36": ("2-norm", "first touches"),
        "12 20 28 37 54 73": ("2-norm", "first touches"),
        "4 6 7 10 14 19": ("f − f*", "first touches"),
    },
}


@pytest.mark.parametrize(("page", "table"), [(page, table) for page, tables in COUNTED.items() for table in tables])
def test_every_count_has_a_norm_and_both_counts_or_says_which(page, table):
    text = (ROOT / "docs" / page).read_text()
    before = text[: text.index(f"<!-- evidence: {table} -->")].split("<!-- end -->")[-1]
    assert [words for words in COUNTED[page][table] if words not in before] == []
    if "first" in COUNTED[page][table]:
        assert "not kept" in before


def test_the_technical_report_has_the_gain_of_scalar_schedules_from_the_rows():
    """Steps that the schedule saves beside the best constant, in per cent, from the least to the most of all rows."""
    text = (ROOT / "docs" / "technical-report.md").read_text(encoding="utf-8")
    cells = {key: row for rows in ROWS["designs"]["results"].values() for key, row in rows.items()}

    def find_gains(family, count, tolerance):
        gains = []
        for key, row in cells.items():
            if key.startswith(family) and key.endswith("condensed, scalar schedule"):
                constant = cells[key.replace("scalar schedule", "best constant")]
                ours, theirs = (cell["mean"][count][tolerance] for cell in (row, constant))
                gains.append(100 * (1 - ours / theirs))
        assert len(gains) == 6
        return f"{min(gains):.0f} to {max(gains):.0f}%".replace("-", "−")

    first = [find_gains(family, "first", k) for k in (2, 4) for family in ("quadcopter", "battery")]
    assert f"To 1e-3 it takes {first[0]} fewer steps on the quadcopter and {first[1]} on the battery" in text
    assert f"to 1e-6 {first[2]} on the quadcopter and {first[3]} on the battery" in text
    stays = [find_gains(family, "stays", k) for k in (2, 4) for family in ("quadcopter", "battery")]
    assert f"the same, but {stays[0]} on the quadcopter to\n  1e-3" in text
    assert stays[1:] == first[1:]


@pytest.mark.parametrize(("page", "count"), [(page, count) for page, counts in SAID.items() for count in counts])
def test_every_count_in_a_sentence_has_a_norm(page, count):
    parts = re.split(r"\n\n|\n- ", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    (at,) = (k for k, part in enumerate(parts) if count in part)
    near = parts[at]
    if near.startswith("|"):
        near = parts[at - 1] + near
    near = re.sub(r"\s+", " ", near)
    assert [words for words in SAID[page][count] if words not in near] == []


def test_paths():
    document = {"a/60/0": {"rows": [{"m": "x", "k": 1}, {"m": "y", "k": 3}]}, "b/60/0": {"rows": []}}
    assert follow(document, ["a/*", "rows", {"m": "x"}, "k"]) == [1]
    assert follow(document, ["*", "rows", "*", "k"]) == [1, 3]
    assert follow(document, ["a/*", "rows", 1, "k"]) == [3]
    with pytest.raises(LookupError, match="leads to nothing"):
        follow(document, ["c"])
    with pytest.raises(LookupError, match="2 values"):
        Quantity("1", "j", ["a/*", "rows", "*", "k"]).measure(document)


@pytest.mark.parametrize(
    ("direction", "measured", "holds"),
    [("at most", [11.0], True), ("at most", [10, 11.1], False), ("at least", [9.0], True), ("at least", [8.9], False),
     ("about", [9.0, 11.0], True), ("about", [8.9], False), ("about", [11.1], False)],
)  # fmt: skip
def test_directions(direction, measured, holds):
    assert Quantity("10 µs", "j", [], direction, 0.1).holds(measured, quick=False) is holds


def test_ratios_are_compared_with_the_ratio_that_is_said():
    quantity = Quantity("94 µs", "j", ["a"], tolerance=0.1, beside="3,231 µs", over=["b"])
    assert quantity.holds([quantity.measure({"a": 940, "b": 32_310})], quick=False)
    assert not quantity.holds([quantity.measure({"a": 94, "b": 1000})], quick=False)


def test_seeds_are_merged_from_the_least_to_the_most():
    assert merge_cells(["4,000 9, 1 unsolved", "370 10, 2 unsolved"]) == "370–4,000 9–10, 1–2 unsolved"
    assert merge_cells(["**5**, 7", "6, 7"]) == "5–6, 7"
    assert merge_cells(["9", "9, 1 unsolved"]) == "9 / 9, 1 unsolved"


def test_a_table_of_two_seeds_shows_both():
    rows = json.loads(json.dumps(ROWS["front_door"]["results"]["0"]))
    kept = {key: entry for key, entry in rows.items() if key.startswith("products/")}
    (entry,) = kept.values()
    entry["rows"][0] |= {"median": 41.0, "95%": 60.0, "worst": 107}
    other = json.loads(json.dumps(kept).replace('"median": 41.0', '"median": 45.0'))
    table = "\n".join(render("front_door", {"front_door": {"results": {"0": kept, "1": other}}}, []))
    assert "| linear program, prices and stocks, 40×70 | 41–45 60 107 | 200 |" in table


TOY_JOBS = """
[speed]
command = "python benchmarks/toy.py {seed} {out}"
quick = "python benchmarks/toy.py {seed} {out}"
seeds = [0, 1]
minutes = 1

[far]
command = "python benchmarks/toy.py 0 {out}"
needs = ["no_such_package", "data:no_such_data"]
minutes = 1
"""
TOY_CLAIMS = """
[[claim]]
id = "fast"
file = "README.md"
words = "It takes 10 steps, at most a tenth."
job = "speed"
quantities = [
  {{ said = "10", tolerance = 0.2, at = ["steps"], quick = 0.5 }},
  {{ said = "a tenth", value = {most}, direction = "at most", at = ["steps"], over = ["others"] }},
]
[[claim]]
id = "elsewhere"
file = "README.md"
words = "There it takes 3."
job = "far"
quantities = [{{ said = "3", at = ["steps"] }}]
"""
TOY = """
import json, pathlib, sys
seed, out = int(sys.argv[1]), pathlib.Path(sys.argv[2])
with open("ran.txt", "a") as file:
    file.write(f"{seed}\\n")
if pathlib.Path("stop").exists() and seed == 1:
    raise SystemExit(3)
out.write_text(json.dumps({"steps": 10 + seed, "others": 200}))
"""


@pytest.fixture
def toy(tmp_path):
    """A repository with one script, two jobs and two claims."""
    for name in ("evidence", "benchmarks", "src", "docs"):
        (tmp_path / name).mkdir()
    (tmp_path / "evidence" / "jobs.toml").write_text(TOY_JOBS)
    (tmp_path / "evidence" / "claims.toml").write_text(TOY_CLAIMS.format(most=0.1))
    (tmp_path / "benchmarks" / "toy.py").write_text(TOY)
    (tmp_path / "README.md").write_text("It takes 10 steps,\nat most a tenth. There it takes 3.\n")
    return tmp_path


def count_runs(toy):
    path = toy / "ran.txt"
    return len(path.read_text().split()) if path.exists() else 0


def read_states(toy, folder="evidence"):
    entries = json.loads((toy / "out" / folder / "claims.json").read_text(encoding="utf-8"))
    return [entry["state"] for entry in entries]


def test_what_holds_is_green_and_what_is_missing_is_told(toy, capsys):
    assert main([], toy) == 0
    assert read_states(toy) == ["holds", "holds", "not measured: needs no_such_package, data:no_such_data"]
    folder = toy / "out" / "evidence"
    assert "All that was measured holds." in (folder / "summary.md").read_text(encoding="utf-8")
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    assert machine["seeds"] == [0, 1]
    assert machine["versions"]["numpy"]
    assert "far … not measured: needs no_such_package" in capsys.readouterr().out


def test_a_claim_that_fails_for_one_seed_fails_and_names_its_sentence(toy, capsys):
    (toy / "evidence" / "claims.toml").write_text(TOY_CLAIMS.format(most=0.052))
    assert main([], toy) == 1
    assert read_states(toy)[:2] == ["holds", "FAILS"]
    told = capsys.readouterr().err
    assert "Mend README.md: “It takes 10 steps, at most a tenth.”" in told
    assert "measured 0.05–0.055, said at most 0.052" in told


def test_finished_jobs_are_not_run_again_until_code_or_command_change(toy):
    main([], toy)
    main([], toy)
    assert count_runs(toy) == 2
    (toy / "src" / "changed.py").write_text("x = 1\n")
    main([], toy)
    assert count_runs(toy) == 4
    jobs = toy / "evidence" / "jobs.toml"
    jobs.write_text(jobs.read_text().replace('toy.py {seed} {out}"', 'toy.py {seed} {out} again"'))
    main([], toy)
    assert count_runs(toy) == 6


def test_damaged_results_are_measured_again(toy):
    main([], toy)
    (toy / "out" / "evidence" / "speed-1.json").write_text('{"steps": 1')
    assert main([], toy) == 0
    assert count_runs(toy) == 3
    # Whole JSON, but not what the command wrote.
    (toy / "out" / "evidence" / "speed-0.json").write_text('{"steps": 10, "others": 1}')
    assert main([], toy) == 0
    assert count_runs(toy) == 4


def test_a_failed_command_fails_and_is_run_again(toy, capsys):
    (toy / "stop").touch()
    assert main([], toy) == 1
    assert "Failed: speed, its command failed" in capsys.readouterr().err
    assert read_states(toy)[0].startswith("not measured: its command failed")
    (toy / "stop").unlink()
    assert main([], toy) == 0
    assert count_runs(toy) == 3


def test_an_interrupted_run_says_how_to_go_on(toy, capsys, monkeypatch):
    whole = subprocess.run

    def interrupt(command, **options):
        if "toy.py" in " ".join(command) and count_runs(toy):
            (toy / "out" / "evidence" / "speed-1.json").write_text('{"ste')
            raise KeyboardInterrupt
        return whole(command, **options)

    monkeypatch.setattr(subprocess, "run", interrupt)
    assert main([], toy) == 130
    assert "the same command goes on: make evidence" in capsys.readouterr().err
    monkeypatch.undo()
    assert main([], toy) == 0
    assert count_runs(toy) == 2


def test_quick_runs_have_one_seed_their_own_folder_and_tell_what_they_leave_out(toy):
    assert main(["--quick"], toy) == 0
    assert count_runs(toy) == 1
    assert read_states(toy, "evidence-quick")[:2] == ["holds", "not measured: says nothing in a quick run"]
    with pytest.raises(SystemExit, match="no full run"):
        main(["--accept", "--out", str(toy / "out" / "evidence-quick")], toy)


def test_words_that_are_not_in_the_text_are_refused_before_anything_runs(toy, capsys):
    (toy / "README.md").write_text("It takes 11 steps. There it takes 3.\n")
    assert main([], toy) == 1
    assert "README.md has these words 0 times" in capsys.readouterr().err
    assert count_runs(toy) == 0


def test_accepted_rows_become_tables_and_are_compared(toy, capsys):
    main([], toy)
    assert main(["--accept"], toy) == 0
    kept = json.loads((toy / "evidence" / "rows" / "speed.json").read_text(encoding="utf-8"))
    assert kept["results"]["1"] == {"steps": 11, "others": 200}
    assert kept["origin"] == "measured"
    assert not (toy / "evidence" / "rows" / "far.json").exists()
    (toy / "docs" / "evidence.md").write_text("  <!-- evidence: runs -->\n<!-- end -->\n\nNext.\n")
    assert main(["--write"], toy) == 0
    written = (toy / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert f"  | speed | {kept['date']} |" in written
    assert written.endswith("  <!-- end -->\n\nNext.\n")
    assert main(["--rows"], toy) == 0
    (toy / "evidence" / "claims.toml").write_text(TOY_CLAIMS.format(most=0.05))
    assert main(["--rows"], toy) == 1
    assert "No longer holds: fast" in capsys.readouterr().err


def test_it_runs_as_a_module(toy):
    shutil.copytree(ROOT / "evidence", toy / "evidence", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.toml"))
    shutil.rmtree(toy / "evidence" / "rows")
    done = subprocess.run(
        [sys.executable, "-m", "evidence", "--only", "speed"], cwd=toy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 hold, 0 do not, 1 not measured" in done.stdout
