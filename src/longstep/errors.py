"""The errors that longstep raises beside Python's own (ValueError, TypeError, MemoryError, OSError).

>>> from longstep import errors, read_samples
>>> from longstep.families.names import Block, Layout
>>> import numpy as np
>>> try:
...     read_samples(".", Layout([Block("price", np.array(0))], []))
... except errors.SamplesError as error:
...     print(error)
. is a folder; name a file in it
"""


class SamplesError(ValueError):
    """A file of samples that cannot be used, with what is wrong, where, and what to do."""


class FileFormatError(ValueError):
    """A file that longstep did not write, cannot read, or that has changed since it was written."""


class CertificateError(ValueError):
    """A certificate that does not hold for what it was checked against, or cannot be made from what was given."""


class NoOptimumError(ValueError):
    """An instance that has no solution where an optimum is needed."""


class InaccurateReferenceError(RuntimeError):
    """A reference optimum that did not reach the accuracy that was asked for."""


class CompilerError(RuntimeError):
    """The C compiler refused what it was given."""


class NoCompilerError(CompilerError):
    """There is no C compiler."""


class NoRoomError(CompilerError):
    """There is no folder that C can be built in: disks are full, or cannot be written."""
