"""The packages of `latency.py`: one workspace each, new vectors for a new parameter, nothing set up anew.

Every package is handed the family in the form it likes best: rows l ≤ Ax ≤ u (OSQP, QPALM), cones (SCS, Clarabel), or
equalities, inequalities and bounds on single unknowns (PIQP, ProxQP, DAQP). Rows that are free in every instance are
left out where the form allows it. Only the vectors that move with the parameter are written and passed on. Settings
other than tolerances are the package's own, except for those tried as variants, of which the fastest is kept.
"""

import ctypes
import importlib
import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

MAX_ITERATIONS = 20_000


class Answer(NamedTuple):
    """A point in the family's terms, and the seconds that the package counts itself; NaN where it counts none."""

    x: np.ndarray
    y: np.ndarray
    seconds: float


class Entry(NamedTuple):
    """A package with a variant of its settings.

    `open` makes a workspace for a tolerance and a target, which is the tolerance of the duality gap where the package
    tests it apart; what it returns takes a parameter to (x, raw result), and that is timed.
    `read` makes an Answer of it, after the clock was stopped. What is tuned is the tolerance, or a number of `steps`.
    """

    name: str
    variant: str
    open: Callable[[float, float], Callable[[np.ndarray], tuple[Any, Any]]]
    read: Callable[[Any, Any], Answer]
    tuned: str = "eps"


class Vector(NamedTuple):
    """base + map·parameter."""

    base: np.ndarray
    map: Any

    def pick(self, rows: np.ndarray, factor: Any = 1.0) -> "Vector":
        factor = np.broadcast_to(factor, np.shape(rows))
        return Vector(factor * self.base[rows], sp.csr_array(sp.diags_array(factor) @ self.map[rows]))

    def spread(self, size: int, places: np.ndarray, fill: float) -> "Vector":
        base = np.full(size, fill)
        base[places] = self.base
        scatter = sp.csr_array((np.ones(len(places)), (places, np.arange(len(places)))), (size, len(places)))
        return Vector(base, scatter @ self.map)


def joined(*parts: Vector) -> Vector:
    return Vector(np.concatenate([p.base for p in parts]), sp.csr_array(sp.vstack([p.map for p in parts])))


def writer(**vectors: Vector) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """From a parameter to the vectors that move with it, in the same arrays every time."""
    buffers, moves = {}, []
    for name, vector in vectors.items():
        moving = sp.csr_array(vector.map)
        moving.eliminate_zeros()
        rows = np.flatnonzero(np.diff(moving.indptr))
        if not rows.size:
            continue
        buffers[name], part, offset = vector.base.copy(), moving[rows], vector.base[rows]
        if (np.diff(part.indptr) == 1).all():
            moves.append((buffers[name], _range(rows), np.multiply, part.data, _range(part.indices), offset))
        else:
            moves.append((buffers[name], _range(rows), np.matmul, part.toarray(), slice(None), offset))

    def write(parameter: np.ndarray) -> dict[str, np.ndarray]:
        for buffer, rows, times, factor, source, offset in moves:
            buffer[rows] = times(factor, parameter[source]) + offset
        return buffers

    return write


def _range(index: np.ndarray) -> Any:
    """A slice where the indices are consecutive: several times faster than the indices."""
    first = int(index[0])
    return slice(first, first + len(index)) if (np.diff(index) == 1).all() else index


class Rows:
    """minimise ½x'Px + q'x subject to l ≤ Ax ≤ u: a QP family as it is."""

    def __init__(self, family: Any):
        self.P, self.A = sp.csc_matrix(family.P), sp.csr_array(family.A)
        self.n, self.m = family.n, family.m
        sizes = {"q": self.n, "l": self.m, "u": self.m}
        self.q, self.l, self.u = (_vector(family, name, size) for name, size in sizes.items())
        self.equality = np.asarray(family.host.kinds.equality)
        self.below = np.isfinite(self.l.base) & ~self.equality
        self.above = np.isfinite(self.u.base) & ~self.equality


class Coned:
    """minimise ½x'Px + c'x subject to Ax + s = b, s in cones; `duals` takes the multipliers to the family's."""

    def __init__(self, family: Any):
        if hasattr(family, "cones"):
            cones, self.P, self.A = family.cones, sp.csc_matrix(family.P), sp.csc_matrix(family.A)
            self.zero, self.nonnegative, self.second_order = cones.zero, cones.nonnegative, cones.second_order
            self.b, self.c = _vector(family, "b", family.m), _vector(family, "c", family.n)
            self.duals = sp.eye_array(family.m, format="csr")
            return
        r = Rows(family)
        e, above, below = (np.flatnonzero(mask) for mask in (r.equality, r.above, r.below))
        self.P, self.c = r.P, r.q
        self.b = joined(r.u.pick(e), r.u.pick(above), r.l.pick(below, -1.0))
        self.A = sp.csc_matrix(sp.vstack([r.A[e], r.A[above], -r.A[below]]))
        self.zero, self.nonnegative, self.second_order = len(e), len(above) + len(below), ()
        signs = np.concatenate([np.ones(len(e) + len(above)), -np.ones(len(below))])
        places = np.concatenate([e, above, below])
        self.duals = sp.csr_array((signs, (places, np.arange(len(places)))), (r.m, len(places)))


class Split:
    """minimise ½x'Px + q'x subject to Ax = b, l ≤ Gx ≤ u and lower ≤ x ≤ upper; `duals` as for Coned, in this order."""

    def __init__(self, family: Any):
        r = Rows(family)
        self.n, self.P, self.q = r.n, r.P, r.q
        bounded = r.below | r.above
        single = np.flatnonzero((np.diff(r.A.indptr) == 1) & bounded)
        unknowns, first = np.unique(r.A.indices[r.A.indptr[single]], return_index=True)
        box = single[first]
        e, rest = np.flatnonzero(r.equality), np.setdiff1d(np.flatnonzero(bounded), box)
        self.A, self.G = sp.csc_matrix(r.A[e]), sp.csc_matrix(r.A[rest])
        self.b, self.l, self.u = r.u.pick(e), r.l.pick(rest), r.u.pick(rest)
        scale = 1 / r.A.data[r.A.indptr[box]]
        # A negative coefficient turns a bound round.
        both = joined(r.l, r.u)
        lower = both.pick(np.where(scale > 0, box, box + r.m), scale)
        upper = both.pick(np.where(scale > 0, box + r.m, box), scale)
        self.lower, self.upper = lower.spread(r.n, unknowns, -np.inf), upper.spread(r.n, unknowns, np.inf)
        columns = np.concatenate([np.arange(len(e) + len(rest)), len(e) + len(rest) + unknowns])
        values = np.concatenate([np.ones(len(e) + len(rest)), scale])
        shape = (r.m, len(e) + len(rest) + r.n)
        self.duals = sp.csr_array((values, (np.concatenate([e, rest, box]), columns)), shape)


def _vector(family: Any, name: str, size: int) -> Vector:
    base = family.host.values[name]
    moving = family.parameter.matrices.get(name, sp.csr_array((size, family.parameter.size)))
    return Vector(np.zeros(size) if base is None else base, moving)


def osqp(family: Any) -> Iterator[Entry]:
    package, r = importlib.import_module("osqp"), Rows(family)
    matrices = sp.csc_matrix(sp.triu(r.P)), sp.csc_matrix(r.A)

    def entry(warm: bool, every: int) -> Entry:
        def open(eps: float, target: float):
            solver, write = package.OSQP(), writer(q=r.q, l=r.l, u=r.u)
            solver.setup(
                matrices[0], r.q.base, matrices[1], r.l.base, r.u.base, eps_abs=eps, eps_rel=0.0, verbose=False,
                warm_starting=warm, check_termination=every, check_dualgap=False, max_iter=MAX_ITERATIONS,
            )  # fmt: skip

            def solve(parameter):
                solver.update(**write(parameter))
                result = solver.solve(raise_error=False)
                return result.x, result

            return solve

        return Entry(f"OSQP, {'warm' if warm else 'cold'}", f"a check every {every}", open, _read_osqp)

    return (entry(warm, every) for warm in (True, False) for every in (5, 10, 25))


def _read_osqp(x: Any, result: Any) -> Answer:
    info = result.info
    return Answer(np.array(x), np.array(result.y), info.update_time + info.solve_time)


_SHIM = """
#define _POSIX_C_SOURCE 199309L
#include <string.h>
#include <time.h>
#include "osqp.h"
#include "bench_workspace.h"
void shim_settings(double eps, int warm, int every, int max_iter) {
  OSQPSettings *s = bench_solver.settings;
  s->eps_abs = eps; s->eps_rel = 0.0; s->warm_starting = warm; s->check_termination = every; s->max_iter = max_iter;
  s->check_dualgap = 0;
}
double shim_solve(const double *q, const double *l, const double *u, double *x, double *y, long n, long m) {
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  osqp_update_data_vec(&bench_solver, q, l, u);
  osqp_solve(&bench_solver);
  memcpy(x, bench_solver.solution->x, n * sizeof(double));
  memcpy(y, bench_solver.solution->y, m * sizeof(double));
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}
"""


def osqp_generated(family: Any, parameters: np.ndarray, folder: Path, compiler: list[str]) -> Iterator[Entry]:
    """OSQP's own C code, for new vectors only (rho stays as it settled on `parameters`) or with its adaptive rho."""
    package, r = importlib.import_module("osqp"), Rows(family)
    data, quiet = (sp.csc_matrix(sp.triu(r.P)), r.q.base, sp.csc_matrix(r.A), r.l.base, r.u.base), {"verbose": False}
    solver, write = package.OSQP(), writer(q=r.q, l=r.l, u=r.u)
    solver.setup(*data, eps_abs=1e-6, eps_rel=0.0, **quiet)
    for parameter in parameters:
        solver.update(**write(parameter))
        solver.solve(raise_error=False)
    rho, opened = solver._solver.get_settings().rho, itertools.count()

    def build(kind: str) -> Path:
        solver, where = package.OSQP(), folder / kind
        solver.setup(*data, rho=rho, **({"adaptive_rho": False} if kind == "vectors" else {}), **quiet)
        shutil.rmtree(where, ignore_errors=True)
        solver.codegen(str(where), parameters=kind, prefix="bench_", extension_name=None)
        (where / "shim.c").write_text(_SHIM)
        sources = [*sorted(where.glob("src/*.c")), where / "bench_workspace.c", where / "shim.c"]
        includes = [f"-I{where / 'inc/public'}", f"-I{where / 'inc/private'}", f"-I{where}"]
        command = [*compiler, "-shared", "-fPIC", *includes, *map(str, sources), "-o", str(where / "bench.so"), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        return where / "bench.so"

    def entry(kind: str, library: Path, warm: bool, every: int) -> Entry:
        def open(eps: float, target: float):
            # Its workspace is global: a copy of the library for everyone who uses it.
            loaded = ctypes.CDLL(str(shutil.copy(library, library.with_name(f"{next(opened)}.so"))))
            loaded.shim_solve.restype = ctypes.c_double
            loaded.shim_solve.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long] * 2
            loaded.shim_settings.argtypes = [ctypes.c_double] + [ctypes.c_int] * 3
            loaded.shim_settings(eps, warm, every, MAX_ITERATIONS)
            write, x, y = writer(q=r.q, l=r.l, u=r.u), np.empty(r.n), np.empty(r.m)
            buffers = write(np.array(parameters[0]))
            pointers = [buffers[k].ctypes.data if k in buffers else None for k in "qlu"]
            pointers += [x.ctypes.data, y.ctypes.data, r.n, r.m]

            def solve(parameter):
                write(parameter)
                return x, (y, loaded.shim_solve(*pointers))

            return solve

        variant = f"rho {'fixed' if kind == 'vectors' else 'adaptive'}, a check every {every}"
        name = f"OSQP's C code, {'warm' if warm else 'cold'}"
        return Entry(name, variant, open, lambda x, raw: Answer(x.copy(), raw[0].copy(), raw[1]))

    for kind in ("vectors", "matrices"):
        library = build(kind)
        yield from (entry(kind, library, warm, every) for warm in (True, False) for every in (5, 25))


def scs(family: Any) -> Iterator[Entry]:
    package, f = importlib.import_module("scs"), Coned(family)
    cone = {"z": f.zero, "l": f.nonnegative, "q": list(f.second_order)}

    def entry(warm: bool, lookback: int) -> Entry:
        def open(eps: float, target: float):
            write = writer(b=f.b, c=f.c)
            data = {"A": f.A, "b": f.b.base, "c": f.c.base} | ({"P": sp.csc_matrix(sp.triu(f.P))} if f.P.nnz else {})
            # Its own factorization, where there is a choice: MKL's is slower on families of this size.
            own = {"linear_solver": "qdldl"} if hasattr(package, "LinearSolver") else {}
            solver = package.SCS(
                data, cone, eps_abs=eps, eps_rel=0.0, acceleration_lookback=lookback, max_iters=MAX_ITERATIONS,
                verbose=False, **own,
            )  # fmt: skip

            def solve(parameter):
                solver.update(**write(parameter))
                result = solver.solve(warm_start=warm)
                return result["x"], result

            return solve

        def read(x, result) -> Answer:
            # Milliseconds; after an update the set-up time is the update's.
            seconds = 1e-3 * (result["info"]["setup_time"] + result["info"]["solve_time"])
            return Answer(np.array(x), f.duals @ result["y"], seconds)

        return Entry("SCS", f"{'warm' if warm else 'cold'}, Anderson {lookback}", open, read)

    return (entry(warm, lookback) for warm in (True, False) for lookback in (0, 10))


def clarabel(family: Any) -> Iterator[Entry]:
    package, f = importlib.import_module("clarabel"), Coned(family)
    cones = [package.ZeroConeT(f.zero), package.NonnegativeConeT(f.nonnegative)]
    cones += [package.SecondOrderConeT(size) for size in f.second_order]

    def open(eps: float, target: float):
        write, settings = writer(q=f.c, b=f.b), package.DefaultSettings()
        settings.verbose, settings.presolve_enable, settings.max_threads = False, False, 1
        settings.tol_feas = eps
        settings.tol_gap_abs = settings.tol_gap_rel = target
        data = sp.csc_matrix(sp.triu(f.P)), f.c.base, f.A, f.b.base
        solver = package.DefaultSolver(*data, cones, settings)

        def solve(parameter):
            solver.update(**write(parameter))
            result = solver.solve()
            return np.array(result.x), result

        return solve

    # Its own time has the set-up in it, also after an update.
    yield Entry("Clarabel", "", open, lambda x, result: Answer(x, f.duals @ np.array(result.z), np.nan))


def piqp(family: Any) -> Iterator[Entry]:
    package, f = importlib.import_module("piqp"), Split(family)

    def entry(kind: str) -> Entry:
        def open(eps: float, target: float):
            dense = kind == "dense_cholesky"
            solver = package.DenseSolver() if dense else package.SparseSolver()
            settings, convert = solver.settings, (lambda M: np.asfortranarray(M.toarray())) if dense else (lambda M: M)
            settings.kkt_solver, settings.compute_timings = getattr(package.KKTSolver, kind), True
            settings.eps_abs, settings.eps_rel = eps, 0.0
            settings.eps_duality_gap_abs = settings.eps_duality_gap_rel = target
            vectors = {"c": f.q, "b": f.b, "h_l": f.l, "h_u": f.u, "x_l": f.lower, "x_u": f.upper}
            matrices = {"P": convert(f.P), "A": convert(f.A), "G": convert(f.G)}
            solver.setup(**matrices, **{name: vector.base for name, vector in vectors.items()})
            write = writer(**vectors)

            def solve(parameter):
                solver.update(**write(parameter))
                solver.solve()
                return solver.result.x, solver.result

            return solve

        def read(x, result) -> Answer:
            duals = np.concatenate([result.y, result.z_u - result.z_l, result.z_bu - result.z_bl])
            return Answer(np.array(x), f.duals @ duals, result.info.update_time + result.info.solve_time)

        return Entry("PIQP", kind.replace("_", " "), open, read)

    return (entry(kind) for kind in ("sparse_ldlt", "sparse_multistage", "dense_cholesky"))


def proxqp(family: Any) -> Iterator[Entry]:
    package, f = importlib.import_module("proxsuite").proxqp, Split(family)
    f.l, f.u, f.lower, f.upper = (v._replace(base=np.clip(v.base, -1e20, 1e20)) for v in (f.l, f.u, f.lower, f.upper))
    # Its sparse solver has no bounds on single unknowns: rows of the identity.
    rows = np.flatnonzero((f.lower.base > -1e20) | (f.upper.base < 1e20))
    eye = sp.eye_array(f.n, format="csr")
    few, G = eye[rows], sp.csc_matrix(sp.vstack([f.G, eye[rows]]))

    def entry(dense: bool) -> Entry:
        def open(eps: float, target: float):
            shape = f.n, f.A.shape[0], (f.G if dense else G).shape[0]
            if dense:
                solver = package.dense.QP(*shape, True)
                matrices = {"H": f.P.toarray(), "A": f.A.toarray(), "C": f.G.toarray()}
                vectors = {"g": f.q, "b": f.b, "l": f.l, "u": f.u, "l_box": f.lower, "u_box": f.upper}
            else:
                solver, matrices = package.sparse.QP(*shape), {"H": f.P, "A": f.A, "C": G}
                vectors = {"g": f.q, "b": f.b, "l": joined(f.l, f.lower.pick(rows))}
                vectors["u"] = joined(f.u, f.upper.pick(rows))
            settings = solver.settings
            settings.eps_abs, settings.eps_rel, settings.compute_timings = eps, 0.0, True
            settings.check_duality_gap, settings.max_iter = True, 1000
            settings.eps_duality_gap_abs = settings.eps_duality_gap_rel = target
            solver.init(**matrices, **{name: vector.base for name, vector in vectors.items()})
            write = writer(**vectors)

            def solve(parameter):
                solver.update(**write(parameter))
                solver.solve()
                return solver.results.x, solver.results

            return solve

        def read(x, result) -> Answer:
            z = np.array(result.z)
            if not dense:
                z = np.concatenate([z[: f.G.shape[0]], few.T @ z[f.G.shape[0] :]])
            return Answer(np.array(x), f.duals @ np.concatenate([result.y, z]), 1e-6 * result.info.run_time)

        return Entry("ProxQP", f"{'dense' if dense else 'sparse'}, cold", open, read)

    # Not warm: from the last result it says "solved" of points that are far from optimal (proxsuite 0.8.0, MPC: 70 of
    # 300 at 1e-6 with a gap or an error of x over 0.01).
    return (entry(dense) for dense in (True, False))


def daqp(family: Any) -> Iterator[Entry]:
    package, f = importlib.import_module("daqp"), Split(family)
    sense = np.zeros(f.n + f.G.shape[0] + f.A.shape[0], np.int32)
    sense[f.n + f.G.shape[0] :] = 5

    def open(eps: float, target: float):
        model = package.Model()
        model.settings = {"primal_tol": eps}
        upper, lower = joined(f.upper, f.u, f.b), joined(f.lower, f.l, f.b)
        rows = np.ascontiguousarray(sp.vstack([f.G, f.A]).toarray())
        model.setup(f.P.toarray(), f.q.base.copy(), rows, upper.base.copy(), lower.base.copy(), sense)
        write = writer(f=f.q, bupper=upper, blower=lower)

        def solve(parameter):
            model.update(**write(parameter))
            result = model.solve()
            return result[0], result[3]

        return solve

    def read(x, info) -> Answer:
        box, rest, equal = np.split(np.asarray(info["lam"]), [f.n, f.n + f.G.shape[0]])
        return Answer(np.array(x), f.duals @ np.concatenate([equal, rest, box]), info["solve_time"])

    yield Entry("DAQP", "", open, read)


def qpalm(family: Any) -> Iterator[Entry]:
    package, r = importlib.import_module("qpalm"), Rows(family)

    def open(eps: float, target: float):
        data, settings = package.Data(r.n, r.m), package.Settings()
        data.Q, data.A, data.q, data.bmin, data.bmax = r.P, sp.csc_matrix(r.A), r.q.base, r.l.base, r.u.base
        settings.eps_abs, settings.eps_rel, settings.verbose = eps, 0.0, 0
        solver, write = package.Solver(data, settings), writer(q=r.q, bmin=r.l, bmax=r.u)

        def solve(parameter):
            moved = write(parameter)
            if "q" in moved:
                solver.update_q(moved["q"])
            solver.update_bounds(moved.get("bmin"), moved.get("bmax"))
            solver.solve(asynchronous=False, suppress_interrupt=True)
            return solver.solution.x, solver

        return solve

    def read(x, solver) -> Answer:
        return Answer(np.array(x), np.array(solver.solution.y), solver.info.solve_time)

    yield Entry("QPALM", "", open, read)
