"""Jobs: the commands that measure, run one after the other into one folder, each only where its result is not there.

A job of jobs.toml has a command and may have a smaller one (`quick`), seeds, and what it `needs`: an installed package,
`gpu`, `cc` (a C compiler), `data:NAME` (a file or folder of LONGSTEP_DATA, else ../shared/data) or `file:NAME` (an
environment variable that names a file, which the command has as {file}). {out} is where its JSON goes, {folder} the
folder of all, {seed} the seed.
"""

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from longstep._util.storage import write_bytes

PACKAGES = (
    "longstep", "jax", "jaxlib", "numpy", "scipy", "equinox", "cvxpy", "osqp", "scs", "clarabel", "piqp", "daqp",
    "proxsuite", "qpalm", "qdldl", "torch", "cvxpylayers", "pyarrow", "optax", "ray",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A command that measures, for some seeds, and what it needs; `minutes` is about what a full run takes."""

    name: str
    command: str
    minutes: float
    quick: str | None = None
    seeds: tuple[int, ...] = (0,)
    needs: tuple[str, ...] = ()
    result: str = ""
    # Keys of the result that are too long to be kept among the rows.
    leave_out: tuple[str, ...] = ()

    def list_runs(self, folder: Path, quick: bool) -> "Iterator[Run]":
        """Yield a run for each seed; a quick one has the first seed alone."""
        command = self.quick if quick else self.command
        assert command is not None
        name = self.result or (f"{self.name}-{{seed}}.json" if len(self.seeds) > 1 else f"{self.name}.json")
        variable = next((need.removeprefix("file:") for need in self.needs if need.startswith("file:")), "")
        for seed in self.seeds[:1] if quick else self.seeds:
            out = folder / name.format(seed=seed)
            words = {"out": out, "folder": folder, "seed": seed, "file": os.environ.get(variable, "FILE")}
            yield Run(self, seed, shlex.split(command.format(**words)), out, folder / f"{self.name}-{seed}.run")


@dataclass(frozen=True)
class Run:
    """One command with one seed: its words, its result, and the stem of its log and stamp."""

    job: Job
    seed: int
    command: list[str]
    out: Path
    stem: Path

    @property
    def stamp(self) -> Path:
        """What is known of the run."""
        return self.stem.with_suffix(".stamp.json")


@dataclass
class Outcome:
    """What came of a job: its results by seed, or why there are none."""

    results: dict[str, Any] = field(default_factory=dict)
    absent: str = ""
    failed: bool = False
    seconds: float = 0.0


def read_jobs(path: Path) -> dict[str, Job]:
    """Return the jobs of a file, in its order."""
    jobs = {}
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
        fields: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        jobs[name] = Job(name, **fields)
    return jobs


def find_data(root: Path) -> Path:
    """Return the folder with images and problems, which need not be there."""
    return Path(os.environ.get("LONGSTEP_DATA", root.parent / "shared" / "data"))


def find_missing(job: Job, root: Path) -> list[str]:
    """Return what the job needs and this machine does not have."""
    data = find_data(root)
    missing = []
    for need in job.needs:
        kind, _, name = need.partition(":")
        if kind == "data":
            there = (data / name).exists()
        elif kind == "file":
            there = name in os.environ and Path(os.environ[name]).exists()
        elif kind == "cc":
            there = any(map(shutil.which, (os.environ.get("CC", "cc").split()[0], "gcc", "clang")))
        else:
            there = _has_gpu() if kind == "gpu" else importlib.util.find_spec(need) is not None
        if not there:
            missing.append(need)
    return missing


@cache
def _has_gpu() -> bool:
    """Tell whether JAX sees an accelerator, in another process because JAX would keep it."""
    code = "import jax; raise SystemExit(jax.default_backend() == 'cpu')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def hash_code(command: Sequence[str], root: Path) -> str:
    """Return a hash of the library, the examples, the command's script and the scripts that it imports."""
    scripts = [root / word for word in command if word.endswith(".py") and (root / word).is_file()]
    for script in scripts:
        stems = re.findall(r"^(?:from|import) (\w+)", script.read_text(encoding="utf-8"), re.MULTILINE)
        scripts += [path for stem in stems if (path := script.parent / f"{stem}.py").is_file() and path not in scripts]
    library = [path for name in ("src", "examples") for path in (root / name).rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for file in sorted({*library, *scripts}):
        if "__pycache__" in file.parts or ".egg-info" in str(file):
            continue
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def run_job(job: Job, folder: Path, root: Path, quick: bool) -> Outcome:
    """Return the outcome of a job; runs whose results are there, by the same command and code, are not run again."""
    if quick and job.quick is None:
        return Outcome(absent="there is no quick form of it")
    if missing := find_missing(job, root):
        return Outcome(absent=f"needs {', '.join(missing)}")
    outcome = Outcome()
    for run in job.list_runs(folder, quick):
        known = read_json(run.stamp) or {}
        this = {"command": run.command, "code": hash_code(run.command, root)}
        same = all(known.get(key) == value for key, value in this.items())
        document = read_json(run.out)
        done = same and known.get("code_of_return") == 0 and known.get("sha256") == _hash_file(run.out)
        if not done or document is None:
            # What an interrupted run of the same code has left may be gone on from; anything else may not.
            if not same or document is None:
                run.out.unlink(missing_ok=True)
            known = _execute(run, this, root)
            document = read_json(run.out)
        if known.get("code_of_return") != 0 or document is None:
            outcome.failed = True
            outcome.absent = f"its command failed, see {run.stem.with_suffix('.log')}"
            return outcome
        outcome.results[str(run.seed)] = document
        outcome.seconds += known["seconds"]
    return outcome


def _execute(run: Run, this: dict[str, Any], root: Path) -> dict[str, Any]:
    """Run one command, its output into a log, and return its stamp."""
    write_json(run.stamp, this)
    command = [sys.executable if word == "python" else word for word in run.command]
    path = os.pathsep.join(filter(None, (str(root / "src"), os.environ.get("PYTHONPATH"))))
    begin = time.perf_counter()
    with run.stem.with_suffix(".log").open("wb") as log:
        # Trainings that other code has left in a cache are not this code's.
        cache_folder = run.stem.parent / "cache" / this["code"][:12]
        places = {"LONGSTEP_DATA": str(find_data(root)), "LONGSTEP_CACHE": str(cache_folder)}
        environment = os.environ | {"PYTHONPATH": path} | places
        done = subprocess.run(command, cwd=root, env=environment, stdout=log, stderr=log, check=False)
    seconds = time.perf_counter() - begin
    stamp = this | {"seconds": round(seconds, 1), "code_of_return": done.returncode, "sha256": _hash_file(run.out)}
    stamp |= {"date": time.strftime("%Y-%m-%d"), "commit": describe_commit(root)}
    write_json(run.stamp, stamp)
    return stamp


def describe_machine(seeds: Sequence[int], root: Path) -> dict[str, Any]:
    """Return the processor, memory, versions, seeds, date and commit of a run."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE) if info.exists() else []
    installed = {d.metadata["Name"].lower(): d.version for d in metadata.distributions() if d.metadata["Name"]}
    pages = hasattr(os, "sysconf") and os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.processor(),
        "memory GiB": round(pages / 2**30, 1) if pages else None,
        "system": platform.system(),
        "versions": {"python": platform.python_version()} | {n: installed[n] for n in PACKAGES if n in installed},
        "seeds": sorted(set(seeds)),
        "date": time.strftime("%Y-%m-%d"),
        "commit": describe_commit(root),
    }


def describe_commit(root: Path) -> str:
    """Return the commit of a checkout, with a + where files differ from it; nothing without Git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_json(path: Path, document: Any) -> None:
    """Write JSON, atomically."""
    write_bytes(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Return a file's JSON; None where there is none, or it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _hash_file(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
