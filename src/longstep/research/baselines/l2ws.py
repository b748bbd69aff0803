"""L2WS, learning to warm-start: a network from the parameter to the start of a solver with constant hyperparameters.

After Sambharya, Hall, Amos and Stellato, "End-to-end learning to warm-start for real-time quadratic optimization"
(2023) and "Learning to warm-start fixed-point optimization algorithms" (2024), with their regression loss.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...algorithms.base import Algorithm
from ...data.dataset import Split
from ...engine.loop import run_steps
from ...engine.plan import Plan
from ...engine.problem import Problem
from ...families.base import Family
from ...families.conic import Conic
from ...families.point import Point
from ...solver import Solver
from ...training.losses import Task
from .networks import (
    Descent,
    Standard,
    TrainingBatch,
    TrainingData,
    compute_outputs,
    hash_network,
    list_weights,
    make_features,
    make_perceptron,
)
from .warm_starts import Started

# Instances whose starts the network computes at once.
_WIDE = 4096


class Scales(eqx.Module):
    """The network's outputs ν as points in the user's units: z⁰ = mean + deviation ⊙ ν, of the training optima.

    x without constraints, (x, y) for a QP, whose constraint value starts at Ax, and (x, y, s) for a Conic. ν = 0 is the
    mean optimum; entries that are the same in all training optima stay there.
    """

    mean: Float[Array, " k"]
    deviation: Float[Array, " k"]
    ends: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def of(family: Family, data: TrainingData) -> "Scales":
        """Return the statistics of a split's optima."""
        if (optima := data.optima) is None:
            raise ValueError(
                "learning a warm start regresses on optima, and this split has none: make it with "
                "Dataset.sample(…, references=True)"
            )
        parts = [optima.x, optima.y]
        if isinstance(family, Conic):
            parts.append(optima.s)
        rows = [np.asarray(part) for part in parts if part is not None]
        ends = tuple(np.cumsum([part.shape[1] for part in rows]).tolist())
        optimum = np.concatenate(rows, axis=1)
        mean, deviation = (jnp.asarray(a, family.dtype) for a in (optimum.mean(axis=0), optimum.std(axis=0)))
        return Scales(mean, deviation, ends)

    def make_points(self, nu: Float[Array, "k N"]) -> Point:
        """Return the starts, as columns."""
        z = self.mean[:, None] + self.deviation[:, None] * nu
        return Point(*jnp.split(z, self.ends[:-1]))


class UnrolledBase(eqx.Module):
    """`count` steps of the base from the learned start; called, the log errors log‖z^K − z*‖² after them.

    Distances are in the θ-independent coordinates of the algorithm, as in training schedules. Instances are columns
    that share the base's factor.
    """

    algorithm: Algorithm
    family: Family
    plan: Plan
    scales: Scales
    count: int = eqx.field(static=True)

    def __call__(self, network: eqx.nn.MLP, batch: TrainingBatch) -> Float[Array, " N"]:
        """Return the errors after the steps from the network's starts."""
        instance = self.family.decode(jax.tree.map(jnp.asarray, batch.encoded))
        start = self.scales.make_points(compute_outputs(network, batch.inputs).T)
        problem = Problem(self.algorithm, self.family, self.plan, instance)
        state = self.algorithm.init(self.family, instance, start)
        state, _, _ = run_steps(problem, state, self.count, 0, lambda state: ())
        distance = Task(self.algorithm, self.family, instance, jnp.asarray(batch.target), None).errors(state).distance
        assert distance is not None
        return distance


@eqx.filter_jit
def _compute_points(scales: Scales, network: eqx.nn.MLP, inputs: Float[Array | np.ndarray, "N d"]) -> Point:
    return jax.tree.map(jnp.transpose, scales.make_points(compute_outputs(network, inputs).T))


@dataclass(frozen=True, eq=False)
class NetworkStart:
    """The `ComputedStart` of `l2ws`: parameters to points with a leading axis of instances."""

    solver: Solver
    standard: Standard
    scales: Scales
    network: eqx.nn.MLP

    def __call__(self, parameters: PyTree) -> Point:
        """Return the network's starts."""
        inputs = self.standard(make_features(self.solver.family, parameters))
        parts = [
            _compute_points(self.scales, self.network, inputs[i : i + _WIDE]) for i in range(0, len(inputs), _WIDE)
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def content_hash(self) -> str:
        """Return a SHA-256 of the network and of how its inputs and outputs are scaled."""
        scales = np.asarray(self.scales.mean), np.asarray(self.scales.deviation), self.scales.ends
        return hash_network("l2ws", self.solver, self.standard, self.network, *scales)


@dataclass(frozen=True, eq=False)
class L2WS(Started):
    """A `Method`: the base solver, run from the start that a network computes from the parameter.

    `record` is plain JSON: losses (logarithms of mean squared errors, by iteration), seconds, sizes.
    """

    @property
    def weights(self) -> int:
        """How many numbers were trained."""
        assert isinstance(self.start, NetworkStart)
        return sum(a.size for a in list_weights(self.start.network))


def l2ws(
    solver: Solver,
    split: Split,
    *,
    hidden: tuple[int, ...] = (500, 500),
    steps: int = 10,
    iterations: int = 2000,
    learning_rate: float = 1e-3,
    batch: int = 1000,
    seed: int = 0,
    progress: bool = True,
) -> L2WS:
    """Train a network from parameters to starts on a split with optima; `solver`, the base, is constant.

    The loss is the logarithm of the mean squared distance to the optima after `steps` unrolled steps of the base, over
    batches of at most `batch` instances. The network begins at the mean optimum, and the best one seen is kept.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver
    >>> family = Quadratic(np.diag([1.0, 20.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"train": 8}, cache=False, progress=False)
    >>> method = l2ws(Solver(family), data.train, hidden=(8,), steps=2, iterations=20, progress=False)
    >>> method.record["best"] < method.record["start"]
    True
    """
    if steps < 0:
        raise ValueError(f"the number of unrolled steps must not be negative, got {steps}")
    descent = Descent(int(iterations), float(learning_rate), int(batch), int(seed))
    data = TrainingData(solver, split)
    family = solver.family
    scales = Scales.of(family, data)
    network = make_perceptron(data.standard.size, scales.ends[-1], hidden, seed, family.dtype)
    # A few steps climb no ladder, and its loops have no derivative.
    plain = replace(solver.plan, ladder=None)
    unrolled = UnrolledBase(solver.algorithm, family, plain, scales, int(steps))
    network, record = descent.fit(unrolled, network, data, "L2WS", progress)
    record = {**record, "steps": int(steps), "loss": "log mean squared distance"}
    start = NetworkStart(solver, data.standard, scales, network)
    return L2WS(solver, start, f"L2WS, N = {len(data)}", record)
