"""Robust Kalman filtering: a vehicle's path from position measurements with outliers, by SCS's iteration.

    minimise Σₜ ‖wₜ‖² + μψ(vₜ)  subject to  sₜ₊₁ = Asₜ + Bwₜ,  yₜ = Csₜ + vₜ,  t = 0 … T − 1

with Huber's ψ(a) = ‖a‖² for ‖a‖ ≤ ρ, else 2ρ‖a‖ − ρ². The state s is position and velocity in the plane, w a force;
the first state is free. ψ(v) is the least z² + 2ρu with u + z = h, ‖v‖ ≤ h, z ≤ ρ, u ≥ 0, so the unknowns
(s, w, h, v, u, z), each for all times in order, number 11T, and the rows are

    zero          sₜ₊₁ − Asₜ − Bwₜ = 0,  Csₜ + vₜ = yₜ,  uₜ + zₜ − hₜ = 0       4(T − 1) + 2T + T
    nonnegative   zₜ ≤ ρ,  uₜ ≥ 0                                              2T
    second order  ‖vₜ‖ ≤ hₜ                                                     T cones of size 3

P is 2 on w and 2μ on z, c is 2μρ on u. The parameter is the measurements (y₀, …, y_{T−1}), 2T numbers.

Windows of T measurements slide over longer trajectories, so neighbours share T − 1 of them: instances of one trajectory
are not independent, splits must not share a trajectory, and certificates for independent instances do not apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, PyTree
from typing_extensions import override

from longstep import Affine, Cones, Conic, Point, Training

from ..baselines.warm_starts import Started, previous_solution
from . import methods
from .experiment import Experiment, Result
from .methods import Entry, Extent
from .sizes import Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DT = 0.5
DRAG = 0.05
FORCE_VARIANCE = 0.01
NOISE_VARIANCE = 0.01
OUTLIER_VARIANCE = 0.25
OUTLIER_PROBABILITY = 0.1


def dynamics() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return A, B and C of s⁺ = As + Bw, y = Cs + v."""
    I = np.eye(2)
    zero = np.zeros((2, 2))
    A = np.block([[I, (1 - DRAG * DT / 2) * DT * I], [zero, (1 - DRAG * DT) * I]])
    return A, np.vstack([DT**2 / 2 * I, DT * I]), np.hstack([I, zero])


@dataclass(frozen=True)
class Windows:
    """Measurements (N, 2T), the parameters, window by window in order, and the trajectory (N,) each is from."""

    measurements: np.ndarray
    trajectory: np.ndarray

    def __len__(self) -> int:
        return len(self.measurements)


@dataclass(frozen=True)
class Kalman:
    """Filtering over `horizon` measurements; trajectories have `length` of them.

    >>> problem = Kalman(horizon=5, length=12)
    >>> problem.family.n, len(problem.draw_windows(np.random.default_rng(0), trajectories=2))
    (55, 16)
    """

    horizon: int = 50
    length: int = 150
    mu: float = 2.0
    rho: float = 2.0
    equilibrate: bool = True
    dtype: str = "float64"

    def __post_init__(self):
        if not 2 <= self.horizon <= self.length:
            raise ValueError(f"need 2 ≤ horizon ≤ length, got horizon {self.horizon} and length {self.length}")

    @cached_property
    def blocks(self) -> dict[str, slice]:
        """Where s, w, h, v, u and z are among the unknowns."""
        sizes = {"s": 4, "w": 2, "h": 1, "v": 2, "u": 1, "z": 1}
        ends = np.cumsum([size * self.horizon for size in sizes.values()]).tolist()
        return {name: slice(end - sizes[name] * self.horizon, end) for name, end in zip(sizes, ends, strict=True)}

    @cached_property
    def family(self) -> Conic:
        """The conic program with the measurements as its parameter."""
        T = self.horizon
        n = 11 * self.horizon
        unknown = sp.eye_array(n, format="csr")
        s, w, h, v, u, z = (unknown[block] for block in self.blocks.values())
        A, B, C = dynamics()
        now = sp.eye_array(T - 1, T)
        following = sp.eye_array(T - 1, T, k=1)
        motion = (sp.kron(following, np.eye(4)) - sp.kron(now, A)) @ s - sp.kron(now, B) @ w
        observation = sp.kron(sp.eye_array(T), C) @ s + v
        first = np.eye(3)[:, :1]
        last = np.eye(3)[:, 1:]
        cones = sp.kron(sp.eye_array(T), first) @ h + sp.kron(sp.eye_array(T), last) @ v
        rows = sp.vstack([motion, observation, u + z - h, z, -u, -cones])
        zero = 4 * (T - 1) + 3 * T
        b = np.zeros(rows.shape[0])
        c = np.zeros(n)
        P = np.zeros(n)
        b[zero : zero + T] = self.rho
        P[self.blocks["w"]] = 2.0
        P[self.blocks["z"]] = 2 * self.mu
        c[self.blocks["u"]] = 2 * self.mu * self.rho
        measured = sp.eye_array(rows.shape[0], 2 * T, k=-4 * (T - 1))
        return Conic(
            sp.diags_array(P),
            rows,
            Cones(zero=zero, nonnegative=2 * T, second_order=(3,) * T),
            b=b,
            c=c,
            parameter=Affine(b=measured),
            equilibrate=self.equilibrate,
            dtype=self.dtype,
        )

    def simulate(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return one trajectory from rest at the origin: its states (length, 4) and measurements (length, 2)."""
        A, B, C = dynamics()
        forces = np.sqrt(FORCE_VARIANCE) * rng.normal(size=(self.length, 2))
        outlier = rng.random(self.length) < OUTLIER_PROBABILITY
        variance = np.where(outlier, OUTLIER_VARIANCE, NOISE_VARIANCE)
        noise = np.sqrt(variance)[:, None] * rng.normal(size=(self.length, 2))
        states = np.zeros((self.length, 4))
        for t in range(self.length - 1):
            states[t + 1] = A @ states[t] + B @ forces[t]
        return states, states @ C.T + noise

    def slide(self, measurements: np.ndarray) -> np.ndarray:
        """Return the windows (length − T + 1, 2T) of one trajectory's measurements (length, 2), in order."""
        view = np.lib.stride_tricks.sliding_window_view(measurements, self.horizon, axis=0)
        return np.ascontiguousarray(view.swapaxes(1, 2)).reshape(len(view), 2 * self.horizon)

    def draw_windows(self, rng: np.random.Generator, trajectories: int = 1) -> Windows:
        """Return all windows of new trajectories, numbered from zero."""
        drawn = [self.slide(self.simulate(rng)[1]) for _ in range(trajectories)]
        return Windows(np.concatenate(drawn), np.repeat(np.arange(trajectories), len(drawn[0])))

    def draw_splits(self, trajectories: Mapping[str, int], seed: int = 0) -> dict[str, Windows]:
        """Return whole trajectories for every split, from a stream of random numbers of its own.

        Trajectories are numbered on from split to split. For `Dataset.from_parameters` take
        {name: windows.measurements}.
        """
        parts = {}
        first = 0
        for name, count in trajectories.items():
            part = self.draw_windows(np.random.default_rng([seed, *name.encode()]), count)
            parts[name] = Windows(part.measurements, first + part.trajectory)
            first += count
        return parts

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return a window (2T,) somewhere in a new trajectory: independent instances, for `Dataset.sample`."""
        windows = self.slide(self.simulate(rng)[1])
        return windows[rng.integers(len(windows))]

    def shift(self, point: Point) -> Point:
        """Return points (leading axis: instances) one period on: every block moves up by one, its last period stays."""
        T = self.horizon
        unknowns = [4, 2, 1, 2, 1, 1]
        # Dynamics (one fewer than T), observations, u + z = h; z ≤ ρ, u ≥ 0; the cones.
        rows = [(4, T - 1), (2, T), (1, T), (1, T), (1, T), (3, T)]
        x = _move_blocks(np.asarray(point.x), [(size, T) for size in unknowns])
        rest = [_move_blocks(np.asarray(part), rows) for part in (point.y, point.s) if part is not None]
        return Point(x, *rest)  # type: ignore


def _move_blocks(values: Float[np.ndarray, "N k"], blocks: list[tuple[int, int]]) -> Float[np.ndarray, "N k"]:
    """Return blocks of (size, periods), each a period on, the last period twice."""
    out = values.copy()
    begin = 0
    for size, periods in blocks:
        end = begin + size * periods
        out[:, begin : end - size] = values[:, begin + size : end]
        begin = end
    return out


_SMALL = Size(few=60, slow=60, timed=0, hidden=(30, 30), l2ws=60, lm=15)


class KalmanExperiment(Experiment[Conic]):
    """Windows that slide over trajectories: not independent, so there is no certificate."""

    name = "kalman"
    title = "Robust Kalman filtering, SCS"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL, problem={"horizon": 8, "length": 30}, test=60, steps=120, horizon=10, package_steps=60,
            training={"iterations": 8, "candidates": 12, "starts": 1}
        ),
        "reference": Size(test=200, few=200, steps=300),
        "paper": Size(slow=30, steps=300, neighbours=1000, networks=(10, 1000), l2ws=300, lm=50, package=20),
    }  # fmt: skip
    references = ("train", "test")
    iid = False
    pictured = (2, 20)

    @cached_property
    def problem(self) -> Kalman:
        """The problem at this size."""
        return Kalman(**self.size.problem)

    @cached_property
    def windows(self) -> dict[str, Windows]:
        """Return the windows of as many whole trajectories as are needed."""
        each = self.problem.length - self.problem.horizon + 1
        return self.problem.draw_splits({k: -(-count // each) for k, count in self.counts.items()}, self.options.seed)

    @override
    def draw_parameters(self) -> dict[str, PyTree]:
        """Return test windows in their order, training windows in a random one: neighbours are alike."""
        test = self.windows["test"]
        train = self.windows["train"]
        order = np.random.default_rng([self.options.seed, *b"order"]).permutation(len(train))
        return {
            "train": train.measurements[order[: self.counts["train"]]],
            "test": test.measurements[: self.counts["test"]],
        }

    @override
    def train_main(self) -> Training:
        return self.learn("schedule")

    @override
    def list_entries(self) -> list[Entry]:
        family = self.family
        size = self.size
        training = self.train_main()
        plain = Kalman(**self.size.problem, equilibrate=False).family
        slow: Extent = {"instances": size.package, "steps": size.package_steps}
        return [
            methods.make_learned("learned", f"learned, N = {size.train}", family, self.train_main),
            methods.make_best_constant(family, training),
            methods.make_vanilla(family, "vanilla, SCS's defaults"),
            methods.make_unit_scalings(plain, instances=size.few),
            self._make_previous(training),
            *self.list_networks(training, steps=min(100, size.steps)),
            methods.make_scs(family, self.trained_on, 0, **slow),
            methods.make_scs(family, self.trained_on, 10, **slow),
        ]

    def _make_previous(self, training: Training) -> Entry:
        test = self.data.test
        sequence = self.windows["test"].trajectory[: len(test)]
        settings = {"constant": methods.describe_schedule(training.constant)}

        def make() -> Started:
            return previous_solution(methods.make_base(self.family, training), test, self.problem.shift, sequence)

        return Entry("previous", "previous solution, shifted", make, lambda: settings)

    @override
    def draw_pictures(self, results: list[Result]) -> "dict[str, Figure]":
        """Draw positions: measured, optimal, and by each method after twenty iterations."""
        from .pictures import collect_points, draw_tracks

        optima = self.data.test.optima
        found = {}
        assert optima is not None
        assert self.pictured is not None
        count, after = self.pictured
        place = self.problem.blocks["s"]
        for i in range(count):
            points = self.data.test.parameters[i].reshape(-1, 2)
            lines = {name: x[i] for name, x in ({"optimum": optima.x} | collect_points(results)).items()}
            lines = {name: x[place].reshape(-1, 4)[:, :2] for name, x in lines.items()}
            found[f"tracks-{i + 1}"] = draw_tracks(points, lines, f"After {after} iterations", "optimum")
        return found
