"""What every family has: a size, a precision, instances, and a content hash."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, Self, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from numpy.typing import DTypeLike
from typing_extensions import override

from .._util.hashing import content_hash
from ..linalg.real import check_real, read_plain_array, real_array
from .affine import Affine
from .names import Layout
from .reading import Parameters, convert_lists, count_parameters, is_named, read_named, resolve_dtype

# Bounds at least this large are infinite, as in OSQP. A little under 1e20, the usual stand-in for infinity, because
# files have often been through arithmetic.
INFINITY = 0.999e20

# Parameters as stacked arrays: what that looks like is the family's own affair.
Encoded: TypeAlias = PyTree
# Which of several instances: a number for one; a slice or several numbers for some.
Index: TypeAlias = int | slice | np.ndarray | Array
# The data of an instance, or of a stack of them.
InstanceT = TypeVar("InstanceT")


class Family(eqx.Module, Generic[InstanceT]):
    """Convex problems that share everything but the data of an instance. Knows nothing of algorithms.

    Parameters are what the user has (a state, a measurement, prices); an instance is the data that the parameter
    stands for (q, l, u; b, c; …). Users' arrays have instances on the leading axis; stacked instances, inside,
    on the last.
    """

    n: eqx.AbstractVar[int]
    dtype: eqx.AbstractVar[np.dtype]
    m: eqx.AbstractVar[int]

    @abstractmethod
    def encode(self, parameters: Parameters) -> Encoded:
        """Return N parameters (leading axis N), checked, as stacked arrays on the host: all that `decode` needs."""

    @abstractmethod
    def decode(self, encoded: Encoded) -> InstanceT:
        """Return the working instances of encoded parameters; pure, so that it can run inside jit."""

    @abstractmethod
    def trace(self, parameter: Parameters) -> Encoded:
        """Return one parameter, encoded, of arrays that JAX may be tracing: names and shapes are checked, values are
        not."""

    def stack(self, leading: Encoded) -> Encoded:
        """Return what `trace` gives for several instances, on the leading axis of all arrays, as `encode` has it."""
        return jax.tree.map(lambda a: jnp.moveaxis(a, 0, -1), leading)

    @property
    def decodes_freely(self) -> bool:
        """Whether decoding is so cheap that every step may do it anew."""
        return False

    @property
    def sparse(self) -> bool:
        """Whether it is so large and sparse that instances are solved one by one, with sparse factors."""
        return False

    def instances(self, parameters: Parameters) -> InstanceT:
        """Return the stacked, checked, working instances of N parameters (leading axis N)."""
        return self.decode(jax.tree.map(jnp.asarray, self.encode(parameters)))

    @abstractmethod
    def objective(self, instances: InstanceT, x: jax.Array) -> jax.Array:
        """Return f(x) for each instance, in the user's units, at points x (n, *N) in the user's units."""

    @abstractmethod
    def hashed(self) -> tuple:
        """Return everything that defines the problem: arrays, numbers, strings and functions."""

    def batch_one(self, parameter: Parameters) -> Parameters:
        """Return one parameter as a batch of one."""
        return jax.tree.map(lambda a: read_plain_array("the parameter", a)[None], convert_lists(parameter))

    def vectors(self, parameters: Parameters) -> Parameters:
        """Return N parameters as arrays: where the family knows names, values given by name become vectors."""
        check_real("the parameter", parameters)
        return parameters

    @override
    def __repr__(self) -> str:
        named = ""
        if self.layout is not None:
            named = f", parameters {', '.join(self.layout.parameters) or 'none'}"
        return f"{type(self).__name__}(n={self.n}, m={self.m}, {self.dtype}{named})"

    @property
    def layout(self) -> Layout | None:
        """What the entries of parameters and solutions are called, where that is known."""
        return None

    def instance(self, parameter: Parameters) -> InstanceT:
        """Return the checked, working instance of one parameter."""
        return self.take(self.instances(self.batch_one(parameter)), 0)

    @property
    def instance_axis(self) -> int:
        """Which axis of the arrays of encoded parameters counts the instances."""
        return -1

    def take(self, stacked: InstanceT, index: Index) -> InstanceT:
        """Return one (an integer index) or some (a slice or index array) of stacked instances or encoded parameters."""
        return jax.tree.map(lambda a: a[..., index], stacked)

    def count(self, parameters: Parameters) -> int:
        """Return N, the number of parameters in a batch."""
        return count_parameters(parameters)

    def select(self, parameters: Parameters, index: np.ndarray) -> Parameters:
        """Return some of a batch of parameters."""
        return jax.tree.map(lambda a: np.asarray(a)[index], parameters)

    @abstractmethod
    def batch(self, instances: InstanceT) -> tuple[int, ...]:
        """Return (N,) for a stack of N instances, () for one."""

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the same family in another precision."""
        resolved = resolve_dtype(dtype)
        leaves, structure = jax.tree.flatten(self, is_leaf=lambda x: x is not self and isinstance(x, Family))

        def convert(leaf: PyTree) -> PyTree:
            if isinstance(leaf, Family):
                return leaf.astype(resolved)
            if eqx.is_inexact_array(leaf):
                return leaf.astype(resolved)
            return leaf

        copy = jax.tree.unflatten(structure, [convert(leaf) for leaf in leaves])
        object.__setattr__(copy, "dtype", resolved)
        return copy

    def widen(self) -> "Family[InstanceT]":
        """Return the same family in float64, made again from the user's own data; JAX must be in 64-bit mode."""
        if self.dtype == np.float64:
            return self
        return self._make_again()

    @abstractmethod
    def _make_again(self) -> "Family[InstanceT]":
        """Return the same family in float64."""

    @property
    def equilibrated(self) -> bool:
        """Whether algorithms work on equilibrated data."""
        return False

    def problem_hash(self) -> str:
        """Return a SHA-256 of the problem: equal for families that differ in nothing but precision and
        equilibration."""
        return content_hash(type(self).__name__, *self.hashed())

    def content_hash(self) -> str:
        """Return a SHA-256 of the family: equal exactly for families that are equal by value."""
        return content_hash(self.problem_hash(), str(self.dtype), self.equilibrated)


class NamedFamily(Family[InstanceT]):
    """A family whose instances have named data (q, l, u; b, c), given directly or by a parameter map."""

    parameter: eqx.AbstractVar[Affine | None]

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """How many entries the data of an instance have, by name."""

    @override
    def batch_one(self, parameter: Parameters) -> Parameters:
        if isinstance(parameter, Mapping):
            return [parameter]
        return real_array("the parameter", parameter)[None]

    @override
    def count(self, parameters: Parameters) -> int:
        if isinstance(parameters, Mapping):
            stacked = {np.shape(v)[0] for v in parameters.values() if np.ndim(v) == 2}
            if len(stacked) != 1:
                raise ValueError(
                    "a batch of instances needs at least one array with a leading axis, and one common length; "
                    f"got shapes {', '.join(f'{k}: {np.shape(v)}' for k, v in parameters.items())}"
                )
            return stacked.pop()
        return len(parameters)

    @override
    def select(self, parameters: Parameters, index: np.ndarray) -> Parameters:
        if isinstance(parameters, Mapping):
            return {k: np.asarray(v)[index] if np.ndim(v) == 2 else v for k, v in parameters.items()}
        if is_named(parameters):
            return [parameters[i] for i in index]
        return np.asarray(parameters)[index]

    def merge_data(
        self, parameters: Parameters, base: Mapping[str, np.ndarray | None], parameter: Affine | None
    ) -> tuple[dict[str, np.ndarray], int]:
        """Return the data of N instances by name: from the parameter map, or named arrays over base values."""
        if is_named(parameters):
            named = read_named(parameters, base)
        elif parameter is not None:
            named = parameter(np.asarray(parameters), base)
        else:
            raise ValueError(
                f"this family has no parameter map, so an instance is a dict with some of {', '.join(base)}; "
                f"got {type(parameters).__name__}. Give the family parameter=Affine(…) to use parameter vectors."
            )
        missing = [k for k in base if named.get(k) is None]
        if missing:
            raise ValueError(
                f"an instance needs {', '.join(missing)}: put it in the instance or give the family a base value"
            )
        return named, self.count(parameters)
