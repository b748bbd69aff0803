"""Model predictive control of a quadcopter, written in CVXPY: learn a solver for it and fly 200 steps with it.

    python examples/quadcopter.py
    longstep learn examples/quadcopter.py --out quadcopter.longstep

States are position, angles, velocity and angular rates, each of three; the inputs are four rotors. Every tenth of a
second the controller plans ten steps ahead from the state that it measures, which is the parameter, and applies the
first inputs of the plan. Here it may take eight iterations for that, and OSQP, warm-started, as many.
"""

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn
from longstep.research import demo
from longstep.research.experiments import quadcopter as model

A, B = model.dynamics()
T = model.HORIZON

s0 = cp.Parameter(model.STATES, name="s0")
# The cost is on the variables themselves: CVXPY gives an expression inside a quadratic unknowns of its own.
states = cp.Variable((T + 1) * model.STATES, name="states")
inputs = cp.Variable(T * model.INPUTS, name="inputs")
s = cp.reshape(states, (T + 1, model.STATES), order="C")
u = cp.reshape(inputs, (T, model.INPUTS), order="C")
tracking = cp.quad_form(states, np.kron(np.eye(T + 1), model.STATE_COST))
tracking -= 2 * np.tile(model.STATE_COST @ model.TARGET, T + 1) @ states
effort = cp.quad_form(inputs, np.kron(np.eye(T), model.INPUT_COST))
constraints = [s[0] == s0, s[1:] == s[:-1] @ A.T + u @ B.T]
constraints += [s[:, 3:5] <= model.ANGLE_LIMIT, s[:, 3:5] >= -model.ANGLE_LIMIT]
constraints += [inputs <= model.INPUT_LIMIT, inputs >= -model.INPUT_LIMIT]
problem = cp.Problem(cp.Minimize((tracking + effort) / 2), constraints)


def sample(rng):
    """A state that the controller may find the quadcopter in."""
    return {"s0": rng.uniform(-model.SPREAD, model.SPREAD)}


def main(sizes=None, steps=200, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    state = model.sample(np.random.default_rng(5))
    solution = solver.solve({"s0": state}, eps_abs=1e-8, eps_rel=1e-8)
    s0.value = state
    problem.solve(solver=cp.CLARABEL)
    print(f"\na new state: {solution}; objective by Clarabel {problem.value:.6f}")
    print(f"the first inputs {solution.variables['inputs'][:4].round(4)}, by Clarabel {inputs.value[:4].round(4)}")
    problem.solve(solver=report.model.cvxpy_solver(solver, eps_abs=1e-6, eps_rel=1e-6))
    print(f"through CVXPY: {problem.status}, objective {problem.value:.6f}\n")

    def controller(state):
        return solver.solve({"s0": state}, steps=demo.BUDGET).variables["inputs"][: model.INPUTS]

    flights = [
        demo.fly("OSQP to 1e-8", demo.make_osqp_controller(None), steps=steps),
        demo.fly(f"longstep, {demo.BUDGET} iterations", controller, steps=steps),
        demo.fly(f"OSQP, {demo.BUDGET} iterations", demo.make_osqp_controller(demo.BUDGET), steps=steps),
    ]
    print(demo.make_table(flights))


if __name__ == "__main__":
    main()
