"""What a run on the device leaves, gathered on the host; instances, if several, are on the last axis."""

import numpy as np
from jaxtyping import Array, Bool

from .._util.optional import map_given
from ..families.point import Point
from .solution import Ended, Status
from .stopping import Progress


def collect_ended(progress: Progress, point: Point, left: Status) -> Ended:
    """Return how instances ended, at these points; those that still run are said to be `left`."""
    status = np.asarray(progress.status)
    status = np.where(status == Status.RUNNING, left, status)
    acted = None
    if progress.guard is not None:
        acted = progress.guard.acted
    return {
        "x": np.asarray(point.x),
        "y": map_given(np.asarray, point.y),
        "s": map_given(np.asarray, point.s),
        **{name: np.asarray(value) for name, value in progress.report.items()},
        "status": status,
        "iterations": np.asarray(progress.iterations),
        "outside": None,
        "safeguarded": flag_safeguarded(acted, *status.shape),
        "ray_x": None,
        "ray_y": None,
        "changes": np.full(status.shape, -1),
    }


def collect_rays(status: np.ndarray, rays: Point) -> Ended:
    """Return the certificates of instances that are infeasible or unbounded, and NaN for the others."""
    assert rays.y is not None
    return {
        "ray_x": np.where(status == Status.DUAL_INFEASIBLE, rays.x, np.nan),
        "ray_y": np.where(status == Status.PRIMAL_INFEASIBLE, rays.y, np.nan),
    }


def flag_safeguarded(acted: Bool[Array, "*N"] | None, *shape: int) -> np.ndarray:
    """Return where the safeguard acted: nowhere, if there is none."""
    if acted is None:
        return np.zeros(shape, bool)
    return np.asarray(acted)


def widen_ended(ended: Ended) -> Ended:
    """Return the same with numbers of single precision in double precision."""
    return {name: map_given(_widen, value) for name, value in ended.items()}


def _widen(values: np.ndarray) -> np.ndarray:
    if values.dtype != np.float32:
        return values
    return values.astype(np.float64)
