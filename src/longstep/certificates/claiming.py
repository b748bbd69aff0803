"""From a sample to claims: what is asked for, checked; what N instances allow to claim of all of them."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ..data.dataset import Split
from ..engine.budget import MOST_STEPS
from ..engine.finisher import finishes_by_sets
from ..evaluation.evaluate import find_trained
from ..evaluation.method import Method
from ..export_c import CompiledSolver
from ..linalg.real import real_array
from ..solver import Solver
from ..training.finish import try_first
from .claims import Claim, ExactClaim
from .document import CertificateError
from .sample import TOLERANCES, BoundMethod, quantile_bounds, quantile_curves, success_lower

# Splits that something was chosen on, or that are kept to check certificates with.
_REFUSED = {
    "train": "schedules are learned on it",
    "selection": "schedules are chosen on it",
    "test": "it is kept to check certificates with",
}


def check_counts(iterations: "int | Iterable[int]") -> list[int]:
    """Return the iteration counts as a list; refuse none, negative ones, absurd ones and repetitions."""
    if isinstance(iterations, int | np.integer):
        iterations = [int(iterations)]
    counts = [int(k) for k in iterations]
    if not counts or min(counts) < 0 or max(counts) > MOST_STEPS or len(set(counts)) < len(counts):
        raise CertificateError(
            f"iterations must be one or several different numbers from 0 to {MOST_STEPS:,}, got {iterations}"
        )
    return counts


def check_tolerances(tolerance: "float | Iterable[float] | None") -> list[float] | None:
    """Return the tolerances as a list, None where none is given; refuse repetitions and what is not positive."""
    if tolerance is None:
        return None
    values = [float(t) for t in np.atleast_1d(real_array("tolerance", tolerance))]
    if not values or not all(0 < t < math.inf for t in values) or len(set(values)) < len(values):
        raise CertificateError(f"tolerances must be one or several different positive numbers, got {tolerance}")
    return values


def check_validation(method: Method, validation: Split) -> int:
    """Return the number of distinct instances; refuse those that the method was made with."""
    if not isinstance(validation, Split):
        raise TypeError(f"validation instances come as a Split, such as dataset.validation, got {validation!r}")
    if validation.name in _REFUSED:
        raise CertificateError(
            f"the split {validation.name!r} cannot be used for validation: {_REFUSED[validation.name]}. "
            "Draw instances for a split 'validation'"
        )
    if overlap := find_trained(method, validation):
        advice = "that is more than chance brings about in independent draws"
        if not validation.independent:
            advice = "if these are independent draws that may coincide, say Dataset.from_parameters(…, iid=True)"
        raise CertificateError(
            f"{len(overlap)} of the {len(validation)} validation instances were used in training (the first is number "
            f"{overlap[0]}): a certificate needs unseen ones. Draw others. To leave out just these would not do: what "
            f"is left is no sample of the distribution; {advice}"
        )
    return len(set(validation.instance_hashes()))


def claim_quantiles(
    counts: Sequence[int], values: np.ndarray, level: float, risk: float, bound: BoundMethod
) -> tuple[tuple[Claim, ...], tuple[float, ...]]:
    """Return for each count the claim that bounds a quantile, and the bound from below on the opposite one.

    They fail together with probability at most `risk`.
    """
    uppers, lowers = _bound_quantiles(values, level, risk, bound)
    columns = zip(counts, uppers.tolist(), values.T, strict=True)
    claims = tuple(Claim(k, upper, level, int(np.sum(~(column < upper)))) for k, upper, column in columns)
    return claims, tuple(lowers.tolist())


def claim_fractions(
    counts: Sequence[int], values: np.ndarray, tolerances: Sequence[float], risk: float, bound: BoundMethod
) -> tuple[Claim, ...]:
    """Return for each count and tolerance the claim of how many instances, at least, are below it.

    They fail together with probability at most `risk`.
    """
    delta = risk / (len(counts) * len(tolerances))
    claims = []
    for k, column in zip(counts, values.T, strict=True):
        for tolerance in tolerances:
            violations = int(np.sum(~(column < tolerance)))
            success = float(success_lower(violations, len(values), delta, bound))
            claims.append(Claim(k, tolerance, success, violations))
    return tuple(claims)


def _bound_quantiles(
    values: np.ndarray, level: float, risk: float, bound: BoundMethod
) -> tuple[np.ndarray, np.ndarray]:
    """Return upper and lower bounds at all counts, which fail together with probability at most `risk`."""
    counts = values.shape[1]
    if bound == "exact":
        return quantile_bounds(values, level, risk / (2 * counts))
    curves = quantile_curves(values, level, risk / (2 * TOLERANCES.size), joint=counts, method=bound)
    return curves.upper, curves.lower


def find_finishing(method: Method) -> Solver | CompiledSolver | None:
    """Return the method where it is a solver that finishes by active sets."""
    if not isinstance(method, Solver | CompiledSolver) or not finishes_by_sets(method.family):
        return None
    if method.finish is None:
        return None
    return method


def claim_exactness(method: Solver | CompiledSolver, validation: Split, level: float, risk: float) -> ExactClaim:
    """Return how many changes make `level` of all instances exact, but with probability `risk`."""
    found = try_first(method, validation.parameters)
    changes = np.where(found.exact, found.changes, np.inf)
    upper = quantile_bounds(changes[:, None], level, risk)[0][0]
    steps = int(method.finish or 0)
    if math.isfinite(upper):
        bound = math.floor(upper)
        return ExactClaim(steps, bound, level, int(np.sum(changes > bound)))
    # Where nothing can be claimed, violations are those that are not exact.
    return ExactClaim(steps, math.inf, level, int(np.sum(np.isinf(changes))))
