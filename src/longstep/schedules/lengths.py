"""How a horizon is cut into the blocks of steps that are learned together."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np


def block_lengths(horizon: int, block: int | Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the blocks: all alike, or those given one after the other, the last of which repeats.

    >>> block_lengths(50, 20), block_lengths(50, (10, 20))
    ((20, 20, 10), (10, 20, 20))
    """
    given = np.atleast_1d(np.asarray(block, object))
    if len(given) == 0 or not all(isinstance(k, Integral) and int(k) >= 1 for k in given):
        raise ValueError(
            f"block must be a whole number of at least 1, or several for blocks of different lengths, got {block!r}"
        )
    lengths = []
    left = horizon
    while left > 0:
        lengths.append(min(int(given[min(len(lengths), len(given) - 1)]), left))
        left -= lengths[-1]
    return tuple(lengths)
