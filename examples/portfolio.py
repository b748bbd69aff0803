"""A portfolio that is rebalanced every day: mean and variance, a factor model, and what it costs to trade.

    python examples/portfolio.py
    longstep learn examples/portfolio.py --out portfolio.longstep

Weights w are in per cent of wealth. Today's expected returns mu and the weights w0 that yesterday left are the
parameters:

    maximise    mu'w − γ(f'Sf + w'Dw) − κ1'(buy + sell) − η(‖buy‖² + ‖sell‖²)
    subject to  f = F'w,  |f − f̄| ≤ limit,  w = w0 + buy − sell,  1'w = 100,  w, buy, sell ≥ 0

F has the assets' exposures to the factors, S and D the variances of the factors and of what is the asset's own, f̄ the
exposures of equal weights; γ is the aversion to risk, κ half the spread, η the impact of a trade on its own price.
Risk and costs stay the same from day to day, so one schedule serves every day.
"""

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

ASSETS, FACTORS = 45, 5
RISK_AVERSION, SPREAD, IMPACT, EXPOSURE_LIMIT = 3e-4, 0.1, 0.03, 15.0

# All returns are in per cent a month. The first factor is the market; the others are styles, which are zero on average.
_rng = np.random.default_rng(0)
F = np.column_stack([_rng.normal(1.0, 0.25, ASSETS), _rng.normal(0.0, 0.5, (ASSETS, FACTORS - 1))])
S = np.diag(np.array([4.5, 2.5, 2.0, 1.5, 1.5]) ** 2)
D = np.diag(_rng.uniform(4.0, 9.0, ASSETS) ** 2)
PREMIA = np.array([0.6, 0.2, 0.15, 0.1, 0.1])

mu, w0 = cp.Parameter(ASSETS, name="mu"), cp.Parameter(ASSETS, name="w0", nonneg=True)
w, f = cp.Variable(ASSETS, name="w"), cp.Variable(FACTORS, name="f")
buy, sell = cp.Variable(ASSETS, name="buy"), cp.Variable(ASSETS, name="sell")
variance = cp.quad_form(f, S) + cp.quad_form(w, D)
trading = SPREAD * cp.sum(buy + sell) + IMPACT * (cp.sum_squares(buy) + cp.sum_squares(sell))
excess = f - F.T @ np.full(ASSETS, 100 / ASSETS)
constraints = [f == F.T @ w, excess <= EXPOSURE_LIMIT, excess >= -EXPOSURE_LIMIT]
constraints += [w == w0 + buy - sell, cp.sum(w) == 100, w >= 0, buy >= 0, sell >= 0]
problem = cp.Problem(cp.Maximize(mu @ w - RISK_AVERSION * variance - trading), constraints)


def sample(rng):
    """Expected returns of some day, and weights that followed the day before's, which were much like them."""
    yesterday = F @ rng.normal(PREMIA, 0.1) + rng.normal(0.0, 0.4, ASSETS)
    held = np.maximum(yesterday - np.median(yesterday), 0) / np.diag(D) + 1e-3 * rng.random(ASSETS)
    return {"mu": yesterday + rng.normal(0.0, 0.1, ASSETS), "w0": 100 * held / held.sum()}


def describe(weights, day):
    """What an investor asks about weights: risk, trade, and the utility as a return without risk, all in per cent."""
    trade, exposure = np.abs(weights - day["w0"]), F.T @ weights
    variance = exposure @ S @ exposure + weights @ D @ weights
    gain = day["mu"] @ weights - SPREAD * trade.sum() - IMPACT * (trade**2).sum()
    worth = (gain - RISK_AVERSION * variance) / 100
    return f"worth {worth:.3f}% a month, risk {np.sqrt(variance) / 100:.2f}%, {trade.sum() / 2:.1f}% traded"


def main(sizes=None, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    day = sample(np.random.default_rng(5))
    solution = solver.solve(day, eps_abs=1e-6, eps_rel=1e-6)
    mu.value, w0.value = day["mu"], day["w0"]
    problem.solve(solver=cp.CLARABEL)
    distance = np.abs(solution.variables["w"] - w.value).max()
    print(f"\na new day: {solution}; weights within {distance:.1e} of Clarabel's, in per cent")
    print(f"utility {solution.objective:.4f}, by Clarabel {problem.value:.4f}", end="; ")
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"through CVXPY: {problem.status}, {problem.value:.4f}\n")
    print(f"rebalanced: {describe(w.value, day)}\nleft alone: {describe(day['w0'], day)}")


if __name__ == "__main__":
    main()
