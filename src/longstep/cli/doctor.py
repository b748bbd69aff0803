"""`longstep doctor`: what this machine has, for questions and reports of bugs."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from .command import AsJson, Cache, Quiet, choose_cache, load_library
from .output import Output

_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "cvxpy", "osqp", "scs", "matplotlib")
_COMPILERS = ("cc", "gcc", "clang", "arm-none-eabi-gcc")


class CacheFindings(TypedDict):
    """Where finished work is kept, and how much there is."""

    folder: Path
    bytes: int


class Findings(TypedDict):
    """What this machine has; None for what is not found."""

    versions: dict[str, str | None]
    system: str
    devices: list[str]
    float64: bool
    compilers: dict[str, str | None]
    cores: int | None
    memory: float
    cache: CacheFindings


def doctor(cache: Cache = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Show versions, devices, C compilers, memory and the cache: what to send with a question."""
    with Output(as_json, quiet) as output:
        ls = load_library(cache)
        from .._util.memory import measure_available
        from .._util.storage import cache_folder

        folder = cache_folder(choose_cache(cache), "")
        assert folder is not None  # as it is only for False
        found: Findings = {
            "versions": {"python": platform.python_version(), "longstep": ls.__version__}
            | {name: _find_version(name) for name in _PACKAGES},
            "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
            "devices": _list_devices(),
            "float64": _check_float64(),
            "compilers": {name: _describe_compiler(name) for name in _COMPILERS},
            "cores": os.cpu_count(),
            "memory": measure_available(),
            "cache": {"folder": folder, "bytes": _count_bytes(folder)},
        }
        output.document(found)
        output.show(_describe(found))


def _describe(found: Findings) -> str:
    """Return a line for everything that was found."""
    from .._util.table import align_lines
    from .._util.text import describe_bytes

    float64 = "works"
    if not found["float64"]:
        float64 = "does not work: longstep needs it, or families with dtype='float32'"
    cache = found["cache"]
    lines = {
        **{name: version or "not installed" for name, version in found["versions"].items()},
        "system": found["system"],
        "devices": ", ".join(found["devices"]),
        "float64": float64,
        **{name: version or "not found" for name, version in found["compilers"].items()},
        "cores": found["cores"],
        "memory": describe_bytes(found["memory"]),
        "cache": f"{cache['folder']}, {describe_bytes(cache['bytes'])}",
    }
    return align_lines(lines)


def _find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _list_devices() -> list[str]:
    import jax

    return [f"{device.platform} {device.id} ({device.device_kind})" for device in jax.devices()]


def _check_float64() -> bool:
    """Tell whether the default device keeps more digits than 32 bits have."""
    import jax.numpy as jnp

    return bool(jnp.float64(1.0) + jnp.float64(1e-12) > 1.0)


def _describe_compiler(name: str) -> str | None:
    """Return the first line of what a compiler says of its version; None where it is not found."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    if not said.strip():
        return path
    return said.splitlines()[0]


def _count_bytes(folder: Path) -> int:
    """Return the size of all files in a folder; 0 where there is none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except OSError:  # removed meanwhile
            continue
    return total
