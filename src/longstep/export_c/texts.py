"""The files around the code: README, example, Makefile, CMakeLists."""

import numpy as np

from . import emit
from .code import Code
from .source import renamed

# The files besides the code itself.
SURROUNDINGS = ("main.c", "Makefile", "CMakeLists.txt", "README.md")


def surroundings(code: Code, solver_hash: str, version: str) -> dict[str, str]:
    """By name, with the prefix of the code."""
    return {
        "main.c": _example(code),
        "Makefile": emit.filled("Makefile", prefix=code.prefix),
        "CMakeLists.txt": emit.filled("CMakeLists.txt", prefix=code.prefix),
        "README.md": _readme(code, solver_hash, version),
    }


def _example(code: Code) -> str:
    values = example_parameter(code)
    array = emit.reals("parameter", values, code.precision).replace("static const real", "static longstep_real", 1)
    if "INFINITY" in array:
        array = "\n#include <math.h>\n" + array
    return renamed(emit.filled("main.c", prefix=code.prefix, example=array), code.prefix)


def example_parameter(code: Code) -> np.ndarray:
    """Some instance: the middle of what training saw, else the base values."""
    problem = code.problem
    if problem.mapped:
        if problem.seen is None:
            return np.zeros(problem.size)
        with np.errstate(invalid="ignore"):
            middle = (problem.seen.low + problem.seen.high) / 2
        return np.where(np.isfinite(middle), middle, 0.0)
    return problem.base


def _bytes(size: int) -> str:
    return f"{size:,} bytes" + (f" ({size / 1024:.1f} KiB)" if size >= 1024 else "")


def _readme(code: Code, solver_hash: str, version: str) -> str:
    problem = code.problem
    linear = code.linear
    prefix = code.prefix
    qp = problem.cones is None
    data = "q, l, u" if qp else "b, c"
    named = f"; `{prefix}.h` says where named ones begin." if problem.layout is not None else "."
    whole = f": the data {data} of the instance, one after the other. Bounds of 1e20 and more are infinite."
    least = (
        f"\nIn single precision tolerances have a floor: with `eps_abs` and `eps_rel` both below {code.least_eps:g}\n"
        f"the status is `{prefix.upper()}_BAD_TOLERANCE`.\n"
    )
    values = {
        "form": "½x'Px + q'x subject to l ≤ Ax ≤ u" if qp else "½x'Px + c'x subject to Ax + s = b, s ∈ K",
        "n": problem.n,
        "m": problem.constraints,
        "version": version,
        "precision": code.precision,
        "rom": _bytes(code.rom),
        "text": _bytes(code.text),
        "ram": _bytes(code.ram),
        "result": _bytes(code.result),
        "suffix": "f" if code.precision == "float" else "",
        "size": problem.size,
        "parameter": named if problem.mapped else whole,
        "least": least if code.least_eps else "",
        "horizon": problem.horizon,
        "distinct": len(problem.shift),
        "factor": _bytes(code.factor_bytes),
        "method": linear.words + (f", refined {linear.refinements} times" if linear.refinements else ""),
        "safeguard": _SAFEGUARDS[problem.safeguard],
        "hash": solver_hash[:16],
    }
    return emit.filled("README.md", prefix=prefix, PREFIX=prefix.upper(), **values)


_SAFEGUARDS = {
    None: "none, the schedule is trusted",
    "block": "where residuals did not fall over a block of steps, it is undone and a block of safe steps is taken",
    "step": "a step after which residuals grew tenfold is undone, and safe steps are taken from then on",
}
