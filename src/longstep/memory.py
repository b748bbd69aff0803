"""How much memory there is, and a refusal, with the number, of what does not fit."""

import os
from pathlib import Path

import jax


def available() -> int:
    """Bytes that arrays may take: the accelerator's where there is one, else the machine's or its container's."""
    device = jax.devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()) and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits, default=2**63)


def require(need: float, purpose: str, advice: str, limit: float | None = None) -> None:
    """Refuse work that needs more than the limit, or than nine tenths of what there is."""
    most = 0.9 * available() if limit is None else limit
    if need > most:
        raise MemoryError(f"{purpose} needs {in_words(need)}, more than the {in_words(most)} there are. {advice}")


def in_words(size: float) -> str:
    """Bytes with a unit."""
    for unit, bytes_of in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_of:
            return f"{size / bytes_of:.3g} {unit}"
    return f"{size:.0f} bytes"
