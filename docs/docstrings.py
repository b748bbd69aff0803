"""Docstrings and types as Markdown, for the API page: examples become code, asterisks and shapes stay what they are."""

import ast
import re
from typing import Any

import griffe

_SHAPED = {"Array", "Bool", "Float", "Int"}


class Docstrings(griffe.Extension):
    """Changes docstrings, and the shapes in types, before they are rendered."""

    def on_node(self, *, node: ast.AST | griffe.ObjectNode, **kwargs: Any) -> None:
        """Called for every piece of source before it is read, of each module first the whole."""
        if isinstance(node, ast.Module):
            write_shapes(node)

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for each module, class, function and attribute."""
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def write_shapes(module: ast.Module) -> None:
    """Shapes such as "m *N" become (m, *N): griffe takes strings in types for Python, and this one for a product."""
    for node in ast.walk(module):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", None) in _SHAPED:
            for part in ast.walk(node.slice):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    axes = part.value.split()
                    part.value = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def markdown(text: str) -> str:
    """A docstring as Markdown, paragraph by paragraph."""
    return "\n\n".join(_paragraph(each) for each in re.split(r"\n\s*\n", text))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if text.startswith("    "):
        return text  # an equation
    # z*, f* and *N are no emphasis; inside backticks nothing is.
    pieces = text.split("`")
    pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
    return "`".join(pieces)
