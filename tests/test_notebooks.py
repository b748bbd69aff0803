"""The notebooks of the documentation: every cell runs, in order, and none has outputs that could go stale."""

import ast
import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read_cells(path):
    """The cells of code of a notebook."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cell(source, scope, name):
    """What a cell shows: the value of its last line, where that is an expression."""
    tree = ast.parse(source, name)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), scope)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), scope)
    return eval(compile(ast.Expression(last.value), name, "eval"), scope)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    scope = {"__name__": "__main__"}
    shown = {}
    for cell in read_cells(path):
        needed = cell["metadata"].get("tags", [])
        if all(importlib.util.find_spec(package) for package in needed):
            shown[cell["id"]] = run_cell("".join(cell["source"]), scope, f"{path.name}, {cell['id']}")
    if "report" in shown:
        page = shown["report"]._repr_html_()
        assert "returns" in page
        assert "verdict" in page.lower()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_stored(path):
    assert not [cell["id"] for cell in read_cells(path) if cell["outputs"] or cell["execution_count"] is not None]


def test_every_notebook_is_in_the_documentation():
    navigation = (FOLDER.parents[1] / "mkdocs.yml").read_text()
    assert len(NOTEBOOKS) == 2
    assert not [path.name for path in NOTEBOOKS if f"notebooks/{path.stem}.md" not in navigation]
