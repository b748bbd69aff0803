"""The linear system of a step: which factorization is cheapest, its numbers, and the C code that applies it."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..linalg.systems import refinements_for
from . import emit
from .factors import Piece, factorize_blocks, solve_error
from .ordering import LANES, Blocks, choose_blocks
from .problem import Problem


@dataclass(frozen=True)
class Linear:
    """One method for one size: the order of the unknowns, the numbers of every factor, the code of `solve`."""

    method: str
    order: Int[np.ndarray, " n"]
    factors: Float[np.ndarray, "factors size"]
    code: str
    words: str
    refinements: int = 0
    by_system: bool = False
    # Whether the right-hand side need not be kept for that.
    alone: bool = False

    @property
    def spare(self) -> bool:
        """Whether steps need vectors to keep a right-hand side in."""
        return self.refinements > 0 or (self.by_system and not self.alone)


def linear_system(problem: Problem, method: str, precision: str) -> Linear:
    """The factorization by the method that was asked for; `auto` takes the cheapest by the cost model."""
    fixed = 0 if problem.fixed is None else problem.fixed.nnz
    by_system = problem.cones is None and problem.P.nnz > problem.A.nnz + fixed + 2 * problem.n
    pattern = problem.pattern()
    if pattern.nnz == problem.n:
        return dataclasses.replace(_diagonal(problem), by_system=by_system)
    name, blocks, _ = choose_blocks(pattern, method, LANES[precision])
    matrices = [K[blocks.order][:, blocks.order].toarray() for K in map(problem.gram, range(len(problem.shift)))]
    pieces = [factorize_blocks(K, blocks) for K in matrices]
    system = _by_columns(blocks, pieces) if name == "sparse" else _in_blocks(blocks, pieces, precision, name)
    dtype = np.dtype(np.float64 if precision == "double" else np.float32)
    error = 0.0
    for K, piece, weights in zip(matrices, pieces, problem.weights, strict=True):
        error = max(error, solve_error(K, blocks, piece, dtype) * max(1.0, float(weights.max(initial=1.0))))
    # The rule of the solver's own cached inverses.
    refinements = refinements_for(error, problem.tolerance(float(np.finfo(dtype).eps)))
    return dataclasses.replace(system, refinements=refinements, by_system=by_system)


def _diagonal(problem: Problem) -> Linear:
    factors = np.stack([1.0 / problem.gram(g).diagonal() for g in range(len(problem.shift))])
    return Linear("diagonal", np.arange(problem.n), factors, emit.part("diagonal.c"), "a diagonal matrix, inverted")


def _by_columns(blocks: Blocks, factors: list[list[Piece]]) -> Linear:
    first = np.cumsum([0, *(r.size for r in blocks.rows)])
    n = len(blocks.rows)
    values = [np.concatenate([piece.C.ravel() for piece in f] + [piece.M.ravel() for piece in f]) for f in factors]
    code = (
        f"#define L_ENTRIES {first[-1]}\n"
        + emit.integers("int32_t", "L_first", first)
        + emit.integers(emit.index_type(n), "L_row", np.concatenate(blocks.rows))
        + emit.part("columns.c")
    )
    words = f"sparse LDLᵀ, {first[-1]} entries below the diagonal"
    return Linear("sparse", blocks.order, np.stack(values), code, words)


def _in_blocks(blocks: Blocks, factors: list[list[Piece]], precision: str, name: str) -> Linear:
    lanes = LANES[precision]
    values = [np.concatenate([_packed(piece, lanes) for piece in f]) for f in factors]
    words = f"LDLᵀ in {len(blocks.rows)} dense blocks, {blocks.entries} entries"
    words = "dense inverse" if name == "inverse" else words
    return Linear(name, blocks.order, np.stack(values), _block_code(blocks, lanes), words)


def _packed(piece: Piece, lanes: int) -> np.ndarray:
    """C, then M and −C', by padded columns; a diagonal M comes last."""
    C = piece.C
    M = piece.M
    if M.ndim == 1:
        return np.concatenate([_padded(C, lanes), _padded(-C.T, lanes), M])
    return np.concatenate([_padded(C, lanes), _padded(np.hstack([M, -C.T]), lanes)])


def _padded(matrix: np.ndarray, lanes: int) -> np.ndarray:
    rows, columns = matrix.shape
    padded = np.zeros((columns, _up(rows, lanes)))
    padded[:, :rows] = matrix.T
    return padded.ravel()


def _block_code(blocks: Blocks, lanes: int) -> str:
    """A function for each shape of a block, and `solve`, which calls them in order."""
    forward = []
    backward = []
    place = 0
    at = 0
    for s, (j, r, diagonal) in enumerate(blocks.shapes):
        arguments = f"b, {blocks.start[s]}, below + {at}"
        if r:
            forward.append(f"    forward_{j}_{r}(factor + {place}, {arguments});")
        place += _up(r, lanes) * j
        name = "scaled" if diagonal else "backward"
        backward.insert(0, f"    {name}_{j}_{r}(factor + {place}, {arguments});")
        place += _up(j, lanes) * r + j if diagonal else _up(j, lanes) * (j + r)
        at += r
    body = "\n".join([*forward, *backward])
    return "\n".join(
        [
            emit.integers(emit.index_type(int(blocks.start[-1])), "below", np.concatenate([*blocks.rows, [0]])),
            *_functions(blocks, lanes),
            f"static void solve(const real *restrict factor, real *restrict b)\n{{\n{body}\n}}\n",
        ]
    )


def _functions(blocks: Blocks, lanes: int) -> list[str]:
    """One function for each shape and direction."""
    text = [emit.part("blocks.c")]
    text += [_function("forward", j, r, lanes) for j, r in sorted({(j, r) for j, r, _ in blocks.shapes if r})]
    for j, r, diagonal in sorted(set(blocks.shapes)):
        text.append(_function("scaled" if diagonal else "backward", j, r, lanes))
    return text


def _function(name: str, j: int, r: int, lanes: int) -> str:
    code = emit.part(f"block_{name}.c")
    if not r:
        gather = "    for (int k = 0; k < R_; ++k) x[J_ + k] = b[below[k]];\n"
        code = code.replace(gather, "    (void)below;\n")
    sizes = {"J_UP": _up(j, lanes), "R_UP": _up(r, lanes), "J_R": f"{j}_{r}", "J_ + R_": j + r}
    for token, value in {**sizes, "R_": r, "J_": j}.items():
        code = code.replace(token, str(value))
    return code


def _up(k: int, lanes: int) -> int:
    return -(-k // lanes) * lanes
