"""The tree itself: imports go one way, and every example in the documentation runs."""

import ast
import doctest
import graphlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest

import longstep
from longstep.algorithms.pdhg import PDHG
from longstep.algorithms.registry import REGISTERED
from longstep.cones.exponential import Exponential
from longstep.cones.power import Power
from longstep.linalg.systems.spectral import Spectral
from longstep.schedules.hyperparameter import Role

from .helpers import CASES

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "longstep"
# A part may import those before it.
ORDER = [
    "errors", "_util", "linalg", "cones", "families", "schedules", "algorithms", "engine", "data", "streaming",
    "export_c", "saving", "solver", "training", "evaluation", "certificates", "cvxpy", "torch", "workers", "report",
    "learning", "research", "cli", "__main__",
]  # fmt: skip
MODULES = [m.name for m in pkgutil.walk_packages(longstep.__path__, "longstep.")]
FILES = {name: Path(str(importlib.util.find_spec(name).origin)) for name in ["longstep", *MODULES]}  # type: ignore


def imported(name: str):
    """The modules of longstep that a module imports, at its top, inside functions, for types and by the names of
    `_HOMES` alike."""
    path = FILES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            yield from (f"{name}.{home}" for home in ast.literal_eval(node.value).values())
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{source}.{alias.name}"
                yield full if full in FILES else source
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_one_way(name):
    part = name.split(".")[1]
    for other in imported(name):
        # Absolute imports of public names are for what stands above all their homes.
        if other == "longstep":
            assert part in ("research", "cli"), f"{name} must import from the modules themselves"
        elif other.startswith("longstep."):
            assert ORDER.index(other.split(".")[1]) <= ORDER.index(part), f"{name} must not import {other}"


@pytest.mark.parametrize("package", [name for name in FILES if "\n_HOMES = {" in FILES[name].read_text()])
def test_lazy_names_are_at_home_where_type_checkers_find_them(package):
    homes = importlib.import_module(package)._HOMES
    text = FILES[package].read_text()
    for name, home in homes.items():
        assert f"{package}.{home}" in FILES
        assert f"    from .{home} import {name} as {name}\n" in text


def test_there_are_no_circles():
    graph = {name: set(imported(name)) & set(FILES) - {name} for name in FILES}
    try:
        list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        raise AssertionError(f"a circle of imports: {' → '.join(error.args[1])}") from None


@pytest.mark.parametrize("kind", [PDHG, Exponential, Power, Spectral])
def test_an_addition_is_a_file_and_a_line(kind):
    """Of an algorithm, a cone and a back end nobody knows the name but its own file and the registry beside it."""
    own = Path(inspect.getfile(kind))
    named = {path for path in SOURCE.rglob("*.py") if re.search(rf"\b{kind.__name__}\b", path.read_text())}
    # There, "Power" is an atom of CVXPY.
    assert named - {SOURCE / "cvxpy" / "hints.py"} == {own, own.parent / "registry.py"}


TESTS = sorted((ROOT / "tests").rglob("*.py"))
ALGORITHMS = {kind.__name__ for kind in REGISTERED}
# Hyperparameters whose name is not that of their role, and families with an algorithm.
NAMES = {h.name for case in CASES for h in case.hyperparameters if h.name not in get_args(Role)} - {"metric", "scale"}
NAMES |= {case.name for case in CASES}


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_nobody_asks_for_names_in_tests_either(path):
    """A test asks for the role of a hyperparameter, or for what an algorithm's class or the registry says."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [part for side in sides for part in (side, *getattr(side, "elts", []))]
            assert not {part.value for part in parts if isinstance(part, ast.Constant)} & NAMES, ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            kinds = set(re.findall(r"\w+", ast.unparse(node.args[1])))
            assert not kinds & ALGORITHMS, ast.unparse(node)


def test_importing_longstep_loads_neither_reports_nor_research():
    code = "import sys, longstep; print(*(m for m in sys.modules if m.startswith(('longstep.', 'jax', 'scipy'))))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) <= {"longstep._util", "longstep._util.forks", "longstep._util.version"}


def test_the_core_needs_jax_equinox_and_scipy_alone():
    """On a machine with an accelerator and little else a family can be made and solved."""
    code = (
        "import sys\n"
        "for name in ('cvxpy', 'clarabel', 'joblib', 'rich', 'safetensors', 'osqp', 'scs', 'matplotlib', 'optax',\n"
        "             'threadpoolctl', 'qdldl', 'cffi'):\n"
        "    sys.modules[name] = None\n"
        "import longstep as ls, numpy as np\n"
        "from longstep.research.experiments import quadcopter\n"
        "s = ls.Solver(quadcopter.family(dtype='float32'))\n"
        "assert s.solve_batch(quadcopter.sample_many(3, 0), eps_abs=1e-2, eps_rel=1e-2).solved.all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_few_and_documented():
    assert 20 <= len(longstep.__all__) <= 45
    assert set(longstep.__all__) == set(longstep._HOMES)
    for name in longstep.__all__:
        assert getattr(longstep, name).__doc__, name


def test_a_class_name_means_one_thing():
    """Aliases of types count as classes; private names are a file's own, and variables of types have no meaning."""
    homes = {}
    for name, path in FILES.items():
        tree = ast.parse(path.read_text())
        found = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
                found.append(ast.unparse(node.target))
            elif isinstance(node, ast.Assign) and "TypeVar(" not in ast.unparse(node.value):
                found += [word for word in map(ast.unparse, node.targets) if re.fullmatch(r"[A-Z]+[a-z]\w+", word)]
        for word in found:
            homes.setdefault(word, []).append(name)
    assert not {word: where for word, where in homes.items() if len(where) > 1 and not word.startswith("_")}


# A function's docstring begins with what it does or returns: a verb of this list. Another verb is a word more.
VERBS = set(
    """
    Begin Check Choose Compare Compile Compute Do Draw Eliminate Evaluate Factor Feed Fill Follow Forget Give Hand
    Import Join Judge Keep Learn Lend Let Load Make Map Maximise Minimise Note Open Pickle Print Project Put Read Refuse
    Return Run Say Score Search Send Show Solve Start Take Tell Train Try Turn Use Wait Warn Write Yield
    """.split()  # noqa: SIM905
)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_of_functions_begin_with_a_verb(name):
    functions = [node for node in ast.walk(ast.parse(FILES[name].read_text())) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        attribute = any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
        words = ast.get_docstring(function) or ""
        assert attribute or not words or re.split(r"\W", words, maxsplit=1)[0] in VERBS, f"{function.name}: {words}"


# A function does something: these say a state or a place, and its first word may not be one of them.
NO_DEED = re.compile(
    r"_*(above|available|checked|curved|eliminated|elapsed|everywhere|few|going|into|joined|judged|largest|lifted|made|"
    r"many|merged|odd|off|outside|over|padded|part|plain|refined|refusing|relative|shortened|showing|single|some|"
    r"trained|usable|violated|weighted|whole|widened|within|without)(_|$)"
)


@pytest.mark.parametrize("name", MODULES)
def test_functions_are_no_participles(name):
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.FunctionDef) and "property" not in " ".join(map(ast.unparse, node.decorator_list)):
            assert not NO_DEED.match(node.name), f"{node.name} does not say what it does"


def test_errors_are_in_one_module():
    """But for those of research and of the command line, which are theirs."""
    names = [name for name in MODULES if name.split(".")[1] not in ("research", "cli")]
    defined = re.compile(r"^class \w+(?:Error|Warning)\b", re.MULTILINE)
    assert [name for name in names if defined.search(FILES[name].read_text())] == ["longstep.errors"]
    assert longstep.errors.SamplesError.__doc__


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    if name.startswith("longstep.torch"):
        pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'longstep[torch]'")
    if name == "longstep.cvxpy.layers":
        pytest.importorskip("cvxpylayers", reason="CVXPYlayers is not installed: pip install 'longstep[cvxpylayers]'")
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


def test_a_user_needs_no_line_of_jax_for_64_bits():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    assert not [page.name for page in pages if "jax.config" in page.read_text()]


def test_every_public_name_is_in_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text()
    assert not [n for n in longstep.__all__ if not re.search(rf"^::: longstep\.{n}$", text, re.MULTILINE)]


def test_every_name_on_the_api_page_is_there():
    for path in re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE):
        owner, name = path.rsplit(".", 1)
        assert path in MODULES or hasattr(pkgutil.resolve_name(owner), name), path


def test_version_is_stated_once():
    stated = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated
    assert stated.group(1) == longstep.__version__
    assert f"## [{longstep.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {longstep.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_readme_of_a_package_index_has_no_links_that_break():
    """With the substitutions of pyproject.toml, as the build makes them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / "README.md").read_text()
    for each in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text, changed = re.subn(each["pattern"], each["replacement"], text)
        assert changed, f"{each['pattern']} finds nothing any more"
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    assert all(target.startswith("https://") for target in targets)
    assert "$$" not in text
    assert "clone" not in text


def test_extras_are_documented():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text()
        assert not [name for name in extras if f"`{name}`" not in text], page
    used = {name for name in extras if name != "all"}
    assert extras["all"] == [f"longstep[{','.join(sorted(used))}]"]


def test_slow_tests_are_there():
    folder = Path(__file__).parent
    names = (folder / "slow.txt").read_text().splitlines()
    assert names == sorted(set(names))
    for name in names:
        file, test = name.split("::", 1)
        text = (folder.parent / file).read_text()
        assert f"def {test.split('[')[0]}(" in text, f"{name} is not there any more"
