"""The linear operator of a step, and what is known of it before its numbers are."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..matrix import Matrix, along
from .augmented import Quasidefinite


@dataclass(frozen=True)
class Pattern:
    """What all operators of a family have in common, whatever their weights: n unknowns, and their form.

    `diagonal`: K is diagonal. `spectral`: all K have the same eigenvectors. `fill`: the number of entries of the sparse
    factor of their augmented form; None where nobody looked. `rows`: the number of rows of A, where of most solutions
    x no more than Ax is asked for, and right-hand sides are A't.
    """

    n: int
    diagonal: bool = False
    spectral: bool = False
    fill: int | None = None
    rows: int | None = None


class Spectrum(eqx.Module):
    """P = V diag(λ) V'."""

    values: Float[Array, " n"]
    vectors: Float[Array, "n n"]


class Gram(eqx.Module):
    """The positive definite operator K = P + shift·I + A'diag(weights)A + free_weight·free.

    Where it has the `spectrum` of P, the weights are equal and A'A = I, so that K = V diag(λ + shift + weight) V'.
    `diagonal` says that the pattern makes K diagonal. The rows of `augmented` are those of A, then those whose product
    is `free`. `asks_rows`: little but Ax is asked for of solutions x.
    """

    P: Matrix
    A: Matrix
    shift: Float[Array, ""]
    weights: Float[Array, " m"]
    n: int = eqx.field(static=True)
    diagonal: bool = eqx.field(static=True, default=False)
    spectrum: Spectrum | None = None
    free: Matrix | None = None
    free_weight: float = eqx.field(static=True, default=0.0)
    augmented: Quasidefinite | None = None
    asks_rows: bool = eqx.field(static=True, default=False)

    @property
    def pattern(self) -> Pattern:
        """What is known of K without its numbers."""
        fill = None
        if self.augmented is not None:
            fill = self.augmented.fill
        rows = None
        if self.asks_rows:
            rows = self.weights.shape[0]
        return Pattern(self.n, diagonal=self.diagonal, spectral=self.spectrum is not None, fill=fill, rows=rows)

    def mv(self, x: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return K·x without forming K."""
        Kx = self.P.mv(x) + self.shift * x + self.A.rmv(along(self.weights, x) * self.A.mv(x))
        if self.free is None:
            return Kx
        return Kx + self.free_weight * self.free.mv(x)

    def dense(self) -> Float[Array, "n n"]:
        """Return K as an array."""
        P = self.P.dense()
        # As an operator on the columns of A: with a sparse A far cheaper than the product of dense matrices.
        K = P + self.shift * jnp.eye(self.n, dtype=P.dtype) + self.A.rmv(self.weights[:, None] * self.A.dense())
        if self.free is None:
            return K
        return K + self.free_weight * self.free.dense()
