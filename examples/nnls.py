"""Which minerals are in a pixel? Spectral unmixing by non-negative least squares.

    python examples/nnls.py
    longstep learn examples/nnls.py --out nnls.longstep

A pixel's spectrum b, the parameter, is a mixture of the spectra of known materials, the columns of A, in bright light
or in shade:

    minimise ‖Az − b‖²  subject to  z ≥ 0

An image has many pixels and one A, so they are solved in one batch, as columns of shared matrix products.
"""

from time import perf_counter

import cvxpy as cp
import numpy as np

from longstep import enable_float64, learn

BANDS, MATERIALS, NOISE = 100, 20, 0.005

wavelength = np.linspace(0.0, 1.0, BANDS)


def spectrum(rng):
    """A reflectance between 0 and 1: a smooth background with four absorption lines."""
    slope, level = rng.normal(0.0, 0.2), rng.uniform(0.5, 0.8)
    lines = sum(
        rng.uniform(0.1, 0.4) * np.exp(-0.5 * ((wavelength - rng.random()) / rng.uniform(0.02, 0.1)) ** 2)
        for _ in range(4)
    )
    return np.clip(level + slope * (wavelength - 0.5) - lines, 0.02, 1.0)


_rng = np.random.default_rng(0)
A = np.column_stack([spectrum(_rng) for _ in range(MATERIALS)])

b = cp.Parameter(BANDS, name="b")
z = cp.Variable(MATERIALS, name="z", nonneg=True)
problem = cp.Problem(cp.Minimize(cp.sum_squares(A @ z - b)))


def pixel(rng):
    """How much of each material is there, two to five of them, times the light; and the spectrum that is seen."""
    present = rng.choice(MATERIALS, size=rng.integers(2, 6), replace=False)
    truth = np.zeros(MATERIALS)
    truth[present] = rng.uniform(0.5, 1.0) * rng.dirichlet(np.ones(len(present)))
    return truth, A @ truth + rng.normal(0.0, NOISE, BANDS)


def sample(rng):
    """The spectrum of some pixel."""
    return {"b": pixel(rng)[1]}


def main(sizes=None, pixels=1024, **options):
    enable_float64()
    solver, report = learn(problem, sample, sizes=sizes or {"train": 20}, **options)
    print(report)

    rng = np.random.default_rng(5)
    truth, seen = (np.stack(each) for each in zip(*(pixel(rng) for _ in range(pixels)), strict=True))
    solution = solver.solve({"b": seen[0]}, eps_abs=1e-6, eps_rel=1e-6)
    b.value = seen[0]
    problem.solve(solver=cp.CLARABEL)
    exact, distance = problem.value, np.abs(solution.variables["z"] - z.value).max()
    print(f"\na new pixel: {solution}; amounts within {distance:.1e} of Clarabel's")
    problem.solve(solver=report.model.cvxpy_solver(solver))
    print(f"‖Az − b‖² by Clarabel {exact:.6f}; through CVXPY: {problem.status}, {problem.value:.6f}\n")

    solver.solve_batch({"b": seen}, steps=30)  # compiles
    begin = perf_counter()
    image = solver.solve_batch({"b": seen}, steps=30)
    elapsed = perf_counter() - begin
    least = np.maximum(np.linalg.lstsq(A, seen.T)[0].T, 0)
    errors = [np.abs(each - truth).mean() / truth.mean() for each in (image.variables["z"], least)]
    print(
        f"{pixels} pixels in {1e3 * elapsed:.0f} ms: amounts are wrong by {100 * errors[0]:.0f}% on average, "
        f"plain least squares, cut off at zero, by {100 * errors[1]:.0f}%"
    )


if __name__ == "__main__":
    main()
