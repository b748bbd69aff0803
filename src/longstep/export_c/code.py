"""The code of a solver: its two C files, and what they need."""

import dataclasses
import re
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from typing_extensions import override

from .._util.text import state_mebibytes
from .._util.threads import one_blas_thread
from ..engine.plan import make_plan
from . import emit
from .condensation import Condensation
from .condensed import order_inner
from .header import write_header
from .linear import Linear, factor_system
from .newton import count_derivatives, measure_matrix, read_newton
from .ordering import METHODS
from .problem import ExportedProblem, Generated, extract_problem
from .source import LEAST_EPS, list_features, rename_prefix, write_data

_BYTES = {"real": 0, "uint8_t": 1, "uint16_t": 2, "int32_t": 4}
# The bytes of code that the steps of a form take besides what all have, about.
_OWN_CODE = {"qp": 0, "condensed": 5_500, "conic": 2_000}
# Compilers read static data slowly, and no microcontroller has so much.
_MOST_BYTES = 256 * 2**20
# More numbers than these take a compiler longer than all else: some 5 µs each, whatever they are written like.
_MANY = 50_000


@dataclass(frozen=True)
class Code:
    """Header, data and source of one solver, and the bytes of its constants (ROM) and of its workspace (RAM).

    Code for a library of this machine may have the numbers of its factors `apart`, to be placed when it is loaded.
    """

    problem: ExportedProblem
    linear: Linear
    prefix: str
    precision: str
    header: str
    data: str
    source: str
    rom: int
    text: int
    ram: int
    result: int
    apart: bool

    @property
    def least_eps(self) -> float:
        """The least tolerance; two that are both less are refused."""
        return LEAST_EPS[self.precision]

    @property
    def factor_bytes(self) -> int:
        """The bytes of one factor."""
        return self.linear.factors.shape[1] * emit.REALS[self.precision].width

    @property
    def values(self) -> np.ndarray | None:
        """The numbers of the factors where they are kept apart, in this precision; else None."""
        if not self.apart:
            return None
        return np.ascontiguousarray(self.linear.factors, emit.REALS[self.precision].dtype)

    @property
    def files(self) -> dict[str, str]:
        """The texts by the names of the files."""
        p = self.prefix
        return {f"{p}.h": self.header, f"{p}_data.h": self.data, f"{p}.c": self.source}


class _Single(Generated):
    """A solver with a ladder whose rungs are those that single precision has factors for."""

    def __init__(self, solver: Generated):
        self.family = solver.family
        self.algorithm = solver.algorithm
        self.schedule = solver.schedule
        self.seen = solver.seen
        self.start = solver.start
        self.ladder = solver.ladder
        self._solver = solver
        self.finish = None
        self.patience = None
        self.proximal = solver.proximal
        guard = solver.plan.safeguard
        rule = None
        if guard is not None:
            rule = guard.name
        work = self.algorithm.prepare_family(self.family.astype("float32"))
        self.plan = make_plan(self.algorithm, work, self.schedule, rule, ladder=solver.ladder)

    @override
    def content_hash(self) -> str:
        """Return the solver's hash."""
        return self._solver.content_hash()


def check_prefix(prefix: object) -> None:
    """Refuse what cannot begin the names of C functions and files."""
    if not isinstance(prefix, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", prefix) or prefix == "main":
        raise ValueError(
            "prefix must be a name of at most 40 lower-case letters, digits and underscores, like my_mpc, and not "
            f"main; got {prefix!r}"
        )


def write_code(solver: Generated, prefix: str, precision: str, method: str, *, loaded: bool = False) -> Code:
    """Return the C code of a solver; what cannot be written is refused.

    Code that is to be `loaded` by this process has the factors apart where they are large.
    """
    check_prefix(prefix)
    if precision not in LEAST_EPS:
        raise ValueError(f"precision must be 'double' or 'float', got {precision!r}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if precision == "float" and solver.plan.ladder is not None:
        solver = _Single(solver)
    problem = extract_problem(solver)
    if problem.condensed is not None and method == "augmented":
        raise ValueError(
            "method 'augmented' is for the steps of OSQP and SCS; the systems of condensed steps are small and dense. "
            "Use method='auto', or the algorithm OSQP"
        )
    if precision == "float":
        problem = dataclasses.replace(problem, finish=None)
    with one_blas_thread():
        if problem.condensed is None:
            linear = factor_system(problem, method, precision)
        else:
            linear = _factor_condensed(problem, problem.condensed, method, precision)
    width = emit.REALS[precision].width
    if linear.factors.size * width > _MOST_BYTES:
        raise ValueError(
            f"the factors need {state_mebibytes(linear.factors.size * width)}; C code is written with "
            f"up to {state_mebibytes(_MOST_BYTES)}. Learn with fewer distinct factorizations (factorizations=5, "
            "or learn=['alpha'])"
        )
    apart = loaded and linear.factors.size > _MANY
    data = write_data(problem, linear, precision, apart)
    rom = _count_constants(data, width)
    if apart:
        rom += linear.factors.size * width
    ram, result = _measure_memory(problem, linear, width)
    return Code(
        problem=problem,
        linear=linear,
        prefix=prefix,
        precision=precision,
        header=rename_prefix(write_header(problem, linear, precision, LEAST_EPS[precision]), prefix),
        data=rename_prefix(data, prefix),
        source=rename_prefix(_write_source(problem, linear, prefix), prefix),
        rom=rom,
        text=_estimate_code(problem, data),
        ram=ram,
        result=result,
        apart=apart,
    )


def _write_source(problem: ExportedProblem, linear: Linear, prefix: str) -> str:
    """Return the steps and the driver, with the features that this problem has."""
    refine = emit.fill_part("refine.c", room=", work->room" if linear.room else "")
    algorithm = emit.fill_part(f"{problem.kind}.c", refine=refine, bounds=emit.read_part("bounds.c"))
    finish = emit.read_part("finish.c") if problem.cones is None else read_newton(problem.cones)
    driver = emit.fill_part("driver.c", finish=finish)
    features = list_features(problem)
    return emit.fill_part(
        "source.c",
        prefix=prefix,
        algorithm=emit.select_features(algorithm, **features),
        driver=emit.select_features(driver, **features).rstrip("\n"),
    )


def _count_constants(data: str, width: int) -> int:
    """Return the bytes of all static arrays."""
    index = re.search(r"typedef (\w+) index_t;", data)
    assert index is not None
    sizes = {**_BYTES, "real": width, "index_t": _BYTES[index.group(1)]}
    return sum(sizes[kind] * int(size) for kind, size in re.findall(r"^static const (\w+) \w+\[(\d+)\]", data, re.M))


def _estimate_code(problem: ExportedProblem, data: str) -> int:
    """Return about the bytes of code that GCC makes at -O2, as was measured on x86-64 and on a Cortex-M4.

    They are for loops, what the problem has, written-out products, and functions of blocks.
    """
    functions = re.findall(r"^static void (?:forward|backward|scaled)_", data, re.M)
    own = _OWN_CODE[problem.kind] + 1_200 * (problem.rungs is not None) + 7_000 * (problem.finish is not None)
    return 9_500 + own + 20 * data.count(" * x[") + 500 * len(functions)


def _measure_memory(problem: ExportedProblem, linear: Linear, width: int) -> tuple[int, int]:
    """Return the bytes of a workspace and of a result."""
    if problem.condensed is not None:
        return _measure_condensed(problem, problem.condensed, width, linear.spare)
    m = max(problem.constraints, 1)
    n, rows = (emit.pad_length(count, width) for count in (problem.n, problem.A.shape[0]))
    spare = 3 * (problem.n if linear.spare else 1)
    if linear.room:
        spare += emit.pad_length(linear.room, width)
    judged = 2 * 9 + 6
    if problem.cones is None:
        state = 2 * n + 3 * rows
        reals = n + 2 * rows + 2 * state + (n + 2 * rows) + 2 * rows + 2 * n + spare + judged
        integers = 9
    else:
        matrix = 2 * measure_matrix(problem.cones)
        state = 2 * n + 3 * rows + 3
        reals = (
            n + rows + 1 + 2 * state + (n + 2 * rows + 1) + (n + rows + 1) + 2 * rows + 3 * n + matrix + spare + judged
        )
        # The two states have an integer each, which fills the room of a real number.
        integers = 10 + 2 * width // 4
    if problem.rungs is not None:
        # The place and the moves; the levels at the last look and at the last mark.
        integers += 2
        reals += 2
    kept = (problem.n + 2 * m + 3) * width + 4 * 4
    if problem.finish is not None:
        reals += _count_newton(problem, n, rows)
        integers += 4 + width // 4
        kept += 2 * 4
    whole = reals * width + integers * 4
    return -(-whole // width) * width, kept


def _count_newton(problem: ExportedProblem, n: int, rows: int) -> int:
    """Return the real numbers of what Newton's method works with: the matrix, vectors, and a state to go back to."""
    spectra = sum(count_derivatives(problem).values())
    state = 2 * n + 3 * rows + 3
    return n * n + 4 * n + 4 + 4 * n + 5 * rows + spectra + state + 9


def _measure_condensed(problem: ExportedProblem, c: Condensation, width: int, spare_vectors: bool) -> tuple[int, int]:
    n, rows, free, inner = (
        emit.pad_length(count, width) for count in (problem.n, problem.A.shape[0], c.free, c.inner.size)
    )
    state = 2 * free + 4 * inner + 1
    past = max(state, free + inner + n + rows)
    scratch = 2 * inner + 2 * free + 3 * n + 2 * rows + 3 * (c.free if spare_vectors else 1)
    reals = (n + 2 * rows) + (n + free + inner) + state + past + (free + 2 * inner + n + rows) + scratch + 2 * 9 + 12
    reals += 5 * (problem.rungs is not None)
    integers = 10 + 2 * (problem.rungs is not None)
    if problem.start is not None:
        reals += problem.size
    kept = (problem.n + 2 * max(problem.constraints, 1) + 3) * width + 4 * 4
    if problem.finish is not None:
        slots = emit.pad_length(c.slots, width)
        reals += slots * slots + 12 * slots + 3 * inner + 2 * free + state + 9
        integers += 2 * slots + 4
        kept += 2 * 4
    return -(-(reals * width + integers * 4) // width) * width, kept


def _factor_condensed(problem: ExportedProblem, c: Condensation, method: str, precision: str) -> Linear:
    """Return the linear system of the coordinates; it says whether steps do without products with P."""
    system = dataclasses.replace(
        problem,
        n=c.free,
        P=sp.csr_array(c.P),
        A=sp.csr_array(c.A),
        weights=problem.weights[:, order_inner(problem, c)],
        condensed=None,
        sparse=False,
    )
    linear = factor_system(system, method, precision)
    # In single precision what rounding adds to the gradient is too much.
    by_system = c.definite and precision == "double" and linear.refinements == 0
    return dataclasses.replace(linear, by_system=by_system, alone=True)
