"""`longstep doctor`: what this machine has, for questions and reports of bugs."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .command import Cache, Json, Quiet, cache_option, library
from .output import Output

_PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "cvxpy", "osqp", "scs", "matplotlib")
_COMPILERS = ("cc", "gcc", "clang", "arm-none-eabi-gcc")


def doctor(cache: Cache = None, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show versions, devices, C compilers, memory and the cache: what to send with a question."""
    with Output(as_json, quiet) as output:
        ls = library(cache)
        from .._util.memory import available
        from .._util.storage import cache_folder

        folder = cache_folder(cache_option(cache), "")
        assert folder is not None  # as it is only for False
        found = {
            "versions": {"python": platform.python_version(), "longstep": ls.__version__}
            | {name: _version(name) for name in _PACKAGES},
            "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
            "devices": _devices(),
            "float64": _float64_works(),
            "compilers": {name: _compiler(name) for name in _COMPILERS},
            "cores": os.cpu_count(),
            "memory": available(),
            "cache": {"folder": folder, "bytes": _bytes(folder)},
        }
        output.document(found)
        output.show(_text(found))


def _text(found: dict[str, Any]) -> str:
    from .._util.text import in_words

    works = "works" if found["float64"] else "does not work: longstep needs it, or families with dtype='float32'"
    cache = found["cache"]
    lines = {
        **{name: version or "not installed" for name, version in found["versions"].items()},
        "system": found["system"],
        "devices": ", ".join(found["devices"]),
        "float64": works,
        **{name: version or "not found" for name, version in found["compilers"].items()},
        "cores": found["cores"],
        "memory": in_words(found["memory"]),
        "cache": f"{cache['folder']}, {in_words(cache['bytes'])}",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import jax

    return [f"{device.platform} {device.id} ({device.device_kind})" for device in jax.devices()]


def _float64_works() -> bool:
    """Whether the default device keeps more digits than 32 bits have."""
    import jax.numpy as jnp

    return bool(jnp.float64(1.0) + jnp.float64(1e-12) > 1.0)


def _compiler(name: str) -> str | None:
    """The first line of what it says of its version; None where it is not found."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    return said.splitlines()[0] if said.strip() else path


def _bytes(folder: Path) -> int:
    """The size of all files in a folder; 0 where there is none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # removed meanwhile
            continue
    return total
