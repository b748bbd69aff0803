"""Where the instances of a stream come from: a file that is read in pieces, or batches that someone else makes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ..data.columns import Columns
from ..data.rows import FileRows, open_rows
from ..errors import SamplesError
from ..families.base import Family
from ..families.reading import Parameters
from .aside import read_ahead

if TYPE_CHECKING:
    import pyarrow as pa

# What `map` takes: a file or a folder of files, or batches of parameters.
SourceLike: TypeAlias = "str | Path | Iterable[Parameters]"

# A part takes this many bytes of parameters and solutions at most, and no more rows than this: what a kill can cost.
_BYTES = 2**26
_MOST_ROWS = 2**16
# Batches run 512 instances wide on a CPU.
_WIDTH = 512


class StreamPart(NamedTuple):
    """Instances that are solved and written together: their number in the stream, and where they are in the source."""

    number: int
    where: str
    parameters: Parameters
    kept: "dict[str, pa.Array]"


class Source(Protocol):
    """Instances in parts. Reading is repeatable where the number of parts is known."""

    @property
    def parts(self) -> int | None:
        """How many parts there are, where that is known."""
        ...

    @property
    def instances(self) -> int | None:
        """How many instances there are, where that is known."""
        ...

    def read(self, first: int, last: int | None) -> Iterator[StreamPart]:
        """Yield the parts from number `first` up to `last`, not included; None is the end."""
        ...


class FileSource:
    """The rows of a file, `size` a part."""

    def __init__(self, rows: FileRows, size: int):
        self.rows = rows
        self.size = size
        self.instances: int = rows.count()
        if not self.instances:
            raise SamplesError("there are no rows; one is needed for each instance")
        self.parts: int = -(-self.instances // size)

    def read(self, first: int, last: int | None) -> Iterator[StreamPart]:
        """Yield the parts from number `first` up to `last`."""
        end = self.instances
        if last is not None:
            end = min(last * self.size, end)
        pieces = read_ahead(self.rows.read(first * self.size, end, self.size))
        for number, piece in enumerate(pieces, first):
            begin = number * self.size
            yield StreamPart(number, f"rows {begin} to {begin + len(piece.x) - 1}", piece.x, piece.kept)


class BatchSource:
    """Batches as they come, each a part."""

    parts = None
    instances = None

    def __init__(self, batches: Iterable[Parameters]):
        self.batches = batches

    def read(self, first: int, last: int | None) -> Iterator[StreamPart]:
        """Yield all batches: there is no way to begin in the middle."""
        for number, batch in enumerate(self.batches):
            yield StreamPart(number, f"batch {number}", batch, {})


def open_source(source: SourceLike, family: Family, columns: Columns, keep: Sequence[str], size: int | None) -> Source:
    """Return the instances of a file, `size` a part, or of batches as they are."""
    if isinstance(source, str | Path):
        return FileSource(open_rows(source, family.layout, columns, keep), choose_size(family, size))
    if columns is not None or keep or size is not None:
        raise ValueError("columns, keep and rows are for files; batches are taken as they come")
    return BatchSource(source)


def choose_size(family: Family, size: int | None) -> int:
    """Return how many instances make a part: as asked, or as many as keep a part small."""
    if size is not None:
        if size < 1:
            raise ValueError(f"rows must be at least 1, got {size}")
        return size
    numbers = 3 * (family.n + family.m)
    fits = _BYTES // (8 * numbers) // _WIDTH * _WIDTH
    return min(max(fits, _WIDTH), _MOST_ROWS)
