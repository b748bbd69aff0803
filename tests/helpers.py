"""The registry: one small family of every kind with its algorithms, and random problems for the oracles.

A test that is a law runs over `CASES`; a new algorithm is tested by adding a line to it.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

import longstep as ls
from longstep.algorithms.base import Algorithm
from longstep.algorithms.douglas_rachford import DouglasRachford
from longstep.algorithms.pdhg import PDHG
from longstep.algorithms.quasi_newton import QuasiNewton
from longstep.families.base import Family
from longstep.linalg.matrix import squared_norm_bound


def random_qp(seed, n=12, equalities=3, inequalities=10, free=0, density=0.6):
    """A feasible, bounded QP: (P, q, A, l, u)."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * (rng.random((n, n)) < density)
    P = root @ root.T + 1e-2 * np.eye(n)
    m = equalities + inequalities + free
    A = rng.normal(size=(m, n)) * (rng.random((m, n)) < density)
    A[np.arange(m), rng.integers(n, size=m)] += 1.0
    middle = A @ rng.normal(size=n)
    l, u = middle - rng.random(m), middle + rng.random(m)
    l[:equalities] = u[:equalities] = middle[:equalities]
    one_sided = rng.random(m) < 0.3
    one_sided[:equalities] = False
    u[one_sided] = np.inf
    l[equalities + inequalities :], u[equalities + inequalities :] = -np.inf, np.inf
    return P, rng.normal(size=n), A, l, u


def random_conic(seed, cones: ls.Cones, n=10):
    """A conic program with a strictly feasible primal-dual pair: (P, A, b, c)."""
    rng = np.random.default_rng(seed)
    m = cones.size
    root = rng.normal(size=(n, 3))
    P, A = root @ root.T + 0.01 * np.eye(n), rng.normal(size=(m, n))
    v = jnp.asarray(rng.normal(size=m))
    s, y = np.asarray(cones.project(v)), np.asarray(cones.project_dual(-v))
    x = rng.normal(size=n)
    b, c = A @ x + s, -P @ x - A.T @ y
    return P, A, b, c


CONES = {
    "zero": ls.Cones(zero=4),
    "nonnegative": ls.Cones(nonnegative=14),
    "second_order": ls.Cones(second_order=(5, 3, 3, 1, 4)),
    "semidefinite": ls.Cones(semidefinite=(4, 2)),
    "exponential": ls.Cones(exponential=4),
    "power": ls.Cones(power=(0.3, 0.5, 0.5, 0.9)),
    "mixed": ls.Cones(zero=3, nonnegative=5, second_order=(4, 3), semidefinite=(3,)),
    "all": ls.Cones(1, 2, (3,), (2,), exponential=2, power=(0.2, 0.7)),
}


def is_optimal(P, A, b, c, cones: ls.Cones, found: ls.Solution, accuracy=1e-8) -> str:
    """What keeps a pair from being optimal for a cone program, by the definitions; nothing if it is."""
    x, y, s = found.x, found.y, found.s
    terms = np.concatenate([np.abs(P) @ np.abs(x), np.abs(A.T) @ np.abs(y), np.abs(A) @ np.abs(x), np.abs(s), b, c])
    small = accuracy * (1 + float(np.max(np.abs(terms))))
    conditions = {
        "not stationary": np.max(np.abs(P @ x + A.T @ y + c)) <= small,
        "not feasible": np.max(np.abs(A @ x + s - b), initial=0.0) <= small,
        "not complementary": abs(float(y @ s)) <= small * (1 + float(np.abs(y) @ np.abs(s))),
        "a slack outside its cone": in_cones(cones, s, small),
        "a multiplier outside the dual cone": in_cones(cones, y, small, dual=True),
    }
    return ", ".join(words for words, holds in conditions.items() if not holds)


def in_cones(cones: ls.Cones, v, slack: float, dual=False) -> bool:
    """Whether v, moved by `slack` into the interior, is in the product of cones, or of their duals."""
    start = 0
    for cone in cones.parts:
        for k, rows in enumerate(cone.each):
            part = v[start : start + rows]
            start += rows
            if not _MEMBERS[cone.name](part, slack, dual, cone.sizes[k] if isinstance(cone.sizes, tuple) else 0):
                return False
    return True


def _in_second_order(v, slack, dual, size):
    return np.linalg.norm(v[1:]) <= v[0] + slack


def _in_semidefinite(v, slack, dual, size):
    X = np.zeros((size, size))
    column, row = np.triu_indices(size)
    X[row, column] = X[column, row] = v / np.where(row == column, 1.0, np.sqrt(2))
    return np.linalg.eigvalsh(X)[0] >= -slack


def _in_exponential(v, slack, dual, size):
    x, y, z = v + slack * np.array([-1.0, 1.0, 1.0])
    if dual:  # −x·exp(y/x) ≤ e·z
        return x < 0 < z and y / x <= 1 + np.log(z / -x)
    return y > 0 and z > 0 and x / y <= np.log(z / y)


def _in_power(v, slack, dual, a):
    x, y = v[:2] + slack
    if dual:
        x, y = x / a, y / (1 - a)
    return x >= 0 and y >= 0 and x**a * y ** (1 - a) >= abs(v[2]) - slack


_MEMBERS = {
    "zero": lambda v, slack, dual, size: dual or bool(np.all(np.abs(v) <= slack)),
    "nonnegative": lambda v, slack, dual, size: bool(np.all(v >= -slack)),
    "second_order": _in_second_order,
    "semidefinite": _in_semidefinite,
    "exponential": _in_exponential,
    "power": _in_power,
}


@dataclass(frozen=True, eq=False)
class Case:
    """A family with an algorithm and a few parameters of its own."""

    name: str
    algorithm: Algorithm
    family: Family
    parameters: Any

    def __repr__(self):
        return self.name

    @property
    def hyperparameters(self):
        return self.algorithm.hyperparameters(self.family)

    @property
    def instances(self):
        return self.family.instances(self.parameters)

    @property
    def has_functions(self):
        """Whether the family is made of Python functions, which no file holds."""
        smooth = self.family.smooth if isinstance(self.family, ls.Composite) else self.family
        g = self.family.g if isinstance(self.family, ls.Composite) else None
        return isinstance(smooth, ls.Smooth) or isinstance(g, ls.CustomProx)


def softplus_objective(z, x):
    return jnp.mean(jnp.logaddexp(0.0, -x @ z)) + 0.05 * z @ z


def softplus_lipschitz(x):
    return squared_norm_bound(x) / (4 * x.shape[0]) + 0.1


def _cases():
    rng = np.random.default_rng(1)
    n, N = 6, 4
    root = rng.normal(size=(8, n))
    quadratic = ls.Quadratic(root.T @ root, parameter=ls.Affine(q=-root.T))
    rows = rng.normal(size=(N, 9, n))
    lipschitz = max(np.linalg.norm(r, 2) ** 2 for r in rows) / (4 * 9) + 0.1
    smooth = ls.Smooth(softplus_objective, lipschitz, n, strong_convexity=0.1)
    own = ls.Smooth(softplus_objective, lipschitz, n, strong_convexity=0.1, lipschitz_of=softplus_lipschitz)
    b = rng.normal(size=(N, 8))
    yield Case("gradient-quadratic", ls.GradientDescent(), quadratic, b)
    yield Case("gradient-smooth", ls.GradientDescent(), smooth, rows)
    yield Case("heavy-ball", ls.HeavyBall(), quadratic, b)
    yield Case("proximal-lasso", ls.ProximalGradient(), ls.Composite(quadratic, ls.L1(0.4)), b)
    yield Case("proximal-box", ls.ProximalGradient(), ls.Composite(smooth, ls.Box(-0.1, 0.2)), rows)
    group = ls.CustomProx(
        jnp.linalg.norm, lambda v, t: jnp.maximum(1 - t / jnp.maximum(jnp.linalg.norm(v), 1e-30), 0) * v
    )
    yield Case("proximal-group", ls.ProximalGradient(), ls.Composite(quadratic, group), b)
    yield Case("heavy-ball-smooth-units", ls.HeavyBall(), own, rows)
    yield Case("quasi-newton-units", QuasiNewton(3), own, rows)
    yield Case("proximal-group-units", ls.ProximalGradient(), ls.Composite(own, group), rows)
    weights = ls.L1(np.linspace(0.1, 0.8, n))
    yield Case("proximal-weighted", ls.ProximalGradient(), ls.Composite(quadratic, weights), b)
    yield Case("accelerated-lasso", ls.AcceleratedProximalGradient(), ls.Composite(quadratic, ls.L1(0.4)), b)
    yield Case("douglas-rachford-lasso", DouglasRachford(), ls.Composite(quadratic, ls.L1(0.4)), b)
    yield Case("douglas-rachford-group", DouglasRachford(), ls.Composite(quadratic, group), b)
    for equilibrate in (True, False):
        suffix = "" if equilibrate else "-unscaled"
        P, q, A, l, u = random_qp(3, n=8, equalities=2, inequalities=7, free=1)
        shift = rng.normal(size=(N, 8)) * 0.3
        family = ls.QP(P, sp.csc_array(A), q=q, l=l, u=u, parameter=ls.Affine(q=np.eye(8)), equilibrate=equilibrate)
        yield Case(f"osqp{suffix}", ls.OSQP(), family, shift)
        yield Case(f"pdhg{suffix}", PDHG(), family, shift)
        P, A, b_, c = random_conic(5, CONES["mixed"])
        move = rng.normal(size=(N, 10)) * 0.1
        family = ls.Conic(P, A, CONES["mixed"], b=b_, c=c, parameter=ls.Affine(c=P), equilibrate=equilibrate)
        yield Case(f"scs{suffix}", ls.SCS(), family, move)


CASES = list(_cases())


def find_roles(algorithm: Algorithm, family: Family) -> dict[str, str]:
    """What each hyperparameter does in a step, by name."""
    return {h.name: h.role for h in algorithm.hyperparameters(family)}


def case_of(algorithm: type[Algorithm], family: type[Family] = Family) -> Case:
    """The first case of an algorithm, on families of a kind."""
    return next(c for c in CASES if type(c.algorithm) is algorithm and isinstance(c.family, family))
