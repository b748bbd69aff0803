"""Factor once, solve many times, differentiate without a factorization.

A `LinearSystem` is made offline for one θ and applied to any number of right-hand sides. The solve has its derivative
by the implicit rule dx = K⁻¹(db − dK·x), with dK in operator form: gradients cost solves, not factorizations.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from ..matrix import along, product
from .operator import Gram, Pattern


class Factored(eqx.Module):
    """What is cached for one operator K."""

    @abstractmethod
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return K⁻¹b, refined where the factor's own rounding is too much."""

    @property
    def trusted(self) -> bool:
        """Whether solutions are known to be as good as rounding lets them be; others should be corrections that vanish
        in the end."""
        return False

    @property
    def response(self) -> Float[Array, "*S m m"] | None:
        """A K⁻¹A', where that is cached too."""
        return None


class SystemCost(NamedTuple):
    """What a back end takes: the bytes that it keeps for one operator, and the operations, at the speed of long matrix
    products, of making that and of some solves."""

    bytes: float
    flops: float


class LinearSystem(Factored):
    """A back end: which operators it takes, at what cost, and what is cached for one of them."""

    # Whether the host has what is cached and solves with it, one right-hand side after the other: programs have its
    # number alone, and a stack of instances is solved no faster than they are one by one.
    on_host: ClassVar[bool] = False

    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        """Return whether it can take operators of this pattern; by default of any."""
        return True

    @classmethod
    def bytes(cls, pattern: Pattern, itemsize: int) -> int:
        """Return how many bytes are kept for one operator, with numbers of this size; by default those of a dense
        matrix."""
        return pattern.n**2 * itemsize

    @classmethod
    def describe(cls, pattern: Pattern) -> str:
        """Return what is kept for one operator, in words behind a number."""
        return f"factors of {pattern.n}×{pattern.n}"

    @classmethod
    @abstractmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        """Return what making it and `solves` solves with it take, in operations at the speed of long matrix
        products."""

    @classmethod
    def flops_of_values(cls, pattern: Pattern) -> float:
        """Return what the values Ax take beyond the solution x, for a right-hand side A't: products with A' and A."""
        if pattern.rows is None:
            return 0.0
        return 4.0 * pattern.rows * pattern.n

    @classmethod
    def cost(cls, pattern: Pattern, solves: float, itemsize: int = 8) -> SystemCost:
        """Return what one operator takes that is solved with `solves` times: all that the choice depends on."""
        flops = cls.flops(pattern, solves) + cls.flops_of_values(pattern) * solves
        return SystemCost(cls.bytes(pattern, itemsize), flops)

    @classmethod
    @abstractmethod
    def factor(cls, K: Gram) -> Self:
        """Make what is cached for K."""

    def error(self, K: Gram) -> Float[Array, ""]:
        """Return how far solutions are from exact ones, where that is known to matter; else 0."""
        return jnp.zeros(())

    def refine(self, error: float, tolerance: float) -> Self:
        """Return the system with as many refinements as bring this error to the tolerance."""
        return self

    def trust(self) -> "LinearSystem":
        """Return the same system, its solutions trusted."""
        return self

    def distrust(self) -> "LinearSystem":
        """Return what is needed of the system where its solutions are not trusted."""
        return self


class Picked(Factored):
    """One of a stack of systems, taken out where it is applied: reverse mode then keeps the stack, which is there
    anyway, and not a copy of its part for every step."""

    stack: Factored
    index: Int[Array, ""]

    @override
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        one = jax.tree.map(lambda a: a[self.index], self.stack)
        return one.solve(K, b)

    @property
    @override
    def trusted(self) -> bool:
        return self.stack.trusted

    @property
    @override
    def response(self) -> Float[Array, "*S m m"] | None:
        stack = self.stack.response
        if stack is None:
            return None
        return stack[self.index]


def solve(K: Gram, factor: Factored, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
    """Return x with Kx = b, by the cached factor."""
    return jax.lax.custom_linear_solve(K.mv, b, lambda _, b: factor.solve(K, b), symmetric=True)


def respond(K: Gram, response: Float[Array, "m m"], t: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
    """Return A K⁻¹A't by its cached matrix. Of K, its weights alone may carry a derivative."""
    return _respond(K.weights, response, t)


@jax.custom_jvp
def _respond(
    weights: Float[Array, " m"], response: Float[Array, "m m"], t: Float[Array, "m *N"]
) -> Float[Array, "m *N"]:
    return product(response, t)


@_respond.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    weights, response, t = primals
    dw, _, dt = tangents
    s = _respond(weights, response, t)
    # K x = A't with dK = A'diag(dw)A, and s = Ax.
    return s, product(response, dt - along(dw, s) * s)


def refinements_for(error: float, tolerance: float, remedy: str = "") -> int:
    """Return how many refinements bring an inverse with this error to the tolerance: each multiplies it by itself.

    Where none is enough, the `remedy` is told beside the usual one.
    """
    for count in range(4):
        if error ** (count + 1) <= tolerance:
            return count
    raise ValueError(
        f"the linear system of one step is numerically singular (its inverse is accurate to {error:.1e} only). "
        f"Use float64{remedy}, or data of less different sizes."
    )
