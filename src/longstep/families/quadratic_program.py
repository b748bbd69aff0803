"""Quadratic programs that share P and A."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike, DTypeLike
from typing_extensions import override

from .._util.optional import map_given
from ..linalg.matrix import AnyArray, ArrayLike2D, Matrix, along, inner, make_matrix
from ..linalg.real import read_plain_array
from .affine import Affine, WorkingMap, make_working_map
from .base import INFINITY, Encoded
from .constrained import ConstrainedFamily, Host, check_matrices
from .equilibration import Equilibrated, Matrices
from .names import Layout, check_layout
from .reading import Parameters, check_array, columns, optional_vector, resolve_dtype


class QPInstance(eqx.Module):
    """The equilibrated data of one QP or of a stack (n, N), (m, N), (m, N), without the family's free rows."""

    q: Float[AnyArray, "n *N"]
    l: Float[AnyArray, "m *N"]
    u: Float[AnyArray, "m *N"]


class RowKinds:
    """Which rows are equalities and which are free of bounds, in every instance of the family."""

    def __init__(
        self,
        values: dict[str, np.ndarray | None],
        parameter: Affine | None,
        equalities: ArrayLike | None,
        free: ArrayLike | None,
        m: int,
    ):
        l = values["l"]
        u = values["u"]
        known = l is not None and u is not None
        same = np.zeros(m, bool)
        unbounded = np.zeros(m, bool)
        one_sided = np.zeros(m, bool)
        if l is not None and u is not None:
            same = l == u
            unbounded = (l == -np.inf) & (u == np.inf)
            one_sided = (l == -np.inf) | (u == np.inf)
        equality = _read_mask("equalities", equalities, m)
        if equality is None:
            equality = same
            if parameter is not None:
                equality = equality & parameter.find_same_rows("l", "u", m)
        self.equality: np.ndarray = equality
        is_free = _read_mask("free", free, m)
        if is_free is None:
            is_free = unbounded
        self.is_free: np.ndarray = is_free
        if (self.equality & self.is_free).any():
            raise ValueError(f"row {np.flatnonzero(self.equality & self.is_free)[0]} cannot be free and an equality")
        self.has_equalities = bool(np.any(self.equality))
        self.free, self.bounded = np.flatnonzero(self.is_free), np.flatnonzero(~self.is_free)
        self.order = np.argsort(np.concatenate([self.bounded, self.free]))
        # Rows whose bounds move alike keep their distance, and a single bound cannot cross: only the others need a look
        # at every parameter.
        self.can_cross = parameter is not None and not (
            known and (parameter.find_same_rows("l", "u", m) | one_sided).all()
        )


class QPHost(Host):
    """The user's own data of a QP, and the kinds of its rows."""

    def __init__(
        self,
        P: sp.csr_array,
        A: sp.csr_array,
        values: dict[str, np.ndarray | None],
        equilibrate: bool,
        kinds: RowKinds,
        layout: Layout | None,
    ):
        super().__init__(P, A, values, equilibrate, layout)
        self.kinds = kinds

    @override
    def hashed(self) -> tuple:
        return *super().hashed(), self.kinds.equality, self.kinds.is_free, self.kinds.can_cross


class QP(ConstrainedFamily[QPInstance, QPHost]):
    """minimise ½x'Px + q'x subject to l ≤ Ax ≤ u, with P, A shared and (q, l, u) the instance.

    `q`, `l`, `u` are base values: an instance given as a dict needs only what differs from them. They also tell
    which rows are equalities (l = u) and which are free in every instance (both infinite); `equalities` and `free`
    (masks or indices) say it otherwise. `parameter=Affine(…)` maps parameter vectors to instances;
    with a `layout` that names their entries, parameters may be given, and solutions read, by name.
    `equilibrate=False` turns Ruiz scaling off. Residuals, tolerances, points and duals are always in the user's
    units.

    >>> import numpy as np
    >>> family = QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    >>> family.n, family.m
    (2, 2)
    """

    n: int = eqx.field(static=True)
    m: int = eqx.field(static=True)
    dtype: np.dtype = eqx.field(static=True)
    matrices: Matrices
    free_A: Matrix
    equality: Bool[Array, " rows"]
    parameter: Affine | None = eqx.field(static=True)
    mapped: WorkingMap | None
    host: QPHost = eqx.field(static=True)

    def __init__(
        self,
        P: ArrayLike2D | None,
        A: ArrayLike2D,
        *,
        q: ArrayLike | None = None,
        l: ArrayLike | None = None,
        u: ArrayLike | None = None,
        equalities: ArrayLike | None = None,
        free: ArrayLike | None = None,
        parameter: Affine | None = None,
        layout: Layout | None = None,
        equilibrate: bool = True,
        dtype: DTypeLike = "float64",
    ):
        self.dtype = resolve_dtype(dtype)
        square, rows = check_matrices(P, A)
        self.n = square.shape[0]
        self.m = rows.shape[0]
        values = {
            "q": optional_vector("q", q, self.n),
            "l": _read_bound("l", l, self.m),
            "u": _read_bound("u", u, self.m),
        }
        if parameter is not None:
            parameter.check(self.sizes)
        self.parameter = parameter
        kinds = RowKinds(values, parameter, equalities, free, self.m)
        check_layout(layout, self.n, parameter)
        self.host = QPHost(square, rows, values, bool(equilibrate), kinds, layout)
        if values["l"] is not None and values["u"] is not None:
            self._check_bounds(values["l"][None], values["u"][None])
        self.equality = jnp.asarray(np.asarray(kinds.equality)[kinds.bounded])

        cost = values["q"]
        if cost is None:
            cost = np.zeros(self.n)
        scaled = Equilibrated(square, rows, np.arange(self.m), cost, equilibrate=self.host.equilibrate)
        self.matrices = scaled.matrices(self.dtype, kinds.bounded, kinds.free)
        self.free_A = make_matrix(self.host.A[kinds.free], self.dtype)
        self.mapped = make_working_map(
            parameter,
            values,
            scales={"q": scaled.c * scaled.d, "l": scaled.e, "u": scaled.e},
            rows={"q": np.arange(self.n), "l": kinds.bounded, "u": kinds.bounded},
            dtype=self.dtype,
        )

    @property
    @override
    def sizes(self) -> dict[str, int]:
        return {"q": self.n, "l": self.m, "u": self.m}

    def data(self, parameters: Parameters) -> dict[str, np.ndarray]:
        """Return the checked q (N, n), l and u (N, m) of N parameters, in the user's units."""
        named, count = self.merge_data(parameters, self.host.values, self.parameter)
        q = check_array("q", named["q"], (count, self.n))
        l = _cut_infinite(check_array("l", named["l"], (count, self.m), infinite=True))
        u = _cut_infinite(check_array("u", named["u"], (count, self.m), infinite=True))
        self._check_bounds(l, u)
        return {"q": q, "l": l, "u": u}

    @override
    def encode(self, parameters: Parameters) -> np.ndarray | QPInstance:
        if self.parameter is not None and ConstrainedFamily.maps(self, parameters):
            checked_parameters = self.parameter.check_parameters(parameters)
            if self.host.kinds.can_cross:
                self.data(parameters)
            return columns(checked_parameters, self.dtype)
        data = self.data(parameters)
        s = self.matrices.scaling
        rows = self.host.kinds.bounded
        d, e, c = (np.asarray(a, np.float64) for a in (s.d, s.e, s.c))
        return QPInstance(
            q=columns(c * d * data["q"], self.dtype),
            l=columns(e * data["l"][:, rows], self.dtype),
            u=columns(e * data["u"][:, rows], self.dtype),
        )

    @override
    def scale_traced(self, data: dict[str, Array]) -> QPInstance:
        s = self.matrices.scaling
        rows = self.host.kinds.bounded
        l = data["l"][rows]
        u = data["u"][rows]
        l = jnp.where(l >= INFINITY, jnp.inf, jnp.where(l <= -INFINITY, -jnp.inf, l))
        u = jnp.where(u >= INFINITY, jnp.inf, jnp.where(u <= -INFINITY, -jnp.inf, u))
        return QPInstance(s.c * s.d * data["q"], s.e * l, s.e * u)

    @override
    def decode(self, encoded: Encoded) -> QPInstance:
        if isinstance(encoded, QPInstance) or self.mapped is None:
            return encoded
        return QPInstance(**self.mapped(encoded))

    @property
    @override
    def decodes_freely(self) -> bool:
        return self.mapped is not None and self.mapped.selects

    def _check_bounds(self, l: np.ndarray, u: np.ndarray) -> None:
        crossed = (l > u) | (l == np.inf) | (u == -np.inf)
        if crossed.any():
            i, row = np.argwhere(crossed)[0]
            raise ValueError(
                f"the bounds of row {row} in instance {i} admit no value: l = {l[i, row]:g}, u = {u[i, row]:g}"
            )
        kinds = self.host.kinds
        for kind, name, wrong in (
            ("an equality", "equalities", (l < u) & kinds.equality),
            ("free of bounds", "free", (np.isfinite(l) | np.isfinite(u)) & kinds.is_free),
        ):
            if wrong.any():
                i, row = np.argwhere(wrong)[0]
                raise ValueError(
                    f"row {row} is {kind} in this family, but instance {i} has l = {l[i, row]:g}, u = {u[i, row]:g}. "
                    f"Say which rows are {kind} when the family is made: {name}=… (an empty list for none)"
                )

    @override
    def batch(self, instances: QPInstance) -> tuple[int, ...]:
        return instances.q.shape[1:]

    @override
    def objective(self, instances: QPInstance, x: Array) -> Array:
        s = self.matrices.scaling
        scaled = x / along(s.d, x)
        return (0.5 * inner(scaled, self.matrices.P.mv(scaled)) + inner(instances.q, scaled)) / s.c

    @override
    def _make_again(self) -> "QP":
        host = self.host
        rows = {"equalities": host.kinds.equality, "free": host.kinds.is_free}
        options = {"parameter": self.parameter, "layout": host.layout, "equilibrate": host.equilibrate}
        return QP(host.P, host.A, **host.values, **rows, **options)

    @property
    @override
    def equilibrated(self) -> bool:
        return self.host.equilibrate

    @override
    def hashed(self) -> tuple:
        mapped = map_given(Affine.hashed, self.parameter)
        return *self.host.problem, self.host.kinds.equality, self.host.kinds.is_free, mapped


def _read_bound(name: str, value: ArrayLike | None, m: int) -> np.ndarray | None:
    return map_given(_cut_infinite, optional_vector(name, value, m, infinite=True))


def _cut_infinite(value: np.ndarray) -> np.ndarray:
    return np.where(value >= INFINITY, np.inf, np.where(value <= -INFINITY, -np.inf, value))


def _read_mask(name: str, rows: ArrayLike | None, m: int) -> np.ndarray | None:
    if rows is None:
        return None
    chosen = read_plain_array(name, rows)
    if chosen.dtype == bool and chosen.shape != (m,):
        raise ValueError(f"{name} as a mask must have {m} entries, got shape {chosen.shape}")
    if chosen.dtype != bool and chosen.size and (chosen.min() < -m or chosen.max() >= m):
        raise ValueError(f"{name} names a row outside 0…{m - 1}")
    if chosen.dtype != bool:
        # An empty list is of floats.
        chosen = chosen.astype(int)
    mask = np.zeros(m, bool)
    mask[chosen] = True
    return mask
