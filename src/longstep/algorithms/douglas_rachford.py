"""Douglas–Rachford splitting (ADMM) on a quadratic plus a function with a cheap proximal operator."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from ..families.base import Family
from ..families.composite import Composite
from ..families.smooth import Quadratic, QuadraticInstance
from ..linalg.matrix import Identity
from ..linalg.systems import Gram, Pattern, Spectrum, solve
from ..schedules.domain import Interval, Positive
from ..schedules.hyperparameter import Hyperparameter
from .proximal import CompositeMethod

# Eigenvalues below this part of the largest do not count for the default penalty: rounding, or directions that matter
# as little.
_FLAT = 1e-4


class Decomposed(Quadratic):
    """A quadratic with the eigenvectors of P, which all P + ρI have."""

    spectrum: Spectrum

    def __init__(self, family: Quadratic):
        for name in Quadratic.__dataclass_fields__:
            setattr(self, name, getattr(family, name))
        self.spectrum = Spectrum(*(jnp.asarray(part, family.dtype) for part in family.host.spectrum))


class SplitState(eqx.Module):
    """The iterate, and the dual of the split x = z: at the optimum a subgradient of g, which is −∇f(z).

    y and not z + y/ρ: only so is the optimum a fixed point whatever ρ is.
    """

    z: Float[Array, "n *N"]
    y: Float[Array, "n *N"]


class DouglasRachford(CompositeMethod[QuadraticInstance, SplitState]):
    """ADMM on ½x'Px + q'x + g(z), x = z, with hyperparameters `rho` = ρ and `alpha` = α.

        x̃  = (P + ρI)⁻¹(ρz − y − q)
        v  = αx̃ + (1−α)z + y/ρ
        z⁺ = prox_{g/ρ}(v),  y⁺ = ρ(v − z⁺)

    Instances must share P. A step costs as much as one of proximal gradient: a product with an inverse that is made
    offline. All P + ρI have the eigenvectors of P, so training factors nothing.

    The default ρ is √(λL), with L the largest eigenvalue of P and λ the smallest that is at least 1e-4·L: for λ > 0
    and the worst g no constant contracts faster (Giselsson and Boyd 2017). A start brings y = −(Pz + q).
    """

    theorem: ClassVar[str | None] = (
        "Douglas–Rachford splitting with a constant positive penalty and relaxation in (0, 2) converges to a minimiser "
        "(Eckstein and Bertsekas 1992)."
    )
    symbols: ClassVar[dict[str, str]] = {"rho": r"$\rho$", "alpha": r"$\alpha$"}
    units: ClassVar[dict[str, str]] = {"rho": "cost/unit²", "alpha": "1"}

    @override
    @classmethod
    def is_tried(cls, family: Family, exact: bool, large: bool) -> bool:
        return isinstance(family, Composite) and isinstance(family.smooth, Quadratic)

    @override
    def check_family(self, family: Family) -> None:
        super().check_family(family)
        if isinstance(family, Composite) and not isinstance(family.smooth, Quadratic):
            raise TypeError(
                "DouglasRachford solves Composite families whose instances share P, Composite(Quadratic(P), g); here "
                f"the smooth part is a {type(family.smooth).__name__} family. Use ProximalGradient"
            )

    @override
    def hyperparameters(self, family):
        L = family.lipschitz
        values = _find_quadratic(family).host.eigenvalues
        default = float(np.sqrt(L * values[values >= _FLAT * L][0]))
        # In single precision the linear systems are singular beyond: training must not go there.
        positive = Positive() if family.dtype == np.float64 else Positive(1e-4 * L, 1e4 * L)
        return (
            Hyperparameter("rho", default, positive, positive, factored=True, role="penalty"),
            Hyperparameter("alpha", 1.6, Interval(0.0, 2.0), Interval(0.0, 2.0, margin=1e-3), role="relaxation"),
        )

    @override
    def pattern(self, family):
        diagonal = _find_quadratic(family).host.diagonal
        return Pattern(family.n, diagonal=diagonal, spectral=_find_spectrum(family) is not None)

    @override
    def operator(self, family, theta):
        """Return P + ρI."""
        smooth = _find_quadratic(family)
        n = family.n
        rho = theta["rho"]
        identity = Identity(n, rho.dtype)
        none = jnp.zeros_like(rho)
        return Gram(
            P=smooth.matrix,
            A=identity,
            shift=none,
            weights=jnp.full(n, rho),
            n=n,
            diagonal=smooth.host.diagonal,
            spectrum=_find_spectrum(family),
        )

    @override
    def prepare_family(self, family, *, training=False):
        smooth = _find_quadratic(family)
        if not training or smooth.host.diagonal or isinstance(smooth, Decomposed):
            return family
        return family.with_smooth(Decomposed(smooth))

    @override
    def solve_tolerance(self, epsilon):
        return epsilon ** (2 / 3)

    @override
    def init(self, family, instance, start):
        if start is None:
            zero = jnp.zeros((family.n, *family.batch(instance)), family.dtype)
            return SplitState(zero, zero)
        return SplitState(start.x, -family.gradient(instance, start.x))

    @override
    def step(self, family, instance, theta, factors, extra, state):
        assert factors is not None
        rho = theta["rho"]
        z = state.z
        y = state.y
        x = solve(self.operator(family, theta), factors, rho * z - y - instance.q)
        v = z + theta["alpha"] * (x - z) + y / rho
        z = family.g.prox(v, 1 / rho)
        return SplitState(z, rho * (v - z))

    @override
    def coordinates(self, family, instance, state):
        """Return both in units of z."""
        return jnp.concatenate([state.z, state.y / family.lipschitz])

    @override
    def safe(self, family, steady):
        return steady


def _find_quadratic(family: Composite[QuadraticInstance]) -> Quadratic:
    """Return the smooth part, which `check_family` has seen to be quadratic."""
    assert isinstance(family.smooth, Quadratic)
    return family.smooth


def _find_spectrum(family: Composite[QuadraticInstance]) -> Spectrum | None:
    """Return the spectrum of P where the family was prepared with it."""
    smooth = family.smooth
    if not isinstance(smooth, Decomposed):
        return None
    return smooth.spectrum
