"""What holds for every instance, whatever the distribution: convergence, and worst cases where they are known."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from .._util.plain import Json
from .._util.text import round_up
from .._util.versions import versions
from ..engine.budget import MOST_STEPS
from ..families.composite import Composite
from ..families.smooth import Differentiable, Quadratic
from ..solver import Solver
from .document import (
    CertificateError,
    Document,
    read_list,
    read_number,
    read_object,
    read_optional,
    read_steps,
    read_text,
    read_texts,
    refuse_faults,
)
from .gradient_steps import is_gradient_schedule
from .performance import worst_case
from .rates import SteadyStateStatement, guarded_rate, says_the_same, state_convergence, worst_case_rate


@dataclass(frozen=True)
class Guarantee(Document):
    """What `guarantee` found: that the steady state converges, and worst cases after `iterations` iterations.

    `rates` bounds ‖z^k − z*‖/‖z⁰ − z*‖ over all parameters and starts (quadratics), whatever the safeguard does;
    `unguarded` does so for those on which it does not act. `worst` bounds f(z^k) − f* per ‖z⁰ − z*‖² over all L-smooth,
    μ-strongly convex functions (gradient and proximal gradient methods) on which the safeguard does not act. What is
    not known is empty: `rates`, too, in a guarantee of longstep 0.1, which knew those without a safeguard alone. The
    hash names the solver; `verify` computes all of it again.
    """

    kind: ClassVar[str] = "guarantee"

    convergence: SteadyStateStatement
    iterations: tuple[int, ...]
    rates: tuple[float, ...]
    unguarded: tuple[float, ...]
    worst: tuple[float, ...]
    safeguard: str | None
    L: float | None
    mu: float | None
    method: str
    method_hash: str
    versions: dict[str, str]

    @override
    def __str__(self) -> str:
        lines = [str(self.convergence)]
        distance = "iterations the distance to the optimum is, but for rounding, at most"
        start = "times that of the start, for every parameter and every start"
        for k, rate, alone in zip(self.iterations, self.rates, self.unguarded, strict=False):
            where = ""
            if self.safeguard:
                where = f", and at most {round_up(alone)} times where the safeguard does not act"
            lines.append(f"After {k} {distance} {round_up(rate)} {start}{where}.")
        if not self.rates:
            for k, alone in zip(self.iterations, self.unguarded, strict=False):
                lines.append(f"After {k} {distance} {round_up(alone)} {start} on which the safeguard does not act.")
        where = ""
        if self.safeguard:
            where = " on which the safeguard does not act"
        for k, worst in zip(self.iterations, self.worst, strict=False):
            lines.append(
                f"After {k} iterations f − f* is at most {round_up(worst)} times the squared distance of the start, "
                f"for every function with L = {self.L:.4g} and μ = {self.mu:.4g}{where}."
            )
        return "\n".join(lines)

    @override
    def fields(self) -> dict[str, Json]:
        """Return what it says, as plain data."""
        return asdict(self)

    @override
    @classmethod
    def of(cls, fields: Mapping[str, object]) -> "Guarantee":
        """Return the guarantee of these fields; also of those of 0.1, whose rates were what is `unguarded` now."""
        if "unguarded" not in fields:
            fields = {**fields, "rates": [], "unguarded": fields["rates"], "safeguard": "unknown"}
        statement = read_object(fields["convergence"])
        words = {name: read_text(statement[name]) for name in ("sentence", "condition", "theorem")}
        return cls(
            convergence=SteadyStateStatement(holds=bool(statement["holds"]), **words),
            iterations=tuple(map(read_steps, read_list(fields["iterations"]))),
            rates=tuple(map(read_number, read_list(fields["rates"]))),
            unguarded=tuple(map(read_number, read_list(fields["unguarded"]))),
            worst=tuple(map(read_number, read_list(fields["worst"]))),
            L=read_optional(fields["L"], read_number),
            mu=read_optional(fields["mu"], read_number),
            method=read_text(fields["method"]),
            method_hash=read_text(fields["method_hash"]),
            safeguard=read_optional(fields["safeguard"], read_text),
            versions=read_texts(fields["versions"]),
        )

    def verify(self, solver: Solver) -> "Guarantee":
        """Compute it all again and return the guarantee found; raise a `CertificateError` where anything differs."""
        if solver.content_hash() != self.method_hash:
            raise CertificateError(
                f"the guarantee was made for another solver ({self.method}): family, algorithm, schedule or safeguard "
                "differ from those of the one given"
            )
        with refuse_faults("the guarantee"):
            found = guarantee(solver, self.iterations, worst_cases=bool(self.worst))
        if not _agree(self.convergence, found.convergence):
            raise CertificateError(f"it says: {self.convergence}\nfound was: {found.convergence}")
        for name, tolerance in (("rates", 1e-9), ("unguarded", 1e-9), ("worst", 1e-3)):
            if name == "rates" and self.unguarded and not self.rates:
                continue  # 0.1 said nothing of them
            stated, now = (np.array(getattr(g, name)) for g in (self, found))
            if stated.shape != now.shape or not np.allclose(stated, now, rtol=tolerance, atol=1e-12):
                raise CertificateError(f"{name} are {stated.tolist()}, found were {now.tolist()}")
        return found


def _agree(stated: SteadyStateStatement, found: SteadyStateStatement) -> bool:
    texts = [(stated.sentence, found.sentence), (stated.theorem, found.theorem)]
    checked = (stated.holds, stated.condition) == (found.holds, found.condition)
    return checked and all(says_the_same(*pair) for pair in texts)


def guarantee(solver: Solver, iterations: "int | Iterable[int]" = (), *, worst_cases: bool = False) -> Guarantee:
    """Return what holds for every instance, with the conditions that were checked.

    For every algorithm: that the steady state converges. For gradient descent on quadratics, with or without momentum:
    the rate over all parameters after each of `iterations` (Young 1953). `worst_cases` adds the exact worst case over
    all L-smooth (and μ-strongly) convex functions by performance estimation, for gradient and proximal gradient
    schedules and up to about 20 iterations (40 without g); it takes seconds.

    >>> from longstep import Quadratic, Solver
    >>> family = Quadratic(np.diag([1.0, 4.0]))
    >>> print(guarantee(Solver(family), 10))  # doctest: +ELLIPSIS
    The steady state of GradientDescent converges...
    After 10 iterations the distance to the optimum is, but for rounding, at most 0.00605 times that of the start, ...
    """
    if isinstance(iterations, int | np.integer):
        iterations = [int(iterations)]
    counts = tuple(int(k) for k in iterations)
    if any(not 1 <= k <= MOST_STEPS for k in counts):
        raise CertificateError(f"iterations must be positive and at most {MOST_STEPS:,}, got {counts}")
    algorithm = solver.algorithm
    family = solver.family
    schedule = solver.schedule
    L = mu = None
    if isinstance(family, Differentiable | Composite):
        L = float(family.lipschitz)
        mu = float(family.strong_convexity)
    safeguard = None
    if len(schedule):
        safeguard = solver.safeguard
    rates, unguarded = _bound_rates(solver, counts, safeguard)
    worst: tuple[float, ...] = ()
    if worst_cases:
        if L is None or mu is None:
            raise CertificateError(
                f"worst cases over function classes are for gradient and proximal gradient methods, not "
                f"{type(algorithm).__name__}"
            )
        worst = tuple(worst_case(algorithm, schedule, k, L=L, mu=mu) for k in counts)
    statement = state_convergence(algorithm, family, schedule)
    return Guarantee(
        convergence=statement,
        iterations=counts,
        rates=rates,
        unguarded=unguarded,
        worst=worst,
        safeguard=safeguard,
        L=L,
        mu=mu,
        method=solver.name,
        method_hash=solver.content_hash(),
        versions=versions(),
    )


def _bound_rates(
    solver: Solver, counts: Sequence[int], safeguard: str | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the rates at these counts, whatever the safeguard does and where it does not act; none where unknown."""
    family = solver.family
    schedule = solver.schedule
    algorithm = solver.algorithm
    # By what the algorithm says of its steps: others have hyperparameters of the same names.
    plain = algorithm.own("closed_form") and is_gradient_schedule(schedule)
    if not (counts and isinstance(family, Quadratic) and plain):
        return (), ()
    curve = worst_case_rate(family, schedule, max(counts))
    unguarded = tuple(float(curve[k]) for k in counts)
    if safeguard is None:
        return unguarded, unguarded
    curve = guarded_rate(family, schedule, max(counts), safeguard, algorithm.safe(family, schedule.steady))
    return tuple(float(curve[k]) for k in counts), unguarded
