"""Where does it rain? A support vector machine, trained again with every hour's reports of fixed weather stations.

    python examples/svm.py
    longstep learn examples/svm.py --out svm.longstep

Stations stand still, so the matrix K of kernels between them is the same every hour; their labels y, +1 for rain and
−1 for none, are the parameter. The dual of the machine with a smooth hinge (quadratic for a tenth of the margin,
then linear) in β = y⊙α, where labels are in the linear cost and in the bounds alone:

    minimise    ½β'(K + δI)β − y'β
    subject to  1'β = 0,  C(y − 1)/2 ≤ β ≤ C(y + 1)/2          that is 0 ≤ α ≤ C

f(p) = Σ βᵢk(p, pᵢ) + bias says rain at p where it is positive; the bias is the multiplier of 1'β = 0. In the usual
variables α the labels would change the matrix, and nothing could be factorised in advance.
"""

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

STATIONS, WIDTH, WRONG = 120, 0.25, 0.05
C, SMOOTH = 0.5, 0.2

stations = np.random.default_rng(0).random((STATIONS, 2))


def kernel(a, b):
    """exp(−‖aᵢ − bⱼ‖²/2·width²)."""
    return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1) / WIDTH**2)


y = cp.Parameter(STATIONS, name="y")
beta = cp.Variable(STATIONS, name="beta")
# CVXPY's own test for convexity may not converge on matrices with many equal eigenvalues.
K = cp.psd_wrap(kernel(stations, stations) + SMOOTH * np.eye(STATIONS))
constraints = [cp.sum(beta) == 0, beta >= C * (y - 1) / 2, beta <= C * (y + 1) / 2]
problem = cp.Problem(cp.Minimize(cp.quad_form(beta, K) / 2 - y @ beta), constraints)
balance = problem.constraints[0]


def weather(rng):
    """A front across the region, as a function from places to +1 and −1."""
    angle, offset, bend, phase = rng.uniform((0, -0.2, 0, 0), (2 * np.pi, 0.2, 0.15, 2 * np.pi))
    across, along = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def rain(places):
        t, u = (places - 0.5) @ across, (places - 0.5) @ along
        return np.where(t > offset + bend * np.sin(6 * u + phase), 1.0, -1.0)

    return rain


def reports(rain, rng):
    """What the stations say; one in twenty is wrong."""
    return rain(stations) * np.where(rng.random(STATIONS) < WRONG, -1.0, 1.0)


def sample(rng):
    """The reports of some hour."""
    return {"y": reports(weather(rng), rng)}


def main(sizes=None, hours=100, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    hour = sample(np.random.default_rng(5))
    solution = solver.solve(hour, eps_abs=1e-6, eps_rel=1e-6)
    y.value = hour["y"]
    problem.solve(solver=cp.CLARABEL)
    distance = np.abs(solution.variables["beta"] - beta.value).max()
    print(f"\na new hour: {solution}; β within {distance:.1e} of Clarabel's")
    bias = report.model.duals(solution)[balance.id]
    print(f"bias {bias:.5f}, by Clarabel {balance.dual_value:.5f}; objective {problem.value:.4f}", end="; ")
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"through CVXPY: {problem.status}, {problem.value:.4f}\n")

    rng = np.random.default_rng(6)
    fronts = [weather(rng) for _ in range(hours)]
    said = np.stack([reports(rain, rng) for rain in fronts])
    places = np.stack(np.meshgrid(*2 * [np.linspace(0.01, 0.99, 50)]), axis=-1).reshape(-1, 2)
    truth = np.stack([rain(places) for rain in fronts])
    trained = solver.solve_batch({"y": said}, steps=20)
    biases = report.model.duals(trained)[balance.id]
    drawn = trained.variables["beta"] @ kernel(stations, places) + np.reshape(biases, (-1, 1))
    nearest = said[:, np.argmax(kernel(stations, places), axis=0)]
    right = [100 * np.mean(np.sign(each) == truth) for each in (drawn, nearest)]
    print(f"map of {hours} hours, 20 steps each: {right[0]:.1f}% right; by the nearest station {right[1]:.1f}%")


if __name__ == "__main__":
    main()
