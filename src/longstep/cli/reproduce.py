"""`longstep reproduce`: the published experiments, from one command each."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from .command import AsJson, Cache, Quiet, choose_cache, load_library
from .output import Output


class Name(enum.StrEnum):
    """The six experiments, and all of them."""

    RIDGE = "ridge"
    LOGISTIC = "logistic"
    LASSO = "lasso"
    DEBLURRING = "deblurring"
    KALMAN = "kalman"
    MAXCUT = "maxcut"
    ALL = "all"


class SizeName(enum.StrEnum):
    """How large."""

    SMALL = "small"
    REFERENCE = "reference"
    PAPER = "paper"


def reproduce(
    experiment: Annotated[Name, typer.Argument(help="Which one.")],
    size: Annotated[
        SizeName,
        typer.Option(help="small: seconds; reference: the sizes of the research code; paper: the published ones."),
    ] = SizeName.SMALL,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Everything goes to DIR/EXPERIMENT.")] = Path("reproduced"),
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these, separated by commas (vanilla, constant, l2ws, …); the learned one is always run."
        ),
    ] = None,
    regularization: Annotated[
        float | None, typer.Option(min=0, help="logistic alone: ε, 1e-4 by default; 0 is the published objective.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder with mnist.npz and emnist_digits.npz, before all other places."),
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a published experiment: its tables and figures, its solver and certificate go to a folder.

    Interrupted and started again, it goes on where it was; what is finished is not computed again. Images are looked
    for in --data, LONGSTEP_DATA, the cache, and OpenML.
    """
    with Output(as_json, quiet) as output:
        if regularization is not None and experiment is not Name.LOGISTIC:
            raise ValueError("--regularization is for the logistic experiment alone")
        load_library(cache)
        from ..research.experiments.reproduce import NAMES, Reproduced, reproduce
        from ..research.experiments.sizes import Choices

        options = Choices(
            size=size.value,
            seed=seed,
            methods=_split_names(methods),
            regularization=regularization,
            data=data,
            cache=choose_cache(cache),
            progress=output.progress,
        )
        found: list[Reproduced] = []
        names = NAMES
        if experiment is not Name.ALL:
            names = (experiment.value,)
        for name in names:
            done = reproduce(name, out, options, say=output.say)
            found.append(done)
            for table in done.main_tables:
                output.show(table)
                output.show("")
            output.say(f"Written to {out / name}: {', '.join(sorted(path.name for path in done.files))}")
        output.document({"experiments": {done.name: done.to_json() for done in found}})


def _split_names(methods: list[str] | None) -> tuple[str, ...] | None:
    names = [name.strip() for text in methods or [] for name in text.split(",") if name.strip()]
    return tuple(names) or None
