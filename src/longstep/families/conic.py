"""Conic programs that share P, A and the cones."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import override

from .._util.optional import map_given
from ..cones.product import Cones
from ..linalg.matrix import ArrayLike2D, along, inner, max_norm
from .affine import Affine, WorkingMap, make_working_map
from .base import Encoded
from .constrained import ConstrainedFamily, Host, check_matrices
from .equilibration import Equilibrated, Matrices
from .names import Layout, check_layout
from .reading import Parameters, check_array, columns, optional_vector, resolve_dtype


class ConicInstance(eqx.Module):
    """The equilibrated data of one conic program or of a stack.

    b̄ = E b/size and c̄ = D c/size with `size` such that the larger of the two has ∞-norm one. Scaling (b, c)
    together scales the solution alike and leaves the matrices alone, so it can differ between instances.
    """

    b: Float[Array, "m *N"]
    c: Float[Array, "n *N"]
    size: Float[Array, "*N"]


class Conic(ConstrainedFamily[ConicInstance, Host]):
    """minimise ½x'Px + c'x subject to Ax + s = b, s ∈ K, with P, A, K shared and (b, c) the instance.

    The rows of A follow the order of `Cones`. `b`, `c` are base values: an instance given as a dict needs only what
    differs from them. `parameter=Affine(…)` maps parameter vectors to instances; with a `layout` that names their
    entries, parameters may be given, and solutions read, by name. `equilibrate=False` turns scaling off. Residuals,
    tolerances, points and duals are always in the user's units.

    >>> import numpy as np
    >>> family = Conic(np.eye(2), -np.eye(2), Cones(nonnegative=2), b=np.zeros(2), c=np.ones(2))
    >>> family.n, family.m
    (2, 2)
    """

    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True)
    dtype: np.dtype = eqx.field(static=True)
    cones: Cones
    matrices: Matrices
    parameter: Affine | None = eqx.field(static=True)
    mapped: WorkingMap | None
    host: Host = eqx.field(static=True)

    def __init__(
        self,
        P: ArrayLike2D | None,
        A: ArrayLike2D,
        cones: Cones,
        *,
        b: ArrayLike | None = None,
        c: ArrayLike | None = None,
        parameter: Affine | None = None,
        layout: Layout | None = None,
        equilibrate: bool = True,
        dtype: DTypeLike = "float64",
    ):
        self.dtype = resolve_dtype(dtype)
        square, rows = check_matrices(P, A)
        self.n = square.shape[0]
        self.m = rows.shape[0]
        self.cones = cones
        if cones.size != self.m:
            raise ValueError(f"the cones take {cones.size} rows but A has {self.m}: {cones!r}")
        values = {"b": optional_vector("b", b, self.m), "c": optional_vector("c", c, self.n)}
        if parameter is not None:
            parameter.check(self.sizes)
        self.parameter = parameter
        check_layout(layout, self.n, parameter)
        self.host = Host(square, rows, values, bool(equilibrate), layout=layout)
        scaled = Equilibrated(square, rows, cones.blocks(), None, equilibrate=self.host.equilibrate)
        everything = np.arange(self.m)
        self.matrices = scaled.matrices(self.dtype, everything)
        self.mapped = make_working_map(
            parameter,
            values,
            scales={"b": scaled.e, "c": scaled.d},
            rows={"b": everything, "c": np.arange(self.n)},
            dtype=self.dtype,
        )

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"b": self.m, "c": self.n}

    def data(self, parameters: Parameters) -> dict[str, np.ndarray]:
        """Return the checked b (N, m) and c (N, n) of N parameters, in the user's units."""
        named, count = self.merge_data(parameters, self.host.values, self.parameter)
        return {
            "b": check_array("b", named["b"], (count, self.m)),
            "c": check_array("c", named["c"], (count, self.n)),
        }

    @override
    def encode(self, parameters: Parameters) -> np.ndarray | dict[str, np.ndarray]:
        if self.parameter is not None and ConstrainedFamily.maps(self, parameters):
            return columns(self.parameter.check_parameters(parameters), self.dtype)
        data = self.data(parameters)
        s = self.matrices.scaling
        return {
            "b": columns(np.asarray(s.e, np.float64) * data["b"], self.dtype),
            "c": columns(np.asarray(s.d, np.float64) * data["c"], self.dtype),
        }

    @override
    def scale_traced(self, data: dict[str, Array]) -> dict[str, Array]:
        s = self.matrices.scaling
        return {"b": s.e * data["b"], "c": s.d * data["c"]}

    @override
    def decode(self, encoded: Encoded) -> ConicInstance:
        data = encoded if isinstance(encoded, dict) or self.mapped is None else self.mapped(encoded)
        b = data["b"]
        c = data["c"]
        size = jnp.maximum(max_norm(b), max_norm(c))
        size = jnp.where((size == 0) | (not self.normalized), 1.0, size)
        return ConicInstance(b / size, c / size, size)

    @property
    def normalized(self) -> bool:
        """Whether (b, c) of every instance are brought to size one: part of equilibration."""
        return self.host.equilibrate

    @override
    def batch(self, instances: ConicInstance) -> tuple[int, ...]:
        return instances.c.shape[1:]

    @override
    def objective(self, instances: ConicInstance, x: Array) -> Array:
        scaled = x / along(self.matrices.scaling.d, x)
        return 0.5 * inner(scaled, self.matrices.P.mv(scaled)) + instances.size * inner(instances.c, scaled)

    @override
    def _make_again(self) -> "Conic":
        host = self.host
        options = {"parameter": self.parameter, "layout": host.layout, "equilibrate": host.equilibrate}
        return Conic(host.P, host.A, self.cones, **host.values, **options)

    @property
    @override
    def equilibrated(self) -> bool:
        return self.host.equilibrate

    @override
    def hashed(self) -> tuple:
        mapped = map_given(Affine.hashed, self.parameter)
        return *self.host.problem, self.cones.hashed(), mapped
