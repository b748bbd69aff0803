"""JAX's switch between 32 and 64 bits: how a user turns it, and what is refused where it is off."""

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import DTypeLike
from typing_extensions import override


class _Float64(AbstractContextManager[None]):
    """JAX in 64 bits from now on; as a context manager until the block ends."""

    def __init__(self) -> None:
        import jax

        self._before = is_wide()
        jax.config.update("jax_enable_x64", True)

    @override
    def __exit__(self, *exception: object) -> None:
        import jax

        jax.config.update("jax_enable_x64", self._before)


def enable_float64() -> AbstractContextManager[None]:
    """Let JAX compute in 64 bits in this process, and return a context manager that restores what was.

    JAX computes in 32 bits unless told otherwise, and `import longstep` does not change that: call this once, before
    the first family is made. As `with longstep.enable_float64():` it holds inside the block alone; what is made there
    in float64 is refused outside of it. Families with dtype="float32" and compiled solvers do not need it.

    >>> import numpy as np
    >>> import longstep as ls
    >>> with ls.enable_float64():
    ...     family = ls.QP(np.eye(2), np.eye(2), q=np.zeros(2), l=np.zeros(2), u=np.ones(2))
    ...     solution = ls.Solver(family).solve({"q": [-0.5, 3.0]})
    >>> solution.x.dtype
    dtype('float64')
    """
    return _Float64()


def require_float64(dtype: DTypeLike) -> None:
    """Refuse float64 where JAX would silently round it to float32."""
    if dtype == np.float64 and not is_wide():
        raise ValueError(
            "float64 was asked for but JAX is in 32-bit mode. Call `longstep.enable_float64()` before families are "
            'made, and keep it on while they are used; or give the family dtype="float32".'
        )


def is_wide() -> bool:
    """Tell whether JAX is in 64-bit mode."""
    import jax

    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64
