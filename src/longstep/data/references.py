"""Reference optima of many instances: in parallel, with a progress bar, cached on disk, resumable."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.sparse as sp
from jaxtyping import PyTree

from .._util import storage
from .._util.hashing import content_hash
from .._util.progress import Bar
from ..cones.base import ClarabelCone
from ..families.base import Family, Parameters
from ..families.composite import Composite
from ..families.conic import Conic
from ..families.quadratic_program import QP
from ..families.smooth import Quadratic, Smooth
from .exact import MANY, find_exact
from .optima import Optima, Optimum, conic_optimum, qp_optimum, quadratic_optimum, require, symmetric_solver

if TYPE_CHECKING:
    import joblib

# Part of every cache key: raise it when the meaning of a stored optimum changes.
_CACHE_VERSION = 1
_CHUNK = 16
# Chunks that are sent at a time to engines that give nothing back before all are done.
_ROUND = 64
# Seconds of work for which other processes are not worth starting: each imports this package first.
_WORTH = 5.0

Arguments = ParamSpec("Arguments")
FamilyT = TypeVar("FamilyT", bound=Family)


def solve_references(
    family: Family,
    parameters: Parameters,
    *,
    accuracy: float = 1e-8,
    cache: "str | Path | bool" = True,
    jobs: int = -1,
    progress: bool = True,
) -> Optima:
    """Trusted optima of N parameters; one that misses the accuracy (a relative KKT error) raises an error.

    QP and Conic go to Clarabel (a QP is then solved exactly on its active rows), Quadratic to the normal equations,
    Composite to accelerated proximal gradient and Newton on the active coordinates, Smooth to Newton. Of thousands of
    instances, those of QPs and composites go to the finish first (`longstep.data.exact`). Finished chunks are kept in
    `cache` (True: the folder in LONGSTEP_CACHE, else the user’s cache folder; False: none), so a second call is instant
    and an interrupted one goes on where it was. `jobs` and any `joblib.parallel_config` around the call say where the
    work is done.
    """
    count = family.count(parameters)
    if count == 0:
        raise ValueError("there are no parameters to solve for")
    folder = storage.cache_folder(cache, "references")
    starts = list(range(0, count, _CHUNK))
    parts: dict[int, Optima] = {}
    key = "" if folder is None else content_hash("references", _CACHE_VERSION, family.content_hash(), accuracy)
    files = {}
    for start in starts:
        if folder is not None:
            part = family.select(parameters, np.arange(start, min(start + _CHUNK, count)))
            files[start] = folder / f"{content_hash(key, _plain(part))}.optima"
            found = _load(files[start])
            if found is not None:
                parts[start] = found
    missing = [start for start in starts if start not in parts]
    with Bar("reference optima", count, progress and bool(missing)) as advance:
        advance(sum(map(len, parts.values())))
        ranges = [(start, min(start + _CHUNK, count)) for start in missing]
        for start, optima in _solve(family, parameters, ranges, accuracy, jobs):
            parts[start] = optima
            if folder is not None:
                _store(files[start], optima)
            advance(len(optima))
    return _join([parts[start] for start in starts])


def _solve(
    family: Family, parameters: Parameters, ranges: list[tuple[int, int]], accuracy: float, jobs: int
) -> Iterator[tuple[int, Optima]]:
    """The optima of ranges of parameters with the first number of each, as they are done: by the finish where there are
    many, else and where it fails by a reference solver."""
    done = set[int]()
    if sum(end - start for start, end in ranges) >= MANY:
        for start, optima in find_exact(_wide(family), parameters, ranges, accuracy):
            done.add(start)
            yield start, optima
    left = [(start, end) for start, end in ranges if start not in done]
    for (start, _), optima in zip(left, _compute(family, parameters, left, accuracy, jobs), strict=True):
        yield start, optima


def _compute(
    family: Family, parameters: Parameters, ranges: list[tuple[int, int]], accuracy: float, jobs: int
) -> Iterator[Optima]:
    """The optima of ranges of parameters, in order, as they are done."""
    if not ranges:
        return
    import joblib

    work, place = _worker(family)

    def arguments(start: int, end: int) -> tuple[PyTree, int, float]:
        return place(family.select(parameters, np.arange(start, end))), start, accuracy

    # What runs JAX stays in this process, whose precision switch it needs; the rest may run anywhere.
    options = {"require": "sharedmem"} if isinstance(family, Composite | Smooth) else {}
    backend, _ = joblib.parallel.get_active_backend(**options)
    if isinstance(backend, joblib.parallel.BACKENDS[joblib.parallel.DEFAULT_BACKEND]):
        # The first tells whether the others are worth processes of their own.
        begin = perf_counter()
        yield work(*arguments(*ranges[0]))
        if (perf_counter() - begin) * (len(ranges) - 1) < _WORTH:
            jobs = 1
        ranges = ranges[1:]
    tasks = (joblib.delayed(work)(*arguments(*r)) for r in ranges)
    wanted = jobs if len(ranges) > 1 else 1
    if wanted == 1 or getattr(backend, "supports_return_generator", False):
        yield from joblib.Parallel(n_jobs=wanted, return_as="generator", **options)(tasks)
    else:
        yield from _compute_rounds(joblib.Parallel(n_jobs=wanted, **options), tasks)


def _compute_rounds(parallel: "joblib.Parallel", tasks: Iterator[tuple]) -> Iterator[Optima]:
    """Yield the results of tasks in rounds, for back ends (Ray's) that return lists: what is finished is kept."""
    while some := list(itertools.islice(tasks, _ROUND)):
        yield from parallel(some)


@functools.singledispatch
def _worker(family: Family) -> tuple[Callable[[PyTree, int, float], Optima], Callable[[Parameters], PyTree]]:
    """A function of (data, first number, accuracy) that can be sent to a worker, and the map to its data."""
    raise TypeError(f"no reference solver is known for {type(family).__name__}")


@_worker.register
def _(family: QP):
    return functools.partial(_solve_qps, sp.csc_array(family.P), sp.csc_array(family.A)), family.data


@_worker.register
def _(family: Conic):
    matrices = (sp.csc_array(family.P), sp.csc_array(family.A))
    return functools.partial(_solve_conics, *matrices, family.cones.clarabel()), family.data


@_worker.register
def _(family: Quadratic):
    return functools.partial(_solve_quadratics, family.P.toarray()), family.data


@_worker.register
def _(family: Smooth):
    return functools.partial(_solve_smooths, _wide(family)), lambda parameters: parameters


@_worker.register
def _(family: Composite):
    wide = _wide(family)
    return functools.partial(_solve_composites, wide, _parts(wide)), lambda parameters: parameters


def _wide(family: FamilyT) -> FamilyT:
    """The same family in float64: references are never made in less."""
    with jax.enable_x64(True):
        wide = family.widened()
    assert isinstance(wide, type(family))
    return wide


def _in_float64(work: Callable[Arguments, Optima]) -> Callable[Arguments, Optima]:
    # The switch is local to the thread that does the work.
    @functools.wraps(work)
    def widened(*arguments: Arguments.args, **named: Arguments.kwargs) -> Optima:
        with jax.enable_x64(True):
            return work(*arguments, **named)

    return widened


def _solve_qps(P: sp.csc_array, A: sp.csc_array, data: dict[str, np.ndarray], first: int, accuracy: float) -> Optima:
    rows = zip(data["q"], data["l"], data["u"], strict=True)
    names = _names(first)
    return _stack(
        [require(qp_optimum(P, A, q, l, u, w), accuracy, w) for (q, l, u), w in zip(rows, names, strict=False)]
    )


def _solve_conics(
    P: sp.csc_array,
    A: sp.csc_array,
    cones: tuple[Sequence[ClarabelCone], np.ndarray],
    data: dict[str, np.ndarray],
    first: int,
    accuracy: float,
) -> Optima:
    rows = zip(data["b"], data["c"], _names(first), strict=False)
    return _stack([require(conic_optimum(P, A, cones, b, c, w), accuracy, w) for b, c, w in rows])


def _solve_quadratics(P: np.ndarray, data: dict[str, np.ndarray], first: int, accuracy: float) -> Optima:
    rows = zip(data["q"], _names(first), strict=False)
    solve = symmetric_solver(P)
    return _stack([require(quadratic_optimum(P, solve, q, w), accuracy, w) for q, w in rows])


@_in_float64
def _solve_smooths(family: Smooth, parameters: Parameters, first: int, accuracy: float) -> Optima:
    instances = family.instances(parameters)
    value = jax.jit(lambda z, i: family.objective(i, z))
    slope = jax.jit(lambda z, i: family.gradient(i, z))
    hessian = jax.jit(jax.jacfwd(lambda z, i: family.gradient(i, z)))
    out = []
    for k, what in zip(range(family.count(parameters)), _names(first), strict=False):
        instance = family.take(instances, k)
        zero = np.zeros(family.n)
        scale = 1 + float(np.max(np.abs(slope(zero, instance))))
        options = {"gtol": 1e-3 * accuracy * scale, "maxiter": 1000}
        x = scipy.optimize.minimize(value, zero, (instance,), "trust-exact", slope, hessian, options=options).x
        for _ in range(3):  # full Newton steps take a good point to rounding
            g = np.asarray(slope(x, instance))
            step = np.linalg.lstsq(np.asarray(hessian(x, instance)), g, rcond=None)[0]
            if np.max(np.abs(slope(x - step, instance))) < np.max(np.abs(g)):
                x = x - step
        error = float(np.max(np.abs(slope(x, instance)))) / scale
        out.append(require(Optimum(x, None, None, float(value(x, instance)), error), accuracy, what))
    return _stack(out)


@_in_float64
def _solve_composites(
    family: Composite, parts: "_Parts", parameters: Parameters, first: int, accuracy: float
) -> Optima:
    instances = family.instances(parameters)
    points = np.array(_accelerated(family, instances, 200)).T
    out = []
    for k, what in zip(range(family.count(parameters)), _names(first), strict=False):
        instance = family.take(instances, k)
        x, error = _active_newton(family, parts, instance, points[k].astype(np.float64))
        for count in (2000, 20_000, 200_000):
            if error <= accuracy:
                break
            # Not yet on the right coordinates (or not separable, where patience alone must do).
            points[k] = np.asarray(_accelerated(family, instance, count, jnp.asarray(points[k], family.dtype)))
            x, error = _active_newton(family, parts, instance, points[k].astype(np.float64))
        value = float(family.objective(instance, jnp.asarray(x, family.dtype)))
        out.append(require(Optimum(x, None, None, value, error), accuracy, what))
    return _stack(out)


@functools.partial(jax.jit, static_argnums=(2,))
def _accelerated(family: Composite, instances: PyTree, count: int, start: jax.Array | None = None) -> jax.Array:
    """`count` steps of FISTA, the momentum restarted where it points uphill (O'Donoghue and Candès 2015)."""
    t = 1 / family.lipschitz
    z = jnp.zeros((family.n, *family.batch(instances)), family.dtype) if start is None else start

    def step(_, carry):
        z, y, age = carry
        following = family.g.prox(y - t * family.gradient(instances, y), t)
        uphill = jnp.sum((y - following) * (following - z), axis=0) > 0
        age = jnp.where(uphill, 0.0, age + 1)
        return following, following + age / (age + 3) * (following - z), age

    return jax.lax.fori_loop(0, count, step, (z, z, jnp.zeros(family.batch(instances), family.dtype)))[0]


def _active_newton(family: Composite, parts: "_Parts", instance: PyTree, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Semismooth Newton on z = prox_{tg}(z − t∇f(z)) for separable g: a Newton step on the coordinates where the prox
    moves with its argument, the prox's own value elsewhere. The best point and its relative residual."""
    t = 1 / family.lipschitz
    scale = 1 + float(np.max(np.abs(parts.gradient(jnp.zeros(family.n, family.dtype), instance))))
    best = x
    least = np.inf
    for _ in range(50):
        gradient = np.asarray(parts.gradient(x, instance), np.float64)
        fixed, moves = (np.asarray(a, np.float64) for a in parts.prox(x - t * gradient))
        error = float(np.max(np.abs(x - fixed))) / (t * scale)
        if not error < least:
            break
        best = x
        least = error
        active = moves > 0.5
        hessian = parts.hessian(x, instance)
        step = fixed - x
        inside = np.ix_(active, active)
        outside = np.ix_(active, ~active)
        # On the active coordinates prox(v) = v − shift, so the residual there is t(∇f + shift/t).
        rhs = (fixed - x)[active] / t - hessian[outside] @ step[~active]
        step[active] = symmetric_solver(hessian[inside])(rhs) if active.any() else 0.0
        x = x + step
    return best, least


@dataclass(frozen=True)
class _Parts:
    gradient: Callable
    prox: Callable
    hessian: Callable


def _parts(family: Composite) -> _Parts:
    t = 1 / family.lipschitz
    gradient = jax.jit(lambda z, i: family.gradient(i, z))
    prox = jax.jit(lambda v: jax.jvp(lambda v: family.g.prox(v, t), (v,), (jnp.ones_like(v),)))
    if isinstance(family.smooth, Quadratic):
        P = family.smooth.P.toarray()
        return _Parts(gradient, prox, lambda z, i: P)
    second = jax.jit(jax.jacfwd(lambda z, i: family.gradient(i, z)))
    return _Parts(gradient, prox, lambda z, i: np.asarray(second(z, i), np.float64))


def _names(first: int) -> Iterator[str]:
    k = first
    while True:
        yield f"instance {k}"
        k += 1


def _stack(optima: list[Optimum]) -> Optima:
    return Optima(
        x=np.stack([o.x for o in optima]),
        y=_all(np.stack, [o.y for o in optima]),
        s=_all(np.stack, [o.s for o in optima]),
        value=np.array([o.value for o in optima]),
        error=np.array([o.error for o in optima]),
    )


def _join(parts: list[Optima]) -> Optima:
    return Optima(
        x=np.concatenate([p.x for p in parts]),
        y=_all(np.concatenate, [p.y for p in parts]),
        s=_all(np.concatenate, [p.s for p in parts]),
        value=np.concatenate([p.value for p in parts]),
        error=np.concatenate([p.error for p in parts]),
    )


def _all(join: Callable[[list[np.ndarray]], np.ndarray], arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Arrays as one, or None where there are none: problems without constraints have no y and s."""
    there = [array for array in arrays if array is not None]
    return join(there) if there else None


def _plain(part: Parameters) -> tuple[list[np.ndarray], str]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(part)], str(jax.tree.structure(part))


def _load(path: Path) -> Optima | None:
    try:
        arrays, _ = storage.read(path, "optima", _CACHE_VERSION)
    except (FileNotFoundError, storage.FileFormatError):
        return None  # a damaged entry is computed again
    if not {"x", "value", "error"} <= arrays.keys():
        return None
    return Optima(arrays["x"], arrays.get("y"), arrays.get("s"), arrays["value"], arrays["error"])


def _store(path: Path, optima: Optima) -> None:
    arrays = {name: value for name, value in vars(optima).items() if value is not None}
    storage.keep(path, lambda: storage.write(path, "optima", _CACHE_VERSION, arrays, {}))
