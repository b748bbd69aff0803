"""Certificates: claims about unseen instances that anyone can verify again from the solver and the data."""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, TypeGuard, TypeVar, get_args

from typing_extensions import override

from .._util.plain import Json
from .._util.text import percent, round_up, tolerance_text
from ..data.dataset import Split
from ..engine.finish import ACCURACY
from ..evaluation.evaluate import Metric, evaluate
from ..evaluation.method import Method
from ..solver import Solver
from .claiming import (
    check_counts,
    check_tolerances,
    check_validation,
    claim_exactness,
    claim_fractions,
    claim_quantiles,
    find_finishing,
)
from .claims import Claim, ExactClaim
from .document import (
    CertificateError,
    Document,
    read_list,
    read_number,
    read_object,
    read_optional,
    read_text,
    read_texts,
    read_whole,
    refuse_faults,
)
from .rates import says_the_same, state_convergence
from .sample import BoundMethod, required_samples

ValueT = TypeVar("ValueT")


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
        """Return one claim in words, with all that it rests on."""
        if not math.isfinite(claim.tolerance):
            return (
                f"After {claim.iterations} iterations nothing could be certified for {100 * (self.level or 0):g}% of "
                f"instances from {self.instances} unseen ones."
            )
        return (
            f"After {claim.iterations} iterations {self.measure} is below {round_up(claim.tolerance)} on at least "
            f"{percent(claim.success)} of instances, with confidence {self.confidence:.4g}, established on "
            f"{self.instances} unseen instances of this distribution ({claim.violations} of them violated it)."
        )

    def exact_sentence(self, claim: ExactClaim) -> str:
        """Return the claim about the finish in words."""
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
        lines = []
        if self.exact is not None:
            lines.append(self.exact_sentence(self.exact))
        lines += [self.sentence(claim) for claim in self.claims]
        together = ""
        if len(lines) > 1:
            together = " The claims hold together."
        lines.append(
            f"It is assumed that these instances, and those it is applied to, are drawn independently from one "
            f"distribution.{together}"
        )
        if self.convergence:
            lines.append(self.convergence)
        return "\n".join(lines)

    @override
    def fields(self) -> dict[str, Json]:
        """Return what it says, as plain data; ∞ becomes None."""
        fields = asdict(self)
        for claim in fields["claims"]:
            if not math.isfinite(claim["tolerance"]):
                claim["tolerance"] = None
        if self.exact is not None and not math.isfinite(self.exact.changes):
            fields["exact"]["changes"] = None
        return fields

    @override
    @classmethod
    def of(cls, fields: Mapping[str, object]) -> "Certificate":
        """Return the certificate of these fields; what is not such data is refused with an error of some kind."""
        bound = fields["bound"]
        if not _is_bound_method(bound):
            raise ValueError(f"there is no bound {bound!r}")
        return cls(
            metric=read_text(fields["metric"]),
            measure=read_text(fields["measure"]),
            claims=tuple(Claim.of(read_object(claim)) for claim in read_list(fields["claims"])),
            lower=tuple(map(read_number, read_list(fields["lower"]))),
            level=read_optional(fields["level"], _read_level),
            confidence=read_number(fields["confidence"], 0, 1),
            bound=bound,
            instances=read_whole(fields["instances"]),
            distinct=read_whole(fields["distinct"]),
            split=read_text(fields["split"]),
            method=read_text(fields["method"]),
            convergence=read_optional(fields["convergence"], read_text),
            method_hash=read_text(fields["method_hash"]),
            data_hash=read_text(fields["data_hash"]),
            versions=read_texts(fields["versions"]),
            exact=read_optional(fields.get("exact"), _read_exact_claim),
        )

    def verify(
        self, method: Method, validation: Split, *, metric: Metric | None = None, progress: bool = False
    ) -> "Certificate":
        """Run it all again and return the certificate found; raise a `CertificateError` where anything differs.

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
        iterations = [c.iterations for c in self.claims]
        tolerances = None
        level = self.level
        if level is None:
            # A claim for each pair of an iteration count and a tolerance; of the finish it is about the usual level.
            iterations = _drop_repeated(iterations)
            tolerances = _drop_repeated(c.tolerance for c in self.claims)
            level = 0.975
        if metric is None:
            metric = self.metric
        with refuse_faults("the certificate"):
            found = certify(
                method,
                validation,
                iterations,
                tolerances,
                level=level,
                confidence=self.confidence,
                bound=self.bound,
                metric=metric,
                progress=progress,
            )
        if changed := [k for k, v in self.versions.items() if found.versions.get(k) != v]:
            text = ", ".join(f"{k} {self.versions[k]} (now {found.versions.get(k)})" for k in changed)
            warnings.warn(f"the certificate was made with {text}: everything was computed again", stacklevel=2)
        differing = _compare(self, replace(found, versions=self.versions))
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
    """Return what can be promised of a method on unseen instances, from instances that it was not made with.

    With a `tolerance` (or several): on how many instances, at least, the metric is below it after `iterations`.
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
    counts = check_counts(iterations)
    tolerances = check_tolerances(tolerance)
    if not 0 < confidence < 1:
        raise CertificateError(f"confidence must lie in (0, 1), got {confidence}")
    distinct = check_validation(method, validation)
    evaluation = evaluate(method, validation, max(counts), metric=metric, timed=False, progress=progress)
    values = evaluation.values[:, counts]
    # The claims about numbers of steps share the risk, and with them the one about the finish.
    parts = len(counts) * len(tolerances or [0])
    risk = 1 - confidence
    exact = None
    if (finishing := find_finishing(method)) is not None:
        risk = (1 - confidence) * (parts / (parts + 1))
        exact = claim_exactness(finishing, validation, level, 1 - confidence - risk)
    lower: tuple[float, ...] = ()
    claimed_level = None
    if tolerances is None:
        claims, lower = claim_quantiles(counts, values, level, risk, bound)
        claimed_level = level
    else:
        claims = claim_fractions(counts, values, tolerances, risk, bound)
    return Certificate(
        metric=evaluation.metric,
        measure=evaluation.measure,
        claims=claims,
        lower=lower,
        level=claimed_level,
        confidence=confidence,
        bound=bound,
        instances=len(evaluation),
        distinct=distinct,
        split=validation.name,
        method=method.name,
        convergence=_describe_convergence(method),
        method_hash=evaluation.method_hash,
        data_hash=evaluation.data_hash,
        versions=evaluation.versions,
        exact=exact,
    )


def has_exact_claim(method: Method) -> bool:
    """Tell whether a method has a finish by active sets, about which something is claimed."""
    return find_finishing(method) is not None


def _is_bound_method(value: object) -> TypeGuard[BoundMethod]:
    return value in get_args(BoundMethod)


def _read_level(value: object) -> float:
    return read_number(value, 0.5, 1)


def _read_exact_claim(value: object) -> ExactClaim:
    return ExactClaim.of(read_object(value))


def _describe_convergence(method: Method) -> str | None:
    if not isinstance(method, Solver):
        return None
    statement = state_convergence(method.algorithm, method.family, method.schedule)
    if not statement.holds:
        return None
    return statement.sentence


def _compare(stated: Certificate, found: Certificate) -> str:
    """Return what two certificates disagree on, in words; bounds may differ by 1e-12."""
    if len(stated.claims) != len(found.claims):
        return f"{len(stated.claims)} claims instead of {len(found.claims)}"
    texts = []
    for a, b in zip(stated.claims, found.claims, strict=True):
        equal = a.iterations == b.iterations and a.violations == b.violations
        if not (equal and a.tolerance == b.tolerance and abs(a.success - b.success) <= 1e-12):
            texts.append(f"it says {a}, found was {b}")
    names = [n for n in _COMPARED if getattr(stated, n) != getattr(found, n)]
    if not says_the_same(stated.convergence, found.convergence):
        names.append("convergence")
    texts += [f"{name} is {getattr(stated, name)!r}, found was {getattr(found, name)!r}" for name in names]
    return "; ".join(texts)


_COMPARED = ("lower", "exact", "metric", "instances", "distinct", "split", "method", "measure")


def _drop_repeated(values: Iterable[ValueT]) -> list[ValueT]:
    """Return the values in order, each once."""
    return list(dict.fromkeys(values))


def least_validation(counts: int, level: float = 0.975, confidence: float = 0.997, *, finish: bool = False) -> int:
    """Return how many validation instances `certify` needs to bound a quantile at `counts` iteration counts.

    With a finish it bounds the number of changes too.
    """
    return required_samples(level, 1 - (1 - confidence) / (2 * (counts + finish)))
