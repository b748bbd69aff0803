"""Certificates as files: JSON with a hash of all it says, written atomically."""

import json
from pathlib import Path
from typing import Any

from .. import storage
from ..hashing import content_hash

_VERSION = 1


class CertificateError(ValueError):
    """A certificate that does not hold for what it was checked against, or cannot be made from what was given."""


def sealed(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Plain data with its kind, its format version and a hash."""
    fields = json.loads(json.dumps(fields, allow_nan=False))
    return {"longstep": kind, "version": _VERSION, **fields, "hash": _hash(kind, fields)}


def unsealed(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a sealed document; refuses another kind and what was changed since."""
    fields = dict(document)
    if (found := fields.pop("longstep", None)) != kind:
        raise CertificateError(f"this is not a {kind} of longstep" + (f", but a {found}" if found else ""))
    if (version := fields.pop("version", 0)) > _VERSION:
        raise CertificateError(f"the {kind} has format version {version}; upgrade longstep to read it")
    stated = fields.pop("hash", None)
    if _hash(kind, fields) != stated:
        raise CertificateError(f"the {kind} has been changed since it was made: its hash does not match")
    return fields


def write(path: "str | Path", document: dict[str, Any]) -> None:
    """A sealed document to a file."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    storage.write_bytes(Path(path), (text + "\n").encode())


def read(path: "str | Path", kind: str) -> dict[str, Any]:
    """The fields of the document in a file."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except ValueError as error:
        raise CertificateError(f"{path} is not a {kind} of longstep, or is damaged ({error})") from error
    if not isinstance(document, dict):
        raise CertificateError(f"{path} is not a {kind} of longstep")
    return unsealed(kind, document)


def _hash(kind: str, fields: dict[str, Any]) -> str:
    return content_hash(kind, json.dumps(fields, sort_keys=True))
