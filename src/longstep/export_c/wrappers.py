"""The C code from other languages: a Rust crate and a template of a ROS 2 node, in folders of the export."""

import re
from collections.abc import Sequence

import numpy as np

from ..families.names import Block
from . import emit
from .code import Code
from .problem import ExportedProblem

# The files of each wrapper, with the part that each is made of.
_FILES = {
    "rust": {
        "rust/Cargo.toml": "rust/Cargo.toml",
        "rust/build.rs": "rust/build.rs",
        "rust/src/lib.rs": "rust/lib.rs",
        "rust/examples/solve.rs": "rust/solve.rs",
    },
    "ros2": {
        "ros2/package.xml": "ros2/package.xml",
        "ros2/CMakeLists.txt": "ros2/CMakeLists.txt",
        "ros2/src/core.hpp": "ros2/core.hpp",
        "ros2/src/node.cpp": "ros2/node.cpp",
    },
}
# The files that an export may have besides the C code and what is around it.
WRAPPED = tuple(name for files in _FILES.values() for name in files)
_REALS = {"double": "f64", "float": "f32"}
# Words that are no names in Rust.
_KEYWORDS = re.compile(
    "abstract|as|async|await|become|box|break|const|continue|crate|do|dyn|else|enum|extern|false|final|fn|for|gen|if|"
    "impl|in|let|loop|macro|match|mod|move|mut|override|priv|pub|ref|return|self|Self|static|struct|super|trait|true|"
    "try|type|typeof|unsafe|unsized|use|virtual|where|while|yield"
)
_CHANGES = """    /// Changes of the active set, or Newton steps, until the point was exact; −1: it need not be.
    pub changes: i32,
"""


def check_wrap(wrap: Sequence[str]) -> None:
    """Refuse wrappers that there are not."""
    if isinstance(wrap, str):
        raise ValueError(f"wrap must be a sequence of names, like [{wrap!r}]; got the string {wrap!r}")
    unknown = [name for name in wrap if name not in _FILES]
    if unknown:
        raise ValueError(f"wrap may name {', '.join(_FILES)}; got {', '.join(map(repr, unknown))}")


def write_wrappers(code: Code, wrap: Sequence[str], version: str) -> dict[str, str]:
    """Return the files of these wrappers by their names in the export's folder."""
    values = {"prefix": code.prefix, "PREFIX": code.prefix.upper(), "version": version, **_describe_rust(code)}
    return {name: emit.fill_part(part, **values) for each in wrap for name, part in _FILES[each].items()}


def _describe_rust(code: Code) -> dict[str, object]:
    """Return the values of the placeholders of the crate's parts."""
    problem = code.problem
    form = "½x'Px + q'x subject to l ≤ Ax ≤ u"
    if problem.cones is not None:
        form = "½x'Px + c'x subject to Ax + s = b, s ∈ K"
    changes = ""
    no_changes = ""
    if problem.finish is not None:
        changes = _CHANGES
        no_changes = "        changes: 0,\n"
    fields = _list_fields(problem)
    return {
        "form": form,
        "n": problem.n,
        "m": problem.constraints,
        "rows": max(problem.constraints, 1),
        "size": problem.size,
        "real": _REALS[code.precision],
        "fields": "\n".join(f"    /// {words}\n    pub {name}: [Real; {size}]," for name, size, words in fields),
        "zeros": "\n".join(f"        {name}: [0.0; {size}]," for name, size, _ in fields),
        "variables": _write_variables(problem),
        "changes": changes,
        "no_changes": no_changes,
    }


def _list_fields(problem: ExportedProblem) -> list[tuple[str, int, str]]:
    """Return for every parameter a field's name, its number of entries, and what is said of it."""
    if problem.layout is not None:
        taken: set[str] = set()
        fields = []
        for block in problem.layout.parameters.values():
            words = f"{_make_printable(block.name)}, of shape {block.shape}: the entries by rows, as in the header."
            fields.append((_make_name(block.name, "p", taken), int(block.first.size), words))
        return fields
    if problem.mapped:
        return [("values", problem.size, "The entries of the parameter.")]
    sizes = {
        "q": problem.n,
        "l": problem.constraints,
        "u": problem.constraints,
        "b": problem.constraints,
        "c": problem.n,
    }
    return [(name, sizes[name], f"{name} of the instance.") for name in problem.data]


def _write_variables(problem: ExportedProblem) -> str:
    """Return a constant for every variable whose entries lie in a row and in order."""
    if problem.layout is None:
        return ""
    taken: set[str] = set()
    lines = [_define_variable(block, taken) for block in problem.layout.variables.values()]
    return "".join(lines)


def _define_variable(block: Block, taken: set[str]) -> str:
    place = block.place.ravel()
    words = f"{_make_printable(block.name)}, of shape {block.shape}"
    if not place.size or (place != place[0] + np.arange(place.size)).any():
        return f"    // {words}, does not lie in a row: see the header.\n"
    name = _make_name(block.name.upper(), "X", taken)
    end = int(place[0]) + place.size
    return f"    /// {words}\n    pub const {name}: core::ops::Range<usize> = {int(place[0])}..{end};\n"


def _make_name(text: str, letter: str, taken: set[str]) -> str:
    """Return an identifier of Rust that is like the text and not taken; what begins with no letter gets this one."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    if not name[:1].isalpha():
        name = f"{letter}{name}"
    while name in taken or _KEYWORDS.fullmatch(name):
        name += "_"
    taken.add(name)
    return name


def _make_printable(text: str) -> str:
    """Return a name as it may stand in a comment that ends with its line."""
    return re.sub(r"[^\x20-\x7e]", "?", text)
