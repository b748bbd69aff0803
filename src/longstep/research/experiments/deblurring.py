"""Image deblurring: a blurred, noisy image and a fixed blur, by OSQP's iteration.

    minimise ½‖Bw − b‖² + λ1'w  subject to  0 ≤ w ≤ 1

w are the k² pixels, B = T ⊗ T with T the k × k Toeplitz matrix that has 1/8 where |i − j| ≤ 4, and the parameter is
the blurred image b = Bw₀ + N(0, 0.001²). As a QP, P = B'B, q = λ1 − B'b and A = I; the objective lacks the constant
½‖b‖².
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from longstep import QP, Affine, Loss, Training, solve_references

from . import images as data
from . import methods
from .experiment import Experiment, Result
from .images import make_pixels
from .methods import Entry, Extent
from .parts import PartStore
from .sizes import Choices, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REACH = 4
STRENGTH = 1 / 8


def make_blur(side: int) -> np.ndarray:
    """Return B = T ⊗ T for images of side × side pixels."""
    i = np.arange(side)
    T = np.where(np.abs(i[:, None] - i) <= REACH, STRENGTH, 0.0)
    return np.kron(T, T)


@dataclass(frozen=True, eq=False)
class Deblurring:
    """Deblurring of square images (N, side, side), uint8 or in [0, 1].

    >>> problem = Deblurring(np.random.default_rng(0).random((5, 6, 6)))
    >>> problem.family.n, problem.sample(np.random.default_rng(1)).shape
    (36, (36,))
    """

    images: np.ndarray
    weight: float = 1e-4
    noise: float = 1e-3
    equilibrate: bool = True
    dtype: str = "float64"

    def __post_init__(self):
        shape = np.shape(self.images)
        if len(shape) != 3 or shape[1] != shape[2] or shape[0] == 0:
            raise ValueError(f"images must be square, in an array (N, side, side), got shape {shape}")

    @cached_property
    def B(self) -> np.ndarray:
        """The blur (side², side²)."""
        return make_blur(self.images.shape[1])

    @cached_property
    def family(self) -> QP:
        """The QP over the pixels, row by row, with the blurred image as its parameter."""
        n = len(self.B)
        return QP(
            self.B.T @ self.B,
            np.eye(n),
            q=np.full(n, self.weight),
            l=np.zeros(n),
            u=np.ones(n),
            parameter=Affine(q=-self.B.T),
            equilibrate=self.equilibrate,
            dtype=self.dtype,
        )

    def observe(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return one image (side, side) blurred, with noise, as a parameter (side²,)."""
        return self.B @ make_pixels(image[None])[0] + self.noise * rng.normal(size=len(self.B))

    def draw_pair(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return one of the images, as pixels (side²,), and what is observed of it."""
        image = self.images[rng.integers(len(self.images))]
        return make_pixels(image[None])[0], self.observe(image, rng)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return one of the images, blurred, with noise."""
        return self.draw_pair(rng)[1]


# What is left after ten steps is slow: twenty that are learned together go a third further than ten and ten.
BLOCKS = (10, 20)
_SMALL = Size(few=60, slow=60, timed=0, hidden=(30, 30), l2ws=60, lm=15)


class DeblurringExperiment(Experiment[QP]):
    """Residuals are measured, so training instances alone need optima."""

    name = "deblurring"
    title = "Image deblurring, OSQP"
    sizes: ClassVar[Mapping[str, Size]] = {
        "small": replace(
            _SMALL,
            problem={"side": 9}, validation=600, test=60, steps=100, certified=(10, 20, 30), horizon=20,
            package_steps=60,
            training={"iterations": 8, "candidates": 12, "starts": 1}
        ),
        "reference": Size(
            validation=600, test=200, few=100, slow=20, steps=300, block=BLOCKS, certified=(10, 30, 40, 50, 60)
        ),
        "paper": Size(
            few=100, slow=25, timed=50, steps=300, block=BLOCKS, neighbours=50, networks=(10, 50), l2ws=300, lm=50
        ),
    }  # fmt: skip
    references = ("train",)
    pictured = (4, 3)

    def __init__(self, options: Choices, parts: PartStore):
        super().__init__(options, parts)
        self.source = data.load("emnist", options.data)

    @cached_property
    def problem(self) -> Deblurring:
        """Whole images, or for a small problem every third pixel of them."""
        side = self.size.problem.get("side", 28)
        every = 28 // side
        return Deblurring(self.source.images[:, ::every, ::every][:, :side, :side])

    @override
    def list_notes(self) -> list[str]:
        return [f"Images: {self.source.title}."]

    @override
    def train_main(self) -> Training:
        """Train the schedule of the tables, by the residuals alone."""
        return self.learn("schedule", loss="metric")

    def train_early(self) -> Training:
        """Train a schedule that is judged after every third step of a block, and so is of use after three."""
        horizon = min(self.size.horizon, 20)
        return self.learn("early", horizon=horizon, loss=Loss(distance=0.5, metric=1.0, stress=1.0, every=3))

    @override
    def list_entries(self) -> list[Entry]:
        family = self.family
        size = self.size
        training = self.train_main()
        few: Extent = {"instances": size.few}
        ones = dict.fromkeys(("sigma", "rho_eq", "rho_ineq"), float(np.e)) | {"alpha": 1.0}
        plain = Deblurring(self.problem.images, equilibrate=False).family
        return [
            methods.make_learned("learned", f"learned, N = {size.train}", family, self.train_main),
            methods.make_learned(
                "learned-early", f"learned for early use, N = {size.train}", family, self.train_early, **few
            ),
            methods.make_best_constant(family, training, **few),
            methods.make_vanilla(family, "vanilla, OSQP's defaults", **few),
            methods.make_fixed("published", "published vanilla, ρ = σ = e", plain, ones, **few),
            *self.list_networks(training, steps=min(100, size.steps)),
            methods.make_osqp(family, self.trained_on, instances=size.package, steps=size.package_steps),
        ]

    @override
    def draw_pictures(self, results: list[Result]) -> "dict[str, Figure]":
        """Draw a row a character: as it was, blurred, optimal, and by each method after three iterations."""
        from .pictures import collect_points, draw_gallery

        assert self.pictured is not None
        count, after = self.pictured
        rng = np.random.default_rng([self.options.seed, *b"test"])
        pairs = [self.problem.draw_pair(rng) for _ in range(count)]
        blurred = np.stack([b for _, b in pairs])
        if not np.array_equal(blurred, self.data.test.parameters[:count]):
            raise AssertionError("the pictures are not of the first test instances")
        optima = solve_references(self.family, blurred, cache=self.options.cache, progress=False).x
        columns = {"original": np.stack([w for w, _ in pairs]), "blurred": blurred, "optimal": optima}
        columns |= collect_points(results)
        side = self.problem.images.shape[1]
        rows = [{name: x[i].reshape(side, side) for name, x in columns.items()} for i in range(count)]
        return {"characters": draw_gallery(rows, f"After {after} iterations")}
