"""The versions that a result depends on, for records and certificates."""

import platform

import jax
import jaxlib
import numpy as np
import scipy

from .version import __version__


def versions() -> dict[str, str]:
    """Return the versions of longstep, Python and the libraries that compute."""
    modules = {"jax": jax, "jaxlib": jaxlib, "numpy": np, "scipy": scipy}
    return {
        "longstep": __version__,
        "python": platform.python_version(),
        **{name: module.__version__ for name, module in modules.items()},
    }
