"""Exact training of gradient descent: the best step for any function, the best schedule for quadratics.

On a quadratic with eigenvalues λ every schedule of k steps turns the error along eigenvector j into p_k(λ_j) times
itself, with p_k of degree k and p_k(0) = 1. With weights ω_j, the mean squared errors at the start, the loss is
Σ λ^{power−1} ω p_k(λ)²: the squared distance for power 1, twice the suboptimality for power 2. The polynomial that
minimises it is the orthogonal polynomial of the measure λ^power·ω, so both kinds of schedule come from one Lanczos run.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ...algorithms.gradient import MOMENTUM, step_size
from ...families.smooth import Quadratic
from ...schedules.classical import leja_order
from ...schedules.lengths import block_lengths
from ...schedules.schedule import Schedule
from ..recipe import DEFAULT, Recipe
from .spectrum import EPS, ErrorSpectrum, Gaussian, find_curved


def one_step(gradients: ArrayLike, errors: ArrayLike) -> float:
    """Return the step t = Σ g'e / Σ‖g‖² that minimises Σ‖e − t g‖² over instances (rows); 0 where all gradients are
    0."""
    g = np.asarray(gradients, np.float64)
    e = np.asarray(errors, np.float64)
    if g.shape != e.shape:
        raise ValueError(f"gradients and errors must have one shape, got {g.shape} and {e.shape}")
    scale = np.max(np.abs(g), initial=0.0)
    if scale == 0:
        return 0.0
    # Convexity makes the numerator nonnegative; inexact optima may not.
    return max(float(np.sum((g / scale) * e) / np.sum((g / scale) ** 2) / scale), 0.0)


def polynomial_steps(
    eigenvalues: ArrayLike,
    weights: ArrayLike,
    count: int,
    power: int = 1,
    *,
    ordered: int = DEFAULT.ordered,
) -> Float[np.ndarray, " B"]:
    """Return the `count` steps of gradient descent with the smallest Σ λ^{power−1} ω Π(1 − tλ)².

    Fewer where fewer already solve the problem exactly. The product does not depend on the order of the steps, the
    losses on the way and the rounding errors do. Up to `ordered` steps come in the order with the smallest geometric
    mean of the losses on the way (on ridge regression it is never later than Leja's order, and the loss does not rise
    first), more in Leja's order.

    >>> polynomial_steps(np.array([1.0, 4.0]), np.array([1.0, 1.0]), 2).round(3)
    array([0.25, 1.  ])
    """
    values, weights = _find_support(eigenvalues, weights, count, power)
    if not values.size:
        return np.zeros(0)
    diagonal, above = _bidiagonal(values, values**power * weights, count)
    singular = np.linalg.svd(np.diag(diagonal) + np.diag(above, 1), compute_uv=False)
    roots = np.clip(singular**2, np.min(values), np.max(values))
    if roots.size > ordered:
        return 1 / leja_order(roots)
    return 1 / _anytime_order(values, values ** (power - 1) * weights, np.sort(roots)[::-1])


def _anytime_order(
    values: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"], roots: Float[np.ndarray, " B"]
) -> Float[np.ndarray, " B"]:
    """Return the roots in the order with the smallest product of the losses Σ ω p² on the way.

    A loss depends on the set of roots taken, not on their order: dynamic programming over the 2^B sets. The Gauss
    quadrature of ω with B + 1 nodes gives all of these losses exactly.
    """
    diagonal, above = _bidiagonal(values, weights, roots.size + 1)
    _, singular, vectors = np.linalg.svd(np.diag(diagonal) + np.diag(above, 1))
    left = vectors[None, :, 0] ** 2
    for root in roots:
        left = np.concatenate([left, left * (1 - singular**2 / root) ** 2])
    losses = np.log(np.maximum(np.sum(left, axis=1), np.finfo(np.float64).tiny))
    total = np.zeros(len(losses))
    last = np.zeros(len(losses), int)
    for taken in range(1, len(losses)):
        before, last[taken] = min((total[taken ^ 1 << i], i) for i in range(roots.size) if taken >> i & 1)
        total[taken] = before + losses[taken]
    order = []
    taken = len(losses) - 1
    while taken:
        order.append(last[taken])
        taken ^= 1 << int(last[taken])
    return roots[order[::-1]]


def block_steps(
    eigenvalues: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    blocks: Iterable[int],
    power: int = 1,
    *,
    eps: float = EPS,
) -> tuple[Float[np.ndarray, " H"], list[Float[np.ndarray, " n"]]]:
    """Train progressively: each block of steps is optimal for the errors that the blocks before it leave.

    Returns all steps and the weights after each block, ω Π(1 − tλ)² and the share of rounding errors of relative
    size `eps`. It ends early where these outweigh the rest, and takes a block in two halves where they spoil it.
    """
    runs = list(_Progress(eigenvalues, weights, _propose_without_momentum, power, eps).blocks(blocks))
    return np.concatenate([np.zeros(0), *(run.steps for run in runs)]), [run.weights for run in runs]


def momentum_schedule(
    eigenvalues: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"], count: int, power: int = 1
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, " H"]]:
    """Return the t and β of z⁺ = z − t∇f(z) + β(z − z⁻), β⁰ = 0, whose loss is the smallest possible after every step.

    No schedule fixed beforehand has a smaller Σ λ^{power−1} ω p_k(λ)² for any k ≤ count. Fewer than `count` where
    fewer already solve the problem exactly.
    """
    values, weights = _find_support(eigenvalues, weights, count, power)
    if not values.size:
        return np.zeros(0), np.zeros(0)
    diagonal, above = _bidiagonal(values, values**power * weights, count)
    return 1 / diagonal**2, np.append(0.0, above / diagonal[1:]) ** 2


def worst_case_rates(
    eigenvalues: Float[np.ndarray, " n"],
    steps: Float[np.ndarray, " H"],
    momentum: Float[np.ndarray, " H"] | None = None,
) -> Float[np.ndarray, " H_plus_1"]:
    """Return max_j |p_k(λ_j)| for k = 0 … H: ‖z^k − z*‖ is at most this times ‖z⁰ − z*‖, whatever the instance
    (Young)."""
    return np.array([np.max(np.abs(p)) for p in polynomials(eigenvalues, steps, momentum)])


def expected_losses(
    eigenvalues: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    steps: Float[np.ndarray, " H"],
    momentum: Float[np.ndarray, " H"] | None = None,
    *,
    power: int = 1,
) -> Float[np.ndarray, " H_plus_1"]:
    """Return Σ λ^{power−1} ω p_k(λ)² for k = 0 … H: the mean squared distance, for power 2 twice the mean
    suboptimality."""
    scale = np.asarray(eigenvalues, np.float64) ** (power - 1) * weights
    with np.errstate(over="ignore"):
        return np.array([np.sum(scale * p**2) for p in polynomials(eigenvalues, steps, momentum)])


def polynomials(
    eigenvalues: Float[np.ndarray, " n"], steps: Float[np.ndarray, " H"], momentum: Float[np.ndarray, " H"] | None
) -> Iterator[Float[np.ndarray, " n"]]:
    """Return p_0, p_1, …, p_H at the eigenvalues: the error along each after k steps is p_k times that at the start."""
    values = np.asarray(eigenvalues, np.float64)
    steps = np.asarray(steps, np.float64)
    momentum = np.zeros_like(steps) if momentum is None else np.asarray(momentum, np.float64)
    p = previous = np.ones_like(values)
    yield p
    for t, beta in zip(steps, momentum, strict=True):
        p, previous = p - t * values * p + beta * (p - previous), p
        yield p


def exact_schedule(
    family: Quadratic,
    source: Gaussian | ArrayLike,
    *,
    horizon: int = 50,
    block: int | Sequence[int] = 10,
    momentum: bool = False,
    objective: Literal["distance", "metric"] = "distance",
    recipe: Recipe = DEFAULT,
) -> Schedule:
    """Return the exactly optimal schedule of a quadratic family, from a known Gaussian or from errors z⁰ − z* (rows).

    Blocks of `block` steps (or of several lengths) for gradient descent, or with `momentum` the schedule for
    `HeavyBall` that is optimal after every step. `objective` is what is small on average: the squared distance to the
    optimum, or the suboptimality. The schedule is shorter than `horizon` where the loss reaches rounding before. Then
    follow the default step and no momentum.

    >>> family = Quadratic(np.diag([1.0, 4.0]))
    >>> exact_schedule(family, Gaussian(np.zeros(2), np.diag([1.0, 16.0])))
    Schedule(2 steps, then steady)
       k  step
       0  0.25
       1  1
      2…  0.4
    """
    if objective not in ("distance", "metric"):
        raise ValueError(f"objective must be 'distance' or 'metric', got {objective!r}")
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    spectrum = ErrorSpectrum(family)
    progress = _Progress(
        spectrum.eigenvalues,
        spectrum.weights(source),
        momentum_schedule if momentum else functools.partial(_propose_without_momentum, ordered=recipe.ordered),
        1 if objective == "distance" else 2,
        float(np.finfo(family.dtype).eps),
    )
    runs = list(progress.blocks([horizon] if momentum else block_lengths(horizon, block)))
    step = step_size(family)
    varying = {step.name: [run.steps for run in runs]}
    steady = {step.name: step.default}
    if momentum:
        varying[MOMENTUM.name] = [run.momentum for run in runs]
        steady[MOMENTUM.name] = MOMENTUM.default
    arrays = {name: np.concatenate([np.zeros(0), *parts]) for name, parts in varying.items()}
    return Schedule(arrays, steady, blocks=[len(run.steps) for run in runs if len(run.steps)])


class _Run(NamedTuple):
    """Some steps, the losses before and after each of them, and the weights that they leave."""

    steps: Float[np.ndarray, " B"]
    momentum: Float[np.ndarray, " B"]
    losses: Float[np.ndarray, " B_plus_1"]
    rounding: Float[np.ndarray, " B_plus_1"]  # the share of rounding errors in the losses
    weights: Float[np.ndarray, " n"]
    solved: bool  # nothing but rounding is left


_Proposal: TypeAlias = Callable[[np.ndarray, np.ndarray, int, int], tuple[np.ndarray, np.ndarray]]


def _propose_without_momentum(
    eigenvalues: np.ndarray, weights: np.ndarray, count: int, power: int, ordered: int = DEFAULT.ordered
) -> tuple[np.ndarray, np.ndarray]:
    steps = polynomial_steps(eigenvalues, weights, count, power, ordered=ordered)
    return steps, np.zeros_like(steps)


class _Progress:
    """Progressive training under rounding errors of relative size `eps`."""

    def __init__(self, eigenvalues: np.ndarray, weights: np.ndarray, propose: _Proposal, power: int, eps: float):
        self.values = np.asarray(eigenvalues, np.float64)
        self.weights = np.where(find_curved(self.values), weights, 0.0)
        self.propose = propose
        self.power = power
        self.eps = eps
        self.scale = np.abs(self.values) ** (power - 1)
        # From zero the weights add up to the mean ‖z*‖², which sets the size of the rounding errors.
        self.size = float(np.sum(self.weights))
        self.floor = (1000 * eps) ** 2 * self.loss(self.weights)

    def loss(self, errors: np.ndarray) -> float:
        """Return Σ λ^{power−1} of mean squared errors; infinite on overflow."""
        total = float(np.sum(self.scale * errors))
        return math.inf if math.isnan(total) else total

    def blocks(self, lengths: Iterable[int]) -> Iterator[_Run]:
        """Make blocks of these lengths, each for what the ones before it leave, until that is rounding."""
        weights = self.weights
        for count in lengths:
            run = self.block(weights, count)
            while 0 < run.steps.size < count and not run.solved:
                run = self.join(weights, run, self.block(run.weights, count - run.steps.size))
            if not run.steps.size:
                return
            yield run
            if run.solved and run.losses[-1] <= self.floor:
                return
            weights = run.weights

    def block(self, weights: np.ndarray, count: int) -> _Run:
        """Return one block, made in parts where rounding errors would spoil it as a whole."""
        run = self.simulate(weights, *self.propose(self.values, weights, count, self.power))
        if run.steps.size < 2 or (run.solved and run.losses[-1] <= self.floor):
            return run
        # In exact arithmetic nothing beats the whole block. With momentum its beginnings are optimal too.
        if run.momentum.any():
            spoiled = ~(run.rounding < 1e-2 * run.losses)[1:]
            first = max(int(np.argmax(spoiled)), 1) if spoiled.any() else count
        else:
            first = count if run.rounding[-1] < 1e-10 * run.losses[-1] else count // 2
        if first == count:
            return run
        head = self.block(weights, first)
        tail = self.block(head.weights, count - first)
        # What solves the problem but for small rounding errors is not made longer for a little less of them.
        if not tail.losses[-1] < (1e-4 if run.solved else 1.0) * run.losses[-1]:
            return run
        return self.join(weights, head, tail)

    def join(self, weights: np.ndarray, head: _Run, tail: _Run) -> _Run:
        """Return one run after the other."""
        steps, momentum = (np.concatenate(pair) for pair in zip(head[:2], tail[:2], strict=True))
        return self.simulate(weights, steps, momentum)

    def simulate(self, weights: np.ndarray, steps: np.ndarray, momentum: np.ndarray) -> _Run:
        """Return the expected course of some steps, up to the point where rounding errors are all that is left.

        A step rounds z, z* and t∇f to eps, in all directions alike, and later steps carry that on.
        """
        errors = weights
        losses = [self.loss(weights)]
        rounding = [0.0]
        solved = False
        # One row for what is left of the rounding errors of each step, after the last step and the one before it.
        carried, previous = np.zeros((2, steps.size, self.values.size))
        following = itertools.islice(polynomials(self.values, steps, momentum), 1, None)
        with np.errstate(over="ignore", invalid="ignore"):
            for k, (t, beta, p) in enumerate(zip(steps, momentum, following, strict=True)):
                factor = 1 - t * self.values + beta
                carried[:k], previous[:k] = factor * carried[:k] - beta * previous[:k], carried[:k].copy()
                relative = self.eps * (1 + t * np.max(self.values))
                carried[k] = relative * np.sqrt((self.size + np.sum(errors)) / self.values.size)
                noise = np.sum(carried[: k + 1] ** 2, axis=0)
                exact = np.where(weights > 0, weights * p**2, 0.0)
                errors = exact + noise
                left = self.loss(exact)
                rounding.append(self.loss(noise))
                losses.append(left + rounding[-1])
                solved = left < rounding[-1] <= (1e2 if left <= 1e-4 * self.floor else 1e-2) * self.floor
                if solved:
                    break
        done = len(losses) - 1
        return _Run(steps[:done], momentum[:done], np.array(losses), np.array(rounding), errors, solved)


def _find_support(
    eigenvalues: ArrayLike, weights: ArrayLike, count: int, power: int
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return the eigenvalues that count and their weights, the largest scaled to 1."""
    values = np.asarray(eigenvalues, np.float64)
    weights = np.asarray(weights, np.float64)
    if values.ndim != 1 or values.shape != weights.shape:
        raise ValueError(f"eigenvalues and weights must be vectors of one length, got {values.shape}, {weights.shape}")
    if not (np.isfinite(values).all() and np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("eigenvalues must be finite, weights finite and nonnegative")
    if count < 1 or power < 1:
        raise ValueError(f"count and power must be at least 1, got {count} and {power}")
    kept = find_curved(values) & (weights > 0)
    return values[kept], weights[kept] / np.max(weights[kept], initial=np.finfo(np.float64).tiny)


def _bidiagonal(
    values: Float[np.ndarray, " n"], measure: Float[np.ndarray, " n"], count: int
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m_minus_1"]]:
    """Return the diagonal and superdiagonal of C, with C'C the Jacobi matrix of the measure's orthogonal polynomials.

    Lanczos on diag(λ) from √measure, with full reorthogonalisation, in Golub and Kahan's form on diag(√λ): it gives
    the Cholesky factor of the Jacobi matrix and with it small roots to √κ instead of κ digits lost. It stops early
    where the next vector is rounding.
    """
    root = np.sqrt(values)
    rounding = 16 * EPS * np.max(root)
    left = np.zeros((count, values.size))
    right = np.zeros((count, values.size))
    diagonal = []
    above = []
    v = np.sqrt(measure) / np.linalg.norm(np.sqrt(measure))
    for k in range(count):
        right[k] = v
        u = _orthogonal(root * v, left[:k])
        diagonal.append(np.linalg.norm(u))
        left[k] = u / diagonal[-1]
        v = _orthogonal(root * left[k], right[: k + 1])
        norm = np.linalg.norm(v)
        if k + 1 == count or norm <= rounding:
            break
        above.append(norm)
        v = v / norm
    return np.array(diagonal), np.array(above)


def _orthogonal(v: Float[np.ndarray, " n"], basis: Float[np.ndarray, "k n"]) -> Float[np.ndarray, " n"]:
    for _ in range(2):
        v = v - basis.T @ (basis @ v)
    return v
