"""Arrays of real numbers out of what a user gives; what would silently lose a part is refused."""

import numpy as np

_NUMBERS = (int, float, np.floating, np.integer, np.bool_)


_WORDS = {"c": "complex ones", "U": "text", "S": "text", "M": "dates", "m": "durations"}


def read_plain_array(name: str, value: object) -> np.ndarray:
    """Return `value` as an array of real numbers in its own type: no complex numbers, dates, masks, texts or ragged
    lists."""
    if isinstance(value, np.ma.MaskedArray) and (mask := np.ma.getmaskarray(value)).any():
        where = ", ".join(str(int(i)) for i in np.argwhere(mask)[0])
        at = f" at entry {where}" if where else ""
        raise ValueError(f"{name} is masked{at}: fill in a number, or leave the instance out")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array: its parts have different shapes") from None
    if array.dtype.kind in "fiub":
        return array
    # Lists of numbers of several types come as objects.
    if array.dtype.kind == "O" and all(isinstance(entry, _NUMBERS) for entry in array.ravel()):
        return array.astype(np.float64)
    raise ValueError(f"{name} must be real numbers, got {_WORDS.get(array.dtype.kind, type(value).__name__)}")


def real_array(name: str, value: object) -> np.ndarray:
    """Return `value` as float64, refused as `read_plain_array` does."""
    return read_plain_array(name, value).astype(np.float64, copy=False)


def real_number(name: str, value: object) -> float:
    """Return `value` as one number, refused as `read_plain_array` does."""
    if isinstance(value, int | float):
        return float(value)
    array = real_array(name, value)
    if array.size != 1:
        raise ValueError(f"{name} must be one number, got an array of shape {array.shape}")
    return float(array.item())


def check_real(name: str, tree: object) -> None:
    """Refuse a pytree in which any array is not of real numbers."""
    import jax

    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        read_plain_array(f"{name}{jax.tree_util.keystr(path)}", leaf)
