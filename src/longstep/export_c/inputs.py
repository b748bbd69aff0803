"""From what a user passes as a parameter to the vector that the C code takes."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..families.base import is_named
from ..linalg.real import real_array
from .problem import Problem


class Inputs:
    """Parameters as vectors, or as named values; without a parameter map the data of an instance, over the base values.

    An instance that is given by its data although the family has a map is not for C: the caller turns to the solver.
    """

    def __init__(self, family: Any, problem: Problem, dtype: np.dtype):
        self.family = family
        self.mapped = problem.mapped
        self.size = problem.size
        self.dtype = dtype
        self.names = list(problem.data)
        layout = family.layout
        self.plain = layout is not None and all(_plain(block) for block in layout.parameters.values())
        self.places = []
        begin = 0
        for block in () if layout is None else layout.parameters.values():
            self.places.append((block.name, block.shape, slice(begin, begin + block.first.size)))
            begin += block.first.size

    def load(self, parameter: Any, out: np.ndarray) -> bool:
        """Write the vector of one instance; False where this is not for C."""
        if not self.mapped:
            out[:] = self._data(
                [parameter] if isinstance(parameter, Mapping) else real_array("the parameter", parameter)[None]
            )[0]
            return True
        if isinstance(parameter, Mapping):
            if self.family.layout is None:
                return False
            if not (self.plain and len(parameter) == len(self.places) and self._quick(parameter, out)):
                out[:] = self.family.layout.one(parameter)
            return True
        vector = real_array("the parameter", parameter)
        if vector.shape != (self.size,):
            self.family.parameter.checked(vector[None])
        out[:] = vector
        return True

    def _quick(self, parameter: Mapping, out: np.ndarray) -> bool:
        """Named values of plain arrays; False where something is odd, which the layout then says. C looks for NaN."""
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

    def batch(self, parameters: Any) -> np.ndarray | None:
        """The vectors of many instances (N, size); None where these are not for C."""
        parameters = self.family.vectors(parameters)
        if not self.mapped:
            return np.ascontiguousarray(self._data(parameters), self.dtype)
        if is_named(parameters):
            return None
        return np.ascontiguousarray(self.family.parameter.checked(parameters), self.dtype)

    def _data(self, parameters: Any) -> np.ndarray:
        data = self.family.data(parameters)
        return np.concatenate([data[name] for name in self.names], axis=1)

    def refusal(self, parameters: Any) -> ValueError:
        """What is wrong with a batch of one that the C code has refused: the family knows."""
        try:
            self.family.encode(parameters)
        except ValueError as error:
            return error
        return ValueError("the parameter is not finite in this precision, or bounds cross by rounding")


def _plain(block: Any) -> bool:
    """Whether any finite array of its shape is a value of this parameter."""
    return not block.definite and block.lower is None and block.upper is None and block.first.size == block.place.size
