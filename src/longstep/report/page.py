"""A report as one page of HTML: verdict, before and now, convergence, what was learned, time, promise, origin.

Nothing is fetched: pictures are inline SVG, style and script are in the page, and all is there without the script.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from .._util import storage
from .._util.text import count_text, percent, seconds_text, tolerance_text
from .._util.version import __version__
from ..certificates.certificate import Certificate
from ..certificates.document import read_object
from ..evaluation.evaluate import TOLERANCES
from .charts import MOST_GROUPS, choose_colours, draw_metric, draw_schedule, draw_times
from .comparisons import make_key, order_rows, show_convergence, show_costs
from .document import CostRow, ReportDocument
from .markup import Markup, join, tag
from .tables import Table, certificate_table

PAGE = "report.html"


def write_page(document: ReportDocument, path: Path) -> None:
    """Write the page of a report to a file, atomically."""
    storage.write_bytes(path, make_page(document).encode())


def make_page(document: ReportDocument) -> str:
    """Return the page of a report as HTML."""
    methods = [row.method for row in document.costs] + [c.method for c in document.curves]
    colours = choose_colours(methods)
    sections = [
        _show_head(document),
        show_costs(document, colours),
        show_convergence(document, colours),
        _show_learned(document),
        _show_times(document),
        _show_certificate(document),
        _show_origin(document),
    ]
    return _read_template("page.html").substitute(
        title=join(_name_problem(document)),
        version=join(__version__),
        style=_read_template("page.css").template,
        script=_read_template("page.js").template,
        body="\n".join(section for section in sections if section),
    )


def frame_page(document: ReportDocument) -> str:
    """Return the page in a frame, for notebooks: its style and theirs stay apart."""
    style = "width:100%;height:720px;border:1px solid #d5dae0;border-radius:6px"
    return tag("iframe", srcdoc=make_page(document), sandbox="allow-scripts", title="longstep report", style=style)


def _read_template(name: str) -> Template:
    return Template((files("longstep.report") / "templates" / name).read_text(encoding="utf-8"))


def _name_problem(document: ReportDocument) -> str:
    problem = document.problem
    if not problem:
        return "longstep report"
    variables = problem.get("variables")
    names = ""
    if variables:
        names = f" over {', '.join(read_object(variables))}"
    return (
        f"longstep report: {problem.get('type')}{names}, {problem.get('unknowns')} unknowns, "
        f"{problem.get('constraints')} rows"
    )


def _show_head(document: ReportDocument) -> Markup:
    """Return the verdict, with the rest of what it says, and the figures behind it."""
    verdict = document.verdict or _state_verdict(document)
    first, dot, rest = verdict.partition(". ")
    facts = _list_figures(document.costs)
    parts = [tag("h1", _name_problem(document)), tag("p", first + dot.strip(), class_="verdict")]
    if rest:
        parts.append(tag("p", rest))
    if facts:
        parts.append(tag("ul", *(tag("li", tag("b", big), tag("span", small)) for big, small in facts), class_="facts"))
    return tag("header", *parts)


def _state_verdict(document: ReportDocument) -> str:
    """Return a verdict where steps to an end were not counted: iterations to the least tolerance that is reached."""
    for tolerance in sorted(TOLERANCES):
        found = {c.method: c.find_reached(tolerance, c.mean)[1] for c in document.curves if c.whole}
        if found and next(iter(found.values())) is not None:
            told = ", ".join(f"{name} {'never' if k is None else k}" for name, k in found.items())
            return f"Iterations until the mean stays below {tolerance_text(tolerance)}: {told}. Kept: {document.kept}."
    return f"Kept: {document.kept}."


def _list_figures(costs: Sequence[CostRow]) -> list[tuple[str, str]]:
    """Return the steps and the time of what a user had before, the package or the defaults, and those he has now."""
    if not costs:
        return []
    eps = min(row.eps for row in costs)
    rows = order_rows([row for row in costs if row.eps == eps], costs[0])
    before = rows[0]
    now = rows[-1]
    if before is now:
        return []
    words = f"to {tolerance_text(eps)}, {before.method} → {now.method}"
    worst = count_text(before.worst)
    if before.unsolved:
        worst = f"more than {worst}"
    pairs = [
        (f"{count_text(before.median)} → {count_text(now.median)}", f"median steps {words}"),
        (f"{worst} → {count_text(now.worst)}", f"worst steps {words}"),
    ]
    if before.seconds is not None and now.seconds is not None:
        time = f"{seconds_text(before.seconds)} → {seconds_text(now.seconds)}"
        ways = {True: "C", False: "batch in JAX"}
        how = f"{ways[before.is_package]} → {ways[now.compiled]}"
        pairs.append((time, f"an instance ({how}) to {tolerance_text(eps)}"))
    return pairs


def _show_learned(document: ReportDocument) -> Markup | str:
    """Return the schedule and the metric, on the problem's own constraints."""
    learned = document.learned
    if learned is None:
        return ""
    told = f"Kept: {document.kept}, steps of {learned.algorithm}. Hyperparameters are in equilibrated units."
    parts: list[Markup] = [tag("h2", "What was learned"), tag("p", told, class_="more")]
    if learned.varying:
        styles = [("learned", "line c0 median"), ("steady state", "line c0 thick")]
        styles += [("best constant", "line const"), ("default", "line usual")]
        parts += [make_key(styles), tag("div", draw_schedule(learned), class_="panels")]
    if learned.metric:
        told = (
            "The metric: by how much the penalty of each row is raised (above 1) or lowered, on the constraints as "
            "they were written. Point at a bar for its row and the unknowns in it."
        )
        if len(learned.metric) > MOST_GROUPS:
            told += f" These are {MOST_GROUPS} of {len(learned.metric)} constraints; report.json has all."
        parts += [tag("p", told, class_="more"), tag("div", draw_metric(learned.metric), class_="panels")]
    elif document.costs:
        parts.append(tag("p", "No metric: all rows of a kind have the same penalty.", class_="more"))
    return tag("section", *parts)


def _show_times(document: ReportDocument) -> Markup | str:
    """Return where the time of learning went."""
    if not document.timing:
        return ""
    rest = document.seconds - sum(document.timing.values())
    timing = {name: seconds for name, seconds in document.timing.items() if seconds > 0}
    if rest > max(0.01 * document.seconds, 0.0):
        timing["all else"] = rest
    parts: list[Markup] = [tag("h2", "Where the time of learning went")]
    parts += [
        tag("p", f"{seconds_text(document.seconds)} in all.", class_="more"),
        draw_times(timing, document.seconds),
    ]
    inside = _sum_parts(document.origin)
    if inside:
        told = f"Inside the training that is kept: {seconds_text(sum(inside.values()))}"
        if sum(inside.values()) > 1.5 * document.timing.get("training", 0.0):
            told += ", spent by an earlier call, whose result was in the cache"
        parts += [tag("p", f"{told}.", class_="more"), draw_times(inside, sum(inside.values()))]
    return tag("section", *parts)


def _sum_parts(origin: Mapping[str, object]) -> dict[str, float]:
    """Return the seconds of a training by kind of part."""
    found: dict[str, float] = {}
    parts = origin.get("parts")
    if not isinstance(parts, list):
        return found
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("seconds"), int | float):
            kind = str(part.get("kind"))
            found[kind] = found.get(kind, 0.0) + float(part["seconds"])
    return found


def _show_certificate(document: ReportDocument) -> Markup:
    """Return the certificate in a sentence, all of it behind; where there is none, why."""
    certificate = document.certificate
    parts: list[Markup] = [tag("h2", "What is promised")]
    if certificate is None:
        return tag("section", *parts, tag("p", _explain_absence(document)))
    parts.append(tag("p", _choose_sentence(certificate)))
    table = certificate_table(certificate)
    rest = [tag("p", line) for line in str(certificate).split("\n")]
    parts.append(tag("details", tag("summary", "All that is claimed, and on what it rests"), _show_table(table), *rest))
    return tag("section", *parts)


def _explain_absence(document: ReportDocument) -> str:
    return next((note for note in document.notes if "certificate" in note), "There is no certificate.")


def _choose_sentence(certificate: Certificate) -> str:
    """Return the claim that says most: of the finish where there is one, else that after the most steps."""
    if certificate.exact is not None and certificate.exact.changes != float("inf"):
        exact = certificate.exact
        return (
            f"At least {percent(exact.success)} of unseen instances are exact after {exact.steps} steps and at most "
            f"{exact.changes} changes of the active set, with confidence {certificate.confidence:.4g}."
        )
    return certificate.sentence(max(certificate.claims, key=lambda claim: claim.iterations))


def _show_table(table: Table) -> Markup:
    """Return a table of the report as HTML."""
    head, *body = table.cells()
    rows = [tag("tr", *(tag("td", cell) for cell in row)) for row in body]
    whole = tag("table", tag("thead", tag("tr", *(tag("th", cell) for cell in head))), tag("tbody", *rows))
    return tag("div", whole, class_="wide")


def _show_origin(document: ReportDocument) -> Markup:
    """Return how to do it again: command, seed, instances, versions, hashes, and what else is worth knowing."""
    origin = document.origin
    parts: list[Markup] = [tag("h2", "How to reproduce it")]
    if origin.get("command"):
        parts.append(tag("pre", str(origin["command"])))
    splits = ", ".join(f"{count_text(size)} {name}" for name, size in document.instances.items())
    facts: dict[str, object] = {"instances": splits, "seed": origin.get("seed")}
    versions = origin.get("versions")
    if isinstance(versions, dict):
        facts["versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    settings = origin.get("settings")
    if isinstance(settings, dict):
        facts["settings of training"] = _show_settings(settings)
    facts |= {"hash of the family": origin.get("family_hash"), "hash of training data": origin.get("data_hash")}
    for kind in ("parameters", "variables"):
        named = document.problem.get(kind)
        if isinstance(named, dict):
            facts[kind] = ", ".join(f"{name} {_show_shape(shape)}" for name, shape in named.items())
    rows = [
        tag("tr", tag("th", name, scope="row"), tag("td", str(value), class_="words"))
        for name, value in facts.items()
        if value is not None
    ]
    parts.append(tag("div", tag("table", tag("tbody", *rows)), class_="wide"))
    told = _explain_absence(document)
    parts += [tag("p", note) for note in document.notes if note != told]
    parts.append(tag("footer", f"Made with longstep {__version__}."))
    return tag("section", *parts)


def _show_settings(settings: Mapping[str, object]) -> str:
    """Return settings in words, those inside others in brackets, without what was not set."""
    words = []
    for name, value in settings.items():
        shown = value
        if isinstance(value, dict):
            shown = f"({_show_settings(value)})"
        elif isinstance(value, list):
            shown = " ".join(map(str, value))
        if shown not in (None, "()", ""):
            words.append(f"{name} {shown}")
    return ", ".join(words)


def _show_shape(shape: object) -> str:
    if not isinstance(shape, list) or not shape:
        return "(scalar)"
    return f"({'×'.join(map(str, shape))})"
