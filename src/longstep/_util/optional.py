"""Values that may be absent."""

from collections.abc import Callable
from typing import TypeVar

ValueT = TypeVar("ValueT")
MadeT = TypeVar("MadeT")


def map_given(function: Callable[[ValueT], MadeT], value: ValueT | None) -> MadeT | None:
    """Return function(value), and None where there is no value.

    >>> map_given(float, 1), map_given(float, None)
    (1.0, None)
    """
    if value is None:
        return None
    return function(value)
