"""Solver: a family, an algorithm and a schedule, with every factorization made in advance."""

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from typing_extensions import Unpack, override

from ._util.hashing import content_hash
from ._util.optional import map_given
from ._util.processes import require_jax
from .algorithms.base import Algorithm
from .algorithms.registry import default_algorithm
from .data.columns import Columns
from .engine import batching, jitted
from .engine.budget import Budget, Clock, check_tolerances
from .engine.ended import collect_ended, collect_rays, flag_safeguarded, widen_ended
from .engine.finisher import Finisher, can_finish, choose_first_attempt, recall_patience, recall_proximal
from .engine.function import Function
from .engine.history import History
from .engine.learned import Learned
from .engine.measure import Measure
from .engine.plan import make_plan
from .engine.rules import RULES
from .engine.rungs import LadderUse
from .engine.solution import INFEASIBLE, Ended, Solution, Status, join_pieces, make_solution
from .engine.start import LearnedStart, Predictor, check_start, read_start
from .engine.stopping import Limits
from .engine.traced import TracedSolve, make_traced
from .engine.walk import Attempts, Rehearsal, rehearse, walk
from .export_c import CompiledSolver, compile_solver
from .families.base import Encoded, Family
from .families.parameter_range import Seen
from .families.point import Point
from .families.quadratic_program import QP
from .saving.fields import make_or_refuse
from .saving.files import Parts, load_parts, save_parts
from .schedules.schedule import Schedule, check_metric, check_schedule, constant
from .streaming.sources import SourceLike
from .streaming.stream import LimitOptions as StreamLimits
from .streaming.stream import Precision, SinkLike, stream
from .streaming.tally import Tally


class Solver:
    """Solves instances of one family with one schedule. Everything that depends on θ is computed here, once.

    `schedule` is one, or what `train` returned, whose record is then kept. Without it the algorithm's defaults are
    used, which are those of the C packages; keyword values replace them: `Solver(family, rho_ineq=1.0)`.

    The `safeguard` watches the step-varying phase: where the objective (or the residual) did not fall over a block of
    the schedule, an instance returns to the block's start, takes a block of steps with safe hyperparameters and joins
    the schedule again, or keeps to safe ones after the second time; `"step"` takes back single steps after which it
    grew tenfold; None trusts the schedule. `Solution.safeguarded` tells where it acted.

    The `ladder` is for instances that get on slowly in the steady state of ADMM methods: as OSQP adapts rho, they move
    to another multiple of the penalties, whose factors are made here too, and in the end to the fallback of the
    schedule. `"late"` has the fallback alone, and moves only after 1000 steps: so it is by default where penalties were
    learned. Defaults have it from the start, schedules that were given as such not at all.

    The `finish` is for quadratic programs of up to 1000 unknowns and 1000 rows: after `finish` steps, and again after
    twice, four times … as many, the active set of every instance that has not ended is taken from its multipliers,
    mended row by row until it is the optimal one, and solved for exactly. Such a point counts only if its residuals
    and gap are below 1e-9; otherwise the steps go on as if nothing had been tried. A warm start's set is tried before
    the first step. Cone programs, up to 1000 unknowns and rows together, have one by Newton's method, which is not
    tried where there is a time limit. Learned solvers use a finish by default, for QPs after as many steps as training
    found best, with loose tolerances after more where fewer solves then need it; `True` takes that number too, or 30
    without training, and False is without. Where P is singular, `Solver.proximal` times its largest eigenvalue stands
    in for what it lacks, in steps that take it off again; training finds that too. Composites of a Quadratic with L1,
    Box or NonNegative have the finish of QPs, with the support or the unknowns at bounds as the set.
    `solve(steps=…)` and `run` take steps and nothing else.
    A finish is in float64. Asked for on a float32 family, it takes the user's own data and what the steps in float32
    reached, and points are then returned in float64.

    `factors="float32"` keeps the factorizations of a float64 family in float32: half the memory, and products that are
    faster. Iterates, residuals and what is solved for stay in float64, and iterative refinement, where the algorithm
    needs it, makes up for the rest: solutions are as accurate as before.

    >>> import numpy as np
    >>> from longstep import QP, Solver
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> solver = Solver(family)
    >>> solution = solver.solve({"q": [-0.5, 3.0]}, eps_abs=1e-8, eps_rel=1e-8)
    >>> solution.status.name, bool(np.allclose(solution.x, [0.5, 0.0], atol=1e-6))
    ('SOLVED', True)
    """

    def __init__(
        self,
        family: Family,
        schedule: "Schedule | Learned | None" = None,
        *,
        algorithm: Algorithm | None = None,
        safeguard: Literal["block", "step"] | None = "block",
        factors: Literal["float32", "float64"] | None = None,
        ladder: LadderUse | None = None,
        finish: bool | int | None = None,
        **values: float,
    ):
        require_jax(family.dtype)
        self.family = family
        self.record: dict[str, Any] | None = None
        self.seen: Seen | None = None
        self.start: LearnedStart | None = None
        # A schedule that is given is taken as it is, and defaults are those of the packages, which adapt rho. What the
        # balance of residuals says is a guess: for learned penalties, which are none, it comes late.
        learned = isinstance(schedule, Learned)
        usual_ladder: LadderUse = schedule is None
        if learned:
            usual_ladder = "late"
        if isinstance(schedule, Learned):
            self.record = schedule.record
            self.seen = schedule.seen
            self.start = schedule.start
            if algorithm is None:
                algorithm = schedule.algorithm
            schedule = schedule.schedule
        if algorithm is None:
            algorithm = default_algorithm(family)
        self.algorithm: Algorithm = algorithm
        self.algorithm.check_family(family)
        if self.start is not None:
            check_start(self.start, family, self.algorithm.starts_from_rows)
        hyperparameters = self.algorithm.hyperparameters(family)
        if schedule is not None and values:
            raise ValueError(f"give a schedule or constant values ({', '.join(values)}), not both")
        if schedule is None:
            schedule = constant(hyperparameters, **values)
        self.schedule: Schedule = schedule
        check_schedule(self.schedule, hyperparameters, type(self.algorithm).__name__)
        check_metric(self.schedule, self.algorithm.metric_groups(family), type(self.algorithm).__name__)
        if safeguard not in (*RULES, None):
            raise ValueError(f"safeguard must be 'block', 'step' or None, got {safeguard!r}")
        self.safeguard: Literal["block", "step"] | None = safeguard
        self.factors: Literal["float32"] | None = _choose_precision(factors, family, self.algorithm)
        if ladder not in (True, False, "late", None):
            raise ValueError(f"ladder must be True, False, 'late' or None, got {ladder!r}")
        if ladder is None:
            ladder = usual_ladder
        self.ladder: LadderUse = ladder
        if finish is None:
            finish = learned and can_finish(family)
        self.finish = choose_first_attempt(family, finish, self.record)
        self.patience = recall_patience(self.record) if finish is True else None
        self.proximal = recall_proximal(self.record)
        self._finisher = None
        self._working = self.algorithm.prepare_family(family)
        self.plan = make_plan(
            self.algorithm,
            self._working,
            self.schedule,
            safeguard=safeguard,
            precision=map_given(np.dtype, self.factors),
            ladder=self.ladder,
        )
        self._key, self._leaves = jitted.flatten((self.algorithm, self._working, self.plan))
        self._bind_methods(type(family))

    def _bind_methods(self, kind: type[Family]) -> None:
        """Keep methods of the family: those of Equinox modules are pytrees when they are bound, and cost a traversal of
        the family at every call."""
        self._encode = functools.partial(kind.encode, self.family)
        self._take = functools.partial(kind.take, self.family)
        self._select = functools.partial(kind.select, self.family)
        self._count = functools.partial(kind.count, self.family)
        self._single = functools.partial(kind.batch_one, self.family)

    def solve(
        self,
        parameter: Any,
        *,
        warm_start: "Solution | Point | None" = None,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
        time_limit: float | None = None,
        check_every: int = 5,
        eps_infeasible: float | None = None,
    ) -> Solution:
        """Solve one instance, given by its parameter, by the named values of it, or (no names) by a dict of its data.

        Stops when primal residual, dual residual and gap are within eps_abs + eps_rel·(their scale) in the
        ∞-norm and the user's units, or at `max_iter` steps or `time_limit` seconds with the best point so far.
        A `warm_start` begins in the steady state, because the step-varying phase is made for a zero start,
        unless the schedule says `warm`. The time that JAX takes to compile a new shape is not held against the
        limit.

        `steps=K` takes exactly K steps instead, with no check on the way: the same work for every instance. The
        status then says whether the last point meets the tolerances; infeasibility is not looked for.
        """
        require_jax(self.family.dtype)
        clock = Clock(time_limit)
        budget = Budget(max_iter, steps, time_limit)
        limits = self._limits(eps_abs, eps_rel, eps_infeasible, check_every)
        single = self._single(parameter)
        encoded = self._encode(single)
        given = _Given(*(self._take(each, 0) for each in (encoded, self._encode_exactly(encoded, single))))
        start = self._read_start(warm_start, ())
        ended = self._solve(given, start, limits, budget, clock, self._leaves)
        return make_solution(ended, clock.measure_elapsed(), self.family.layout, single)

    def solve_batch(
        self,
        parameters: Any,
        *,
        warm_start: "Solution | Point | None" = None,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
        time_limit: float | None = None,
        check_every: int = 5,
        eps_infeasible: float | None = None,
        chunk: int | None = None,
    ) -> Solution:
        """Solve many instances at once; like `solve`, with a leading axis of instances in and out.

        They run as columns of shared matrix products, `chunk` at a time: by default 512 on a CPU, with as many threads
        as there are cores, and on accelerators 100,000 for each, or as many as fit; with sparse factors one. Where JAX
        sees several devices, the instances are spread over all of them. A time limit is for the whole batch.
        """
        require_jax(self.family.dtype)
        clock = Clock(time_limit)
        budget = Budget(max_iter, steps, time_limit)
        limits = self._limits(eps_abs, eps_rel, eps_infeasible, check_every)
        parameters = self.family.vectors(parameters)
        count = self._count(parameters)
        if count == 0:
            raise ValueError("the batch is empty")
        if chunk is None:
            chunk = self._chunk()
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        start = self._read_start(warm_start, (count,))

        def solve_piece(index: int, width: int) -> Ended:
            # Padding with the last instance keeps the number of compiled shapes small.
            padded = np.minimum(np.arange(index, index + width), count - 1)
            some = self._select(parameters, padded)
            encoded = self._encode(some)
            exactly = self._encode_exactly(encoded, some)
            given = _Given(batching.spread(encoded, self.family.instance_axis), exactly)
            part = None
            if start is not None:
                part = batching.spread(start.map(lambda a: a[..., padded]), -1)
            return self._solve(given, part, limits, budget, clock, self._everywhere)

        pieces = batching.divide(count, chunk)
        parts = batching.run(solve_piece, pieces)
        kept = [min(width, count - index) for index, width in pieces]
        return make_solution(join_pieces(parts, kept), clock.measure_elapsed(), self.family.layout, parameters)

    def map(
        self,
        source: SourceLike,
        sink: SinkLike,
        *,
        variables: Sequence[str] | None = None,
        dtype: Precision = None,
        columns: Columns = None,
        keep: Sequence[str] = (),
        rows: int | None = None,
        shard: tuple[int, int] | None = None,
        progress: bool = True,
        **limits: Unpack[StreamLimits],
    ) -> Tally:
        """Solve all instances of a source in constant memory, write the results to a sink, and return how they ended.

        The `source` is a .parquet, .csv or .npy file with one instance a row, a folder of Parquet files, or an iterable
        of batches as `solve_batch` takes them; `columns` says what a table calls its columns, as for `read_samples`.
        The `sink` is a .parquet file, a folder for the parts that such a file is joined from, or a function that takes
        the columns of one part after the other. The table has a row for each instance, in the order of the source:
        status, iterations, objective and residuals, then the `variables` that are named (`["u", "x[0]"]`; all by
        default), in `dtype="float32"` on request, and before all that the columns of the source to `keep`.

        A part is `rows` instances of a file, by default up to 65,536. Parts are written one by one, so that the same
        call after a kill goes on where it was and ends with the same file. `shard=(i, k)` solves the i-th of k equal
        shares of the parts, from (1, k) to (k, k), on as many machines; whichever ends last joins all. The other
        options are those of `solve_batch`.

        >>> import numpy as np
        >>> from longstep import QP, Solver
        >>> solver = Solver(QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2)))
        >>> batches = ({"q": np.random.default_rng(k).normal(size=(50, 2))} for k in range(3))
        >>> found = []
        >>> solver.map(batches, found.append, variables=["x[1]"], dtype="float32").message
        '150 solved'
        >>> [*found[2]][-2:], found[2]["x[1]"].dtype
        (['safeguarded', 'x[1]'], dtype('float32'))
        """
        return stream(
            self,
            source,
            sink,
            variables=variables,
            dtype=dtype,
            columns=columns,
            keep=keep,
            rows=rows,
            shard=shard,
            progress=progress,
            **limits,
        )

    def function(
        self,
        *,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
        check_every: int = 5,
        eps_infeasible: float | None = None,
    ) -> Function:
        """Make a pure function of JAX that solves one instance, to be used under `jit`, `vmap`, `grad` and in `scan`.

        It takes what `solve` takes, or the named values as keywords, and returns a `TracedSolution`. Names and shapes
        are refused as there; values cannot be checked while JAX traces, and show in the status. Under `vmap` instances
        run as columns, as in `solve_batch`. Derivatives are those of the solution itself, by its conditions of
        optimality (`longstep.engine.derivative`), in forward and reverse mode; they are as good as the point is, so
        ask for small tolerances, or have a finish.
        """
        require_jax(self.family.dtype)
        if self.finish is not None and not can_finish(self.family):
            raise ValueError(
                "this solver takes steps in float32 and finishes in float64, which a function of JAX cannot do: make "
                'it with finish=False, or give the family dtype="float64"'
            )
        limits = self._limits(eps_abs, eps_rel, eps_infeasible, check_every)
        budget = Budget(max_iter, steps, None)
        finish = None
        if self.finish is not None:
            finish = make_traced(self._working, self.proximal)
        solve = TracedSolve(
            key=self._key,
            leaves=self._leaves,
            limits=limits,
            budget=budget,
            finish=finish,
            after=self._choose_try(limits),
            predict=self._predict,
        )
        return Function(self.family, solve)

    def run(self, parameters: Any, count: int, *, warm_start: "Solution | Point | None" = None) -> History:
        """Return residuals and objectives after 0, 1, …, `count` steps of a batch, arrays (N, count + 1).

        Column k is of the point that `solve(…, steps=k)` returns; column 0 is the start. They are measured in float64,
        in other precisions from the points themselves. The objective is the family's own, without the sign and the
        constants of a CVXPY problem. `safeguarded` (N,): where the safeguard acted.
        """
        require_jax(self.family.dtype)
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        parameters = self.family.vectors(parameters)
        instances = self._count(parameters)
        if instances == 0:
            raise ValueError("the batch is empty")
        start = self._read_start(warm_start, (instances,))

        def run_piece(index: int, width: int) -> History:
            padded = np.minimum(np.arange(index, index + width), instances - 1)
            part = map_given(lambda point: point.map(lambda a: a[..., padded]), start)
            found = self._run_piece(self._select(parameters, padded), width, count, part)
            kept = min(width, instances - index)
            return jax.tree.map(lambda a: a[:kept], found)

        largest = batching.choose_narrow(instances)
        if self.plan.on_host:
            largest = 1
        parts = batching.run(run_piece, batching.divide(instances, largest))
        return jax.tree.map(lambda *a: np.concatenate(a), *parts)

    def _run_piece(self, parameters: Any, instances: int, count: int, start: Point | None) -> History:
        """Return the history of instances that are run together."""
        encoded = self._encode(parameters)
        first = self._choose_first(start)
        if start is None:
            start = self._predict(encoded)
        if self.family.dtype != np.float64:
            visited, safe = jitted.visit_points(self._key, int(count), first, self._leaves, encoded, start)
            points = [visited.map(lambda a, k=k: np.asarray(a[k])) for k in range(count + 1)]
            return self._measure(parameters, points, flag_safeguarded(safe, instances))
        found, safe = jitted.record_steps(self._key, int(count), first, self._leaves, encoded, start)
        fields: dict[str, Any] = {field: np.asarray(value).T for field, value in vars(found).items()}
        return History(**fields, safeguarded=flag_safeguarded(safe, instances))

    def rehearse(self, parameters: Any, marks: Iterable[int], eps: float) -> Rehearsal:
        """Take a batch to each of these numbers of steps, as a solve to `eps` would, to try the finish there."""
        parameters = self.family.vectors(parameters)
        count = self._count(parameters)
        _, width = batching.divide(count, count)[0]
        padded = np.minimum(np.arange(width), count - 1)
        encoded = self._encode(self._select(parameters, padded))
        limits = self._limits(eps, eps, None, 5)
        return rehearse(self._key, self._leaves, encoded, self._predict(encoded), limits, marks)

    def make_finisher(self, proximal: float) -> Finisher:
        """Make what tries to finish, with this proximal term where P is singular."""
        return Finisher(self._working, proximal)

    def seconds(self, parameters: Any, count: int) -> np.ndarray:
        """Return the wall-clock seconds (N,) of exactly `count` steps in one batch, an equal share for each
        instance."""
        self.solve_batch(parameters, steps=count)  # compiles
        instances = self._count(parameters)
        return np.full(instances, self.solve_batch(parameters, steps=count).time / instances)

    def compile(
        self, backend: Literal["c"] = "c", *, precision: Literal["double", "float"] = "double", method: str = "auto"
    ) -> "CompiledSolver | Solver":
        """Make C of this solver, built with the machine's compiler and kept in the cache; see `longstep.export_c`.

        For one instance at a time it is many times faster. Without a compiler, or without room on disk: a
        warning, and this solver itself.
        """
        return compile_solver(self, backend, precision, method)

    @property
    def name(self) -> str:
        """The algorithm, and how many of its steps are learned."""
        kind = type(self.algorithm).__name__
        if not len(self.schedule):
            return kind
        return f"{kind}, {len(self.schedule)} step-varying steps"

    def content_hash(self) -> str:
        """Return a SHA-256 of the family, the algorithm, the schedule, the safeguard, the factors' precision, the
        ladder, the finish and the start: all that a solution depends on."""
        parts = [*self.algorithm.identity(), self.schedule.to_json(), self.safeguard]
        if self.factors is not None:
            parts += [self.factors]
        if self.plan.ladder is not None:
            parts += ["ladder", self.ladder]
        if self.finish is not None:
            parts += ["finish", self.finish, self.proximal, *(self.patience or ())]
        if self.start is not None:
            parts += ["start", self.start.content_hash()]
        return content_hash(self.family.content_hash(), tuple(parts))

    def save(self, path: "str | Path") -> None:
        """Write the family, the algorithm and the schedule to one file, atomically. See `longstep.saving`."""
        save_parts(self._to_parts(), Path(path))

    @staticmethod
    def load(path: "str | Path", *, family: Family | None = None) -> "Solver":
        """Read a solver that `save` wrote. A family made of Python functions must be passed again."""
        path = Path(path)
        parts = load_parts(path, family)
        return make_or_refuse(path, "the solver", lambda: _make_of_parts(parts))

    @override
    def __reduce__(self) -> "tuple[Callable[[Parts], Solver], tuple[Parts]]":
        """Pickle what it was made of: a copy makes the factors again, which no other process can share."""
        return _make_of_parts, (self._to_parts(),)

    def _to_parts(self) -> Parts:
        """Return what the solver is made of."""
        return Parts(
            family=self.family,
            algorithm=self.algorithm,
            schedule=self.schedule,
            safeguard=self.safeguard,
            factors=self.factors,
            ladder=self.ladder,
            finish=self.finish,
            patience=self.patience,
            record=self.record,
            seen=self.seen,
            start=self.start,
        )

    @override
    def __repr__(self) -> str:
        f = self.family
        rows = ""
        if f.m:
            rows = f", m={f.m}"
        return (
            f"Solver({type(f).__name__}(n={f.n}{rows}, {f.dtype}), {type(self.algorithm).__name__}, "
            f"{len(self.schedule)} step-varying steps)"
        )

    @functools.cached_property
    def _measure(self) -> Measure:
        return Measure(self.algorithm, self._working)

    def _chunk(self) -> int:
        """Return how many instances run at a time: one where its columns are solved one by one anyway, because then
        none waits for another on the ladder or at the end."""
        if self.plan.on_host:
            return 1
        return batching.chunk(self.family.n + 2 * self.family.m, self.family.dtype.itemsize)

    def _keep_finisher(self) -> Finisher:
        """Return what tries to finish; made once for a proximal term."""
        if self._finisher is None or self._finisher.proximal != self.proximal:
            self._finisher = self.make_finisher(self.proximal)
        return self._finisher

    @functools.cached_property
    def _everywhere(self) -> tuple:
        return batching.share_everywhere(self._leaves)

    @functools.cached_property
    def _predict(self) -> Callable[[Any], Point | None]:
        """Where instances without a warm start begin; None is zero. Made when it is asked for: what is made while JAX
        traces cannot be kept."""
        if self.start is None:
            return _predict_nothing
        assert isinstance(self.family, QP)
        return Predictor(self.family, self.start)

    def _choose_first(self, start: Point | None) -> int:
        if start is None or self.schedule.warm:
            return 0
        return len(self.schedule)

    def _read_start(self, given: "Solution | Point | None", shape: tuple[int, ...]) -> Point | None:
        """Return a warm start for instances of this shape; None where none was given."""
        if given is None:
            return None
        return read_start(self.family, given, shape)

    def _choose_try(self, limits: Limits) -> int:
        """Return after how many steps the finish is first tried with these tolerances."""
        eps = np.maximum(np.asarray(limits.eps_abs), np.asarray(limits.eps_rel))
        if self.patience is not None and eps >= self.patience.eps:
            return self.patience.steps
        return self.finish or 0

    def _limits(self, eps_abs: float, eps_rel: float, eps_infeasible: float | None, check_every: int) -> Limits:
        if eps_infeasible is None:
            eps_infeasible = self.algorithm.eps_infeasible
        check_tolerances(eps_abs, eps_rel, eps_infeasible, check_every)
        number = self.family.dtype.type
        return Limits(number(eps_abs), number(eps_rel), number(eps_infeasible), np.int32(check_every))

    def _encode_exactly(self, encoded: Encoded, parameters: Any) -> Encoded:
        """Return instances as the finish takes them, which is in float64."""
        if self.finish is None or self.family.dtype == np.float64:
            return encoded
        return self._keep_finisher().encode(parameters)

    def _solve(
        self, given: "_Given", start: Point | None, limits: Limits, budget: Budget, clock: Clock, leaves: tuple
    ) -> Ended:
        encoded = given.encoded
        first = self._choose_first(start)
        is_warm = start is not None
        if start is None:
            start = self._predict(encoded)
        max_iter = budget.max_iter
        exact = None
        if budget.fixed:
            progress, point = jitted.take_steps(self._key, max_iter, first, leaves, encoded, start, limits)
        elif clock.limit is None and self.finish is None:
            progress, point = jitted.solve_until(self._key, leaves, encoded, start, limits, first, max_iter)
        else:
            attempts = None
            if self.finish is not None:
                attempts = Attempts(self._keep_finisher(), given.exactly, self._choose_try(limits), is_warm)
            progress, exact = walk(self._key, leaves, encoded, start, limits, first, max_iter, clock, attempts)
            point = jitted.extract_best(self._key, leaves, encoded, progress)
        left = Status.ITERATION_LIMIT
        if clock.limit is not None and int(progress.k) < max_iter:
            left = Status.TIME_LIMIT
        ended = collect_ended(progress, point, left)
        if np.isin(ended["status"], INFEASIBLE).any():
            ended |= collect_rays(ended["status"], jitted.extract_rays(self._key, leaves, encoded, progress))
        if self.seen is not None:
            ended["outside"] = self.seen.find_outside(encoded)
        if self.finish is not None and not budget.fixed:
            # Whether the finish was tried or not.
            ended = widen_ended(ended)
        if exact is None:
            return ended
        return exact.put_into(ended)


class _Given(NamedTuple):
    """Instances as the steps take them, and as the finish does."""

    encoded: Encoded
    exactly: Encoded


def _choose_precision(factors: Any, family: Family, algorithm: Algorithm) -> Literal["float32"] | None:
    """Return what the factors are kept in, where that is not the family's own precision."""
    if factors not in (None, "float32", "float64"):
        raise ValueError(f"factors must be 'float32', 'float64' or None, got {factors!r}")
    if factors is not None and algorithm.pattern(family) is None:
        raise ValueError(f"{type(algorithm).__name__} has no factorizations: leave factors={factors!r} out")
    if factors == "float64" and family.dtype == np.float32:
        raise ValueError("a float32 family keeps its factors in float32; make the family with dtype='float64'")
    if factors == "float32" and family.dtype != np.float32:
        return "float32"
    return None


def _make_of_parts(parts: Parts) -> Solver:
    """Return the solver that is made of these."""
    finish: int | bool | None = parts.finish
    if finish is None:
        finish = False
    solver = Solver(
        parts.family,
        parts.schedule,
        algorithm=parts.algorithm,
        safeguard=parts.safeguard,
        factors=parts.factors,
        ladder=parts.ladder,
        finish=finish,
    )
    solver.record = parts.record
    solver.seen = parts.seen
    solver.start = parts.start
    solver.patience = parts.patience
    solver.proximal = recall_proximal(parts.record)
    return solver


def _predict_nothing(encoded: Encoded) -> None:
    """Return None: instances begin at zero. A function of its own, so that solvers that were used can be pickled."""
