"""generate_c: a solver as a folder of plain C99, with a manifest that tells when it was changed."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from .._util import storage
from .._util.version import __version__
from ..errors import FileFormatError
from .build import SAFE, find_compiler, run_compiler
from .code import Code, check_prefix, write_code
from .problem import Generated
from .texts import SURROUNDINGS, write_surroundings
from .wrappers import WRAPPED, check_wrap, write_wrappers

_MANIFEST = "manifest.json"
_VERSION = 1


class _Fields(TypedDict):
    """What a manifest says of the code, besides its files; the fields of `Export` of these names."""

    prefix: str
    precision: str
    method: str
    factors: int
    rom: int
    ram: int
    result: int


@dataclass(frozen=True)
class Export:
    """A folder of generated C: its files, its memory in bytes, and the linear algebra that was chosen.

    `rom` are the constants (code comes on top), `ram` is a workspace, `result` a result. `Export.open(folder)` gives
    the same for a folder that is there.
    """

    folder: Path
    prefix: str
    precision: str
    method: str
    factors: int
    rom: int
    ram: int
    result: int
    files: tuple[str, ...]
    hashes: dict[str, str] = field(repr=False)

    @staticmethod
    def open(folder: "str | Path") -> "Export":
        """Return the export of a folder; one in which a file is missing or was changed is refused."""
        folder = Path(folder)
        fields, hashes = _read_manifest(folder)
        export = Export(folder=folder, files=tuple(hashes), hashes=hashes, **fields)
        export.check()
        return export

    def check(self) -> dict[str, bytes]:
        """Return the files by name; a folder in which one is missing or was changed is refused."""
        contents = {}
        for name, stated in self.hashes.items():
            path = self.folder / name
            if not path.is_file():
                raise FileFormatError(f"{self.folder} is damaged: {name} is missing. Export it again")
            contents[name] = path.read_bytes()
            if _hash_bytes(contents[name]) != stated:
                raise FileFormatError(
                    f"{self.folder} is damaged: {name} was changed since it was written. Export it again, or build "
                    "your own version with the Makefile"
                )
        return contents

    def build(self, *, compiler: str | None = None, options: Sequence[str] = SAFE) -> Path:
        """Check the folder, compile the example program from what was checked, and return the program's path."""
        contents = self.check()
        command = find_compiler() if compiler is None else [compiler]
        program = self.folder / f"{self.prefix}_example"
        sources = [f"./{self.prefix}.c", "./main.c"]
        with tempfile.TemporaryDirectory() as scratch:
            for name in _list_sources(self.prefix):
                (Path(scratch) / name).write_bytes(contents[name])
            run_compiler([*command, "-std=c99", *options, *sources, "-lm", "-o", program.name], Path(scratch))
            # By a rename: what the name may be a link to is left alone.
            storage.write_bytes(program, (Path(scratch) / program.name).read_bytes())
        mode = program.stat().st_mode
        program.chmod(mode | (mode & 0o444) >> 2)  # whoever may read it may run it
        return program


def generate_c(
    solver: Generated,
    folder: "str | Path",
    *,
    prefix: str = "longstep",
    precision: Literal["double", "float"] = "double",
    method: Literal["auto", "sparse", "blocks", "inverse", "augmented"] = "auto",
    wrap: Sequence[Literal["rust", "ros2"]] = (),
    overwrite: bool = False,
) -> Export:
    """Write a solver as plain C99 to a folder: code, header, example, Makefile, CMakeLists and a README.

    The C code takes the parameter and gives the solution, status, residuals and all, of `Solver.solve`: the same steps,
    checks and safeguard. It allocates nothing and needs nothing but libm; all names begin with `prefix`. QP families
    with OSQP or Condensed and Conic families with SCS can be written, semidefinite cones up to order 64.

    `method` is the linear algebra of a step: `sparse` LDLᵀ, column by column, takes the least memory; `blocks` is LDLᵀ
    in small dense blocks, for vector units; `inverse` a dense inverse; `augmented` the sparse LDLᵀ of the system before
    A'A is formed, for large sparse families; `auto` takes what a cost model finds fastest.
    `wrap` adds folders: "rust" a crate with a safe interface, "ros2" a template of a node that takes the parameter and
    publishes the solution.

    >>> import numpy as np, tempfile
    >>> from longstep import QP, Solver, generate_c
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export = generate_c(Solver(family), f"{folder}/box", prefix="box")
    >>> export.files
    ('box.h', 'box_data.h', 'box.c', 'main.c', 'Makefile', 'CMakeLists.txt', 'README.md')
    """
    folder = Path(folder)
    check_wrap(wrap)
    _check_folder(folder, overwrite)
    code = write_code(solver, prefix, precision, method)
    files = {**code.files, **write_surroundings(code, solver.content_hash(), __version__)}
    files |= write_wrappers(code, wrap, __version__)
    hashes = {name: _hash_bytes(text.encode()) for name, text in files.items()}
    fields = _describe_code(code)
    old = _read_manifest(folder)[1] if folder.is_dir() and os.listdir(folder) else {}
    _refuse_others(folder, (*old, *files, _MANIFEST))
    for name in old:
        (folder / name).unlink(missing_ok=True)  # names of an export's files, and no others
    for name, text in files.items():
        storage.write_bytes(folder / name, text.encode())
    document = {"longstep": "c", "version": _VERSION, "made_by": f"longstep {__version__}"}
    document |= {"solver": solver.content_hash(), **fields, "hashes": hashes}
    # Last: a folder without it is unfinished, and not taken for one of ours.
    storage.write_bytes(folder / _MANIFEST, json.dumps(document, indent=1).encode())
    return Export(folder=folder, files=tuple(files), hashes=hashes, **fields)


def _describe_code(code: Code) -> _Fields:
    return {
        "prefix": code.prefix,
        "precision": code.precision,
        "method": code.linear.words,
        "factors": len(code.problem.shift),
        "rom": code.rom,
        "ram": code.ram,
        "result": code.result,
    }


def _check_folder(folder: Path, overwrite: bool) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; the code goes to a folder")
    if not os.listdir(folder):
        return
    if not (folder / _MANIFEST).is_file():
        raise ValueError(f"{folder} has files that longstep did not write; choose a new or an empty folder")
    _read_manifest(folder)
    if not overwrite:
        raise ValueError(f"{folder} has an export already; overwrite=True (--overwrite) replaces it")


def _refuse_others(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder in which one of these files is a folder, or it or what leads to it a link to somewhere else."""
    for name in names:
        if (folder / name).is_dir():
            raise FileFormatError(f"{folder / name} is a folder, which longstep did not make; choose another folder")
        for part in (Path(name), *Path(name).parents[:-1]):
            if (folder / part).is_symlink():
                raise FileFormatError(f"{folder / part} is a link, which longstep did not make; choose another folder")


def _read_manifest(folder: Path) -> tuple[_Fields, dict[str, str]]:
    """Return what a folder's manifest says of the code, and the hashes of the files by name."""
    path = folder / _MANIFEST
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["longstep"] != "c" or document["version"] > _VERSION:
            raise FileFormatError(f"{path} is of another kind or of a newer longstep")
        fields: _Fields = {
            "prefix": document["prefix"],
            "precision": _read_text(document, "precision"),
            "method": _read_text(document, "method"),
            "factors": _read_size(document, "factors"),
            "rom": _read_size(document, "rom"),
            "ram": _read_size(document, "ram"),
            "result": _read_size(document, "result"),
        }
        check_prefix(fields["prefix"])
        return fields, _check_hashes(fields["prefix"], document["hashes"])
    except FileNotFoundError:
        raise FileFormatError(f"{folder} is no export folder of longstep: it has no {_MANIFEST}") from None
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        raise FileFormatError(f"{path} is damaged ({error})") from error


def _read_text(document: Mapping[str, object], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}, no text")
    return value


def _read_size(document: Mapping[str, object], name: str) -> int:
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise TypeError(f"{name} is {value!r}, no number of bytes or factors")
    return value


def _list_sources(prefix: str) -> tuple[str, ...]:
    """Return the files that the example program is made of."""
    return f"{prefix}.h", f"{prefix}_data.h", f"{prefix}.c", "main.c"


def _check_hashes(prefix: str, hashes: object) -> dict[str, str]:
    """Return the hashes of a manifest if they are of files that an export has, those of the program among them."""
    known = {*_list_sources(prefix), *SURROUNDINGS, *WRAPPED}
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise ValueError("it has no hashes of files")
    if foreign := sorted(set(hashes) - known):
        raise ValueError(f"it names {', '.join(map(repr, foreign[:3]))}, which is no file of an export")
    if missing := [name for name in _list_sources(prefix) if name not in hashes]:
        raise ValueError(f"it has no hash of {', '.join(missing)}")
    return hashes


def _hash_bytes(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
