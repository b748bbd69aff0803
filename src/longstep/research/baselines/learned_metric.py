"""LM, the learned metric: a network from the parameter to hyperparameters by component, constant over iterations.

After King, Kotary, Fioretto and Drgoňa, "Metric learning to accelerate convergence of operator splitting methods"
(2024). The metric differs between instances, so every instance needs its own factorization, online: that is the
method's nature, and its times include it.
"""

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import perf_counter
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from typing_extensions import override

from ..._util.plain import Json
from ..._util.threads import one_blas_thread
from ...algorithms.base import Algorithm
from ...algorithms.gradient import GradientMethod
from ...algorithms.osqp import OSQP
from ...algorithms.residuals import Residuals
from ...algorithms.scs import SCS
from ...certificates.gradient_steps import STEP
from ...data.dataset import Split
from ...engine.history import History
from ...engine.loop import steps
from ...engine.plan import Plan, Problem
from ...families.base import Family
from ...families.composite import Composite
from ...families.conic import Conic
from ...families.constrained import ConstrainedFamily
from ...families.quadratic_program import QP
from ...linalg.matrix import DenseMatrix, MappableMatrix, SparseMatrix
from ...linalg.prox import L1, Box, NonNegative, Zero
from ...linalg.systems import ONCE, Factored, factorize
from ...solver import Solver
from ...training.losses import Task
from .networks import (
    Batch,
    Descent,
    Standard,
    TrainingData,
    features,
    network_hash,
    outputs,
    perceptron,
    pieces,
    weights,
)

# Three decades around the base: farther out linear systems become singular before anything is gained.
_REACH = float(np.log(1e3))
# Matrices with at most this many entries are dense here.
_DENSE = 1_000_000
ResultT = TypeVar("ResultT")
# Names of hyperparameters, their base values by component, and the group of every component.
Components: TypeAlias = tuple[tuple[str, ...], np.ndarray, np.ndarray]


@functools.singledispatch
def choose_components(algorithm: Algorithm, family: Family, theta: dict[str, float]) -> Components:
    """Return the hyperparameters that become vectors, their base values, and which components share a value."""
    raise TypeError(f"no metric is known for {type(algorithm).__name__}")


@choose_components.register
def _(algorithm: GradientMethod, family: Family, theta: dict[str, float]) -> Components:
    # In a metric of unequal steps only a separable g keeps its prox.
    separable = not isinstance(family, Composite) or isinstance(family.g, Zero | L1 | NonNegative | Box)
    groups = np.arange(family.n) if separable else np.zeros(family.n, int)
    return (STEP,), np.full(family.n, theta[STEP]), groups


@choose_components.register
def _(algorithm: OSQP, family: QP, theta: dict[str, float]) -> Components:
    rho = np.where(family.equality, theta["rho_eq"], theta["rho_ineq"])
    return ("rho_eq", "rho_ineq"), rho, np.arange(family.matrices.m)


@choose_components.register
def _(algorithm: SCS, family: Conic, theta: dict[str, float]) -> Components:
    # Projections onto most cones are Euclidean: one weight for a whole cone.
    values = np.where(family.cones.equalities, theta["r_yz"], theta["r_ynz"])
    return ("r_yz", "r_ynz"), values, family.cones.blocks()


def _make_mappable(matrix: PyTree) -> PyTree:
    """Return the same matrix in a form that is fast under `vmap`."""
    if not isinstance(matrix, SparseMatrix):
        return matrix
    m = matrix.forward.index.shape[1]
    n = matrix.backward.index.shape[1]
    if m * n <= _DENSE:
        return DenseMatrix(matrix.dense())
    return MappableMatrix(matrix.forward, matrix.backward)


class _Double(Factored):
    """A float64 factor that is applied to float32 vectors."""

    factor: Factored

    @override
    def solve(self, K, b):
        return self.factor.solve(K, b.astype(jnp.float64)).astype(b.dtype)


class Metric(eqx.Module):
    """θ by component from the network's outputs ν:

        θ_j = base_j · exp(r·tanh(ν_g(j)/r)),   r = log 1000,

    g(j) being the group of component j; ν = 0 is the base. Gradient methods: the step of every coordinate, one for all
    where the prox is not known to be separable. OSQP: ρ of every row. SCS: r_y of every row of the zero and the
    nonnegative cone, and one for every other cone. All other hyperparameters are the base's.
    """

    algorithm: Algorithm
    family: Family
    theta: dict[str, Float[Array, ""]]
    base: Float[Array, " k"]
    groups: Int[Array, " k"]
    names: tuple[str, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @staticmethod
    def around(solver: Solver) -> "Metric":
        """Return the metric whose base is a solver's constant hyperparameters."""
        dtype = solver.family.dtype
        steady = solver.schedule.steady
        names, base, groups = choose_components(solver.algorithm, solver.family, steady)
        if not len(groups):
            raise ValueError("this family has no constraint rows, so there is no metric to learn")
        theta = {name: jnp.asarray(value, dtype) for name, value in steady.items()}
        family = jax.tree.map(_make_mappable, solver.family, is_leaf=lambda x: isinstance(x, SparseMatrix))
        groups, size = jnp.asarray(groups, jnp.int32), int(groups.max()) + 1
        return Metric(solver.algorithm, family, theta, jnp.asarray(base, dtype), groups, names, size)

    def vector(self, nu: Float[Array, " size"]) -> Float[Array, " k"]:
        """Return the hyperparameters by component."""
        return self.base * jnp.exp(_REACH * jnp.tanh(nu / _REACH))[self.groups]

    def problem(self, nu: Float[Array, " size"], instance: PyTree) -> Problem:
        """Return one instance with its own θ and its own factor."""
        theta = self.theta | dict.fromkeys(self.names, self.vector(nu))
        stacked = {name: value[None] for name, value in theta.items()}
        factors = jax.tree.map(lambda a: a[None], self._factor(theta))
        return Problem(self.algorithm, self.family, Plan(stacked, factors, jnp.zeros(1, jnp.int32), 0), instance)

    def _factor(self, theta: dict[str, Array]) -> Factored | None:
        if self.family.dtype == np.float64:
            return self._prepare(self.family, theta)
        # As for a solver's factors, single precision is for the steps alone.
        exact = jax.tree.map(lambda a: a.astype(jnp.float64) if eqx.is_inexact_array(a) else a, (self.family, theta))
        factor = self._prepare(*exact)
        return None if factor is None else _Double(factor)

    def _prepare(self, family: Family, theta: dict[str, Array]) -> Factored | None:
        if self.algorithm.pattern(family) is None:
            return None
        # Rows with weights of their own share no eigenvectors.
        K = dataclasses.replace(self.algorithm.operator(family, theta), spectrum=None)
        return factorize(K, ONCE)

    def use_double(self) -> AbstractContextManager:
        """Return the context in which a float32 family's programs run: factors are made in float64."""
        if self.family.dtype == np.float64:
            return nullcontext()
        return jax.enable_x64(True)

    @property
    def wide(self) -> int:
        """How many instances are run at once: few where each has a dense factor."""
        dense = isinstance(self.family, ConstrainedFamily) and not self.family.matrices.diagonal
        return 32 if dense else 512


class Unrolled(eqx.Module):
    """`count` steps of every instance from zero in its own metric; called, the log errors after them."""

    metric: Metric
    count: int = eqx.field(static=True)

    def __call__(self, network: eqx.nn.MLP, batch: Batch) -> Float[Array, " N"]:
        """Return log‖z^K − z*‖² in θ-independent coordinates, or log φ² of the residuals where there are no optima."""
        batch = jax.tree.map(jnp.asarray, batch)

        def one(problem: Problem, state: PyTree, i: Array) -> Array:
            state = steps(problem, state, self.count, 0, lambda state: ())[0]
            target, optimum = jax.tree.map(lambda a: a[..., i], (batch.target, batch.value))
            errors = Task(problem.algorithm, problem.family, problem.instance, target, optimum).errors(state)
            if errors.distance is None:
                return errors.metric
            return errors.distance

        return _map_instances(self.metric, network, batch.inputs, batch.encoded, one)


@eqx.filter_jit
def _record(metric: Metric, network: eqx.nn.MLP, inputs: Array, encoded: PyTree, count: int) -> Residuals:
    """Return the residuals (N, count + 1) of all iterates."""

    def one(problem: Problem, state: PyTree, _: Array) -> Residuals:
        return steps(problem, state, count, 0, problem.residuals)[1]

    return _map_instances(metric, network, inputs, encoded, one)


@eqx.filter_jit
def _reach(metric: Metric, network: eqx.nn.MLP, inputs: Array, encoded: PyTree, count: int) -> Float[Array, "N k"]:
    """Return the states after `count` steps."""

    def one(problem: Problem, state: PyTree, _: Array) -> Array:
        state = steps(problem, state, count, 0, lambda state: ())[0]
        return metric.algorithm.coordinates(metric.family, problem.instance, state)

    return _map_instances(metric, network, inputs, encoded, one)


def _map_instances(
    metric: Metric,
    network: eqx.nn.MLP,
    inputs: Float[Array | np.ndarray, "N d"],
    encoded: PyTree,
    do: Callable[[Problem, PyTree, Array], ResultT],
) -> ResultT:
    """Return `do(problem, zero start, number)` of every instance, in its own metric."""
    instances = metric.family.decode(encoded)

    def one(i: Array, nu: Array) -> ResultT:
        instance = metric.family.take(instances, i)
        return do(metric.problem(nu, instance), metric.algorithm.init(metric.family, instance, None), i)

    return jax.vmap(one)(jnp.arange(len(inputs)), outputs(network, inputs))


class LearnedMetric:
    """A `Method`: the base solver's algorithm with hyperparameters by component that a network picks by instance.

    `record` is plain JSON: losses (logarithms of mean squared errors, by iteration), seconds, sizes. Nothing bounds
    the hyperparameters to a convergent range, so there is no guarantee.
    """

    def __init__(
        self, solver: Solver, metric: Metric, standard: Standard, network: eqx.nn.MLP, record: dict[str, Json]
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
        return sum(a.size for a in weights(self.network))

    def hyperparameters(self, parameters: PyTree) -> Float[np.ndarray, "N k"]:
        """Return what the network picks: steps by coordinate, ρ by (bounded) row, or r_y by row."""
        nu = outputs(self.network, self.standard(features(self.family, parameters)))
        return np.asarray(jax.vmap(self.metric.vector)(nu))

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
        return network_hash("learned metric", self.solver, self.standard, self.network)

    def _run_pieces(
        self, program: Callable[..., ResultT], parameters: PyTree, count: int, chunk: int | None
    ) -> list[ResultT]:
        """Return what a program gives for pieces of the instances, on the host."""
        family = self.family
        if chunk is None:
            chunk = self.metric.wide
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")
        inputs = self.standard(features(family, parameters))
        encoded = family.encode(parameters)
        parts = []
        with self.metric.use_double():
            for index, new in pieces(len(inputs), chunk):
                found = program(self.metric, self.network, inputs[index], family.take(encoded, index), int(count))
                parts.append(jax.tree.map(lambda a, new=new: np.asarray(a)[:new], found))
        return parts


def learned_metric(
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
    >>> method = learned_metric(Solver(family), data.train, hidden=(8,), steps=5, iterations=20, progress=False)
    >>> method.record["best"] < method.record["start"]
    True
    """
    if steps < 1:
        raise ValueError(f"the loss needs at least one step, got steps={steps}")
    descent = Descent(int(iterations), float(learning_rate), int(batch), int(seed))
    data = TrainingData(solver, split)
    metric = Metric.around(solver)
    network = perceptron(data.standard.size, metric.size, hidden, seed, solver.family.dtype)
    with metric.use_double(), one_blas_thread():
        network, record = descent.fit(Unrolled(metric, int(steps)), network, data, "learned metric", progress)
    loss = "log mean squared metric" if data.optima is None else "log mean squared distance"
    return LearnedMetric(solver, metric, data.standard, network, {**record, "steps": int(steps), "loss": loss})
