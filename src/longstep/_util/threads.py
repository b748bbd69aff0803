"""How many threads linear algebra may use."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class _Limit:
    """One thread for BLAS while anyone wants that: several threads may ask at once, and the last one gives the others
    back."""

    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        self.held: AbstractContextManager[object] | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep BLAS to one thread."""
        from threadpoolctl import threadpool_limits

        with self.lock:
            self.count += 1
            if self.held is None:
                # It limits when it is made.
                self.held = threadpool_limits(1, "blas")
        try:
            yield
        finally:
            with self.lock:
                self.count -= 1
                if self.count == 0 and self.held is not None:
                    self.held.__exit__(None, None, None)
                    self.held = None


_LIMIT = _Limit()


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread: those of LAPACK and of XLA, or of several calls of LAPACK side by side, get in each
    other's way, and factorizations are then many times slower."""
    return _LIMIT.hold()
