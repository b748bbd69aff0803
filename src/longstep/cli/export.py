"""`longstep export-c`: a learned solver as plain C."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .command import AsJson, Quiet, SolverFile, load_library
from .output import Output


class Scalar(StrEnum):
    """What the C code computes in."""

    double = "double"
    float = "float"


class LinearAlgebra(StrEnum):
    """The linear algebra of a step."""

    auto = "auto"
    sparse = "sparse"
    blocks = "blocks"
    inverse = "inverse"
    augmented = "augmented"


class Wrapper(StrEnum):
    """Folders around the code, for other languages."""

    rust = "rust"
    ros2 = "ros2"


def export_c(
    solver: SolverFile,
    out: Annotated[
        Path, typer.Option(help="The folder for the code; new, empty, or with --overwrite an older export.")
    ],
    prefix: Annotated[str, typer.Option(help="What all names begin with.")] = "longstep",
    precision: Annotated[Scalar, typer.Option(help="What the code computes in.")] = Scalar.double,
    method: Annotated[
        LinearAlgebra, typer.Option(help="Linear algebra: sparse takes the least memory, auto what should be fastest.")
    ] = LinearAlgebra.auto,
    wrap: Annotated[
        list[Wrapper] | None,
        typer.Option(help="Add a folder: rust, a crate; ros2, a template of a node. May be given twice."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an export that is there.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a learned solver as plain C99, for machines without Python, down to microcontrollers.

    The folder has the code, a header to read, an example program, a Makefile, a CMakeLists and a README that says how
    much memory it takes and how to call it.
    """
    with Output(as_json, quiet) as output:
        ls = load_library()
        from .._util.text import describe_bytes

        export = ls.generate_c(
            ls.Solver.load(solver),
            out,
            prefix=prefix,
            precision=precision.value,
            method=method.value,
            wrap=[each.value for each in wrap or ()],
            overwrite=overwrite,
        )
        output.document(
            {
                "folder": export.folder,
                "files": export.files,
                "rom": export.rom,
                "ram": export.ram,
                "result": export.result,
                "method": export.method,
                "factors": export.factors,
            }
        )
        output.show(
            f"{export.folder}: {', '.join(export.files)}\n{export.method}; constants {describe_bytes(export.rom)}, "
            f"workspace {describe_bytes(export.ram)}, result {describe_bytes(export.result)}"
        )
        output.say(f"Next: make -C {export.folder} && {export.folder / f'{export.prefix}_example'}")
