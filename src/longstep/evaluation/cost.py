"""What a user pays: steps until `solve` ends at a tolerance, at the median and for the slow, and who is never done."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from jaxtyping import PyTree

from .._util.plain import Json
from .._util.text import count_text, seconds_text, tolerance_text
from ..engine.batching import widen
from ..engine.finisher import finish_cost, is_singular
from ..engine.solution import INFEASIBLE, Solution, Status
from ..families.base import Family
from ..families.conic import Conic
from ..families.quadratic_program import QP
from ..solver import Solver
from .package_errors import prepare_osqp, prepare_scs, split_rows
from .timing import time_in_c

TOLERANCES = (1e-3, 1e-6)
# First-order steps on large problems are for these.
_SPARSE_TOLERANCES = (1e-3, 1e-4)
# The steps that are given where nothing tells how many are needed.
MOST_STEPS = 20_000
# What the osqp package ends with as it comes. Nobody waits longer where another method ends before.
_USUAL_STEPS = 4_000
# Beyond so many entries of P and A, zeros included, 20,000 steps of all instances take minutes.
_LARGE = 300_000
# The steps after which most instances are done.
SOON = 500
# Where the kept solver ends with all instances, others are given so many times the steps of its slowest one, up to what
# the package is given, or else so many times.
_PATIENCE = 10
_LEAST_PATIENCE = 2


@dataclass(frozen=True)
class Cost:
    """The steps that a method takes on instances until it ends with a tolerance, and whether it was reached.

    What the finish does counts as the steps that cost as much. An instance that is found to have no solution counts as
    done: that is an answer. `seconds` is the mean time of an instance, in a batch with JAX or, where it was `compiled`,
    one by one in C, as a package is; `most` the steps it was given.
    """

    name: str
    eps: float
    steps: np.ndarray
    done: np.ndarray
    seconds: float
    most: int = MOST_STEPS
    compiled: bool = False

    @property
    def unsolved(self) -> int:
        """How many instances are left without an answer."""
        return int((~self.done).sum())

    @property
    def level(self) -> float:
        """One number: the mean logarithm of the median, the mean, the 95% quantile and the worst count."""
        return measure_level(np.where(self.done, np.maximum(self.steps, 1), 10 * MOST_STEPS))

    def take_first(self, count: int) -> "Cost":
        """Return the cost of the first instances, without those that a batch is filled up with."""
        return replace(self, steps=self.steps[:count], done=self.done[:count])

    def to_json(self) -> dict[str, Json]:
        """Return the cost as plain data."""
        return {
            "method": self.name,
            "eps": self.eps,
            "median": float(np.median(self.steps)),
            "95%": float(np.quantile(self.steps, 0.95)),
            "worst": int(self.steps.max()),
            "unsolved": self.unsolved,
            "most": self.most,
            "seconds": self.seconds,
            "compiled": self.compiled,
            # Of every instance, None where it was left without an answer.
            "steps": [int(k) if done else None for k, done in zip(self.steps, self.done, strict=True)],
        }


def measure_level(steps: np.ndarray) -> float:
    """Return one number for the steps that instances take: those of most of them, and of the slow ones."""
    return float(np.mean(np.log([np.median(steps), np.mean(steps), np.quantile(steps, 0.95), steps.max()])))


def solver_cost(
    name: str, solver: Solver, parameters: PyTree, eps: float, *, most: int = MOST_STEPS, timed: bool = False
) -> Cost:
    """Return what a solver's `solve_batch` takes; where it is timed, without what is compiled first."""
    if timed and not solver.family.sparse:
        solver.solve_batch(parameters, max_iter=1)
    first = solver.solve_batch(parameters, eps_abs=eps, eps_rel=eps, max_iter=min(SOON, most))
    status = np.array(first.status)
    steps = _count_steps(solver, first)
    seconds = first.time
    # A batch takes as long as its slowest instance: those go on by themselves, from the start. Some of them twice: to
    # compile another shape takes longer than that. Sparse families have no batches of several.
    left = np.flatnonzero(status == Status.ITERATION_LIMIT)
    if left.size and most > SOON:
        again = left if solver.family.sparse else np.resize(left, widen(left.size, status.size))
        some = solver.family.select(parameters, again)
        rest = solver.solve_batch(some, eps_abs=eps, eps_rel=eps, max_iter=most)
        status[again] = rest.status
        steps[again] = _count_steps(solver, rest)
        seconds += rest.time * left.size / again.size
    done = np.isin(status, (Status.SOLVED, *INFEASIBLE))
    return Cost(name, eps, steps, done, seconds / done.size, most)


def _count_steps(solver: Solver, solution: Solution) -> np.ndarray:
    cost = finish_cost(solver.family, solution, is_singular(solver.record))
    return np.asarray(solution.iterations) + np.ceil(cost).astype(int)


def list_tolerances(family: Family) -> tuple[float, ...]:
    """Return the tolerances at which methods are compared on a family."""
    return _SPARSE_TOLERANCES if family.sparse else TOLERANCES


def limit_steps(family: Family) -> int:
    """Return how many steps methods are given: where these take long, as many as the osqp package as it comes."""
    if family.sparse or family.n * (family.n + family.m) > _LARGE:
        return _USUAL_STEPS
    return MOST_STEPS


def compare_costs(methods: Mapping[str, Solver], parameters: PyTree) -> "Costs":
    """Return what solvers of one family, the first being kept, and the installed package cost on instances.

    Where the first ends with all instances, the others need not go on for long: to wait for the defaults takes longer
    than all else. The package is run as it comes.
    """
    (name, kept), *others = methods.items()
    limit = limit_steps(kept.family)
    tolerances = list_tolerances(kept.family)
    rows = [solver_cost(name, kept, parameters, eps, most=limit, timed=True) for eps in tolerances]
    most = limit
    usual = limit
    if all(row.done.all() for row in rows):
        slowest = max(int(row.steps.max()) for row in rows)
        most = min(limit, max(min(_PATIENCE * slowest, _USUAL_STEPS), _LEAST_PATIENCE * slowest, SOON))
        usual = min(limit, max(slowest, _USUAL_STEPS))
        rows = [replace(row, most=most) for row in rows]
    times = time_in_c(kept, parameters, tolerances, usual)
    if times is not None:
        rows = [replace(row, seconds=times[row.eps], compiled=True) for row in rows]
    for other, solver in others:
        rows += _measure_all(other, solver, parameters, tolerances, most)
    packages = [package_cost(kept.family, parameters, eps, most=usual) for eps in tolerances]
    return Costs((*rows, *(cost for cost in packages if cost is not None)))


def _measure_all(name: str, solver: Solver, parameters: PyTree, tolerances: Sequence[float], most: int) -> list[Cost]:
    """Return what a solver costs to these tolerances, loose ones first: where none is solved to one, none is to the
    next."""
    found: list[Cost] = []
    for eps in tolerances:
        if found and not found[-1].done.any():
            found.append(replace(found[-1], eps=eps))
        else:
            found.append(solver_cost(name, solver, parameters, eps, most=most, timed=True))
    return found


def package_cost(family: Family, parameters: PyTree, eps: float, *, most: int = MOST_STEPS) -> Cost | None:
    """Return what the C package takes, `osqp` or `scs`, set up once and adaptive; None where it is not there."""
    # A family of another kind, a subclass included, is not what a package takes.
    if isinstance(family, QP) and type(family) is QP and find_spec("osqp") is not None:
        return _average("osqp", eps, _run_osqp(family, family.data(parameters), eps, most), most)
    if isinstance(family, Conic) and type(family) is Conic and find_spec("scs") is not None:
        return _average("scs", eps, _run_scs(family, family.data(parameters), eps, most), most)
    return None


def _average(package: str, eps: float, found: list[tuple[int, bool, float]], most: int) -> Cost:
    """Return the cost of a package that took these steps and seconds on instances, and was done or not."""
    steps, done, seconds = (np.array(column) for column in zip(*found, strict=True))
    return Cost(f"{package} package", eps, steps, done.astype(bool), float(np.mean(seconds)), most)


def _run_osqp(family: QP, data: dict[str, np.ndarray], eps: float, most: int) -> list[tuple[int, bool, float]]:
    rows = split_rows(data)
    solver = prepare_osqp(family)(rows[0], eps_abs=eps, eps_rel=eps, max_iter=most)
    found = []
    for row in rows:
        solver.update(**row)
        begin = time.perf_counter()
        info = solver.solve().info
        done = ("solved" in info.status and "inaccurate" not in info.status) or "infeasible" in info.status
        found.append((info.iter, done, time.perf_counter() - begin))
    return found


def _run_scs(family: Conic, data: dict[str, np.ndarray], eps: float, most: int) -> list[tuple[int, bool, float]]:
    rows = split_rows(data)
    solver = prepare_scs(family)(rows[0], eps_abs=eps, eps_rel=eps, max_iters=most)
    found = []
    for row in rows:
        solver.update(row["b"], row["c"])
        begin = time.perf_counter()
        info = solver.solve(warm_start=False)["info"]
        done = info["status"] in ("solved", "infeasible", "unbounded")
        found.append((info["iter"], done, time.perf_counter() - begin))
    return found


def limits_text(rows: Sequence[tuple[str, int]]) -> str:
    """Return how many steps methods are given, by their names; a package may be given others.

    >>> limits_text([("learned", 1140), ("defaults", 1140), ("osqp package", 4000)])
    'at most 1,140 steps (osqp package 4,000)'
    """
    first, most = rows[0]
    others = {name: given for name, given in rows if given != most and name != first}
    text = f"at most {count_text(most)} steps"
    if others:
        text += f" ({', '.join(f'{name} {count_text(given)}' for name, given in others.items())})"
    return text


def describe_times(rows: Sequence[tuple[str, bool]]) -> str:
    """Return how times were taken, of methods by their names, some of which were compiled.

    >>> describe_times([("learned", True), ("defaults", False), ("osqp package", False)])
    'Time per instance: learned and the package in C, one by one; all others in a batch with JAX.'
    """
    compiled = dict.fromkeys(name for name, in_c in rows if in_c)
    names = [*compiled, *(["the package"] if any(name.endswith("package") for name, _ in rows) else [])]
    if not names:
        return "Time per instance: in a batch with JAX."
    return f"Time per instance: {' and '.join(names)} in C, one by one; all others in a batch with JAX."


@dataclass(frozen=True)
class Costs:
    """The costs of several methods at several tolerances, the first method being the one that is kept."""

    rows: tuple[Cost, ...]

    def of(self, name: str) -> list[Cost]:
        """Return the costs of one method."""
        return [cost for cost in self.rows if cost.name == name]

    @property
    def names(self) -> list[str]:
        """The methods, in order."""
        return list(dict.fromkeys(cost.name for cost in self.rows))

    @property
    def verdict(self) -> str:
        """In a sentence: whether to use what was learned, the constant, or the package."""
        kept = self.names[0]
        packages = [name for name in self.names if name.endswith("package")]
        mine = self.of(kept)
        for package in packages:
            against = _weigh_package(mine, self.of(package), kept, package)
            if against is not None:
                return against
        if 2 * mine[0].unsolved > mine[0].done.size:
            return _describe_failure(mine[0])
        advice = "Use the learned solver"
        if kept != "learned":
            advice = f"Use the solver that is kept, the {kept}: no learned schedule is better"
        advice += f". To {tolerance_text(mine[-1].eps)} it takes {_describe_steps(mine[-1])}"
        if len(self.names) == 1:
            return f"{advice}."
        faster = ""
        ours = mine[-1].seconds
        for package in packages:
            theirs = self.of(package)[-1].seconds
            if theirs < ours:
                faster = f" In time the {package} is ahead: {seconds_text(theirs)} an instance, against "
                faster += f"{seconds_text(ours)} in a batch with JAX; solver.compile() makes C of it."
                if mine[-1].compiled:
                    faster = f" In time the {package} is ahead: {seconds_text(theirs)} an instance, against "
                    faster += f"{seconds_text(ours)} with solver.compile()."
            elif mine[-1].compiled:
                faster = f" An instance takes {seconds_text(ours)} with solver.compile(), {seconds_text(theirs)} with "
                faster += f"the {package}."
        level = {name: float(np.mean([cost.level for cost in self.of(name)])) for name in self.names[1:]}
        best = min(level, key=lambda name: level[name])
        return f"{advice}; the next best, the {best}, {_describe_steps(self.of(best)[-1])}.{faster}"

    @property
    def unreached(self) -> list[str]:
        """A warning for every tolerance that some instance never reaches with any method."""
        notes = []
        for eps in dict.fromkeys(cost.eps for cost in self.rows):
            left = np.logical_and.reduce([~c.done for c in self.rows if c.eps == eps])
            if left.any():
                notes.append(
                    f"{int(left.sum())} of {left.size} instances did not reach {tolerance_text(eps)} within "
                    f"{count_text(self.rows[0].most)} steps by "
                    "any method: that tolerance may be out of reach for them."
                )
        return notes

    def to_json(self) -> list[dict[str, Json]]:
        """Return the costs as plain data."""
        return [cost.to_json() for cost in self.rows]


def _weigh_package(mine: Sequence[Cost], theirs: Sequence[Cost], kept: str, package: str) -> str | None:
    """Return the advice where a package solves what is kept does not, or in fewer steps; None elsewhere."""
    only_theirs = _count_ahead(theirs, mine)
    only_mine = _count_ahead(mine, theirs)
    advice = None
    if only_theirs and only_mine:
        advice = f"Use the {package} where the {_name_kept(kept)} ends at its limit: it solves {only_theirs} instances "
        advice += f"that this does not, and this {only_mine} that it does not."
    elif only_theirs:
        advice = f"Use the {package}: it solves {only_theirs} instances that this does not."
    elif all(a.level >= b.level for a, b in zip(mine, theirs, strict=True)) and theirs[0].done.any():
        advice = f"Use the {package}, which takes no more steps here, or the learned solver if C code is wanted."
    elif mine[-1].level > theirs[-1].level:
        advice = _divide_advice(mine, theirs, kept, package)
    return advice


def _divide_advice(mine: Sequence[Cost], theirs: Sequence[Cost], kept: str, package: str) -> str:
    """Return the advice where a package takes fewer steps to the last tolerance, and more to another."""
    loose = next(k for k, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a.level < b.level)
    each = [
        f"to {tolerance_text(mine[k].eps)}: {_describe_steps(ahead[k])}, against {_describe_steps(behind[k])}"
        for k, ahead, behind in ((loose, mine, theirs), (-1, theirs, mine))
    ]
    return f"Use the {_name_kept(kept)} {each[0]}. Use the {package} {each[1]}."


def _name_kept(kept: str) -> str:
    """Return the solver that is kept in words."""
    if kept == "learned":
        return "learned solver"
    return f"solver that is kept, the {kept},"


def _count_ahead(some: Sequence[Cost], others: Sequence[Cost]) -> int:
    """Return how many instances one method solves that another does not, at all tolerances together."""
    return sum(int((a.done & ~b.done).sum()) for a, b in zip(some, others, strict=True))


def _describe_failure(cost: Cost) -> str:
    """Return what is to be done where most instances stay unsolved at the loosest tolerance."""
    return (
        f"Use none of these as they are: {cost.unsolved} of {cost.done.size} instances are not solved to "
        f"{tolerance_text(cost.eps)} within {count_text(cost.most)} steps. Numbers of very different sizes are the "
        "usual reason: choose units in which solutions and prices are of about one size, kilowatts for watts."
    )


def _describe_steps(cost: Cost) -> str:
    """Return the steps of a method in words: half of the instances, and the slowest."""
    slowest = count_text(cost.steps.max())
    if not cost.done.all():
        slowest = f"more than {count_text(cost.most)}"
    return f"{count_text(float(np.median(cost.steps)))} steps in the median and {slowest} at most"
