"""LM, the learned metric: a network from the parameter to hyperparameters by component, constant over iterations.

After King, Kotary, Fioretto and Drgoňa, "Metric learning to accelerate convergence of operator splitting methods"
(2024). The metric differs between instances, so every instance needs its own factorization, online: that is the
method's nature, and its times include it.
"""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._util.plain import Json
from ..._util.threads import one_blas_thread
from ...algorithms.residuals import Residuals
from ...data.dataset import Split
from ...engine.history import History
from ...engine.loop import run_steps
from ...engine.problem import Problem
from ...families.base import Family
from ...solver import Solver
from ...training.losses import Task
from .metric import ComponentMetric
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
    split_pieces,
)

ResultT = TypeVar("ResultT")


class UnrolledMetric(eqx.Module):
    """`count` steps of every instance from zero in its own metric; called, the log errors after them."""

    metric: ComponentMetric
    count: int = eqx.field(static=True)

    def __call__(self, network: eqx.nn.MLP, batch: TrainingBatch) -> Float[Array, " N"]:
        """Return log‖z^K − z*‖² in θ-independent coordinates, or log φ² of the residuals where there are no optima."""
        batch = jax.tree.map(jnp.asarray, batch)

        def measure_one(problem: Problem, state: PyTree, i: Array) -> Array:
            state = run_steps(problem, state, self.count, 0, lambda state: ())[0]
            target, optimum = jax.tree.map(lambda a: a[..., i], (batch.target, batch.value))
            errors = Task(problem.algorithm, problem.family, problem.instance, target, optimum).errors(state)
            if errors.distance is None:
                return errors.metric
            return errors.distance

        return _map_instances(self.metric, network, batch.inputs, batch.encoded, measure_one)


@eqx.filter_jit
def _record(metric: ComponentMetric, network: eqx.nn.MLP, inputs: Array, encoded: PyTree, count: int) -> Residuals:
    """Return the residuals (N, count + 1) of all iterates."""

    def record_one(problem: Problem, state: PyTree, _: Array) -> Residuals:
        return run_steps(problem, state, count, 0, problem.residuals)[1]

    return _map_instances(metric, network, inputs, encoded, record_one)


@eqx.filter_jit
def _reach(
    metric: ComponentMetric, network: eqx.nn.MLP, inputs: Array, encoded: PyTree, count: int
) -> Float[Array, "N k"]:
    """Return the states after `count` steps."""

    def reach_one(problem: Problem, state: PyTree, _: Array) -> Array:
        state = run_steps(problem, state, count, 0, lambda state: ())[0]
        return metric.algorithm.coordinates(metric.family, problem.instance, state)

    return _map_instances(metric, network, inputs, encoded, reach_one)


def _map_instances(
    metric: ComponentMetric,
    network: eqx.nn.MLP,
    inputs: Float[Array | np.ndarray, "N d"],
    encoded: PyTree,
    do: Callable[[Problem, PyTree, Array], ResultT],
) -> ResultT:
    """Return `do(problem, zero start, number)` of every instance, in its own metric."""
    instances = metric.family.decode(encoded)

    def do_one(i: Array, nu: Array) -> ResultT:
        instance = metric.family.take(instances, i)
        return do(metric.make_problem(nu, instance), metric.algorithm.init(metric.family, instance, None), i)

    return jax.vmap(do_one)(jnp.arange(len(inputs)), compute_outputs(network, inputs))


class LearnedMetric:
    """A `Method`: the base solver's algorithm with hyperparameters by component that a network picks by instance.

    `record` is plain JSON: losses (logarithms of mean squared errors, by iteration), seconds, sizes. Nothing bounds
    the hyperparameters to a convergent range, so there is no guarantee.
    """

    def __init__(
        self, solver: Solver, metric: ComponentMetric, standard: Standard, network: eqx.nn.MLP, record: dict[str, Json]
    ):
        self.solver = solver
        self.metric = metric
        self.standard = standard
        self.network = network
        self.record = record

    @property
    def name(self) -> str:
        """What it is, and how many instances it was trained on."""
        return f"learned metric, N = {self.record['instances']}"

    @property
    def family(self) -> Family:
        """What it solves."""
        return self.solver.family

    @property
    def weights(self) -> int:
        """How many numbers were trained."""
        return sum(a.size for a in list_weights(self.network))

    def pick_hyperparameters(self, parameters: PyTree) -> Float[np.ndarray, "N k"]:
        """Return what the network picks: steps by coordinate, or what ρ is multiplied and r_y divided by, by row."""
        nu = compute_outputs(self.network, self.standard(make_features(self.family, parameters)))
        return np.asarray(jax.vmap(self.metric.spread)(nu))

    def run(self, parameters: PyTree, count: int, *, chunk: int | None = None) -> History:
        """Return residuals and objectives of the zero start and after each of `count` steps, (N, count + 1).

        Instances are run `chunk` at a time, by default 32 where each has a dense factor and 512 elsewhere.
        """
        if count < 0:
            raise ValueError(f"the number of steps must not be negative, got {count}")
        with one_blas_thread():
            parts = self._run_pieces(_record, parameters, count, chunk)
        fields = {name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])}
        return History(**fields, safeguarded=np.zeros(self.family.count(parameters), bool))  # type: ignore

    def seconds(self, parameters: PyTree, count: int) -> np.ndarray:
        """Return the seconds (N,) of network, factorizations and `count` steps, an equal share for each instance."""
        with one_blas_thread():
            self._run_pieces(_reach, parameters, count, None)  # compiles
            begin = perf_counter()
            number = self.family.count(parameters)
            self._run_pieces(_reach, parameters, count, None)
            return np.full(number, (perf_counter() - begin) / number)

    def content_hash(self) -> str:
        """Return a SHA-256 of the base solver and the network: all that the iterates depend on."""
        return hash_network("learned metric", self.solver, self.standard, self.network)

    def _run_pieces(
        self, program: Callable[..., ResultT], parameters: PyTree, count: int, chunk: int | None
    ) -> list[ResultT]:
        """Return what a program gives for pieces of the instances, on the host."""
        family = self.family
        if chunk is None:
            chunk = self.metric.wide
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        inputs = self.standard(make_features(family, parameters))
        encoded = family.encode(parameters)
        parts = []
        with self.metric.use_double():
            for index, new in split_pieces(len(inputs), chunk):
                found = program(self.metric, self.network, inputs[index], family.take(encoded, index), int(count))
                parts.append(jax.tree.map(lambda a, new=new: np.asarray(a)[:new], found))
        return parts


def train_learned_metric(
    solver: Solver,
    split: Split,
    *,
    hidden: tuple[int, ...] = (500, 500),
    steps: int = 30,
    iterations: int = 500,
    learning_rate: float = 1e-3,
    batch: int = 32,
    seed: int = 0,
    progress: bool = True,
) -> LearnedMetric:
    """Train LM on a split: a network from parameters to hyperparameters around those of `solver`, which is constant.

    The loss after `steps` unrolled steps is the logarithm of the mean squared distance to the optima, or, for a split
    without optima, of the mean squared metric; `batch` instances, each with its own factorization, make a gradient.
    The network begins at the base's hyperparameters, and the best one seen is kept.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, Solver
    >>> family = Quadratic(np.diag([1.0, 20.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"train": 8}, cache=False, progress=False)
    >>> method = train_learned_metric(Solver(family), data.train, hidden=(8,), steps=5, iterations=20, progress=False)
    >>> method.record["best"] < method.record["start"]
    True
    """
    if steps < 1:
        raise ValueError(f"the loss needs at least one step, got steps={steps}")
    descent = Descent(int(iterations), float(learning_rate), int(batch), int(seed))
    data = TrainingData(solver, split)
    metric = ComponentMetric.of_solver(solver)
    network = make_perceptron(data.standard.size, metric.size, hidden, seed, solver.family.dtype)
    with metric.use_double(), one_blas_thread():
        network, record = descent.fit(UnrolledMetric(metric, int(steps)), network, data, "learned metric", progress)
    loss = "log mean squared distance"
    if data.optima is None:
        loss = "log mean squared metric"
    return LearnedMetric(solver, metric, data.standard, network, {**record, "steps": int(steps), "loss": loss})
