"""How long dense linear algebra takes, about, and that work of more than some seconds is told before it begins."""

from .progress import say
from .text import describe_duration

# Operations a second of two ordinary cores in factorizations.
SPEED = 6e10
# What the eigenvalues and eigenvectors of a matrix take, in operations for every cubed unknown.
EIGEN = 25
# Work that takes longer is told beforehand.
LONG_SECONDS = 10.0


def announce(work: str, seconds: float) -> None:
    """Say what longstep is about to do, where that takes long."""
    if seconds > LONG_SECONDS:
        say(f"longstep {work}, which takes {describe_duration(seconds)}")
