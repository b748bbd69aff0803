"""Factor once, solve many times, differentiate without a factorization.

A `Factor` is made offline for one θ and applied to any number of right-hand sides. The solve has its derivative
by the implicit rule dx = K⁻¹(db − dK·x), with dK in operator form: gradients cost solves, not factorizations.
"""

import functools
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .matrix import Matrix, along, product


class Spectrum(eqx.Module):
    """P = V diag(λ) V'."""

    values: Float[Array, " n"]
    vectors: Float[Array, "n n"]


class Gram(eqx.Module):
    """The positive definite operator K = P + fixed + shift·I + A'diag(weights)A of both ADMM methods.

    Where it has the `spectrum` of P, the weights are equal and A'A = I, so that K = V diag(λ + shift + weight) V'.
    """

    P: Matrix
    A: Matrix
    fixed: Matrix | None
    shift: Float[Array, ""]
    weights: Float[Array, " m"]
    n: int = eqx.field(static=True)
    spectrum: Spectrum | None = None

    def mv(self, x: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """K·x without forming K."""
        Kx = self.P.mv(x) + self.shift * x + self.A.rmv(along(self.weights, x) * self.A.mv(x))
        return Kx if self.fixed is None else Kx + self.fixed.mv(x)

    def dense(self) -> Float[Array, "n n"]:
        """K as an array."""
        P = self.P.dense()
        # As an operator on the columns of A: with a sparse A far cheaper than the product of dense matrices.
        K = P + self.shift * jnp.eye(self.n, dtype=P.dtype) + self.A.rmv(self.weights[:, None] * self.A.dense())
        return K if self.fixed is None else K + self.fixed.dense()


class Factor(eqx.Module):
    """What is cached for one θ."""

    @abstractmethod
    def solve(self, K: Gram, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """K⁻¹b, refined where the factor's own rounding is too much."""


class Direct(Factor):
    """A factor that has all of K."""

    @abstractmethod
    def apply(self, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """K⁻¹b up to the factor's own rounding."""

    def solve(self, K, b):  # noqa: D102
        return self.apply(b)


class Inverse(Direct):
    """An explicit inverse: one matrix product per solve, on CPU and GPU several times faster than triangular
    solves with many right-hand sides. `refinements` steps of iterative refinement make up for its rounding, also where
    it is kept in less precision than the right-hand sides have."""

    inverse: Float[Array, "n n"]
    refinements: int = eqx.field(static=True, default=0)

    def apply(self, b):  # noqa: D102
        # The inverse is symmetric. XLA's CPU products with many columns are up to a fifth faster with the transpose on
        # the left, with one column twice as slow.
        matrix = self.inverse if b.ndim == 1 or b.shape[1] == 1 else self.inverse.T
        return product(matrix, b.astype(matrix.dtype)).astype(b.dtype)

    def solve(self, K, b):  # noqa: D102
        x = self.apply(b)
        for _ in range(self.refinements):
            x = x + self.apply(b - K.mv(x))
        return x


class Cholesky(Direct):
    """A lower triangular root: several times cheaper to make than an inverse, for factors that are used a few times
    only, as in training."""

    root: Float[Array, "n n"]

    def apply(self, b):  # noqa: D102
        # From the right, on the transpose: LAPACK's memory order is then that of the products around it.
        columns = b[:, None] if b.ndim == 1 else b
        half = _from_right(self.root, columns.T, transpose_a=True)
        return _from_right(self.root, half, transpose_a=False).T.reshape(b.shape)


_from_right = functools.partial(jax.lax.linalg.triangular_solve, left_side=False, lower=True)


class Spectral(Factor):
    """The inverse eigenvalues of a K that has a spectrum: nothing is factored, and all θ share the eigenvectors."""

    inverse: Float[Array, " n"]

    def solve(self, K, b):  # noqa: D102
        assert K.spectrum is not None
        V = K.spectrum.vectors
        return product(V, along(self.inverse, b) * product(V.T, b))


class DiagonalInverse(Direct):
    """The inverse of a diagonal K (box-constrained separable problems, the maxcut relaxation)."""

    inverse: Float[Array, " n"]

    def apply(self, b):  # noqa: D102
        return along(self.inverse, b) * b


class Picked(Factor):
    """One of a stack of factors, taken out where it is applied: reverse mode then keeps the stack, which is there
    anyway, and not a copy of its factor for every step."""

    stack: Factor
    index: Int[Array, ""]

    def _factor(self) -> Factor:
        return jax.tree.map(lambda a: a[self.index], self.stack)

    def solve(self, K, b):  # noqa: D102
        return self._factor().solve(K, b)


def factorize(K: Gram, diagonal: bool, explicit: bool = True) -> Factor:
    """The factor of K, an explicit inverse or what is cheaper to make. Carries no gradient.

    `diagonal` says that the family's pattern makes K diagonal.
    """
    K = jax.lax.stop_gradient(K)
    if diagonal:
        # Off-diagonals vanish identically, so K·1 is the diagonal.
        return DiagonalInverse(1.0 / K.mv(jnp.ones(K.n, K.weights.dtype)))
    if K.spectrum is not None and not explicit:
        return Spectral(1.0 / (K.spectrum.values + K.shift + K.weights[0]))
    dense = K.dense()
    # LAPACK stores by columns. Without the transpose XLA would do so with all that K is made of, several times slower.
    root = jax.lax.linalg.cholesky(dense.T, symmetrize_input=False)
    if not explicit:
        return Cholesky(root)
    half = _triangular_inverse(root)
    return Inverse(product(half.T, half))


def _triangular_inverse(L: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a lower triangle by halves: nearly all of it products, which are faster than substitutions."""
    n = L.shape[0]
    if n <= 128:
        return jax.lax.linalg.triangular_solve(L, jnp.eye(n, dtype=L.dtype), left_side=True, lower=True)
    h = n // 2
    first, last = _triangular_inverse(L[:h, :h]), _triangular_inverse(L[h:, h:])
    corner = -product(last, product(L[h:, :h], first))
    return jnp.block([[first, jnp.zeros((h, n - h), L.dtype)], [corner, last]])


def solve(K: Gram, factor: Factor, b: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
    """x with Kx = b, by the cached factor."""
    return jax.lax.custom_linear_solve(K.mv, b, lambda _, b: factor.solve(K, b), symmetric=True)


def inverse_error(K: Gram, factor: Factor) -> Float[Array, ""]:
    """How far solutions by the factor are from exact ones: max |K·K⁻¹ − I|, times the largest weight where that is
    more than one, because duals are weights times A·x. 0 for diagonal factors."""
    if not isinstance(factor, Inverse):
        return jnp.zeros(())
    residual = product(K.dense(), factor.inverse.astype(K.weights.dtype))
    error = jnp.max(jnp.abs(residual - jnp.eye(residual.shape[0], dtype=residual.dtype)), initial=0.0)
    return error * jnp.max(K.weights, initial=1.0)


def refinements_for(error: float, tolerance: float) -> int:
    """How many refinements bring an inverse with this error to the tolerance: each multiplies it by itself."""
    for count in range(4):
        if error ** (count + 1) <= tolerance:
            return count
    raise ValueError(
        f"the linear system of one step is numerically singular (its inverse is accurate to {error:.1e} only). "
        "Use float64, raise sigma (OSQP) or r_w (SCS), or bring rho_eq and rho_ineq (r_yz and r_ynz) closer together."
    )
