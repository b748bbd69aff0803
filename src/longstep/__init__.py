"""Learned hyperparameter schedules for first-order solvers of parametric convex problems."""

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
from .codegen import generate_c as generate_c
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .families.affine import Affine as Affine
from .families.composite import Composite as Composite
from .families.conic import Conic as Conic
from .families.cvxpy import from_cvxpy as from_cvxpy
from .families.dataset import Dataset as Dataset
from .families.qp import QP as QP
from .families.reference import solve_references as solve_references
from .families.smooth import Quadratic as Quadratic
from .families.smooth import Smooth as Smooth
from .learn import learn as learn
from .linalg.cones import Cones as Cones
from .linalg.prox import L1 as L1
from .linalg.prox import Box as Box
from .linalg.prox import CustomProx as CustomProx
from .linalg.prox import NonNegative as NonNegative
from .linalg.prox import Zero as Zero
from .schedules.classical import chebyshev as chebyshev
from .schedules.classical import silver as silver
from .schedules.classical import silver_strongly_convex as silver_strongly_convex
from .schedules.schedule import Schedule as Schedule
from .solution import Point as Point
from .solution import Solution as Solution
from .solution import Status as Status
from .solver import Solver as Solver
from .training.losses import Loss as Loss
from .training.spectrum import Gaussian as Gaussian
from .training.train import Training as Training
from .training.train import train as train

__version__ = "0.1.0"
