"""The linear system of a step: which factorization is cheapest, its numbers, and the C code that applies it."""

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..linalg.systems import refinements_for
from . import emit
from .augmented import AugmentedForm, measure_error
from .factors import Piece, factorize_blocks, solve_error
from .ordering import LANES, Blocks, ChosenMethod, choose_method
from .problem import ExportedProblem


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
    # The numbers that `solve` works with, where it needs more room than for its argument.
    room: int = 0

    @property
    def spare(self) -> bool:
        """Whether steps need vectors to keep a right-hand side in."""
        return self.refinements > 0 or (self.by_system and not self.alone)


def factor_system(problem: ExportedProblem, method: str, precision: str) -> Linear:
    """Return the factorization by the method that was asked for; `auto` takes the cheapest by the cost model."""
    others = problem.A.nnz + 2 * problem.n
    if problem.fixed is not None:
        others += problem.fixed.nnz
    by_system = problem.cones is None and problem.P.nnz > others
    return dataclasses.replace(_choose_system(problem, method, precision), by_system=by_system)


def _choose_system(problem: ExportedProblem, method: str, precision: str) -> Linear:
    """Return the cheapest factorization. The solver's own back ends are not asked for its cost, because C solves one
    right-hand side at a time by code that is written for the entries of K, where JAX multiplies dense matrices with
    many; numbers and order of the augmented form, and the rule of refinement, are theirs."""
    lanes = LANES[precision]
    form = None
    # The augmented form is looked at where the solver itself has sparse factors, whose matrix is not diagonal.
    if method == "auto" and problem.sparse:
        form = AugmentedForm.of(problem, lanes)
        # A row of A makes a square in A'A, and L has half of it: no need to look further where that alone costs more.
        if form.cost < int(np.diff(problem.A.indptr).max(initial=0)) ** 2:
            return _factor_augmented(problem, form, precision)
    pattern = problem.pattern()
    if pattern.nnz == problem.n:
        return _invert_diagonal(problem)
    if method == "augmented":
        return _factor_augmented(problem, AugmentedForm.of(problem, lanes), precision)
    choice = choose_method(pattern, method, lanes)
    if form is not None and form.cost < choice.cost:
        return _factor_augmented(problem, form, precision)
    return _factor_gram(problem, choice, precision)


def _factor_gram(problem: ExportedProblem, choice: ChosenMethod, precision: str) -> Linear:
    """Return the factors of P + A'A by a method that is not `diagonal`."""
    blocks = choice.blocks
    matrices = [K[blocks.order][:, blocks.order].toarray() for K in map(problem.gram, range(len(problem.shift)))]
    pieces = [factorize_blocks(K, blocks) for K in matrices]
    system = _write_factors(choice.method, blocks, pieces, precision)
    real = emit.REALS[precision]
    error = 0.0
    for K, piece, weights in zip(matrices, pieces, problem.weights, strict=True):
        error = max(error, solve_error(K, blocks, piece, real.dtype) * max(1.0, float(weights.max(initial=1.0))))
    # The rule of the solver's own cached inverses.
    refinements = refinements_for(error, problem.tolerance(real.epsilon))
    return dataclasses.replace(system, refinements=refinements)


def _factor_augmented(problem: ExportedProblem, form: AugmentedForm, precision: str) -> Linear:
    """Return the factors of the augmented form, refined by the same rule."""
    real = emit.REALS[precision]
    factors = form.factorize(problem)
    error = 0.0
    for g, factor in enumerate(factors):
        weight = max(1.0, float(problem.weights[g].max(initial=1.0)))
        error = max(error, measure_error(problem, g, factor, real.dtype) * weight)
    return Linear(
        method="augmented",
        order=form.order,
        factors=form.pack(factors),
        code=form.write(),
        words=f"LDLᵀ of the augmented form, {form.augmented.fill} entries in {len(form.panels.rows)} panels",
        refinements=refinements_for(error, problem.tolerance(real.epsilon)),
        room=form.room,
    )


def _invert_diagonal(problem: ExportedProblem) -> Linear:
    factors = np.stack([1.0 / problem.gram(g).diagonal() for g in range(len(problem.shift))])
    return Linear(
        "diagonal", np.arange(problem.n), factors, emit.read_part("diagonal.c"), "a diagonal matrix, inverted"
    )


def _write_factors(name: str, blocks: Blocks, factors: list[list[Piece]], precision: str) -> Linear:
    """Return the numbers and the code of some factors by a method that is not `diagonal`."""
    if name == "sparse":
        return _write_columns(blocks, factors)
    return _write_blocks(name, blocks, factors, precision)


def _write_columns(blocks: Blocks, factors: list[list[Piece]]) -> Linear:
    first = np.cumsum([0, *(r.size for r in blocks.rows)])
    n = len(blocks.rows)
    values = [np.concatenate([piece.C.ravel() for piece in f] + [piece.M.ravel() for piece in f]) for f in factors]
    code = (
        f"#define L_ENTRIES {first[-1]}\n"
        + emit.integers("int32_t", "L_first", first)
        + emit.integers(emit.index_type(n), "L_row", np.concatenate(blocks.rows))
        + emit.read_part("columns.c")
    )
    words = f"sparse LDLᵀ, {first[-1]} entries below the diagonal"
    return Linear("sparse", blocks.order, np.stack(values), code, words)


def _write_blocks(name: str, blocks: Blocks, factors: list[list[Piece]], precision: str) -> Linear:
    lanes = LANES[precision]
    values = [np.concatenate([_pack(piece, lanes) for piece in f]) for f in factors]
    words = "dense inverse"
    if name != "inverse":
        words = f"LDLᵀ in {len(blocks.rows)} dense blocks, {blocks.entries} entries"
    return Linear(name, blocks.order, np.stack(values), _write_solve(blocks, lanes), words)


def _pack(piece: Piece, lanes: int) -> np.ndarray:
    """Return C, then M and −C', by padded columns; a diagonal M comes last."""
    C = piece.C
    M = piece.M
    if M.ndim == 1:
        return np.concatenate([_pad(C, lanes), _pad(-C.T, lanes), M])
    return np.concatenate([_pad(C, lanes), _pad(np.hstack([M, -C.T]), lanes)])


def _pad(matrix: np.ndarray, lanes: int) -> np.ndarray:
    rows, columns = matrix.shape
    padded = np.zeros((columns, _round_up(rows, lanes)))
    padded[:, :rows] = matrix.T
    return padded.ravel()


def _write_solve(blocks: Blocks, lanes: int) -> str:
    """Return a function for each shape of a block, and `solve`, which calls them in order."""
    forward = []
    backward = []
    place = 0
    at = 0
    for s, (j, r, diagonal) in enumerate(blocks.shapes):
        arguments = f"b, {blocks.start[s]}, below + {at}"
        if r:
            forward.append(f"    forward_{j}_{r}(factor + {place}, {arguments});")
        place += _round_up(r, lanes) * j
        if diagonal:
            backward.insert(0, f"    scaled_{j}_{r}(factor + {place}, {arguments});")
            place += _round_up(j, lanes) * r + j
        else:
            backward.insert(0, f"    backward_{j}_{r}(factor + {place}, {arguments});")
            place += _round_up(j, lanes) * (j + r)
        at += r
    return "\n".join(
        [
            emit.integers(emit.index_type(int(blocks.start[-1])), "below", np.concatenate([*blocks.rows, [0]])),
            *_write_functions(blocks, lanes),
            emit.fill_part("block_solve.c", calls="\n".join([*forward, *backward])),
        ]
    )


def _write_functions(blocks: Blocks, lanes: int) -> list[str]:
    """Return one function for each shape and direction."""
    names = {False: "backward", True: "scaled"}
    text = [emit.read_part("blocks.c")]
    text += [_write_function("forward", j, r, lanes) for j, r in sorted({(j, r) for j, r, _ in blocks.shapes if r})]
    text += [_write_function(names[diagonal], j, r, lanes) for j, r, diagonal in sorted(set(blocks.shapes))]
    return text


def _write_function(name: str, j: int, r: int, lanes: int) -> str:
    sizes = {"j": j, "r": r, "both": j + r, "wide": _round_up(j, lanes), "high": _round_up(r, lanes)}
    return emit.select_features(emit.fill_part(f"block_{name}.c", **sizes), ROWS_BELOW=r > 0)


def _round_up(k: int, lanes: int) -> int:
    return -(-k // lanes) * lanes
