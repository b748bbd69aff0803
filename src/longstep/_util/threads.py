"""How many threads linear algebra may use."""

from contextlib import AbstractContextManager


def one_blas_thread() -> AbstractContextManager[object]:
    """Threads of LAPACK and of XLA get in each other's way: with several, factorizations can be many times slower."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")
