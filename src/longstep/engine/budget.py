"""How long a solve may go on: a number of steps, seconds, and tolerances, checked alike for JAX and for C."""

import math
import time

from ..linalg.real import real_number

MOST_STEPS = 1_000_000_000


class Budget:
    """How many steps: up to `max_iter`, or exactly `steps`."""

    __slots__ = ("fixed", "max_iter")

    def __init__(self, max_iter: int, steps: int | None, time_limit: float | None):
        if steps is not None and time_limit is not None:
            raise ValueError("steps=… takes exactly that many steps and cannot have a time_limit; use max_iter=…")
        self.fixed = steps is not None
        if steps is not None:
            max_iter = steps
        # Whoever solves one instance in microseconds gives an int.
        self.max_iter = max_iter if type(max_iter) is int else int(real_number("the number of steps", max_iter))
        if not 0 <= self.max_iter <= MOST_STEPS:
            raise ValueError(f"the number of steps must not be negative or over {MOST_STEPS:,}, got {self.max_iter}")


class Clock:
    """Seconds since it was made; the limit counts from `start`."""

    __slots__ = ("begin", "deadline", "limit")

    def __init__(self, limit: float | None):
        if limit is not None and not real_number("time_limit", limit) > 0:
            raise ValueError(f"time_limit must be positive seconds or None, got {limit}")
        self.begin = time.perf_counter()
        self.limit = limit
        self.deadline = math.inf

    def start(self) -> None:
        """Let the limit count from now, unless it already does."""
        if self.limit is not None and self.deadline == math.inf:
            self.deadline = time.perf_counter() + self.limit

    def measure_elapsed(self) -> float:
        """Return the seconds since the clock was made."""
        return time.perf_counter() - self.begin

    def has_passed(self) -> bool:
        """Return whether the limit has passed."""
        return time.perf_counter() >= self.deadline


def check_tolerances(eps_abs: float, eps_rel: float, eps_infeasible: float, check_every: int) -> None:
    """Refuse what no solve can be held to."""
    for name, value in (("eps_abs", eps_abs), ("eps_rel", eps_rel), ("eps_infeasible", eps_infeasible)):
        real_number(name, value)
    real_number("check_every", check_every)
    if not (0 <= eps_abs < math.inf and 0 <= eps_rel < math.inf):
        raise ValueError(f"eps_abs and eps_rel must be finite and not negative, got {eps_abs} and {eps_rel}")
    if not 1 <= check_every <= MOST_STEPS:
        raise ValueError(f"check_every must be at least 1, got {check_every}")
    if not 0 <= eps_infeasible < 1:
        raise ValueError(f"eps_infeasible must lie in [0, 1), got {eps_infeasible}")
