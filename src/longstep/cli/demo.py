"""`longstep demo`: the main job on a built-in problem."""

from pathlib import Path
from typing import Annotated

import typer

from .command import AsJson, Quiet, load_library
from .output import Output


def demo(
    out: Annotated[Path, typer.Option(help="The folder for pictures, the solver and its certificate.")] = Path("demo"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn, certify and fly: model predictive control of a quadcopter, in about a minute."""
    with Output(as_json, quiet) as output:
        load_library()
        from rich.console import Console

        from ..research.demo import require_packages, run

        require_packages()

        # Made here, where stdout already is what the options ask for.
        run(out, Console(quiet=quiet))
        output.document({"folder": out, "files": sorted(path.name for path in out.iterdir() if path.is_file())})
