"""`longstep info`: what is in a solver's file."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypedDict

from .command import AsJson, Quiet, SolverFile, load_library, name_certificate
from .output import Output

if TYPE_CHECKING:
    from ..families.names import Layout
    from ..solver import Solver


class FamilyFacts(TypedDict):
    """The family of a solver in a few words."""

    type: str
    unknowns: int
    constraints: int
    dtype: str


class SeenFacts(TypedDict):
    """The range that training saw."""

    low: list[float]
    high: list[float]


class CertificateFacts(TypedDict):
    """The certificate beside a solver's file, and whether it is this solver's."""

    file: Path
    of_this_solver: bool
    text: str


class Shapes(TypedDict, total=False):
    """The shapes of parameters and variables by name, where the family has names."""

    parameters: dict[str, list[int]]
    variables: dict[str, list[int]]


class Facts(Shapes):
    """What is shown of a solver's file."""

    file: Path
    bytes: int
    family: FamilyFacts
    columns: list[str] | None
    algorithm: str
    safeguard: str | None
    horizon: int
    memory: int
    training: dict[str, Any] | None
    seen: SeenFacts | None
    certificate: CertificateFacts | None
    content_hash: str


def info(solver: SolverFile, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Show what a solver file holds: problem, names and shapes, schedule, training, range seen, certificate."""
    with Output(as_json, quiet) as output:
        ls = load_library()
        loaded = ls.Solver.load(solver)
        facts = _collect(loaded, solver, _read_certificate(ls, loaded, name_certificate(solver)))
        steps = {name: loaded.schedule[name] for name in loaded.schedule.names}
        output.document({**facts, "schedule": {"steps": steps, "steady": loaded.schedule.steady}})
        output.show(_describe(facts, str(loaded.schedule)))


def _collect(solver: "Solver", path: Path, certificate: CertificateFacts | None) -> Facts:
    """Return what is shown of a solver from this file."""
    family = solver.family
    layout = family.layout
    columns = None
    if layout is not None:
        columns = layout.columns
    seen: SeenFacts | None = None
    if solver.seen is not None:
        seen = {"low": solver.seen.low.tolist(), "high": solver.seen.high.tolist()}
    return {
        "file": path,
        "bytes": path.stat().st_size,
        "family": {
            "type": type(family).__name__,
            "unknowns": family.n,
            "constraints": family.m,
            "dtype": str(family.dtype),
        },
        **_list_shapes(layout),
        "columns": columns,
        "algorithm": type(solver.algorithm).__name__,
        "safeguard": solver.safeguard,
        "horizon": len(solver.schedule),
        "memory": _count_bytes(solver),
        "training": _pick_training(solver.record),
        "seen": seen,
        "certificate": certificate,
        "content_hash": solver.content_hash(),
    }


def _list_shapes(layout: "Layout | None") -> Shapes:
    if layout is None:
        return {}
    return {
        "parameters": {name: list(block.shape) for name, block in layout.parameters.items()},
        "variables": {name: list(block.shape) for name, block in layout.variables.items()},
    }


def _count_bytes(solver: "Solver") -> int:
    """Return the bytes of all that the solver keeps ready: data and factorizations."""
    import jax

    leaves = jax.tree.leaves((solver.family, solver.plan))
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in leaves)


def _pick_training(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what is shown of the record of a training."""
    if record is None:
        return None
    names = ("method", "kept", "instances", "seconds", "seed", "versions")
    return {name: record[name] for name in names if name in record}


def _read_certificate(ls: ModuleType, solver: "Solver", path: Path) -> CertificateFacts | None:
    """Return the certificate of this path, and whether it is this solver's; None where there is none."""
    if not path.exists():
        return None
    found = ls.Certificate.load(path)
    return {"file": path, "of_this_solver": found.method_hash == solver.content_hash(), "text": str(found)}


def _describe(facts: Facts, schedule: str) -> str:
    """Return all of it for people."""
    from .._util.text import describe_bytes

    family = facts["family"]
    lines = [
        f"{facts['file']}: {facts['algorithm']} on a {family['type']} family, {family['unknowns']} unknowns, "
        f"{family['constraints']} constraints, {family['dtype']}; file {describe_bytes(facts['bytes'])}, "
        f"in memory {describe_bytes(facts['memory'])}"
    ]
    for kind in ("parameters", "variables"):
        if (shapes := facts.get(kind)) is not None:
            lines.append(f"{kind}: {', '.join(f'{name} {_show_shape(shape)}' for name, shape in shapes.items())}")
    lines += ["", schedule, "", *_describe_training(facts["training"]), *_describe_seen(facts)]
    return "\n".join([*lines, *_describe_certificate(facts["certificate"], facts["file"])])


def _show_shape(shape: list[int]) -> str:
    if not shape:
        return "(scalar)"
    return f"({'×'.join(map(str, shape))})"


def _describe_training(training: Mapping[str, Any] | None) -> list[str]:
    if training is None:
        return ["training: none, this schedule was given"]
    instances = ""
    if "instances" in training:
        instances = f"from {training['instances']} instances, "
    if "kept" not in training or "seconds" not in training:
        return ["training: its record says no more"]
    lines = [f"training: {training['kept']}; {instances}{training['seconds']:.1f} s, seed {training.get('seed', '?')}"]
    if "versions" in training:
        lines.append("made with " + ", ".join(f"{name} {version}" for name, version in training["versions"].items()))
    return lines


def _describe_seen(facts: Facts, most: int = 8) -> list[str]:
    """Return the range of the first entries; all of them are in the JSON."""
    seen = facts["seen"]
    if seen is None:
        return []
    names = facts["columns"] or [f"x[{j}]" for j in range(len(seen["low"]))]
    ranges = list(zip(names, seen["low"], seen["high"], strict=True))
    shown = ", ".join(f"{name} {low:.4g}…{high:.4g}" for name, low, high in ranges[:most])
    if len(ranges) > most:
        shown += f", and {len(ranges) - most} more (--json has all)"
    return [f"range seen: {shown}"]


def _describe_certificate(certificate: CertificateFacts | None, solver: Path) -> list[str]:
    if certificate is None:
        return [f"certificate: none beside it. Make one: longstep certify {solver} --samples validation.csv --iid"]
    if not certificate["of_this_solver"]:
        return [f"certificate: {certificate['file']} is of ANOTHER solver and says nothing about this one"]
    return [f"certificate, {certificate['file']}:", certificate["text"]]
