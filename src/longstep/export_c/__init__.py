"""C code from a solver: `generate_c` writes it to a folder, `Solver.compile` builds and loads it."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compiled import CompiledSolver as CompiledSolver
    from .compiled import compile_solver as compile_solver
    from .export import Export as Export
    from .export import generate_c as generate_c

# Fetched when first asked for: to call a library that is there takes none of what writes one.
_HOMES = {"CompiledSolver": "compiled", "compile_solver": "compiled", "Export": "export", "generate_c": "export"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
