"""Certificates made on 1000 validation instances, checked against 1000 further test instances.

    python benchmarks/certificates.py [lasso mpc deblurring] [--seed 0] [--out out/certificates]

For each family: learn from ten instances (the published setting), certify the 97.5% quantile after 10, 20, … iterations
and the fraction below fixed tolerances, verify the saved files, and compare with what the test instances show. Figures
and JSON go to the folder. For the lasso the worst case over all functions of its class stands beside it, of the
learned schedule and of the constant step 1/L (performance estimation).
"""

import argparse
import json
import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402

import longstep as ls  # noqa: E402
from longstep._util.storage import write_bytes  # noqa: E402
from longstep.certificates.performance import worst_case  # noqa: E402
from longstep.evaluation import scheduled  # noqa: E402
from longstep.report import figures, tables  # noqa: E402
from longstep.research.experiments import deblurring, images, lasso, quadcopter  # noqa: E402

COUNTS = [10, 20, 30, 40, 50]
SIZES = {"train": 10, "validation": 1000, "test": 1000}
console = Console(width=150)


def problem_of(name):
    """The family, its sampler, which splits need optima, the metric, tolerances to certify, and the loss."""
    if name == "lasso":
        p = lasso.Lasso(64, 128)
        return p.family, p.sample, SIZES, None, [1e-2, 1e-6], None
    if name == "mpc":
        return quadcopter.family(), quadcopter.sample, ["train"], "residual", [1e-2, 1e-4], None
    p = deblurring.Deblurring(images.load("emnist").images)
    return p.family, p.sample, ["train"], "residual", [1e-2, 1e-3], ls.Loss(distance=0.5, metric=1.0, stress=1.0)


def worst_cases(solver):
    """The worst f − f* after k steps per unit of ‖z⁰ − z*‖² over all functions of the class, where it is found."""
    found = {}
    for k in (1, 2, 3, 5, 8, 10, 12, 15, 18, 20):
        try:
            found[k] = worst_case(solver.algorithm, solver.schedule, k, L=solver.family.lipschitz)
        except RuntimeError as error:
            console.print(f"  after {k} steps: {error}")
            break
    return found


def run(name, folder, seed):
    family, sample, references, metric, tolerances, loss = problem_of(name)
    data = ls.Dataset.sample(family, sample, SIZES, references=list(references), seed=seed)
    training = ls.train(family, data, horizon=50, loss=loss)
    solver = ls.Solver(family, training)
    console.rule(f"{name}: learned from {SIZES['train']} instances in {training.seconds:.1f} s")
    evaluation = ls.evaluate(solver, data.test, 60, metric=metric, name="learned")
    shown, written = [], []
    for kind, tolerance in (("quantiles", None), ("claims", tolerances)):
        certificate = ls.certify(solver, data.validation, COUNTS, tolerance, metric=metric)
        path = folder / name / f"{kind}.json"
        certificate.save(path)
        ls.Certificate.load(path).verify(solver, data.validation)
        table = tables.tabulate_certified(certificate, evaluation)
        console.print(table)
        shown.append(certificate)
        written.append(table.to_json())
    console.print(shown[0].sentence(shown[0].claims[1]), shown[0].convergence, sep="\n")
    worst = None
    if name == "lasso":
        vanilla, optima = ls.Solver(family), data.test.optima
        assert optima is not None
        distance = float(np.max(np.sum(optima.x**2, axis=1)))
        for label, method in (("learned", solver), ("1/L", vanilla)):
            cases = worst_cases(method)
            listed = ", ".join(f"{k}: {value:.3g}" for k, value in cases.items())
            console.print(f"worst case of f − f* after so many steps, times ‖z⁰ − z*‖², {label}: {listed}")
            worst = {k: v * distance for k, v in cases.items()} if label == "learned" else worst
    methods = [evaluation, ls.evaluate(scheduled.best_constant(family, training), data.test, 60, metric=metric)]
    figure = figures.convergence(methods, certificate=shown[0], worst_case=worst)
    figures.save(figure, folder / name / "convergence")
    figures.save(figures.schedule(training, default=ls.Solver(family).schedule), folder / name / "schedule")
    return written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["lasso", "mpc", "deblurring"]
    parser.add_argument("runs", nargs="*", metavar="run", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=0, help="of the instances' draw")
    parser.add_argument("--out", type=Path, default=Path("out/certificates"))
    arguments = parser.parse_args()
    if unknown := set(arguments.runs) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(names)}")
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    if shared.is_dir():
        os.environ.setdefault("LONGSTEP_DATA", str(shared))
    results = {name: run(name, arguments.out, arguments.seed) for name in arguments.runs or names}
    write_bytes(arguments.out / "tables.json", json.dumps(results, indent=1).encode())


if __name__ == "__main__":
    main()
