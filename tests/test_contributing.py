"""The additions that CONTRIBUTING.md shows are those of the code, in full."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
DIFFS = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)


def added(diff: str) -> dict[Path, list[str]]:
    """The lines that a diff adds to each file, without remarks behind them."""
    files = {}
    for line in diff.splitlines():
        if line.startswith(("+++ ", "--- ")):
            lines = files.setdefault(ROOT / line[4:], [])
        elif line.startswith("+"):
            lines.append(re.sub(r"  # .*", "", line[1:]).strip())
    return files


def class_of(path: Path) -> ast.ClassDef:
    """The first class of a file."""
    return next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))


def written(path: Path) -> list[str]:
    """The lines of a file's first class, without what the page leaves out."""
    node = class_of(path)
    lines = path.read_text().splitlines()[node.lineno - 1 : node.end_lineno]
    text = re.sub(r'""".*?"""', "", "\n".join(lines), flags=re.DOTALL)
    return [line.strip() for line in text.splitlines() if not re.match(r"\s*(@override|assert )", line)]


@pytest.mark.parametrize("diff", DIFFS, ids=lambda diff: Path(diff.split()[1]).stem)
def test_a_diff_is_the_code(diff):
    (new, lines), *others = added(diff).items()
    assert list(filter(None, lines)) == list(filter(None, written(new)))
    for path, more in others:
        text = [re.sub(r"  # .*", "", line).strip() for line in path.read_text().splitlines()]
        assert more
        assert not [line for line in more if line not in text]


def test_an_algorithm_two_cones_and_a_linear_system_are_shown():
    shown = ["algorithms/pdhg.py", "cones/exponential.py", "cones/power.py", "linalg/systems/spectral.py"]
    assert [str(next(iter(added(diff))).relative_to(ROOT / "src" / "longstep")) for diff in DIFFS] == shown


@pytest.mark.parametrize("cone", ["exponential", "power"])
def test_what_a_cone_takes_beside_its_class_is_counted(cone):
    source = ROOT / "src" / "longstep"
    path = source / "cones" / f"{cone}.py"
    behind = len(path.read_text().splitlines()) - class_of(path).end_lineno
    assert f"{behind} lines of `{cone}.py`" in PAGE
    in_c = len((source / "export_c" / "c" / f"{cone}.c").read_text().splitlines())
    assert f"{cone}.c` has {in_c} lines" in PAGE


def test_what_spectral_systems_add_elsewhere_is_shown_in_full():
    """Every file in which systems get a spectrum is in the diff; Douglas–Rachford makes its own."""
    source = ROOT / "src" / "longstep"
    files = [*(source / "linalg" / "systems").glob("*.py"), *(source / "algorithms").glob("*.py")]
    knowing = {path for path in files if re.search(r"\bspectrum\b", path.read_text())}
    knowing -= {source / "algorithms" / "douglas_rachford.py"}
    assert knowing <= set(added(DIFFS[-1]))
