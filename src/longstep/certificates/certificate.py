"""Certificates: claims about unseen instances that anyone can verify again from the solver and the data."""

import math
import operator
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
from typing_extensions import override

from .._util.text import above, percent, tolerance_text
from ..data.dataset import Split
from ..engine.finish import ACCURACY
from ..evaluation.evaluate import Metric, evaluate, trained_instances
from ..evaluation.method import Method
from ..families.quadratic_program import QP
from ..solver import Solver
from ..training.finish import first_try
from .document import CertificateError, Document, number, text, texts, whole
from .rates import says_the_same, steady_state_statement
from .sample import TOLERANCES, BoundMethod, quantile_bounds, quantile_curves, required_samples, success_lower

# Splits that something was chosen on, or that are kept to check certificates with.
_REFUSED = {
    "train": "schedules are learned on it",
    "selection": "schedules are chosen on it",
    "test": "it is kept to check certificates with",
}


@dataclass(frozen=True)
class Claim:
    """After `iterations` iterations the metric is below `tolerance` on at least `success` of all instances.

    `violations` of the validation instances did not make it. A tolerance of ∞ claims nothing.
    """

    iterations: int
    tolerance: float
    success: float
    violations: int

    @staticmethod
    def of(fields: dict[str, Any]) -> "Claim":
        """From plain data, in which a tolerance of ∞ is None."""
        bound = fields["tolerance"]
        return Claim(
            iterations=whole(fields["iterations"]),
            tolerance=math.inf if bound is None else number(bound),
            success=number(fields["success"], 0, 1),
            violations=whole(fields["violations"]),
        )


@dataclass(frozen=True)
class ExactClaim:
    """After `steps` steps and at most `changes` changes of the active set the point is exact on at least `success`.

    `violations` of the validation instances took more changes, or more steps. Changes of ∞ claim nothing.
    """

    steps: int
    changes: float
    success: float
    violations: int

    @staticmethod
    def of(fields: dict[str, Any]) -> "ExactClaim":
        """From plain data, in which changes of ∞ are None."""
        changes = fields["changes"]
        return ExactClaim(
            steps=whole(fields["steps"]),
            changes=math.inf if changes is None else whole(changes),
            success=number(fields["success"], 0, 1),
            violations=whole(fields["violations"]),
        )


@dataclass(frozen=True)
class Certificate(Document):
    """What `certify` promises: claims that hold together with probability `confidence` over the validation instances.

    They hold for instances that are drawn independently from the distribution of the validation instances, and for
    nothing else. `level` is the quantile that the tolerances bound, None where the user gave the tolerances; `lower`
    then bounds the 1 − level quantile from below. `exact` is the claim about the finish of a solver that has one. The
    hashes name the solver and the data. `print` gives a sentence for each claim,
    `longstep.report.tables.certificate_table` a table; `save` writes JSON, `Certificate.load` reads it, `verify` does
    all of it again.
    """

    kind: ClassVar[str] = "certificate"

    metric: str
    measure: str
    claims: tuple[Claim, ...]
    lower: tuple[float, ...]
    level: float | None
    confidence: float
    bound: BoundMethod
    instances: int
    distinct: int
    split: str
    method: str
    convergence: str | None
    method_hash: str
    data_hash: str
    versions: dict[str, str]
    exact: ExactClaim | None = None

    def sentence(self, claim: Claim) -> str:
        """One claim in words, with all that it rests on."""
        if not math.isfinite(claim.tolerance):
            return (
                f"After {claim.iterations} iterations nothing could be certified for {100 * (self.level or 0):g}% of "
                f"instances from {self.instances} unseen ones."
            )
        return (
            f"After {claim.iterations} iterations {self.measure} is below {above(claim.tolerance)} on at least "
            f"{percent(claim.success)} of instances, with confidence {self.confidence:.4g}, established on "
            f"{self.instances} unseen instances of this distribution ({claim.violations} of them violated it)."
        )

    def exact_sentence(self, claim: ExactClaim) -> str:
        """The claim about the finish in words."""
        if not math.isfinite(claim.changes):
            return (
                f"After {claim.steps} steps and the finish too few points are exact to certify it: all but "
                f"{claim.violations} of {self.instances} unseen ones."
            )
        return (
            f"After {claim.steps} steps and at most {claim.changes} changes of the active set the point is exact "
            f"(residuals and gap below {tolerance_text(ACCURACY)}) on at least {percent(claim.success)} of instances, "
            f"with confidence {self.confidence:.4g}, established on {self.instances} unseen instances of this "
            f"distribution ({claim.violations} of them violated it). How many changes are enough for every "
            "instance is not known; where it takes too many, the steps go on."
        )

    @override
    def __str__(self) -> str:
        together = " The claims hold together." if len(self.claims) + (self.exact is not None) > 1 else ""
        rest = (
            f"It is assumed that these instances, and those it is applied to, are drawn independently from one "
            f"distribution.{together}"
        )
        exact = [] if self.exact is None else [self.exact_sentence(self.exact)]
        lines = [*exact, *(self.sentence(claim) for claim in self.claims), rest]
        return "\n".join([*lines, self.convergence] if self.convergence else lines)

    @override
    def fields(self) -> dict[str, Any]:
        """As plain data; ∞ becomes None."""
        fields = asdict(self)
        for claim in fields["claims"]:
            claim["tolerance"] = claim["tolerance"] if math.isfinite(claim["tolerance"]) else None
        if self.exact is not None and not math.isfinite(self.exact.changes):
            fields["exact"]["changes"] = None
        return fields

    @override
    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Certificate":
        """The inverse of `fields`; what is not such data is refused with an error of some kind."""
        plain = {name: text(fields[name]) for name in ("metric", "measure", "split", "method")}
        plain |= {name: text(fields[name]) for name in ("method_hash", "data_hash")}
        if fields["bound"] not in get_args(BoundMethod):
            raise ValueError(f"there is no bound {fields['bound']!r}")
        return cls(
            **plain,
            claims=tuple(Claim.of(claim) for claim in fields["claims"]),
            lower=tuple(number(value) for value in fields["lower"]),
            level=None if fields["level"] is None else number(fields["level"], 0.5, 1),
            confidence=number(fields["confidence"], 0, 1),
            bound=fields["bound"],
            instances=whole(fields["instances"]),
            distinct=whole(fields["distinct"]),
            convergence=None if fields["convergence"] is None else text(fields["convergence"]),
            versions=texts(fields["versions"]),
            exact=None if fields.get("exact") is None else ExactClaim.of(fields["exact"]),
        )

    def verify(
        self, method: Method, validation: Split, *, metric: Metric | None = None, progress: bool = False
    ) -> "Certificate":
        """Run it all again and return the certificate found; raises a `CertificateError` where anything differs.

        `metric` is needed where it was a function of the user. Another version of the code is a warning.
        """
        if method.content_hash() != self.method_hash:
            raise CertificateError(
                f"the certificate was made for another solver ({self.method}): family, algorithm, schedule or "
                "safeguard differ from those of the one given"
            )
        if validation.content_hash() != self.data_hash:
            raise CertificateError(
                f"the certificate was made on other data: {self.instances} instances with hash {self.data_hash[:12]}…, "
                f"not these {len(validation)} with {validation.content_hash()[:12]}…"
            )
        found = certify(
            method,
            validation,
            [c.iterations for c in self.claims]
            if self.level is not None
            else _unique(c.iterations for c in self.claims),
            None if self.level is not None else _unique(c.tolerance for c in self.claims),
            level=0.975 if self.level is None else self.level,
            confidence=self.confidence,
            bound=self.bound,
            metric=self.metric if metric is None else metric,
            progress=progress,
        )
        if changed := [k for k, v in self.versions.items() if found.versions.get(k) != v]:
            text = ", ".join(f"{k} {self.versions[k]} (now {found.versions.get(k)})" for k in changed)
            warnings.warn(f"the certificate was made with {text}: everything was computed again", stacklevel=2)
        differing = _differences(self, replace(found, versions=self.versions))
        if differing:
            raise CertificateError(f"computed again, the certificate does not say the same: {differing}")
        return found


def certify(
    method: Method,
    validation: Split,
    iterations: "int | Iterable[int]",
    tolerance: "float | Iterable[float] | None" = None,
    *,
    level: float = 0.975,
    confidence: float = 0.997,
    bound: BoundMethod = "exact",
    metric: Metric | None = None,
    progress: bool = False,
) -> Certificate:
    """What can be promised of a method on unseen instances, from validation instances that it was not made with.

    With a `tolerance` (or several): on how many instances, at least, the metric is below it after so many iterations.
    Without: below which tolerance it is on at least `level` of all instances, by order statistics. All claims hold
    together with probability `confidence`; J iteration counts share it. Iterations and tolerances must be chosen before
    looking at the validation instances. What is certified is the point that `solve(…, steps=k)` returns; `method` may
    also be a solver in C, from `solver.compile()`, which is then certified as it is. Of a solver with a finish a
    further claim tells how many changes of the active set make `level` of all instances exact, after the steps that it
    is tried at; it shares the confidence.

    `bound` is `exact` (binomial, the sharpest) or `kl` (the published one, wider and easy to check by hand; without
    tolerances it takes the smallest of 151 in 1e-10 … 1e5). `metric` is that of `evaluate`. Validation instances must
    be drawn independently from the distribution that the solver will meet; splits named train, selection or test, and
    instances that the solver was trained on, are refused. `required_samples` tells how many are needed.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver, certify
    >>> family = Quadratic(np.diag([1.0, 2.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"validation": 200}, cache=False, progress=False)
    >>> certificate = certify(Solver(family), data.validation, 5, 1e-3, confidence=0.99)
    >>> print(certificate.sentence(certificate.claims[0]))  # doctest: +ELLIPSIS
    After 5 iterations f − f* is below 0.001 on at least 97.7% of instances, with confidence 0.99, established on ...
    """
    counts = _counts(iterations)
    tolerances = _tolerances(tolerance)
    if not 0 < confidence < 1:
        raise CertificateError(f"confidence must lie in (0, 1), got {confidence}")
    distinct = _check_validation(method, validation)
    evaluation = evaluate(method, validation, max(counts), metric=metric, timed=False, progress=progress)
    values = evaluation.values[:, counts]
    N = len(evaluation)
    finishes = has_exact_claim(method)
    # The claims about numbers of steps share the risk, and with them the one about the finish.
    parts = len(counts) * len(tolerances or [0])
    risk = (1 - confidence) * (parts / (parts + 1) if finishes else 1)
    if tolerances is None:
        uppers, lowers = _quantiles(values, level, risk, bound)
        claims = tuple(
            Claim(k, float(t), level, int(np.sum(~(column < t))))
            for k, t, column in zip(counts, uppers, values.T, strict=True)
        )
        lower = tuple(float(v) for v in lowers)
    else:
        delta = risk / parts
        violations = {(k, t): int(np.sum(~(v < t))) for k, v in zip(counts, values.T, strict=True) for t in tolerances}
        claims = tuple(Claim(k, t, float(success_lower(v, N, delta, bound)), v) for (k, t), v in violations.items())
        lower = ()
    return Certificate(
        metric=evaluation.metric,
        measure=evaluation.measure,
        claims=claims,
        lower=lower,
        level=level if tolerances is None else None,
        confidence=confidence,
        bound=bound,
        instances=N,
        distinct=distinct,
        split=validation.name,
        method=method.name,
        convergence=_convergence(method),
        method_hash=evaluation.method_hash,
        data_hash=evaluation.data_hash,
        versions=evaluation.versions,
        exact=_exact_claim(method, validation, level, 1 - confidence - risk) if finishes else None,
    )


def has_exact_claim(method: Method) -> bool:
    """Whether a method has a finish by active sets, about which something is claimed."""
    return isinstance(method.family, QP) and getattr(method, "finish", None) is not None


def _exact_claim(method: Any, validation: Split, level: float, risk: float) -> ExactClaim:
    """How many changes make `level` of all instances exact, but with probability `risk`."""
    found = first_try(method, validation.parameters)
    changes = np.where(found.exact, found.changes, np.inf)
    upper = quantile_bounds(changes[:, None], level, risk)[0][0]
    bound = math.floor(upper) if math.isfinite(upper) else math.inf
    # Where nothing can be claimed, violations are those that are not exact.
    violations = int(np.sum(changes > bound)) if math.isfinite(bound) else int(np.sum(np.isinf(changes)))
    return ExactClaim(int(method.finish), bound, level, violations)


def _quantiles(values: np.ndarray, level: float, risk: float, bound: BoundMethod) -> tuple[np.ndarray, np.ndarray]:
    """Upper and lower bounds at all iteration counts, which fail together with probability at most `risk`."""
    counts = values.shape[1]
    if bound == "exact":
        return quantile_bounds(values, level, risk / (2 * counts))
    curves = quantile_curves(values, level, risk / (2 * TOLERANCES.size), joint=counts, method=bound)
    return curves.upper, curves.lower


def _check_validation(method: Method, validation: Split) -> int:
    """The number of distinct instances; refuses those that the method was made with."""
    if not isinstance(validation, Split):
        raise TypeError(f"validation instances come as a Split, such as dataset.validation, got {validation!r}")
    if validation.name in _REFUSED:
        raise CertificateError(
            f"the split {validation.name!r} cannot be used for validation: {_REFUSED[validation.name]}. "
            "Draw instances for a split 'validation'"
        )
    if overlap := trained_instances(method, validation):
        raise CertificateError(
            f"{len(overlap)} of the {len(validation)} validation instances were used in training (the first is number "
            f"{overlap[0]}): a certificate needs unseen ones. Draw others. To leave out just these would not do: what "
            "is left is no sample of the distribution. If they are independent draws of one that repeats itself, say "
            "Dataset.from_parameters(…, iid=True)"
        )
    return len(set(validation.instance_hashes()))


def _convergence(method: Method) -> str | None:
    if not isinstance(method, Solver):
        return None
    statement = steady_state_statement(method.algorithm, method.family, method.schedule)
    return statement.sentence if statement.holds else None


def _differences(stated: Certificate, found: Certificate) -> str:
    """What two certificates disagree on, in words; bounds to 1e-12."""
    if len(stated.claims) != len(found.claims):
        return f"{len(stated.claims)} claims instead of {len(found.claims)}"
    texts = []
    for a, b in zip(stated.claims, found.claims, strict=True):
        equal = a.iterations == b.iterations and a.violations == b.violations
        if not (equal and a.tolerance == b.tolerance and abs(a.success - b.success) <= 1e-12):
            texts.append(f"it says {a}, found was {b}")
    for name in ("lower", "exact", "metric", "instances", "distinct", "split", "method", "measure", "convergence"):
        same = says_the_same if name == "convergence" else operator.eq
        if not same(getattr(stated, name), getattr(found, name)):
            texts.append(f"{name} is {getattr(stated, name)!r}, found was {getattr(found, name)!r}")
    return "; ".join(texts)


def _unique(values: Iterable) -> list:
    return list(dict.fromkeys(values))


def least_validation(counts: int, level: float = 0.975, confidence: float = 0.997, *, finish: bool = False) -> int:
    """How many validation instances `certify` needs, at least, to bound a quantile at so many iteration counts, and
    with a finish the number of changes."""
    return required_samples(level, 1 - (1 - confidence) / (2 * (counts + finish)))


def _counts(iterations: "int | Iterable[int]") -> list[int]:
    counts = [iterations] if isinstance(iterations, int | np.integer) else list(iterations)
    counts = [int(k) for k in counts]
    if not counts or min(counts) < 0 or len(set(counts)) < len(counts):
        raise CertificateError(f"iterations must be one or several different numbers ≥ 0, got {iterations}")
    return counts


def _tolerances(tolerance: "float | Iterable[float] | None") -> list[float] | None:
    if tolerance is None:
        return None
    values = [float(t) for t in np.atleast_1d(np.asarray(tolerance, np.float64))]
    if not values or not all(0 < t < math.inf for t in values) or len(set(values)) < len(values):
        raise CertificateError(f"tolerances must be one or several different positive numbers, got {tolerance}")
    return values
