"""The trials of the fuzzer.

Each takes a random generator and an empty folder, and returns in a word how it ended, or in several, one for each
instance.
"""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import longstep as ls
from longstep._util import storage
from longstep.algorithms.condensed import Condensed
from longstep.cli.info import _describe_training, _pick_training
from longstep.data.dataset import Split
from longstep.engine.finisher import Patience
from longstep.engine.start import LearnedStart
from longstep.errors import CertificateError, FileFormatError
from longstep.evaluation.evaluate import find_trained
from longstep.export_c import Export
from longstep.families.parameter_range import Seen

from ..helpers import is_optimal

Status = ls.Status


class Violation(AssertionError):
    """The library broke a promise."""


def require(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)


# Problems with statuses.


BATCH = 64


def random_matrices(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """P of any rank and A with zeros, equal rows and odd scales."""
    n, m = int(rng.integers(1, 15)), int(rng.integers(1, 20))
    root = rng.normal(size=(n, int(rng.integers(0, n + 1)))) * 10.0 ** rng.integers(-2, 3)
    A = rng.normal(size=(m, n)) * (rng.random((m, n)) < rng.uniform(0.2, 1)) * 10.0 ** rng.integers(-2, 3)
    if m > 2 and rng.random() < 0.3:
        A[1] = A[0]
    return root @ root.T, A


def random_vectors(rng: np.random.Generator, P: np.ndarray, A: np.ndarray) -> dict[str, np.ndarray]:
    """Any instance: feasible or not, bounded or not, with free rows and rows that happen to be equalities."""
    (m, n), middle = A.shape, A @ rng.normal(size=A.shape[1])
    l = middle - rng.exponential(size=m) * 10.0 ** rng.integers(-2, 2)
    u = middle + rng.exponential(size=m)
    equal = rng.random(m) < 0.2
    u[equal] = l[equal] = middle[equal]
    l[rng.random(m) < 0.3], u[rng.random(m) < 0.3] = -np.inf, np.inf
    if rng.random() < 0.2:  # perhaps infeasible
        row = int(rng.integers(m))
        l[row] = u[row] = middle[row] + 10 * rng.normal()
    return {"P": P, "A": A, "q": rng.normal(size=n) * 10.0 ** rng.integers(-2, 3), "l": l, "u": u}


def random_lp(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """No P, rows and boxes."""
    n, m = int(rng.integers(2, 25)), int(rng.integers(1, 15))
    return np.zeros((n, n)), np.vstack([rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.6), np.eye(n)])


def random_lp_vectors(rng: np.random.Generator, P: np.ndarray, A: np.ndarray) -> dict[str, np.ndarray]:
    """A feasible, bounded instance of an LP with boxes."""
    n = A.shape[1]
    m = len(A) - n
    middle = A[:m] @ rng.random(n)
    equal = rng.random(m) < 0.4
    low = np.where(equal, middle, middle - rng.random(m))
    high = np.where(equal, middle, middle + rng.random(m))
    l, u = np.concatenate([low, np.zeros(n)]), np.concatenate([high, np.full(n, 2.0)])
    return {"P": P, "A": A, "q": rng.normal(size=n) * 10.0 ** rng.integers(-1, 3), "l": l, "u": u}


def check_qp(d: dict[str, np.ndarray], found: ls.Solution, eps: float, slack: float = 1e-9) -> str:
    """The status of a QP by its definition, in the user's units."""
    P, A, q, l, u = (d[k] for k in "PAqlu")
    size = lambda v: float(np.max(np.abs(v), initial=0.0))  # noqa: E731
    if found.status == Status.SOLVED:
        x, y, z = found.x, found.y, found.s
        require(np.isfinite(found.objective), f"solved with objective {found.objective}")
        require(
            bool(np.all(z >= l - slack * (1 + np.abs(z))) and np.all(z <= u + slack * (1 + np.abs(z)))), "z outside"
        )
        primal, dual = A @ x - z, P @ x + q + A.T @ y
        scales = max(size(A @ x), size(z)), max(size(P @ x), size(A.T @ y), size(q))
        require(size(primal) <= (eps + eps * scales[0]) * 1.001 + slack, f"primal residual {size(primal):.1e}")
        require(size(dual) <= (eps + eps * scales[1]) * 1.001 + slack, f"dual residual {size(dual):.1e}")
        with np.errstate(invalid="ignore"):
            support = np.sum(np.where(y > 0, y * u, 0)) + np.sum(np.where(y < 0, y * l, 0))
        parts = (x @ P @ x, q @ x, support)
        gap, scale = abs(sum(parts)), max(map(abs, parts))
        # Where x'Px is small beside its terms, their rounding is all that is seen.
        rounding = 1e-15 * float(np.abs(x) @ np.abs(P) @ np.abs(x))
        require(gap <= (eps + eps * scale) * 1.001 + slack * (1 + scale) + rounding, f"gap {gap:.1e}")
        objective = 0.5 * parts[0] + parts[1]
        require(abs(objective - found.objective) <= 1e-6 * (1 + scale), "another objective than it says")
    if found.status == Status.PRIMAL_INFEASIBLE:
        y = found.ray_y / size(found.ray_y)
        y = np.where((y > 0) & np.isinf(u), 0.0, np.where((y < 0) & np.isinf(l), 0.0, y))
        grows = np.sum(np.where(y > 0, y * np.where(np.isinf(u), 0, u), y * np.where(np.isinf(l), 0, l)))
        require(grows < 0, "a ray along which nothing grows")
        require(size(A.T @ y) <= 1e-3 * max(1.0, size(A)), f"a ray with A'y = {size(A.T @ y):.1e}")
    if found.status == Status.DUAL_INFEASIBLE:
        x = found.ray_x / size(found.ray_x)
        require(q @ x < 0, "a ray along which nothing falls")
        require(size(P @ x) <= 1e-3 * max(1.0, size(P)), "a ray along which the objective is curved")
    return found.status.words


def clarabel_solves(d: dict[str, np.ndarray]) -> bool:
    """Whether Clarabel finds a point that fulfils the conditions of an optimum, and not merely says so.

    Its word alone will not do: along a ray x grows without bounds, and so does what its relative tolerance allows.
    """
    import clarabel

    P, A, q, l, u = (d[k] for k in "PAqlu")
    equal, upper, lower = l == u, (u < np.inf) & (l < u), (l > -np.inf) & (l < u)
    rows = np.vstack([A[equal], A[upper], -A[lower]])
    cones = [clarabel.ZeroConeT(int(equal.sum())), clarabel.NonnegativeConeT(int(upper.sum() + lower.sum()))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    b = np.concatenate([u[equal], u[upper], -l[lower]])
    cones = [c for c in cones if c.dim]
    found = clarabel.DefaultSolver(sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(rows), b, cones, settings).solve()
    x, y = np.array(found.x), np.array(found.z)
    stationary = np.max(np.abs(P @ x + q + rows.T @ y)) <= 1e-6 * (1 + np.max(np.abs(q)))
    return str(found.status) == "Solved" and bool(stationary)


def stacked(each: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([d[name] for d in each]) for name in "qlu"}


def statuses(rng: np.random.Generator, folder: Path) -> list[str]:
    """Solve QPs of one family in JAX; statuses must be true by definition, and must not contradict Clarabel's."""
    P, A = random_matrices(rng)
    solver = ls.Solver(ls.QP(P, A, equalities=[], free=[]))
    each = [random_vectors(rng, P, A) for _ in range(BATCH)]
    eps = 10.0 ** -int(rng.integers(3, 7))
    found = solver.solve_batch(stacked(each), eps_abs=eps, eps_rel=eps, max_iter=4000)
    words = []
    for k, d in enumerate(each):
        words.append(check_qp(d, found[k], eps))
        if found[k].status in (Status.PRIMAL_INFEASIBLE, Status.DUAL_INFEASIBLE):
            # Clarabel may find either of two infeasibilities, or stop before it does.
            require(not clarabel_solves(d), f"{words[-1]} where Clarabel has a solution")
    return words


def in_c(rng: np.random.Generator, folder: Path) -> list[str]:
    """Solve QPs or LPs of one family in JAX and in C: the same statuses and steps, and true by definition."""
    make, draw = (random_lp, random_lp_vectors) if rng.random() < 0.6 else (random_matrices, random_vectors)
    P, A = make(rng)
    solver = ls.Solver(ls.QP(P, A, equalities=[], free=[]))
    each = [draw(rng, P, A) for _ in range(BATCH)]
    options = {"eps_abs": 1e-6, "eps_rel": 1e-6, "max_iter": 10_000}
    theirs, ours = (s.solve_batch(stacked(each), **options) for s in (solver, solver.compile()))
    words = []
    for k, d in enumerate(each):
        words.append(check_qp(d, ours[k], 1e-6))
        if ours[k].status != theirs[k].status:
            # Rounding may decide at the very edge of a tolerance.
            near = abs(ours[k].iterations - theirs[k].iterations) <= 50
            require(near, f"instance {k}: C says {words[-1]}, JAX {theirs[k].status.words}")
    return words


def finishes(rng: np.random.Generator, folder: Path) -> list[str]:
    """Solve many QPs of one family in C with a finish: what is called exact must be so by definition."""
    P, A = random_matrices(rng)
    solver = ls.Solver(ls.QP(P, A, equalities=[], free=[]), algorithm=Condensed(), finish=int(rng.integers(0, 12)))
    each = [random_vectors(rng, P, A) for _ in range(30 * BATCH)]
    found = solver.compile().solve_batch(stacked(each), eps_abs=1e-9, eps_rel=1e-9, max_iter=200)
    for k in np.flatnonzero(found.exact):
        check_qp(each[k], found[int(k)], 1e-9)
    words = np.where(found.exact, "exact", [Status(s).words for s in found.status])
    return words.tolist()


def random_cone_program(rng: np.random.Generator, cones: ls.Cones) -> tuple[np.ndarray, np.ndarray]:
    """P of low rank and A with zeros and equal rows."""
    n, rank = int(rng.integers(1, 9)), int(rng.integers(0, 4))
    root, A = rng.normal(size=(n, rank)), rng.normal(size=(cones.size, n)) * (rng.random((cones.size, n)) < 0.7)
    return root @ root.T, A


def random_cone_vectors(
    rng: np.random.Generator, P: np.ndarray, A: np.ndarray, cones: ls.Cones, count: int
) -> dict[str, np.ndarray]:
    """Instances with a feasible pair of a point in the cone and a multiplier in its dual, and some without."""
    v, x = rng.normal(size=(count, len(A))), rng.normal(size=(count, len(P)))
    # Some of the pairs are on the boundary in one part only, or at its apex.
    v *= np.where(rng.random((count, 1)) < 0.2, rng.random(v.shape) < 0.5, 1)
    s, y = (np.asarray(f(sign * v.T)).T for f, sign in ((cones.project, 1), (cones.project_dual, -1)))
    feasible = rng.random((count, 1)) < 0.9
    b = np.where(feasible, x @ A.T + s, rng.normal(size=v.shape))
    return {"b": b, "c": np.where(feasible, -x @ P - y @ A, rng.normal(size=x.shape))}


def random_cones(rng: np.random.Generator) -> ls.Cones:
    """Some cones of each kind."""
    second_order = rng.integers(1, 5, size=int(rng.integers(0, 4)))
    semidefinite = rng.integers(1, 5, size=int(rng.integers(0, 2)))
    counts = int(rng.integers(0, 3)), int(rng.integers(1, 6))
    curved = {"exponential": int(rng.integers(0, 3)), "power": tuple(rng.uniform(0.01, 0.99, int(rng.integers(0, 3))))}
    if rng.random() < 0.5:
        curved = {}
    return ls.Cones(*counts, [int(k) for k in second_order], [int(k) for k in semidefinite], **curved)


def cone_finishes(rng: np.random.Generator, folder: Path) -> list[str]:
    """Solve cone programs of one family with a finish: what is called exact must be so by definition."""
    cones = random_cones(rng)
    P, A = random_cone_program(rng, cones)
    data = random_cone_vectors(rng, P, A, cones, BATCH)
    solver = ls.Solver(ls.Conic(P, A, cones), finish=int(rng.integers(1, 40)))
    return check_cone_programs(P, A, cones, data, solver.solve_batch(data, eps_abs=1e-9, eps_rel=1e-9, max_iter=400))


def cone_finishes_in_c(rng: np.random.Generator, folder: Path) -> list[str]:
    """The same in C, with many more instances."""
    cones = random_cones(rng)
    P, A = random_cone_program(rng, cones)
    data = random_cone_vectors(rng, P, A, cones, 30 * BATCH)
    compiled = ls.Solver(ls.Conic(P, A, cones), finish=int(rng.integers(1, 40))).compile()
    return check_cone_programs(P, A, cones, data, compiled.solve_batch(data, eps_abs=1e-9, eps_rel=1e-9, max_iter=400))


def check_cone_programs(P, A, cones: ls.Cones, data: dict[str, np.ndarray], found: ls.Solution) -> list[str]:
    """Check all that is called solved, and return how each instance ended."""
    for k in np.flatnonzero(found.solved):
        wrong = is_optimal(P, A, data["b"][k], data["c"][k], cones, found[int(k)])
        require(not wrong, f"instance {k} is called solved, exact {found.exact[k]}: {wrong}")
    words = np.where(found.exact, "exact", [Status(s).words for s in found.status])
    return words.tolist()


# Bad input.

ODD = [
    None, "text", b"bytes", 3, 3.5, [], {}, np.nan, np.inf, np.zeros(0), np.zeros((2, 2, 2)), np.array(["a", "b"]),
    np.array([1.0, np.nan]), np.array([1.0, np.inf]), np.array([1j, 2]), np.ma.masked_array([1.0, 2.0], [False, True]),
    [[1.0], [1.0, 2.0]], {"q": 1}, {"q": [1.0]}, {"q": "x"}, {"z": [1.0, 2.0]}, np.array([1, None]), object(),
    (1, 2, 3), np.datetime64("2026-01-01"), np.zeros((0, 2)), [{"q": [1.0, 2.0]}, {"l": [0.0, 0.0]}], np.full(2, 1e308),
    True, sp.csr_array(np.eye(2)), [[1, 2], [3, 4]], range(2), {1: 2}, np.array([[1.0, 2.0]]), float("nan"), -(10**400),
]  # fmt: skip


@functools.cache
def small(mapped: bool) -> ls.Solver:
    parameter = ls.Affine(q=np.eye(2)) if mapped else None
    return ls.Solver(ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2), parameter=parameter))


@functools.cache
def small_in_c(mapped: bool):
    return small(mapped).compile()


def inputs(rng: np.random.Generator, folder: Path) -> str:
    """Pass odd values wherever values are taken: an error that says what is wrong, or a solution that is one."""
    odd, other = (ODD[int(k)] for k in rng.integers(len(ODD), size=2))
    mapped = bool(rng.integers(2))
    solver = (small if rng.integers(2) else small_in_c)(mapped)
    fine = np.array([0.5, -0.5])
    calls = [
        lambda: solver.solve(odd),
        lambda: solver.solve_batch(odd),
        lambda: solver.solve_batch([odd, other]),
        lambda: solver.solve({"q": fine, "l": odd}),
        lambda: solver.solve(fine if mapped else {"q": fine}, warm_start=odd),
        lambda: solver.solve(fine if mapped else {"q": fine}, eps_abs=odd),
        lambda: solver.solve(fine if mapped else {"q": fine}, max_iter=odd),
        lambda: solver.solve(fine if mapped else {"q": fine}, time_limit=odd),
        lambda: ls.QP(odd, np.eye(2)),
        lambda: ls.QP(np.eye(2), odd, l=other),
        lambda: ls.QP(np.eye(2), np.eye(2), q=odd, u=other),
        lambda: ls.QP(np.eye(2), np.eye(2), equalities=odd),
        lambda: ls.Conic(np.eye(2), odd, ls.Cones(nonnegative=2)),
        lambda: ls.Affine(q=odd),
        lambda: ls.Quadratic(odd),
        lambda: ls.L1(odd),
        lambda: ls.Schedule({"step": odd}, {"step": other}),
        lambda: Split("test", solver.family, odd, None),
    ]
    try:
        found = calls[int(rng.integers(len(calls)))]()
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        require(len(str(error)) > 10, f"an error without words: {error!r}")
        return "refused"
    if isinstance(found, ls.Solution):
        solved = np.atleast_1d(found.solved)
        x = np.atleast_2d(found.x)
        require(bool(np.isfinite(x[solved]).all()), "solved with NaN")
        require(bool(np.isfinite(np.atleast_1d(found.objective)[solved]).all()), "solved with a NaN objective")
    return "taken"


# Files.


@functools.cache
def sealed(folder: str) -> bytes:
    solver = ls.Solver(small(True).family, algorithm=Condensed(), finish=3)
    solver.seen = Seen.of(solver.family.encode(np.random.default_rng(0).normal(size=(9, 2))))
    solver.start = LearnedStart(-np.eye(2), np.zeros(2), np.ones(2), -np.ones(2), np.ones(2))
    solver.patience = Patience(1e-3, 9)
    solver.record = {
        "instance_hashes": ["a", "b"], "constant": {"rho": 0.1}, "proximal": 1e-4, "finish": 3, "start": "parameter",
        "patience": [1e-3, 9],
        "kept": "the learned schedule", "instances": 2, "seconds": 1.5, "seed": 0, "versions": {"longstep": "0.1.0"},
    }  # fmt: skip
    path = Path(folder) / "solver.longstep"
    solver.save(path)
    return path.read_bytes()


def odd_json(rng: np.random.Generator, value, depth=0):
    """JSON with one part replaced, removed or added."""
    if isinstance(value, dict) and value and (depth < 1 or rng.random() < 0.7):
        key = list(value)[int(rng.integers(len(value)))]
        rest = {k: v for k, v in value.items() if k != key}
        return rest if rng.random() < 0.2 else {**rest, key: odd_json(rng, value[key], depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        k = int(rng.integers(len(value)))
        return [*value[:k], odd_json(rng, value[k], depth + 1), *value[k + 1 :]]
    options = [None, -1, 10**30, 1e308, "x", "", [], {}, [[]], True, {"a": 1}, "[" * 5000, [None], 0, 2, 1.5]
    return options[int(rng.integers(len(options)))]


def solver_files(rng: np.random.Generator, folder: Path) -> str:
    """Load a solver's file with changed bytes, arrays or fields: refused, or a solver that solves."""
    path = folder / "solver.longstep"
    whole = sealed(str(folder.parent))
    path.write_bytes(whole)
    kind = int(rng.integers(3))
    if kind == 0:
        damaged = bytearray(whole)
        for _ in range(int(rng.integers(1, 4))):
            damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        path.write_bytes(bytes(damaged[: int(rng.integers(len(damaged) + 1))] if rng.random() < 0.3 else damaged))
    else:
        arrays, metadata = storage.read(path, "solver", 1)
        if kind == 1:
            if rng.random() < 0.5:
                metadata["training"] = odd_json(rng, metadata["training"])
            else:
                metadata = odd_json(rng, metadata)
            metadata = metadata if isinstance(metadata, dict) else {}
        else:
            name = list(arrays)[int(rng.integers(len(arrays)))]
            old = arrays[name]
            news = [old[:-1], np.append(old, old[:1]), old.astype(np.float32), old * 0 - 1, old.astype(float) + np.nan]
            news += [np.full(old.shape, 10**12, np.int64), old[:, None], old.astype(np.int8), np.zeros(0, old.dtype)]
            arrays = arrays | {name: np.ascontiguousarray(news[int(rng.integers(len(news)))])}
            if rng.random() < 0.2:
                arrays.pop(name)
        storage.write(path, "solver", 1, arrays, metadata)
    try:
        loaded = ls.Solver.load(path)
    except (FileFormatError, ValueError) as error:
        no_family = isinstance(error, ValueError) and "made of Python functions" in str(error)
        require(isinstance(error, FileFormatError) or no_family, f"{type(error).__name__}: {error}")
        return "refused"
    loaded.solve(np.zeros(2), max_iter=20)
    find_trained(loaded, Split("test", loaded.family, np.zeros((3, 2)), None))
    if loaded.record is not None:
        _describe_training(_pick_training(loaded.record))
        ls.Solver(loaded.family, algorithm=loaded.algorithm, **loaded.record.get("constant", {}))
    return "loaded"


@functools.cache
def some_certificate() -> dict:
    rng = np.random.default_rng(0)
    split = Split("validation", small(True).family, rng.normal(size=(400, 2)), None)
    return ls.certify(small(True), split, [2, 5], level=0.9, confidence=0.9).to_json()


def certificates(rng: np.random.Generator, folder: Path) -> str:
    """Read a certificate with changed fields, sealed again or not: refused, or one that prints and saves."""
    document = odd_json(rng, some_certificate())
    if isinstance(document, dict) and rng.random() < 0.8:
        fields = {k: v for k, v in document.items() if k not in ("longstep", "version", "hash")}
        document = {**document, "hash": ls.Certificate._hash(fields)}
    path = folder / "c.json"
    path.write_text(json.dumps(document))
    try:
        loaded = ls.Certificate.load(path)
    except CertificateError:
        return "refused"
    require(len(str(loaded)) > 20, "a certificate without words")
    loaded.save(path)
    return "loaded"


@functools.cache
def exported(folder: str) -> Path:
    return ls.generate_c(small(True), Path(folder) / "export-for-fuzzing", prefix="mpc").folder


def exports(rng: np.random.Generator, folder: Path) -> str:
    """Open, build and overwrite an export whose manifest was changed: refused, or nothing but its own files touched."""
    path = shutil.copytree(exported(str(_kept())), folder / "c")
    precious = folder / "precious"
    precious.write_text("mine")
    manifest = path / "manifest.json"
    document = odd_json(rng, json.loads(manifest.read_text()))
    if isinstance(document, dict) and rng.random() < 0.3:
        document["hashes"] = {"../precious": "x"} if rng.random() < 0.5 else {}
    if isinstance(document, dict) and rng.random() < 0.2:
        document["prefix"] = ["-fplugin=./a.so", "../x", "main", "a" * 50, "x;y"][int(rng.integers(5))]
    manifest.write_text(json.dumps(document))
    try:
        Export.open(path)
        word = "opened"
    except FileFormatError:
        word = "refused"
    try:
        ls.generate_c(small(True), path, prefix="other", overwrite=True)
    except (FileFormatError, ValueError):
        require(word == "refused", "what opens can be overwritten")
    require(precious.read_text() == "mine", "a file of another folder was touched")
    return word


@functools.cache
def _kept() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="longstep-fuzz-"))


TRIALS = {
    "statuses": statuses,
    "statuses in C": in_c,
    "finishes": finishes,
    "cone finishes": cone_finishes,
    "cone finishes in C": cone_finishes_in_c,
    "inputs": inputs,
    "solver files": solver_files,
    "certificates": certificates,
    "exports": exports,
}
