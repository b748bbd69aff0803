"""Named arrays in a family's vectors: from named parameters to x, and from a solution back to named variables."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int, Real
from numpy.typing import ArrayLike

from .._util.nearest import suggest
from .._util.optional import map_given
from .._util.storage import JsonObject
from ..linalg.real import real_array, real_number

if TYPE_CHECKING:
    import jax

    from .affine import Affine

# How far a value may be from the set that its attributes describe, as in CVXPY.
_TOLERANCE = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """One named array and where its entries lie in a vector.

        value[i, j, …] = vector[place[i, j, …]], or 0 where place is −1.

    So a symmetric matrix has its two triangles at the same places, and a diagonal or sparse one is −1 elsewhere.
    `lower` and `upper` bound the entries, where that is known; `definite` is 1 for positive and −1 for negative
    semidefinite matrices, else 0.
    """

    name: str
    place: Int[np.ndarray, "*shape"]
    lower: Float[np.ndarray, "*shape"] | None = None
    upper: Float[np.ndarray, "*shape"] | None = None
    definite: int = 0

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise TypeError(f"the name of an array is text, got {self.name!r}")
        if self.place.dtype.kind not in "iu" or (self.place < -1).any():
            raise ValueError(f"the places of {self.name!r} must be whole numbers, −1 where there is none")
        if type(self.definite) is not int or self.definite not in (-1, 0, 1):
            raise ValueError(f"definite of {self.name!r} must be −1, 0 or 1, got {self.definite!r}")
        if self.definite and (len(self.shape) != 2 or self.shape[0] != self.shape[1]):
            raise ValueError(f"{self.name!r} is to be semidefinite, but has shape {self.shape}")
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None and bound.shape not in ((), self.place.shape):
                raise ValueError(f"{name} of {self.name!r} has shape {bound.shape}, the array {self.place.shape}")
            if bound is not None and np.isnan(bound).any():
                raise ValueError(f"{name} of {self.name!r} is not a number")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.place.shape

    @functools.cached_property
    def first(self) -> Int[np.ndarray, " entries"]:
        """For every entry of the vector, in its order, the first place of the flattened array that holds it."""
        places, first = np.unique(self.place.ravel(), return_index=True)
        return first[places >= 0]

    @property
    def labels(self) -> list[str]:
        """A name for every entry of the vector: `p` of a scalar, `p[2]` of a vector, `p[0,1]` of a matrix."""
        if not self.shape:
            return [self.name]
        indices = zip(*np.unravel_index(self.first, self.shape), strict=True)
        return [f"{self.name}[{','.join(str(i) for i in index)}]" for index in indices]

    def gather(self, vectors: Float[np.ndarray, "*N n"]) -> Float[np.ndarray, "..."]:
        """Return the array, or a stack of them, out of a vector or a stack of them."""
        values = vectors[..., np.maximum(self.place, 0)]
        if (self.place >= 0).all():
            return values
        return np.where(self.place >= 0, values, 0.0)

    def flatten(self, values: Float[np.ndarray, "N *shape"]) -> Float[np.ndarray, "N entries"]:
        """Return the entries that the vector holds."""
        return values.reshape(len(values), self.place.size)[:, self.first]

    def check(self, values: Float[np.ndarray, "N *shape"]) -> None:
        """Refuse values that are not finite, or not in the set that the attributes of the array describe."""
        bad = ~np.isfinite(values)
        if bad.any():
            raise ValueError(f"{self._locate(bad)} is {values[bad][0]}; it must be finite")
        size = 1.0 + np.abs(values).max(initial=0.0)
        if self.first.size < self.place.size and (odd := self._find_odd(values, _TOLERANCE * size)).any():
            kind = "symmetric"
            if (self.place < 0).any():
                kind = "zero outside its pattern (diagonal or sparse)"
            raise ValueError(f"{self._locate(odd)} does not fit: {self.name!r} must be {kind}")
        for bound, sign, words in ((self.lower, -1, "less"), (self.upper, 1, "more")):
            if bound is not None and (outside := sign * (values - bound) > _TOLERANCE * size).any():
                limit = np.broadcast_to(bound, values.shape)[outside][0]
                raise ValueError(f"{self._locate(outside)} is {values[outside][0]:g}, {words} than its bound {limit:g}")
        if self.definite:
            least = np.linalg.eigvalsh(self.definite * values)[:, 0]
            if (least < -_TOLERANCE * size).any():
                sign = "negative"
                if self.definite > 0:
                    sign = "positive"
                where = f"{self.name!r} of instance {int(np.argmin(least))}"
                raise ValueError(
                    f"{where} must be {sign} semidefinite; an eigenvalue is {self.definite * least.min():g}"
                )

    def _find_odd(self, values: np.ndarray, tolerance: float) -> np.ndarray:
        """Return the entries that differ from the first one at their place, or from zero where they have none."""
        _, first, twin = np.unique(self.place, return_index=True, return_inverse=True)
        meant = values.reshape(len(values), self.place.size)[:, first[twin.ravel()]].reshape(values.shape)
        return np.abs(np.where(self.place >= 0, meant, 0.0) - values) > tolerance

    def _locate(self, mask: np.ndarray) -> str:
        instance, *entry = (int(i) for i in np.argwhere(mask)[0])
        if not entry:
            return f"{self.name} of instance {instance}"
        return f"{self.name}[{', '.join(map(str, entry))}] of instance {instance}"


class Solved(Protocol):
    """What has the points of one instance or, on the leading axis, of several."""

    @property
    def x(self) -> "np.ndarray | jax.Array":
        """The points."""
        ...


class Layout:
    """What the entries of a family's parameter x and of its solutions are called, and what the objective lacks.

    x holds the parameters one after another, each as `value.ravel()`, of a symmetric matrix the upper triangle by
    rows, of a diagonal one the diagonal, of a sparse one its entries by rows. The user's objective is

        sign·(½x'Px + q'x + constant + offset'x),   sign = −1 where the user maximises,

    with the family's point in ½x'Px + q'x and the parameter in offset'x.
    """

    def __init__(
        self,
        parameters: Sequence[Block],
        variables: Sequence[Block],
        *,
        sign: int = 1,
        constant: float = 0.0,
        offset: ArrayLike | None = None,
    ):
        self.parameters = {block.name: block for block in parameters}
        self.variables = {block.name: block for block in variables}
        if len(self.parameters) < len(parameters) or len(self.variables) < len(variables):
            raise ValueError("two parameters, or two variables, have the same name")
        if type(sign) is not int or sign not in (-1, 1):
            raise ValueError(f"sign must be 1 or −1, got {sign!r}")
        self.size = sum(block.first.size for block in parameters)
        self.sign = sign
        self.constant = real_number("the constant of the objective", constant)
        self.offset = np.zeros(self.size)
        if offset is not None:
            self.offset = real_array("the offset of the objective", offset)
        if self.offset.shape != (self.size,):
            raise ValueError(f"offset must have {self.size} entries, one for each of x, got shape {self.offset.shape}")
        if not (np.isfinite(self.constant) and np.isfinite(self.offset).all()):
            raise ValueError("the constant and the offset of the objective must be finite")

    @property
    def columns(self) -> list[str]:
        """A name for every entry of x, as for the columns of a table: `mu[0]`, `mu[1]`, `C[0,1]`, `price`."""
        return [label for block in self.parameters.values() for label in block.labels]

    def stack(self, named: Mapping[str, ArrayLike]) -> Float[np.ndarray, "*N size"]:
        """Return named values as one x (size,), or as a stack (N, size) where some have a leading axis of instances.

        Values without that axis are repeated for every instance.
        """
        self.check_names(named)
        values = {name: _read_array(name, named[name]) for name in self.parameters}
        counts = {}
        for name, block in self.parameters.items():
            extra = values[name].ndim - len(block.shape)
            if extra not in (0, 1) or values[name].shape[extra:] != block.shape:
                many = ", ".join(["N", *map(str, block.shape)])
                raise ValueError(
                    f"{name!r} must have shape {block.shape}, or ({many}) for N instances; got {values[name].shape}"
                )
            if extra:
                counts[name] = len(values[name])
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ValueError(f"the parameters must have one common number of instances, got {found}")
        count = next(iter(counts.values()), 1)
        parts = []
        for name, block in self.parameters.items():
            stacked = values[name]
            if name not in counts:
                stacked = stacked[None]
            block.check(stacked)
            parts.append(np.broadcast_to(block.flatten(stacked), (count, block.first.size)))
        x = np.concatenate(parts, axis=1)
        if not counts:
            return x[0]
        return x

    def check_names(self, named: Mapping[str, object]) -> None:
        """Refuse names that are no parameters, with what they are like, and parameters without a value."""
        unknown = [str(name) for name in named if name not in self.parameters]
        missing = [name for name in self.parameters if name not in named]
        whole = f"the problem's parameters are {', '.join(self.parameters)}"
        if unknown:
            near = suggest(unknown[0], missing)
            listed = ", ".join(map(repr, unknown))
            raise ValueError(f"{listed} is no parameter of this problem; {whole}{near}")
        if missing:
            raise ValueError(f"{', '.join(map(repr, missing))} has no value; {whole}")

    def read_one(self, named: Mapping[str, ArrayLike]) -> Float[np.ndarray, " size"]:
        """Return the parameter of one instance; refused where values have an axis of instances."""
        x = self.stack(named)
        if x.ndim > 1:
            raise ValueError(f"these are the values of {len(x)} instances, where those of one are expected")
        return x

    def read_many(
        self, named: Mapping[str, ArrayLike] | Sequence[Mapping[str, ArrayLike]]
    ) -> Float[np.ndarray, "N size"]:
        """Return the parameters of a batch: named arrays with an axis of instances, or a sequence of instances by
        name."""
        if isinstance(named, Mapping):
            x = self.stack(named)
            if x.ndim == 1:
                raise ValueError("a batch of instances needs at least one array with a leading axis of instances")
            return x
        return np.stack([self.read_one(each) for each in named])

    def split(self, x: Real[np.ndarray, "*N size"]) -> dict[str, np.ndarray]:
        """Return the inverse of `stack`."""
        return {name: block.gather(self._check(x)) for name, block in self.parameters.items()}

    def unpack(self, solution: Solved, index: int | None = None) -> dict[str, np.ndarray]:
        """Return the values of the variables by name, in their own shapes, with a leading axis for a batch.

        `index` picks one instance of a batch. Entries that leave a bound the variable was declared with (nonneg, …)
        by the solver's tolerance are put on it, as CVXPY does.
        """
        x = np.asarray(solution.x)
        if index is not None:
            x = x[index]
        values = {name: block.gather(x) for name, block in self.variables.items()}
        for name, block in self.variables.items():
            if block.lower is not None or block.upper is not None:
                values[name] = np.clip(values[name], block.lower, block.upper)
        return values

    def objective(self, value: np.ndarray, x: Float[np.ndarray, "N size"]) -> np.ndarray:
        """Return the user's objective of instances with parameters x, from the family's ½x'Px + q'x; () for one
        instance."""
        shift = np.full(len(x), self.constant)
        if self.offset.any():
            shift = self.constant + self._check(x) @ self.offset
        return np.asarray(self.sign * (value + shift.reshape(np.shape(value)))).astype(value.dtype)

    def to_json(self) -> JsonObject:
        """Return all of it as plain data."""
        kinds = {"parameters": self.parameters, "variables": self.variables}
        blocks = {kind: [_list_fields(block) for block in each.values()] for kind, each in kinds.items()}
        rest = {"sign": self.sign, "constant": self.constant, "offset": self.offset.tolist()}
        return {**blocks, **rest}

    @staticmethod
    def from_json(document: JsonObject) -> "Layout":
        """Return the inverse of `to_json`."""
        fields = dict(document)
        blocks = [[_read_block(each) for each in fields.pop(kind)] for kind in ("parameters", "variables")]
        return Layout(*blocks, **fields)

    def _check(self, x: object) -> np.ndarray:
        x = real_array("the parameter", x)
        if x.shape[-1:] != (self.size,) or x.ndim > 2:
            raise ValueError(f"a parameter of this family has {self.size} entries, got an array of shape {x.shape}")
        return x


def check_layout(layout: Layout | None, n: int, parameter: "Affine | None") -> None:
    """Refuse names for other vectors than a family's: its parameter map's, and points with n entries."""
    if layout is None:
        return
    if parameter is None or parameter.size != layout.size:
        found = "has no parameter map"
        if parameter is not None:
            found = f"maps vectors of {parameter.size} entries"
        raise ValueError(f"the layout names {layout.size} entries of the parameter, but the family {found}")
    last = max((int(block.place.max(initial=-1)) for block in layout.variables.values()), default=-1)
    if last >= n:
        raise ValueError(f"the layout places a variable at entry {last} of points that have {n} entries")


def _read_array(name: str, value: Any) -> np.ndarray:
    if sp.issparse(value):
        value = value.toarray()
    return real_array(f"the value of {name!r}", value)


def _list_fields(block: Block) -> dict:
    return {
        "name": block.name,
        "place": block.place.tolist(),
        "lower": map_given(np.ndarray.tolist, block.lower),
        "upper": map_given(np.ndarray.tolist, block.upper),
        "definite": block.definite,
    }


def _read_block(fields: dict) -> Block:
    read = functools.partial(np.asarray, dtype=np.float64)
    lower, upper = (map_given(read, fields[key]) for key in ("lower", "upper"))
    place = np.asarray(fields["place"])
    if not place.size:
        # An empty list is of floats.
        place = place.astype(int)
    return Block(fields["name"], place, lower, upper, fields["definite"])
