"""Unconstrained smooth problems: any function with a Lipschitz gradient, and quadratics."""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float, PyTree
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import override

from .._util.effort import EIGEN, SPEED, announce
from .._util.hashing import ByContent
from .._util.optional import map_given
from ..linalg.matrix import AnyArray, ArrayLike2D, Matrix, inner, is_diagonal, make_matrix, to_csr
from ..linalg.real import read_plain_array, real_number
from .affine import Affine, WorkingMap, make_working_map
from .base import Encoded, Family, Index, InstanceT, NamedFamily
from .convexity import check_square, spectrum
from .reading import (
    Parameters,
    check_array,
    columns,
    convert_lists,
    count_parameters,
    is_named,
    optional_vector,
    resolve_dtype,
)
from .traced import trace_data, trace_vector


class Differentiable(Family[InstanceT]):
    """Families with a gradient, its Lipschitz constant L and a strong convexity μ ≥ 0."""

    lipschitz: eqx.AbstractVar[float]
    strong_convexity: eqx.AbstractVar[float]
    lower_bound: eqx.AbstractVar[float | None]

    @abstractmethod
    def gradient(self, instances: InstanceT, z: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return ∇f(z), column by column."""

    def gradient_at_zero(self, instances: InstanceT, like: Float[Array, "n *N"]) -> Float[Array, "n *N"]:
        """Return ∇f(0), which sets the scale of residuals; points of the instances say how many there are."""
        # Zeros that a compiler does not know to be zero: of products with constants, the largest entries of the columns
        # have come out as whatever was in memory (jaxlib 0.10.2 on a CPU, from 20 unknowns and 200 instances on).
        return self.gradient(instances, jnp.where(jnp.abs(like) < 0, like, 0.0))

    @property
    def units(self) -> Literal["family", "instance"]:
        """Whose L step sizes are in units of: that of the family, or that of each instance."""
        return "family"

    def step_unit(self, instances: InstanceT) -> "float | Float[Array, '*N']":
        """Return what a step of one is on every instance: 1 in the family's units, L/Lₓ where instances have an Lₓ."""
        return 1.0


class SmoothInstance(eqx.Module):
    """Parameters of a Smooth family, instances (if stacked) on the leading axis of every leaf, and their own Lₓ."""

    x: PyTree
    stacked: bool = eqx.field(static=True)
    lipschitz: Float[Array, "*N"] | None = None

    def rows(self) -> Float[np.ndarray, "size *N"]:
        """Return all numbers, instances (if stacked) on the last axis."""
        leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(self.x)]
        if not self.stacked:
            return np.concatenate([leaf.ravel() for leaf in leaves])
        return np.concatenate([leaf.reshape(len(leaf), -1).T for leaf in leaves])


class Smooth(Differentiable[SmoothInstance]):
    """minimise f(z, x) over z in Rⁿ for any differentiable convex f; the parameter x is any pytree of arrays.

    `objective(z, x)` is a JAX function of one vector and one parameter. `lipschitz` bounds the gradient's Lipschitz
    constant for every instance of the family. `gradient(z, x)` replaces automatic differentiation;
    `lower_bound ≤ inf f` for all instances helps safeguards.

    Where instances bring their own matrices, one L for all makes steps too short for most. `lipschitz_of(x)`, a JAX
    function, bounds the constant Lₓ of one instance, from above: a step t is then one of t·L/Lₓ, for every gradient
    method. So what is learned are multiples of 1/Lₓ, and 0 < t < 2/L in the steady state converges on every instance,
    whatever its Lₓ. It is evaluated once a solve, and counts in its time. For Lₓ = c‖A‖² there is
    `longstep.linalg.matrix.squared_norm_bound`.

    >>> import jax.numpy as jnp
    >>> family = Smooth(lambda z, x: jnp.sum(jnp.logaddexp(0.0, -x @ z)) + z @ z, lipschitz=2 + 5.0, n=3)
    >>> family.n
    3
    """

    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True, default=0, init=False)
    dtype: np.dtype = eqx.field(static=True)
    function: Callable = eqx.field(static=True)
    gradient_function: Callable = eqx.field(static=True)
    gradient_given: Callable | None = eqx.field(static=True)
    lipschitz: float = eqx.field(static=True)
    strong_convexity: float = eqx.field(static=True)
    lower_bound: float | None = eqx.field(static=True)
    lipschitz_of: Callable[[PyTree], Array] | None = eqx.field(static=True)

    def __init__(
        self,
        objective: Callable[[Array, PyTree], Array],
        lipschitz: float,
        n: int,
        *,
        strong_convexity: float = 0.0,
        gradient: Callable[[Array, PyTree], Array] | None = None,
        lower_bound: float | None = None,
        lipschitz_of: Callable[[PyTree], Array] | None = None,
        dtype: DTypeLike = "float64",
    ):
        self.dtype = resolve_dtype(dtype)
        self.n = int(n)
        self.lipschitz_of = lipschitz_of
        self.function = objective
        self.gradient_given = gradient
        if gradient is None:
            gradient = jax.grad(objective)
        self.gradient_function = gradient
        self.lipschitz = real_number("lipschitz", lipschitz)
        self.strong_convexity = real_number("strong_convexity", strong_convexity)
        self.lower_bound = map_given(lambda bound: real_number("lower_bound", bound), lower_bound)
        if not 0 < self.lipschitz < np.inf:
            raise ValueError(f"lipschitz must be positive and finite, got {lipschitz}")
        if not 0 <= self.strong_convexity <= self.lipschitz:
            raise ValueError(f"strong_convexity must lie in [0, lipschitz] = [0, {lipschitz}], got {strong_convexity}")

    @override
    def encode(self, parameters: Parameters) -> SmoothInstance:
        """Return the parameters themselves, as arrays of the family's precision; instances stay on the leading axis."""
        parameters = convert_lists(parameters)
        count_parameters(parameters)

        def convert(path, leaf):
            name = "the parameter" + jax.tree_util.keystr(path)
            array = read_plain_array(name, leaf)
            if not np.issubdtype(array.dtype, np.floating):
                return array
            return check_array(name, array, array.shape).astype(self.dtype)

        return SmoothInstance(jax.tree_util.tree_map_with_path(convert, parameters), stacked=True)

    @override
    def trace(self, parameter: Parameters) -> SmoothInstance:
        def convert(leaf: Array) -> Array:
            array = jnp.asarray(leaf)
            if not jnp.issubdtype(array.dtype, jnp.floating):
                return array
            return array.astype(self.dtype)

        return SmoothInstance(jax.tree.map(convert, convert_lists(parameter)), stacked=False)

    @override
    def stack(self, leading: SmoothInstance) -> SmoothInstance:
        return SmoothInstance(leading.x, True, leading.lipschitz)

    @override
    def count(self, parameters: Parameters) -> int:
        return count_parameters(convert_lists(parameters))

    @override
    def select(self, parameters: Parameters, index: np.ndarray) -> Parameters:
        return super().select(convert_lists(parameters), index)

    @override
    def decode(self, encoded: SmoothInstance) -> SmoothInstance:
        """Return the parameters, with Lₓ of every instance where it has one."""
        if self.lipschitz_of is None:
            return encoded
        bound = self.lipschitz_of
        if encoded.stacked:
            bound = jax.vmap(bound)
        return SmoothInstance(encoded.x, encoded.stacked, jnp.asarray(bound(encoded.x), self.dtype))

    @property
    @override
    def units(self) -> Literal["family", "instance"]:
        if self.lipschitz_of is None:
            return "family"
        return "instance"

    @override
    def step_unit(self, instances: SmoothInstance) -> "float | Float[Array, '*N']":
        if instances.lipschitz is None:
            return 1.0
        return self.lipschitz / instances.lipschitz

    @property
    @override
    def instance_axis(self) -> int:
        return 0

    @override
    def take(self, stacked: SmoothInstance, index: Index) -> SmoothInstance:
        several = isinstance(index, slice) or np.ndim(index) > 0
        x, lipschitz = jax.tree.map(lambda a: a[index], (stacked.x, stacked.lipschitz))
        return SmoothInstance(x, several, lipschitz)

    @override
    def batch(self, instances: SmoothInstance) -> tuple[int, ...]:
        if not instances.stacked:
            return ()
        return jax.tree.leaves(instances.x)[0].shape[:1]

    @override
    def objective(self, instances: SmoothInstance, x: Array) -> Array:
        return _apply_columnwise(self.function, x, instances, 0)

    @override
    def gradient(self, instances: SmoothInstance, z: Array) -> Array:
        return _apply_columnwise(self.gradient_function, z, instances, -1)

    @override
    def _make_again(self) -> "Smooth":
        options = {"strong_convexity": self.strong_convexity, "lower_bound": self.lower_bound}
        functions = {"gradient": self.gradient_given, "lipschitz_of": self.lipschitz_of}
        return Smooth(self.function, self.lipschitz, self.n, **functions, **options)

    @override
    def hashed(self) -> tuple:
        own = ()
        if self.lipschitz_of is not None:
            own = (self.lipschitz_of,)
        return self.function, self.gradient_given, self.lipschitz, self.strong_convexity, self.lower_bound, self.n, *own


def _apply_columnwise(function: Callable, z: Array, instances: SmoothInstance, out_axis: int) -> Array:
    if z.ndim == 1:
        return function(z, instances.x)
    return jax.vmap(function, in_axes=(-1, 0), out_axes=out_axis)(z, instances.x)


class QuadraticInstance(eqx.Module):
    """The linear term of one quadratic (n,) or of a stack (n, N)."""

    q: Float[AnyArray, "n *N"]


class Quadratic(Differentiable[QuadraticInstance], NamedFamily[QuadraticInstance]):
    """minimise ½z'Pz + q'z with P shared and q the instance.

    L and μ are the extreme eigenvalues of P. `q` is a base value, `parameter=Affine(q=…)` maps a parameter to q: for
    ridge regression ½‖Az − b‖² + λ‖z‖² with parameter b, P = A'A + 2λI and Affine(q=-A.T). `lower_bound` must hold
    for this objective, without constants that it lacks.

    >>> import numpy as np
    >>> family = Quadratic(np.diag([1.0, 4.0]))
    >>> family.lipschitz, family.strong_convexity
    (4.0, 1.0)
    """

    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True, default=0, init=False)
    dtype: np.dtype = eqx.field(static=True)
    matrix: Matrix
    lipschitz: float = eqx.field(static=True)
    strong_convexity: float = eqx.field(static=True)
    lower_bound: float | None = eqx.field(static=True)
    parameter: Affine | None = eqx.field(static=True)
    mapped: WorkingMap | None
    host: "_QuadraticHost" = eqx.field(static=True)

    def __init__(
        self,
        P: ArrayLike2D,
        *,
        q: ArrayLike | None = None,
        parameter: Affine | None = None,
        lower_bound: float | None = None,
        dtype: DTypeLike = "float64",
    ):
        self.dtype = resolve_dtype(dtype)
        matrix = to_csr(P)
        check_square("P", matrix)
        eigenvalues = spectrum("P", matrix)
        self.n = matrix.shape[0]
        if eigenvalues[-1] <= 0:
            raise ValueError("P is zero: the problem is linear and has no minimiser")
        self.lipschitz = float(eigenvalues[-1])
        # Rounding leaves eigenvalues of either sign around zero; below it there is no strong convexity to speak of.
        smallest = float(eigenvalues[0])
        self.strong_convexity = 0.0
        if smallest > 1e-12 * self.lipschitz:
            self.strong_convexity = smallest
        self.lower_bound = map_given(lambda bound: real_number("lower_bound", bound), lower_bound)
        if parameter is not None:
            parameter.check(self.sizes)
        self.parameter = parameter
        self.host = _QuadraticHost(matrix, optional_vector("q", q, self.n), eigenvalues)
        self.matrix = make_matrix(matrix, self.dtype)
        everything = {"q": np.arange(self.n)}
        self.mapped = make_working_map(parameter, {"q": self.host.q}, {"q": np.ones(self.n)}, everything, self.dtype)

    @property
    def P(self) -> sp.csr_array:
        """The quadratic term, as given."""
        return self.host.P

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"q": self.n}

    def data(self, parameters: Parameters) -> dict[str, np.ndarray]:
        """Return the checked q (N, n) of N parameters."""
        named, count = self.merge_data(parameters, {"q": self.host.q}, self.parameter)
        return {"q": check_array("q", named["q"], (count, self.n))}

    @override
    def encode(self, parameters: Parameters) -> np.ndarray | QuadraticInstance:
        if self.mapped is not None and self.parameter is not None and not is_named(parameters):
            return columns(self.parameter.check_parameters(parameters), self.dtype)
        return QuadraticInstance(columns(self.data(parameters)["q"], self.dtype))

    @override
    def trace(self, parameter: Parameters) -> Array | QuadraticInstance:
        base = {"q": self.host.q}
        vector = trace_vector(parameter, self.parameter, self.mapped, None, base, self.dtype)
        if vector is not None:
            return vector
        return QuadraticInstance(**trace_data(parameter, base, self.sizes, self.dtype))

    @override
    def decode(self, encoded: Encoded) -> QuadraticInstance:
        if isinstance(encoded, QuadraticInstance) or self.mapped is None:
            return encoded
        return QuadraticInstance(**self.mapped(encoded))

    @override
    def batch(self, instances: QuadraticInstance) -> tuple[int, ...]:
        return instances.q.shape[1:]

    @override
    def objective(self, instances: QuadraticInstance, x: Array) -> Array:
        return 0.5 * inner(x, self.matrix.mv(x)) + inner(instances.q, x)

    @override
    def gradient(self, instances: QuadraticInstance, z: Array) -> Array:
        return self.matrix.mv(z) + instances.q

    @override
    def gradient_at_zero(self, instances: QuadraticInstance, like: Array) -> Array:
        return jnp.asarray(instances.q)

    @override
    def _make_again(self) -> "Quadratic":
        return Quadratic(self.host.P, q=self.host.q, parameter=self.parameter, lower_bound=self.lower_bound)

    @override
    def hashed(self) -> tuple:
        mapped = map_given(Affine.hashed, self.parameter)
        return self.host.P, self.host.q, self.lower_bound, mapped


class _QuadraticHost(ByContent):
    """The user's own data, on the host."""

    def __init__(self, P: sp.csr_array, q: np.ndarray | None, eigenvalues: Float[np.ndarray, " n"]):
        self.P = P
        self.q = q
        self.eigenvalues = eigenvalues
        self.diagonal = is_diagonal(P)

    @override
    def hashed(self) -> tuple:
        return self.P, self.q

    @functools.cached_property
    def spectrum(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "n n"]]:
        """The eigenvalues of P, none below zero, and its eigenvectors, which are computed once."""
        n = self.P.shape[0]
        announce(f"computes the eigenvectors of P, {n}×{n}", 2 * EIGEN * n**3 / SPEED)
        values, vectors = np.linalg.eigh(self.P.toarray())
        return np.maximum(values, 0.0), vectors
