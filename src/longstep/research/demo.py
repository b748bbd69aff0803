"""The demo: learn to control a quadcopter from ten initial states, certify it, and fly it against OSQP."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..certificates.certificate import Certificate
from ..learning import learn
from ..report import figures, style
from ..report.tables import Column, Table, certificate_table, cost_table
from ..solver import Solver
from .experiments import quadcopter

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

STEPS = 200
BUDGET = 8
SIZES = {"train": 10, "validation": 1000, "test": 200}
# A gust every two seconds throws the quadcopter into another state of those that were trained for.
_GUST = 20
# Flights that are closer than this are drawn at this distance.
_SMALLEST_GAP = 1e-8
Controller = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Flight:
    """Closed loop: the states (steps + 1, 12) and the inputs (steps, 4), with what they cost."""

    name: str
    states: np.ndarray
    inputs: np.ndarray

    @property
    def cost(self) -> float:
        """Σ ½(s − s_ref)'Q(s − s_ref) + ½u'Ru over the flight."""
        gap = self.states[1:] - quadcopter.TARGET
        stage = np.einsum("ti,ij,tj->", gap, quadcopter.STATE_COST, gap)
        return 0.5 * float(stage + np.einsum("ti,ij,tj->", self.inputs, quadcopter.INPUT_COST, self.inputs))

    @property
    def violation(self) -> float:
        """By how much, at most, roll or pitch exceeded their limit, in radians."""
        return float(max(0.0, np.max(np.abs(self.states[:, 3:5])) - quadcopter.ANGLE_LIMIT))


def require_packages() -> None:
    """Refuse to begin without what the last minute needs."""
    missing = [name for name in ("osqp", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {' and '.join(missing)}: pip install 'longstep[demo]'")


def fly(name: str, controller: Controller, *, steps: int = STEPS, seed: int = 0) -> Flight:
    """Let a controller, a function of the state, fly; the same gusts for every controller with the same seed."""
    A, B = quadcopter.dynamics()
    rng = np.random.default_rng([seed, *b"gusts"])
    state = quadcopter.sample(rng)
    states = [state]
    inputs = []
    for k in range(1, steps + 1):
        # Rotors give no more than they can, whatever the solver says.
        control = np.clip(controller(state), -quadcopter.INPUT_LIMIT, quadcopter.INPUT_LIMIT)
        state = A @ state + B @ control
        if k % _GUST == 0:
            state = state + quadcopter.sample(rng)
        states.append(state)
        inputs.append(control)
    return Flight(name, np.array(states), np.array(inputs))


def make_learned_controller(solver: Solver, steps: int) -> Controller:
    """Return a controller: the first input of the plan after `steps` learned steps from zero."""
    return lambda state: quadcopter.first_input(solver.solve(state, steps=steps).x)


def make_osqp_controller(steps: int | None) -> Controller:
    """Return the `osqp` package as a controller, as its users run it.

    It has one workspace; bounds are updated, solves are warm-started, and rho adapts.

    With None it solves to 1e-8, whatever it takes.
    """
    import osqp
    import scipy.sparse as sp

    family = quadcopter.family()
    q, l, u = (family.data(np.zeros((1, quadcopter.STATES)))[k][0] for k in ("q", "l", "u"))
    eps = 1e-8
    if steps:
        eps = 1e-12
    limits = {"max_iter": steps or 100_000, "eps_abs": eps, "eps_rel": eps}
    package: Any = osqp.OSQP()
    package.setup(sp.csc_matrix(sp.triu(family.P)), q, sp.csc_matrix(family.A), l, u, verbose=False, **limits)

    def control(state: np.ndarray) -> np.ndarray:
        data = family.data(state[None])
        package.update(l=data["l"][0], u=data["u"][0])
        return quadcopter.first_input(package.solve(raise_error=False).x)

    return control


def make_table(flights: list[Flight]) -> Table:
    """Return a table of cost and violation side by side, against the first flight, the exact one."""
    best = flights[0].cost
    columns = (
        Column("controller"),
        Column("cost", lambda v: f"{v:.1f}"),
        Column("above exact", lambda v: f"{100 * v:.2f}%"),
        Column("over angle limit [rad]", lambda v: f"{v:.4f}"),
    )
    rows = tuple((f.name, f.cost, f.cost / best - 1, f.violation) for f in flights)
    gusts = f"{len(flights[0].inputs)} control steps with a gust every {_GUST}"
    return Table(f"Closed loop, {gusts}", columns, rows)


def draw_flights(flights: list[Flight]) -> "Figure":
    """Draw the height of the first flight, the exact one, and how far the others are from it; return the figure.

    On one axis the flights would lie on top of each other: what differs is drawn, on logarithmic axes.
    """
    from matplotlib.figure import Figure

    exact, *others = flights
    time = np.arange(len(exact.states)) * quadcopter.DT
    panels = [
        ("height, off by [m]", lambda flight: flight.states[:, 2] - exact.states[:, 2]),
        ("roll and pitch, off by [rad]", lambda flight: np.max(abs(flight.states - exact.states)[:, 3:5], axis=1)),
        ("rotors, off by [limit = 1]", lambda flight: _repeat_last(flight.inputs - exact.inputs)),
    ]
    with style.use_style():
        figure = Figure(figsize=(7, 7.5), layout="constrained")
        axes = figure.subplots(len(panels) + 1, 1, sharex=True)
        axes[0].plot(time, exact.states[:, 2], color="black", label=exact.name)
        axes[0].axhline(quadcopter.TARGET[2], color="#999999", linewidth=0.8)
        axes[0].set_ylabel("height [m]")
        for axis, (label, measure) in zip(axes[1:], panels, strict=True):
            for i, flight in enumerate(others):
                gap = np.abs(measure(flight))
                # All begin in one state: that is no distance to draw.
                gap = np.where(gap > 0, np.maximum(gap, _SMALLEST_GAP), np.nan)
                axis.semilogy(time, gap, color=style.COLOURS[i], linestyle=style.DASHES[i], label=flight.name)
            axis.set_ylabel(label)
        axes[-1].set_xlabel("time [s]")
        lines = [*axes[0].get_lines()[:1], *axes[1].get_lines()]
        figure.legend(lines, [flight.name for flight in flights], loc="outside upper center", ncols=len(flights))
        return figure


def _repeat_last(gaps: np.ndarray) -> np.ndarray:
    """Return the largest gap of the four rotors in parts of their limit, a value for every state."""
    worst = np.max(np.abs(gaps), axis=1) / quadcopter.INPUT_LIMIT
    return np.append(worst, worst[-1])


def run(out: Path, console: "Console") -> None:
    """Do everything: learn, compare, certify, verify, fly, draw."""
    console.print("Quadcopter MPC: 172 unknowns, 304 rows, one QP for every initial state.")
    family = quadcopter.family()
    progress = not console.quiet
    solver, report = learn(family, quadcopter.sample, sizes=SIZES, seed=1, progress=progress)
    console.print(f"learned from 10 initial states in {report.training.seconds:.1f} s: {report.training.kept}\n")
    console.print(report.table)
    assert report.certificate is not None
    assert report.costs is not None
    console.print(cost_table(report.costs))
    console.print(certificate_table(report.certificate))
    console.print(report.certificate.sentence(report.certificate.claims[1]), "\n", style="bold")
    report.save(out)
    solver.save(out / "quadcopter.longstep")
    loaded = Solver.load(out / "quadcopter.longstep")
    saved = Certificate.load(out / "certificate.json")
    saved.verify(loaded, report.data.validation)
    console.print("The saved certificate was verified with the saved solver: computed again, and equal.\n")
    flights = [
        fly("OSQP to 1e-8", make_osqp_controller(None)),
        fly(f"longstep, {BUDGET} iterations", make_learned_controller(loaded, BUDGET)),
        fly(f"OSQP, {BUDGET} iterations", make_osqp_controller(BUDGET)),
    ]
    console.print(make_table(flights))
    figures.save(draw_flights(flights), out / "flight", "png")
    names = ", ".join(sorted(path.name for path in out.iterdir() if path.is_file()))
    console.print(f"In {out}/: {names}\n")
    console.print(report.verdict, "\n", style="bold")
    console.print(
        "Next, your own problem: write it in CVXPY as in examples/portfolio.py, then\n"
        "  longstep learn portfolio.py --out portfolio.longstep"
    )
