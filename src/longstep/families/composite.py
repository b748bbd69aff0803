"""A smooth function plus one with a cheap proximal operator."""

from typing import Literal

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from ..linalg.prox import CustomProx, Prox
from .affine import Affine
from .base import Encoded, Family, Index, InstanceT
from .reading import Parameters
from .smooth import Differentiable


class Composite(Family[InstanceT]):
    """minimise f(z, x) + g(z) with f a Smooth or Quadratic family and g an L1, Box, NonNegative, … .

    The instances are those of the smooth part.

    >>> import numpy as np
    >>> from longstep import L1, Quadratic
    >>> lasso = Composite(Quadratic(np.eye(3)), L1(0.1))
    >>> lasso.n
    3
    """

    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True, default=0, init=False)
    dtype: np.dtype = eqx.field(static=True)
    smooth: Differentiable[InstanceT]
    g: Prox

    def __init__(self, smooth: Differentiable[InstanceT], g: Prox):
        if not isinstance(smooth, Differentiable):
            raise TypeError(f"the smooth part must be a Smooth or Quadratic family, got {type(smooth).__name__}")
        if not isinstance(g, Prox):
            raise TypeError(
                f"the second part must be a Prox (L1, Box, NonNegative, Zero, CustomProx), got {type(g).__name__}"
            )
        for name, value in vars(g).items():
            if np.ndim(value) and np.shape(value) != (smooth.n,):
                raise ValueError(
                    f"{name} of {type(g).__name__} has shape {np.shape(value)}, the problem {smooth.n} unknowns"
                )
        self.smooth = smooth
        self.g = g
        self.n = smooth.n
        self.dtype = smooth.dtype

    @property
    def lipschitz(self) -> float:
        """The Lipschitz constant of ∇f."""
        return self.smooth.lipschitz

    @property
    def units(self) -> Literal["family", "instance"]:
        """Whose L step sizes are in units of."""
        return self.smooth.units

    def step_unit(self, instances: InstanceT) -> "float | Float[Array, '*N']":
        """Return what a step of one is on every instance."""
        return self.smooth.step_unit(instances)

    @property
    def strong_convexity(self) -> float:
        """The strong convexity of f."""
        return self.smooth.strong_convexity

    @property
    def lower_bound(self) -> float | None:
        """A bound below f + g for all instances, where f has one and g is known not to be negative."""
        if isinstance(self.g, CustomProx):
            return None
        return self.smooth.lower_bound

    @property
    def parameter(self) -> Affine | None:
        """The parameter map of the smooth part."""
        return getattr(self.smooth, "parameter", None)

    @override
    def count(self, parameters: Parameters) -> int:
        return self.smooth.count(parameters)

    @override
    def select(self, parameters: Parameters, index: np.ndarray) -> Parameters:
        return self.smooth.select(parameters, index)

    @override
    def batch_one(self, parameter: Parameters) -> Parameters:
        return self.smooth.batch_one(parameter)

    @override
    def encode(self, parameters: Parameters) -> Encoded:
        return self.smooth.encode(parameters)

    @override
    def trace(self, parameter: Parameters) -> Encoded:
        return self.smooth.trace(parameter)

    @override
    def stack(self, leading: Encoded) -> Encoded:
        return self.smooth.stack(leading)

    @override
    def decode(self, encoded: Encoded) -> InstanceT:
        return self.smooth.decode(encoded)

    def with_smooth(self, smooth: Differentiable[InstanceT]) -> "Composite[InstanceT]":
        """Return the same g beside another form of the smooth part."""
        return eqx.tree_at(lambda f: f.smooth, self, smooth)

    @property
    @override
    def instance_axis(self) -> int:
        return self.smooth.instance_axis

    @override
    def take(self, stacked: InstanceT, index: Index) -> InstanceT:
        return self.smooth.take(stacked, index)

    @override
    def batch(self, instances: InstanceT) -> tuple[int, ...]:
        return self.smooth.batch(instances)

    @override
    def objective(self, instances: InstanceT, x: Array) -> Array:
        return self.smooth.objective(instances, x) + self.g.value(x)

    def gradient(self, instances: InstanceT, z: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return ∇f(z), of the smooth part."""
        return self.smooth.gradient(instances, z)

    def gradient_at_zero(self, instances: InstanceT, like: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return ∇f(0), of the smooth part; points of the instances say how many there are."""
        return self.smooth.gradient_at_zero(instances, like)

    @override
    def _make_again(self) -> "Composite[InstanceT]":
        smooth = self.smooth.widen()
        assert isinstance(smooth, Differentiable)
        return Composite(smooth, self.g)

    @override
    def hashed(self) -> tuple:
        return self.smooth.problem_hash(), type(self.g).__name__, identify_prox(self.g)


def identify_prox(g: Prox) -> tuple:
    """Return what defines g."""
    if isinstance(g, CustomProx):
        return g.value_function, g.prox_function
    return tuple(np.asarray(leaf) for leaf in eqx.filter(vars(g), lambda v: v is not None).values())
