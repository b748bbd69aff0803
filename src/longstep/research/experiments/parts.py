"""Finished parts of a run: one file each, written atomically, named by what it is and a hash of all it depends on."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from ..._util import storage
from ..._util.hashing import content_hash
from ..._util.version import __version__

# Arrays, and a record that is plain JSON.
StoredPart: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]
# Raised when the same settings give other results.
_KIND = "part of an experiment"
_VERSION = 2


class PartStore:
    """A folder of parts. `made` names those that were computed now, not read; `say` hears of each.

    `seconds` is what every part that was asked for took when it was made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = PartStore(Path(folder)), PartStore(Path(folder))
    ...     for parts in (first, again):
    ...         arrays, record = parts.get("sum", {"of": 3}, lambda: ({"a": np.arange(3)}, {"total": 3}))
    ...     record["total"], first.made, again.made
    (3, ['sum'], [])
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda text: None):
        self.folder = folder
        self.say = say
        self.made: list[str] = []
        self.seconds: dict[str, float] = {}

    def locate(self, name: str, depends: object) -> Path:
        """Return where a part lies; another version of longstep computes its own."""
        return self.folder / f"{name}-{content_hash(_VERSION, __version__, name, depends)[:16]}.part"

    def get(self, name: str, depends: object, make: Callable[[], StoredPart]) -> StoredPart:
        """Return the arrays and the record of a part, from its file or made now; `seconds` is what it took.

        A damaged file is made again.
        """
        path = self.locate(name, depends)
        try:
            found = storage.read(path, _KIND, _VERSION)
        except (FileNotFoundError, storage.FileFormatError):
            found = self._make(name, path, make)
        self.seconds[name] = found[1]["seconds"]
        return found

    def _make(self, name: str, path: Path, make: Callable[[], StoredPart]) -> StoredPart:
        begin = perf_counter()
        arrays, record = make()
        seconds = perf_counter() - begin
        storage.write(path, _KIND, _VERSION, arrays, {**record, "seconds": seconds})
        self.made.append(name)
        self.say(f"{name}: {seconds:.1f} s")
        # Read back: a second run must see what the first one saw.
        return storage.read(path, _KIND, _VERSION)
