"""Results of a stream on disk: a folder of parts, each written in one go, and the file that they are joined to.

Every part names in its footer the key of what it was made of: the solver, the settings and the very rows. So a part
counts as finished exactly where the same run would make it again, whoever made it and however often the run was killed.
"""

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .._util import storage
from .._util.hashing import content_hash
from .._util.plain import make_plain
from ..data.tables import import_pyarrow
from ..errors import FileFormatError
from .tally import Tally, add_tallies

if TYPE_CHECKING:
    import pyarrow as pa

# Readers of folders take files that begin so for notes about the others.
_MANIFEST = "_longstep.json"
_FOOTER = b"longstep"


class PartFolder:
    """The parts of a run; `sink` is the .parquet file that they are joined to, or the folder that they stay in."""

    def __init__(self, sink: Path, settings: Mapping[str, object]):
        import_pyarrow()
        self.sink = sink
        self.settings = make_plain(settings)
        self.settings_hash = content_hash(json.dumps(self.settings, sort_keys=True))
        self.is_joined = sink.suffix.lower() == ".parquet"
        self.folder = sink
        if self.is_joined:
            self.folder = sink.with_name(f"{sink.name}.parts")
            if sink.is_dir():
                raise ValueError(f"{sink} is a folder: name a file that can be written, or a folder without .parquet")
        elif sink.suffix or sink.is_file():
            raise ValueError(f"{sink} is no place for a stream: use a .parquet file, or a folder for its parts")
        self._check_manifest()

    def begin(self) -> None:
        """Make the folder, and note in it what the parts are of."""
        text = json.dumps(self.settings, indent=1, sort_keys=True)
        with self._keep_parts():
            storage.write_bytes(self.folder / _MANIFEST, text.encode())

    def locate(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"part-{number:08d}.parquet"

    def find(self, number: int, key: str) -> Tally | None:
        """Return the tally of a finished part; None where it is missing, damaged, or of other rows or settings."""
        footer = _read_footer(self.locate(number))
        if footer is None or footer.get("key") != key:
            return None
        return Tally(**footer["tally"])

    def write(self, number: int, key: str, table: "pa.Table", tally: Tally) -> None:
        """Write a part; a reader sees all of it or nothing."""
        with self._keep_parts():
            payload = _serialize(_attach_note(table, {"key": key, "tally": tally.to_json()}))
            try:
                storage.write_bytes(self.locate(number), payload)
            except FileNotFoundError:
                # Another run of this shard has ended meanwhile, joined the parts and taken the folder away.
                storage.write_bytes(self.locate(number), payload)

    def list_numbers(self) -> set[int]:
        """Return the numbers of the parts that are there."""
        return {int(path.stem.removeprefix("part-")) for path in self.folder.glob("part-*.parquet")}

    def find_joined(self) -> tuple[list[str], Tally] | None:
        """Return the keys of the parts that were joined, and their tally; None where the file is not of this run."""
        if not self.is_joined:
            return None
        footer = _read_footer(self.sink)
        if footer is None or footer.get("settings") != self.settings:
            return None
        return footer["keys"], Tally(**footer["tally"])

    def join(self, keys: Sequence[str], tallies: Sequence[Tally]) -> None:
        """Join the parts to one file, a row group each, and take the folder away; without a file, check for others."""
        stray = sorted(number for number in self.list_numbers() if number >= len(keys))
        if stray and not self.is_joined:
            raise FileFormatError(
                f"{self.locate(stray[0])} is a part beyond the last one of this source, which is number "
                f"{len(keys) - 1}: remove it and those after it, or give another folder"
            )
        if not self.is_joined:
            self._sweep()
            return
        note = {"settings": self.settings, "keys": list(keys), "tally": add_tallies(tallies).to_json()}
        with self._keep_parts():
            self._copy_parts(keys, note)
        self.clean()

    def clean(self) -> None:
        """Take away the folder of parts that were joined."""
        for path in (*self.folder.glob("part-*.parquet"), self.folder / _MANIFEST):
            path.unlink(missing_ok=True)
        self._sweep()
        # Another run of the last shard may be at the same, or something else lie there.
        with suppress(OSError):
            self.folder.rmdir()

    def _sweep(self) -> None:
        """Take away what kills left half-written."""
        for pattern in (".part-*", f".{self.sink.name}.*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)

    def _copy_parts(self, keys: Sequence[str], note: Mapping[str, object]) -> None:
        import pyarrow.parquet as pq

        writer = None
        with storage.replace_file(self.sink, self.folder) as file:
            try:
                for number, key in enumerate(keys):
                    part = pq.read_table(self.locate(number))
                    if json.loads(part.schema.metadata[_FOOTER])["key"] != key:
                        raise FileFormatError(f"{self.locate(number)} has changed while it was joined: run it again")
                    table = _attach_note(part, note)
                    if writer is None:
                        writer = pq.ParquetWriter(file, table.schema, **_choose_encoding(table))
                    writer.write_table(table, row_group_size=max(len(table), 1))
            finally:
                if writer is not None:
                    writer.close()

    @contextmanager
    def _keep_parts(self) -> Iterator[None]:
        """Say in an error of the disk that nothing is lost, and how to go on."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            count = len(self.list_numbers())
            advice = "mend that"
            if error.errno == errno.ENOSPC:
                advice = "make room"
            raise OSError(
                error.errno,
                f"{error.strerror or error}. The {count} finished parts are kept: {advice} and run the same again, "
                "which goes on after them",
                str(self.folder),
            ) from error

    def _check_manifest(self) -> None:
        """Refuse a folder of parts that another run made."""
        path = self.folder / _MANIFEST
        if not path.exists():
            return
        found = storage.read_json(path.read_text(encoding="utf-8"), str(path))
        if found != self.settings:
            assert isinstance(self.settings, dict)
            raise FileFormatError(
                f"{self.folder} has parts of another run ({_compare(found, self.settings)}). Give the same settings to "
                "go on with it, or remove the folder to begin again"
            )


def _compare(found: Mapping[str, object], wanted: Mapping[str, object]) -> str:
    """Return in words how two settings differ."""
    names = [name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name}: {found.get(name)} there, {wanted.get(name)} here" for name in names)


def _attach_note(table: "pa.Table", note: Mapping[str, object]) -> "pa.Table":
    """Return a table whose footer holds a note."""
    return table.replace_schema_metadata({_FOOTER: json.dumps(note, sort_keys=True).encode()})


def _read_footer(path: Path) -> storage.JsonObject | None:
    """Return the note in the footer of a file; None where there is no such file, or it is not whole."""
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
        return storage.read_json(metadata[_FOOTER].decode(), str(path))
    except (pa.ArrowException, OSError, KeyError, ValueError):
        return None


def _serialize(table: "pa.Table") -> bytes:
    """Return a table as a Parquet file of one row group."""
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, row_group_size=max(len(table), 1), **_choose_encoding(table))
    return buffer.getvalue().to_pybytes()


def _choose_encoding(table: "pa.Table") -> dict[str, list[str]]:
    """Return how columns are written: text by a dictionary, numbers as they are, because theirs would gain nothing."""
    pa = import_pyarrow()
    return {"use_dictionary": [field.name for field in table.schema if pa.types.is_string(field.type)]}
