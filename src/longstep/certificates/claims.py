"""What a certificate claims: of a number of steps, and of the finish."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .document import read_number, read_optional, read_steps, read_whole


@dataclass(frozen=True)
class Claim:
    """After `iterations` iterations the metric is below `tolerance` on at least `success` of all instances.

    `violations` of the validation instances did not make it. A tolerance of ∞ claims nothing.
    """

    iterations: int
    tolerance: float
    success: float
    violations: int

    @staticmethod
    def of(fields: Mapping[str, object]) -> "Claim":
        """Return the claim of plain data, in which a tolerance of ∞ is None."""
        tolerance = read_optional(fields["tolerance"], read_number)
        return Claim(
            iterations=read_steps(fields["iterations"]),
            tolerance=math.inf if tolerance is None else tolerance,
            success=read_number(fields["success"], 0, 1),
            violations=read_whole(fields["violations"]),
        )


@dataclass(frozen=True)
class ExactClaim:
    """After `steps` steps and at most `changes` changes of the active set the point is exact on at least `success`.

    `violations` of the validation instances took more changes, or more steps. Changes of ∞ claim nothing.
    """

    steps: int
    changes: float
    success: float
    violations: int

    @staticmethod
    def of(fields: Mapping[str, object]) -> "ExactClaim":
        """Return the claim of plain data, in which changes of ∞ are None."""
        changes = read_optional(fields["changes"], read_whole)
        return ExactClaim(
            steps=read_steps(fields["steps"]),
            changes=math.inf if changes is None else changes,
            success=read_number(fields["success"], 0, 1),
            violations=read_whole(fields["violations"]),
        )
