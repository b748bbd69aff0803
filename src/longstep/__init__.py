"""Learned hyperparameter schedules for first-order solvers of parametric convex problems."""

import importlib
from typing import TYPE_CHECKING, Any

from ._util import forks as _forks  # noqa: F401 (watches from the beginning)
from ._util.version import __version__ as __version__

# Where each public name is at home. It is fetched when it is first asked for: reading data needs no JAX, solving no
# statistics, and neither of them reports or research.
_HOMES = {
    "AcceleratedProximalGradient": "algorithms.proximal",
    "Affine": "families.affine",
    "Box": "linalg.prox",
    "Certificate": "certificates.certificate",
    "certify": "certificates.certificate",
    "chebyshev": "schedules.classical",
    "Composite": "families.composite",
    "Cones": "cones.product",
    "Conic": "families.conic",
    "CustomProx": "linalg.prox",
    "Dataset": "data.dataset",
    "enable_float64": "_util.precision",
    "evaluate": "evaluation.evaluate",
    "Evaluation": "evaluation.evaluate",
    "from_cvxpy": "cvxpy",
    "Gaussian": "training.closed_form.spectrum",
    "generate_c": "export_c",
    "GradientDescent": "algorithms.gradient",
    "Guarantee": "certificates.guarantee",
    "guarantee": "certificates.guarantee",
    "HeavyBall": "algorithms.gradient",
    "L1": "linalg.prox",
    "learn": "learning",
    "Loss": "training.losses",
    "NonNegative": "linalg.prox",
    "OSQP": "algorithms.osqp",
    "Point": "families.point",
    "ProximalGradient": "algorithms.proximal",
    "QP": "families.quadratic_program",
    "Quadratic": "families.smooth",
    "read_samples": "data.samples",
    "required_samples": "certificates.sample",
    "Schedule": "schedules.schedule",
    "SCS": "algorithms.scs",
    "silver": "schedules.classical",
    "silver_strongly_convex": "schedules.classical",
    "Smooth": "families.smooth",
    "Solution": "engine.solution",
    "solve_references": "data.references",
    "Solver": "solver",
    "Status": "engine.solution",
    "train": "training.train",
    "Training": "training.record",
    "write_table": "data.tables",
    "Zero": "linalg.prox",
}
__all__ = [
    "L1",
    "OSQP",
    "QP",
    "SCS",
    "AcceleratedProximalGradient",
    "Affine",
    "Box",
    "Certificate",
    "Composite",
    "Cones",
    "Conic",
    "CustomProx",
    "Dataset",
    "Evaluation",
    "Gaussian",
    "GradientDescent",
    "Guarantee",
    "HeavyBall",
    "Loss",
    "NonNegative",
    "Point",
    "ProximalGradient",
    "Quadratic",
    "Schedule",
    "Smooth",
    "Solution",
    "Solver",
    "Status",
    "Training",
    "Zero",
    "certify",
    "chebyshev",
    "enable_float64",
    "evaluate",
    "from_cvxpy",
    "generate_c",
    "guarantee",
    "learn",
    "read_samples",
    "required_samples",
    "silver",
    "silver_strongly_convex",
    "solve_references",
    "train",
    "write_table",
]

if TYPE_CHECKING:
    from . import errors as errors
    from ._util.precision import enable_float64 as enable_float64
    from .algorithms.gradient import GradientDescent as GradientDescent
    from .algorithms.gradient import HeavyBall as HeavyBall
    from .algorithms.osqp import OSQP as OSQP
    from .algorithms.proximal import AcceleratedProximalGradient as AcceleratedProximalGradient
    from .algorithms.proximal import ProximalGradient as ProximalGradient
    from .algorithms.scs import SCS as SCS
    from .certificates.certificate import Certificate as Certificate
    from .certificates.certificate import certify as certify
    from .certificates.guarantee import Guarantee as Guarantee
    from .certificates.guarantee import guarantee as guarantee
    from .certificates.sample import required_samples as required_samples
    from .cones.product import Cones as Cones
    from .cvxpy import from_cvxpy as from_cvxpy
    from .data.dataset import Dataset as Dataset
    from .data.references import solve_references as solve_references
    from .data.samples import read_samples as read_samples
    from .data.tables import write_table as write_table
    from .engine.solution import Solution as Solution
    from .engine.solution import Status as Status
    from .evaluation.evaluate import Evaluation as Evaluation
    from .evaluation.evaluate import evaluate as evaluate
    from .export_c import generate_c as generate_c
    from .families.affine import Affine as Affine
    from .families.composite import Composite as Composite
    from .families.conic import Conic as Conic
    from .families.point import Point as Point
    from .families.quadratic_program import QP as QP
    from .families.smooth import Quadratic as Quadratic
    from .families.smooth import Smooth as Smooth
    from .learning import learn as learn
    from .linalg.prox import L1 as L1
    from .linalg.prox import Box as Box
    from .linalg.prox import CustomProx as CustomProx
    from .linalg.prox import NonNegative as NonNegative
    from .linalg.prox import Zero as Zero
    from .schedules.classical import chebyshev as chebyshev
    from .schedules.classical import silver as silver
    from .schedules.classical import silver_strongly_convex as silver_strongly_convex
    from .schedules.schedule import Schedule as Schedule
    from .solver import Solver as Solver
    from .training.closed_form.spectrum import Gaussian as Gaussian
    from .training.losses import Loss as Loss
    from .training.record import Training as Training
    from .training.train import train as train


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module(".errors", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'longstep' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
