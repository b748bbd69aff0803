"""A solver as a layer of PyTorch, which is imported here and nowhere else."""

# Where PyTorch is not installed, a type checker takes this package for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("longstep.torch needs PyTorch: pip install 'longstep[torch]'") from error

from .layer import Layer as Layer
from .layer import LayerSolution as LayerSolution
