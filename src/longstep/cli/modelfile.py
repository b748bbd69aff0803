"""A user's model.py: a CVXPY problem called `problem` and, where there is one, a sampler of its parameters."""

import functools
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import cvxpy
    import numpy as np

    from ..cvxpy.model import Model
    from ..families.base import Family

# From a generator of random numbers to the parameters of one instance.
Sampler: TypeAlias = "Callable[[np.random.Generator], object]"


class ModelError(ValueError):
    """A model.py that cannot be run, or does not define what it must."""


@dataclass(frozen=True)
class ModelFile:
    """What was found in it."""

    problem: "cvxpy.Problem | Family | Model"
    sample: "Sampler | None"


@contextmanager
def load_model(path: Path) -> Iterator[ModelFile]:
    """Run the file and hand out its `problem` and `sample`; its folder is on sys.path meanwhile.

    `__name__` is not `"__main__"`, so what a script does only when it is run by itself is not done.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        names = _run(path)
        yield ModelFile(_find_problem(path, names), _guard_sampler(path, names.get("sample")))
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _run(path: Path) -> dict[str, Any]:
    try:
        return runpy.run_path(str(path), run_name="longstep_model")
    except (Exception, SystemExit) as error:
        raise ModelError(f"{_locate(path, error)}: {_describe(error)}") from error


def _find_problem(path: Path, names: dict[str, Any]) -> "cvxpy.Problem | Family | Model":
    from ..cvxpy.model import Model
    from ..families.base import Family

    if "problem" not in names:
        raise ModelError(f"{path} defines no `problem`: give your cvxpy.Problem that name")
    problem = names["problem"]
    cvxpy = sys.modules.get("cvxpy")
    if not isinstance(problem, Family | Model) and (cvxpy is None or not isinstance(problem, cvxpy.Problem)):
        raise ModelError(f"`problem` in {path} is of type {type(problem).__name__}; it must be a cvxpy.Problem")
    return problem


def _guard_sampler(path: Path, sample: object) -> "Sampler | None":
    """Return the sampler of a model with errors that name the file; None where there is none."""
    if sample is None:
        return None
    if not callable(sample):
        raise ModelError(
            f"`sample` in {path} is of type {type(sample).__name__}; it must be a function sample(rng) that returns "
            "the parameters of one instance by name"
        )

    @functools.wraps(sample)
    def draw_guarded(rng: "np.random.Generator") -> object:
        try:
            drawn = sample(rng)
        except Exception as error:
            raise ModelError(f"sample(rng) failed in {_locate(path, error)}: {_describe(error)}") from error
        if drawn is None:
            raise ModelError(f"sample(rng) in {path} returned nothing: let it return the parameters of one instance")
        return drawn

    return draw_guarded


def _locate(path: Path, error: BaseException) -> str:
    """Return the file and the line: of a syntax error its own, else the last one of the model that was being run."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    if not lines:
        return str(path)
    return f"{path}, line {lines[-1]}"


def _describe(error: BaseException) -> str:
    said = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        said = error.msg
    if not said:
        return type(error).__name__
    return f"{type(error).__name__}: {said}"
