"""Numbers as people read them: errors, bounds, percentages, times and bytes."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal


def shorten_number(value: float, digits: int, rounding: str = ROUND_HALF_EVEN) -> Decimal:
    """Return a positive number with `digits` digits.

    Twelve digits first: neither 1e-3 nor a power of ten out of `logspace` is meant to be a little more.
    """
    return Decimal(f"{value:.12e}").normalize(Context(prec=digits, rounding=rounding))


def round_up(value: float) -> str:
    """Return three digits, rounded up: a certificate promises less than it could, never more.

    >>> round_up(0.01234), round_up(1.2341e-7)
    ('0.0124', '1.24e-7')
    """
    short = shorten_number(value, 3, ROUND_CEILING)
    if not Decimal("1e-3") <= short < Decimal("1e6"):
        return _trim_exponent(f"{short.normalize():e}")
    return f"{short:f}"


def percent(fraction: float) -> str:
    """Return a fraction in tenths of a per cent, rounded down: 99.96% is not all."""
    return f"{math.floor(fraction * 1000 + 1e-9) / 10:g}%"


def error_text(value: float, digits: int = 2, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return 1.2e-3, always with `digits` digits; zero as 0."""
    if not math.isfinite(value) or value == 0:
        return "∞" if value == math.inf else f"{value:g}"
    return _trim_exponent(f"{shorten_number(value, digits, rounding):.{digits - 1}e}")


def tolerance_text(value: float) -> str:
    """Return 1e-3, 2.5e-3: with as few digits as it has, up to three."""
    mantissa, exponent = error_text(value, 3).split("e")
    return f"{float(mantissa):g}e{exponent}"


def bound_above(value: float) -> str:
    """Return three digits, rounded up, as `error_text` writes them."""
    return error_text(value, 3, ROUND_CEILING)


def bound_below(value: float) -> str:
    """Return three digits, rounded down, as `error_text` writes them."""
    return error_text(value, 3, ROUND_FLOOR)


def seconds_text(value: float | None) -> str:
    """Return a time with three digits and its unit; nothing where there is none.

    >>> seconds_text(0.0123456), seconds_text(123456e-9), seconds_text(None)
    ('12.3 ms', '123 µs', '')
    """
    if value is None:
        return ""
    value = float(f"{value:.3g}")
    unit, name = next((u, n) for u, n in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (0, "ns")) if value >= u)
    value = value / (unit or 1e-9)
    return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


def describe_duration(value: float) -> str:
    """Return in words about how long `value` seconds are."""
    if value < 90:
        return f"about {value:.0f} s"
    if value < 5400:
        return f"about {value / 60:.0f} minutes"
    return f"about {value / 3600:.0f} hours"


def describe_bytes(count: float) -> str:
    """Return bytes with a unit."""
    for unit, bytes_of in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bytes_of:
            return f"{count / bytes_of:.3g} {unit}"
    return f"{count:.0f} bytes"


def state_bytes(count: int) -> str:
    """Return bytes to the last one and, from a KiB on, in KiB behind: 2,048 bytes (2.0 KiB)."""
    if count < 1024:
        return f"{count:,} bytes"
    return f"{count:,} bytes ({count / 1024:.1f} KiB)"


def state_mebibytes(count: float) -> str:
    """Return bytes in whole MiB, to be compared with a limit: 300 MiB."""
    return f"{count / 2**20:.0f} MiB"


def value_text(value: float | None) -> str:
    """Return a number with up to four digits, `unknown` for None."""
    if value is None:
        return "unknown"
    return f"{value:.4g}"


def reached_text(pair: tuple[int | None, int | None]) -> str:
    """Return the iteration that first meets a tolerance and, where it is another one, that from which on it is met."""
    first, stays = ("–" if k is None else str(k) for k in pair)
    return first if first == stays else f"{first} ({stays})"


def count_text(count: float) -> str:
    """Return a whole number with commas between thousands: 20,000."""
    return f"{count:,.0f}"


def ratio_text(pair: tuple[int, int]) -> str:
    """Return 3/200."""
    return f"{pair[0]}/{pair[1]}"


def _trim_exponent(text: str) -> str:
    """Return the number without a plus and zeros in the exponent."""
    mantissa, exponent = text.split("e")
    return f"{mantissa}e{int(exponent)}"
