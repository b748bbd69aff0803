"""A report as it was saved: `report.json` read back, whatever version wrote it, for the page that is made of it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from .._util.storage import FileFormatError, read_json
from ..certificates.certificate import Certificate
from ..certificates.document import (
    CertificateError,
    read_list,
    read_number,
    read_object,
    read_optional,
    read_text,
    read_texts,
    read_whole,
)

ReadT = TypeVar("ReadT")
FILE = "report.json"


@dataclass(frozen=True)
class CostRow:
    """The steps of a method until `solve` ends at a tolerance; `steps` of every instance, None for one without answer.

    `steps` is None in reports that did not record them.
    """

    method: str
    eps: float
    median: float
    late: float
    worst: float
    unsolved: int
    most: int
    seconds: float | None
    steps: tuple[int | None, ...] | None
    compiled: bool

    @staticmethod
    def of(fields: Mapping[str, object]) -> "CostRow":
        """Return the row of plain data."""
        return CostRow(
            method=read_text(fields["method"]),
            eps=read_number(fields["eps"], 0),
            median=read_number(fields["median"], 0),
            late=read_number(fields["95%"], 0),
            worst=read_number(fields["worst"], 0),
            unsolved=read_whole(fields["unsolved"]),
            most=read_whole(fields["most"]),
            seconds=read_optional(fields["seconds"], read_number),
            steps=read_optional(fields.get("steps"), _read_steps),
            # Reports of before have none.
            compiled=fields.get("compiled") is True,
        )

    @property
    def mean(self) -> float | None:
        """The mean of the steps, those without an answer counted with all they were given."""
        if not self.steps:
            return None
        return sum(self.most if k is None else k for k in self.steps) / len(self.steps)

    @property
    def is_package(self) -> bool:
        """Whether this is the installed package."""
        return self.method.endswith("package")


@dataclass(frozen=True)
class Curves:
    """The errors of a method over instances, after each of `counts` steps: ∞ where they are not finite."""

    method: str
    counts: tuple[int, ...]
    instances: int
    mean: tuple[float, ...]
    median: tuple[float, ...]
    late: tuple[float, ...]
    worst: tuple[float, ...]
    whole: bool

    @staticmethod
    def of(fields: Mapping[str, object]) -> "Curves":
        """Return the curves of plain data: of an evaluation, or of a package at some counts."""
        curves = read_object(fields["curves"])
        names = ("geometric mean", "median", "95% quantile", "maximum")
        mean, median, late, worst = (_read_curve(curves[name]) for name in names)
        counts = tuple(range(len(median)))
        if "counts" in fields:
            counts = tuple(map(read_whole, read_list(fields["counts"])))
        if not counts or {len(c) for c in (mean, median, late, worst)} != {len(counts)}:
            raise TypeError("its curves differ in length")
        about = read_text(fields["method"]), counts, read_whole(fields["instances"])
        return Curves(*about, mean, median, late, worst, whole="counts" not in fields)

    def find_reached(self, tolerance: float, curve: Sequence[float]) -> tuple[int | None, int | None]:
        """Return the first count at which a curve meets a tolerance, and that from which it stays there."""
        below = [value <= tolerance for value in curve]
        if not any(below):
            return None, None
        first = self.counts[below.index(True)]
        if not below[-1]:
            return first, None
        above = [-1, *(i for i, met in enumerate(below) if not met)]
        return first, self.counts[above[-1] + 1]


@dataclass(frozen=True)
class MetricGroup:
    """The metric on the rows of one constraint: the entries' names, the unknowns in them, and the values."""

    name: str
    entries: tuple[str, ...]
    unknowns: tuple[str, ...]
    values: tuple[float, ...]

    @staticmethod
    def of(fields: Mapping[str, object]) -> "MetricGroup":
        """Return the group of plain data."""
        entries = tuple(map(read_text, read_list(fields["entries"])))
        unknowns = tuple(map(read_text, read_list(fields["unknowns"])))
        values = tuple(read_number(v, 0) for v in read_list(fields["values"]))
        if not len(entries) == len(unknowns) == len(values):
            raise TypeError("its metric has not one value a row")
        return MetricGroup(read_text(fields["name"]), entries, unknowns, values)


@dataclass(frozen=True)
class LearnedFacts:
    """The schedule that was learned, what it is compared with, and the metric by constraint."""

    algorithm: str
    varying: dict[str, tuple[float, ...]]
    steady: dict[str, float]
    constant: dict[str, float]
    defaults: dict[str, float]
    units: dict[str, str]
    metric: tuple[MetricGroup, ...]

    @staticmethod
    def of(fields: Mapping[str, object]) -> "LearnedFacts":
        """Return what was learned, of plain data."""
        varying = {name: _read_curve(values) for name, values in read_object(fields["varying"]).items()}
        metric = read_optional(fields["metric"], read_list) or ()
        return LearnedFacts(
            algorithm=read_text(fields["algorithm"]),
            varying=varying,
            steady=_read_numbers(fields["steady"]),
            constant=_read_numbers(fields["constant"]),
            defaults=_read_numbers(fields["defaults"]),
            units=read_texts(fields["units"]),
            metric=tuple(MetricGroup.of(read_object(group)) for group in metric),
        )


@dataclass(frozen=True)
class ReportDocument:
    """All that a page shows; what an earlier version did not record is None or empty."""

    verdict: str | None
    kept: str
    instances: dict[str, int]
    notes: tuple[str, ...]
    costs: tuple[CostRow, ...]
    certificate: Certificate | None
    timing: dict[str, float]
    seconds: float
    metric: str
    measure: str
    problem: Mapping[str, object]
    learned: LearnedFacts | None
    curves: tuple[Curves, ...]
    origin: Mapping[str, object]

    @staticmethod
    def of(fields: Mapping[str, object], source: str = "the report") -> "ReportDocument":
        """Return the document of a report's plain data; other data are refused."""
        try:
            return _read_document(fields)
        except CertificateError as error:
            raise FileFormatError(f"{source}: its certificate is not good any more: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(
                f"{source} is not a report of longstep, or is damaged ({type(error).__name__}: {error}). "
                f"{_write_advice('DIR')}"
            ) from None


def load_document(path: Path) -> ReportDocument:
    """Read a report from `report.json`, or from the folder that it is in; refuse with what to do instead."""
    file = path
    if path.is_dir():
        file = path / FILE
        if not file.exists():
            raise FileNotFoundError(f"there is no {FILE} in the folder {path}. {_write_advice(str(path))}")
    if not file.exists():
        raise FileNotFoundError(f"there is no file {path}. {_write_advice('DIR')}")
    if file.suffix == ".longstep":
        raise FileFormatError(f"{path} is a solver, and a page is made of a report. {_write_advice('DIR')}")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(f"{file} is no JSON, so it is not a report of longstep. {_write_advice('DIR')}") from None
    fields = read_json(text, str(file))
    if (kind := fields.get("longstep", "report")) != "report":
        raise FileFormatError(f"{file} holds a {kind} of longstep, not a report. {_write_advice('DIR')}")
    return ReportDocument.of(fields, str(file))


def _read_document(fields: Mapping[str, object]) -> ReportDocument:
    curves = [read_object(each) for each in read_list(fields.get("evaluations", []))]
    metric = ""
    measure = ""
    if curves:
        metric = read_text(curves[0]["metric"])
        measure = read_text(curves[0]["measure"])
    if fields.get("package") is not None:
        curves.append(read_object(fields["package"]))
    instances = {name: read_whole(count) for name, count in read_object(fields["instances"]).items()}
    return ReportDocument(
        verdict=read_optional(fields.get("verdict"), read_text),
        kept=read_text(fields["kept"]),
        instances=instances,
        notes=tuple(map(read_text, read_list(fields["notes"]))),
        costs=tuple(CostRow.of(read_object(row)) for row in read_list(fields.get("costs") or [])),
        certificate=read_optional(fields["certificate"], Certificate.from_json),
        timing=_read_numbers(fields.get("timing", {})),
        seconds=read_number(fields["seconds"], 0),
        metric=metric,
        measure=measure,
        problem=read_object(fields.get("problem", {})),
        learned=read_optional(fields.get("learned"), _make_reader(LearnedFacts.of)),
        curves=tuple(map(Curves.of, curves)),
        origin=read_object(fields.get("origin", {})),
    )


def _make_reader(of: Callable[[Mapping[str, object]], ReadT]) -> Callable[[object], ReadT]:
    return lambda value: of(read_object(value))


def _read_steps(value: object) -> tuple[int | None, ...]:
    """Return the steps of every instance, None for one without answer."""
    return tuple(read_optional(each, read_whole) for each in read_list(value))


def _read_numbers(value: object) -> dict[str, float]:
    return {name: read_number(each) for name, each in read_object(value).items()}


def _read_curve(value: object) -> tuple[float, ...]:
    """Return numbers; None, which JSON has for what is not finite, is ∞."""
    return tuple(math.inf if each is None else read_number(each) for each in read_list(value))


def _write_advice(folder: str) -> str:
    return f"`longstep learn … --report {folder}` and `report.save(folder)` write one"
