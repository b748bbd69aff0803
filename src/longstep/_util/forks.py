"""Which processes have computed with JAX: in one that is forked from them its threads are not there."""

import os
import sys

# This process, or one that it was forked from.
used_in: set[int] = set()


def _note() -> None:
    """Note before a fork that this process has computed with JAX, though perhaps not by way of longstep."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    if started is not None and started():
        used_in.add(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note)
