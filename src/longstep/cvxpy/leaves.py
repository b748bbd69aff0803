"""Where CVXPY's parameters lie in a family's parameter, and its variables in a family's solution."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from cvxpy import Problem
from cvxpy.expressions.leaf import Leaf

from ..families.names import Block
from .program import Compiled, compose_ids


def place_parameters(problem: Problem, compiled: Compiled) -> tuple[list[Block], sp.csc_array]:
    """Return where each parameter lies in x, and the matrix S of v = S x, with v CVXPY's vector of parameters."""
    program = compiled.program
    final = compose_ids(compiled.chain, "param")
    blocks = []
    rows = []
    columns = []
    start = 0
    for parameter in problem.parameters():
        (own,) = final.get(parameter.id, [parameter.id])
        block = _make_block(parameter, start, "C")
        entries = block.first.size
        if own == parameter.id:
            # v has the whole matrix by columns, zeros included.
            place = block.place.ravel(order="F")
            rows.append(np.flatnonzero(place >= 0))
            columns.append(place[place >= 0])
        else:
            rows.append(np.arange(entries))
            columns.append(start + np.arange(entries))
        rows[-1] = rows[-1] + program.param_id_to_col[own]
        blocks.append(block)
        start += entries
    where = (np.concatenate(rows), np.concatenate(columns))
    shape = (program.total_param_size, start)
    return blocks, sp.csc_array((np.ones(where[0].size), where), shape=shape)


def place_variables(problem: Problem, compiled: Compiled) -> list[Block]:
    """Return where each variable lies in the solution."""
    final = compose_ids(compiled.chain, "var")
    offsets = compiled.program.var_id_to_col
    found = [(v, offsets[final.get(v.id, [v.id])[0]]) for v in problem.variables()]
    return [_make_block(variable, offset, "F") for variable, offset in found]


def _make_block(leaf: Leaf, start: int, order: Literal["C", "F"]) -> Block:
    """Return the block of a leaf from entry `start` of a vector on; of symmetric ones it has the upper triangle."""
    shape = tuple(leaf.shape)
    attributes = leaf.attributes
    sparse = getattr(leaf, "sparse_idx", None)
    place = np.full(shape, -1)
    if any(attributes[kind] for kind in ("symmetric", "PSD", "NSD")):
        i, j = np.triu_indices(shape[-1])
        entries = np.arange(int(np.prod(shape[:-2])) * i.size).reshape((*shape[:-2], i.size), order="F")
        place[..., i, j] = place[..., j, i] = start + entries
    elif attributes["diag"]:
        np.fill_diagonal(place, start + np.arange(shape[0]))
    elif sparse is not None:
        place[sparse] = start + np.arange(len(sparse[0]))
    else:
        place = np.asarray(start + np.arange(leaf.size).reshape(shape, order=order))
    lower, upper = _read_bounds(attributes, shape)
    definite = 0
    if attributes["PSD"]:
        definite = 1
    elif attributes["NSD"]:
        definite = -1
    return Block(leaf.name(), place, lower, upper, definite)


def _read_bounds(attributes: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[np.ndarray | None, np.ndarray | None]:
    signs = (("nonneg", "pos"), ("nonpos", "neg"))
    declared = attributes.get("bounds") or (None, None)
    bounds: list[np.ndarray | None] = []
    for names, value in zip(signs, declared, strict=True):
        if any(attributes[name] for name in names):
            bounds.append(np.zeros(shape))
        elif value is None or hasattr(value, "parameters"):
            # A bound that is itself an expression is a constraint, and no number.
            bounds.append(None)
        else:
            bounds.append(np.broadcast_to(_make_dense(value), shape))
    return bounds[0], bounds[1]


def _make_dense(value: Any) -> np.ndarray:
    """Return a value of CVXPY, sparse or not, as an array."""
    if sp.issparse(value):
        value = value.toarray()
    return np.asarray(value, np.float64)
