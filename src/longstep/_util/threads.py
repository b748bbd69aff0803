"""How many threads linear algebra may use."""

from contextlib import AbstractContextManager


def one_blas_thread() -> AbstractContextManager[object]:
    """Let LAPACK have one thread: several and those of XLA make factorizations many times slower."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "blas")
