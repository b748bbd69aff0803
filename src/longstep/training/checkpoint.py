"""What is kept on disk of a training: its finished parts, and in the end its result. Written atomically."""

from pathlib import Path
from typing import ClassVar

from .._util import storage
from .._util.storage import JsonObject
from .settings import LearnedPart

_VERSION = 1
_NUMBERS = ("loss", "loss_before", "evaluations", "seconds")


class Checkpoint:
    """The finished parts of a training in one file, read when it is there and written again after every part."""

    kind: ClassVar[str] = "training"

    def __init__(self, path: Path | None):
        self.path = path
        self.parts = list[LearnedPart]()
        self.result: JsonObject | None = None
        if path is None:
            return
        try:
            arrays, metadata = storage.read(path, self.kind, _VERSION)
        except (FileNotFoundError, storage.FileFormatError):
            return  # a damaged file is as good as none: the training is done again
        self.result = metadata["result"]
        for number, part in enumerate(metadata["parts"]):
            theta = {name: arrays[f"{number}.{name}"] for name in part["names"]}
            self.parts.append(LearnedPart(part["kind"], theta, **{key: part[key] for key in _NUMBERS}))

    def append(self, part: LearnedPart) -> None:
        """Keep one more finished part."""
        self.parts.append(part)
        self._write()

    def finish(self, result: JsonObject) -> None:
        """Keep the result."""
        self.result = result
        self._write()

    def _write(self) -> None:
        if self.path is None:
            return
        arrays = {f"{i}.{name}": value for i, part in enumerate(self.parts) for name, value in part.theta.items()}
        parts = [
            {"kind": p.kind, "names": list(p.theta), **{key: getattr(p, key) for key in _NUMBERS}} for p in self.parts
        ]
        path = self.path
        document = {"parts": parts, "result": self.result}
        storage.keep(path, lambda: storage.write(path, self.kind, _VERSION, arrays, document))
