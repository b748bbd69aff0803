"""Model predictive control of a cart with the learned solver in C: warm starts, jitter, soft limits, relearning.

    python examples/cart.py
    longstep learn examples/cart.py --out cart.longstep

Every tenth of a second the controller measures position and velocity, plans 15 steps ahead and applies the first force:

    minimise    Σ (p − target)² + v²/10 + u²/20 + 20·over + 20·over²
    subject to  pₜ₊₁ = pₜ + dt·vₜ + dt²/2·uₜ,  vₜ₊₁ = vₜ + dt·uₜ,  |u| ≤ 1
                |v| ≤ 0.6 + over,  over ≥ 0              a limit that gives way, so that every state has a plan

The square with the target is multiplied out, (p − target)² = p² − 2·target·p + …: CVXPY then adds no unknowns for it.
"""

import time

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

STEPS, DT, FORCE, SPEED = 15, 0.1, 1.0, 0.6

state, target = cp.Parameter(2, name="state"), cp.Parameter(name="target")
p, v = cp.Variable(STEPS, name="p"), cp.Variable(STEPS, name="v")
u, over = cp.Variable(STEPS, name="u"), cp.Variable(STEPS, name="over", nonneg=True)
p_before, v_before = cp.hstack([state[0], p[:-1]]), cp.hstack([state[1], v[:-1]])
cost = cp.sum_squares(p) - 2 * target * cp.sum(p) + cp.sum_squares(v) / 10 + cp.sum_squares(u) / 20
cost += 20 * cp.sum(over) + 20 * cp.sum_squares(over)
constraints = [p == p_before + DT * v_before + DT**2 / 2 * u, v == v_before + DT * u]
constraints += [u <= FORCE, u >= -FORCE, v <= SPEED + over, v >= -SPEED - over]
problem = cp.Problem(cp.Minimize(cost), constraints)


def sample(rng):
    """A state that the controller may find the cart in, and where it should go."""
    return {"state": rng.uniform([-1.0, -0.8], [1.0, 0.8]), "target": rng.uniform(-1.0, 1.0)}


def drive(solver, steps, warm):
    """Follow a target that jumps, under gusts; return the states, the targets and the seconds of every solve."""
    rng = np.random.default_rng(3)
    now, goal, last = np.zeros(2), 0.0, None
    log = []
    for k in range(steps):
        if k % 25 == 0:
            goal = rng.uniform(-1.0, 1.0)
        begin = time.perf_counter()
        plan = solver.solve({"state": now, "target": goal}, warm_start=last, eps_abs=1e-6, eps_rel=1e-6)
        log.append((now, goal, time.perf_counter() - begin))
        assert plan.solved, plan.message
        last = plan if warm else None
        force = plan.variables["u"][0]
        now = np.array([now[0] + DT * now[1] + DT**2 / 2 * force, now[1] + DT * force]) + rng.normal(0, [0.0, 0.02])
    states, goals, seconds = zip(*log, strict=True)
    return np.array(states), np.array(goals), np.array(seconds)


def print_jitter(rows):
    """A line for each kind of start: microseconds a solve, called from Python."""
    print(f"{'start':<18}{'median':>10}{'99%':>10}{'worst':>10}   µs a solve")
    for name, seconds in rows.items():
        median, late, worst = 1e6 * np.quantile(seconds, [0.5, 0.99, 1.0])
        print(f"{name:<18}{median:>10.0f}{late:>10.0f}{worst:>10.0f}")


def main(sizes=None, steps=500, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    new = sample(np.random.default_rng(5))
    solution = solver.solve(new, eps_abs=1e-8, eps_rel=1e-8)
    state.value, target.value = new["state"], new["target"]
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"\na new state: {solution}; through CVXPY: {problem.status}, first force {u.value[0]:.4f}\n")

    # The same code as `longstep export-c` writes for the controller's own machine.
    compiled = solver.compile()
    drive(compiled, 20, warm=True)
    states, goals, cold = drive(compiled, steps, warm=False)
    _, _, warm = drive(compiled, steps, warm=True)
    print_jitter({"from nothing": cold, "from the last plan": warm})
    print(f"furthest from the target after 2 s: {np.abs(states[:, 0] - goals)[20::25].max():.2f} m")

    # Too fast to brake within one step: with a hard limit there is no plan at all.
    fast = {"state": np.array([0.0, 0.9]), "target": 0.5}
    state.value, target.value = fast["state"], fast["target"]
    cp.Problem(problem.objective, [*constraints, over == 0]).solve(solver=cp.CLARABEL)
    hard = over.value is None
    plan = compiled.solve(fast, eps_abs=1e-6, eps_rel=1e-6)
    excess = plan.variables["over"]
    print(f"at 0.9 m/s: hard limit {'infeasible' if hard else 'feasible'}, soft limit {plan.status.words}, ", end="")
    print(f"{excess[0]:.2f} m/s too fast at first, none from step {np.flatnonzero(excess > 1e-6)[-1] + 2} on")

    # What the cart met is not what the sampler draws: learn from it, the newest for the test.
    past = {"state": states, "target": goals}
    fewer = {name: (sizes or {"train": 20}).get(name, 20) for name in ("train", "test")}
    again, second = learn(problem, past, sizes=fewer, **options)
    _, _, relearned = drive(again.compile(), steps, warm=True)
    print_jitter({"learned from draws": warm, "from the log": relearned})
    print(second.costs.verdict)


if __name__ == "__main__":
    main()
