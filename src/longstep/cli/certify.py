"""`longstep certify`: a promise about unseen instances, or a check of one that was made."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .command import AsJson, Cache, ColumnOptions, Quiet, SolverFile, choose_cache, load_library, name_certificate
from .data import read_split
from .output import Output

if TYPE_CHECKING:
    from ..certificates.certificate import Certificate
    from ..data.dataset import Split
    from ..solver import Solver


def certify(
    solver: SolverFile,
    samples: Annotated[Path, typer.Option(help="Instances that training never saw: .csv, .parquet or .npz.")],
    columns: ColumnOptions = None,
    iid: Annotated[
        bool, typer.Option("--iid", help="I know that these instances were drawn independently from one distribution.")
    ] = False,
    iterations: Annotated[
        list[int] | None, typer.Option(min=0, help="A number of steps; may be given several times. 20 by default.")
    ] = None,
    tolerance: Annotated[
        list[float] | None,
        typer.Option(help="How often the metric is below it; may be given several times. Without: a bound at --level."),
    ] = None,
    level: Annotated[float, typer.Option(min=0, max=1, help="The quantile to bound, without --tolerance.")] = 0.975,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="With which all claims hold together.")] = 0.997,
    metric: Annotated[
        str | None, typer.Option(help="residual, residual_max, primal, dual, gap or suboptimality.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the certificate goes; beside the solver by default.")] = None,
    check: Annotated[
        Path | None, typer.Option(help="Compute this certificate again, from the same samples, and compare.")
    ] = None,
    cache: Cache = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what can be promised of a solver on unseen instances, or check such a promise with --check.

    The bounds hold only if the samples, and the instances that the solver will meet, are drawn independently from one
    distribution. No file can show that, so it has to be said: --iid. Choose iterations and tolerances before you look
    at the samples.
    """
    with Output(as_json, quiet) as output:
        ls = load_library(cache)
        if check is None and not iid:
            raise ValueError(
                "a certificate needs instances that were drawn independently from one distribution, and a table cannot "
                "show that (a log of one day after another is not): say --iid if you know it"
            )
        loaded = ls.Solver.load(solver)
        known = None
        if check is not None:
            known = ls.Certificate.load(check)
            metric = known.metric
        validation = read_split(
            loaded, samples, columns, "validation", metric, choose_cache(cache), output.progress, iid
        )
        if known is not None:
            _verify(known, check, loaded, validation, output)
            return
        found = ls.certify(
            loaded,
            validation,
            iterations or [20],
            tolerance or None,
            level=level,
            confidence=confidence,
            metric=metric,
            progress=output.progress,
        )
        path = out or name_certificate(solver)
        found.save(path)
        output.document({"file": path, "certificate": found.to_json()})
        output.show(found)
        output.say(f"Written: {path}\nNext: longstep certify {solver} --check {path} --samples {samples}")


def _verify(known: "Certificate", file: Path | None, solver: "Solver", validation: "Split", output: Output) -> None:
    """Compute a certificate again, from the file of --check, and say that it is the same; another one is an error."""
    known.verify(solver, validation, progress=output.progress)
    output.document({"verified": True, "file": file, "certificate": known.to_json()})
    output.show(known)
    output.show(f"Verified: computed again from {len(validation)} instances, {file} says the same.")
