"""Quadcopter MPC with longstep: learn a schedule from ten initial states, certify it, and fly with it.

    python examples/quadcopter.py --out out/demo

Tables are over initial states that training never saw; the certificate is made on 1000 others.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
from rich.console import Console

jax.config.update("jax_enable_x64", True)

import longstep as ls  # noqa: E402
from longstep.baselines import classical  # noqa: E402
from longstep.experiments import quadcopter  # noqa: E402
from longstep.report import figures, tables  # noqa: E402

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
SIZES = {"train": 10, "validation": 1000, "test": 200}


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


def draw_flight(states, controls, path):
    """Position and rotor inputs over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    time = np.arange(len(states)) * quadcopter.DT
    for i, (label, style) in enumerate(zip("xyz", ("-", "--", "-."), strict=True)):
        top.plot(time, states[:, i], style, color=figures.COLOURS[i], label=label)
    top.axhline(1.0, color="#999999", linewidth=0.8)
    top.set(ylabel="position")
    top.legend(frameon=False, ncols=3)
    for i, style in enumerate(("-", "--", "-.", ":")):
        bottom.step(time[:-1], controls[:, i], style, where="post", linewidth=1.2, color=figures.COLOURS[i])
    for limit in (-quadcopter.INPUT_LIMIT, quadcopter.INPUT_LIMIT):
        bottom.axhline(limit, color="#999999", linewidth=0.8)
    bottom.set(xlabel="time [s]", ylabel="rotor inputs")
    figures.save(figure, path, "png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    folder = parser.parse_args().out
    console = Console()
    console.print("Quadcopter MPC: 172 unknowns, 304 rows, one QP for every initial state.")
    family, plain = quadcopter.family(), quadcopter.family(equilibrate=False)
    data = ls.Dataset.sample(family, quadcopter.sample, SIZES, seed=1, references=["train"])
    training = ls.train(family, data)
    console.print(f"learned in {training.seconds:.1f} s, the search for the best constant included: {training.kept}\n")

    solver = ls.Solver(family, training)
    methods = {
        "OSQP, not equilibrated": classical.vanilla(plain),
        "OSQP's defaults": classical.vanilla(family),
        "best constant": classical.best_constant(family, training),
        "learned from 10": solver,
    }
    found = [
        ls.evaluate(m, data.test, 100, metric="residual_max", name=name, timed=False) for name, m in methods.items()
    ]
    console.print(tables.comparison(found, TOLERANCES))

    certificate = ls.certify(solver, data.validation, [10, 20, 30, 40, 50], metric="residual_max")
    console.print(tables.certificate_table(certificate))
    console.print(certificate.sentence(certificate.claims[1]), "\n", style="bold")
    certificate.save(folder / "certificate.json")
    solver.save(folder / "quadcopter.longstep")
    loaded = ls.Solver.load(folder / "quadcopter.longstep")
    ls.Certificate.load(folder / "certificate.json").verify(loaded, data.validation)
    console.print("the saved certificate was verified against the saved solver: everything computed again, and equal")

    batch = solver.solve_batch(data.test.parameters, eps_abs=1e-6, eps_rel=1e-6)
    console.print(f"200 instances to 1e-6 in one batch: {batch.message}; safeguarded: {int(batch.safeguarded.sum())}")
    states, controls = fly(solver)
    console.print(
        f"flight with 20 iterations a control step: height {states[-1, 2]:.3f} of 1 after 6 s, largest angle "
        f"{np.max(np.abs(states[:, 3:5])):.3f} rad of {quadcopter.ANGLE_LIMIT:.3f} allowed"
    )
    figures.save(figures.convergence(found, certificate=certificate), folder / "convergence", "png")
    figures.save(figures.schedule(training, default=ls.Solver(family).schedule), folder / "schedule", "png")
    draw_flight(states, controls, folder / "flight")
    console.print(f"in {folder}/: convergence.png, schedule.png, flight.png, quadcopter.longstep, certificate.json")
    console.print("Next: state your own family as in the README, then Solver(family, train(family, data)).")


if __name__ == "__main__":
    main()
