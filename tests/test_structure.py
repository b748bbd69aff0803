"""The tree itself: imports go one way, and every example in the documentation runs."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import longstep

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "longstep"
# A part may import those before it.
ORDER = [
    "versions", "threads", "processes", "hashing", "progress", "memory", "budget", "devices", "storage", "solution",
    "linalg", "families", "schedules", "algorithms", "forecast", "run", "plan", "programs", "measure", "method",
    "training", "codegen", "solver", "files", "evaluation", "certificates", "baselines", "report", "learn",
    "experiments", "demo", "cli", "__main__",
]  # fmt: skip
MODULES = [m.name for m in pkgutil.walk_packages(longstep.__path__, "longstep.")]


def imported(path: Path):
    """The parts of longstep that a file imports at its top level."""
    package = ("longstep", *path.relative_to(SOURCE).with_suffix("").parts)
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level]
            full = [*base, *(node.module or "").split(".")] if node.module else list(base)
            names = [full] if len(full) > 1 else [[*full, alias.name] for alias in node.names]
            yield from (name[1] for name in names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    for other in imported(path):
        assert ORDER.index(other) <= ORDER.index(part), f"{part} must not import {other}"


def test_the_core_needs_jax_equinox_and_scipy_alone():
    """On a machine with an accelerator and little else a family can be made and solved."""
    code = (
        "import sys\n"
        "for name in ('cvxpy', 'clarabel', 'joblib', 'rich', 'safetensors', 'osqp', 'scs', 'matplotlib', 'optax',\n"
        "             'threadpoolctl', 'qdldl'):\n"
        "    sys.modules[name] = None\n"
        "import longstep as ls, numpy as np\n"
        "from longstep.experiments import quadcopter\n"
        "s = ls.Solver(quadcopter.family(dtype='float32'))\n"
        "assert s.solve_batch(quadcopter.sample_many(3, 0), eps_abs=1e-2, eps_rel=1e-2).solved.all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_few_and_documented():
    names = [n for n in vars(longstep) if n[0].isupper() or callable(getattr(longstep, n))]
    assert 20 <= len(names) <= 42
    for name in names:
        assert getattr(longstep, name).__doc__, name


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failures, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failures == 0


# The others' code is much like that of this page.
QUICK = ("README.md",)
PAGES = [
    pytest.param(page, id=page.name, marks=() if page.name in QUICK else pytest.mark.slow)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if "```python" in page.read_text()
]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGSTEP_CACHE", str(tmp_path))
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), scope)


def test_every_public_name_is_in_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text()
    names = [n for n in vars(longstep) if not n.startswith("_") and callable(getattr(longstep, n))]
    assert not [n for n in names if not re.search(rf"^::: longstep\.(learn\.)?{n}$", text, re.MULTILINE)]


def test_every_name_on_the_api_page_is_there():
    for path in re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE):
        owner, name = path.rsplit(".", 1)
        assert path in MODULES or hasattr(pkgutil.resolve_name(owner), name), path


def test_version_is_stated_once():
    stated = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated
    assert stated.group(1) == longstep.__version__
    assert f"## [{longstep.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
