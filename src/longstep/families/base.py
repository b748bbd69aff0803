"""What every family has: a size, a precision, instances, and a content hash."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, Self, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, PyTree
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import override

from .._util.effort import EIGEN, SPEED, announce
from .._util.hashing import content_hash
from .._util.processes import require_jax
from ..linalg.matrix import is_diagonal
from ..linalg.real import check_real, plain_array, real_array
from .affine import Affine
from .names import Layout

# Bounds at least this large are infinite, as in OSQP. A little under 1e20, the usual stand-in for infinity, because
# files have often been through arithmetic.
INFINITY = 0.999e20

# What the user gives for one instance or several: an array, arrays by name, a list of these, or any pytree.
Parameters: TypeAlias = PyTree
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
        """Everything that defines the problem: arrays, numbers, strings and functions."""

    def single(self, parameter: Parameters) -> Parameters:
        """Return one parameter as a batch of one."""
        return jax.tree.map(lambda a: plain_array("the parameter", a)[None], plain(parameter))

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
        return self.take(self.instances(self.single(parameter)), 0)

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
        """Some of a batch of parameters."""
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

    def widened(self) -> "Family[InstanceT]":
        """Return the same family in float64, made again from the user's own data; JAX must be in 64-bit mode."""
        if self.dtype == np.float64:
            return self
        return self._made_again()

    @abstractmethod
    def _made_again(self) -> "Family[InstanceT]":
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
    def single(self, parameter: Parameters) -> Parameters:
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

    def merged(
        self, parameters: Parameters, base: Mapping[str, np.ndarray | None], parameter: Affine | None
    ) -> tuple[dict[str, np.ndarray], int]:
        """Return the data of N instances by name: from the parameter map, or named arrays over base values."""
        if is_named(parameters):
            named = _read_named(parameters, base)
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


def resolve_dtype(dtype: DTypeLike) -> np.dtype:
    """Return float32 or float64, refused where JAX would silently round it."""
    resolved: np.dtype = np.dtype(dtype)
    if resolved.name not in ("float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64, got {resolved}")
    require_jax(resolved)
    return resolved


def plain(parameter: Parameters) -> Parameters:
    """Lists of numbers as arrays, also in a dict; other parameters, pytrees included, as they are."""
    if isinstance(parameter, dict):
        return {name: plain(value) for name, value in parameter.items()}

    if isinstance(parameter, list | tuple) and _has_numbers_alone(parameter):
        return np.asarray(parameter)
    return parameter


def _has_numbers_alone(parameter: object) -> bool:
    """Return whether lists, inside of each other, end in numbers everywhere."""
    if isinstance(parameter, list | tuple):
        return all(map(_has_numbers_alone, parameter))
    return isinstance(parameter, int | float | np.number)


def count_parameters(parameters: Parameters) -> int:
    """Return N, the common leading length of all leaves."""
    shapes = [np.shape(a) for a in jax.tree.leaves(parameters)]
    lengths = {next(iter(shape), None) for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        found = ", ".join(sorted(map(str, lengths)))
        raise ValueError(f"stacked parameters need one common leading axis of instances, got lengths {found}")
    return int(lengths.pop() or 0)


def checked(name: str, value: object, shape: tuple[int, ...], infinite: bool = False) -> np.ndarray:
    """Return `value` as float64 of that shape, without NaN and, unless allowed, without infinities.

    A single vector is repeated for every instance.
    """
    array = real_array(name, value)
    if array.shape == shape[1:]:
        array = np.broadcast_to(array, shape)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape[1:]} (or {shape} for {shape[0]} instances), got {array.shape}")
    bad = ~np.isfinite(array)
    advice = "; it must be finite"
    if infinite:
        bad = np.isnan(array)
        advice = ""
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        at = f"instance {where[0]}, entry {', '.join(map(str, where[1:]))}"
        raise ValueError(f"{name} is {array[where]} at {at}{advice}")
    return array


def is_named(parameters: Parameters) -> bool:
    """Return whether these are instances by their data, as a dict of arrays or a list of dicts."""
    if isinstance(parameters, Mapping):
        return True
    return isinstance(parameters, Sequence) and len(parameters) > 0 and isinstance(parameters[0], Mapping)


def _read_named(parameters: Parameters, base: Mapping[str, np.ndarray | None]) -> dict:
    if not isinstance(parameters, Mapping):
        keys = set().union(*parameters)
        uneven = [k for k in keys if not all(k in p for p in parameters)]
        if uneven:
            raise ValueError(f"{', '.join(sorted(uneven))} is given for some instances and not for others")
        try:
            parameters = {k: np.stack([real_array(k, p[k]) for p in parameters]) for k in keys}
        except ValueError as error:
            if "same shape" not in str(error):
                raise
            raise ValueError("the instances of a batch differ in their shapes") from None
        for name, value in parameters.items():
            if value.ndim != 2:
                raise ValueError(f"{name} of an instance must be a vector, got shape {value.shape[1:]}")
    unknown = sorted(set(parameters) - set(base))
    if unknown:
        raise ValueError(f"unknown instance data {', '.join(unknown)}; this family has {', '.join(base)}")
    return {k: parameters.get(k, base[k]) for k in base}


def check_square(name: str, matrix: sp.csr_array) -> None:
    """Refuse a quadratic term that is not square, finite, symmetric and positive semidefinite."""
    n = matrix.shape[0]
    if matrix.shape != (n, n) or n == 0:
        raise ValueError(f"{name} must be square, with at least one row, got shape {matrix.shape}")
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} has NaN or infinite entries")
    given = matrix.toarray() if is_dense(matrix) else matrix
    asymmetry = float(abs(given - given.T).max())
    size = max(float(abs(given).max()) if matrix.nnz else 0.0, 1e-300)
    if asymmetry > 1e-9 * size:
        raise ValueError(
            f"{name} must be symmetric, but it differs from its transpose by up to {asymmetry:.2e}. "
            f"A triangle alone is not enough: pass the full matrix, or ({name} + {name}.T)/2 if only the "
            "symmetric part is meant"
        )


# Up to so many unknowns all eigenvalues take little time.
_SMALL = 1000


def check_convex(name: str, matrix: sp.csr_array) -> None:
    """Refuse an indefinite matrix (λmin < −1e-5·λmax). Large ones are factored, which sparsity makes cheap."""
    if matrix.shape[0] <= _SMALL or is_diagonal(matrix):
        spectrum(name, matrix)
        return
    from scipy.sparse.linalg import eigsh

    largest = float(eigsh(matrix, k=1, which="LA", return_eigenvectors=False, tol=1e-2)[0])
    shifted = matrix + 1e-5 * max(largest, 0.0) * sp.eye_array(matrix.shape[0])
    if largest <= 0 or not _is_definite(sp.csc_array(shifted)):
        raise ValueError(
            f"{name} is indefinite: it has an eigenvalue below −1e-5 times its largest, {largest:.3e}. "
            "The problem is not convex"
        )


def is_dense(matrix: sp.csr_array | sp.csc_array) -> bool:
    """Whether arithmetic with it is faster as an array."""
    return matrix.nnz > 0.1 * matrix.shape[0] * matrix.shape[1]


def _is_definite(matrix: sp.csc_array) -> bool:
    if not is_dense(matrix):
        try:
            import qdldl
        except ImportError:  # where little but JAX is installed
            pass
        else:
            try:
                _, pivots, _ = qdldl.Solver(sp.csc_matrix(matrix)).factors()
            except (RuntimeError, ValueError):
                return False
            return bool((pivots > 0).all())
    try:
        np.linalg.cholesky(matrix.toarray())
    except np.linalg.LinAlgError:
        return False
    return True


def spectrum(name: str, matrix: sp.csr_array) -> np.ndarray:
    """Return the eigenvalues in ascending order; indefinite (λmin < −1e-5·λmax) is refused."""
    if is_diagonal(matrix):
        values = np.sort(matrix.diagonal())
    else:
        n = matrix.shape[0]
        announce(f"computes the eigenvalues of {name}, {n}×{n}", EIGEN * n**3 / SPEED)
        values = np.linalg.eigvalsh(matrix.toarray())
    if values.size and values[0] < -1e-5 * max(values[-1], 0.0):
        raise ValueError(
            f"{name} is indefinite: its smallest eigenvalue is {values[0]:.3e}, its largest {values[-1]:.3e}. "
            "The problem is not convex"
        )
    return values


def check_linear(name: str, matrix: sp.csr_array, n: int) -> None:
    """Refuse a constraint matrix of the wrong width or with NaN."""
    if matrix.shape[1] != n:
        raise ValueError(f"{name} has {matrix.shape[1]} columns but P has {n}: they must agree")
    if not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} has NaN or infinite entries")


def optional_vector(name: str, value: ArrayLike | None, size: int, infinite: bool = False) -> np.ndarray | None:
    """Return a base value: absent, or one checked vector."""
    if value is None:
        return None
    return checked(name, value, (1, size), infinite)[0].copy()


def columns(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Instances on the leading axis (N, k) to columns (k, N)."""
    return np.ascontiguousarray(array.T, dtype)
