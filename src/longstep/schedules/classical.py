"""Step-size schedules from theory, for gradient methods with Lipschitz constant L and strong convexity mu."""

import math

import numpy as np

from .schedule import Schedule


def chebyshev(L: float, mu: float, steps: int) -> Schedule:
    """Return Young's steps t_l = 2/(L + mu − (L − mu)·cos((2l−1)π/2B)), l = 1…B, then 2/(L + mu).

    No other B steps have a smaller worst-case error on all quadratics with spectrum in [mu, L] (Young 1953).
    They are taken in Leja's order, which keeps rounding errors and growth on the way small.
    """
    _check(L, mu, steps)
    if mu <= 0:
        raise ValueError(f"Chebyshev steps need strong convexity: mu must be positive, got {mu}")
    angles = (2 * np.arange(1, steps + 1) - 1) * math.pi / (2 * steps)
    roots = (L + mu - (L - mu) * np.cos(angles)) / 2
    return Schedule({"step": 1 / leja_order(roots)}, {"step": _fixed_step(L, mu)})


def leja_order(points: np.ndarray) -> np.ndarray:
    """Return the points in Leja's order: the largest first, then always the one with the largest product of distances
    to those taken. Products Π(1 − λ/p) then stay small for all λ among the points, in every prefix."""
    rest = np.sort(np.asarray(points, np.float64))[::-1]
    if rest.size == 0:
        return rest
    taken = [0]
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(rest - rest[0]))
        for _ in range(rest.size - 1):
            logs[taken] = -np.inf
            # Among points that coincide with taken ones every product is zero: any order will do.
            free = [i for i in range(rest.size) if i not in taken]
            best = max(free, key=lambda i: logs[i])
            taken.append(best)
            logs = logs + np.log(np.abs(rest - rest[best]))
    return rest[taken]


def silver(L: float, power: int) -> Schedule:
    """Return the silver steps for convex functions, K = 2^power − 1 of them, then 1/L (Altschuler and Parrilo 2023).

    h_1 = (√2), h_{2K+1} = (h_K, 1 + ρ^{j−1}, h_K) with ρ = 1 + √2 and K = 2^j − 1, in units of 1/L.
    """
    _check(L, 0.0, power)
    rho = 1 + math.sqrt(2)
    h = np.array([math.sqrt(2)])
    for j in range(1, power):
        h = np.concatenate([h, [1 + rho ** (j - 1)], h])
    return Schedule({"step": h / L}, {"step": 1 / L})


def silver_strongly_convex(L: float, mu: float, power: int) -> Schedule:
    """Return the silver steps for mu-strongly convex functions, 2^power of them, then 2/(L + mu).

    u₁ = v₁ = 1/κ; ξ = 1 − v_{k/2}; u_k = v_{k/2}/(ξ + √(1+ξ²)), v_k = v_{k/2}(ξ + √(1+ξ²));
    a_k = ψ(u_k), b_k = ψ(v_k), ψ(t) = (1+κt)/(1+t); h^{(k)} = (h̃, a_k, h̃, b_k), h̃ = h^{(k/2)} without its last
    entry, in units of 1/L (Altschuler and Parrilo 2023).
    """
    _check(L, mu, power + 1)
    if mu <= 0:
        raise ValueError(f"these steps need strong convexity: mu must be positive, got {mu}; see `silver`")
    kappa = L / mu

    def psi(t: float) -> float:
        return (1 + kappa * t) / (1 + t)

    v = 1 / kappa
    h = np.array([psi(v)])
    for _ in range(power):
        xi = 1 - v
        growth = xi + math.sqrt(1 + xi * xi)
        u = v / growth
        v = v * growth
        h = np.concatenate([h[:-1], [psi(u)], h[:-1], [psi(v)]])
    return Schedule({"step": h / L}, {"step": _fixed_step(L, mu)})


def _fixed_step(L: float, mu: float) -> float:
    # 2/(L + mu) with a tiny mu would sit on the edge 2/L of the convergent range, which keeps a margin.
    return min(2 / (L + mu), (2 / L) * (1 - 1e-3))


def _check(L: float, mu: float, steps: int) -> None:
    if not 0 < L < math.inf or not 0 <= mu <= L:
        raise ValueError(f"need 0 < L and 0 ≤ mu ≤ L, got L = {L}, mu = {mu}")
    if steps < 1:
        raise ValueError(f"a schedule needs at least one step, got {steps}")
