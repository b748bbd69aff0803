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
from ..._util.versions import versions
from ...report.tables import Table
from . import pictures, results
from .experiment import Experiment, Options, Result
from .methods import Entry
from .parts import Parts

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
    def shown(self) -> list[Table]:
        """The tables for a terminal: counts, weights, certificate; table.md has them all."""
        return [self.tables[0], *self.tables[-2 if self.certificate is not None else -1 :]]

    def to_json(self) -> dict[str, Any]:
        """As table.json has it."""
        return {"experiment": self.name, "tables": [table.to_json() for table in self.tables], "run": self.record}


def reproduce(
    name: str,
    out: "str | Path",
    options: Options | None = None,
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
    parts = Parts(folder / "parts", lambda text: say(f"{name}: {text}"))
    options = Options() if options is None else options
    experiment: Experiment = import_module(f"{__package__}.{name}").Reproduction(options, parts)
    found = [experiment.run(entry) for entry in chosen(experiment.entries(), options.methods)]
    certificate = experiment.certificate()
    tables = _tables(experiment, found, certificate)
    record = _record(experiment, parts, folder, perf_counter() - begin)
    reproduced = Reproduced(name, tables, found, certificate, [], parts.made, record)
    reproduced.files.extend(_write(experiment, reproduced, folder))
    reproduced.files.extend(pictures.draw(experiment, found, certificate, folder / "figures", formats))
    return reproduced


def chosen(entries: list[Entry], ids: Iterable[str] | None) -> list[Entry]:
    """The entries with these ids, or whose ids begin with one of them and a hyphen, and always the main one."""
    if ids is None:
        return entries
    ids = set(ids)
    known = {entry.id for entry in entries} | {entry.id.split("-")[0] for entry in entries}
    if unknown := sorted(ids - known):
        raise ValueError(f"there is no method {', '.join(unknown)}; there are {', '.join(e.id for e in entries)}")
    return [e for e in entries if e.id == "learned" or e.id in ids or e.id.split("-")[0] in ids]


def _tables(experiment: Experiment, found: list[Result], certificate: Certificate | None) -> list[Table]:
    tables = [results.iterations_table(found, f"{experiment.title}, size {experiment.options.size}")]
    if (same := results.few_table(found)) is not None:
        tables.append(same)
    at = [k for k in _SHOWN if k <= experiment.size.steps]
    tables += [results.errors_table(found, at), results.weights_table(experiment, found)]
    if certificate is not None:
        tables.append(results.certificate_inside(certificate, experiment.tested(found)))
    return tables


def _record(experiment: Experiment, parts: Parts, folder: Path, seconds: float) -> dict[str, Any]:
    """run.json: what was run, with what, how long it took and how much memory; of several runs the largest memory."""
    options = experiment.options
    size = experiment.size
    before = _read(folder / "run.json")
    same = before.get("hashes") == _hashes(experiment)
    return {
        "experiment": experiment.name,
        "command": _command(experiment.name, options),
        "date": datetime.now(UTC).date().isoformat(),
        "seed": options.seed,
        "size": {"name": options.size, **_plain(asdict(size))},
        "instances": {split.name: len(split) for split in experiment.data},
        "optima": {split.name: split.optima is not None for split in experiment.data},
        "kept": experiment.main().kept,
        "notes": experiment.notes(),
        "versions": versions() | _packages(),
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "device": _device()},
        "seconds": {
            "this run": seconds,
            "training": experiment.main().seconds,
            "parts": dict(parts.seconds),
        },
        "computed now": parts.made,
        "peak_memory_bytes": max(_peak(), before.get("peak_memory_bytes", 0) if same else 0),
        "hashes": _hashes(experiment),
    }


def _hashes(experiment: Experiment) -> dict[str, str]:
    return {"family": experiment.family.content_hash()} | {s.name: s.content_hash() for s in experiment.data}


def _command(name: str, options: Options) -> str:
    text = f"longstep reproduce {name} --size {options.size} --seed {options.seed}"
    text += f" --methods {','.join(options.methods)}" if options.methods else ""
    return text + (f" --regularization {options.regularization:g}" if options.regularization is not None else "")


def _write(experiment: Experiment, found: Reproduced, folder: Path) -> list[Path]:
    texts = {
        "table.json": json.dumps(found.to_json(), indent=1, ensure_ascii=False, allow_nan=False),
        "table.md": _markdown(experiment, found),
        "schedule.json": experiment.main().schedule.to_json(),
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


def _markdown(experiment: Experiment, found: Reproduced) -> str:
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


def _packages() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for package in ("equinox", "clarabel", "osqp", "scs", "optax"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _device() -> str:
    import jax

    return jax.devices()[0].device_kind


def _peak() -> int:
    """The largest resident memory of this process so far, in bytes; 0 where it is not told."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: what is not plain by its text."""
    return json.loads(json.dumps(fields, default=str))
