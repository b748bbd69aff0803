"""A vehicle's path from positions of which some are far off: a robust Kalman filter with Huber's penalty.

    python examples/kalman.py
    longstep learn examples/kalman.py --out kalman.longstep

Over the last T measurements y, which are the parameter, find states s (position and velocity) and forces w:

    minimise    Σₜ ‖wₜ‖² + μψ(‖yₜ − Csₜ‖)     ψ(a) = a² for a ≤ ρ, else 2ρa − ρ²
    subject to  sₜ₊₁ = Asₜ + Bwₜ

CVXPY makes second-order cones of it. T is 15 here, seven seconds, so that learning is a matter of seconds too; the
experiment `longstep.research.experiments.kalman` has 50. The sampler draws a new vehicle for every window, so a
certificate holds for such draws, and says nothing about all the overlapping windows of one drive together.
"""

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

T, DT, DRAG = 15, 0.5, 0.05  # measurements, seconds between them, 1/s
MU, RHO = 2, 2
# Metres: the force moves the speed by half a metre per second in a step; one position in ten is wrong by about five.
FORCE, NOISE, OUTLIER, OFTEN = 1.0, 1.0, 5.0, 0.1

I, O = np.eye(2), np.zeros((2, 2))
A = np.block([[I, (1 - DRAG * DT / 2) * DT * I], [O, (1 - DRAG * DT) * I]])
B, C = np.vstack([DT**2 / 2 * I, DT * I]), np.hstack([I, O])

y = cp.Parameter((2, T), name="y")
s, w = cp.Variable((4, T), name="s"), cp.Variable((2, T - 1), name="w")
misfit = cp.huber(cp.norm(y - C @ s, axis=0), RHO)
motion = s[:, 1:] == A @ s[:, :-1] + B @ w
problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + MU * cp.sum(misfit)), [motion])


def drive(rng):
    """The states (4, T) of a vehicle that starts at the origin, and its measured positions (2, T)."""
    states = np.zeros((4, T))
    states[2:, 0] = rng.normal(0.0, 3.0, 2)
    for t in range(T - 1):
        states[:, t + 1] = A @ states[:, t] + B @ rng.normal(0.0, FORCE, 2)
    deviation = np.where(rng.random(T) < OFTEN, OUTLIER, NOISE)
    return states, C @ states + deviation * rng.normal(size=(2, T))


def sample(rng):
    """The measurements of some vehicle."""
    return {"y": drive(rng)[1]}


def error(estimate, states):
    """Root mean square distance to the true positions, in metres."""
    return np.sqrt(np.mean(np.sum((estimate[..., :2, :] - states[..., :2, :]) ** 2, axis=-2)))


def main(sizes=None, horizon=30, drives=100, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, horizon=horizon, **options)
    print(report)

    rng = np.random.default_rng(5)
    states, measured = (np.stack(each) for each in zip(*(drive(rng) for _ in range(drives)), strict=True))
    solution = solver.solve({"y": measured[0]}, eps_abs=1e-6, eps_rel=1e-6)
    y.value = measured[0]
    problem.solve(solver=cp.CLARABEL)
    distance = np.abs(solution.variables["s"] - s.value).max()
    print(f"\na new drive: {solution}; states within {distance:.1e} of Clarabel's")
    print(f"objective by Clarabel {problem.value:.4f}", end="; ")
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"through CVXPY: {problem.status}, {problem.value:.4f}\n")

    robust = solver.solve_batch({"y": measured}, steps=50).variables["s"]
    squares = cp.Problem(cp.Minimize(cp.sum_squares(w) + MU * cp.sum_squares(y - C @ s)), [motion])
    usual = np.zeros_like(states)
    for k in range(drives):
        y.value = measured[k]
        squares.solve(solver=cp.CLARABEL)
        usual[k] = s.value
    print(
        f"position error over {drives} drives: {error(robust, states):.2f} m after 50 steps, "
        f"{error(usual, states):.2f} m with squares for ψ, {error(measured, states):.2f} m as measured"
    )


if __name__ == "__main__":
    main()
