"""The journal of a training: its parts, read where a checkpoint holds them, and what is told on the way."""

import contextlib
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeAlias

from .._util.progress import Bar
from .checkpoint import Checkpoint
from .learner import ReportLoss
from .settings import LearnedPart

# What hears of every new best loss: the part, the loss, the seconds so far.
Callback: TypeAlias = Callable[[dict[str, str | float]], None]


class Journal:
    """The parts of a training: read where a checkpoint holds them, learned and kept there where it does not."""

    def __init__(self, checkpoint: Checkpoint, callback: Callback | None, progress: bool):
        self.checkpoint = checkpoint
        self.callback = callback
        self.progress = progress
        self.begin = perf_counter()
        self.advance = lambda count, text="": None
        self.parts: list[LearnedPart] = []
        self.waiting = list(checkpoint.parts)
        self.seconds_before = sum(part.seconds for part in self.waiting)

    @contextlib.contextmanager
    def show_progress(self, parts: int) -> Iterator[None]:
        """Show progress over this number of parts."""
        with Bar("training", parts, self.progress) as self.advance:
            yield

    def say(self, text: str) -> None:
        """Show what is done now."""
        self.advance(0, f"training: {text}")

    def report(self, part: str, value: float) -> None:
        """Tell of a new best loss."""
        self.say(f"{part}, loss {value:.2f}")
        if self.callback is not None:
            self.callback({"part": part, "loss": value, "seconds": perf_counter() - self.begin})

    def learn_part(self, kind: str, text: str, learn: Callable[[ReportLoss], LearnedPart]) -> LearnedPart:
        """Return the next part, which is of this kind."""
        if self.waiting:
            part = self.waiting.pop(0)
            assert part.kind == kind, f"the checkpoint holds {part.kind} where {kind} was expected"
        else:
            part = learn(lambda loss: self.report(text, loss))
            self.checkpoint.append(part)
        self.parts.append(part)
        self.advance(1)
        return part
