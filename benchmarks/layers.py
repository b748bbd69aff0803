"""Batches with gradients: longstep beside CVXPYlayers with diffcp and, where it is installed, Moreau, in one run.

    pip install 'longstep[cvxpylayers]'
    python benchmarks/layers.py [--instances 1000] [--repeats 3] [--problems qp socp lasso] [--skip diffcp]
                                [--out FILE.json]

A portfolio of 50 (QP), a robust least-squares fit (SOCP) and a lasso, each learned from ten instances. Timed are layers
of PyTorch, forward with what the backward pass needs, and backward, of a batch; first calls, which compile, are left
out. longstep solves to 1e-8 and the others to their own tolerances, so the table tells how far the solutions of each
are from Clarabel's, and its gradients from the first layer's, relative to the largest entry, on the first instances.
diffcp uses all cores. Moreau is called itself, with the matrices that CVXPY makes for SCS: behind CVXPYlayers 1.2,
version 0.4.1 gave other points. JSON: out/benchmarks/layers.json.
"""

# Optional packages: a type checker may not find them. CVXPY's constraints have no types.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import numpy as np
import torch
from cvxpylayers.torch import CvxpyLayer

import longstep as ls
from longstep._util.storage import write_bytes
from longstep.report.tables import Column, Table
from longstep.torch import Layer

# How many instances are compared with Clarabel's solutions.
COMPARED = 20


@dataclass
class Example:
    """A problem with one parameter and one variable, and how its parameter is drawn."""

    title: str
    problem: cp.Problem
    parameter: cp.Parameter
    variable: cp.Variable
    sample: Callable[[np.random.Generator], dict[str, np.ndarray]]


def make_portfolio() -> Example:
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(50, 8)) / 3
    w = cp.Variable(50, name="w")
    returns = cp.Parameter(50, name="returns")
    risk = cp.quad_form(w, factors @ factors.T + np.diag(rng.uniform(0.05, 0.2, 50)))
    problem = cp.Problem(cp.Maximize(returns @ w - risk), [cp.sum(w) == 1, w >= 0, w <= 0.2])
    mean = 0.1 * rng.normal(size=50)
    return Example("QP, 50 unknowns", problem, returns, w, lambda g: {"returns": mean + 0.1 * g.normal(size=50)})


def make_robust_fit() -> Example:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(40, 20)) / 6
    x = cp.Variable(20, name="x")
    b = cp.Parameter(40, name="b")
    rows = [cp.norm(x[:10]) <= 0.5, cp.norm(x[10:]) <= 0.5]
    problem = cp.Problem(cp.Minimize(cp.norm(A @ x - b) + 0.05 * cp.sum_squares(x)), rows)
    mean = A @ rng.normal(size=20)
    return Example("SOCP, 20 unknowns", problem, b, x, lambda g: {"b": mean + 0.3 * g.normal(size=40)})


def make_lasso() -> Example:
    rng = np.random.default_rng(2)
    A = rng.normal(size=(60, 40)) / 8
    x = cp.Variable(40, name="x")
    b = cp.Parameter(60, name="b")
    problem = cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) / 2 + 0.2 * cp.norm1(x)))
    mean = A @ (rng.normal(size=40) * (rng.uniform(size=40) < 0.3))
    return Example("lasso, 40 unknowns", problem, b, x, lambda g: {"b": mean + 0.2 * g.normal(size=60)})


PROBLEMS = {"qp": make_portfolio, "socp": make_robust_fit, "lasso": make_lasso}

Solve = Callable[[torch.Tensor], torch.Tensor]


def make_layers(example: Example, skip: list[str]) -> dict[str, Solve]:
    """Return layers of the same problem by name, each from the parameter's tensor to the variable's."""
    solver, report = ls.learn(
        example.problem, example.sample, sizes={"train": 10, "validation": 0, "test": 20}, horizon=20, progress=False
    )
    own = Layer(solver, eps_abs=1e-8, eps_rel=1e-8)
    name = example.variable.name()
    parts = {"parameters": [example.parameter], "variables": [example.variable]}
    behind = CvxpyLayer(example.problem, **parts, solver=report.model.cvxpylayers_solver(solver))
    others = {
        "CVXPYlayers, diffcp with SCS": (None, {"solve_method": "SCS"}),
        "CVXPYlayers, diffcp with Clarabel": (None, {"solve_method": "Clarabel"}),
    }
    layers: dict[str, Solve] = {
        "longstep.torch.Layer": lambda value: own({example.parameter.name(): value}).variables[name],
        "CVXPYlayers, longstep": lambda value: behind(value)[0],
    }
    for title, (chosen, options) in others.items():
        if not any(word.lower() in title.lower() for word in skip):
            layer = CvxpyLayer(example.problem, **parts, solver=chosen)
            layers[title] = lambda value, layer=layer, options=options: layer(value, solver_args=options)[0]
    if importlib.util.find_spec("moreau") is not None and "moreau" not in map(str.lower, skip):
        layers["Moreau"] = make_moreau(example)
    return layers


def make_moreau(example: Example) -> Solve:
    """Return Moreau on the cone program of the example."""
    import moreau
    from moreau.torch import Solver

    family = ls.from_cvxpy(example.problem, form="conic").family
    assert isinstance(family, ls.Conic)
    assert family.parameter is not None
    assert family.layout is not None
    cones = moreau.Cones(
        num_zero_cones=family.cones.zero,
        num_nonneg_cones=family.cones.nonnegative,
        so_cone_dims=list(family.cones.second_order),
    )
    pattern = [
        torch.tensor(array, dtype=torch.int64)
        for array in (family.P.indptr, family.P.indices, family.A.indptr, family.A.indices)
    ]
    solver = Solver(family.n, family.m, *pattern, cones=cones)
    matrices = torch.tensor(family.P.data), torch.tensor(family.A.data)
    base = {name: torch.tensor(value) for name, value in family.host.values.items()}
    maps = {name: torch.tensor(M.toarray()) for name, M in family.parameter.matrices.items()}
    place = torch.tensor(family.layout.variables[example.variable.name()].place)

    def solve(value: torch.Tensor) -> torch.Tensor:
        data = {name: base[name].expand(len(value), -1) for name in base}
        for name, M in maps.items():
            data[name] = data[name] + value @ M.T
        return solver.solve(*matrices, data["c"], data["b"]).x[:, place]

    return solve


def measure_layer(solve: Solve, values: np.ndarray, weights: np.ndarray, repeats: int) -> tuple[float, float]:
    """Return the median seconds of the forward and of the backward pass."""
    forward = []
    backward = []
    for k in range(repeats + 1):
        given = torch.tensor(values, requires_grad=True)
        begin = time.perf_counter()
        found = (solve(given) * torch.tensor(weights)).sum()
        middle = time.perf_counter()
        found.backward()
        end = time.perf_counter()
        if k:
            forward.append(middle - begin)
            backward.append(end - middle)
    return float(np.median(forward)), float(np.median(backward))


def differentiate(solve: Solve, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return solutions, and the gradients of their weighted sum."""
    given = torch.tensor(values, requires_grad=True)
    found = solve(given)
    (found * torch.tensor(weights)).sum().backward()
    assert given.grad is not None
    return found.detach().numpy(), given.grad.numpy()


def solve_exactly(example: Example, values: np.ndarray) -> np.ndarray:
    """Return Clarabel's solutions, of the problem with its quadratic cost."""
    found = []
    for value in values:
        example.parameter.value = value
        example.problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        found.append(np.asarray(example.variable.value))
    return np.stack(found)


def measure_distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def compare(
    example: Example, instances: int, repeats: int, skip: list[str]
) -> list[tuple[str, str, float, float, float, float]]:
    """Return the rows of the table of one problem."""
    layers = make_layers(example, skip)
    rng = np.random.default_rng(10)
    values = np.stack([example.sample(rng)[example.parameter.name()] for _ in range(instances)])
    weights = rng.normal(size=(instances, example.variable.size))
    few = slice(0, min(COMPARED, instances))
    exact = solve_exactly(example, values[few])
    slopes = None
    rows = []
    for name, solve in layers.items():
        seconds = measure_layer(solve, values, weights, repeats)
        found, gradient = differentiate(solve, values[few], weights[few])
        # The first layer's gradients are those that the others are held against.
        slopes = gradient if slopes is None else slopes
        rows.append((example.title, name, *seconds, measure_distance(found, exact), measure_distance(gradient, slopes)))
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--skip", nargs="+", default=[], help="layers whose name has this word")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks/layers.json"))
    given = parser.parse_args()
    ls.enable_float64()
    warnings.simplefilter("ignore", DeprecationWarning)  # CVXPYlayers hands NumPy 2 a tensor
    rows = []
    for name in given.problems:
        rows += compare(PROBLEMS[name](), given.instances, given.repeats, given.skip)
    columns = (
        Column("problem"),
        Column("layer"),
        Column("forward, s", lambda s: f"{s:.3g}"),
        Column("backward, s", lambda s: f"{s:.3g}"),
        Column("x off by", lambda d: f"{d:.0e}"),
        Column("gradient apart", lambda d: f"{d:.0e}"),
    )
    table = Table(f"{given.instances} instances with gradients", columns, tuple(rows))
    print(table)
    write_bytes(given.out, json.dumps(table.to_json(), indent=1).encode())


if __name__ == "__main__":
    main()
