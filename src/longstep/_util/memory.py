"""How much memory there is, and a refusal, with the number, of what does not fit."""

import os
import re
from pathlib import Path

import jax

from .text import describe_bytes


def measure_available() -> int:
    """Return the bytes that are free now: those of the accelerator where there is one, else of the machine or its
    container."""
    device = jax.devices()[0]
    if device.platform != "cpu" and (stats := device.memory_stats()) and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return min([*_measure_free(), *_measure_container()], default=2**63)


def _measure_free() -> list[int]:
    """Return what the kernel could give without swapping; without that figure, all the memory there is."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return [1024 * int(found.group(1))]
    return [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []


def _measure_container() -> list[int]:
    """Return what a container's limit leaves; its caches, which the kernel would drop, are counted as used."""
    left = []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            numbers = [int((Path("/sys/fs/cgroup") / name).read_text()) for name in (limit, used)]
        except (OSError, ValueError):
            continue
        left.append(max(numbers[0] - numbers[1], 0))
    return left


def measure_usable() -> float:
    """Return the bytes that work may take: nine tenths of what is free."""
    return 0.9 * measure_available()


def require(need: float, purpose: str, advice: str, limit: float | None = None) -> None:
    """Refuse work that needs more than the limit, or than what work may take."""
    most = limit
    if most is None:
        most = measure_usable()
    if need > most:
        raise MemoryError(
            f"{purpose} needs {describe_bytes(need)}, more than the {describe_bytes(most)} that are free. {advice}"
        )
