"""Certificates as files: JSON with a hash of all it says, written atomically."""

import json
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from .._util import storage
from .._util.hashing import content_hash

_VERSION = 1


class CertificateError(ValueError):
    """A certificate that does not hold for what it was checked against, or cannot be made from what was given."""


def whole(value: Any) -> int:
    """A whole number, or a TypeError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def number(value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A real number in [low, high], or a TypeError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise TypeError(f"{value!r} is not a number" + ("" if low == -math.inf else f" in [{low:g}, {high:g}]"))
    return float(value)


def text(value: Any) -> str:
    """A string, or a TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def texts(value: Any) -> dict[str, str]:
    """Strings by name, or a TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not a table of texts")
    return {text(name): text(each) for name, each in value.items()}


class Document(ABC):
    """What is sealed with a hash of all it says; a subclass tells its kind and its fields as plain data."""

    kind: ClassVar[str]

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What it says, as plain data."""

    @classmethod
    @abstractmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """The inverse of `fields`."""

    def to_json(self) -> dict[str, Any]:
        """As plain data with kind, format version and hash."""
        fields = json.loads(json.dumps(self.fields(), allow_nan=False))
        return {"longstep": self.kind, "version": _VERSION, **fields, "hash": self._hash(fields)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """The inverse of `to_json`; refuses another kind, and what was changed since."""
        if not isinstance(document, dict):
            raise CertificateError(f"this is not a {cls.kind} of longstep, but a {type(document).__name__}")
        fields = dict(document)
        if (found := fields.pop("longstep", None)) != cls.kind:
            raise CertificateError(f"this is not a {cls.kind} of longstep" + (f", but a {found}" if found else ""))
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
        """Write JSON, atomically."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        storage.write_bytes(Path(path), (text + "\n").encode())

    @classmethod
    def load(cls, path: "str | Path") -> Self:
        """Read what `save` wrote."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {path}") from None
        except (ValueError, RecursionError) as error:
            raise CertificateError(f"{path} is not a {cls.kind} of longstep, or is damaged ({error})") from error
        return cls.from_json(document)

    @classmethod
    def _hash(cls, fields: dict[str, Any]) -> str:
        return content_hash(cls.kind, json.dumps(fields, sort_keys=True))
