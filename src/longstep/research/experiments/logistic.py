"""Logistic regression: telling two handwritten digits apart, a new pair every time.

    minimise (1/m) Σᵢ log(1 + exp(−yᵢ vᵢ'z)) + (ε/2)‖z‖²

vᵢ is an image with pixels in [0, 1] and a last entry of one for the bias, yᵢ = ±1 its class; there are as many images
of either class. The parameter is the images and the labels, so the Hessian differs between instances. The gradient is
−(1/m) Σᵢ yᵢ vᵢ/(1 + exp(yᵢ vᵢ'z)) + εz, with a minus sign.

200 points in 784 dimensions are separable: with ε = 0 the infimum is zero and is not attained, so there is no
reference optimum. The default ε = 1e-4 (on all unknowns, the bias included) makes the problem well posed. Zero is
a lower bound either way.

Published is gradient descent. As the curvature of these instances differs, and falls by orders of magnitude on the way
of each, learned are quasi-Newton steps, whose unit is the curvature where an instance stands; gradient descent is
learned too, as published.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from typing_extensions import override

from longstep import HeavyBall, Smooth, Solver, Training

from ..._util.threads import one_blas_thread
from ...algorithms.quasi_newton import QuasiNewton
from ...data.dataset import draw
from ...data.optima import Optima
from ...linalg.matrix import squared_norm_bound
from ..baselines import classical
from ..baselines.lbfgsb import LBFGSB
from . import images as data
from . import methods
from .experiment import Experiment
from .images import make_pixels
from .logistic_optima import make_design, make_labels, solve_logistic, split_chunks
from .methods import Entry, Extent
from .parts import PartStore
from .sizes import Choices, Size


def loss(z: jax.Array, x: "Mapping[str, jax.Array] | jax.Array", regularization: float) -> jax.Array:
    """Return the regularised mean logistic loss of one instance."""
    return jnp.mean(jnp.logaddexp(0.0, -_compute_margins(x, z))) + 0.5 * regularization * z @ z


def _compute_margins(x: "Mapping[str, jax.Array] | jax.Array", z: jax.Array) -> jax.Array:
    """Return y ⊙ Vz of one instance."""
    if isinstance(x, Mapping):
        return x["labels"] * (x["images"] @ z)
    scores = x.astype(z.dtype) @ z[:-1] / 255.0 + z[-1]
    return jnp.asarray(make_labels(x.shape[0]), z.dtype) * scores


@dataclass(frozen=True, eq=False)
class Logistic:
    """Pairs of classes from labelled images (N, …), `per_class` images of either.

    A parameter is {"images": (2·per_class, pixels + 1), "labels": (2·per_class,)}, or, in an eighth of the memory, the
    pixels alone as bytes (2·per_class, pixels), the first half being one class. The family's Lipschitz constant comes
    from training instances, so these are drawn first:

    >>> rng = np.random.default_rng(0)
    >>> problem = Logistic(rng.random((30, 2, 2)), np.arange(30) % 3, per_class=5)
    >>> training = problem.sample_many(4, rng)
    >>> family = problem.make_family(training)
    >>> family.n, training["images"].shape
    (5, (4, 10, 5))
    """

    images: np.ndarray
    labels: np.ndarray
    per_class: int = 100
    regularization: float = 1e-4
    dtype: str = "float64"

    def __post_init__(self):
        classes, counts = np.unique(self.labels, return_counts=True)
        if len(classes) < 2 or counts.min() < self.per_class:
            found = ", ".join(f"{c}: {k}" for c, k in zip(classes, counts, strict=True))
            raise ValueError(f"need two classes or more with {self.per_class} images each, got {found}")

    def make_family(
        self, training: "Mapping[str, np.ndarray] | np.ndarray", margin: float = 1.5, units: str = "instance"
    ) -> Smooth:
        """Return the family with L = margin · max λmax(V'V)/(4m) over the training instances + ε.

        Step sizes are in units of the L of each `instance`, by four power iterations on its images; or of the
        `family`'s, which is up to three times that.
        """
        own = None
        if units == "instance":
            own = partial(curvature_bound, regularization=self.regularization)
        return Smooth(
            partial(loss, regularization=self.regularization),
            margin * float(compute_curvatures(training).max()) + self.regularization,
            make_design(_take_images(training)[:1]).shape[-1],
            strong_convexity=self.regularization,
            lower_bound=0.0,
            lipschitz_of=own,
            dtype=self.dtype,
        )

    def find_outside(self, family: Smooth, parameters: "Mapping[str, np.ndarray] | np.ndarray") -> np.ndarray:
        """Return a mask (N,) of the instances whose own L exceeds the family's: no guarantee holds for them."""
        return compute_curvatures(parameters) + self.regularization > family.lipschitz

    def sample(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return two random classes (+1 and −1) and `per_class` random images of either."""
        pair = rng.choice(np.unique(self.labels), 2, replace=False)
        chosen = [rng.choice(np.flatnonzero(self.labels == c), self.per_class, replace=False) for c in pair]
        points = make_pixels(self.images[np.concatenate(chosen)])
        return {
            "images": np.hstack([points, np.ones((len(points), 1))]),
            "labels": np.repeat([1.0, -1.0], self.per_class),
        }

    def sample_bytes(self, rng: np.random.Generator) -> np.ndarray:
        """Return the same as bytes (2·per_class, pixels)."""
        return np.rint(255 * self.sample(rng)["images"][:, :-1]).astype(np.uint8)

    def sample_many(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return `count` parameters, stacked on the leading axis."""
        drawn = [self.sample(rng) for _ in range(count)]
        return {name: np.stack([x[name] for x in drawn]) for name in ("images", "labels")}


def curvature_bound(x: "Mapping[str, jax.Array] | jax.Array", regularization: float) -> jax.Array:
    """Return a bound on ‖V‖²/(4m) + ε of one instance, nearly exact because pixels are not negative."""
    V = _make_traced_design(x)
    return squared_norm_bound(V) / (4 * V.shape[0]) + regularization


def _make_traced_design(x: "Mapping[str, jax.Array] | jax.Array") -> jax.Array:
    """Return V of one instance, for JAX."""
    if isinstance(x, Mapping):
        return x["images"]
    points = x.astype(jnp.result_type(float)) / 255.0
    return jnp.append(points, jnp.ones((x.shape[0], 1), points.dtype), axis=1)


def compute_curvatures(parameters: "Mapping[str, np.ndarray] | np.ndarray") -> np.ndarray:
    """Return λmax(V'V)/(4m) of N stacked instances: the Lipschitz constants (N,) of their gradients without ε."""
    return np.concatenate([_compute_curvatures(make_design(part)) for part in split_chunks(_take_images(parameters))])


def _take_images(parameters: "Mapping[str, np.ndarray] | np.ndarray") -> np.ndarray:
    if isinstance(parameters, Mapping):
        return parameters["images"]
    return parameters


def _compute_curvatures(V: Float[np.ndarray, "N m n"]) -> Float[np.ndarray, " N"]:
    return np.linalg.eigvalsh(V @ V.swapaxes(-1, -2))[..., -1] / (4 * V.shape[-2])


_SMALL = Size(few=60, slow=60, timed=0, hidden=(20, 20), l2ws=40, lm=10)


class LogisticExperiment(Experiment[Smooth]):
    """With ε = 0, as published, no minimiser exists: errors are f itself, and what needs optima is left out."""

    name = "logistic"
    title = "Logistic regression on pairs of digits"
    tail_at = (10, 20, 50, 100, 200, 300)
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL,
            problem={"per_class": 10, "every": 4}, validation=600, test=60, steps=100, horizon=30,
            certified=(10, 20, 30), more=20, training={"iterations": 20, "starts": 1}
        ),
        "reference": Size(
            validation=600, test=200, few=100, slow=20, timed=20, chunk=100, steps=300, horizon=100, l2ws=40, lm=20,
            certified=(20, 40, 60, 80, 100), more=50,
        ),
        "paper": Size(
            few=200, slow=50, timed=20, chunk=100, steps=300, horizon=100, l2ws=60, lm=30,
            certified=tuple(range(10, 121, 10)), more=50,
        ),
    }  # fmt: skip

    def __init__(self, options: Choices, parts: PartStore):
        super().__init__(options, parts)
        self.source = data.load("mnist", options.data)
        self.epsilon = 1e-4
        if options.regularization is not None:
            self.epsilon = options.regularization

    @cached_property
    def problem(self) -> Logistic:
        """Whole images, or for a small problem a part of their pixels."""
        every = self.size.problem.get("every", 1)
        per_class = self.size.problem.get("per_class", 100)
        small = np.ascontiguousarray(self.source.images[:, ::every, ::every])
        return Logistic(small, self.source.labels, per_class, self.epsilon)

    @cached_property
    def drawn_parameters(self) -> dict[str, PyTree]:
        """Images as bytes."""
        return draw(self.problem.sample_bytes, self.counts, self.options.seed)

    @override
    def draw_parameters(self) -> dict[str, PyTree]:
        return self.drawn_parameters

    @property
    @override
    def family(self) -> Smooth:
        """L is of the instances that are learned from, however many the networks get."""
        return self._family

    @cached_property
    def _family(self) -> Smooth:
        return self.problem.make_family(self.drawn_parameters["train"][: self.size.train])

    @override
    def find_optima(self, parameters: np.ndarray) -> Optima:
        """Return the optima by Newton's method; without a regulariser inf f = 0 stands for the optimal value."""
        if self.epsilon:
            with one_blas_thread():
                return solve_logistic(parameters, self.epsilon)
        zero = np.zeros(len(parameters))
        return Optima(np.zeros((len(parameters), self.family.n)), None, None, zero, zero)

    @override
    def list_notes(self) -> list[str]:
        return [
            f"Images: {self.source.title}. ε = {self.epsilon:g}.",
            "Steps of gradient methods, learned and classical, are in units of 1/L of each instance, by four power "
            "iterations that bound its L from above. Quasi-Newton steps take that for their first unit alone. The "
            "nearest neighbour and the networks are on the best constant of gradient descent.",
        ]

    @override
    def train_main(self) -> Training:
        return self.train_quasi_newton("quasi-newton", self.size.train)

    def train_more(self) -> Training:
        """Train the same from more instances."""
        return self.train_quasi_newton("more", self.size.more)

    def train_quasi_newton(self, name: str, count: int) -> Training:
        """Train as many quasi-Newton steps as are needed to 1e-6 and more, with less effort: less is left to learn."""
        horizon = min(30, self.size.horizon)
        options = {"iterations": 60, "starts": 2, **self.size.training, "horizon": horizon}
        return self.learn(name, self.take_first(count), algorithm=QuasiNewton(), loss="metric", **options)

    def train_gradient(self) -> Training:
        """Train gradient descent, as published."""
        return self.learn("schedule", loss="metric")

    def train_single(self) -> Training:
        """Train gradient descent by the published one-step rule."""
        return self.learn("block-1", block=1, loss="distance")

    def train_accelerated(self) -> Training:
        """Train with momentum, learned too."""
        return self.learn("momentum", algorithm=HeavyBall(), loss="metric")

    @override
    def list_entries(self) -> list[Entry]:
        found = [*self._list_quasi_newton(), *self._list_gradient()]
        if self.epsilon:
            found += self.list_networks(self.train_gradient())
        return found

    def _list_quasi_newton(self) -> list[Entry]:
        """Return the learned schedules, what they must beat, and the package with the same kind of steps."""
        family = self.family
        size = self.size
        few: Extent = {"instances": size.few}
        name = "learned, quasi-Newton, N = {}"
        held = methods.make_best_constant(family, self.train_main(), **few)
        return [
            methods.make_learned("learned", name.format(size.train), family, self.train_main),
            methods.make_learned("learned-more", name.format(size.more), family, self.train_more),
            replace(held, name="best constant, quasi-Newton"),
            Entry("untrained", "quasi-Newton, untrained", lambda: Solver(family, algorithm=QuasiNewton()), **few),
            Entry("package", "L-BFGS-B of SciPy, by evaluations", lambda: LBFGSB(family), **few),
        ]

    def _list_gradient(self) -> list[Entry]:
        """Return learned and classical gradient methods."""
        family = self.family
        size = self.size
        few: Extent = {"instances": size.few}
        names = f"learned, B = {size.block}, N = {size.train}", f"learned with momentum, N = {size.train}"
        held = methods.make_best_constant(family, self.train_gradient(), **few)
        found = [
            methods.make_learned("learned-gradient", names[0], family, self.train_gradient, **few),
            methods.make_learned("learned-momentum", names[1], family, self.train_accelerated, **few),
            replace(held, id="constant-gradient", name="best constant, gradient descent"),
            methods.make_fixed("vanilla", "vanilla, 1/L", family, {"step": 1 / family.lipschitz}, **few),
            methods.make_theoretical("nesterov", lambda: classical.nesterov_convex(family), "Nesterov, convex"),
            methods.make_theoretical("silver", lambda: classical.silver_steps(family), "silver steps, convex", **few),
        ]
        if self.epsilon:
            name = "learned, B = 1, exact"
            found.insert(2, methods.make_learned("learned-1", name, family, self.train_single, **few))
        return found
