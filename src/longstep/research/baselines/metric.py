"""A metric that differs between instances: hyperparameters by component, and a factorization for every instance."""

import dataclasses
import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from typing_extensions import override

from ...algorithms.base import Algorithm
from ...algorithms.gradient import GradientMethod
from ...algorithms.osqp import OSQP
from ...algorithms.scs import SCS
from ...certificates.gradient_steps import STEP
from ...engine.plan import Plan
from ...engine.problem import Problem
from ...families.base import Family
from ...families.composite import Composite
from ...families.conic import Conic
from ...families.constrained import ConstrainedFamily
from ...families.quadratic_program import QP
from ...linalg.matrix import DenseMatrix, MappableMatrix, SparseMatrix
from ...linalg.prox import L1, Box, NonNegative, Zero
from ...linalg.systems import ONCE, Factored, factorize
from ...schedules.hyperparameter import Hyperparameter
from ...schedules.schedule import Schedule
from ...solver import Solver

# Three decades around the base: farther out linear systems become singular before anything is gained.
_REACH = float(np.log(1e3))
# Matrices with at most this many entries are dense here.
_DENSE = 1_000_000
# The name of the hyperparameter by component, its base values, and the group of every component.
Components: TypeAlias = tuple[str, np.ndarray, np.ndarray]


@functools.singledispatch
def choose_components(algorithm: Algorithm, family: Family, schedule: Schedule) -> Components:
    """Return the hyperparameter that becomes a vector, its base values, and which components share a value."""
    raise TypeError(f"no metric is known for {type(algorithm).__name__}")


@choose_components.register
def _(algorithm: GradientMethod, family: Family, schedule: Schedule) -> Components:
    # In a metric of unequal steps only a separable g keeps its prox.
    separable = not isinstance(family, Composite) or isinstance(family.g, Zero | L1 | NonNegative | Box)
    groups = np.zeros(family.n, int)
    if separable:
        groups = np.arange(family.n)
    return STEP, np.full(family.n, schedule.steady[STEP]), groups


@choose_components.register
def _(algorithm: OSQP, family: QP, schedule: Schedule) -> Components:
    return _multiply_penalties(algorithm.metric(family), schedule)


@choose_components.register
def _(algorithm: SCS, family: Conic, schedule: Schedule) -> Components:
    # Projections onto most cones are Euclidean: one weight for a whole cone.
    return _multiply_penalties(algorithm.metric(family), schedule)


def _multiply_penalties(metric: Hyperparameter, schedule: Schedule) -> Components:
    """Return the algorithm's own metric, which begins at the schedule's."""
    groups = metric.entries
    assert groups is not None
    if schedule.metric is not None:
        return metric.name, schedule.metric, groups
    return metric.name, np.ones(len(groups)), groups


def _make_mappable(matrix: PyTree) -> PyTree:
    """Return the same matrix in a form that is fast under `vmap`."""
    if not isinstance(matrix, SparseMatrix):
        return matrix
    m = matrix.forward.index.shape[1]
    n = matrix.backward.index.shape[1]
    if m * n <= _DENSE:
        return DenseMatrix(matrix.dense())
    return MappableMatrix(matrix.forward, matrix.backward)


def _convert_to_double(leaf: Any) -> Any:
    """Return a leaf in float64, where it is an array of real numbers."""
    if eqx.is_inexact_array(leaf):
        return leaf.astype(jnp.float64)
    return leaf


class _Double(Factored):
    """A float64 factor that is applied to float32 vectors."""

    factor: Factored

    @override
    def solve(self, K, b):
        return self.factor.solve(K, b.astype(jnp.float64)).astype(b.dtype)


class ComponentMetric(eqx.Module):
    """θ by component from the network's outputs ν:

        θ_j = base_j · exp(r·tanh(ν_g(j)/r)),   r = log 1000,

    g(j) being the group of component j; ν = 0 is the base. Gradient methods: the step of every coordinate, one for all
    where the prox is not known to be separable. OSQP: what multiplies ρ of every row. SCS: what divides r_y of every
    row of the zero and the nonnegative cone, and one for every other cone. All other hyperparameters are the base's.
    """

    algorithm: Algorithm
    family: Family
    theta: dict[str, Float[Array, ""]]
    base: Float[Array, " k"]
    groups: Int[Array, " k"]
    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @staticmethod
    def of_solver(solver: Solver) -> "ComponentMetric":
        """Return the metric whose base is a solver's constant hyperparameters."""
        dtype = solver.family.dtype
        name, base, groups = choose_components(solver.algorithm, solver.family, solver.schedule)
        if not len(groups):
            raise ValueError("this family has no constraint rows, so there is no metric to learn")
        theta = {key: jnp.asarray(value, dtype) for key, value in solver.schedule.steady.items()}
        family = jax.tree.map(_make_mappable, solver.family, is_leaf=lambda x: isinstance(x, SparseMatrix))
        size = int(groups.max()) + 1
        groups = jnp.asarray(groups, jnp.int32)
        return ComponentMetric(solver.algorithm, family, theta, jnp.asarray(base, dtype), groups, name, size)

    def spread(self, nu: Float[Array, " size"]) -> Float[Array, " k"]:
        """Return the hyperparameters by component."""
        return self.base * jnp.exp(_REACH * jnp.tanh(nu / _REACH))[self.groups]

    def make_problem(self, nu: Float[Array, " size"], instance: PyTree) -> Problem:
        """Return one instance with its own θ and its own factor."""
        theta = self.theta | {self.name: self.spread(nu)}
        stacked = {name: value[None] for name, value in theta.items()}
        factors = jax.tree.map(lambda a: a[None], self._factor(theta))
        return Problem(self.algorithm, self.family, Plan(stacked, factors, jnp.zeros(1, jnp.int32), 0), instance)

    def _factor(self, theta: dict[str, Array]) -> Factored | None:
        if self.family.dtype == np.float64:
            return self._prepare(self.family, theta)
        # As for a solver's factors, single precision is for the steps alone.
        factor = self._prepare(*jax.tree.map(_convert_to_double, (self.family, theta)))
        if factor is None:
            return None
        return _Double(factor)

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
        if isinstance(self.family, ConstrainedFamily) and not self.family.matrices.diagonal:
            return 32
        return 512
