"""Progress bars of long work, on stderr, gone when it is done."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress


def say(text: str) -> None:
    """One line on stderr, before work that takes long."""
    print(text, file=sys.stderr, flush=True)


class Bar:
    """A bar with a count and the time left; calling what `with` gives advances it and may say something new."""

    def __init__(self, title: str, total: int, shown: bool):
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
