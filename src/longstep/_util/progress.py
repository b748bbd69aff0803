"""What library code says on its way: lines by the logger `longstep`, and bars of long work, gone when it is done."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from .text import seconds_text

if TYPE_CHECKING:
    import rich.progress

# Handlers and levels are the user's. Where there are none, lines go to stderr.
LOGGER = logging.getLogger("longstep")


def say(text: str) -> None:
    """Say one line: to the logger `longstep` at level INFO, or on stderr where no handler is set up for it."""
    if LOGGER.hasHandlers():
        LOGGER.info(text)
    else:
        print(text, file=sys.stderr, flush=True)


class Phases:
    """Phases of long work, each told when it begins and with its time when it ends, where `shown`."""

    def __init__(self, shown: bool):
        self.shown = shown
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str, what: str) -> Iterator[None]:
        """Say that a phase begins, and afterwards how long it took; keep its time under its name."""
        if self.shown:
            say(f"{name}: {what} …")
        begin = perf_counter()
        yield
        self.seconds[name] = perf_counter() - begin
        if self.shown:
            say(f"{name}: done in {seconds_text(self.seconds[name])}")


class Bar:
    """A bar with a count and the time left; calling what `with` gives advances it and may say something new.

    A total of None is not known: the bar counts, and tells no end.
    """

    def __init__(self, title: str, total: int | None, shown: bool):
        self.progress: rich.progress.Progress | None = None
        # In a log file a bar would be nothing but blank lines.
        if shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.progress.add_task(title, total=total)

    def __enter__(self) -> Callable[..., None]:
        if self.progress is not None:
            self.progress.start()
        return self._advance

    def _advance(self, count: int = 1, text: str | None = None) -> None:
        if self.progress is not None:
            self.progress.update(self.task, advance=count, description=text)

    def __exit__(self, *exception: object) -> None:
        if self.progress is not None:
            self.progress.stop()
