"""C code from a solver: `generate_c` writes it to a folder, `Solver.compile` builds and loads it."""

from .compiled import CompiledSolver as CompiledSolver
from .compiled import compile_solver as compile_solver
from .export import Export as Export
from .export import generate_c as generate_c
