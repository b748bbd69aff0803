"""`longstep report`: a page of HTML from what `learn` saved."""

from pathlib import Path
from typing import Annotated

import typer

from .command import AsJson, Quiet
from .output import Output


def report(
    source: Annotated[
        Path, typer.Argument(metavar="REPORT", help="The folder of `learn --report`, or the report.json in it.")
    ],
    out: Annotated[Path, typer.Option(help="Where the page goes, such as page.html.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make one page of HTML from a saved report: verdict, before and now, convergence, promise, how to reproduce it.

    The page is one file that needs no network, with pictures in it, for a browser or for print.
    """
    with Output(as_json, quiet) as output:
        if out.is_dir():
            raise ValueError(f"--out {out} is a folder: name a file, such as {out / 'page.html'}")
        from ..report.document import load_document
        from ..report.page import write_page

        document = load_document(source)
        write_page(document, out)
        output.document({"file": out, "bytes": out.stat().st_size, "verdict": document.verdict})
        output.show(document.verdict or f"Kept: {document.kept}.")
        output.say(f"Written: {out}. Open it in a browser")
