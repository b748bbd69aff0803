"""Products of cones as C: where each kind's rows begin, the sizes of its cones, and the projections."""

import math

from ..cones.base import Cone
from ..cones.product import Cones
from . import emit


def write_cones(cones: Cones, precision: str, features: dict[str, bool]) -> list[str]:
    """Return the projections onto cones and what they are of, in parts."""
    parts = [emit.defines(_count_cones(cones)), *write_shared(cones, precision)]
    for cone in cones.parts:
        # What has no sizes of its own is a loop of project.c.
        if cone.joint and cone.c_part is not None:
            parts += [_write_sizes(cone, precision), emit.read_part(cone.c_part)]
    return [*parts, emit.select_features(emit.read_part("project.c"), **features)]


def _count_cones(cones: Cones) -> dict[str, int]:
    """Return how many cones of each kind there are, rows of those whose rows stand alone, and where each begins."""
    counts = {}
    first = 0
    for cone in cones.kinds:
        name = cone.name.upper()
        if cone.joint:
            counts[f"{name}S"] = len(cone.each)
            counts[f"FIRST_{name}"] = first
        else:
            counts[name] = cone.rows
        first += cone.rows
    return counts


def _write_sizes(cone: Cone, precision: str) -> str:
    """Return the table of the sizes of cones, where they have any."""
    if isinstance(cone.sizes, int):
        return ""
    if all(isinstance(size, int) for size in cone.sizes):
        return emit.integers("int32_t", cone.name, cone.sizes)
    return emit.reals(cone.name, cone.sizes, precision)


def write_shared(cones: Cones, precision: str) -> list[str]:
    """Return the code that the projections of several kinds of cones share, each once, behind beyond which numbers
    exponentials overflow."""
    real = emit.REALS[precision]
    numbers = {"LOG_MAX": 0.99 * math.log(real.most), "FAR": real.most**0.3}
    shared = dict.fromkeys(cone.c_shared for cone in cones.parts if cone.c_shared is not None)
    return [emit.defines(emit.numbers(numbers, precision)) + "\n" + emit.read_part(part) for part in shared]
