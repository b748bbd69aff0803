"""Numbers of certificates as text: rounded so that they promise less, never more."""

import math
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal


def shortened(value: float, digits: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """A positive number with so many digits.

    Twelve digits first: neither 1e-3 nor a power of ten out of `logspace` is meant to be a little more.
    """
    return Decimal(f"{value:.12e}").normalize(Context(prec=digits, rounding=rounding))


def above(value: float) -> str:
    """Three digits, rounded up."""
    short = shortened(value, 3, ROUND_CEILING)
    if not Decimal("1e-3") <= short < Decimal("1e6"):
        mantissa, exponent = f"{short.normalize():e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{short:f}"


def percent(fraction: float) -> str:
    """A fraction in tenths of a per cent, rounded down: 99.96% is not all."""
    return f"{math.floor(fraction * 1000 + 1e-9) / 10:g}%"
