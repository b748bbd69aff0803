"""Numbers as C: static arrays that compile to the very same values."""

from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any

import numpy as np

# Shorter vectors stay as they are: on small machines memory counts more.
_LONG = 64
_LINE = 64


def vector_length(count: int, width: int) -> int:
    """Numbers that a vector of the workspace has room for: whole cache lines where it is long, and at least one."""
    lanes = _LINE // width
    return max(count, 1) if count < _LONG else -(-count // lanes) * lanes


def part(name: str) -> str:
    """One of the C source parts of this package."""
    return resources.files("longstep.export_c").joinpath("c", name).read_text(encoding="utf-8")


def filled(name: str, **values: Any) -> str:
    """A part whose `${placeholders}` are given values, all of them; `$$` is a dollar."""
    return Template(part(name)).substitute(values)


def kept(text: str, **has: bool) -> str:
    """The text without what is for others: `#if NAME`, `#else` and `#endif` of these names are decided here.

    A solver that lacks something then has no trace of it in its code.
    """
    lines: list[str] = []
    # For every open condition, whether its lines are kept; None is a condition of the compiler's.
    stack: list[bool | None] = []
    for line in text.splitlines(keepends=True):
        word, _, name = line.strip().partition(" ")
        if word in ("#if", "#ifdef", "#ifndef"):
            known = word == "#if" and name in has
            stack.append(has[name] if known else None)
            if known:
                continue
        elif word in ("#else", "#endif") and stack[-1] is not None:
            state = stack.pop()
            if word == "#else":
                stack.append(not state)
            continue
        # One blank line, not two, is left of what stood between blank lines.
        if False not in stack and not (line == "\n" and lines and lines[-1] == "\n"):
            lines.append(line)
        if word == "#endif":
            stack.pop()
    return "".join(lines)


def number(value: float, precision: str) -> str:
    """A literal of that precision: the shortest that reads back to the same number."""
    value = float(np.float32(value)) if precision == "float" else float(value)
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = str(np.float32(value)) if precision == "float" else repr(value)
    text = text if any(c in text for c in ".en") else f"{text}.0"
    return f"{text}f" if precision == "float" else text


def reals(name: str, values: Iterable[float], precision: str) -> str:
    """A static array of real numbers."""
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64).ravel()
    if precision == "float":
        texts = [f"{t}f" if ("." in t or "e" in t) else f"{t}.0f" for t in map(str, array.astype(np.float32))]
    else:
        texts = list(map(repr, array.tolist()))
    texts = [t if "inf" not in t else ("-INFINITY" if t[0] == "-" else "INFINITY") for t in texts]
    return _array("real", name, texts)


def integers(kind: str, name: str, values: Any) -> str:
    """A static array of integers."""
    return _array(kind, name, list(map(str, np.asarray(values, int).ravel().tolist())))


def _array(kind: str, name: str, texts: Sequence[str]) -> str:
    # C has no arrays without entries.
    texts = texts or ["0"]
    lines = []
    line = ""
    for text in texts:
        if len(line) + len(text) > 110:
            lines.append(line)
            line = ""
        line += f"{text}, "
    lines.append(line)
    body = "\n".join(f"    {each.rstrip()}" for each in lines)
    return f"static const {kind} {name}[{len(texts)}] = {{\n{body}\n}};\n"


def index_type(largest: int) -> str:
    """The smallest type that holds indices up to this one."""
    return "uint16_t" if largest < 2**16 else "int32_t"
