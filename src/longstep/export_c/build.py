"""From C to a shared library: which compiler, with which options, kept by content."""

import errno
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .._util import storage
from .._util.hashing import content_hash
from ..errors import CompilerError, NoCompilerError, NoRoomError
from . import emit
from .code import Code
from .declarations import write_declarations
from .kept import describe_machine, hash_library, is_intact, locate_digest
from .library import locate_declarations, locate_factors

# NaN and infinities keep their meaning; sums may be taken in any order. GCC's -O3 unrolls the short loops of blocks
# before it makes vectors of them, which was measured a quarter slower on the quadcopter than this.
SAFE = (
    *("-O2", "-ftree-vectorize", "-fno-tree-slp-vectorize", "-fpeel-loops"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)


def find_compiler() -> list[str]:
    """Return the command in CC, else cc, gcc or clang."""
    commands = [["cc"], ["gcc"], ["clang"]]
    tried = "cc, gcc and clang"
    if chosen := shlex.split(os.environ.get("CC", "")):
        commands = [chosen]
        tried = f"CC={chosen[0]}"
    for command in commands:
        if shutil.which(command[0]):
            return command
    raise NoCompilerError(f"no C compiler was found (tried {tried}). Install one, or set CC to its command")


def run_compiler(arguments: list[str], folder: Path) -> None:
    """Run the compiler in a folder; what it says is in the error."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and os.strerror(errno.ENOSPC) in done.stderr:
        raise _refuse_room(os.strerror(errno.ENOSPC))
    if done.returncode:
        raise CompilerError(f"the compiler failed: {' '.join(arguments)}\n{done.stderr.strip()}")


def build_library(code: Code, cache: "str | Path | bool" = True) -> Path:
    """Return the path of a code's library, which is built unless it is in the cache.

    What its header declares lies beside it, with what is for Python alone, and large factors. The prefix is longstep.
    """
    compiler = find_compiler()
    options = [*SAFE, "-std=c99", "-march=native", "-fPIC", "-shared"]
    described = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    files = dict(code.files)
    header = code.header + emit.read_part("loaded.h")
    values = code.values
    files["longstep.h"] = header
    files["longstep.c"] += emit.read_part("batch.c")
    if values is not None:
        files["longstep.c"] += emit.read_part("apart.c")
    key = content_hash(files, compiler, options, described, describe_machine(), values)
    folder = storage.cache_folder(cache, "c")
    kept = None
    if folder is not None:
        kept = folder / f"{key[:32]}.so"
    if kept is not None and is_intact(kept):
        return kept
    with _tell_of_room():
        library = _compile(files, [*compiler, *options, "longstep.c", "-o", "solver.so", "-lm"])
        declarations = write_declarations(header)
    if kept is not None and storage.keep(kept, lambda: _store(kept, library, declarations, values)):
        return kept
    with _tell_of_room():
        path = Path(tempfile.mkdtemp(prefix="longstep-")) / "solver.so"
        _store(path, library, declarations, values)
    return path


@contextmanager
def _tell_of_room() -> Iterator[None]:
    """Turn what a disk refuses into an error of compiling: whoever can do without C goes on."""
    try:
        yield
    except OSError as error:
        raise _refuse_room(error.strerror or str(error)) from error


def _refuse_room(reason: str) -> NoRoomError:
    return NoRoomError(
        f"there is no room to build C ({reason}). Make room, or set TMPDIR to a folder that can be written"
    )


def _compile(files: dict[str, str], command: list[str]) -> bytes:
    """Return the library that the compiler makes of these files."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in files.items():
            (Path(scratch) / name).write_text(text, encoding="utf-8")
        run_compiler(command, Path(scratch))
        return (Path(scratch) / "solver.so").read_bytes()


def _store(path: Path, library: bytes, declarations: str, values: np.ndarray | None) -> None:
    """Write a library with what lies beside it; the hash last, so that what is not whole is not intact."""
    if values is not None:
        storage.write_bytes(locate_factors(path), values.tobytes())
    storage.write_bytes(locate_declarations(path), declarations.encode())
    storage.write_bytes(path, library)
    storage.write_bytes(locate_digest(path), hash_library(path).encode())
