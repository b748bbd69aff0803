"""Numbers as C: static arrays that compile to the very same values."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template

import numpy as np
from numpy.typing import ArrayLike

# Shorter vectors stay as they are: on small machines memory counts more.
_LONG = 64
_LINE = 64


@dataclass(frozen=True)
class RealType:
    """A type of real numbers in C: its NumPy type, how literals and functions of libm end, how its limits begin."""

    dtype: np.dtype
    suffix: str
    limits: str

    @property
    def width(self) -> int:
        """Return the bytes of one number."""
        return self.dtype.itemsize

    @property
    def epsilon(self) -> float:
        """Return the distance from one to the next number."""
        return float(np.finfo(self.dtype).eps)

    @property
    def most(self) -> float:
        """Return the largest number."""
        return float(np.finfo(self.dtype).max)

    @property
    def tiny(self) -> float:
        """Return the smallest number that has all its digits."""
        return float(np.finfo(self.dtype).tiny)


# By the name of a precision, which is that of the type in C.
REALS = {
    "double": RealType(np.dtype(np.float64), "", "DBL"),
    "float": RealType(np.dtype(np.float32), "f", "FLT"),
}


def pad_length(count: int, width: int) -> int:
    """Return the numbers that a vector of the workspace has room for: at least one, and whole cache lines if long."""
    if count < _LONG:
        return max(count, 1)
    lanes = _LINE // width
    return -(-count // lanes) * lanes


@functools.cache
def read_part(name: str) -> str:
    """Return the text of one of the C source parts of this package."""
    return resources.files("longstep.export_c").joinpath("c", name).read_text(encoding="utf-8")


def fill_part(part: str, /, **values: object) -> str:
    """Return a part whose `${placeholders}` have these values, all of them; `$$` is a dollar."""
    return Template(read_part(part)).substitute(values)


def select_features(text: str, **has: bool) -> str:
    """Return the text without what is for others: `#if NAME`, `#else` and `#endif` of these names are decided here.

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


def defines(values: Mapping[str, object]) -> str:
    """Return a `#define` for each name, without a line end after the last."""
    return "\n".join(f"#define {name} {value}" for name, value in values.items())


def number(value: float, precision: str) -> str:
    """Return a literal of that precision: the shortest that reads back to the same number."""
    return _literal(str(REALS[precision].dtype.type(value)), precision)


def numbers(values: Mapping[str, float], precision: str) -> dict[str, str]:
    """Return the literals of named numbers."""
    return {name: number(value, precision) for name, value in values.items()}


def reals(name: str, values: Iterable[float], precision: str) -> str:
    """Return a static array of real numbers."""
    if not isinstance(values, np.ndarray):
        values = np.array(list(values), np.float64)
    array = np.asarray(values, np.float64).ravel()
    rounded = array.astype(REALS[precision].dtype)
    if precision == "double":
        # Python's own numbers are written several times as fast as NumPy's.
        rounded = array.tolist()
    return _array("real", name, [_literal(text, precision) for text in map(str, rounded)])


def integers(kind: str, name: str, values: ArrayLike) -> str:
    """Return a static array of integers."""
    return _array(kind, name, list(map(str, np.asarray(values, int).ravel().tolist())))


def index_type(largest: int) -> str:
    """Return the smallest type that holds indices up to this one."""
    return "uint16_t" if largest < 2**16 else "int32_t"


def _literal(text: str, precision: str) -> str:
    """Return the literal of a number that Python writes like this."""
    if "inf" in text:
        return "-INFINITY" if text.startswith("-") else "INFINITY"
    if not any(c in text for c in ".en"):
        text = f"{text}.0"
    return text + REALS[precision].suffix


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
