"""The layer: parameters in, solutions out, gradients by the rule of `Solver.function`."""

# Where PyTorch is not installed, a type checker takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from ..engine.solution import Status
from ..families.base import NamedFamily
from ..families.composite import Composite
from ..families.names import Layout
from ..solver import Solver
from .program import LayerProgram, solve

# The name of a parameter that is one vector.
_VECTOR = "the parameter"


@dataclass(frozen=True)
class LayerSolution:
    """What a layer returns: tensors, of one instance or with a leading axis of instances.

    `x`, `y`, `s` and `objective` are those of `Solution`, and have gradients; the residuals, in the ∞-norm, and the
    `status`, a number of `Status`, have none. `y` and `s` are None for unconstrained families.
    """

    x: Tensor
    y: Tensor | None
    s: Tensor | None
    objective: Tensor
    primal_residual: Tensor
    dual_residual: Tensor
    status: Tensor
    iterations: Tensor
    layout: Layout | None

    @property
    def solved(self) -> Tensor:
        """True where the status is SOLVED. Elsewhere the point is the best one checked, and gradients mean little."""
        return self.status == Status.SOLVED.value

    @property
    def variables(self) -> dict[str, Tensor]:
        """The values of the variables by name, in their own shapes."""
        if self.layout is None:
            raise AttributeError("the variables of this family have no names: the point is `x`")
        values = {}
        for name, block in self.layout.variables.items():
            held = torch.as_tensor(block.place >= 0, device=self.x.device)
            value = self.x[..., torch.as_tensor(np.maximum(block.place, 0), device=self.x.device)]
            value = torch.where(held, value, torch.zeros_like(value))
            if block.lower is not None or block.upper is not None:
                # What leaves a bound by the tolerance is put on it, without an effect on gradients.
                bounds = (
                    None if each is None else torch.as_tensor(each).to(value) for each in (block.lower, block.upper)
                )
                value = value + (torch.clamp(value, *bounds) - value).detach()
            values[name] = value
        return values


class Layer(nn.Module):
    """A solver as a module: it takes tensors of parameters and returns a `LayerSolution`.

    `layer(x)` takes a parameter vector, `layer(returns=…, risk=…)` or a dict takes values by name, or the data of an
    instance (q, l, u; b, c) where the family has no names. Tensors with one more axis than their parameter, in front,
    are of several instances, which run as one batch; others are the same for all. Data travel by DLPack, without a
    copy where JAX and PyTorch are on the same device. The limits, and what gradients are, are those of
    `Solver.function`; families in float64 need JAX in 64-bit mode. Second derivatives are JAX's alone.
    """

    def __init__(
        self,
        solver: Solver,
        *,
        eps_abs: float = 1e-4,
        eps_rel: float = 1e-4,
        max_iter: int = 10_000,
        steps: int | None = None,
    ):
        super().__init__()
        family = solver.family
        named = family
        if isinstance(family, Composite):
            named = family.smooth
        if not isinstance(named, NamedFamily):
            raise TypeError(
                f"a layer needs to know the shapes of parameters, which {type(named).__name__} families do not tell; "
                "use solver.function() in JAX"
            )
        self.family = family
        self._function = solver.function(eps_abs=eps_abs, eps_rel=eps_rel, max_iter=max_iter, steps=steps)
        self._vector: tuple[int, ...] | None = None
        if named.parameter is not None:
            self._vector = (named.parameter.size,)
        if family.layout is None:
            self._shapes = {name: (size,) for name, size in named.sizes.items()}
        else:
            self._shapes = {name: block.shape for name, block in family.layout.parameters.items()}
        self._programs: dict[tuple[tuple[str, ...], tuple[bool, ...]], LayerProgram] = {}

    @override
    def forward(self, parameter: "Tensor | Mapping[str, Tensor] | None" = None, **named: Tensor) -> LayerSolution:
        """Solve the instances of these parameters and return their solutions."""
        if parameter is not None and named:
            raise TypeError(f"give the parameter or its values by name ({', '.join(named)}), not both")
        if parameter is None:
            parameter = named
        if not isinstance(parameter, Mapping):
            parameter = {_VECTOR: parameter}
        tensors = dict(parameter)
        batched = self._find_batch(tensors)
        key = tuple(tensors), batched
        if key not in self._programs:
            self._programs[key] = LayerProgram(self._function, *key, vector=_VECTOR in tensors)
        dtype = torch.float32
        if self.family.dtype == np.float64:
            dtype = torch.float64
        leaves = solve(self._programs[key], [tensor.to(dtype) for tensor in tensors.values()])
        # The four last have no gradients; before them are x and the objective, and y and s between where they are.
        y = s = None
        if self.family.m:
            y, s = leaves[1:3]
        return LayerSolution(leaves[0], y, s, *leaves[-5:], layout=self.family.layout)

    def _find_batch(self, tensors: Mapping[str, Tensor]) -> tuple[bool, ...]:
        """Return which tensors have an axis of instances; names and shapes that do not fit are refused."""
        shapes: Mapping[str, tuple[int, ...] | None] = self._shapes
        if _VECTOR in tensors:
            shapes = {_VECTOR: self._vector}
        counts = {}
        for name, tensor in tensors.items():
            if name not in shapes:
                raise ValueError(f"{name!r} is no parameter of this layer; its parameters are {', '.join(shapes)}")
            shape = shapes[name]
            if shape is None:
                raise ValueError(f"this family has no parameter vector: give {', '.join(self._shapes)} by name")
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
            extra = tensor.ndim - len(shape)
            if extra not in (0, 1) or tuple(tensor.shape[extra:]) != shape:
                many = ", ".join(["N", *map(str, shape)])
                raise ValueError(
                    f"{name} must have shape {shape}, or ({many}) for N instances; got {tuple(tensor.shape)}"
                )
            if extra:
                counts[name] = tensor.shape[0]
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ValueError(f"the parameters must have one common number of instances, got {found}")
        return tuple(name in counts for name in tensors)

    @override
    def extra_repr(self) -> str:
        """Return the family in words, for the module's repr."""
        return f"{self.family!r} on {jax.default_backend()}"
