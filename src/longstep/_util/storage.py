"""Files without pickle: arrays in safetensors, everything else as JSON in its header, hashed, written atomically."""

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ..errors import FileFormatError
from .hashing import content_hash

# An object of JSON as it was read: whoever takes something out of it knows, or checks, what that is.
JsonObject: TypeAlias = dict[str, Any]


def cache_folder(cache: "str | Path | bool", kind: str) -> Path | None:
    """Return where finished work of a kind is kept: True is the folder in LONGSTEP_CACHE, else the user's cache folder.

    That is ~/.cache/longstep (or where XDG_CACHE_HOME says) on Linux, ~/Library/Caches/longstep on macOS.
    """
    if cache is False:
        return None
    if cache is True:
        import platformdirs

        return Path(os.environ.get("LONGSTEP_CACHE") or platformdirs.user_cache_dir("longstep", False)) / kind
    return Path(cache) / kind


def keep(path: Path, write: Callable[[], None]) -> bool:
    """Write to a cache; where that is not possible (no permission, a full disk), say so once and go on without."""
    try:
        write()
    except OSError as error:
        _warn_once(f"{path.parent}: {error.strerror or error}")
        return False
    return True


_warned = False


def _warn_once(reason: str) -> None:
    global _warned  # noqa: PLW0603
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"finished work cannot be kept in the cache, so it will be done again next time ({reason}). Make room, or set "
        "LONGSTEP_CACHE to a folder that can be written",
        RuntimeWarning,
        stacklevel=4,
    )


def write(
    path: Path, kind: str, version: int, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, object]
) -> None:
    """Write one file, atomically."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    text = json.dumps(metadata, sort_keys=True)
    header = {
        "longstep": kind,
        "version": str(version),
        "metadata": text,
        "hash": _hash(kind, version, arrays, text),
    }
    write_bytes(path, _order_header(save(arrays, header)))


def _order_header(payload: bytes) -> bytes:
    """Return the same safetensors file with the entries of its header in order: safetensors writes metadata in any
    order."""
    size = int.from_bytes(payload[:8], "little")
    header = json.loads(payload[8 : 8 + size])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload[8 + size :]


def write_bytes(path: Path, payload: bytes) -> None:
    """Write a whole file; a reader sees the old one or the whole new one, never a part."""
    with replace_file(path) as file:
        file.write(payload)


@contextmanager
def replace_file(path: Path, folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that takes its place when the block ends; where that fails, nothing is left of it.

    Until then it is a hidden file beside its place, or in a folder of the same disk: a kill may leave it there.
    """
    if folder is None:
        folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are for their owner alone; this one is as any other.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path, kind: str, newest: int) -> tuple[dict[str, np.ndarray], JsonObject]:
    """Return the arrays and the metadata of a file of this kind, checked against its hash."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            if "longstep" not in header:
                raise FileFormatError(f"{path} is a safetensors file, but not one that longstep wrote")
            if header["longstep"] != kind:
                raise FileFormatError(f"{path} holds a longstep {header['longstep']}, not a {kind}")
            version = int(header["version"])
            if version > newest:
                raise FileFormatError(
                    f"{path} has format version {version}; this longstep reads up to {newest}. Upgrade longstep"
                )
            text = header["metadata"]
            stated = header["hash"]
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileFormatError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except (SafetensorError, AttributeError, KeyError, ValueError, TypeError, OSError, MemoryError) as error:
        raise FileFormatError(f"{path} is damaged or is not a longstep file ({error})") from error
    if _hash(kind, version, arrays, text) != stated:
        raise FileFormatError(f"{path} is damaged: its content does not match its hash")
    return arrays, read_json(text, str(path))


def read_json(text: str, source: str) -> JsonObject:
    """Return a JSON object from a file; anything else is refused."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{source} is damaged or is not a longstep file ({error})") from None
    if not isinstance(document, dict):
        raise FileFormatError(f"{source} is not a longstep file: it holds a {type(document).__name__}, not an object")
    return document


def _hash(kind: str, version: int, arrays: Mapping[str, np.ndarray], text: str) -> str:
    return content_hash(kind, version, text, dict(arrays))
