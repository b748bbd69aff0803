"""Certificates as files: JSON with a hash of all it says, written atomically."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from .._util import storage
from .._util.hashing import content_hash
from .._util.plain import Json
from ..engine.budget import MOST_STEPS
from ..errors import CertificateError

_VERSION = 1
ReadT = TypeVar("ReadT")


def read_optional(value: object, read: Callable[[object], ReadT]) -> ReadT | None:
    """Return what `read` makes of a value, None of None."""
    if value is None:
        return None
    return read(value)


def read_list(value: object) -> Sequence[object]:
    """Return a list, or raise a TypeError."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{value!r} is not a list")
    return value


def read_object(value: object) -> Mapping[str, object]:
    """Return values by name, or raise a TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a table")
    return value


def read_whole(value: object, low: int = -(2**63), high: int = 2**63) -> int:
    """Return a whole number in [low, high], or raise a TypeError."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise TypeError(f"{value!r} is not a whole number of a size that it may have")
    return value


def read_steps(value: object) -> int:
    """Return a number of steps that can be taken, or raise a TypeError."""
    return read_whole(value, 0, MOST_STEPS)


def read_number(value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a real number in [low, high], or raise a TypeError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        if low == -math.inf:
            raise TypeError(f"{value!r} is not a number")
        raise TypeError(f"{value!r} is not a number in [{low:g}, {high:g}]")
    return float(value)


def read_text(value: object) -> str:
    """Return a string, or raise a TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def read_texts(value: object) -> dict[str, str]:
    """Return strings by name, or raise a TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a table of texts")
    return {read_text(name): read_text(each) for name, each in value.items()}


@contextmanager
def refuse_faults(what: str) -> Iterator[None]:
    """Turn whatever cannot be computed of what a document says into a refusal of the document."""
    try:
        yield
    except CertificateError:
        raise
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise CertificateError(f"what {what} says cannot be computed again: {error}") from error


class Document(ABC):
    """What is sealed with a hash of all it says; a subclass tells its kind and its fields as plain data."""

    kind: ClassVar[str]

    @abstractmethod
    def fields(self) -> dict[str, Json]:
        """Return what it says, as plain data."""

    @classmethod
    @abstractmethod
    def of(cls, fields: Mapping[str, object]) -> Self:
        """Return the document of these fields: the inverse of `fields`."""

    def to_json(self) -> dict[str, Json]:
        """Return plain data with kind, format version and hash."""
        fields = json.loads(json.dumps(self.fields(), allow_nan=False))
        return {"longstep": self.kind, "version": _VERSION, **fields, "hash": self._hash(fields)}

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Return the document of what `to_json` gave; refuse another kind, and what was changed since."""
        if not isinstance(document, dict):
            raise CertificateError(f"this is not a {cls.kind} of longstep, but a {type(document).__name__}")
        fields = dict(document)
        if (found := fields.pop("longstep", None)) != cls.kind:
            other = ""
            if found:
                other = f", but a {found}"
            raise CertificateError(f"this is not a {cls.kind} of longstep{other}")
        version = fields.pop("version", 0)
        if not isinstance(version, int) or version > _VERSION:
            raise CertificateError(f"the {cls.kind} has format version {version}; upgrade longstep to read it")
        stated = fields.pop("hash", None)
        try:
            if cls._hash(fields) != stated:
                raise CertificateError(f"the {cls.kind} has been changed since it was made: its hash does not match")
            return cls.of(fields)
        except CertificateError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise CertificateError(
                f"the {cls.kind} does not say what a {cls.kind} says ({type(error).__name__}: {error})"
            ) from None

    def save(self, path: "str | Path") -> None:
        """Write it as JSON, atomically."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        storage.write_bytes(Path(path), (text + "\n").encode())

    @classmethod
    def load(cls, path: "str | Path") -> Self:
        """Return the document that `save` wrote."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {path}") from None
        except (ValueError, RecursionError) as error:
            raise CertificateError(f"{path} is not a {cls.kind} of longstep, or is damaged ({error})") from error
        return cls.from_json(document)

    @classmethod
    def _hash(cls, fields: Mapping[str, object]) -> str:
        return content_hash(cls.kind, json.dumps(fields, sort_keys=True))
