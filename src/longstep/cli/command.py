"""What all commands share: their options, the way to the library, and what becomes of an error."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand
from typing_extensions import override

# Exit codes: a user's mistake; instances that were not solved; interrupted, as shells have it. Usage errors are 2.
MISTAKE = 1
UNSOLVED = 3
INTERRUPTED = 130

SolverFile: TypeAlias = Annotated[Path, typer.Argument(metavar="SOLVER", help="A file that `learn` wrote.")]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout and nothing else; messages go to stderr.")
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Results and errors only: no progress, no advice, no stack trace.")
]
ColumnOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="What a table calls its columns: NAME=COLUMN,COLUMN,… for a parameter and its entries, may be given "
        "several times; or `position`, where they are in the order that `info` shows."
    ),
]
Cache: TypeAlias = Annotated[
    Path | None,
    typer.Option(envvar="LONGSTEP_CACHE", help="Where finished work is kept; ~/.cache/longstep by default."),
]


class Command(TyperCommand):
    """A command whose user never sees a stack trace for a mistake of their own, but one sentence and exit code 1."""

    @override
    def invoke(self, ctx: Any) -> object:  # a class of Click that Typer names differently from version to version
        """Run the command; what is not a user's mistake is a bug of ours and keeps its trace, unless --quiet."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail("interrupted. The same command goes on with what is finished, where it keeps a cache")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise
        except Exception as error:
            if _belongs_to_typer(error):
                raise
            if isinstance(error, _list_mistakes()):
                fail(describe_error(error))
            elif ctx.params.get("quiet"):
                said = describe_error(error)
                fail(f"a bug in longstep, {type(error).__name__}: {said}. Without --quiet it has a trace")
            else:
                raise
            raise typer.Exit(MISTAKE) from None


def register(app: typer.Typer, function: Callable[..., None], *examples: str) -> None:
    """Turn a function into a command of the same name, with examples under its help."""
    heading = "Example:"
    if len(examples) > 1:
        heading = "Examples:"
    # A list of Markdown, because paragraphs would flow into one in some versions of Typer.
    app.command(cls=Command, epilog="\n\n".join([heading, *(f"- {example}" for example in examples)]))(function)


def load_library(cache: Path | None = None) -> ModuleType:
    """Return the package, with JAX in 64 bits. Imported by commands alone, so that help is there at once.

    Compiled programs are kept in the cache, unless JAX was told of another place: a command is a new process, and a
    batch of a few milliseconds should not compile for seconds every time.
    """
    import jax

    import longstep

    longstep.enable_float64()
    from .._util.storage import cache_folder

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder(choose_cache(cache), "jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    return longstep


def choose_cache(folder: Path | None) -> "Path | bool":
    """Return the folder of --cache as the library takes it: True is the usual one."""
    if folder is None:
        return True
    return folder


def name_certificate(solver: Path) -> Path:
    """Return the path of a solver's certificate: mpc.certificate.json for mpc.longstep."""
    return solver.with_name(f"{solver.name.removesuffix('.longstep')}.certificate.json")


def fail(text: str) -> None:
    """Print an error on stderr."""
    print(f"Error: {text}", file=sys.stderr)


def describe_error(error: BaseException) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return text or "there is not enough memory"
    return text or type(error).__name__


def _list_mistakes() -> tuple[type[Exception], ...]:
    """Return the errors that say what is wrong with what was given: files, data, models, memory, missing packages."""
    from ..errors import InaccurateReferenceError

    # FileFormatError and CertificateError are ValueErrors.
    return ValueError, OSError, MemoryError, ImportError, InaccurateReferenceError


def _belongs_to_typer(error: Exception) -> bool:
    """Tell whether Typer turns it into a message and an exit code itself."""
    return isinstance(error, typer.Abort) or hasattr(error, "exit_code")
