"""The report of a learned solver: what was learned, how good it is, what is promised."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from .._util import storage
from .._util.plain import Json
from ..certificates.certificate import Certificate
from ..cvxpy import Model
from ..data.dataset import Dataset
from ..engine.forecast import Forecast
from ..evaluation.cost import Costs
from ..evaluation.evaluate import Evaluation
from ..evaluation.package_errors import PackageErrors
from ..schedules.schedule import constant
from ..training.record import Training
from .document import FILE, ReportDocument
from .facts import describe_learned, describe_origin, describe_problem
from .page import PAGE, frame_page, write_page
from .tables import Table, comparison, cost_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions


@dataclass(frozen=True)
class Report:
    """What `learn` did: `print` it, or `save` it to a folder.

    `costs` are the steps and the time until `solve` ends on test instances, the installed package's beside them, with a
    verdict. `evaluations` are on test instances too: the learned solver first, then the best constant, the defaults.
    `timing` tells where the time went, `notes` what else is worth knowing, such as why there is no certificate.
    `package` are the installed package's errors after some numbers of steps, `command` is what was called.
    """

    origin: Model | None
    data: Dataset
    training: Training
    evaluations: list[Evaluation]
    certificate: Certificate | None
    forecast: Forecast
    notes: list[str]
    seconds: float
    costs: Costs | None = None
    timing: dict[str, float] = field(default_factory=dict)
    package: PackageErrors | None = None
    command: str = ""

    @property
    def model(self) -> Model:
        """The model of the CVXPY problem."""
        if self.origin is None:
            raise AttributeError("this was learned for a family, not for a CVXPY problem: it has no model")
        return self.origin

    @property
    def table(self) -> Table:
        """Iterations to tolerances, on the test instances."""
        return comparison(self.evaluations)

    @property
    def words(self) -> str:
        """What is kept, where the time went, the certificate's sentence, and what the user should know."""
        kept = type(self.training.algorithm).__name__
        lines = [f"Kept: {self.training.kept} ({kept}); learned in {self.training.seconds:.1f} s."]
        if self.timing:
            lines.append("Time: " + ", ".join(f"{name} {value:.1f} s" for name, value in self.timing.items()) + ".")
        if self.certificate is not None:
            lines.append(str(self.certificate))
        return "\n".join([*lines, *self.notes])

    @property
    def verdict(self) -> str | None:
        """Whether to use what was learned, in a sentence, with a warning of tolerances that nobody reached."""
        if self.costs is None:
            return None
        return " ".join([self.costs.verdict, *self.costs.unreached])

    @override
    def __str__(self) -> str:
        return "\n\n".join(map(str, self._list_parts()))

    __repr__ = __str__

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Table | str]":
        """Yield the tables as wide as the terminal, then the words, and the verdict last, where the eye is."""
        yield from self._list_parts()

    def _list_parts(self) -> list[Table | str]:
        """Return the tables, the words and the verdict, of those there are."""
        parts: list[Table | str] = [self.table, self.words]
        if self.costs is not None:
            parts.insert(0, cost_table(self.costs))
        if self.verdict is not None:
            parts.append(self.verdict)
        return parts

    def to_json(self) -> dict[str, Json]:
        """Return all of it as plain data; what was learned, on which rows, and the errors step by step included."""
        family = self.data.train.family
        return {
            "longstep": "report",
            "table": self.table.to_json(),
            "kept": self.training.kept,
            "instances": {split.name: len(split) for split in self.data},
            "memory": {"factors": self.forecast.factors, "training": self.forecast.training},
            "certificate": _export(self.certificate),
            "notes": self.notes,
            "costs": _export(self.costs),
            "verdict": self.verdict,
            "timing": self.timing,
            "seconds": self.seconds,
            "problem": describe_problem(family),
            "learned": describe_learned(self.training, family, self.origin),
            "evaluations": [evaluation.to_json() for evaluation in self.evaluations],
            "package": _export(self.package),
            "origin": describe_origin(self.training, self.command),
        }

    def to_document(self) -> ReportDocument:
        """Return what a page is made of: what `report.json` holds, read back."""
        return ReportDocument.of(json.loads(json.dumps(self.to_json())))

    def _repr_html_(self) -> str:
        """Return the page in a frame, as notebooks show it."""
        return frame_page(self.to_document())

    def save(self, folder: "str | Path") -> list[Path]:
        """Write the page, tables, schedule, certificate and, where Matplotlib is there, figures; return the files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "table.md": self.table.markdown(),
            FILE: json.dumps(self.to_json(), indent=1, ensure_ascii=False),
            "schedule.json": json.dumps(json.loads(self.training.schedule.to_json()), indent=1),
        }
        for name, text in texts.items():
            storage.write_bytes(folder / name, (text + "\n").encode())
        written = [folder / name for name in texts]
        write_page(self.to_document(), folder / PAGE)
        written.append(folder / PAGE)
        if self.certificate is not None:
            self.certificate.save(folder / "certificate.json")
            written.append(folder / "certificate.json")
        return written + self._draw_figures(folder)

    def _draw_figures(self, folder: Path) -> list[Path]:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            return []
        from . import figures

        curves = figures.convergence(self.evaluations, certificate=self.certificate)
        written = figures.save(curves, folder / "convergence", ("png",))
        if len(self.training.schedule):
            usual = constant(self.training.algorithm.hyperparameters(self.data.train.family))
            steps = figures.schedule(self.training, default=usual)
            written += figures.save(steps, folder / "schedule", ("png",))
        return written


def _export(part: Certificate | Costs | PackageErrors | None) -> Json:
    """Return a part of a report as plain data; None where there is none."""
    if part is None:
        return None
    return part.to_json()
