"""What a cone is to the rest of the library: rows, two projections, and its names elsewhere."""

import abc
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Array, Float

# A number, or an entry for every cone.
Sizes: TypeAlias = int | tuple[int, ...] | tuple[float, ...]
SizesT = TypeVar("SizesT", bound=Sizes)
# A class of Clarabel's, and the size or exponent that it is made with, where it needs one.
ClarabelCone: TypeAlias = tuple[str, int | float | None]


@dataclass(frozen=True)
class Cone(abc.ABC, Generic[SizesT]):
    """All cones of one kind in a product, one below the other.

    `sizes` is what `Cones` is given for them: a number, or a tuple with an entry for every cone. A new kind is a
    subclass in a file of its own and a line in the registry.
    """

    sizes: SizesT

    # The keyword of `Cones`, which is the name in files too, and what sentences call it.
    name: ClassVar[str]
    title: ClassVar[str]
    # Whether the rows of one cone belong together, so that they must share one scale.
    joint: ClassVar[bool] = True
    # Whether it is {0}: its rows are equalities and their multipliers free.
    equality: ClassVar[bool] = False
    # The key of SCS's dictionary of cones; CVXPY's constraints, and its dimensions of them.
    scs: ClassVar[str]
    cvxpy: ClassVar[tuple[str, ...]]
    cvxpy_dims: ClassVar[str]
    # Whether files and hashes have its sizes with no rows too, as they did before there were other cones.
    always_kept: ClassVar[bool] = False
    # The file of the C code that projects; without one, C code is refused. And the files that several cones share: of
    # that code, and of the finish's.
    c_part: ClassVar[str | None] = None
    c_shared: ClassVar[str | None] = None
    c_finish: ClassVar[str | None] = None

    # The sizes of no cones.
    empty: ClassVar[Sizes] = ()

    def __post_init__(self):
        object.__setattr__(self, "sizes", self.check_sizes(self.sizes))

    @staticmethod
    @abc.abstractmethod
    def check_sizes(sizes: Any) -> SizesT:
        """Return the sizes as a number or a tuple, which compare and hash; a ValueError where no cone has them."""

    @property
    @abc.abstractmethod
    def each(self) -> tuple[int, ...]:
        """The rows of every cone; where rows stand alone, they count as one."""

    @property
    def rows(self) -> int:
        """The rows of all cones."""
        return sum(self.each)

    @abc.abstractmethod
    def project(self, v: Float[Array, "rows *N"]) -> Float[Array, "rows *N"]:
        """Return Π_K(v)."""

    def project_dual(self, v: Float[Array, "rows *N"]) -> Float[Array, "rows *N"]:
        """Return Π_K*(v) = v + Π_K(−v) (Moreau 1962); a cone that knows more says so."""
        return v + self.project(-v)

    @abc.abstractmethod
    def clarabel(self) -> Sequence[ClarabelCone]:
        """Return Clarabel's cones: the class and what it is made with."""

    def clarabel_order(self) -> np.ndarray:
        """Return our rows in Clarabel's order."""
        return np.arange(self.rows)

    def refuse_c(self) -> str | None:
        """Return why there is no C code for these cones; None where there is."""
        if self.c_part is not None:
            return None
        return f"C code is not written for the {self.title} cone, of which this family has {len(self.each)}"

    @property
    def c_matrix(self) -> int:
        """The numbers of the matrix that the projection in C works on; 1 without, for C has no empty arrays."""
        return 1

    def count_c_derivatives(self) -> dict[str, int]:
        """Return how many numbers make the derivatives of all projections in C, by the arrays that they are in."""
        return {}

    def to_json(self) -> int | list[int] | list[float]:
        """Return the sizes for a file, from which the cone can be made again."""
        if isinstance(self.sizes, tuple):
            return list(self.sizes)
        return self.sizes


def check_count(sizes: Any) -> int:
    """Return a number of rows or cones, which is not negative."""
    number = operator.index(sizes)
    if number < 0:
        raise ValueError(f"cone sizes must be non-negative integers, got {sizes!r}")
    return number


def check_orders(sizes: Any) -> tuple[int, ...]:
    """Return the sizes of cones, each at least one; a number is that of one cone."""
    if isinstance(sizes, int):
        sizes = (sizes,)
    orders = tuple(operator.index(k) for k in sizes)
    if any(check_count(k) == 0 for k in orders):
        raise ValueError(f"second-order and semidefinite cones need a size of at least 1, got {orders!r}")
    return orders
