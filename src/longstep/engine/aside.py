"""Work on another core before it is asked for: most of what learning takes is compiling, which one core does."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax

from .._util.precision import is_wide
from .batching import workers

ResultT = TypeVar("ResultT")


def begin_aside(work: Callable[[], ResultT]) -> Callable[[], ResultT]:
    """Begin work on another core, and return what waits for it and gives its result, or raises what it raised.

    With one core, or where batches run on other devices, it is done when its result is asked for. One piece of work
    runs at a time.
    """
    return _begin("aside", work)


def run_both(work: Callable[[], ResultT], other: Callable[[], ResultT]) -> tuple[ResultT, ResultT]:
    """Return what both pieces of work give, the other one done on another core."""
    ready = _begin("both", other)
    return work(), ready()


def _begin(name: str, work: Callable[[], ResultT]) -> Callable[[], ResultT]:
    if workers() == 1:
        return functools.cache(work)
    # The switch belongs to the thread.
    wide = is_wide()

    def act() -> ResultT:
        with jax.enable_x64(wide):
            return work()

    return _open_thread(name).submit(act).result


@functools.cache
def _open_thread(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=f"longstep-{name}")
