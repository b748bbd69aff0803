"""One call from a problem and samples of its parameters to a learned solver, a table and a certificate."""

import functools
import inspect
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np

from ._util.nearest import suggest
from ._util.progress import Phases, say
from .algorithms.base import Algorithm
from .algorithms.registry import default_algorithm, list_tried
from .certificates.certificate import Certificate, certify, has_exact_claim, least_validation
from .cvxpy import Model, from_cvxpy
from .data.columns import Columns
from .data.dataset import Dataset, Split
from .data.division import LARGE, divide_samples, read_past
from .engine.aside import begin_aside
from .engine.finisher import can_finish, finish_cost, finishes_by_sets, is_singular
from .engine.forecast import forecast
from .engine.solution import INFEASIBLE
from .errors import InaccurateReferenceError, NoOptimumError
from .evaluation import scheduled
from .evaluation.choice import TRIED, choose_solver, choose_tries, foresee_try
from .evaluation.cost import Cost, Costs, compare_costs, limit_steps, solver_cost
from .evaluation.evaluate import Evaluation, evaluate
from .evaluation.package_errors import measure_package
from .families.base import Family
from .report.learned import Report
from .schedules.schedule import constant
from .solver import Solver
from .training.finish import spread_out, try_first
from .training.record import Training
from .training.settings import choose_recipe
from .training.train import train

_CLAIMS = 5
# The relative errors that optima may have from which distances are measured, and those that tell sizes alone.
_ACCURATE = 1e-6
_ROUGH = 1e-3
# Up to so many unknowns it is known how long learning takes: that of the families of `make front-door`.
_KNOWN = 400
# Instances that tell when a finish by Newton's method pays.
_FEW = 12
# The finish waits at most until the steps have cost so many times what it costs.
_WAITED = 2.0


def learn(
    problem: Any,
    samples: Any,
    *,
    iid: bool | None = None,
    sizes: Mapping[str, int] | None = None,
    columns: Columns = None,
    horizon: int | None = None,
    block: int | Sequence[int] = 10,
    form: Literal["qp", "conic"] | None = None,
    dtype: Any = None,
    equilibrate: bool = True,
    seed: int = 0,
    memory_limit: float | None = None,
    cache: "str | Path | bool" = True,
    progress: bool = True,
    **training: Any,
) -> tuple[Solver, Report]:
    """Return a learned solver for a problem, and a report of how good it is: references, splits, training, tests,
    certificate.

    `problem` is a CVXPY problem, a model that `from_cvxpy` made, or a family. `samples` are a function of a random
    generator that draws one parameter (a vector, or a dict of values by name), or past parameters: an array
    (N, size), a dict of named arrays, a list of dicts, or a CSV, Parquet or NPZ file.

    A sampler's draws are independent, so a certificate is made of validation instances. Past data are rarely so:
    the newest are for the test, those before for training, repetitions are left out, and they are certified only with
    `iid=True`, which says that they are independent draws from what the solver will meet; then all are taken as they
    are. `sizes` says how many instances `train`, `validation` and `test` take, `columns` what a file calls its columns
    (`read_samples`). `form`, `dtype` and `equilibrate` are `from_cvxpy`'s, the rest `train`'s; by default there are as
    many steps as pay. The memory it takes is told first, and refused where there is less. Interrupted and called again,
    it goes on where it was.

    >>> import cvxpy as cp, numpy as np
    >>> from longstep import learn
    >>> x, c = cp.Variable(2, name="x"), cp.Parameter(2, name="c")
    >>> problem = cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x), [x >= -1])
    >>> sizes = {"train": 5, "validation": 700, "test": 20}
    >>> solver, report = learn(problem, lambda rng: {"c": rng.normal(size=2)}, sizes=sizes, horizon=5, block=5,
    ...                        cache=False, progress=False)
    >>> solution = solver.solve({"c": [1.0, 4.0]}, eps_abs=1e-8, eps_rel=1e-8)
    >>> bool(np.allclose(solution.variables["x"], [-0.5, -1.0], atol=1e-5)), report.certificate is not None
    (True, True)
    """
    begin = perf_counter()
    _check_options(training)
    command = _write_call(
        iid=iid, sizes=sizes, columns=columns, horizon=horizon, block=block, form=form, dtype=dtype,
        equilibrate=equilibrate, seed=seed, **training,
    )  # fmt: skip
    model, family = _find_family(problem, form, dtype, equilibrate)
    parameters, notes = divide_samples(family, read_past(family, samples, columns), sizes, iid, seed)
    if model is not None:
        notes += model.notes
    others = parameters.pop("selection", None)
    shape = {"block": block, "memory_limit": memory_limit}
    count = family.count(family.vectors(parameters["train"]))
    recipe = choose_recipe(family)
    most, length = _choose_length(horizon, recipe.horizon)
    factors = training.get("factorizations") or recipe.factorizations
    forms: Sequence[Any] = list_forms(family)
    if "algorithm" in training:
        forms = [training.pop("algorithm")]
    largest = _find_largest(family, forms)
    expected = forecast(family, count, horizon=most, factorizations=factors, algorithm=largest, **shape)
    if progress:
        say(str(expected))
        say(_describe_work(family, parameters, length))
    expected.check()
    independent = callable(samples) or bool(iid)
    phases = Phases(progress)
    with phases.time("references", f"the optima of {count} training instances"):
        data, loss = _find_references(family, parameters, notes, iid=independent, cache=cache, progress=progress)
    if loss is not None:
        training = {"loss": loss} | training
    options = {"seed": seed, "cache": cache, "progress": progress, "horizon": horizon, **shape, **training}
    with phases.time("training", f"{length.rstrip(',')}, block by block"):
        trained = train(family, data.train, algorithm=forms, **options)
    steps = max(2 * len(trained.schedule), 100)
    baselines = begin_aside(lambda: _evaluate_baselines(family, trained, data.test, steps))
    with phases.time("selection", "the learned schedule, the best constant or the defaults"):
        if others is None:
            others = data.train.parameters
        name, kept, solver = _select(family, trained, others)
    with phases.time("test", f"what they cost on {len(data.test)} instances"):
        found, costs = _compare(name, solver, baselines(), data.test, steps)
        package = measure_package(family, data.test.parameters, steps)
        if has_exact_claim(solver):
            notes.append(_describe_exactness(solver, data.test.parameters))
    certificate = None
    if "validation" in parameters:
        with phases.time("certificate", f"what holds on {len(data.validation)} validation instances"):
            counts = _choose_claims(horizon or len(solver.schedule) or most)
            certificate = _certify(solver, data.validation, counts, notes, progress)
    return solver, Report(
        origin=model,
        data=data,
        training=kept,
        evaluations=found,
        certificate=certificate,
        forecast=expected,
        notes=notes,
        seconds=perf_counter() - begin,
        costs=costs,
        timing=phases.seconds,
        package=package,
        command=command,
    )


def _choose_length(horizon: int | None, usual: int) -> tuple[int, str]:
    """Return the most steps that are learned, and how many in words."""
    if horizon is None:
        return usual, f"as many steps as pay, up to {usual},"
    return horizon, f"{horizon} steps"


class _Baselines(NamedTuple):
    """What a learned solver is compared with: errors step by step and, where solve has an end, solvers."""

    evaluations: list[Evaluation]
    solvers: dict[str, Solver]


def _evaluate_baselines(family: Family, trained: Training, test: Split, steps: int) -> _Baselines:
    """Return the errors of the best constant and of the defaults on test instances, and their solvers, compiled."""
    methods = {"best constant": scheduled.best_constant(family, trained), "defaults": scheduled.vanilla(family)}
    found = [evaluate(method, test, steps, name=name, timed=not family.m) for name, method in methods.items()]
    if not family.m:
        return _Baselines(found, {})
    held = Solver(family, trained.constant, algorithm=trained.algorithm, ladder=False)
    solvers = {"best constant": held, "defaults": Solver(family, ladder=False)}
    if not family.sparse:
        for solver in solvers.values():
            solver.solve_batch(test.parameters, max_iter=1)
    return _Baselines(found, solvers)


def _compare(
    name: str, solver: Solver, baselines: _Baselines, test: Split, steps: int
) -> tuple[list[Evaluation], Costs | None]:
    """Return the errors of the solver that is kept and of the baselines, and what each costs where solve has an end,
    whose time is the one that counts then."""
    own = evaluate(solver, test, steps, name=name, timed=not solver.family.m)
    costs = None
    if solver.family.m:
        costs = compare_costs({name: solver, **baselines.solvers}, test.parameters)
    return [own, *baselines.evaluations], costs


def _describe_work(family: Family, parameters: Mapping[str, Any], length: str) -> str:
    """Return what is going to be done, and about how long that takes where it is known."""
    roles = {"train": "to learn from", "validation": "to certify with", "test": "to compare on"}
    counts = {name: family.count(family.vectors(parameters[name])) for name in roles if name in parameters}
    parts = ", ".join(f"{counts[name]} {roles[name]}" for name in counts)
    usual = ""
    if family.n <= _KNOWN:
        usual = ". Families of this size take half a minute to six minutes on two cores, the first time"
    return f"plan: {length} for {family.n} unknowns and {family.m} rows; instances: {parts}{usual}"


def _certify(solver: Solver, split: Split, counts: list[int], notes: list[str], progress: bool) -> Certificate | None:
    """Return a certificate; None, with a note, where there are too few instances for one."""
    least = least_validation(len(counts), finish=has_exact_claim(solver))
    if len(split) < least:
        notes.append(f"No certificate: it takes {least} validation instances, and there are {len(split)}.")
        return None
    return certify(solver, split, counts, progress=progress)


def _check_options(training: Mapping[str, object]) -> None:
    """Refuse options that neither `learn` nor `train` has, in the name of the one that was called."""
    known = [*inspect.signature(learn).parameters, *inspect.signature(train).parameters]
    for name in sorted(set(training) - set(known)):
        raise TypeError(f"learn() got an unexpected keyword argument {name!r}{suggest(name, known)}")


def _write_call(**options: object) -> str:
    """Return the call of `learn` with these options, long ones cut, without those that are as they come."""
    usual = inspect.signature(learn).parameters
    given = [f"{k}={reprlib.repr(v)}" for k, v in options.items() if k not in usual or v != usual[k].default]
    return f"longstep.learn({', '.join(['problem', 'samples', *given])})"


def list_forms(family: Family) -> list[Algorithm]:
    """Return the algorithms that are trained on a family, each of which says so: that of the smaller step first.

    A family with sparse factors has only the form that keeps them so.
    """
    if family.sparse:
        return [default_algorithm(family)]
    return list_tried(family, exact=can_finish(family), large=family.n > LARGE)


def _find_largest(family: Family, forms: Sequence[Algorithm]) -> Algorithm:
    """Return the one whose training takes most memory; the default where they are alike."""
    known = [form for form in forms if isinstance(form, Algorithm)]
    return max([default_algorithm(family), *known], key=lambda form: form.numbers_per_step)


def _select(family: Family, trained: Training, parameters: Any) -> tuple[str, Training, Solver]:
    """Return the name, the record and the solver of the learned schedule, the best constant or the defaults, whichever
    costs a user least. The ladder of the learned one is used from the start or late, and so is its finish."""
    if trained.algorithm.metric_groups(family) is None:
        return "learned", trained, Solver(family, trained)
    candidates = _list_candidates(family, trained, parameters)
    place = choose_solver([solver for _, _, solver in candidates], parameters)
    return candidates[place]


def _list_candidates(family: Family, trained: Training, parameters: Any) -> list[tuple[str, Training, Solver]]:
    """Return what might be kept. Where the finish makes all instances exact at once, the ladder that comes later and
    the defaults are in no question."""
    trained, all_exact = _learn_patience(family, trained, parameters)
    held = _record_kept(replace(trained, schedule=trained.constant), "the best constant")
    candidates = [
        ("learned", trained, Solver(family, trained, ladder=True)),
        ("best constant with ladder", held, Solver(family, held, ladder=True)),
    ]
    if all_exact:
        return candidates
    usual = default_algorithm(family)
    settled = constant(usual.hyperparameters(family))
    untrained = replace(trained, algorithm=usual, schedule=settled, constant=settled, start=None)
    defaults = _record_kept(untrained, "the defaults")
    return [
        *candidates,
        ("learned", trained, Solver(family, trained)),
        ("defaults with ladder", defaults, Solver(family, defaults, ladder=True)),
    ]


def _learn_patience(family: Family, trained: Training, parameters: Any) -> tuple[Training, bool]:
    """Return a training with what is known of when its finish is first tried, and whether that makes all instances
    exact. It is worth trying early, or when the steps before have cost about as much as it does: many solves to loose
    tolerances have ended by then, and none takes much longer than thrice the finish."""
    learned = Solver(family, trained, ladder=True)
    early = learned.finish
    if early is None:
        return trained, False
    all_exact = False
    some = family.vectors(parameters)
    count = family.count(some)
    few = count
    if not finishes_by_sets(family):
        # Newton's tries take long: a few instances tell, in batches of the shape that is compiled for all.
        few = min(count, _FEW)
        some = family.select(some, spread_out(count, few, count))

    def measure(steps: int, eps: float, most: int) -> Cost:
        learned.finish = steps
        return solver_cost("", learned, some, eps, most=most).take_first(few)

    if finishes_by_sets(family):
        found = try_first(learned, parameters)
        all_exact = bool(np.all(found.exact))
        extra = finish_cost(family, found, is_singular(trained.record))
        last = max(early, int(_WAITED * np.mean(extra)))
        marks = {early}
        if last > early:
            usual = [measure(last, eps, limit_steps(family)) for eps in TRIED]
            marks |= {foresee_try(cost.steps, extra, early, last) for cost in usual}
    else:
        # Newton's steps cost many of these: worth it at once where the steps that come after creep.
        marks = {max(len(trained.schedule), 1), early}
    if len(marks) == 1:
        return replace(trained, record=trained.record | {"finish": early}), all_exact
    tries = choose_tries(sorted(marks), measure, limit_steps(family))
    record = trained.record | {"finish": tries.tight}
    if np.isfinite(tries.eps):
        record["patience"] = [tries.eps, tries.loose]
    return replace(trained, record=record), all_exact


def _record_kept(training: Training, kept: str) -> Training:
    """Return a training whose words and record say what is kept of it."""
    return replace(training, kept=kept, record=training.record | {"kept": kept})


def _describe_exactness(solver: Solver, parameters: Any) -> str:
    """Return how many instances the first try of the finish makes exact."""
    found = try_first(solver, parameters)
    changes = ""
    if np.any(found.exact):
        changes = f" and at most {np.max(found.changes)} changes of the active set"
    share = f"{np.sum(found.exact)} of {len(found)} test instances"
    return f"Exact to rounding after {solver.finish} steps{changes}: {share}."


def _find_references(family: Family, parameters: dict, notes: list[str], **options: Any) -> tuple[Dataset, str | None]:
    """Return the splits with the optima that are needed, and the loss to train with, where that is not the default.

    Residuals tell all of a constrained problem; of the others only the optimum does. Residuals alone may fall while the
    point stays away: optima are wanted in training all the same, but need not be the most accurate ones. Rough ones
    still tell the sizes of rows and multipliers.
    """
    if not family.m:
        return Dataset.from_parameters(family, parameters, **options), None
    made = functools.partial(Dataset.from_parameters, family, parameters, **options)
    try:
        return made(references=["train"], accuracy=_ACCURATE), "both"
    except NoOptimumError as error:
        status = np.asarray(Solver(family).solve_batch(parameters["train"]).status)
        feasible = np.flatnonzero(~np.isin(status, INFEASIBLE))
        if not 1 < feasible.size < status.size:
            raise
        left_out = status.size - feasible.size
        notes.append(f"{left_out} of {status.size} training instances have no solution and were left out ({error}).")
        parameters["train"] = family.select(family.vectors(parameters["train"]), feasible)
        return _find_references(family, parameters, notes, **options)
    except InaccurateReferenceError as error:
        # What it advises is for those who ask for optima themselves.
        notes.append(f"Trained by residuals alone: {str(error).split('. ')[0]}.")
    try:
        return made(references=["train"], accuracy=_ROUGH), "metric"
    except InaccurateReferenceError:
        return made(references=False), "metric"


def _find_family(problem: Any, form: Any, dtype: Any, equilibrate: bool) -> tuple[Model | None, Family]:
    if isinstance(problem, Family | Model):
        if form is not None or dtype is not None or not equilibrate:
            raise ValueError("form, dtype and equilibrate are for CVXPY problems; this family has them already")
        if isinstance(problem, Model):
            return problem, problem.family
        return None, problem
    if dtype is None:
        dtype = "float64"
    model = from_cvxpy(problem, form=form, equilibrate=equilibrate, dtype=dtype)
    return model, model.family


def _choose_claims(most: int) -> list[int]:
    """Return a few iteration counts up to the last step-varying one."""
    return sorted({max(1, round(most * k / _CLAIMS)) for k in range(1, _CLAIMS + 1)})
