"""What the two neural-network baselines share: inputs, the perceptron, and the Adam loop that trains it.

Both map a parameter x to something that helps an unrolled run of K steps, and both are trained on

    log (1/N) Σᵢ eᵢ²,   eᵢ = ‖z^K(xᵢ) − z*(xᵢ)‖

over minibatches. The logarithm makes gradients of one size while the loss falls by orders of magnitude; together with
a clipped gradient norm and Adam, which is indifferent to the loss's scale, no rate has to be tuned to a family.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import DTypeLike

from ..._util.hashing import content_hash
from ..._util.plain import Json
from ..._util.progress import Bar
from ...algorithms.base import Algorithm
from ...data.dataset import Split
from ...families.base import Family
from ...families.composite import Composite
from ...families.conic import Conic
from ...families.point import Point
from ...families.quadratic_program import QP
from ...families.reading import convert_lists, is_named
from ...families.smooth import Quadratic
from ...solver import Solver
from ...training.instances import training_split
from ...training.optimize import require_optax

if TYPE_CHECKING:
    import optax

# Standardised inputs beyond this many deviations say no more than that they are far out.
_FAR = 10.0
# The best network is chosen at about _LOOKS moments, by at most _WATCHED batches: a tenth of the instances, held out,
# from _MANY instances on, and the training instances themselves where there are fewer.
_LOOKS = 50
_WATCHED = 4
_MANY = 50


def make_features(family: Family, parameters: PyTree) -> Float[np.ndarray, "N d"]:
    """Return N parameters as rows of numbers: their own entries, or all data of instances that are given by name."""
    inner = family
    if isinstance(family, Composite):
        inner = family.smooth
    if isinstance(inner, QP | Conic | Quadratic) and is_named(parameters):
        leaves = list(inner.data(parameters).values())
    else:
        leaves = jax.tree.leaves(convert_lists(parameters))
    if not (count := family.count(parameters)):
        raise ValueError("the batch is empty")
    return np.concatenate([np.asarray(a, np.float64).reshape(count, -1) for a in leaves], axis=1)


class Standard:
    """Standardised inputs, (x − mean)/deviation by entry; entries that never change in training are left out."""

    def __init__(self, rows: Float[np.ndarray, "N d"], dtype: np.dtype):
        finite = np.isfinite(rows)
        mixed = np.flatnonzero(finite.any(axis=0) & ~finite.all(axis=0))
        if mixed.size:
            raise ValueError(
                f"entry {mixed[0]} of the flattened parameter is infinite in some instances and finite in others, "
                "which a network cannot take in; use a finite bound that is never active"
            )
        rows = np.where(finite, rows, 0.0)
        mean = rows.mean(axis=0)
        deviation = rows.std(axis=0)
        self.kept = np.flatnonzero(deviation > 1e-9 * np.abs(rows).max(axis=0))
        if not self.kept.size:
            raise ValueError("the training parameters are all the same: a network has nothing to learn from them")
        self.mean = mean[self.kept]
        self.deviation = deviation[self.kept]
        self.dtype = dtype

    @property
    def size(self) -> int:
        """How many inputs the network has."""
        return self.kept.size

    def __call__(self, rows: Float[np.ndarray, "N d"]) -> Float[np.ndarray, "N size"]:
        """Return the inputs of N instances."""
        chosen = rows[:, self.kept]
        if not np.isfinite(chosen).all():
            row, entry = np.argwhere(~np.isfinite(chosen))[0]
            raise ValueError(f"instance {row} has {chosen[row, entry]} where all training instances have finite values")
        return np.clip((chosen - self.mean) / self.deviation, -_FAR, _FAR).astype(self.dtype)

    def list_arrays(self) -> tuple[np.ndarray, ...]:
        """Return what defines the map."""
        return self.kept, self.mean, self.deviation


def make_perceptron(inputs: int, outputs: int, hidden: tuple[int, ...], seed: int, dtype: DTypeLike) -> eqx.nn.MLP:
    """Return a multilayer perceptron with ReLU whose last layer is zero: untrained it says 0 to everything."""
    if len(set(hidden)) > 1 or any(width < 1 for width in hidden):
        raise ValueError(f"the hidden layers must be of one width, at least 1, got {hidden}")
    width = max(hidden, default=0)
    key = jax.random.key(seed)
    mlp = eqx.nn.MLP(inputs, outputs, width, len(hidden), activation=jax.nn.relu, dtype=dtype, key=key)
    return eqx.tree_at(lambda m: (m.layers[-1].weight, m.layers[-1].bias), mlp, replace_fn=jnp.zeros_like)


def compute_outputs(network: eqx.nn.MLP, inputs: Float[Array | np.ndarray, "N d"]) -> Float[Array, "N k"]:
    """Return what the network says to every row."""
    return jax.vmap(network)(jnp.asarray(inputs))


def list_weights(network: eqx.nn.MLP) -> list[Array]:
    """Return the arrays that are trained."""
    return jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))


class TrainingBatch(eqx.Module):
    """Some training instances: the network's inputs, the encoded parameters, and what is known of their optima."""

    inputs: Float[Array | np.ndarray, "N d"]
    encoded: PyTree
    target: Float[Array | np.ndarray, "k N"] | None
    value: Float[Array | np.ndarray, " N"] | None


# From a network and a batch to log eᵢ² of every instance.
LogErrors: TypeAlias = Callable[[eqx.nn.MLP, TrainingBatch], Float[Array, " N"]]


class TrainingData:
    """The instances of a split on the host, from which batches are taken."""

    def __init__(self, solver: Solver, split: Split):
        if len(solver.schedule):
            raise ValueError(
                f"the base of this method must have constant hyperparameters, but its schedule has "
                f"{len(solver.schedule)} step-varying steps; use Solver(family, **schedule.steady) or the constant "
                "that training found"
            )
        self.family = solver.family
        split = training_split(solver.family, split)
        self.hash = split.content_hash()
        self.instance_hashes = split.instance_hashes()
        self.encoded = self.family.encode(split.parameters)
        rows = make_features(self.family, split.parameters)
        self.standard = Standard(rows, self.family.dtype)
        self.inputs = self.standard(rows)
        self.optima = split.optima
        self.target = None
        self.value = None
        if (o := split.optima) is not None:
            optimum = Point.of(o).map(lambda part: np.asarray(part.T, self.family.dtype))
            self.target = np.asarray(_convert_optima(solver.algorithm, self.family, self.encoded, optimum)).T
            self.value = np.asarray(o.value, self.family.dtype)

    def __len__(self) -> int:
        return len(self.inputs)

    def take_batch(self, index: Int[np.ndarray, " k"]) -> TrainingBatch:
        """Return some of the instances."""
        target, value = jax.tree.map(lambda a: a[..., index], (self.target, self.value))
        return TrainingBatch(self.inputs[index], self.family.take(self.encoded, index), target, value)


@eqx.filter_jit
def _convert_optima(algorithm: Algorithm, family: Family, encoded: PyTree, optimum: Point) -> Float[Array, "N k"]:
    """Return the optima in the coordinates in which distances are measured."""

    def convert_one(i: Array) -> Array:
        instance = family.decode(family.take(encoded, i))
        start = jax.tree.map(lambda a: a[..., i], optimum)
        return algorithm.coordinates(family, instance, algorithm.init(family, instance, start))

    # One by one: batched eigendecompositions of independent data can block each other on CPUs (JAX before 0.11.2).
    return jax.lax.map(convert_one, jnp.arange(optimum.x.shape[1]))


def split_pieces(count: int, width: int) -> Iterator[tuple[Int[np.ndarray, " w"], int]]:
    """Yield 0 … count − 1 in pieces of one width, the last repeated to fill it up, and how many of each are new."""
    width = min(width, count)
    for start in range(0, count, width):
        yield np.minimum(np.arange(start, start + width), count - 1), min(width, count - start)


@dataclass(frozen=True)
class Descent:
    """How a network is trained: iterations of Adam on batches, at a rate that falls to zero along a cosine."""

    iterations: int
    learning_rate: float
    batch: int
    seed: int

    def __post_init__(self):
        if self.iterations < 0 or self.batch < 1 or not self.learning_rate > 0:
            raise ValueError(f"need iterations ≥ 0, batch ≥ 1 and learning_rate > 0, got {self}")

    def fit(
        self, errors: LogErrors, network: eqx.nn.MLP, data: TrainingData, title: str, progress: bool
    ) -> tuple[eqx.nn.MLP, dict[str, Json]]:
        """Return the best network seen, and the record: `errors(network, batch)` gives log eᵢ² of every instance.

        Best on a tenth of the instances (at most four batches), held out for it; with fewer than 50, on all of them.
        """
        begin = perf_counter()
        rng = np.random.default_rng([self.seed, len(data)])
        transform, update = _make_adam(self.iterations, self.learning_rate)
        state = transform.init(eqx.filter(network, eqx.is_inexact_array))
        order = rng.permutation(len(data))
        most = _WATCHED * self.batch
        held = 0
        if len(data) >= _MANY:
            held = min(len(data) // 10, most)
        watched = order[: held or most]
        trained = order[held:]
        parts = [(data.take_batch(watched[index]), new) for index, new in split_pieces(len(watched), self.batch)]

        def look(network: eqx.nn.MLP) -> float:
            found = np.concatenate([np.asarray(_compute_logs(errors, network, batch))[:new] for batch, new in parts])
            value = float(log_mean(jnp.asarray(found)))
            if not np.isfinite(value):
                return np.inf
            return value

        best = network
        losses = [(0, look(network))]
        batches = _draw_batches(trained, self.batch, rng)
        every = max(1, self.iterations // _LOOKS)
        with Bar(title, self.iterations, progress) as advance:
            for k in range(1, self.iterations + 1):
                network, state = update(errors, network, state, data.take_batch(next(batches)))
                if k % every == 0 or k == self.iterations:
                    losses.append((k, look(network)))
                    if losses[-1][1] < min(loss for _, loss in losses[:-1]):
                        best = network
                advance(1, f"{title}: error {np.exp(0.5 * losses[-1][1]):.2e}")
        values = [loss for _, loss in losses]
        record: dict[str, Json] = {
            "instances": len(data),
            "held_out": held,
            "data_hash": data.hash,
            "instance_hashes": data.instance_hashes,
            "iterations": self.iterations,
            "batch": min(self.batch, len(trained)),
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "losses": losses,
            "start": values[0],
            "final": values[-1],
            "best": min(values),
            "skipped": int(state.total_notfinite),
            "weights": sum(a.size for a in list_weights(best)),
            "seconds": perf_counter() - begin,
        }
        return best, record


def log_mean(logs: Float[Array, " N"]) -> Float[Array, ""]:
    """Return log (1/N) Σ exp(logs)."""
    return jax.nn.logsumexp(logs) - jnp.log(logs.shape[0])


@eqx.filter_jit
def _compute_logs(errors: LogErrors, network: eqx.nn.MLP, batch: TrainingBatch) -> Float[Array, " N"]:
    return errors(network, batch)


# Kept, so that trainings that differ in their instances alone share compiled code.
@functools.cache
def _make_adam(
    iterations: int, learning_rate: float
) -> "tuple[optax.GradientTransformation, Callable[..., tuple[eqx.nn.MLP, PyTree]]]":
    """Return the optimiser, and its step as one program."""
    optax = require_optax("training a network")
    rate = optax.cosine_decay_schedule(learning_rate, max(iterations, 1))
    # A step on which some instance overflows is not taken.
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    transform = optax.apply_if_finite(chain, max_consecutive_errors=iterations + 1)

    @eqx.filter_jit
    def update(
        errors: LogErrors, network: eqx.nn.MLP, state: PyTree, batch: TrainingBatch
    ) -> tuple[eqx.nn.MLP, PyTree]:
        gradient = eqx.filter_grad(lambda network: log_mean(errors(network, batch)))(network)
        change, state = transform.update(gradient, state)
        return eqx.apply_updates(network, change), state

    return transform, update


def _draw_batches(
    instances: Int[np.ndarray, " N"], batch: int, rng: np.random.Generator
) -> Iterator[Int[np.ndarray, " b"]]:
    """Yield batches of one size from one shuffle of the instances after another."""
    batch = min(batch, len(instances))
    left = instances[:0]
    while True:
        if len(left) < batch:
            left = np.concatenate([left, rng.permutation(instances)])
        yield left[:batch]
        left = left[batch:]


def hash_network(kind: str, solver: Solver, standard: Standard, network: eqx.nn.MLP, *more: object) -> str:
    """Return a SHA-256 of the base solver, the inputs' standardisation and the network's weights."""
    arrays = [np.asarray(a) for a in list_weights(network)]
    return content_hash(kind, solver.content_hash(), standard.list_arrays(), arrays, *more)
