"""How far the installed package, `osqp` or `scs`, is after a few numbers of steps: its row beside our own methods'."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import PyTree

from .._util.plain import Json, make_plain
from ..families.base import Family
from ..families.conic import Conic
from ..families.quadratic_program import QP

# Every number of steps is a run of its own.
_COUNTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
# About so many operations in all; fewer instances are run where steps are dear.
_MOST_WORK = 1e9
_LEAST_INSTANCES = 5
_MOST_INSTANCES = 50
# What a package returns: x and y, of scs also s, and whether the workspace is as it was set up.
Answer = tuple[np.ndarray, np.ndarray, np.ndarray | None, bool]
# With these no test ends a run early. OSQP refuses tolerances of zero; it judges the last iterate by them all the same,
# and a certificate of infeasibility would replace it.
ENDLESS_OSQP: dict[str, object] = {
    "check_termination": 0, "eps_abs": 1e-300, "eps_rel": 0.0, "eps_prim_inf": 1e-300, "eps_dual_inf": 1e-300,
}  # fmt: skip
ENDLESS_SCS: dict[str, object] = {"eps_abs": 0.0, "eps_rel": 0.0, "eps_infeas": 0.0}


@dataclass(frozen=True, eq=False)
class PackageErrors:
    """The residuals of a package on instances after each of some numbers of steps: `values` (N, len(counts)).

    Its tests for termination are off; equilibration and its adaptive rule are on, as it comes. No instance gains from
    another. They are max(primal, dual) in the 2-norm, as `evaluate` measures them.
    """

    name: str
    counts: tuple[int, ...]
    values: np.ndarray

    def to_json(self) -> dict[str, Json]:
        """Return the median, the 95% quantile and the largest error at each count, as plain data."""
        curves = {
            "geometric mean": np.exp(np.mean(np.log(np.maximum(self.values, 1e-16)), axis=0)),
            "median": np.quantile(self.values, 0.5, axis=0, method="inverted_cdf"),
            "95% quantile": np.quantile(self.values, 0.95, axis=0, method="inverted_cdf"),
            "maximum": self.values.max(axis=0),
        }
        about = {"method": self.name, "instances": len(self.values), "counts": list(self.counts)}
        return {**about, "curves": make_plain(curves)}


def measure_package(family: Family, parameters: PyTree, most: int) -> PackageErrors | None:
    """Return the errors of the package for this family after up to `most` steps; None where there is no such package.

    At most fifty instances are run, and fewer of large families: a picture needs no more.
    """
    counts = tuple(count for count in _COUNTS if count <= most)
    # A family of another kind, a subclass included, is not what a package takes.
    if type(family) is QP and isinstance(family, QP) and find_spec("osqp") is not None:
        data = _take_instances(family, parameters, counts)
        return PackageErrors("osqp package", counts, _collect(data, counts, _open_osqp(family), _residual_qp(family)))
    if type(family) is Conic and isinstance(family, Conic) and find_spec("scs") is not None:
        data = _take_instances(family, parameters, counts)
        return PackageErrors("scs package", counts, _collect(data, counts, _open_scs(family), _residual_cone(family)))
    return None


# The data of one instance by name.
Row = dict[str, np.ndarray]
Workspace = Callable[[Row], Answer]


def split_rows(data: Mapping[str, np.ndarray]) -> list[Row]:
    """Return the data of N instances, one dict an instance."""
    # Packages read the numbers of an update as they lie in memory, whatever their strides.
    columns = [np.ascontiguousarray(values) for values in data.values()]
    return [dict(zip(data, values, strict=True)) for values in zip(*columns, strict=True)]


def prepare_osqp(family: QP) -> Callable[..., Any]:
    """Return a function that sets up a workspace of `osqp` on an instance, without warm starts, with its settings."""
    import osqp

    P = sp.csc_matrix(sp.triu(family.P))
    A = sp.csc_matrix(family.A)

    def set_up(first: Row, **settings: object) -> Any:
        solver = osqp.OSQP()
        options = {**settings, "warm_starting": False, "verbose": False, "polishing": False}
        solver.setup(P, first["q"], A, first["l"], first["u"], **options)
        return solver

    return set_up


def prepare_scs(family: Conic) -> Callable[..., Any]:
    """Return a function that sets up a workspace of `scs` on an instance, with its settings."""
    import scs

    matrices = {"A": sp.csc_matrix(family.A)}
    if family.P.nnz:
        matrices["P"] = sp.csc_matrix(sp.triu(family.P))

    def set_up(first: Row, **settings: object) -> Any:
        return scs.SCS({**matrices, "b": first["b"], "c": first["c"]}, family.cones.scs(), **settings, verbose=False)

    return set_up


def _take_instances(family: QP | Conic, parameters: PyTree, counts: Sequence[int]) -> list[Row]:
    """Return the data of the first instances, as many as the work allows."""
    work = sum(counts) * (4 * family.A.nnz + family.P.nnz + 10 * (family.n + family.m))
    many = int(np.clip(_MOST_WORK / max(work, 1), _LEAST_INSTANCES, _MOST_INSTANCES))
    index = np.arange(min(family.count(parameters), many))
    return split_rows(family.data(family.select(parameters, index)))


def _collect(
    rows: list[Row],
    counts: Sequence[int],
    open_workspace: Callable[[Row, int], Workspace],
    residual: Callable[[Row, Answer], float],
) -> np.ndarray:
    """Return the residuals (rows, counts); where a package returns no point, that of fewer steps stands."""
    values = np.full((len(rows), len(counts)), np.inf)
    for j, count in enumerate(counts):
        solve = None
        for i, row in enumerate(rows):
            if solve is None:
                solve = open_workspace(row, count)
            answer = solve(row)
            if not answer[3]:
                # What an adaptive rule changed would be the next instance's start.
                solve = None
            values[i, j] = residual(row, answer)
            if not np.isfinite(values[i, j]):
                values[i, j] = np.inf
                if j:
                    values[i, j] = values[i, j - 1]
    return values


def _open_osqp(family: QP) -> Callable[[Row, int], Workspace]:
    set_up = prepare_osqp(family)

    def open_workspace(first: Row, count: int) -> Workspace:
        solver = set_up(first, **ENDLESS_OSQP, max_iter=count)

        def solve(row: Row) -> Answer:
            solver.update(**row)
            found = solver.solve(raise_error=False)
            # The arrays are the workspace's own, which the next solve overwrites.
            return np.array(found.x, np.float64), np.array(found.y, np.float64), None, found.info.rho_updates == 0

        return solve

    return open_workspace


def _open_scs(family: Conic) -> Callable[[Row, int], Workspace]:
    set_up = prepare_scs(family)

    def open_workspace(first: Row, count: int) -> Workspace:
        solver = set_up(first, **ENDLESS_SCS, max_iters=count)

        def solve(row: Row) -> Answer:
            solver.update(row["b"], row["c"])
            found = solver.solve(warm_start=False)
            # The memory of its acceleration outlives a solve: every instance has a workspace of its own.
            return np.array(found["x"]), np.array(found["y"]), np.array(found["s"]), False

        return solve

    return open_workspace


def _residual_qp(family: QP) -> Callable[[Row, Answer], float]:
    def measure(row: Row, answer: Answer) -> float:
        x, y, _, _ = answer
        z = family.A @ x
        primal = np.linalg.norm(z - np.clip(z, row["l"], row["u"]))
        dual = np.linalg.norm(family.P @ x + row["q"] + family.A.T @ y)
        return float(max(primal, dual))

    return measure


def _residual_cone(family: Conic) -> Callable[[Row, Answer], float]:
    def measure(row: Row, answer: Answer) -> float:
        x, y, s, _ = answer
        primal = np.linalg.norm(family.A @ x + s - row["b"])
        dual = np.linalg.norm(family.P @ x + row["c"] + family.A.T @ y)
        return float(max(primal, dual))

    return measure
