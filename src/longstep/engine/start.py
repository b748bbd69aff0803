"""Where solves begin: a warm start of the user's, or what training's optima say of an instance by its parameter."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from .._util.hashing import content_hash
from ..families.base import Encoded, Family
from ..families.point import Point
from ..families.quadratic_program import QP
from ..linalg.matrix import along
from ..linalg.real import real_array
from .jitted import Key, flatten
from .solution import Solution


@dataclass(frozen=True, eq=False)
class LearnedStart:
    """The map from the parameter p of a QP to where its solves begin, with one entry for every inequality:

        w = offset + weights·clip(p, low, high),    s = clip(w, l, u),    y = rho⊙(w − s).

    At an optimum w is s + y/rho, so s and y are complementary whatever is predicted: a row whose w is within its bounds
    has no multiplier. All is in the user's units. `low` and `high` are the range that training saw: beyond it the map
    is not trusted, and a start is that of the nearest parameter within.
    """

    weights: Float[np.ndarray, "i p"]
    offset: Float[np.ndarray, " i"]
    rho: Float[np.ndarray, " i"]
    low: Float[np.ndarray, " p"]
    high: Float[np.ndarray, " p"]

    def content_hash(self) -> str:
        """Return a SHA-256 of the map."""
        return content_hash(*vars(self).values())


class Predictor:
    """A learned start for the instances of a family."""

    def __init__(self, family: QP, start: LearnedStart):
        self._key, self._leaves = flatten(family)
        self._arrays = {name: jnp.asarray(array, family.dtype) for name, array in vars(start).items()}

    def __call__(self, encoded: Encoded) -> Point | None:
        """Return the starts of encoded parameters as columns; None where these are not vectors of the parameter map."""
        if not isinstance(encoded, np.ndarray | jax.Array):
            return None
        return _predict(self._key, self._leaves, self._arrays, encoded)


def check_start(start: LearnedStart, family: Family, starts_from_rows: bool) -> None:
    """Refuse a start that does not fit a family, or that its algorithm cannot begin at."""
    if not starts_from_rows or not isinstance(family, QP) or family.parameter is None:
        raise ValueError("a start from the parameter is for QPs with a parameter map, in the condensed form")
    rows = int((~(family.host.kinds.equality | family.host.kinds.is_free)).sum())
    size = family.parameter.size
    shapes = {"weights": (rows, size), "offset": (rows,), "rho": (rows,), "low": (size,), "high": (size,)}
    for name, array in vars(start).items():
        if array.shape != shapes[name] or not np.isfinite(array).all():
            raise ValueError(f"{name} of the start must have shape {shapes[name]} and finite entries")
    if not (start.rho > 0).all() or not (start.low <= start.high).all():
        raise ValueError("rho of the start must be positive, and its low at most its high")


def read_start(family: Family, warm: Solution | Point, batch: tuple[int, ...]) -> Point:
    """Return a user's warm start as columns, checked."""
    if not isinstance(warm, Solution | Point):
        raise TypeError(f"a warm start is a Solution or a Point(x, y, s), got {type(warm).__name__}")

    def convert(name: str, value: ArrayLike | None, rows: int) -> Any:
        if value is None:
            return None
        array = real_array(f"{name} of the warm start", value)
        if array.shape != (*batch, rows):
            raise ValueError(f"{name} of the warm start must have shape {(*batch, rows)}, got {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} of the warm start has NaN or infinite entries")
        return np.ascontiguousarray(np.moveaxis(array, -1, 0), family.dtype)

    x = convert("x", warm.x, family.n)
    return Point(x, convert("y", warm.y, family.m), convert("s", warm.s, family.m))


@functools.partial(jax.jit, static_argnums=0)
def _predict(key: Key[QP], leaves: tuple, arrays: dict[str, Array], encoded: Float[Array, "p *N"]) -> Point:
    family = key.unflatten(leaves)
    near = jnp.clip(encoded, along(arrays["low"], encoded), along(arrays["high"], encoded))
    w = along(arrays["offset"], encoded) + arrays["weights"] @ near
    return complete(family, encoded, w, arrays["rho"])


def complete(family: QP, encoded: Float[Array, "p *N"], w: Float[Array, "i *N"], rho: Float[Array, " i"]) -> Point:
    """Return the point with these w = s + y/rho of the inequalities, in the user's units; zero where w is NaN."""
    instance = family.decode(encoded)
    kinds = family.host.kinds
    inner = np.flatnonzero(~kinds.equality[kinds.bounded])
    rows = kinds.bounded[inner]
    e = along(family.matrices.scaling.e[inner], w)
    s = jnp.clip(w, instance.l[inner] / e, instance.u[inner] / e)
    y = along(rho, w) * (w - s)
    blank = jnp.zeros((family.m, *w.shape[1:]), w.dtype)
    s, y = (blank.at[rows].set(jnp.where(jnp.isnan(w), 0.0, part)) for part in (s, y))
    return Point(jnp.zeros((family.n, *w.shape[1:]), w.dtype), y, s)
