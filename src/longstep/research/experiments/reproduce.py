"""One published experiment from data to tables, figures, solver and certificate, in a folder.

Everything slow is a part of its own in DIR/NAME/parts (and training also in the cache): run again with the same
options, only what is missing is computed, and the tables and figures are written anew.
"""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from longstep import Certificate

from ..._util import storage
from ..._util.plain import Json
from ..._util.versions import versions
from ...report.tables import Table
from . import pictures, results
from .experiment import Experiment, Result
from .methods import Entry
from .parts import PartStore
from .sizes import Choices

NAMES = ("ridge", "logistic", "lasso", "deblurring", "kalman", "maxcut")
# Iterations at which the second table shows errors.
_SHOWN = (10, 20, 50)


@dataclass(frozen=True)
class Reproduced:
    """What came of it: the tables, the results behind them, the files, and the names of the parts computed now."""

    name: str
    tables: list[Table]
    results: list[Result]
    certificate: Certificate | None
    files: list[Path]
    made: list[str]
    record: dict[str, Any]

    @property
    def main_tables(self) -> list[Table]:
        """The tables for a terminal: counts, weights, certificate; table.md has them all."""
        if self.certificate is None:
            return [self.tables[0], self.tables[-1]]
        return [self.tables[0], *self.tables[-2:]]

    def to_json(self) -> dict[str, Json]:
        """Return what table.json has."""
        return {"experiment": self.name, "tables": [table.to_json() for table in self.tables], "run": self.record}


def reproduce(
    name: str,
    out: "str | Path",
    options: Choices | None = None,
    *,
    formats: Iterable[str] = pictures.FORMATS,
    say: Callable[[str], None] = lambda text: None,
) -> Reproduced:
    """Run an experiment, one of `NAMES`, and write all it gives to the folder `out`/`name`.

    `say` hears of every part that is computed. `formats` are those of the figures.
    """
    if name not in NAMES:
        raise ValueError(f"the experiments are {', '.join(NAMES)}, got {name!r}")
    begin = perf_counter()
    folder = Path(out) / name
    parts = PartStore(folder / "parts", lambda text: say(f"{name}: {text}"))
    if options is None:
        options = Choices()
    experiment = find_experiment(name)(options, parts)
    found = [experiment.run(entry) for entry in choose_entries(experiment.list_entries(), options.methods)]
    certificate = experiment.certify_main()
    tables = _make_tables(experiment, found, certificate)
    record = _make_record(experiment, parts, folder, perf_counter() - begin)
    reproduced = Reproduced(name, tables, found, certificate, [], parts.made, record)
    reproduced.files.extend(_write_files(experiment, reproduced, folder))
    reproduced.files.extend(pictures.draw_all(experiment, found, certificate, folder / "figures", formats))
    return reproduced


def find_experiment(name: str) -> type[Experiment]:
    """Return the class of an experiment, one of `NAMES`, from the file of its problem."""
    return getattr(import_module(f"{__package__}.{name}"), f"{name.capitalize()}Experiment")


def choose_entries(entries: list[Entry], ids: Iterable[str] | None) -> list[Entry]:
    """Return the entries with these ids, or whose ids begin with one of them and a hyphen, and always the main one."""
    if ids is None:
        return entries
    ids = set(ids)
    known = {entry.id for entry in entries} | {entry.id.split("-")[0] for entry in entries}
    if unknown := sorted(ids - known):
        raise ValueError(f"there is no method {', '.join(unknown)}; there are {', '.join(e.id for e in entries)}")
    return [e for e in entries if e.id == "learned" or e.id in ids or e.id.split("-")[0] in ids]


def _make_tables(experiment: Experiment, found: list[Result], certificate: Certificate | None) -> list[Table]:
    tables = [results.tabulate_iterations(found, f"{experiment.title}, size {experiment.options.size}")]
    if (same := results.tabulate_few(found)) is not None:
        tables.append(same)
    at = [k for k in _SHOWN if k <= experiment.size.steps]
    tables.append(results.tabulate_errors(found, at))
    if tail := [k for k in experiment.tail_at if k <= experiment.size.steps]:
        tables.append(results.tabulate_tail(found, tail))
    tables.append(results.tabulate_weights(experiment, found))
    if certificate is not None:
        tables.append(results.tabulate_inside(certificate, experiment.evaluate_main(found)))
    return tables


def _make_record(experiment: Experiment, parts: PartStore, folder: Path, seconds: float) -> dict[str, Any]:
    """Return what run.json has: what was run, with what, how long it took; of several runs the largest memory."""
    options = experiment.options
    size = experiment.size
    before = _read(folder / "run.json")
    hashes = _hash_data(experiment)
    peak = _measure_peak()
    if before.get("hashes") == hashes:
        peak = max(peak, before.get("peak_memory_bytes", 0))
    return {
        "experiment": experiment.name,
        "command": _write_command(experiment.name, options),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": options.seed,
        "size": {"name": options.size, **json.loads(json.dumps(asdict(size), default=str))},
        "instances": {split.name: len(split) for split in experiment.data},
        "optima": {split.name: split.optima is not None for split in experiment.data},
        "kept": experiment.train_main().kept,
        "notes": experiment.list_notes(),
        "versions": versions() | _find_packages(),
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "device": _name_device()},
        "seconds": {
            "this run": seconds,
            "training": experiment.train_main().seconds,
            "parts": dict(parts.seconds),
        },
        "computed now": parts.made,
        "peak_memory_bytes": peak,
        "hashes": hashes,
    }


def _hash_data(experiment: Experiment) -> dict[str, str]:
    return {"family": experiment.family.content_hash()} | {s.name: s.content_hash() for s in experiment.data}


def _write_command(name: str, options: Choices) -> str:
    text = f"longstep reproduce {name} --size {options.size} --seed {options.seed}"
    if options.methods:
        text += f" --methods {','.join(options.methods)}"
    if options.regularization is not None:
        text += f" --regularization {options.regularization:g}"
    return text


def _write_files(experiment: Experiment, found: Reproduced, folder: Path) -> list[Path]:
    texts = {
        "table.json": json.dumps(found.to_json(), indent=1, ensure_ascii=False, allow_nan=False),
        "table.md": _write_markdown(experiment, found),
        "schedule.json": experiment.train_main().schedule.to_json(),
        "run.json": json.dumps(found.record, indent=1, ensure_ascii=False, allow_nan=False),
    }
    for name, text in texts.items():
        storage.write_bytes(folder / name, (text + "\n").encode())
    experiment.solver.save(folder / "solver.longstep")
    written = [*texts, "solver.longstep"]
    if found.certificate is not None:
        found.certificate.save(folder / "certificate.json")
        written.append("certificate.json")
    return [folder / name for name in written]


def _write_markdown(experiment: Experiment, found: Reproduced) -> str:
    record = found.record
    counts = ", ".join(f"{count} {name}" for name, count in record["instances"].items())
    packages = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    head = [
        f"# {experiment.title}",
        f"`{record['command']}`, {record['date']}. Instances: {counts}; learned from {experiment.size.train}. "
        f"Kept: {record['kept']}. {' '.join(record['notes'])}".rstrip(),
        f"With {packages}; {record['machine']['cores']} cores, {record['machine']['architecture']}, "
        f"JAX on {record['machine']['device']}.",
    ]
    return "\n\n".join([*head, *(table.markdown() for table in found.tables)])


def _find_packages() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for package in ("equinox", "clarabel", "osqp", "scs", "optax"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _name_device() -> str:
    import jax

    return jax.devices()[0].device_kind


def _measure_peak() -> int:
    """Return the largest resident memory of this process so far, in bytes; 0 where it is not told."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1024
    if sys.platform == "darwin":
        unit = 1
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON of a file; nothing where it is not there, or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
