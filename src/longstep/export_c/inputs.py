"""From what a user passes as a parameter to the vector that the C code takes."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import PyTree

from ..families.base import NamedFamily
from ..families.names import Block
from ..families.reading import is_named
from ..linalg.real import real_array
from .problem import Constrained, ExportedProblem


class Inputs:
    """Parameters as vectors, or as named values; without a parameter map the data of an instance, over the base values.

    An instance that is given by its data although the family has a map is not for C: the caller turns to the solver.
    """

    def __init__(self, family: Constrained, problem: ExportedProblem, dtype: np.dtype):
        self.family = family
        self.mapped = problem.mapped
        self.size = problem.size
        self.dtype = dtype
        self.names = list(problem.data)
        layout = family.layout
        blocks = [] if layout is None else list(layout.parameters.values())
        self.plain = layout is not None and all(map(_is_plain, blocks))
        self.places: list[tuple[str, tuple[int, ...], slice]] = []
        begin = 0
        for block in blocks:
            self.places.append((block.name, block.shape, slice(begin, begin + block.first.size)))
            begin += block.first.size

    def load(self, parameter: PyTree, out: np.ndarray) -> bool:
        """Write the vector of one instance to `out`; False where this is not for C."""
        if not self.mapped:
            out[:] = self._stack_data(NamedFamily.batch_one(self.family, parameter))[0]
            return True
        if isinstance(parameter, Mapping):
            if self.family.layout is None:
                return False
            if not (self.plain and len(parameter) == len(self.places) and self._load_plain(parameter, out)):
                out[:] = self.family.layout.read_one(parameter)
            return True
        vector = real_array("the parameter", parameter)
        if vector.shape != (self.size,):
            self._check(vector[None])
        out[:] = vector
        return True

    def _load_plain(self, parameter: Mapping, out: np.ndarray) -> bool:
        """Write named values of plain arrays; False where something is odd, which the layout says. C looks for NaN."""
        for name, shape, place in self.places:
            value = parameter.get(name)
            if value is None:
                return False
            if isinstance(value, np.ma.MaskedArray):
                return False
            array = np.asarray(value)
            if array.shape != shape or array.dtype.kind not in "fiu":
                return False
            out[place] = array.ravel()
        return True

    def stack(self, parameters: PyTree) -> np.ndarray | None:
        """Return the vectors of many instances (N, size); None where these are not for C."""
        parameters = self.family.vectors(parameters)
        if not self.mapped:
            return np.ascontiguousarray(self._stack_data(parameters), self.dtype)
        if is_named(parameters):
            return None
        return np.ascontiguousarray(self._check(parameters), self.dtype)

    def _check(self, parameters: PyTree) -> np.ndarray:
        """Return N parameters as an array (N, size); another shape, and what is not finite, is refused."""
        assert self.family.parameter is not None
        return self.family.parameter.check_parameters(parameters)

    def _stack_data(self, parameters: PyTree) -> np.ndarray:
        data = self.family.data(parameters)
        return np.concatenate([data[name] for name in self.names], axis=1)

    def explain_refusal(self, parameters: PyTree) -> ValueError:
        """Return what is wrong with a batch of one that the C code has refused: the family knows."""
        try:
            self.family.encode(parameters)
        except ValueError as error:
            return error
        return ValueError("the parameter is not finite in this precision, or bounds cross by rounding")


def _is_plain(block: Block) -> bool:
    """Return whether any finite array of its shape is a value of this parameter."""
    return not block.definite and block.lower is None and block.upper is None and block.first.size == block.place.size
