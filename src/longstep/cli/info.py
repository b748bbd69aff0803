"""`longstep info`: what is in a solver's file."""

from pathlib import Path
from typing import Any

from .command import Json, Quiet, SolverFile, certificate_beside, library
from .output import Output


def info(solver: SolverFile, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show what a solver file holds: problem, names and shapes, schedule, training, range seen, certificate."""
    with Output(as_json, quiet) as output:
        ls = library()
        loaded = ls.Solver.load(solver)
        fields = {
            "file": solver,
            "bytes": solver.stat().st_size,
            **_family(loaded),
            "algorithm": type(loaded.algorithm).__name__,
            "safeguard": loaded.safeguard,
            "horizon": len(loaded.schedule),
            "memory": _memory(loaded),
            "training": _training(loaded.record),
            "seen": _seen(loaded),
            "certificate": _certificate(ls, loaded, certificate_beside(solver)),
            "content_hash": loaded.content_hash(),
        }
        steps = {name: loaded.schedule[name] for name in loaded.schedule.names}
        output.document(fields | {"schedule": {"steps": steps, "steady": loaded.schedule.steady}})
        output.show(_text(fields, str(loaded.schedule)))


def _family(solver: Any) -> dict[str, Any]:
    family = solver.family
    layout = solver.family.layout
    kinds = {} if layout is None else {"parameters": layout.parameters, "variables": layout.variables}
    return {
        "family": {
            "type": type(family).__name__,
            "unknowns": family.n,
            "constraints": family.m,
            "dtype": str(family.dtype),
        },
        **{kind: {name: list(block.shape) for name, block in blocks.items()} for kind, blocks in kinds.items()},
        "columns": None if layout is None else layout.columns,
    }


def _memory(solver: Any) -> int:
    """Bytes of all that the solver keeps ready: data and factorizations."""
    import jax

    leaves = jax.tree.leaves((solver.family, solver.plan))
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves)


def _training(record: dict[str, Any] | None) -> dict[str, Any] | None:
    if record is None:
        return None
    names = ("method", "kept", "instances", "seconds", "seed", "versions")
    return {name: record[name] for name in names if name in record}


def _seen(solver: Any) -> dict[str, Any] | None:
    if solver.seen is None:
        return None
    return {"low": solver.seen.low, "high": solver.seen.high}


def _certificate(ls: Any, solver: Any, path: Path) -> dict[str, Any] | None:
    """The certificate beside the file, and whether it is this solver's."""
    if not path.exists():
        return None
    found = ls.Certificate.load(path)
    return {"file": path, "of_this_solver": found.method_hash == solver.content_hash(), "text": str(found)}


def _text(fields: dict[str, Any], schedule: str) -> str:
    from .._util.text import in_words

    family = fields["family"]
    lines = [
        f"{fields['file']}: {fields['algorithm']} on a {family['type']} family, {family['unknowns']} unknowns, "
        f"{family['constraints']} constraints, {family['dtype']}; file {in_words(fields['bytes'])}, "
        f"in memory {in_words(fields['memory'])}"
    ]
    for kind in ("parameters", "variables"):
        if kind in fields:
            lines.append(f"{kind}: {', '.join(f'{name} {_shape(shape)}' for name, shape in fields[kind].items())}")
    lines += ["", schedule, "", *_training_text(fields["training"]), *_seen_text(fields)]
    return "\n".join([*lines, *_certificate_text(fields["certificate"], fields["file"])])


def _shape(shape: list[int]) -> str:
    return f"({'×'.join(map(str, shape))})" if shape else "(scalar)"


def _training_text(training: dict[str, Any] | None) -> list[str]:
    if training is None:
        return ["training: none, this schedule was given"]
    instances = f"from {training['instances']} instances, " if "instances" in training else ""
    versions = ", ".join(f"{name} {version}" for name, version in training["versions"].items())
    return [
        f"training: {training['kept']}; {instances}{training['seconds']:.1f} s, seed {training['seed']}",
        f"made with {versions}",
    ]


def _seen_text(fields: dict[str, Any], most: int = 8) -> list[str]:
    """The range of the first entries; all of them are in the JSON."""
    seen = fields["seen"]
    if seen is None:
        return []
    names = fields["columns"] or [f"x[{j}]" for j in range(len(seen["low"]))]
    ranges = list(zip(names, seen["low"], seen["high"], strict=True))
    shown = ", ".join(f"{name} {low:.4g}…{high:.4g}" for name, low, high in ranges[:most])
    rest = f", and {len(ranges) - most} more (--json has all)" if len(ranges) > most else ""
    return [f"range seen: {shown}{rest}"]


def _certificate_text(certificate: dict[str, Any] | None, solver: Path) -> list[str]:
    if certificate is None:
        return [f"certificate: none beside it. Make one: longstep certify {solver} --samples validation.csv --iid"]
    if not certificate["of_this_solver"]:
        return [f"certificate: {certificate['file']} is of ANOTHER solver and says nothing about this one"]
    return [f"certificate, {certificate['file']}:", certificate["text"]]
