"""Factor once, solve many times, differentiate without a factorization.

A `LinearSystem` is made offline for one θ and applied to any number of right-hand sides. The solve has its derivative
by the implicit rule dx = K⁻¹(db − dK·x), with dK in operator form: gradients cost solves, not factorizations.
"""

from abc import abstractmethod
from typing import Self

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
        """K⁻¹b, refined where the factor's own rounding is too much."""

    @property
    def trusted(self) -> bool:
        """Whether solutions are known to be as good as rounding lets them be; others should be corrections that vanish
        in the end."""
        return False

    @property
    def response(self) -> Float[Array, "*S m m"] | None:
        """A K⁻¹A', where that is cached too."""
        return None


class LinearSystem(Factored):
    """A back end: which operators it takes, at what cost, and what is cached for one of them."""

    @classmethod
    def fits(cls, pattern: Pattern) -> bool:
        """Whether it can take operators of this pattern; by default of any."""
        return True

    @classmethod
    def size(cls, pattern: Pattern) -> int:
        """How many numbers are kept for one operator; by default those of a dense matrix."""
        return pattern.n**2

    @classmethod
    def describe(cls, pattern: Pattern) -> str:
        """What is kept for one operator, in words behind a number."""
        return f"factors of {pattern.n}×{pattern.n}"

    @classmethod
    @abstractmethod
    def flops(cls, pattern: Pattern, solves: float) -> float:
        """What making it and so many solves with it cost, in operations at the speed of long matrix products."""

    @classmethod
    @abstractmethod
    def factor(cls, K: Gram) -> Self:
        """Make what is cached for K."""

    def error(self, K: Gram) -> Float[Array, ""]:
        """How far solutions are from exact ones, where that is known to matter; else 0."""
        return jnp.zeros(())

    def refined(self, error: float, tolerance: float) -> Self:
        """The system with as many refinements as bring this error to the tolerance."""
        return self

    def trust(self) -> "LinearSystem":
        """The same system, its solutions trusted."""
        return self

    def distrust(self) -> "LinearSystem":
        """What is needed of the system where its solutions are not trusted."""
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
        whole = self.stack.response
        return None if whole is None else whole[self.index]


def solve(K: Gram, factor: Factored, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
    """x with Kx = b, by the cached factor."""
    return jax.lax.custom_linear_solve(K.mv, b, lambda _, b: factor.solve(K, b), symmetric=True)


def respond(K: Gram, response: Float[Array, "m m"], t: Float[Array, "m *N"]) -> Float[Array, "m *N"]:
    """A K⁻¹A't by its cached matrix. Of K, its weights alone may carry a derivative."""
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


def refinements_for(error: float, tolerance: float) -> int:
    """How many refinements bring an inverse with this error to the tolerance: each multiplies it by itself."""
    for count in range(4):
        if error ** (count + 1) <= tolerance:
            return count
    raise ValueError(
        f"the linear system of one step is numerically singular (its inverse is accurate to {error:.1e} only). "
        "Use float64, raise sigma (OSQP) or r_w (SCS), or bring rho_eq and rho_ineq (r_yz and r_ynz) closer together."
    )
