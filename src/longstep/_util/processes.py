"""What happens to JAX in a forked process: its threads are not there, and whatever waits for them waits for ever."""

import os

from numpy.typing import DTypeLike

from .forks import used_in
from .precision import require_float64


def require_jax(dtype: DTypeLike) -> None:
    """Note that this process computes with JAX in this precision.

    Refused in a child that was forked from one that did, and in float64 where JAX would round it to float32.
    """
    require_float64(dtype)
    require_threads()


def require_threads() -> None:
    """Note that this process computes with JAX; refused in a child that was forked from one that did."""
    own = os.getpid()
    if own in used_in:
        return
    if used_in:
        raise RuntimeError(
            "this process was forked from one that had used JAX, whose threads a fork leaves behind: it "
            "would hang. Start processes with multiprocessing.get_context('spawn') or 'forkserver' and load the solver "
            "in the child, or call solver.compile() before the fork: its C code works here"
        )
    used_in.add(own)
