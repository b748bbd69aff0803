"""The name that was probably meant by one that is not there."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'horizon'?` for a name like a known one, and nothing for others.

    >>> suggest("horizn", ["block", "horizon"]), suggest("colour", ["block"])
    ("; did you mean 'horizon'?", '')
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    if not close:
        return ""
    return f"; did you mean {close[0]!r}?"
