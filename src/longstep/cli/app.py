"""The Typer application: its commands, --version, and the entry point."""

from typing import Annotated

import typer

from .certify import certify
from .command import register
from .demo import demo
from .doctor import doctor
from .evaluate import evaluate
from .export import export_c
from .info import info
from .learn import learn
from .report import report
from .reproduce import reproduce
from .solve import solve

app = typer.Typer(
    name="longstep",
    no_args_is_help=True,
    add_completion=True,  # by Typer itself: --install-completion for bash, zsh, fish and PowerShell
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # in which docstrings flow
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"longstep {__version__}")
        raise typer.Exit


@app.callback(
    help="Learned hyperparameter schedules for first-order solvers of parametric convex problems.",
    epilog="Exit codes: 0 fine, 1 a mistake in what was given, 2 usage, 3 some instances not solved.",
)
def _take_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


register(
    app,
    learn,
    "longstep learn model.py --samples past.csv --out mpc.longstep",
    "longstep learn model.py --out mpc.longstep --report report",
)
register(
    app,
    solve,
    "longstep solve mpc.longstep --parameters new.csv --out solutions.csv",
    "longstep solve mpc.longstep --parameters in.parquet --out out.parquet --shard 1/8",
)
register(
    app,
    certify,
    "longstep certify mpc.longstep --samples validation.csv --iid --iterations 20 --tolerance 1e-3",
    "longstep certify mpc.longstep --samples validation.csv --check mpc.certificate.json",
)
register(app, evaluate, "longstep evaluate mpc.longstep --samples test.csv")
register(app, report, "longstep report report --out page.html", "longstep report report/report.json --out page.html")
register(app, info, "longstep info mpc.longstep")
register(app, export_c, "longstep export-c mpc.longstep --out mpc_c --prefix mpc")
register(app, demo, "longstep demo --out demo")
register(
    app,
    reproduce,
    "longstep reproduce lasso --size small --out reproduced",
    "longstep reproduce all --size paper --out reproduced",
)
register(app, doctor, "longstep doctor --json")


def main() -> None:
    """Run the command `longstep`."""
    app(prog_name="longstep")
