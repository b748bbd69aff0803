"""The public header: sizes, names, types and functions, for a person to read."""

import re

import numpy as np

from . import emit
from .problem import Problem

_TYPES = {"qp": "qp.h", "condensed": "condensed.h", "conic": "conic.h"}


def header_source(problem: Problem, precision: str, least_eps: float, spare: bool) -> str:
    """The header with the prefix `longstep`."""
    features = {"LADDER": problem.rungs is not None, "FINISH": problem.finish is not None}
    width = 8 if precision == "double" else 4
    semidefinite = () if problem.cones is None else problem.cones.semidefinite
    m = problem.constraints
    rows = problem.A.shape[0]
    sizes = {
        "UNKNOWNS": problem.n,
        "CONSTRAINTS": m,
        "PARAMETERS": problem.size,
        "HORIZON": problem.horizon,
        "WARM": int(problem.warm),
    }
    words = {
        "UNKNOWNS": "entries of x",
        "CONSTRAINTS": "entries of y and s",
        "PARAMETERS": "entries of the parameter",
        "HORIZON": "steps with hyperparameters of their own; later ones take the steady state's",
        "WARM": "whether these are for warm starts too",
    }
    lines = [f"#define LONGSTEP_{name:<12} {value:<6} /* {words[name]} */" for name, value in sizes.items()]
    return "\n".join(
        [
            "/*\n" + _about(problem) + "\n */",
            "#ifndef LONGSTEP_H\n#define LONGSTEP_H\n",
            "#include <stddef.h>\n#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            f"typedef {precision} longstep_real;\n",
            *lines,
            f"#define LONGSTEP_LEAST_EPS  {emit.number(least_eps, precision):<6} "
            "/* eps_abs and eps_rel that are both less are refused */",
            "/* C has no arrays without entries; long ones are whole cache lines. */",
            f"#define LONGSTEP_CONSTRAINTS_ {max(m, 1)}",
            f"#define LONGSTEP_UNKNOWNS_ {emit.vector_length(problem.n, width)}",
            f"#define LONGSTEP_ROWS_ {emit.vector_length(rows, width)}",
            f"#define LONGSTEP_SPARE_ {_unknowns(problem) if spare else 1}",
            *_condensed_sizes(problem, width),
            f"#define LONGSTEP_MATRIX_ {max((k * k for k in semidefinite), default=1)}\n",
            _names(problem),
            emit.part("common.h"),
            emit.kept(emit.part("result.h") + emit.part(_TYPES[problem.kind]), **features),
            emit.part("functions.h"),
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
        ]
    )


def _unknowns(problem: Problem) -> int:
    """The order of the linear systems."""
    return problem.n if problem.condensed is None else problem.condensed.free


def _condensed_sizes(problem: Problem, width: int) -> list[str]:
    c = problem.condensed
    if c is None:
        return []
    return [
        f"#define LONGSTEP_FREE_ {emit.vector_length(c.free, width)}",
        f"#define LONGSTEP_INNER_ {emit.vector_length(c.inner.size, width)}",
        *([] if problem.finish is None else [f"#define LONGSTEP_SLOTS_ {emit.vector_length(c.slots, width)}"]),
    ]


def _about(problem: Problem) -> str:
    if problem.cones is None:
        form = "minimise 1/2 x'Px + q'x  subject to  l <= Ax <= u"
        data = "q, l, u"
    else:
        form = "minimise 1/2 x'Px + c'x  subject to  Ax + s = b, s in K"
        data = "b, c"
    map_ = (
        "The parameter is mapped to the data of an instance."
        if problem.mapped
        else f"The parameter is the data of an instance, one after the other: {data}."
    )
    return (
        f" * Written by longstep from a learned solver of\n *\n *     {form}\n *\n * {map_}\n"
        " * Nothing is allocated, nothing is global but constants: all memory is in the workspace and the result.\n"
        " * Everything is in the units of the user's problem. Not for -ffast-math: infinities have a meaning here."
    )


def _names(problem: Problem) -> str:
    """Where named parameters and variables lie."""
    if problem.layout is None:
        return ""
    layout = problem.layout
    lines = ["/* Parameters, by name: where they begin in the parameter."]
    offset = 0
    taken = set()
    lines.append(
        " * Arrays are stored by rows, symmetric matrices as upper triangles, diagonal and sparse ones as entries. */"
    )
    for block in layout.parameters.values():
        lines.append(_define("P", block.name, offset, block.shape, block.first.size, taken))
        offset += block.first.size
    lines.append("\n/* Variables, by name: where they begin in x. */")
    for block in layout.variables.values():
        lines.append(_variable(block, taken))
    return "\n".join(lines) + "\n"


def _define(kind: str, name: str, offset: int, shape: tuple, size: int, taken: set) -> str:
    macro = re.sub(r"[^A-Za-z0-9]", "_", name).upper()
    macro = f"LONGSTEP_{kind}_{macro}"
    while macro in taken:
        macro += "_"
    taken.add(macro)
    text = re.sub(r"[^\x20-\x7e]|\*/", "?", name)
    return f"#define {macro} {offset} /* {text}: {size} entries, shape {tuple(shape)} */"


def _variable(block, taken: set) -> str:
    """An offset where the entries lie in a row and in order, else a comment with their places."""
    place = block.place.ravel()
    text = re.sub(r"[^\x20-\x7e]|\*/", "?", block.name)
    if place.size and (place == place[0] + np.arange(place.size)).all():
        return _define("X", block.name, int(place[0]), block.shape, place.size, taken)
    shown = ", ".join(map(str, place[:40])) + (", ..." if place.size > 40 else "")
    return f"/* {text}, shape {tuple(block.shape)}: entries of x by rows (-1: zero): {shown} */"
