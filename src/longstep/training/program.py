"""Some steps as a function of their hyperparameters: the compiled programs of training."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from .._util.text import state_mebibytes
from ..algorithms.base import State, Theta
from ..engine.factorization import factorize_theta
from ..engine.jitted import Key, flatten
from ..engine.loop import run_steps
from ..engine.plan import Plan
from ..engine.problem import Problem
from ..families.base import Index
from ..families.point import Point
from ..linalg.systems import ONCE, LinearSystem
from .losses import Errors, Loss, Task
from .recipe import Recipe
from .settings import Values

Checkpoints = tuple[int, ...]
TreeT = TypeVar("TreeT")


class Program:
    """`count` steps of a task from given states, with the loss and its gradient in θ.

    θ is a dict of arrays with `count` entries: one for every step, except that hyperparameters with factors come by
    slot; step k uses slot `slots[k]`, and only the first `used` slots are factored. One compiled program serves all
    blocks of a length. Factors carry no gradient; the solves have theirs by the implicit rule.
    """

    def __init__(self, task: Task, loss: Loss, count: int, recipe: Recipe, memory_limit: float | None = None):
        self.task = task
        self.loss = loss
        self.count = count
        self.recipe = recipe
        self.size = task.family.batch(task.instance)[0]
        # What all steps have in common, where θ does not say otherwise.
        self.vectors: Values = {}
        self.chunk = self.size
        self._whole = Packed(task)
        self._parts = [self._pack_piece(piece) for piece in self.pieces()]
        if memory_limit is not None:
            self._fit(memory_limit)

    def stage(self, states: State, stress: State) -> list[State]:
        """Return the states, and those of the stress test behind them, in the pieces that `loss_and_gradient` takes."""
        if not self._stressed:
            return [take_columns(states, piece) for piece in self.pieces()]
        pairs = [(take_columns(states, piece), take_columns(stress, piece)) for piece in self.pieces()]
        return [jax.tree.map(lambda a, b: np.append(a, b, axis=-1) if a.ndim else a, *pair) for pair in pairs]

    def loss_and_gradient(
        self, theta: Values, slots: np.ndarray, used: int, staged: list[State]
    ) -> tuple[float, Values]:
        """Return the loss at the block's checkpoints and its derivative in every entry of θ."""
        given = self._arrays(theta), jnp.asarray(slots, jnp.int32), jnp.int32(used)
        if len(self._parts) == 1:
            part = self._parts[0]
            value, gradient = _descend(part.key, self.count, self.loss, part.leaves, *given, staged[0])
            return float(value), {name: np.asarray(g, np.float64) for name, g in gradient.items()}
        # In pieces: errors first, then each piece's share of the gradient.
        pairs = list(zip(self._parts, staged, strict=True))
        rows = self.loss.checkpoints(self.count)
        errors = [_errors(p.key, self.count, rows, p.leaves, *given, state) for p, state in pairs]
        value, shares = _shares(self.loss, errors)
        gradients = [
            _pull(p.key, self.count, rows, p.leaves, *given, state, share)
            for (p, state), share in zip(pairs, shares, strict=True)
        ]
        return float(value), {n: np.sum([np.asarray(g[n], np.float64) for g in gradients], axis=0) for n in theta}

    def compile(self) -> None:
        """Compile the loss and its gradient, by a call of which nothing comes."""
        hyperparameters = self.task.algorithm.hyperparameters(self.task.family)
        theta = {h.name: np.full(self.count, h.default) for h in hyperparameters}
        states = self.start(None)
        self.loss_and_gradient(theta, np.arange(self.count), self.count, self.stage(states, states))

    def forward(self, theta: Values, slots: np.ndarray, used: int, states: State) -> tuple[State, Errors]:
        """Return the states after the block, and the errors (N,) there."""
        given = self._arrays(theta), jnp.asarray(slots, jnp.int32), jnp.int32(used)
        states, errors = _forward(self._whole.key, self.count, self._whole.leaves, *given, states)
        return states, jax.tree.map(lambda a: np.asarray(a, np.float64), errors)

    def hold_constant(self, values: Mapping[str, ArrayLike]) -> Callable[[State], tuple[State, Errors]]:
        """Return the map from states to those after a block of constant θ and their errors; θ is factored here,
        once."""
        whole = self._whole
        theta = self._arrays(values)
        factors = _factorize(whole.key, self.recipe.searched_digits, whole.leaves, theta)
        return lambda states: _stay(whole.key, self.count, whole.leaves, theta, factors, states)

    def visit_signs(self, values: Mapping[str, ArrayLike], states: State, count: int) -> Int[np.ndarray, "steps m N"]:
        """Return the signs of the multipliers after 0, 1, …, `count` steps with constant θ."""
        whole = self._whole
        theta = self._arrays(values)
        factors = _factorize(whole.key, self.recipe.searched_digits, whole.leaves, theta)
        return np.asarray(_visit_signs(whole.key, count, whole.leaves, theta, factors, states))

    def start(self, start: Point | None) -> State:
        """Return the states at a start (columns in the user's units, or None for zero)."""
        return _start(self._whole.key, self._whole.leaves, start)

    def extract(self, states: State) -> Point:
        """Return the points of states, in the user's units."""
        return _extract(self._whole.key, self._whole.leaves, states)

    def floor(self, states: State, depth: float = 0.0) -> float:
        """Return the mean log error, reckoned from these states, at which rounding is all that is left to learn, or
        where errors are such a part of what they are in these states."""
        return float(_floor(self._whole.key, self._whole.leaves, states, jnp.asarray(depth)))

    def select_instances(self, columns: np.ndarray) -> "Program":
        """Return the same block for some of the instances, to go forward only."""
        few = Program(select_task(self.task, columns), self.loss, self.count, self.recipe)
        few.vectors = self.vectors
        return few

    def memory(self) -> int:
        """Return the bytes of working memory that the gradient of one piece takes, as the compiler says."""
        part = self._parts[0]
        states = self.start(None)
        theta = {h.name: jnp.ones(self.count) for h in self.task.algorithm.hyperparameters(self.task.family)}
        slots = jnp.arange(self.count, dtype=jnp.int32)
        used = jnp.int32(self.count)
        staged = self.stage(states, states)[0]
        lowered = _descend.lower(part.key, self.count, self.loss, part.leaves, theta, slots, used, staged)
        analysis = lowered.compile().memory_analysis()
        assert analysis is not None
        return int(analysis.temp_size_in_bytes)

    def _arrays(self, theta: Mapping[str, ArrayLike]) -> Theta:
        return {name: jnp.asarray(value) for name, value in {**self.vectors, **theta}.items()}

    @property
    def _stressed(self) -> bool:
        return bool(self.loss.stress) and self.size > 1

    def _pack_piece(self, piece: slice) -> "Packed":
        """Return some instances, twice where there is a stress test."""
        columns = np.arange(self.size)[piece]
        twice = np.concatenate([columns, columns]) if self._stressed else columns
        task = self.task
        stress = len(columns) if self._stressed else 0
        instance = task.family.take(jax.tree.map(np.asarray, task.instance), twice)
        target, optimum, sides = take_columns((task.target, task.optimum, task.sides), twice)
        return Packed(replace(task, instance=instance, target=target, optimum=optimum, sides=sides, stress=stress))

    def pieces(self) -> list[slice]:
        """Return the instances whose gradient is taken together."""
        return [slice(i, min(i + self.chunk, self.size)) for i in range(0, self.size, self.chunk)]

    def _fit(self, limit: float) -> None:
        """Make pieces of instances whose gradients stay below the limit."""
        while (need := self.memory()) > limit:
            if self.chunk == 1:
                raise MemoryError(
                    f"one instance alone needs {state_mebibytes(need)} for a block of {self.count} steps, over the "
                    f"limit of {state_mebibytes(limit)}. Raise memory_limit or make the block shorter"
                )
            self.chunk = max(1, min(self.chunk - 1, int(self.recipe.memory_margin * self.chunk * limit / need)))
            self._parts = [self._pack_piece(piece) for piece in self.pieces()]


class Packed:
    """Some of the instances, as jit wants them."""

    def __init__(self, task: Task):
        self.key, self.leaves = flatten(task)


def select_task(task: Task, columns: np.ndarray) -> Task:
    """Return the task of some of the instances."""
    instance = task.family.take(jax.tree.map(np.asarray, task.instance), columns)
    target, optimum, sides = take_columns((task.target, task.optimum, task.sides), columns)
    return replace(task, instance=instance, target=target, optimum=optimum, sides=sides)


def take_columns(tree: TreeT, columns: Index) -> TreeT:
    """Return some columns of every leaf that has columns, on the host: there nothing is compiled for it."""
    return jax.tree.map(lambda a: np.asarray(a)[..., columns] if a.ndim else a, tree)


def separate_vectors(task: Task, theta: Theta) -> tuple[Theta, Theta]:
    """Return the hyperparameters with a value for every step, and those that all steps have in common, in the task's
    precision."""
    by_step = {h.name for h in task.algorithm.hyperparameters(task.family)}
    theta = {name: value.astype(task.family.dtype) for name, value in theta.items()}
    vectors = {name: value for name, value in theta.items() if name not in by_step}
    return {name: value for name, value in theta.items() if name in by_step}, vectors


def _make_problem(task: Task, count: int, theta: Theta, slots: Int[Array, " B"], used: Int[Array, ""]) -> Problem:
    """Return the problem whose first `count` steps are those of θ."""
    algorithm = task.algorithm
    family = task.family
    theta, vectors = separate_vectors(task, theta)
    factored = {h.name for h in algorithm.hyperparameters(family) if h.factored}
    factors = None
    if factored:
        fixed = jax.lax.stop_gradient({name: theta[name] for name in factored})
        rows = jax.lax.stop_gradient(vectors)

        def make(i):
            one = {name: values[i] for name, values in fixed.items()} | rows

            def factorize() -> LinearSystem | None:
                return factorize_theta(algorithm, family, one, ONCE)

            def leave_out() -> LinearSystem | None:
                return jax.tree.map(jnp.zeros_like, jax.eval_shape(factorize))

            return jax.lax.cond(i < used, factorize, leave_out)

        factors = jax.lax.map(make, jnp.arange(count))
    by_step = {name: value[slots] if name in factored else value for name, value in theta.items()}
    # A plan has one more entry, the steady state, which these steps never reach.
    padded = {name: jnp.append(value, value[-1]) for name, value in by_step.items()}
    plan = Plan(padded, factors, jnp.append(slots, slots[-1]), count, vectors=vectors)
    return Problem(algorithm, family, plan, task.instance)


def _measure_checkpoints(
    task: Task, count: int, rows: Checkpoints, theta: Theta, slots: Int[Array, " B"], used: Int[Array, ""], state: State
) -> Errors:
    """Return the errors at the checkpoints of a block (checkpoints, N), and how the stress test went."""
    problem = _make_problem(task, count, theta, slots, used)
    if len(rows) == 1:
        # Errors are dearer than a step: measured where they count alone.
        end, _, _ = run_steps(problem, state, count, 0, lambda s: ())
        errors = jax.tree.map(lambda a: a[None], task.errors(end))
    else:
        _, record, _ = run_steps(problem, state, count, 0, task.errors)
        errors = jax.tree.map(lambda a: a[np.array(rows)], record)
    return errors.split(task.stress, task.errors(state))


@functools.partial(jax.jit, static_argnums=0)
def _start(key: Key[Task], leaves: tuple, start: Point | None) -> State:
    task = key.unflatten(leaves)
    return task.algorithm.init(task.family, task.instance, start)


@functools.partial(jax.jit, static_argnums=0)
def _extract(key: Key[Task], leaves: tuple, states: State) -> Point:
    task = key.unflatten(leaves)
    return task.algorithm.extract(task.family, task.instance, states)


@functools.partial(jax.jit, static_argnums=0)
def _floor(key: Key[Task], leaves: tuple, states: State, depth: Float[Array, ""]) -> Float[Array, ""]:
    task = key.unflatten(leaves)
    start = task.errors(states).metric
    return jnp.mean(jnp.maximum(task.algorithm.log_floor(start, task.optimum), start + 2 * jnp.log(depth)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _descend(
    key: Key[Task],
    count: int,
    loss: Loss,
    leaves: tuple,
    theta: Theta,
    slots: Int[Array, " B"],
    used: Int[Array, ""],
    state: State,
) -> tuple[Float[Array, ""], Theta]:
    task = key.unflatten(leaves)
    return jax.value_and_grad(
        lambda theta: loss.combine(
            _measure_checkpoints(task, count, loss.checkpoints(count), theta, slots, used, state)
        )
    )(theta)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _errors(
    key: Key[Task],
    count: int,
    rows: Checkpoints,
    leaves: tuple,
    theta: Theta,
    slots: Int[Array, " B"],
    used: Int[Array, ""],
    state: State,
) -> Errors:
    task = key.unflatten(leaves)
    return _measure_checkpoints(task, count, rows, theta, slots, used, state)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _pull(
    key: Key[Task],
    count: int,
    rows: Checkpoints,
    leaves: tuple,
    theta: Theta,
    slots: Int[Array, " B"],
    used: Int[Array, ""],
    state: State,
    share: Errors,
) -> Theta:
    """Return the gradient in θ of the errors, weighted by their share in the loss."""
    task = key.unflatten(leaves)
    _, back = jax.vjp(lambda theta: _measure_checkpoints(task, count, rows, theta, slots, used, state), theta)
    return back(share)[0]


@functools.partial(jax.jit, static_argnums=0)
def _shares(loss: Loss, errors: list[Errors]) -> tuple[Float[Array, ""], list[Errors]]:
    def total(errors):
        return loss.combine(jax.tree.map(lambda *a: jnp.concatenate(a, axis=-1), *errors))

    return jax.value_and_grad(total)(errors)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _forward(
    key: Key[Task],
    count: int,
    leaves: tuple,
    theta: Theta,
    slots: Int[Array, " B"],
    used: Int[Array, ""],
    state: State,
) -> tuple[State, Errors]:
    task = key.unflatten(leaves)
    end, _, _ = run_steps(_make_problem(task, count, theta, slots, used), state, count, 0, lambda s: ())
    return end, task.errors(end)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _factorize(key: Key[Task], digits: float, leaves: tuple, theta: Theta) -> LinearSystem | None:
    """Return the factor of one θ for many steps, as a stack of one; it is taken to be good to this part of the
    digits."""
    task = key.unflatten(leaves)
    theta = {name: value.astype(task.family.dtype) for name, value in theta.items()}
    # About as many solves as there are unknowns: a search need not know.
    factors = factorize_theta(task.algorithm, task.family, theta, task.family.n)
    if factors is None:
        return None
    epsilon = float(jnp.finfo(task.family.dtype).eps)
    factors = factors.refine(epsilon**digits, task.algorithm.solve_tolerance(epsilon))
    return jax.tree.map(lambda a: a[None], factors)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _stay(
    key: Key[Task], count: int, leaves: tuple, theta: Theta, factors: LinearSystem | None, state: State
) -> tuple[State, Errors]:
    task = key.unflatten(leaves)
    end, _, _ = run_steps(_hold(task, theta, factors), state, count, 0, lambda s: ())
    return end, task.errors(end)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _visit_signs(
    key: Key[Task], count: int, leaves: tuple, theta: Theta, factors: LinearSystem | None, state: State
) -> Int[Array, "steps m N"]:
    problem = _hold(key.unflatten(leaves), theta, factors)

    def read(state: State) -> Int[Array, "m N"]:
        y = problem.algorithm.extract(problem.family, problem.instance, state).y
        assert y is not None
        return jnp.sign(y).astype(jnp.int8)

    return run_steps(problem, state, count, 0, read)[1]


def _hold(task: Task, theta: Theta, factors: LinearSystem | None) -> Problem:
    """Return the problem in which all steps have the same θ."""
    theta, vectors = separate_vectors(task, theta)
    held = {name: value[None] for name, value in theta.items()}
    plan = Plan(held, factors, jnp.zeros(1, jnp.int32), 0, vectors=vectors)
    return Problem(task.algorithm, task.family, plan, task.instance)
