"""Claims: what a text says, where in a measured result the figure stands, and whether the two agree.

A claim of claims.toml has an id, a file, the words as they stand there, a job, and quantities. A quantity has the
figure as the words have it (`said`), a direction (`at most`, `at least`, `about`) with a relative tolerance, and a path
to the measured value (`at`). Times are compared as ratios of one run: `over` is the path of the denominator, and
`beside` the denominator as the words have it; `minus` is the path of what is taken off. A step of a path is a key,
which may have wildcards, a number of an entry, or an object that entries must agree with.
"""

import re
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

DIRECTIONS: dict[str, Callable[[float, float, float], bool]] = {
    "at most": lambda measured, value, tolerance: measured <= value * (1 + tolerance),
    "at least": lambda measured, value, tolerance: measured >= value * (1 - tolerance),
    "about": lambda measured, value, tolerance: abs(measured - value) <= tolerance * abs(value),
}
REDUCE: dict[str, Callable[[list[Any]], float]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
    "mean": statistics.mean,
    "median": statistics.median,
}
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Quantity:
    """One figure of a claim, and where its measured value is."""

    said: str
    job: str
    at: Sequence[Any]
    direction: str = "about"
    tolerance: float = 0.0
    value: float | None = None
    beside: str | None = None
    over: Sequence[Any] | None = None
    minus: Sequence[Any] | None = None
    reduce: str | None = None
    times: float = 1.0
    # The tolerance of a quick run; None where a quick run says nothing of it.
    quick: float | None = None

    @property
    def target(self) -> float:
        """The number that is said."""
        if self.value is not None:
            return self.value
        found = parse_number(self.said)
        return found / parse_number(self.beside) if self.beside else found

    def measure(self, document: Any) -> float:
        """Return the measured value from a job's result."""
        value = self._reduce(document, self.at)
        if self.minus is not None:
            value -= self._reduce(document, self.minus)
        if self.over is not None:
            value /= self._reduce(document, self.over)
        return self.times * value

    def holds(self, measured: Sequence[float], quick: bool) -> bool:
        """Tell whether every seed's value agrees with what is said."""
        tolerance = self.choose_tolerance(quick)
        return all(DIRECTIONS[self.direction](value, self.target, tolerance) for value in measured)

    def choose_tolerance(self, quick: bool) -> float:
        """Return the tolerance of a quick or of a full run."""
        return self.quick if quick and self.quick is not None else self.tolerance

    def _reduce(self, document: Any, path: Sequence[Any]) -> float:
        found = follow(document, path)
        if self.reduce:
            return float(REDUCE[self.reduce](found))
        if len(found) != 1:
            raise LookupError(f"{list(path)} leads to {len(found)} values, not to one")
        return float(found[0])


@dataclass(frozen=True)
class Claim:
    """A sentence of a text and its figures."""

    id: str
    file: str
    words: str
    quantities: tuple[Quantity, ...]


@dataclass(frozen=True)
class Verdict:
    """What came of one quantity: `holds` is None where it was not measured, and `reason` says why."""

    claim: Claim
    quantity: Quantity
    measured: tuple[float, ...] = ()
    holds: bool | None = None
    reason: str = ""
    quick: bool = False

    @property
    def shown(self) -> str:
        """The measured value, from the least to the most of all seeds."""
        texts = list(dict.fromkeys(f"{value:.3g}" for value in sorted(self.measured)))
        return "–".join([texts[0], texts[-1]] if len(texts) > 1 else texts)

    @property
    def state(self) -> str:
        """One word or two."""
        if self.holds is None:
            return f"not measured: {self.reason}"
        return "holds" if self.holds else f"FAILS{': ' if self.reason else ''}{self.reason}"


def parse_number(text: str) -> float:
    """Return the first number of a text."""
    found = NUMBER.search(text)
    if not found:
        raise ValueError(f"there is no number in {text!r}; say `value`")
    return float(found.group().replace(",", ""))


def follow(document: Any, path: Sequence[Any]) -> list[Any]:
    """Return all values that a path leads to."""
    found = [document]
    for step in path:
        found = [child for node in found for child in _take_step(node, step)]
    if not found:
        raise LookupError(f"{list(path)} leads to nothing")
    return found


def _take_step(node: Any, step: Any) -> list[Any]:
    """Return the entries of a node that a step selects."""
    if isinstance(step, Mapping):
        entries = node if isinstance(node, list) else [node]
        return [entry for entry in entries if all(_agree(entry.get(key), value) for key, value in step.items())]
    if isinstance(node, Mapping):
        return [child for key, child in node.items() if fnmatchcase(str(key), str(step))]
    if isinstance(node, list):
        return node if step == "*" else node[step : step + 1]
    return []


def _agree(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and isinstance(found, str):
        return fnmatchcase(found, wanted)
    return found == wanted


def read_claims(path: Path) -> list[Claim]:
    """Return the claims of a file."""
    claims = []
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["claim"]:
        quantities = (Quantity(**({"job": entry["job"]} | quantity)) for quantity in entry["quantities"])
        claims.append(Claim(entry["id"], entry["file"], " ".join(entry["words"].split()), tuple(quantities)))
    return claims


def read_text(path: Path) -> str:
    """Return a text with all white space as single spaces."""
    return " ".join(path.read_text(encoding="utf-8").split())


def check_words(claims: Sequence[Claim], jobs: Sequence[str], root: Path) -> list[str]:
    """Return what is wrong with the claims as they are written: words, figures, jobs and ids."""
    wrong = [f"{claim.id}: two claims have this id" for claim in claims if [c.id for c in claims].count(claim.id) > 1]
    for claim in claims:
        count = read_text(root / claim.file).count(claim.words)
        if count != 1:
            wrong.append(f"{claim.id}: {claim.file} has these words {count} times, not once: {claim.words}")
        for quantity in claim.quantities:
            for said in filter(None, (quantity.said, quantity.beside)):
                if said not in claim.words:
                    wrong.append(f"{claim.id}: {said!r} is not among its words")
            if quantity.job not in jobs:
                wrong.append(f"{claim.id}: there is no job {quantity.job}")
            if (quantity.beside is None) != (quantity.over is None) and quantity.value is None:
                wrong.append(f"{claim.id}: {quantity.said!r} needs both `over` and `beside`, or a `value`")
    return wrong


def judge(
    claims: Sequence[Claim], results: Mapping[str, Mapping[str, Any]], absent: Mapping[str, str], quick: bool = False
) -> list[Verdict]:
    """Return a verdict on every quantity, by the results of jobs by seed; `absent` says why a job has none."""
    verdicts = []
    for claim in claims:
        for quantity in claim.quantities:
            if quick and quantity.quick is None:
                verdicts.append(Verdict(claim, quantity, reason="says nothing in a quick run"))
            elif not results.get(quantity.job):
                verdicts.append(Verdict(claim, quantity, reason=absent.get(quantity.job, "no rows of it are kept yet")))
            else:
                verdicts.append(_judge_quantity(claim, quantity, list(results[quantity.job].values()), quick))
    return verdicts


def _judge_quantity(claim: Claim, quantity: Quantity, documents: Sequence[Any], quick: bool) -> Verdict:
    try:
        measured = tuple(quantity.measure(document) for document in documents)
    except (LookupError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
        return Verdict(claim, quantity, holds=False, reason=f"the result of {quantity.job} has no such value: {error}")
    return Verdict(claim, quantity, measured, quantity.holds(measured, quick), quick=quick)
