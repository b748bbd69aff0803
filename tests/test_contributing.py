"""The additions that CONTRIBUTING.md shows are those of the code, in full."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DIFFS = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


def added(diff: str) -> dict[Path, list[str]]:
    """The lines that a diff adds to each file, without remarks behind them."""
    files = {}
    for line in diff.splitlines():
        if line.startswith(("+++ ", "--- ")):
            lines = files.setdefault(ROOT / line[4:], [])
        elif line.startswith("+"):
            lines.append(re.sub(r"  # .*", "", line[1:]).strip())
    return files


def written(path: Path) -> list[str]:
    """The lines of a file's classes, without what the page leaves out."""
    tree = ast.parse(path.read_text())
    source = path.read_text().splitlines()
    lines = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            lines += source[node.lineno - 1 : node.end_lineno]
            break
    text = re.sub(r'""".*?"""', "", "\n".join(lines), flags=re.DOTALL)
    return [line.strip() for line in text.splitlines() if not re.match(r"\s*(@override|assert )", line)]


@pytest.mark.parametrize("diff", DIFFS, ids=lambda diff: Path(diff.split()[1]).stem)
def test_a_diff_is_the_code(diff):
    (new, lines), *others = added(diff).items()
    assert list(filter(None, lines)) == list(filter(None, written(new)))
    for path, more in others:
        text = [line.strip() for line in path.read_text().splitlines()]
        assert more
        assert not [line for line in more if line not in text]


def test_an_algorithm_a_cone_and_a_linear_system_are_shown():
    assert [next(iter(added(diff))).parent.name for diff in DIFFS] == ["algorithms", "cones", "systems"]
