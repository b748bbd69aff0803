"""`longstep learn`: from a model and past data to a solver in a file."""

import enum
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import AsJson, Cache, ColumnOptions, Quiet, choose_cache, load_library, name_certificate
from .data import parse_columns
from .modelfile import ModelFile, load_model
from .output import Output
from .quick import compile_kept

if TYPE_CHECKING:
    from ..report.learned import Report
    from ..solver import Solver

# Options that change nothing of what is learned.
_NOT_REPEATED = ("cache", "as_json", "quiet")


class ProblemForm(enum.StrEnum):
    """The two forms a problem can be brought to."""

    QP = "qp"
    CONIC = "conic"


class DType(enum.StrEnum):
    """What a solver computes in."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"


def learn(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A Python file with `problem`, a cvxpy.Problem, and perhaps `sample(rng)`."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the solver goes; its certificate goes beside it.")],
    samples: Annotated[
        Path | None,
        typer.Option(help="Past values of the parameters, one instance a row: .csv, .parquet or .npz."),
    ] = None,
    columns: ColumnOptions = None,
    iid: Annotated[
        bool, typer.Option("--iid", help="I know that the samples were drawn independently from one distribution.")
    ] = False,
    horizon: Annotated[
        int | None,
        typer.Option(min=1, help="How many steps have hyperparameters of their own; by default as many as pay."),
    ] = None,
    block: Annotated[
        str, typer.Option(help="How many of them are learned at a time; 10,20 for ten, then twenty at a time.")
    ] = "10",
    train: Annotated[int | None, typer.Option(min=1, help="Instances to learn from.")] = None,
    validation: Annotated[int | None, typer.Option(min=0, help="Instances to certify with; 0 for none.")] = None,
    test: Annotated[int | None, typer.Option(min=1, help="Instances to compare on.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the instances' draw, and of training.")] = 0,
    form: Annotated[
        ProblemForm | None, typer.Option(help="OSQP's form or SCS's; chosen by the problem by default.")
    ] = None,
    dtype: Annotated[DType | None, typer.Option(help="What is computed in; float64 by default.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write tables, figures and the schedule to this folder.")
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Learn a solver for your problem, compare it on unseen instances, and certify it.

    Without --samples, instances are drawn with the model's `sample(rng)`; they are independent by nature, and a
    certificate is made. With --samples it is made only with --iid. Killed and started again, the same command goes on
    where it was.
    """
    with Output(as_json, quiet) as output:
        if out.is_dir():
            raise ValueError(f"--out {out} is a folder: name a file, such as {out / 'solver.longstep'}")
        ls = load_library(cache)
        with load_model(model) as found:
            solver, learned = ls.learn(
                found.problem,
                _choose_source(model, found, samples),
                iid=True if iid else None,
                columns=parse_columns(columns),
                form=form and form.value,
                horizon=horizon,
                block=_read_lengths(block),
                sizes=_choose_sizes(train=train, validation=validation, test=test),
                seed=seed,
                dtype=dtype and dtype.value,
                cache=choose_cache(cache),
                progress=output.progress,
            )
        learned = replace(learned, command=shlex.join(_write_command(ctx)))
        files = _write_files(solver, learned, out, report)
        output.document(files | learned.to_json())
        output.show(learned)
        past = samples is not None and not iid
        output.say(_advise(out, files["certificate_file"], report, past))


def _write_files(solver: "Solver", learned: "Report", out: Path, report: Path | None) -> dict[str, Path | None]:
    """Write the solver, its certificate and the report, of those there are; return the paths."""
    solver.save(out)
    compile_kept(out, solver)  # for `longstep solve`
    files: dict[str, Path | None] = {"file": out, "certificate_file": None, "report": report}
    if learned.certificate is not None:
        files["certificate_file"] = name_certificate(out)
        learned.certificate.save(name_certificate(out))
    if report is not None:
        learned.save(report)
    return files


def _write_command(ctx: typer.Context) -> list[str]:
    """Return the words of the command that was given, without options that are as they come."""
    words = ["longstep", "learn"]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if value is None or value == parameter.default or parameter.name in _NOT_REPEATED:
            continue
        # What may be given several times is a sequence, an empty one where it was not given.
        several = list(value) if isinstance(value, list | tuple) else [value]
        for each in several:
            if parameter.param_type_name == "option":
                words.append(max(parameter.opts, key=len))
            if each is not True:
                words.append(str(each))
    return words


def _choose_source(path: Path, model: ModelFile, samples: Path | None) -> Path | Callable[..., object]:
    """Return what instances come from: the file of --samples, else the model's sampler."""
    if samples is not None:
        return samples
    if model.sample is None:
        raise ValueError(f"there is nothing to learn from: pass --samples past.csv, or define sample(rng) in {path}")
    return model.sample


def _read_lengths(block: str) -> list[int]:
    """Return the numbers of steps of --block."""
    try:
        return [int(length) for length in block.split(",")]
    except ValueError:
        raise ValueError(f"--block takes a number of steps, or several as in 10,20, got {block!r}") from None


def _choose_sizes(**sizes: int | None) -> dict[str, int] | None:
    return {name: size for name, size in sizes.items() if size is not None} or None


def _advise(out: Path, certificate: Path | None, report: Path | None, past: bool) -> str:
    """Return what was written, and what one does with it; `past` says that samples may depend on each other."""
    files = [str(out)]
    if certificate is not None:
        files.append(str(certificate))
    if report:
        files.append(f"{report}/")
    lines = [f"Written: {', '.join(files)}", f"Next: longstep solve {out} --parameters new.csv --out solutions.csv"]
    if certificate is None:
        former = name_certificate(out)
        lines.append(f"      longstep certify {out} --samples validation.csv --iid")
        if past:
            lines.append("      or learn with --iid, if you know that the samples are independent of each other")
        if former.exists():
            lines.append(f"{former} was there before; `longstep info {out}` tells whose it is")
    return "\n".join(lines)
