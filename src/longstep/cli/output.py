"""Where a command speaks: results on stdout, everything else on stderr, JSON instead of both words and tables."""

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from typing import Self

from .._util.plain import make_plain


class Output:
    """The two streams of a command, for as long as it runs.

    With `as_json` all that is printed, by whomever (a user's model.py included), goes to stderr, and `document` alone
    to stdout. `quiet` leaves out messages and progress.
    """

    def __init__(self, as_json: bool, quiet: bool):
        self.as_json = as_json
        self.quiet = quiet
        self._stdout = sys.stdout
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stdout = sys.stdout
        if self.as_json:
            self._stack.enter_context(redirect_stdout(sys.stderr))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def progress(self) -> bool:
        """Whether the library shows bars and forecasts, on stderr; bars only where that is a terminal."""
        return not self.quiet

    def say(self, text: object = "") -> None:
        """Print a message on the way, or advice."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def show(self, thing: object) -> None:
        """Print a result for people: text, or a table of `longstep.report`."""
        if self.as_json:
            return
        from rich.console import Console

        console = Console(file=self._stdout)
        if console.is_terminal and hasattr(thing, "__rich_console__"):
            console.print(thing)
        else:
            print(thing, file=self._stdout)

    def document(self, fields: Mapping[str, object]) -> None:
        """Print the result for machines."""
        if self.as_json:
            print(json.dumps(make_plain(fields), indent=1, ensure_ascii=False, allow_nan=False), file=self._stdout)
