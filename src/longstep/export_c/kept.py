"""Libraries in the cache, and what it takes to call one without the solver that it was made from: no JAX, no plan.

A command is a new process, and importing JAX and loading a solver takes longer than solving a few instances in C.
"""

import dataclasses
import json
from pathlib import Path
from typing import Self

import numpy as np
from jaxtyping import Float

from .._util import storage
from .._util.hashing import content_hash
from .._util.version import __version__
from ..engine.budget import Clock
from ..engine.solution import Solution
from ..families.names import Layout
from .library import Library, Slot, check_settings, locate_declarations, locate_factors

_CHECK_EVERY = 5


@dataclasses.dataclass(frozen=True, eq=False)
class KeptSolver:
    """A library of the cache with the names of its parameters and variables; solves batches, on one thread."""

    library: Library
    layout: Layout
    eps_infeasible: float
    seen: bool

    def solve_batch(
        self,
        x: Float[np.ndarray, "N size"],
        *,
        steps: int | None,
        eps_abs: float,
        eps_rel: float,
        max_iter: int,
    ) -> Solution | None:
        """Solve instances as `CompiledSolver.solve_batch` does, without rays; None where the C code refuses one."""
        clock = Clock(None)
        slot = Slot(self.library)
        slot.set(
            check_settings(
                eps_abs=eps_abs,
                eps_rel=eps_rel,
                eps_infeasible=self.eps_infeasible,
                max_iter=max_iter,
                check_every=_CHECK_EVERY,
                steps=steps,
            )
        )
        results = np.zeros(len(x), self.library.result)
        slot.solve_many(np.ascontiguousarray(x, self.library.dtype), None, results)
        found = self.library.read(results)
        if np.any(found["status"] == self.library.refused):
            return None
        if not self.seen:
            found["outside"] = None
        return Solution(**found, ray_x=None, ray_y=None, time=clock.measure_elapsed(), layout=self.layout)

    def to_json(self) -> storage.JsonObject:
        """Return all of it as plain data; the library is named by its file, which lies beside."""
        return {
            "library": self.library.path.name,
            "layout": self.layout.to_json(),
            "eps_infeasible": self.eps_infeasible,
            "seen": self.seen,
        }

    @classmethod
    def from_json(cls, document: storage.JsonObject, folder: Path) -> Self:
        """Return the inverse of `to_json`; refused by a ValueError where the library is not as it was written."""
        path = folder / Path(document["library"]).name
        if not is_intact(path):
            raise ValueError(f"{path} is not there, or not as it was written")
        return cls(Library(path), Layout.from_json(document["layout"]), document["eps_infeasible"], document["seen"])


def find_kept(solver: Path, cache: "Path | bool") -> KeptSolver | None:
    """Return what was kept for a solver file, by its bytes; None where there is nothing that can be used."""
    folder = storage.cache_folder(cache, "c")
    if folder is None or not solver.is_file():
        return None
    try:
        document = json.loads(_locate(solver, folder).read_text(encoding="utf-8"))
        if content_hash(json.dumps(document["kept"])) != document["hash"]:
            return None
        return KeptSolver.from_json(document["kept"], folder)
    except (OSError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        # Whatever is wrong with it, it is made again.
        return None


def keep(solver: Path, kept: KeptSolver, cache: "Path | bool") -> None:
    """Keep what it takes to call the library of a solver file, where that library is in the cache."""
    folder = storage.cache_folder(cache, "c")
    if folder is None or kept.library.path.parent != folder:
        return
    path = _locate(solver, folder)
    document = kept.to_json()
    text = json.dumps({"kept": document, "hash": content_hash(json.dumps(document))})
    storage.keep(path, lambda: storage.write_bytes(path, text.encode()))


def _locate(solver: Path, folder: Path) -> Path:
    """Return where the call of a solver file is kept: by its bytes, the version and the machine."""
    key = content_hash(solver.read_bytes(), __version__, describe_machine())
    return folder / f"{key[:32]}.json"


def locate_digest(path: Path) -> Path:
    """Return the file with the hash of a library."""
    return path.with_suffix(".sha256")


def hash_library(path: Path) -> str:
    """Return the hash of a library, of its declarations, and of the factors beside it where there are any."""
    parts: list[object] = [path.read_bytes(), locate_declarations(path).read_bytes()]
    factors = locate_factors(path)
    if factors.exists():
        parts.append(np.fromfile(factors, np.uint8))
    return content_hash(*parts)


def is_intact(path: Path) -> bool:
    """Tell whether a library is there as it was written: loading a damaged one ends the process."""
    try:
        return hash_library(path) == locate_digest(path).read_text()
    except (OSError, ValueError):
        return False


def describe_machine() -> str:
    """Return what -march=native depends on: a cache may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
