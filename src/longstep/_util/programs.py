"""Room for compiled programs."""

from pathlib import Path

import jax

_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
# The part of the maps that may be taken before a piece of work that adds many.
_SHARE = 0.5


def make_room() -> None:
    """Forget all compiled programs where they have taken half of what a process may have.

    On Linux every program takes some hundred memory maps, of which there are 65,530 by default; XLA ends the process
    when there are no more. To learn a family takes some 7,000.
    """
    try:
        taken = _MAPS.read_bytes().count(b"\n")
        most = int(_LIMIT.read_text())
    except (OSError, ValueError):
        return
    if taken > _SHARE * most:
        jax.clear_caches()
