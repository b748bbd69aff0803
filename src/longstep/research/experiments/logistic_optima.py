"""Optima of logistic regressions on images, many at a time: Newton's method on as many unknowns as images."""

import numpy as np
from jaxtyping import Float, Shaped

from ...data.optima import Optima, Optimum, require


def make_labels(count: int) -> np.ndarray:
    """Return +1 for the first half of the images, −1 for the second."""
    return np.repeat([1.0, -1.0], count // 2)


def make_design(images: np.ndarray) -> Float[np.ndarray, "N m n"]:
    """Return V of stacked images: floats as they are, bytes as pixels in [0, 1] with a column of ones."""
    if images.dtype != np.uint8:
        return np.asarray(images, np.float64)
    return np.concatenate([images / 255.0, np.ones((*images.shape[:-1], 1))], axis=-1)


def split_chunks(images: np.ndarray) -> list[np.ndarray]:
    """Return a few instances at a time: as floats they are large."""
    return [images[i : i + 16] for i in range(0, len(images), 16)]


def solve_logistic(images: Shaped[np.ndarray, "N m k"], regularization: float, accuracy: float = 1e-8) -> Optima:
    """Return the optima of N stacked instances, in bytes, with ε > 0: Newton's method on as many unknowns as images.

    The minimiser is z = V'a. With K = VV', margins u = y ⊙ Ka and σ = 1/(1 + exp u), ∇f = V'r for

        r = εa − y ⊙ σ/m,   and a Newton step solves (εI + diag(σ(1 − σ)/m) K) δ = −r,

    halved until f falls.
    """
    found = []
    for part in split_chunks(images):
        V = make_design(part)
        y = np.tile(make_labels(part.shape[1]), (len(part), 1))
        for optimum in _run_newton(V, y, regularization):
            found.append(require(optimum, accuracy, f"instance {len(found)}"))
    return Optima.stack(found)


def _run_newton(V: Float[np.ndarray, "N m n"], y: Float[np.ndarray, "N m"], epsilon: float) -> list[Optimum]:
    """Return the optima of some instances with these V and labels."""
    N, m, _ = V.shape
    K = V @ V.swapaxes(1, 2)

    def multiply(matrix: np.ndarray, a: np.ndarray) -> np.ndarray:
        return np.einsum("ijk,ik->ij", matrix, a)

    def value(a: np.ndarray) -> np.ndarray:
        Ka = multiply(K, a)
        return np.mean(np.logaddexp(0.0, -y * Ka), axis=1) + epsilon / 2 * np.sum(a * Ka, axis=1)

    a = np.zeros((N, m))
    identity = epsilon * np.eye(m)
    for _ in range(60):
        sigma = 1 / (1 + np.exp(np.minimum(y * multiply(K, a), 700.0)))
        r = epsilon * a - y * sigma / m
        if np.max(np.abs(r)) <= 1e-14 / m:
            break
        curvature = (sigma * (1 - sigma) / m)[:, :, None]
        step = -np.linalg.solve(identity + curvature * K, r[:, :, None])[:, :, 0]
        # At the end differences of f are rounding, and full steps are right.
        limit = value(a) + 1e-14
        length = np.ones((N, 1))
        for _ in range(30):
            worse = ~(value(a + length * step) <= limit)
            if not worse.any():
                break
            length[worse] /= 2
        a = a + length * step
    return [_measure_optimum(V[i], y[i], a[i], epsilon) for i in range(N)]


def _measure_optimum(V: Float[np.ndarray, "m n"], y: Float[np.ndarray, " m"], a: np.ndarray, epsilon: float) -> Optimum:
    """Return the optimum z = V'a with its value and its error."""
    z = V.T @ a
    scores = y * (V @ z)
    gradient = -V.T @ (y / (1 + np.exp(np.minimum(scores, 700.0)))) / len(y) + epsilon * z
    scale = 1 + np.max(np.abs(V.T @ y)) / (2 * len(y))
    value = float(np.mean(np.logaddexp(0.0, -scores)) + epsilon / 2 * z @ z)
    return Optimum(z, None, None, value, float(np.max(np.abs(gradient)) / scale))
