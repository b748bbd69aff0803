"""Measure what the texts claim, and say what no longer holds.

    python -m evidence [--quick] [--only JOB ...] [--out FOLDER]   measure, compare, write the folder's summary
    python -m evidence --rows                                      compare the texts with the rows that are kept
    python -m evidence --accept [--out FOLDER]                     keep a full run's results as rows
    python -m evidence --write                                     write the tables of the texts from the rows

A run goes on where it was: jobs whose results are there, by the same command and code, are not run again. It ends with
1 where a claim does not hold or a command failed.
"""

import argparse
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longstep._util.storage import write_bytes
from longstep._util.table import Column, Table

from .claims import Verdict, check_words, judge, read_claims
from .jobs import Job, Outcome, describe_machine, read_jobs, read_json, run_job, write_json
from .tables import list_claims, read_rows, rewrite, write_markdown

ROOT = Path(__file__).resolve().parents[1]


def list_texts(root: Path) -> list[Path]:
    """Return the README and the pages of the documentation."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def measure(jobs: Mapping[str, Job], only: Sequence[str], folder: Path, root: Path, quick: bool) -> dict[str, Outcome]:
    """Run the jobs, or only some of them, and return their outcomes."""
    seeds = [seed for job in jobs.values() for seed in job.seeds]
    write_json(folder / "machine.json", describe_machine(seeds, root) | {"quick": quick})
    outcomes = {}
    for name, job in jobs.items():
        if only and name not in only:
            outcomes[name] = Outcome(absent="not asked for")
            continue
        print(f"{name} …", end=" ", flush=True)
        found = outcomes[name] = run_job(job, folder, root, quick)
        print(f"not measured: {found.absent}" if found.absent else f"{found.seconds:.0f} s", flush=True)
    return outcomes


def summarise(outcomes: Mapping[str, Outcome], verdicts: Sequence[Verdict], folder: Path) -> int:
    """Print and write all verdicts; return 1 where something failed."""
    cells = list_claims(verdicts)
    print(Table("Claims", tuple(map(Column, cells[0])), tuple(map(tuple, cells[1:]))).text())
    wrong = [verdict for verdict in verdicts if verdict.holds is False]
    failed = [name for name, outcome in outcomes.items() if outcome.failed]
    machine = read_json(folder / "machine.json")
    lines = [f"# Evidence of {machine['date']}, commit {machine['commit']}", ""]
    jobs = [["job", "seconds", "state"]]
    jobs += [[name, f"{o.seconds:.0f}", o.absent or "measured"] for name, o in outcomes.items()]
    lines += [*write_markdown(jobs), "", *write_markdown(cells), ""]
    lines += [f"No longer holds: {describe(verdict)}" for verdict in wrong] or ["All that was measured holds."]
    write_bytes(folder / "summary.md", ("\n".join(lines) + "\n").encode())
    write_json(folder / "claims.json", [dict(zip(cells[0], row, strict=True)) for row in cells[1:]])
    for verdict in wrong:
        print(f"No longer holds: {describe(verdict)}", file=sys.stderr)
    for name in failed:
        print(f"Failed: {name}, {outcomes[name].absent}", file=sys.stderr)
    held = sum(verdict.holds is True for verdict in verdicts)
    others = len(verdicts) - held - len(wrong)
    print(f"{held} hold, {len(wrong)} do not, {others} not measured. All of it: {folder / 'summary.md'}")
    return int(bool(wrong or failed))


def describe(verdict: Verdict) -> str:
    """Return which sentence of which file is to be mended."""
    quantity = verdict.quantity
    found = verdict.reason or f"measured {verdict.shown}, said {quantity.direction} {quantity.target:.3g}"
    return f"{verdict.claim.id}, {quantity.said!r} ({found}). Mend {verdict.claim.file}: “{verdict.claim.words}”"


def accept(jobs: Mapping[str, Job], folder: Path, rows: Path) -> list[str]:
    """Keep the results of a full run as rows; return the names of the jobs."""
    machine = read_json(folder / "machine.json")
    if machine is None or machine["quick"]:
        raise SystemExit(f"there is no full run in {folder}: run python -m evidence first, without --quick")
    accepted = []
    for name, job in jobs.items():
        runs = list(job.list_runs(folder, quick=False))
        stamps = [read_json(run.stamp) or {} for run in runs]
        if any(stamp.get("code_of_return") != 0 for stamp in stamps):
            continue
        results = {str(run.seed): shorten(read_json(run.out), job.leave_out) for run in runs}
        text = f"{machine['cores']} cores, {machine['processor']}"
        document = {"origin": "measured", "date": stamps[-1]["date"], "commit": stamps[-1]["commit"]}
        document |= {"machine": {"text": text} | machine, "command": job.command, "results": results}
        write_json(rows / f"{name}.json", document)
        accepted.append(name)
    return accepted


def shorten(document: Any, leave_out: Iterable[str]) -> Any:
    """Return a result without some keys, its numbers to twelve digits."""
    if isinstance(document, dict):
        return {key: shorten(value, leave_out) for key, value in document.items() if key not in leave_out}
    if isinstance(document, list):
        return [shorten(value, leave_out) for value in document]
    return float(f"{document:.12g}") if isinstance(document, float) else document


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Do what is asked for, and return the status to exit with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller runs, under twenty minutes on two cores")
    parser.add_argument("--only", nargs="+", default=[], metavar="JOB")
    parser.add_argument("--out", type=Path, help="out/evidence, or out/evidence-quick")
    modes = parser.add_mutually_exclusive_group()
    for mode in ("rows", "accept", "write"):
        modes.add_argument(f"--{mode}", action="store_true")
    options = parser.parse_args(arguments)
    folder = (options.out or root / "out" / ("evidence-quick" if options.quick else "evidence")).resolve()
    jobs = read_jobs(root / "evidence" / "jobs.toml")
    claims = read_claims(root / "evidence" / "claims.toml")
    if unknown := set(options.only) - set(jobs):
        parser.error(f"there is no job {', '.join(sorted(unknown))}; there are {', '.join(jobs)}")
    if wrong := check_words(claims, list(jobs), root):
        print("evidence/claims.toml does not fit the texts:", *wrong, sep="\n", file=sys.stderr)
        return 1
    if options.accept:
        print("Rows kept:", ", ".join(accept(jobs, folder, root / "evidence" / "rows")) or "none")
        return 0
    if options.rows or options.write:
        rows = read_rows(root / "evidence" / "rows")
        verdicts = judge(claims, {name: kept["results"] for name, kept in rows.items() if name != "said"}, {})
        if options.write:
            for path in list_texts(root):
                write_bytes(path, rewrite(path.read_text(encoding="utf-8"), rows, verdicts).encode())
            return 0
        print(*write_markdown(list_claims(verdicts)), sep="\n")
        wrong = [describe(verdict) for verdict in verdicts if verdict.holds is False]
        print(*(f"No longer holds: {text}" for text in wrong), sep="\n", file=sys.stderr)
        return int(bool(wrong))
    try:
        outcomes = measure(jobs, options.only, folder, root, options.quick)
    except KeyboardInterrupt:
        again = f"make evidence{' QUICK=1' if options.quick else ''}"
        print(f"\nInterrupted. Results are kept in {folder}; the same command goes on: {again}", file=sys.stderr)
        return 130
    absent = {name: outcome.absent for name, outcome in outcomes.items()}
    results = {name: outcome.results for name, outcome in outcomes.items() if not outcome.absent}
    return summarise(outcomes, judge(claims, results, absent, options.quick), folder)


if __name__ == "__main__":
    # A run that is ended from outside ends its job too, as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
