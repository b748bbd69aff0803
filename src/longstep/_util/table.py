"""Tables: rows of raw values under named columns, for the terminal, as Markdown, and as plain data."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from .plain import Json, make_plain

# What a terminal has that nobody made wider.
WIDTH = 80

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


@dataclass(frozen=True)
class Column:
    """A column's name, and how it shows one of its values."""

    name: str
    show: Callable[..., str] = str


@dataclass(frozen=True)
class Table:
    """Rows of raw values under named columns, with a title above and a note below.

    `print` gives plain text of at most 80 columns, a Rich console its own kind of table. A table that is wider than the
    width is split into several of about the same width, each with the first column: nothing is ever cut off.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[object, ...], ...]
    note: str = ""

    def text(self, width: int | None = None) -> str:
        """Return plain text with aligned columns; with a width, title and note are broken into lines too."""
        cells = self.cells()
        blocks = []
        for part in self._split_columns(width, 2):
            lines = ["  ".join(self._pad(row[j], j) for j in part) for row in cells]
            lines.insert(1, "  ".join("─" * self._measure(j) for j in part))
            blocks.append("\n".join(line.rstrip() for line in lines))
        lines = [*_break_lines(self.title, width), *"\n\n".join(blocks).split("\n")]
        if self.note:
            lines += _break_lines(self.note, width)
        return "\n".join(lines)

    def markdown(self) -> str:
        """Return a table of GitHub's Markdown, the title in bold before it and the note after it."""
        rules = {"left": ":--", "right": "--:"}
        head, *body = [[_escape(cell) for cell in row] for row in self.cells()]
        rule = [rules[self._justify(j)] for j in range(len(head))]
        paragraphs = [f"**{_escape(self.title)}**", "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *body])]
        if self.note:
            paragraphs.append(_escape(self.note))
        return "\n\n".join(paragraphs)

    def to_json(self) -> dict[str, Json]:
        """Return plain data, each row by its columns' names; ∞ becomes null."""
        names = [column.name for column in self.columns]
        rows = [{name: make_plain(value) for name, value in zip(names, row, strict=True)} for row in self.rows]
        return {"title": self.title, "columns": names, "rows": rows, "note": self.note}

    @override
    def __str__(self) -> str:
        return self.text(WIDTH)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[RenderableType]":
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        head, *body = self.cells()
        yield Text(self.title, style="bold")
        # Two spaces of padding and one of the box for each column.
        for part in self._split_columns(options.max_width, 3):
            table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
            for j in part:
                table.add_column(Text(head[j]), justify=self._justify(j), no_wrap=True)
            for row in body:
                table.add_row(*(Text(row[j]) for j in part))
            yield table
        if self.note:
            yield Text(self.note, style="dim")

    def cells(self) -> list[list[str]]:
        """Return all texts, the head first, each on one line."""
        body = [[c.show(value) for c, value in zip(self.columns, row, strict=True)] for row in self.rows]
        return [[" ".join(text.split()) for text in row] for row in [[c.name for c in self.columns], *body]]

    def _justify(self, j: int) -> Literal["left", "right"]:
        """Return the side on which a column is aligned: texts left, everything else right."""
        return "left" if all(isinstance(row[j], str) for row in self.rows) else "right"

    def _measure(self, j: int) -> int:
        """Return the width of a column."""
        return max(len(row[j]) for row in self.cells())

    def _pad(self, text: str, j: int) -> str:
        """Return the text of a cell as wide as its column."""
        if self._justify(j) == "left":
            return text.ljust(self._measure(j))
        return text.rjust(self._measure(j))

    def _split_columns(self, width: int | None, gap: int) -> list[list[int]]:
        """Return the columns of each table that fits the width: the fewest tables, and of those the narrowest."""
        sizes = [self._measure(j) for j in range(len(self.columns))]
        if width is None:
            return [list(range(len(sizes)))]
        widest = _fill_tables(sizes, width - gap, gap)
        narrower = (_fill_tables(sizes, limit, gap) for limit in range(sizes[0], width - gap))
        return next((parts for parts in narrower if len(parts) == len(widest)), widest)


def _fill_tables(sizes: Sequence[int], limit: int, gap: int) -> list[list[int]]:
    """Return the columns of tables that are filled up to the limit one after the other, two columns at least in each.

    The first column is in all of them.
    """
    parts = [[0]]
    used = sizes[0]
    for j in range(1, len(sizes)):
        used += gap + sizes[j]
        if used > limit and len(parts[-1]) > 1:
            parts.append([0])
            used = sizes[0] + gap + sizes[j]
        parts[-1].append(j)
    return parts


def _break_lines(text: str, width: int | None) -> list[str]:
    """Return the lines of a text, none wider than the width unless a word is."""
    lines = text.split("\n")
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, break_long_words=False) or [""]]


def align_lines(lines: Mapping[str, object]) -> str:
    """Return a line for each name, with all values beginning in one column.

    >>> print(align_lines({"cores": 4, "memory": "15 GiB"}))
    cores   4
    memory  15 GiB
    """
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _escape(text: str) -> str:
    """Return text that Markdown takes as it is: f* is no beginning of italics."""
    return text.replace("*", "\\*").replace("|", "\\|")
