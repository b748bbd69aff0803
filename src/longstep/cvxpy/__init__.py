"""Families from CVXPY problems. CVXPY itself is imported when it is first needed, not here."""

from .model import Model as Model
from .model import from_cvxpy as from_cvxpy
