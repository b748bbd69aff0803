"""A solver as a layer of PyTorch, which is imported here and nowhere else."""

try:
    import torch as _torch  # pyright: ignore[reportMissingImports] # noqa: F401
except ImportError as error:
    raise ImportError("longstep.torch needs PyTorch: pip install 'longstep[torch]'") from error

from .layer import Layer as Layer
from .layer import LayerSolution as LayerSolution
