"""Files of solvers, and the parts that they are made of."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .._util import storage
from ..algorithms.base import Algorithm
from ..algorithms.registry import BY_NAME
from ..engine.finisher import Patience
from ..engine.rungs import LadderUse
from ..engine.start import LearnedStart
from ..errors import FileFormatError
from ..families.base import Family
from ..families.parameter_range import Seen
from ..schedules.schedule import Schedule
from .family import Description, build_family, describe_family
from .fields import ENDS, START, make_or_refuse, read_finish, read_patience, read_record, read_seen, read_start

VERSION = 1
_KIND = "solver"


@dataclass(frozen=True)
class Parts:
    """What a solver is made of, and all that a file holds of it; `record`, `seen` and `start` are its training's."""

    family: Family
    algorithm: Algorithm
    schedule: Schedule
    safeguard: Literal["block", "step"] | None
    factors: Literal["float32", "float64"] | None
    ladder: LadderUse
    finish: int | None
    patience: Patience | None
    record: dict[str, Any] | None
    seen: Seen | None
    start: LearnedStart | None


def save_parts(parts: Parts, path: Path) -> None:
    """Write the parts of a solver atomically. A family made of Python functions is stored by its hash alone."""
    name = type(parts.algorithm).__name__
    if BY_NAME.get(name) is not type(parts.algorithm):
        raise TypeError(f"{name} is not one of longstep's algorithms, so a file could not name it")
    arrays: dict[str, np.ndarray] = {}
    metadata = {
        "algorithm": name,
        "schedule": parts.schedule.to_json(),
        "safeguard": parts.safeguard,
        "factors": parts.factors,
        "ladder": parts.ladder,
        "finish": parts.finish,
        "patience": parts.patience,
        "training": parts.record,
        "seen": None,
        "family": describe_family(parts.family, arrays),
        "family_hash": parts.family.content_hash(),
        "functions": "source",
    }
    if fields := parts.algorithm.fields():
        metadata["algorithm_fields"] = fields
    if parts.seen is not None:
        metadata["seen"] = parts.seen.lone
        arrays |= {f"seen.{end}": getattr(parts.seen, end) for end in ENDS}
    if parts.start is not None:
        arrays |= {f"start.{name}": getattr(parts.start, name) for name in START}
    storage.write(path, _KIND, VERSION, arrays, metadata)


def load_parts(path: Path, family: Family | None) -> Parts:
    """Read the parts of a solver; `family` is needed where the file has none, and must be the one it was saved with."""
    arrays, metadata = storage.read(path, _KIND, VERSION)
    description: Description | None = metadata.get("family")
    if family is not None:
        known = family
    elif description is not None:
        known = make_or_refuse(path, "the family", lambda: build_family(description, arrays))
    else:
        raise ValueError(
            f"{path} was saved with a family made of Python functions, which no file holds. "
            "Make the same family and pass it: Solver.load(path, family=family)"
        )
    if description is None and metadata.get("functions") != "source":
        # 0.1 hashed functions by their bytecode, which every Python writes differently.
        warnings.warn(
            f"{path} is of longstep 0.1: whether the family passed is the one it was saved with cannot be checked",
            stacklevel=4,
        )
    elif known.content_hash() != metadata.get("family_hash"):
        raise FileFormatError(f"the family passed is not the one {path} was saved with: their data differ")
    return make_or_refuse(path, "the solver", lambda: _build_parts(path, known, metadata, arrays))


def _build_parts(path: Path, family: Family, metadata: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Parts:
    algorithm = BY_NAME.get(metadata["algorithm"])
    if algorithm is None:
        raise FileFormatError(f"{path} names the algorithm {metadata['algorithm']!r}, which this longstep lacks")
    schedule = Schedule.from_json(metadata["schedule"])
    return Parts(
        family=family,
        algorithm=algorithm(**metadata.get("algorithm_fields", {})),
        schedule=schedule,
        safeguard=metadata.get("safeguard", "block"),
        factors=metadata.get("factors"),
        # Files of 0.1 have none.
        ladder=metadata.get("ladder", False),
        finish=read_finish(path, metadata.get("finish")),
        patience=read_patience(path, metadata.get("patience")),
        record=read_record(path, metadata.get("training"), schedule.names),
        seen=read_seen(family, metadata.get("seen"), arrays),
        start=read_start(family, algorithm.starts_from_rows, arrays),
    )
