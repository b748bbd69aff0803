"""What a stream does beside solving: read the next part and write the last one, each on a thread of its own."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

Item = TypeVar("Item")


def read_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, each while the next is made."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, "longstep-read") as pool:
        coming = pool.submit(_take, iterator)
        while found := coming.result():
            coming = pool.submit(_take, iterator)
            yield found[0]


def _take(iterator: Iterator[Item]) -> tuple[Item] | None:
    """Return the next item alone in a tuple; None at the end."""
    for item in iterator:
        return (item,)
    return None


class Behind:
    """Does one thing at a time on another thread, no more than one behind; errors come out at the next chance."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "longstep-write")
        self._last: Future[None] | None = None

    def submit(self, act: Callable[[], None]) -> None:
        """Wait for what was submitted before, and begin with this."""
        self._wait()
        self._last = self._pool.submit(act)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Wait for the end; where something else has failed already, that is the error to see."""
        self._pool.shutdown()
        if kind is None:
            self._wait()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
