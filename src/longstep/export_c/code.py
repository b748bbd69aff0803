"""The code of a solver: its two C files, and what they need."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from typing_extensions import override

from .._util.threads import one_blas_thread
from ..engine.plan import make_plan
from . import emit
from .condensation import Condensation
from .header import header_source
from .linear import Linear, linear_system
from .ordering import METHODS
from .problem import Generated, Problem, problem_of
from .source import LEAST_EPS, data_source, has, renamed

_BYTES = {"real": 0, "uint8_t": 1, "uint16_t": 2, "int32_t": 4}
# Compilers read static data slowly, and no microcontroller has so much.
_MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Code:
    """Header, data and source of one solver, and the bytes of its constants (ROM) and of its workspace (RAM)."""

    problem: Problem
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

    @property
    def least_eps(self) -> float:
        """Tolerances that are both less are refused."""
        return LEAST_EPS[self.precision]

    @property
    def factor_bytes(self) -> int:
        """The bytes of one factor."""
        return self.linear.factors.shape[1] * (8 if self.precision == "double" else 4)

    @property
    def files(self) -> dict[str, str]:
        """By name."""
        p = self.prefix
        return {f"{p}.h": self.header, f"{p}_data.h": self.data, f"{p}.c": self.source}


class _Single(Generated):
    """A solver with a ladder whose rungs are those that single precision has factors for."""

    def __init__(self, solver: Generated):
        self.family = solver.family
        self.algorithm = solver.algorithm
        self.schedule = solver.schedule
        self.seen = solver.seen
        self.ladder = solver.ladder
        self._solver = solver
        self.finish = None
        self.proximal = solver.proximal
        guard = solver.plan.safeguard
        work = self.algorithm.prepare_family(self.family.astype("float32"))
        rule = None if guard is None else guard.rule
        self.plan = make_plan(self.algorithm, work, self.schedule, rule, ladder=solver.ladder)

    @override
    def content_hash(self) -> str:
        """The solver's."""
        return self._solver.content_hash()


def check_prefix(prefix: Any) -> None:
    """Refuse what cannot begin the names of C functions and files."""
    if not isinstance(prefix, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", prefix) or prefix == "main":
        raise ValueError(
            "prefix must be a name of at most 40 lower-case letters, digits and underscores, like my_mpc, and not "
            f"main; got {prefix!r}"
        )


def write_code(solver: Generated, prefix: str, precision: str, method: str) -> Code:
    """The C code of a solver; what cannot be written is refused."""
    check_prefix(prefix)
    if precision not in LEAST_EPS:
        raise ValueError(f"precision must be 'double' or 'float', got {precision!r}")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    problem = problem_of(solver if precision == "double" or solver.plan.ladder is None else _Single(solver))
    if precision == "float":
        problem = dataclasses.replace(problem, finish=None)
    with one_blas_thread():
        linear = (
            linear_system(problem, method, precision)
            if problem.condensed is None
            else _reduced(problem, problem.condensed, method, precision)
        )
    width = 8 if precision == "double" else 4
    if linear.factors.size * width > _MOST_BYTES:
        raise ValueError(
            f"the factors need {linear.factors.size * width / 2**20:.0f} MiB; C code is written with up to "
            f"{_MOST_BYTES >> 20} MiB. Learn with fewer distinct factorizations (factorizations=5, or learn=['alpha'])"
        )
    algorithm = emit.filled(f"{problem.kind}.c", refine=emit.part("refine.c"), bounds=emit.part("bounds.c"))
    features = has(problem)
    source = "\n".join(
        [
            f'#include "{prefix}.h"\n\n#include <float.h>\n#include <math.h>\n#include <string.h>\n',
            '#include "longstep_data.h"\n',
            emit.kept(algorithm, **features),
            emit.kept(emit.filled("driver.c", finish=emit.part("finish.c")), **features),
        ]
    )
    data = data_source(problem, linear, precision)
    ram, result = _memory(problem, width, linear.spare)
    return Code(
        problem=problem,
        linear=linear,
        prefix=prefix,
        precision=precision,
        header=renamed(header_source(problem, precision, LEAST_EPS[precision], linear.spare), prefix),
        data=renamed(data, prefix),
        source=renamed(source, prefix),
        rom=_constants(data, width),
        text=_code_bytes(data),
        ram=ram,
        result=result,
    )


def _constants(data: str, width: int) -> int:
    """The bytes of all static arrays."""
    index = re.search(r"typedef (\w+) index_t;", data)
    sizes = {**_BYTES, "real": width, "index_t": _BYTES[index.group(1)] if index else 4}
    return sum(sizes[kind] * int(size) for kind, size in re.findall(r"^static const (\w+) \w+\[(\d+)\]", data, re.M))


def _code_bytes(data: str) -> int:
    """About so many bytes of code, by what was measured: loops, written-out products, and functions of blocks."""
    functions = re.findall(r"^static void (?:forward|backward|scaled)_", data, re.M)
    return 9_000 + 20 * data.count(" * x[") + 500 * len(functions)


def _memory(problem: Problem, width: int, spare_vectors: bool) -> tuple[int, int]:
    """The bytes of a workspace and of a result."""
    m = max(problem.constraints, 1)
    n, rows = (emit.vector_length(count, width) for count in (problem.n, problem.A.shape[0]))
    if problem.condensed is not None:
        return _condensed_memory(problem, problem.condensed, width, spare_vectors)
    spare = 3 * (problem.n if spare_vectors else 1)
    judged = 2 * 9 + 6
    if problem.cones is None:
        state = 2 * n + 3 * rows
        reals = n + 2 * rows + 2 * state + (n + 2 * rows) + 2 * rows + 2 * n + spare + judged
        integers = 9
    else:
        matrix = 2 * max((k * k for k in problem.cones.semidefinite), default=1)
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
    whole = reals * width + integers * 4
    return -(-whole // width) * width, (problem.n + 2 * m + 3) * width + 4 * 4


def _condensed_memory(problem: Problem, c: Condensation, width: int, spare_vectors: bool) -> tuple[int, int]:
    n, rows, free, inner = (
        emit.vector_length(count, width) for count in (problem.n, problem.A.shape[0], c.free, c.inner.size)
    )
    state = 2 * free + 4 * inner + 1
    past = max(state, free + inner + n + rows)
    scratch = 2 * inner + 2 * free + 3 * n + 2 * rows + 3 * (c.free if spare_vectors else 1)
    reals = (n + 2 * rows) + (n + free + inner) + state + past + (free + 2 * inner + n + rows) + scratch + 2 * 9 + 12
    reals += 5 * (problem.rungs is not None)
    integers = 10 + 2 * (problem.rungs is not None)
    kept = (problem.n + 2 * max(problem.constraints, 1) + 3) * width + 4 * 4
    if problem.finish is not None:
        slots = emit.vector_length(c.slots, width)
        reals += slots * slots + 12 * slots + 3 * inner + 2 * free + state + 9
        integers += 2 * slots + 4
        kept += 2 * 4
    return -(-(reals * width + integers * 4) // width) * width, kept


def _reduced(problem: Problem, c: Condensation, method: str, precision: str) -> Linear:
    """The linear system of the coordinates, and whether steps do without products with P."""
    others = np.flatnonzero(~problem.equality)
    places = np.searchsorted(others, c.inner)
    system = dataclasses.replace(
        problem,
        n=c.free,
        P=sp.csr_array(c.P),
        A=sp.csr_array(c.A),
        weights=problem.weights[:, places],
        condensed=None,
    )
    linear = linear_system(system, method, precision)
    # In single precision what rounding adds to the gradient is too much.
    by_system = c.definite and precision == "double" and linear.refinements == 0
    return dataclasses.replace(linear, by_system=by_system, alone=True)
