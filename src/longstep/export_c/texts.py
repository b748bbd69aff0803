"""The files around the code: README, example, Makefile, CMakeLists."""

import numpy as np

from .._util.text import state_bytes
from . import emit
from .code import Code
from .linear import Linear
from .problem import ExportedProblem
from .source import rename_prefix

# The files besides the code itself.
SURROUNDINGS = ("main.c", "Makefile", "CMakeLists.txt", "README.md")


def write_surroundings(code: Code, solver_hash: str, version: str) -> dict[str, str]:
    """Return the files by name, with the prefix of the code."""
    return {
        "main.c": _write_example(code),
        "Makefile": emit.fill_part("Makefile", prefix=code.prefix),
        "CMakeLists.txt": emit.fill_part("CMakeLists.txt", prefix=code.prefix),
        "README.md": _write_readme(code, solver_hash, version),
    }


def _write_example(code: Code) -> str:
    values = _choose_example(code.problem)
    array = emit.reals("parameter", values, code.precision).replace("static const real", "static longstep_real", 1)
    if "INFINITY" in array:
        array = "\n#include <math.h>\n" + array
    return rename_prefix(emit.fill_part("main.c", prefix=code.prefix, example=array), code.prefix)


def _choose_example(problem: ExportedProblem) -> np.ndarray:
    """Return the parameter of some instance: the middle of what training saw, else the base values."""
    if not problem.mapped:
        return problem.base
    if problem.seen is None:
        return np.zeros(problem.size)
    with np.errstate(invalid="ignore"):
        middle = (problem.seen.low + problem.seen.high) / 2
    return np.where(np.isfinite(middle), middle, 0.0)


def _describe_parameter(code: Code) -> str:
    """Return what follows "entries" in the sentence about the parameter."""
    if not code.problem.mapped:
        data = ", ".join(code.problem.data)
        return f": the data {data} of the instance, one after the other. Bounds of 1e20 and more are infinite."
    if code.problem.layout is None:
        return "."
    return f"; `{code.prefix}.h` says where named ones begin."


def _describe_tolerances(code: Code) -> str:
    """Return a paragraph on the least tolerances, empty where there are none."""
    if not code.least_eps:
        return ""
    return (
        f"\nIn single precision tolerances have a floor: with `eps_abs` and `eps_rel` both below {code.least_eps:g}\n"
        f"the status is `{code.prefix.upper()}_BAD_TOLERANCE`.\n"
    )


def _describe_method(linear: Linear) -> str:
    if not linear.refinements:
        return linear.words
    return f"{linear.words}, refined {linear.refinements} times"


def _write_readme(code: Code, solver_hash: str, version: str) -> str:
    problem = code.problem
    form = "½x'Px + q'x subject to l ≤ Ax ≤ u"
    if problem.cones is not None:
        form = "½x'Px + c'x subject to Ax + s = b, s ∈ K"
    safeguard = "none, the schedule is trusted"
    if problem.safeguard is not None:
        safeguard = problem.safeguard.words
    values = {
        "form": form,
        "n": problem.n,
        "m": problem.constraints,
        "version": version,
        "precision": code.precision,
        "rom": state_bytes(code.rom),
        "text": state_bytes(code.text),
        "ram": state_bytes(code.ram),
        "result": state_bytes(code.result),
        "suffix": emit.REALS[code.precision].suffix,
        "size": problem.size,
        "parameter": _describe_parameter(code),
        "least": _describe_tolerances(code),
        "horizon": problem.horizon,
        "distinct": len(problem.shift),
        "factor": state_bytes(code.factor_bytes),
        "method": _describe_method(code.linear),
        "safeguard": safeguard,
        "hash": solver_hash[:16],
    }
    return emit.fill_part("README.md", prefix=code.prefix, PREFIX=code.prefix.upper(), **values)
