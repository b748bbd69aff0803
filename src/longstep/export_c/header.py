"""The public header: sizes, names, types and functions, for a person to read."""

import re

import numpy as np

from ..families.names import Block
from . import emit
from .linear import Linear
from .newton import count_derivatives, measure_matrix
from .problem import ExportedProblem

_TYPES = {"qp": "qp.h", "condensed": "condensed.h", "conic": "conic.h"}


def write_header(problem: ExportedProblem, linear: Linear, precision: str, least_eps: float) -> str:
    """Return the header with the prefix `longstep`."""
    features = {"LADDER": problem.rungs is not None, "FINISH": problem.finish is not None}
    features["PREDICTED"] = problem.start is not None
    features["ROOM"] = linear.room > 0
    form, parameter = _describe(problem)
    return emit.fill_part(
        "header.h",
        form=form,
        parameter=parameter,
        precision=precision,
        sizes=_write_sizes(problem),
        least_eps=f"{emit.number(least_eps, precision):<6}",
        lengths=emit.defines(_measure_vectors(problem, linear, emit.REALS[precision].width)),
        names=_write_names(problem),
        common=emit.read_part("common.h"),
        types=emit.select_features(emit.read_part("result.h") + emit.read_part(_TYPES[problem.kind]), **features),
        functions=emit.read_part("functions.h"),
    )


def _describe(problem: ExportedProblem) -> tuple[str, str]:
    """Return the form of the problem, and a sentence about its parameter."""
    if problem.cones is None:
        form = "minimise 1/2 x'Px + q'x  subject to  l <= Ax <= u"
        data = "q, l, u"
    else:
        form = "minimise 1/2 x'Px + c'x  subject to  Ax + s = b, s in K"
        data = "b, c"
    if problem.mapped:
        return form, "The parameter is mapped to the data of an instance."
    return form, f"The parameter is the data of an instance, one after the other: {data}."


def _write_sizes(problem: ExportedProblem) -> str:
    """Return the sizes that a user needs, each with a comment."""
    sizes = {
        "UNKNOWNS": (problem.n, "entries of x"),
        "CONSTRAINTS": (problem.constraints, "entries of y and s"),
        "PARAMETERS": (problem.size, "entries of the parameter"),
        "HORIZON": (problem.horizon, "steps with hyperparameters of their own; later ones take the steady state's"),
        "WARM": (int(problem.warm), "whether these are for warm starts too"),
    }
    return "\n".join(f"#define LONGSTEP_{name:<12} {size:<6} /* {words} */" for name, (size, words) in sizes.items())


def _measure_vectors(problem: ExportedProblem, linear: Linear, width: int) -> dict[str, int]:
    """Return the lengths of the vectors of a workspace and a result, by their names."""
    c = problem.condensed
    lengths = {
        "LONGSTEP_CONSTRAINTS_": max(problem.constraints, 1),
        "LONGSTEP_UNKNOWNS_": emit.pad_length(problem.n, width),
        "LONGSTEP_ROWS_": emit.pad_length(problem.A.shape[0], width),
        "LONGSTEP_SPARE_": 1,
    }
    if linear.spare:
        # The order of the linear systems.
        lengths["LONGSTEP_SPARE_"] = problem.n if c is None else c.free
    if linear.room:
        lengths["LONGSTEP_ROOM_"] = emit.pad_length(linear.room, width)
    if c is not None:
        lengths["LONGSTEP_FREE_"] = emit.pad_length(c.free, width)
        lengths["LONGSTEP_INNER_"] = emit.pad_length(c.inner.size, width)
    if c is not None and problem.finish is not None:
        lengths["LONGSTEP_SLOTS_"] = emit.pad_length(c.slots, width)
    if problem.cones is not None and problem.finish is not None:
        lengths |= count_derivatives(problem)
    lengths["LONGSTEP_MATRIX_"] = measure_matrix(problem.cones)
    return lengths


def _write_names(problem: ExportedProblem) -> str:
    """Return where named parameters and variables lie."""
    if problem.layout is None:
        return ""
    layout = problem.layout
    lines = ["/* Parameters, by name: where they begin in the parameter."]
    offset = 0
    taken: set[str] = set()
    lines.append(
        " * Arrays are stored by rows, symmetric matrices as upper triangles, diagonal and sparse ones as entries. */"
    )
    for block in layout.parameters.values():
        lines.append(_define_name("P", block.name, offset, block.shape, block.first.size, taken))
        offset += block.first.size
    lines.append("\n/* Variables, by name: where they begin in x. */")
    for block in layout.variables.values():
        lines.append(_define_variable(block, taken))
    return "\n".join(lines) + "\n"


def _define_name(kind: str, name: str, offset: int, shape: tuple[int, ...], size: int, taken: set[str]) -> str:
    """Return the definition of an offset, under a name that is not taken."""
    macro = re.sub(r"[^A-Za-z0-9]", "_", name).upper()
    macro = f"LONGSTEP_{kind}_{macro}"
    while macro in taken:
        macro += "_"
    taken.add(macro)
    text = re.sub(r"[^\x20-\x7e]|\*/", "?", name)
    return f"#define {macro} {offset} /* {text}: {size} entries, shape {tuple(shape)} */"


def _define_variable(block: Block, taken: set[str]) -> str:
    """Return an offset where the entries lie in a row and in order, else a comment with their places."""
    place = block.place.ravel()
    text = re.sub(r"[^\x20-\x7e]|\*/", "?", block.name)
    if place.size and (place == place[0] + np.arange(place.size)).all():
        return _define_name("X", block.name, int(place[0]), block.shape, place.size, taken)
    shown = ", ".join(map(str, place[:40]))
    if place.size > 40:
        shown += ", ..."
    return f"/* {text}, shape {tuple(block.shape)}: entries of x by rows (-1: zero): {shown} */"
