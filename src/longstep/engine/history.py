"""What a run of many steps left behind."""

import numpy as np
from jaxtyping import Bool

from ..algorithms.residuals import Residuals


class History(Residuals):
    """The residuals of a run, arrays (N, steps + 1), and for which instances the safeguard acted, (N,)."""

    safeguarded: Bool[np.ndarray, " N"]
