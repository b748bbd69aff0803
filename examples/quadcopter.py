"""Quadcopter MPC with longstep: four ways to run OSQP's iteration, and a flight.

    python examples/quadcopter.py --out out/demo

No schedule is learned yet: this shows what the choice of hyperparameters is worth, which is what learning will do by
itself. Every figure in the table is over 200 unseen initial states.
"""

import argparse
import itertools
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

jax.config.update("jax_enable_x64", True)

import longstep as ls  # noqa: E402
from longstep.experiments import quadcopter  # noqa: E402

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
STEPS = 200


def score(solver, parameters, step):
    """The geometric mean of the residual after so many steps."""
    history = solver.run(parameters, step)
    return float(np.exp(np.mean(np.log(np.maximum(history.primal_max, history.dual_max)[:, step]))))


def solvers():
    """OSQP's defaults with and without equilibration, the best of 60 constants, and two constants one after the other.

    The constants are chosen on 20 initial states that the table does not use.
    """
    family, plain = quadcopter.family(), quadcopter.family(equilibrate=False)
    train = quadcopter.sample_many(20, seed=1)
    grid = [
        {"sigma": 1e-6, "rho_eq": e, "rho_ineq": i, "alpha": a}
        for e, i, a in itertools.product((3, 30, 100, 300), (0.03, 0.1, 0.2, 0.5, 1), (1.4, 1.6, 1.8))
    ]
    constant = min(grid, key=lambda c: score(ls.Solver(family, **c), train, 30))
    early = min(grid, key=lambda c: score(ls.Solver(family, **c), train, 10))
    block = {name: [value] * 10 for name, value in early.items()}
    late = min(grid, key=lambda c: score(ls.Solver(family, ls.Schedule(block, c)), train, 30))
    return {
        "defaults, not equilibrated": ls.Solver(plain),
        "defaults": ls.Solver(family),
        "best of 60 constants": ls.Solver(family, **constant),
        "one for 10 steps, then another": ls.Solver(family, ls.Schedule(block, late)),
    }


def curves(methods, parameters):
    """max(primal, dual) residual in the ∞-norm for every method, instance and iteration."""
    history = {name: solver.run(parameters, STEPS) for name, solver in methods.items()}
    return {name: np.maximum(h.primal_max, h.dual_max) for name, h in history.items()}


def first_below(curve, tolerance):
    """Steps until the geometric mean is at most the tolerance."""
    mean = np.exp(np.mean(np.log(np.maximum(curve, 1e-16)), axis=0))
    below = np.flatnonzero(mean <= tolerance)
    return str(below[0]) if below.size else f">{STEPS}"


def fly(solver, steps=60):
    """Closed loop: 20 iterations for every control step, warm-started; the states and the inputs."""
    A, B = quadcopter.dynamics()
    inputs = slice(quadcopter.STATES * (quadcopter.HORIZON + 1), None)
    state = np.array([0.8, -0.8, 0.0] + [0.0] * 9)
    states, controls, last = [state], [], None
    for _ in range(steps):
        last = solver.solve(state, steps=20, warm_start=last)
        control = np.clip(last.x[inputs][: quadcopter.INPUTS], -quadcopter.INPUT_LIMIT, quadcopter.INPUT_LIMIT)
        state = A @ state + B @ control
        states.append(state)
        controls.append(control)
    return np.array(states), np.array(controls)


def draw(all_curves, states, controls, folder):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ["#999999", "#0072b2", "#e69f00", "#009e73"]  # apart for the colour-blind, and in grey
    styles = ["-", "--", "-.", "-"]
    figure, axis = plt.subplots(figsize=(6.5, 4))
    for (name, curve), colour, style in zip(all_curves.items(), colours, styles, strict=True):
        mean = np.exp(np.mean(np.log(np.maximum(curve, 1e-16)), axis=0))
        axis.semilogy(mean[:101], style, color=colour, label=name, linewidth=1.8)
    axis.set(xlabel="iteration", ylabel="max(primal, dual) residual, geometric mean", ylim=(1e-12, 1e4))
    axis.legend(frameon=False)
    axis.grid(alpha=0.3)
    figure.savefig(folder / "convergence.png", dpi=150, bbox_inches="tight")
    plt.close(figure)

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(6.5, 5), sharex=True)
    time = np.arange(len(states)) * quadcopter.DT
    for i, (label, style) in enumerate(zip("xyz", ("-", "--", "-."), strict=True)):
        top.plot(time, states[:, i], style, color=colours[i + 1], label=label)
    top.axhline(1.0, color="#999999", linewidth=0.8)
    top.set(ylabel="position")
    top.legend(frameon=False, ncols=3)
    bottom.step(time[:-1], controls, where="post", linewidth=1.2)
    bottom.axhline(quadcopter.INPUT_LIMIT, color="#999999", linewidth=0.8)
    bottom.axhline(-quadcopter.INPUT_LIMIT, color="#999999", linewidth=0.8)
    bottom.set(xlabel="time [s]", ylabel="rotor inputs")
    figure.savefig(folder / "flight.png", dpi=150, bbox_inches="tight")
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    console.print("Quadcopter MPC: 172 unknowns, 304 rows, one QP for every initial state.")
    parameters = quadcopter.sample_many(200, seed=0)
    methods = solvers()
    all_curves = curves(methods, parameters)

    table = Table(
        title="iterations until the residual, geometric mean over 200 initial states, is below (last: worst at 50)"
    )
    table.add_column("hyperparameters", no_wrap=True)
    for tolerance in TOLERANCES:
        table.add_column(f"1e{round(np.log10(tolerance))}", justify="right", no_wrap=True)
    table.add_column("at 50", justify="right", no_wrap=True)
    for name, curve in all_curves.items():
        table.add_row(name, *(first_below(curve, t) for t in TOLERANCES), f"{curve[:, 50].max():.0e}")
    console.print(table)

    best = methods["best of 60 constants"]
    batch = best.solve_batch(parameters, eps_abs=1e-6, eps_rel=1e-6)
    console.print(f"200 instances to 1e-6 in one batch: {batch.message}")
    reference = ls.solve_references(best.family, parameters[:20], cache=False)
    gap = np.max(np.abs(batch.objective[:20] - reference.value) / np.maximum(1, np.abs(reference.value)))
    console.print(f"largest relative difference of an objective from Clarabel's (20 instances): {gap:.1e}")
    best.save(folder / "quadcopter.longstep")
    states, controls = fly(ls.Solver.load(folder / "quadcopter.longstep"))
    console.print(
        f"flight with 20 iterations a control step: height {states[-1, 2]:.3f} of 1 after 6 s, largest angle "
        f"{np.max(np.abs(states[:, 3:5])):.3f} rad of {quadcopter.ANGLE_LIMIT:.3f} allowed"
    )
    draw(all_curves, states, controls, folder)
    console.print(f"pictures and the saved solver are in {folder}/: convergence.png, flight.png, quadcopter.longstep")
    console.print("Next: state your own family as in the README, then Solver(family).solve_batch(parameters).")


if __name__ == "__main__":
    main()
