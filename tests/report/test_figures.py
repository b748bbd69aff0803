"""Figures: what is drawn is what was evaluated, nothing is lost, nothing covers anything, files are reproducible."""

import io
import itertools
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.text import Text

import longstep as ls
from longstep.algorithms.registry import REGISTERED
from longstep.certificates.certificate import Claim
from longstep.report import drawing, figures

from .test_tables import certificate, evaluation

WIDTHS = (6.5, 3.5)


def decaying(name, rate, count=30, instances=40, **fields):
    noise = np.random.default_rng(0).lognormal(size=(instances, 1))
    return evaluation(noise * rate ** np.arange(count + 1), name, **fields)


METHODS = [decaying(f"method number {i}", 0.3 + 0.08 * i) for i in range(8)]
CERTIFICATE = certificate(
    [Claim(0, math.inf, 0.975, 40), Claim(10, 1e-3, 0.975, 0), Claim(20, 1e-6, 0.975, 0)],
    (1e-3, 1e-8, 0.0),
    0.975,
    method_hash="method number 1",
)


def line(axis, label):
    (found,) = [x for x in axis.lines if x.get_label() == label]
    return found


def legend(figure):
    return [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()] if figure.legends else []


def notes(axis):
    return [text.get_text() for text in axis.texts]


# What is drawn.


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_are_the_geometric_means(width):
    figure = figures.convergence(METHODS[:3], width=width)
    (axis,) = figure.axes
    for e in METHODS[:3]:
        np.testing.assert_array_equal(line(axis, e.name).get_xdata(), np.arange(31))
        np.testing.assert_array_equal(line(axis, e.name).get_ydata(), e.geometric_mean)
    assert axis.get_yscale() == "log"
    assert axis.get_ylabel().replace("\n", " ") == "f − f* [units of the objective]"
    assert axis.get_xlabel() == "iteration $k$ [steps]"
    assert axis.get_title("left") == "Geometric mean, 40 instances of 'test'"
    names = [e.name for e in METHODS[:3]]
    assert (notes(axis), legend(figure)) == (
        (names, ["5%–95% of instances"]) if width > 5 else ([], [*names, "5%–95% of instances"])
    )


def test_lines_differ_in_colour_style_and_marker():
    figure = figures.convergence(METHODS)
    lines = [line(figure.axes[0], e.name) for e in METHODS]
    for of in (lambda x: x.get_color(), lambda x: str(x._unscaled_dash_pattern), lambda x: x.get_marker()):
        assert len({of(x) for x in lines}) == 8
    with pytest.raises(ValueError, match="at most 8 lines can be told apart, got 9"):
        figures.convergence([*METHODS, decaying("one more", 0.5)])


@pytest.mark.parametrize("band", [None, "method number 2"])
def test_the_band_lies_between_the_quantiles(band):
    figure = figures.convergence(METHODS[:3], band=band, quantiles=(0.9, 0.1))
    chosen = METHODS[0] if band is None else METHODS[2]
    (area,) = figure.axes[0].collections
    corners = {tuple(p) for p in area.get_paths()[0].vertices}
    wanted = {(k, v) for q in (0.1, 0.9) for k, v in enumerate(np.maximum(chosen.quantile(q), 1e-16))}
    assert wanted <= corners
    assert legend(figure) == ["10%–90% of instances"]
    assert not figures.convergence(METHODS[:3], quantiles=None).axes[0].collections
    with pytest.raises(ValueError, match="there is no method 'x' for the band; there are method number 0"):
        figures.convergence(METHODS[:3], band="x")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_method_that_blows_up_stays_in_the_figure(width):
    values = np.outer(np.ones(3), [1.0, 100.0, 1e9, np.inf, 1e300, np.inf])
    diverging = evaluation(values, "diverging")
    figure = figures.convergence([decaying("good", 0.1, 5), diverging], width=width)
    (axis,) = figure.axes
    bottom, top = axis.get_ylim()
    assert (bottom, top) == (1e-6, 1e4)
    np.testing.assert_allclose(line(axis, "diverging").get_ydata(), [1, 100, top, top, top, top], rtol=1e-12)
    assert "diverging (off scale from k\xa0=\xa02)" in [*notes(axis), *legend(figure)]


def test_all_infinite_and_all_zero():
    (axis,) = figures.convergence([evaluation(np.full((2, 4), np.inf), "∞"), evaluation(np.zeros((2, 4)), "0")]).axes
    assert axis.get_ylim()[0] == 0.5e-16
    np.testing.assert_array_equal(line(axis, "∞").get_ydata(), [axis.get_ylim()[1]] * 4)
    np.testing.assert_allclose(line(axis, "0").get_ydata(), 1e-16)


@pytest.mark.parametrize("width", WIDTHS)
def test_certified_curves(width):
    figure = figures.convergence(METHODS[:2], certificate=CERTIFICATE, width=width)
    (axis,) = figure.axes
    upper, lower = ([x for x in axis.lines if x.get_marker() == m and x.get_color() == "black"] for m in "v^")
    assert [x.get_xydata().tolist() for x in upper] == [[[10, 1e-3], [20, 1e-6]]]
    assert [x.get_xydata().tolist() for x in lower] == [[[0, 1e-3], [10, 1e-8]]]
    assert upper[0].get_markerfacecolor() == figures.COLOURS[1]
    assert "certified 97.5% quantile (none at k\xa0=\xa00)" in legend(figure)
    assert "certified 2.5% quantile" in legend(figure)
    # The band goes to the certified method.
    vertices = axis.collections[0].get_paths()[0].vertices
    assert METHODS[1].quantile(0.95)[7] in vertices[:, 1]


def test_a_certificate_of_nothing_leaves_a_note():
    nothing = replace(CERTIFICATE, claims=tuple(Claim(k, math.inf, 0.975, 40) for k in range(5)), lower=(0.0,) * 5)
    figure = figures.convergence(METHODS[:2], certificate=nothing)
    assert not [x for x in figure.axes[0].lines if x.get_color() == "black"]
    assert "certified 97.5% quantile (none at k\xa0=\xa00, 1, 2 and 2 more)" in legend(figure)


def test_certified_tolerances_say_on_how_many():
    claims = (Claim(10, 1e-3, 0.9689, 0), Claim(20, 1e-5, 0.0, 40))
    figure = figures.convergence(METHODS[1:6], certificate=replace(CERTIFICATE, claims=claims, lower=(), level=None))
    assert notes(figure.axes[0]) == ["96.8%"]
    (marked,) = [x for x in figure.axes[0].lines if x.get_color() == "black"]
    assert marked.get_xydata().tolist() == [[10, 1e-3]]


def test_certificates_must_fit():
    with pytest.raises(ValueError, match="of another method"):
        figures.convergence(METHODS[2:4], certificate=CERTIFICATE)
    with pytest.raises(ValueError, match="about 'gap', the evaluations are of 'suboptimality'"):
        figures.convergence(METHODS[:2], certificate=replace(CERTIFICATE, metric="gap"))
    with pytest.raises(ValueError, match="the instances differ"):
        figures.convergence([METHODS[0], replace(METHODS[1], data_hash="other")])


@pytest.mark.parametrize("worst", [{0: 50.0, 20: 2.0, 10: np.inf}, [50.0, np.nan, 2.0, np.inf]])
def test_the_worst_case_is_drawn(worst):
    figure = figures.convergence(METHODS[:2], worst_case=worst)
    (axis,) = figure.axes
    (curve,) = [x for x in axis.lines if x.get_color() == "black"]
    # ∞ runs along the top, what is not a number is left out.
    top = axis.get_ylim()[1]
    wanted = [[0, 50], [10, top], [20, 2]] if isinstance(worst, dict) else [[0, 50], [2, 2], [3, top]]
    np.testing.assert_allclose(curve.get_xydata(), wanted)
    assert legend(figure)[-1].startswith("worst case (off scale")
    with pytest.raises(ValueError, match="worst_case must be a vector"):
        figures.convergence(METHODS[:2], worst_case=[[1.0]])


@pytest.mark.parametrize("width", WIDTHS)
def test_residuals_apart(width):
    primal = [decaying(f"m{i}", 0.4 + i / 10, metric="primal", measure="primal residual, 2-norm") for i in range(2)]
    dual = [decaying(f"m{i}", 0.5 + i / 10, metric="dual", measure="dual residual, 2-norm") for i in range(2)]
    figure = figures.residuals(primal, dual, width=width)
    assert [axis.get_title("left") for axis in figure.axes] == ["primal residual, 2-norm", "dual residual, 2-norm"]
    for axis, panel in zip(figure.axes, (primal, dual), strict=True):
        for e in panel:
            np.testing.assert_array_equal(line(axis, e.name).get_ydata(), e.geometric_mean)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert legend(figure) == ["m0", "m1"]
    with pytest.raises(ValueError, match="the same methods in the same order"):
        figures.residuals(primal, dual[::-1])
    with pytest.raises(ValueError, match="different instances"):
        figures.residuals(primal[0], replace(dual[0], data_hash="other"))


def test_residuals_of_a_method_that_blows_up():
    blown = evaluation([[1.0, np.inf]], "m", metric="dual")
    figure = figures.residuals(evaluation([[1.0, 0.1]], "m", metric="primal"), blown)
    assert line(figure.axes[1], "m").get_ydata()[1] == figure.axes[1].get_ylim()[1]
    assert legend(figure) == ["m"]


# Schedules.


@pytest.mark.parametrize("width", WIDTHS)
def test_a_schedule_beside_silver_steps(width):
    learned, silver = ls.Schedule({"step": [0.5, 3.0, 0.7]}, {"step": 0.9}, blocks=(2, 1)), ls.silver(2.0, 2)
    figure = figures.schedule(learned, limit=2 / 2.0, other={"silver": silver}, width=width)
    (axis,) = figure.axes
    np.testing.assert_array_equal(line(axis, "learned").get_xydata(), [[0, 0.5], [1, 3], [2, 0.7]])
    root = math.sqrt(2)
    np.testing.assert_allclose(line(axis, "silver").get_ydata(), [root / 2, 1, root / 2, 0.5, 0.5, 0.5])
    levels = [(x.get_xdata()[0], x.get_ydata().tolist()) for x in map_lines(axis, 2)]
    assert (2.5, [0.9, 0.9]) in levels  # the steady state, from step 3 on
    assert (0, [1.0, 1.0]) in levels  # 2/L
    assert (1.5, [0, 1]) in levels  # between the blocks
    assert axis.get_yscale() == "log"
    assert legend(figure) == ["learned", "steady state", "silver", "2/L"]


def map_lines(axis, points):
    """The lines of so many points, as arrays."""
    lines = [x for x in axis.lines if len(x.get_xdata()) == points]
    for x in lines:
        x.set_data(np.asarray(x.get_xdata()), np.asarray(x.get_ydata()))
    return lines


@pytest.mark.parametrize("width", WIDTHS)
def test_each_hyperparameter_has_a_panel(width):
    rng, names = np.random.default_rng(0), ("r_w", "r_yz", "r_ynz", "r_tau", "alpha")
    varying = {name: rng.lognormal(sigma=2, size=6) for name in names[:4]} | {"alpha": rng.uniform(1, 2, 6)}
    learned = ls.Schedule(varying, dict.fromkeys(names, 1.5))
    figure = figures.schedule(learned, default={"alpha": 1.4, "r_w": 1e-6}, title="SCS", width=width)
    assert len(figure.axes) == 5
    for axis, name in zip(figure.axes, names, strict=True):
        np.testing.assert_array_equal(line(axis, "learned").get_ydata(), varying[name])
    assert [axis.get_yscale() for axis in figure.axes] == ["log"] * 4 + ["linear"]
    assert [bool(axis.get_xlabel()) for axis in figure.axes] == [i == 4 or (i == 3 and width > 5) for i in range(5)]
    assert legend(figure) == ["learned", "steady state", "default"]


def test_a_training_brings_its_constant_and_momentum_may_be_negative():
    family = ls.Quadratic(np.diag([1.0, 2.0, 10.0]), parameter=ls.Affine(q=np.eye(3)))
    gaussian = ls.Gaussian(np.zeros(3), np.eye(3))
    training = ls.train(family, gaussian, algorithm=ls.HeavyBall(), horizon=3, cache=False)
    figure = figures.schedule(training, limit=2 / family.lipschitz, other={"silver": ls.silver(10.0, 2)})
    assert legend(figure) == ["learned", "steady state", "silver", "best constant", "2/L"]
    step, momentum = figure.axes
    assert training.constant.steady["step"] in [x.get_ydata()[0] for x in map_lines(step, 2)]
    assert momentum.get_yscale() == "linear"
    assert "silver" not in [x.get_label() for x in momentum.lines]


def test_a_constant_schedule_and_schedules_that_do_not_fit():
    constant = ls.Schedule({}, {"step": 0.3})
    assert legend(figures.schedule(constant)) == ["steady state"]
    with pytest.raises(ValueError, match="'ADMM' has rho, but the schedule has step"):
        figures.schedule(constant, other={"ADMM": ls.Schedule({}, {"rho": 1.0})})
    with pytest.raises(ValueError, match="default: there is no rho; there are step"):
        figures.schedule(constant, default={"rho": 1.0})


def test_every_hyperparameter_has_a_unit():
    for algorithm in REGISTERED:
        assert set(algorithm.units) == set(algorithm.symbols), algorithm
        names = tuple(algorithm.units)
        if not names:
            continue
        drawn = figures.schedule(ls.Schedule({}, dict.fromkeys(names, 1.0)))
        for axis, name in zip(drawn.axes, names, strict=True):
            assert axis.get_ylabel().endswith(f"[{drawing._UNITS[name]}]")


# What it looks like.


def shown():
    """Figures of every kind, at both widths."""
    long = [replace(e, name=f"{e.name}, with a name that is rather long") for e in METHODS[:3]]
    schedule = ls.Schedule({"step": [0.5, 3.0, 0.7], "momentum": [0, 0.4, -0.1]}, {"step": 0.9, "momentum": 0})
    worst = 1e3 * 0.9 ** np.arange(31)
    for width in WIDTHS:
        yield figures.convergence(METHODS, certificate=CERTIFICATE, worst_case=worst, width=width)
        yield figures.convergence(METHODS[:4], certificate=CERTIFICATE, worst_case=worst, width=width)
        yield figures.convergence(long, title="A title that is too long for one line, and then some", width=width)
        yield figures.residuals(METHODS[:4], METHODS[:4], width=width)
        yield figures.schedule(schedule, limit=1.0, other={"silver": ls.silver(2.0, 3)}, width=width)


def test_nothing_is_small_or_cut_off_and_no_legend_covers_data():
    for figure in shown():
        figure.draw_without_rendering()
        assert min(t.get_fontsize() for t in figure.findobj(Text) if t.get_text()) >= 8
        width, height = figure.get_size_inches()
        drawn = figure.get_tightbbox()
        assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) > -0.01
        for axis in figure.axes:
            assert axis.bbox.width / figure.dpi > 0.5 * width / len(figure.axes)
            assert axis.bbox.height / figure.dpi > 1.0
            assert not any(other.get_window_extent().overlaps(axis.bbox) for other in figure.legends)


def test_labels_at_the_ends_do_not_touch():
    same = [replace(METHODS[0], name=f"m{i}") for i in range(4)]
    figure = figures.convergence(same)
    boxes = sorted((Text.get_window_extent(t) for t in figure.axes[0].texts), key=lambda box: box.y0)
    assert len(boxes) == 4
    for below, above in itertools.pairwise(boxes):
        assert above.y0 >= below.y1 - 1


def test_apart():
    places = drawing.move_apart(np.array([0.99, 0.5, 0.98, 0.0]), 0.1)
    np.testing.assert_allclose(places, [1.0, 0.5, 0.9, 0.0])


# Files.


def test_files_are_written_and_the_same_again(tmp_path):
    for attempt in ("a", "b"):
        figure = figures.convergence(METHODS[:3], certificate=CERTIFICATE)
        paths = figures.save(figure, tmp_path / attempt / "rho0.1")
        assert [p.name for p in paths] == ["rho0.1.png", "rho0.1.svg", "rho0.1.pdf"]
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for kind, start in starts.items():
        first, second = ((tmp_path / attempt / f"rho0.1.{kind}").read_bytes() for attempt in "ab")
        assert first == second
        assert first.startswith(start)
        assert len(first) > 5000
        for stamp in (b"Date>", b"CreationDate", b"Matplotlib"):
            assert stamp not in first
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(p.name for p in paths)  # nothing half-written


def test_saved_figures_have_their_width(tmp_path):
    for width in WIDTHS:
        (path,) = figures.save(figures.convergence(METHODS[:2], width=width), tmp_path / "x", "png")
        pixels = int.from_bytes(path.read_bytes()[16:20], "big")
        assert pixels == round(300 * width)


def test_bad_paths_and_formats_are_refused(tmp_path):
    figure = figures.convergence(METHODS[:1])
    with pytest.raises(ValueError, match=r"formats are png, svg, pdf, got jpg"):
        figures.save(figure, tmp_path / "x", ["png", "jpg"])
    with pytest.raises(ValueError, match=r"without its suffix .png"):
        figures.save(figure, tmp_path / "x.png")
    with pytest.raises(ValueError, match="width is in inches"):
        figures.convergence(METHODS[:1], width=0.5)
    assert not list(tmp_path.iterdir())


def test_settings_of_the_user_neither_change_nor_matter(tmp_path):
    plain = figures.save(figures.schedule(ls.silver(1.0, 3)), tmp_path / "plain", ["svg"])[0].read_bytes()
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 7, "savefig.bbox": "tight", "svg.hashsalt": "x"}):
        before = dict(matplotlib.rcParams)
        figure = figures.schedule(ls.silver(1.0, 3))
        other = figures.save(figure, tmp_path / "other", ["svg"])[0].read_bytes()
        assert dict(matplotlib.rcParams) == before
        # Ticks keep their size also where the user saves.
        figure.savefig(io.BytesIO(), format="png")
        assert {t.get_fontsize() for t in figure.axes[0].get_xticklabels()} == {8}
    assert other == plain


@pytest.mark.slow
def test_pyplot_is_not_needed():
    code = (
        "import sys\n"
        "from tests.report.test_figures import METHODS, figures\n"
        "import io, longstep as ls\n"
        "figures.convergence(METHODS[:2]).savefig(io.BytesIO(), format='svg')\n"
        "figures.schedule(ls.silver(1.0, 2)).savefig(io.BytesIO(), format='png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_without_matplotlib_there_is_a_clear_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="figures need Matplotlib: pip install matplotlib"):
        figures.convergence(METHODS[:1])
