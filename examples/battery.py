"""A battery behind the meter, planned a day ahead against hourly prices.

    python examples/battery.py
    longstep learn examples/battery.py --out battery.longstep

The forecast load, tomorrow's prices and what is in the battery at midnight are the parameters. Hour by hour, in kWh:

    minimise    Σ price·grid + peak·grid² + wear·(charge² + discharge²)
    subject to  grid = load + charge − discharge ≥ 0                        nothing is sold to the grid
                storedₜ = storedₜ₋₁ + η·chargeₜ − dischargeₜ/η,  0 ≤ stored ≤ capacity
                0 ≤ charge, discharge ≤ power,  stored at the end ≥ initial

The energy bought is a variable of its own, because price·load would be a product of two parameters, which is not DPP.
"""

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

HOURS = 24
CAPACITY, POWER, EFFICIENCY = 10.0, 3.0, 0.95  # kWh, kW, of each way
PEAK, WEAR = 1.0, 0.5  # ct/kWh²: a fee on drawing much at once; heat and ageing, which grow with the current's square

load = cp.Parameter(HOURS, name="load", nonneg=True)
price = cp.Parameter(HOURS, name="price")
initial = cp.Parameter(name="initial", nonneg=True)
charge, discharge = cp.Variable(HOURS, name="charge"), cp.Variable(HOURS, name="discharge")
stored, grid = cp.Variable(HOURS, name="stored"), cp.Variable(HOURS, name="grid")
before = cp.hstack([initial, stored[:-1]])
wear = WEAR * (cp.sum_squares(charge) + cp.sum_squares(discharge))
constraints = [grid == load + charge - discharge, grid >= 0]
constraints += [stored == before + EFFICIENCY * charge - discharge / EFFICIENCY, stored[-1] >= initial]
constraints += [stored >= 0, stored <= CAPACITY]
constraints += [charge >= 0, charge <= POWER, discharge >= 0, discharge <= POWER]
problem = cp.Problem(cp.Minimize(price @ grid + PEAK * cp.sum_squares(grid) + wear), constraints)


def bump(centre, width):
    """One at some hour, falling to zero around it."""
    return np.exp(-0.5 * ((np.arange(HOURS) - centre) / width) ** 2)


# A household (kWh in each hour) and a market (ct/kWh): peaks in the morning and the evening, cheap sun at noon.
LOAD = 0.5 + 0.8 * bump(7.5, 1.5) + 1.8 * bump(19, 2)
PRICE = 22 + 8 * bump(8, 2) - 10 * bump(13, 2.5) + 16 * bump(19, 2.5)


def sample(rng):
    """A day: a busier or a quieter household, dearer or cheaper peaks, some charge left from the day before."""
    return {
        "load": LOAD * rng.uniform(0.6, 1.4) * np.exp(rng.normal(0, 0.2, HOURS)),
        "price": 22 + (PRICE - 22) * rng.uniform(0.5, 1.5) + rng.normal(0, 1.5, HOURS),
        "initial": CAPACITY * rng.uniform(0.2, 0.8),
    }


def main(sizes=None, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    day = sample(np.random.default_rng(5))
    solution = solver.solve(day, eps_abs=1e-6, eps_rel=1e-6)
    for parameter in problem.parameters():
        parameter.value = day[parameter.name()]
    problem.solve(solver=cp.CLARABEL)
    distance = np.abs(solution.variables["stored"] - stored.value).max()
    print(f"\na new day: {solution}; charge within {distance:.1e} kWh of Clarabel's")
    print(f"cost {solution.objective:.4f} ct, by Clarabel {problem.value:.4f}", end="; ")
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"through CVXPY: {problem.status}, {problem.value:.4f}\n")
    charged, used = (np.flatnonzero(np.asarray(flow.value) > 0.1) for flow in (charge, discharge))
    print("charged at", *charged, "h and used at", *used, "h")
    with_it, without = (day["price"] @ bought / 100 for bought in (grid.value, day["load"]))
    print(f"energy bought: {with_it:.2f} € with the battery, {without:.2f} € without")


if __name__ == "__main__":
    main()
