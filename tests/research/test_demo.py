"""The demo's flights: what is drawn is how they differ."""

import numpy as np
import pytest

from longstep.research import demo
from longstep.research.experiments import quadcopter


@pytest.fixture
def flights():
    exact = demo.fly("exact", lambda state: -0.1 * state[:4], steps=30)
    near = demo.fly("near", lambda state: -0.1001 * state[:4], steps=30)
    far = demo.fly("far", lambda state: -0.15 * state[:4], steps=30)
    return [exact, near, far]


def test_the_figure_shows_how_flights_differ(flights):
    exact, *others = flights
    figure = demo.draw_flights(flights)
    height, *panels = figure.axes
    np.testing.assert_array_equal(height.get_lines()[0].get_ydata(), exact.states[:, 2])
    assert [len(axis.get_lines()) for axis in panels] == [2, 2, 2]
    for line, flight in zip(panels[0].get_lines(), others, strict=True):
        gap = np.abs(flight.states[:, 2] - exact.states[:, 2])
        moved = gap > 1e-8
        np.testing.assert_array_equal(line.get_ydata()[moved], gap[moved])
    for line, flight in zip(panels[2].get_lines(), others, strict=True):
        worst = np.abs(flight.inputs - exact.inputs).max(axis=1) / quadcopter.INPUT_LIMIT
        np.testing.assert_array_equal(line.get_ydata()[:-1], worst)
    # Lines that lie on each other show nothing.
    near, far = (np.nanmedian(line.get_ydata()) for line in panels[2].get_lines())
    assert far > 10 * near
    assert all("[" in axis.get_ylabel() for axis in figure.axes)
    assert figure.axes[-1].get_xlabel() == "time [s]"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["exact", "near", "far"]
