"""Quadcopter MPC with longstep: learn a schedule from ten initial states, and fly with it.

    python examples/quadcopter.py --out out/demo

Every figure in the table is over 200 initial states that training never saw.
"""

import argparse
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


def solvers():
    """OSQP's defaults with and without equilibration, the best constant that training found, the learned schedule."""
    family, plain = quadcopter.family(), quadcopter.family(equilibrate=False)
    data = ls.Dataset.sample(family, quadcopter.sample, {"train": 10}, seed=1)
    training = ls.train(family, data)
    return training, {
        "defaults, not equilibrated": ls.Solver(plain),
        "defaults": ls.Solver(family),
        "best constant": ls.Solver(family, training.constant),
        "learned from 10 instances": ls.Solver(family, training),
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
    training, methods = solvers()
    console.print(f"learned in {training.seconds:.1f} s, the search for the best constant included: {training.kept}")
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

    best = methods["learned from 10 instances"]
    batch = best.solve_batch(parameters, eps_abs=1e-6, eps_rel=1e-6)
    console.print(f"200 instances to 1e-6 in one batch: {batch.message}; safeguarded: {int(batch.safeguarded.sum())}")
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
    console.print("Next: state your own family as in the README, then Solver(family, train(family, data)).")


if __name__ == "__main__":
    main()
