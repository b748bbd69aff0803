"""Many instances by a library: in pieces on threads, and the certificates of those that are infeasible."""

import operator
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..engine.budget import Clock
from ..engine.solution import INFEASIBLE
from ..families.point import Point
from .library import Library, SettingValues, Slot


@dataclass(frozen=True, eq=False)
class Batch:
    """Instances in the numbers of a library: parameters (N, size), and where they start, None for zero."""

    library: Library
    settings: SettingValues
    values: np.ndarray
    start: Point | None

    def solve(self, threads: int | None, clock: Clock) -> np.ndarray:
        """Return the result structs (N,), computed on `threads` threads, by default one a core, until the clock
        ends."""
        count = len(self.values)
        results = np.zeros(count, self.library.result)
        clock.start()
        workers = min(threads or os.cpu_count() or 1, count)
        if workers == 1:
            self._solve_piece(results, slice(0, count), clock)
            return results
        # More pieces than threads, because instances may take very different numbers of steps.
        edges = np.linspace(0, count, min(count, 8 * workers) + 1).astype(int)
        pieces = map(slice, edges[:-1], edges[1:])
        with ThreadPoolExecutor(workers, thread_name_prefix="longstep") as pool:
            list(pool.map(lambda piece: self._solve_piece(results, piece, clock), pieces))
        return results

    def find_rays(self, status: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the certificates of what was infeasible, NaN for others; None where nothing was.

        The workspaces had other instances since: these few are solved again.
        """
        infeasible = np.flatnonzero(np.isin(status, INFEASIBLE))
        if not infeasible.size:
            return None, None
        slot = self._make_slot()
        ray_x = np.full((len(status), self.library.n), np.nan, self.library.dtype)
        ray_y = np.full((len(status), self.library.m), np.nan, self.library.dtype)
        for k in infeasible.tolist():
            slot.parameter[:] = self.values[k]
            slot.solve(slot.load_start(self._pick_start(k)))
            ray_x[k], ray_y[k] = slot.read_rays()
        return ray_x, ray_y

    def _solve_piece(self, results: np.ndarray, piece: slice, clock: Clock) -> None:
        """Solve a piece of the instances with a workspace of its own."""
        slot = self._make_slot()
        if clock.limit is None:
            slot.solve_many(self.values[piece], self._pick_start(piece), results[piece])
            return
        for k in range(piece.start, piece.stop):
            slot.parameter[:] = self.values[k]
            slot.solve_timed(slot.load_start(self._pick_start(k)), clock)
            results[k] = slot.result

    def _make_slot(self) -> Slot:
        """Return a new workspace with the settings."""
        slot = Slot(self.library)
        slot.set(self.settings)
        return slot

    def _pick_start(self, which: int | slice) -> Point | None:
        """Return the starts of an instance, or of a piece; None where there are none."""
        if self.start is None:
            return None
        return self.start.map(operator.itemgetter(which))
