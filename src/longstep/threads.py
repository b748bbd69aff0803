"""How many threads linear algebra may use."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def one_blas_thread() -> AbstractContextManager[Any]:
    """Threads of LAPACK and of XLA get in each other's way: with several, factorizations can be many times slower."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # slower, not wrong
        return nullcontext()
    return threadpool_limits(1, "blas")
