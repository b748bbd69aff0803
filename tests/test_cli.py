"""The command line as a user meets it: files in, files out, exit codes, and one sentence for every mistake."""

import csv
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import longstep as ls
from longstep._util import storage
from longstep.cli import app
from longstep.cli.learn import _write_command

COMMANDS = ("learn", "solve", "certify", "evaluate", "report", "info", "export-c", "demo", "reproduce", "doctor")
MODEL = """
import cvxpy as cp
import numpy as np

print("a line from the model")
P = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 0.3]])
x, c, top = cp.Variable(3, name="x"), cp.Parameter(3, name="c"), cp.Parameter(name="top", nonneg=True)
problem = cp.Problem(cp.Maximize(c @ x - cp.quad_form(x, P) + 2 * top), [cp.sum(x) == 1, x >= 0, x[:2] <= top])
"""
SAMPLER = """
def sample(rng):
    return {"c": rng.normal(size=3), "top": 0.5 + 0.4 * rng.random()}
"""
SIZES = ("--train", "8", "--test", "8")
# Blocks of one length are one program.
SMALL = ("--horizon", "10", "--block", "5", *SIZES)
CERTIFIED = ("--horizon", "10", "--block", "4,6", *SIZES, "--validation", "700")
NAMES = ["c[0]", "c[1]", "c[2]", "top"]


def draw(count, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.normal(size=(count, 3)), 0.5 + 0.4 * rng.random(count)])


def write(path, rows, names=NAMES):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *np.asarray(rows).tolist()])
    return path


def environment(cache):
    """With the tests' own place for compiled programs, so that a second run spends its time on tests."""
    compiled = {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    compiled |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3"}
    return os.environ | compiled | {"LONGSTEP_CACHE": str(cache)}


def command(*arguments, cache):
    """The installed command in a process of its own."""
    call = [sys.executable, "-m", "longstep", *map(str, arguments)]
    return subprocess.run(call, env=environment(cache), capture_output=True, text=True, check=False)


def invoke(*arguments):
    """The same in this process, which has JAX already."""
    return CliRunner().invoke(app, list(map(str, arguments)), prog_name="longstep")


def refused(result, *words, code=1):
    """One sentence on stderr, nothing on stdout, no trace."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("Error: ")
    for word in words:
        assert word in lines[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, a table of past parameters, and a cache for all of this file."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "model.py").write_text(MODEL)
    (folder / "sampled.py").write_text(MODEL + SAMPLER)
    write(folder / "past.csv", draw(720, seed=1))
    write(folder / "new.csv", draw(5, seed=2))
    # As many as `learn` compares with, so that nothing is compiled twice.
    write(folder / "validation.csv", draw(12, seed=3))
    write(folder / "test.csv", draw(8, seed=4))
    return folder


@pytest.fixture(autouse=True)
def cache(folder, monkeypatch):
    monkeypatch.setenv("LONGSTEP_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def learned(folder):
    """The whole first step as a user takes it."""
    out = folder / "mpc.longstep"
    result = command(
        "learn", folder / "model.py", "--samples", folder / "past.csv", "--out", out, *SMALL, cache=folder / "cache"
    )
    assert result.returncode == 0, result.stderr
    return out, result


def test_from_a_model_and_a_table_to_solutions(folder, learned):
    import cvxpy as cp

    solver, said = learned
    assert "best constant" in said.stdout
    assert "No certificate" in said.stdout
    assert "--iid" in said.stderr
    assert said.stderr.startswith("memory: ")
    assert "plan: 10 steps for 3 unknowns" in said.stderr
    assert "instances: 8 to learn from, 8 to compare on" in said.stderr
    for phase in ("references", "training", "selection", "test"):
        assert said.stderr.index(f"{phase}: ") < said.stderr.index(f"{phase}: done in ")
    assert f"longstep solve {solver}" in said.stderr
    assert not (folder / "mpc.certificate.json").exists()
    out = folder / "solutions.csv"
    tight = ("--eps-abs", "1e-9", "--eps-rel", "1e-9")
    result = command("solve", solver, "--parameters", folder / "new.csv", "--out", out, *tight, cache=folder)
    assert result.returncode == 0, result.stderr
    assert "5 instances" in result.stdout
    assert "5 solved" in result.stdout
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["solved"] * 5
    scope = {}
    exec(MODEL, scope)
    for row, (*c, top) in zip(rows, draw(5, seed=2), strict=True):
        scope["c"].value, scope["top"].value = np.array(c), top
        scope["problem"].solve(solver=cp.CLARABEL)
        np.testing.assert_allclose([float(row[f"x[{j}]"]) for j in range(3)], scope["x"].value, atol=1e-6)
        np.testing.assert_allclose(float(row["objective"]), scope["problem"].value, atol=1e-6)


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_solver(folder, learned, tmp_path):
    cache, out = tmp_path / "cache", tmp_path / "again.longstep"
    arguments = ["learn", folder / "model.py", "--samples", folder / "past.csv", "--out", out, *SMALL]
    call = [sys.executable, "-m", "longstep", *map(str, arguments)]
    process = subprocess.Popen(call, env=environment(cache), start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while not list(cache.glob("training/*.training")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        # With the workers that solve the references.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    (checkpoint,) = cache.glob("training/*.training")
    _, before = storage.read(checkpoint, "training", 99)
    assert before["result"] is None
    result = command(*arguments, cache=cache)
    assert result.returncode == 0, result.stderr
    again, whole = ls.Solver.load(out), ls.Solver.load(learned[0])
    assert again.schedule.to_json() == whole.schedule.to_json()
    assert again.content_hash() == whole.content_hash()
    # What was finished before the kill was not done again: its very time is in the record.
    assert again.record["parts"][0]["seconds"] == before["parts"][0]["seconds"]


@pytest.mark.parametrize(
    "options", [(), ("--columns", "c=a,b,d", "--columns", "top=t"), ("--iid", "--block", "4,6", "--seed", "3")]
)
def test_the_command_is_recorded_as_it_was_given(options):
    learn = typer.main.get_command(app).commands["learn"]
    words = ["model.py", "--out", "mpc.longstep", *options]
    assert sorted(_write_command(learn.make_context("learn", list(words)))) == sorted(["longstep", "learn", *words])


def test_json_is_alone_on_stdout(folder, learned):
    solver = folder / "json.longstep"
    result = invoke("learn", folder / "model.py", "--samples", folder / "past.csv", "--out", solver, *SMALL, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["file"] == str(solver)
    assert document["certificate"] is None
    assert "No certificate" in document["notes"][0]
    assert document["instances"] == {"train": 8, "test": 8}
    assert document["memory"]["training"] > 0
    files = [str(folder / "model.py"), "--out", str(solver), "--samples", str(folder / "past.csv")]
    assert shlex.split(document["origin"]["command"]) == ["longstep", "learn", *files, *SMALL]
    assert "a line from the model" in result.stderr
    # The training came out of the cache.
    assert ls.Solver.load(solver).schedule == ls.Solver.load(learned[0]).schedule


def test_past_data_are_certified_where_they_are_said_to_be_independent(folder, learned):
    out = folder / "iid.longstep"
    result = invoke("learn", folder / "model.py", "--samples", folder / "past.csv", "--out", out, *CERTIFIED, "--iid")
    assert result.exit_code == 0, result.output
    certificate = ls.Certificate.load(folder / "iid.certificate.json")
    assert certificate.method_hash == ls.Solver.load(out).content_hash()
    assert certificate.instances == 700
    assert certificate.sentence(certificate.claims[0]) in result.stdout


def test_a_sampler_is_enough_and_gives_a_certificate_and_a_report(folder):
    out, report = folder / "sampled.longstep", folder / "report"
    result = invoke("learn", folder / "sampled.py", "--out", out, *CERTIFIED, "--report", report, "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert ls.Certificate.load(folder / "sampled.certificate.json").instances == 700
    assert {"table.md", "report.json", "schedule.json", "certificate.json"} <= {p.name for p in report.iterdir()}


def test_certify_needs_independence_and_can_be_checked(folder, learned):
    solver, out = learned[0], folder / "made.json"
    refused(invoke("certify", solver, "--samples", folder / "validation.csv"), "independently", "--iid")
    options = ("--iterations", "5", "--iterations", "10", "--tolerance", "1e-3", "--confidence", "0.9")
    result = invoke("certify", solver, "--samples", folder / "validation.csv", "--iid", *options, "--out", out)
    assert result.exit_code == 0, result.output
    made = ls.Certificate.load(out)
    assert [(c.iterations, c.tolerance) for c in made.claims] == [(5, 1e-3), (10, 1e-3)]
    assert (made.instances, made.confidence, made.level) == (12, 0.9, None)
    checked = invoke("certify", solver, "--samples", folder / "validation.csv", "--check", out, "--json")
    assert checked.exit_code == 0, checked.output
    assert json.loads(checked.stdout)["verified"] is True
    refused(invoke("certify", solver, "--samples", folder / "new.csv", "--check", out), "other data")
    document = json.loads(out.read_text())
    document["claims"][0]["success"] = 1.0
    out.write_text(json.dumps(document))
    refused(invoke("certify", solver, "--samples", folder / "validation.csv", "--check", out), "changed")


def test_certify_refuses_what_was_trained_on(folder, learned):
    refused(invoke("certify", learned[0], "--samples", folder / "past.csv", "--iid"), "used in training")


def test_evaluate_compares_with_the_best_constant_and_the_defaults(folder, learned):
    options = ("--samples", folder / "test.csv", "--iterations", "100")
    result = invoke("evaluate", learned[0], *options, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    names = [each["method"] for each in document["evaluations"]]
    assert names[0].startswith("learned")
    assert "best constant" in names
    assert len(names) == 3
    solver = ls.Solver.load(learned[0])
    history = solver.run(draw(8, seed=4), 100)
    expected = np.exp(np.mean(np.log(np.maximum(np.maximum(history.primal, history.dual), 1e-16)), axis=0))
    np.testing.assert_allclose(document["evaluations"][0]["curves"]["geometric mean"], expected, rtol=1e-6)
    shown = invoke("evaluate", learned[0], *options)
    assert "best constant" in shown.stdout


def test_info_tells_what_is_in_the_file(folder, learned):
    result = invoke("info", learned[0])
    assert result.exit_code == 0, result.output
    for words in ("Condensed", "c (3)", "top (scalar)", "x (3)", "rho", "from 8 instances", "seed 0", "c[0]", "jax"):
        assert words in result.stdout
    assert "certificate: none" in result.stdout
    document = json.loads(invoke("info", learned[0], "--json").stdout)
    assert document["parameters"] == {"c": [3], "top": []}
    assert document["family"]["unknowns"] == ls.Solver.load(learned[0]).family.n
    assert document["schedule"]["steps"]["alpha"] == ls.Solver.load(learned[0]).schedule.alpha.tolist()


def test_info_knows_a_certificate_of_another_solver(folder, learned, tmp_path):
    solver, path = ls.Solver.load(learned[0]), tmp_path / "a.longstep"
    solver.save(path)
    made = invoke("certify", path, "--samples", folder / "validation.csv", "--iid", "--iterations", "10")
    assert f"Written: {tmp_path / 'a.certificate.json'}" in made.stderr
    assert json.loads(invoke("info", path, "--json").stdout)["certificate"]["of_this_solver"] is True
    ls.Solver(solver.family).save(path)
    assert "ANOTHER solver" in invoke("info", path).stdout


def test_what_is_not_solved_has_an_exit_code_of_its_own(folder, learned, tmp_path):
    call = ("solve", learned[0], "--parameters", folder / "new.csv", "--out", tmp_path / "few.csv", "--json")
    short = invoke(*call, "--max-iter", "1", "--eps-abs", "1e-30", "--eps-rel", "0")
    assert short.exit_code == 3
    document = json.loads(short.stdout)
    assert document["statuses"] == {"iteration limit": 5}
    assert document["solved"] == 0
    fixed = invoke(*call, "--steps", "1", "--eps-abs", "1e-30", "--eps-rel", "0")
    assert fixed.exit_code == 0
    assert json.loads(fixed.stdout)["solved"] == 0
    with (tmp_path / "few.csv").open(newline="") as file:
        assert [row["iterations"] for row in csv.DictReader(file)] == ["1"] * 5


def test_instances_far_away_are_reported(learned, tmp_path):
    rows = [[1000.0, 0.0, 0.0, 0.7], *[[0.1, 0.0, 0.0, 0.7]] * 4]
    far = write(tmp_path / "far.csv", rows, ["one", "two", "three", "top"])
    call = ("solve", learned[0], "--parameters", far, "--out", tmp_path / "far.npz", "--json")
    refused(invoke(*call), "no column 'c[0]'", "--columns position")
    refused(invoke(*call, "--columns", "one,two"), "NAME=COLUMN")
    result = invoke(*call, "--columns", "c=one,two,three")
    assert json.loads(result.stdout)["outside"] == 1
    assert np.load(tmp_path / "far.npz")["outside"].tolist() == [True] + [False] * 4


QUICK = """
import sys
from longstep.cli import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
assert "jax" not in sys.modules, "JAX was imported"
"""


def test_a_few_instances_are_solved_without_jax(folder, learned, tmp_path):
    """By the library that `learn` left in the cache; one that is damaged is made again."""
    out = tmp_path / "quick.npz"
    tight = ("--eps-abs", "1e-9", "--eps-rel", "1e-9")
    arguments = list(map(str, ("solve", learned[0], "--parameters", folder / "new.csv", "--out", out, *tight)))

    def solve_quickly():
        call = [sys.executable, "-c", QUICK, *arguments]
        return subprocess.run(call, env=environment(folder / "cache"), capture_output=True, text=True, check=False)

    done = solve_quickly()
    assert done.returncode == 0, done.stderr
    expected = ls.Solver.load(learned[0]).solve_batch(draw(5, seed=2), eps_abs=1e-9, eps_rel=1e-9)
    found = np.load(out)
    np.testing.assert_allclose(found["objective"], expected.objective, atol=1e-8)
    np.testing.assert_allclose([found[f"x[{j}]"] for j in range(3)], expected.variables["x"].T, atol=1e-8)
    assert found["outside"].tolist() == expected.outside.tolist()
    for library in (folder / "cache" / "c").glob("*.so"):
        whole = library.read_bytes()
        library.unlink()  # this process may have it open
        library.write_bytes(whole[:-1])
    assert "JAX was imported" in solve_quickly().stderr
    assert solve_quickly().returncode == 0


HEAD = "import cvxpy as cp, numpy as np\nx, p = cp.Variable(2, name='x'), cp.Parameter(2, name='p')\n"
BAD_MODELS = {
    "integer": (HEAD + "z = cp.Variable(2, name='z', integer=True)\n"
                "problem = cp.Problem(cp.Minimize(cp.sum_squares(x - z) + p @ x))", ["'z' is integer", "Relax"]),
    "not DPP": (HEAD + "problem = cp.Problem(cp.Minimize(cp.sum_squares(x) + (p[0] * p[1]) * x[0]))", ["DPP", "'p'"]),
    "parameter in P": (HEAD + "w = cp.Parameter(name='w', nonneg=True)\n"
                       "problem = cp.Problem(cp.Minimize(w * cp.sum_squares(x) + p @ x))", ["'w'", "matrix P"]),
    "parameter in A": (HEAD + "problem = cp.Problem(cp.Minimize(cp.sum_squares(x)), [p @ x >= 1])",
                       ["'p'", "matrix A"]),
    "no problem": (HEAD, ["model.py defines no `problem`"]),
    "wrong problem": (HEAD + "problem = [x]", ["`problem`", "list", "cvxpy.Problem"]),
    "wrong sample": (MODEL.replace('print("a line from the model")', "") + "sample = 3", ["`sample`", "int"]),
    "syntax": ("x = 1\ny = = 2\n", ["model.py, line 2", "SyntaxError"]),
    "raises": ("import math\n\ndef f():\n    return math.sqrt(-1)\n\nf()\n", ["model.py, line 4", "ValueError"]),
    "missing package": ("import numpy\nimport no_such_package\n", ["model.py, line 2", "no_such_package"]),
    "exits": ("raise SystemExit(0)\n", ["model.py, line 1", "SystemExit"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models(name, folder, tmp_path):
    text, words = BAD_MODELS[name]
    (tmp_path / "model.py").write_text(text)
    call = (
        "learn",
        tmp_path / "model.py",
        "--samples",
        folder / "past.csv",
        "--out",
        tmp_path / "m.longstep",
        "--json",
    )
    refused(invoke(*call), *words)
    assert not (tmp_path / "m.longstep").exists()
    assert str(tmp_path) not in sys.path


def test_a_sampler_that_fails_is_named_with_its_line(folder, tmp_path):
    (tmp_path / "model.py").write_text(MODEL.strip() + "\ndef sample(rng):\n    return {'c': [1 / 0] * 3, 'top': 1}\n")
    result = invoke("learn", tmp_path / "model.py", "--out", tmp_path / "m.longstep", "--json", "--quiet")
    assert result.exit_code == 1
    assert "model.py, line 9: ZeroDivisionError" in result.stderr
    (tmp_path / "model.py").write_text(MODEL + "\ndef sample(rng):\n    pass\n")
    result = invoke("learn", tmp_path / "model.py", "--out", tmp_path / "m.longstep", "--json", "--quiet")
    assert result.exit_code == 1
    assert "returned nothing" in result.stderr


def test_nothing_to_learn_from(folder, tmp_path):
    result = invoke("learn", folder / "model.py", "--out", tmp_path / "m.longstep", "--json")
    assert result.exit_code == 1
    assert "--samples" in result.stderr
    assert "sample(rng)" in result.stderr
    refused(invoke("learn", folder / "model.py", "--out", tmp_path), "is a folder")
    refused(invoke("learn", tmp_path / "none.py", "--out", tmp_path / "m.longstep"), "there is no file")


def test_a_model_may_import_its_neighbours(tmp_path, folder):
    (tmp_path / "neighbour_of_model.py").write_text("raise RuntimeError('found')\n")
    (tmp_path / "model.py").write_text("\nimport neighbour_of_model\n")
    refused(invoke("learn", tmp_path / "model.py", "--out", tmp_path / "m.longstep"), "model.py, line 2", "found")


def bad_tables(folder):
    rows = draw(3, seed=6)
    broken = rows.copy()
    broken[1, 2] = np.nan
    yield write(folder / "nan.csv", broken), ["nan.csv", "line 3", "'c[2]'", "not finite"]
    yield write(folder / "missing.csv", rows[:, [0, 1, 3]], ["c[0]", "c[1]", "top"]), ["missing.csv", "'c[2]'"]
    yield write(folder / "sign.csv", -np.abs(rows)), ["sign.csv", "top", "bound"]
    yield write(folder / "empty.csv", rows[:0]), ["empty.csv", "no rows"]
    yield folder / "nowhere.csv", ["there is no file", "nowhere.csv"]
    yield folder / "model.py", ["model.py", ".csv"]


@pytest.mark.parametrize("number", range(6))
def test_bad_tables(number, folder, learned, tmp_path):
    path, words = list(bad_tables(folder))[number]
    refused(invoke("solve", learned[0], "--parameters", path, "--out", tmp_path / "out.csv"), *words)
    assert not (tmp_path / "out.csv").exists()
    arguments = ("--samples", path, "--out", tmp_path / "m.longstep", *SMALL, "--json", "--quiet")
    result = invoke("learn", folder / "model.py", *arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert words[0] in result.stderr


def test_bad_files(folder, learned, tmp_path):
    refused(invoke("info", tmp_path / "none.longstep"), "there is no file", "none.longstep")
    refused(invoke("info", folder / "past.csv"), "past.csv", "not a longstep file")
    refused(invoke("solve", folder, "--parameters", folder / "new.csv", "--out", tmp_path / "o.csv"), str(folder))
    arrays, metadata = storage.read(learned[0], "solver", 99)
    storage.write(tmp_path / "new.longstep", "solver", 99, arrays, metadata)
    refused(invoke("info", tmp_path / "new.longstep"), "version 99", "Upgrade longstep")
    storage.write(tmp_path / "other.longstep", "training", 1, arrays, metadata)
    refused(invoke("evaluate", tmp_path / "other.longstep", "--samples", folder / "new.csv"), "not a solver")
    damaged = bytearray(learned[0].read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "damaged.longstep").write_bytes(damaged)
    refused(invoke("info", tmp_path / "damaged.longstep"), "damaged")


def test_a_solver_without_names_cannot_read_tables(folder, tmp_path):
    family = ls.QP(np.eye(2), np.eye(2), l=np.zeros(2), u=np.ones(2), parameter=ls.Affine(q=np.eye(2)))
    ls.Solver(family).save(tmp_path / "bare.longstep")
    call = ("solve", tmp_path / "bare.longstep", "--parameters", folder / "new.csv", "--out", tmp_path / "o.csv")
    refused(invoke(*call), "no names", "Python")
    assert "this schedule was given" in invoke("info", tmp_path / "bare.longstep").stdout


def test_a_bug_keeps_its_trace_unless_quiet(learned, monkeypatch):
    def broken(path):
        raise KeyError("boom")

    monkeypatch.setattr(ls.Solver, "load", broken)
    result = invoke("info", learned[0])
    assert isinstance(result.exception, KeyError)
    refused(invoke("info", learned[0], "--quiet"), "bug", "KeyError", "boom")


def test_interrupted(learned, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(ls.Solver, "load", interrupted)
    refused(invoke("info", learned[0]), "interrupted", code=130)


def test_usage():
    assert invoke("learn", "model.py").exit_code == 2
    assert invoke("solve").exit_code == 2
    assert invoke("nothing").exit_code == 2
    assert invoke("learn", "model.py", "--out", "m.longstep", "--form", "lp").exit_code == 2
    assert invoke("--version").stdout.strip() == f"longstep {ls.__version__}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"longstep {name} " in result.stdout.split("Example")[1]
    for option in ("--json", "--quiet"):
        assert option in result.stdout


@pytest.mark.parametrize(("word", "found"), [("so", {"solve"}), ("e", {"evaluate", "export-c"})])
def test_completion(word, found):
    """As bash asks for it."""
    asked = {"_LONGSTEP_COMPLETE": "complete_bash", "COMP_WORDS": f"longstep {word}", "COMP_CWORD": "1"}
    call = [sys.executable, "-m", "longstep"]
    result = subprocess.run(call, env=os.environ | asked, capture_output=True, text=True, check=True)
    assert set(result.stdout.split()) == found


def test_doctor(folder):
    found = json.loads(invoke("doctor", "--json").stdout)
    assert found["versions"]["longstep"] == ls.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert found["float64"] is True
    assert found["cache"]["folder"] == str(folder / "cache")
    assert found["cores"] == os.cpu_count()
    assert set(found["compilers"]) == {"cc", "gcc", "clang", "arm-none-eabi-gcc"}
    assert Path(found["cache"]["folder"]).name in invoke("doctor").stdout


def test_demo_hands_over_to_the_library(monkeypatch, tmp_path):
    def run(out, console):
        out.mkdir()
        (out / "table.md").write_text("|")
        console.print("a line of the demo")

    monkeypatch.setattr("longstep.research.demo.run", run)
    result = invoke("demo", "--out", tmp_path / "demo", "--json")
    assert json.loads(result.stdout) == {"folder": str(tmp_path / "demo"), "files": ["table.md"]}
    assert "a line of the demo" in result.stderr
    assert "a line of the demo" in invoke("demo", "--out", tmp_path / "again").stdout


def test_demo_asks_for_its_packages_before_it_begins(monkeypatch, tmp_path):
    """The check itself has a test of its own; here it must be called, and before anything is done."""

    def missing():
        raise ImportError("the demo needs osqp: pip install 'longstep[demo]'")

    monkeypatch.setattr("longstep.research.demo.require_packages", missing)
    monkeypatch.setattr("longstep.research.demo.run", lambda out, console: out.mkdir())
    refused(invoke("demo", "--out", tmp_path / "demo"), "the demo needs osqp: pip install")
    assert not (tmp_path / "demo").exists()


def test_importing_the_command_line_switches_nothing():
    code = "import longstep.cli, jax; assert not jax.config.jax_enable_x64"
    subprocess.run([sys.executable, "-c", code], check=True)


# Streams: Parquet in, Parquet out.


def write_parquet(path, rows):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), path, row_group_size=150)
    return path


def test_many_instances_in_shards_are_those_of_one_run(learned, tmp_path):
    source = write_parquet(tmp_path / "in.parquet", draw(600, seed=5))
    call = ("solve", learned[0], "--parameters", source, "--rows", "200", "--variable", "x", "--json", "--out")
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert json.loads(invoke(*call, whole).stdout)["solved"] == 600
    first = json.loads(invoke(*call, out, "--shard", "2/2").stdout)
    assert (first["instances"], first["complete"]) == (400, False)
    assert not out.exists()
    assert json.loads(invoke(*call, out, "--shard", "1/2").stdout)["complete"]
    assert out.read_bytes() == whole.read_bytes()
    again = invoke(*call[:8], "--out", out, "--shard", "1/2")
    assert "(600 of them in an earlier run)" in again.stdout


@pytest.mark.slow
def test_killed_and_started_again_a_stream_ends_with_the_same_file(folder, learned, tmp_path):
    source = write_parquet(tmp_path / "in.parquet", draw(30_000, seed=6))
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    call = ("solve", learned[0], "--parameters", source, "--rows", "500", "--out")
    arguments = [sys.executable, "-m", "longstep", *map(str, call), str(out)]
    process = subprocess.Popen(arguments, env=environment(folder / "cache"), stderr=subprocess.DEVNULL)
    parts = tmp_path / "out.parquet.parts"
    while len(list(parts.glob("part-*"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not out.exists()
    result = command(*call, out, cache=folder / "cache")
    assert result.returncode == 0, result.stderr
    assert "in an earlier run" in result.stdout
    assert invoke(*call, whole).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()


def test_what_only_streams_can_do_is_refused_elsewhere(folder, learned, tmp_path):
    call = ("solve", learned[0], "--parameters", folder / "new.csv", "--out", tmp_path / "out.csv")
    refused(invoke(*call, "--shard", "1/2"), "--shard is for streams", ".parquet")
    refused(invoke(*call, "--shard", "one"), "--shard is I/K")
    refused(invoke(*call[:-1], tmp_path / "o.parquet", "--rows", "5", "--time-limit", "9"), "--time-limit", "clock")
    refused(invoke(*call, "--variable", "y"), "no variable 'y'")
    refused(
        invoke("solve", learned[0], "--parameters", folder, "--out", tmp_path / "out.csv"), "a folder of parameters"
    )


def test_chosen_variables_in_single_precision_also_of_a_few(folder, learned, tmp_path):
    out = tmp_path / "out.npz"
    call = ("solve", learned[0], "--parameters", folder / "new.csv", "--out", out, "--variable", "x[1]", "--float32")
    assert invoke(*call).exit_code == 0
    with np.load(out) as found:
        assert [name for name in found.files if name.startswith("x")] == ["x[1]"]
        assert found["x[1]"].dtype == found["objective"].dtype == np.float32
