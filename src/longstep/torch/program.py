"""The compiled programs of a layer, and how autograd calls them."""

# Where PyTorch is not installed, a type checker takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

import contextlib
from collections.abc import Sequence

import jax
import torch
from jaxtyping import Array, PyTree
from torch import Tensor
from torch.autograd.function import once_differentiable
from typing_extensions import override

from .._util.threads import one_blas_thread
from ..engine.function import Function, TracedSolution

# The leaves of a solution that have no derivatives stand last: two residuals, the status and the iterations.
_WITHOUT = 4


class LayerProgram:
    """A function of some parameters by name, `batched` or not, with its transposed derivative; compiled once."""

    def __init__(self, function: Function, names: tuple[str, ...], batched: tuple[bool, ...], *, vector: bool):
        axes = tuple(0 if has else None for has in batched)

        def assemble(arrays: Sequence[Array]) -> PyTree:
            if vector:
                return arrays[0]
            return dict(zip(names, arrays, strict=True))

        def evaluate(*arrays: Array) -> TracedSolution:
            return function(assemble(arrays))

        def attach(solution: TracedSolution, *arrays: Array) -> list[Array]:
            return jax.tree.leaves(function.attach(assemble(arrays), solution))[:-_WITHOUT]

        if any(batched):
            evaluate = jax.vmap(evaluate, in_axes=axes)
            attach = jax.vmap(attach, in_axes=(0, *axes))

        def pull(arrays: list[Array], solution: TracedSolution, weights: list[Array]) -> tuple[Array, ...]:
            # Without solving again: the solution is known.
            return jax.vjp(lambda *given: attach(solution, *given), *arrays)[1](weights)

        self._evaluate = jax.jit(evaluate)
        self._pull = jax.jit(pull)
        self._structure = None
        # Systems of single instances are small, and LAPACK's threads are a hindrance there.
        self._limit_threads = contextlib.nullcontext
        if any(batched):
            self._limit_threads = one_blas_thread

    def evaluate(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the leaves of the solution."""
        with self._limit_threads():
            found = jax.block_until_ready(self._evaluate(*map(_to_jax, tensors)))
        leaves, self._structure = jax.tree.flatten(found)
        return [_to_torch(leaf, tensors) for leaf in leaves]

    def pull(self, tensors: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients by the parameters of what the weights make of the solution."""
        assert self._structure is not None
        solution = jax.tree.unflatten(self._structure, list(map(_to_jax, leaves)))
        with self._limit_threads():
            slopes = self._pull(list(map(_to_jax, tensors)), solution, list(map(_to_jax, weights)))
            slopes = jax.block_until_ready(slopes)
        return [_to_torch(slope, tensors) for slope in slopes]


def solve(program: LayerProgram, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves of the solution, known to autograd."""
    if not tensors:
        return program.evaluate(tensors)
    return list(_LayerSolve.apply(program, *tensors))


class _LayerSolve(torch.autograd.Function):
    """The solve as a node of autograd's graph."""

    @staticmethod
    @override
    def forward(ctx, program: LayerProgram, *tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = program.evaluate(tensors)
        ctx.program = program
        ctx.count = len(tensors)
        # Saved by autograd, which tells where one of them was written to since.
        ctx.save_for_backward(*tensors, *leaves)
        ctx.mark_non_differentiable(*leaves[-_WITHOUT:])
        return tuple(leaves)

    @staticmethod
    @override
    @once_differentiable
    def backward(ctx, *weights: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors[: ctx.count]
        leaves = ctx.saved_tensors[ctx.count :]
        return None, *ctx.program.pull(tensors, leaves, weights[:-_WITHOUT])


def _to_jax(tensor: Tensor) -> Array:
    # JAX without an accelerator does not see PyTorch's.
    tensor = tensor.detach()
    if jax.default_backend() == "cpu":
        tensor = tensor.cpu()
    return jax.dlpack.from_dlpack(tensor.contiguous())


def _to_torch(array: Array, like: Sequence[Tensor]) -> Tensor:
    tensor = torch.from_dlpack(array)
    if not like:
        return tensor
    return tensor.to(like[0].device)
