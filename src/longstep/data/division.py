"""Samples divided: which of them are to learn from, to choose by, to certify with and to compare on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..families.base import Family
from ..families.names import Block, Layout
from ..families.reading import Parameters
from .columns import Columns
from .dataset import draw
from .samples import read_samples

# A certificate on 97.5% of instances needs a few hundred of them; a test set shows a mean and a tail, and what is kept
# is chosen on others than it was trained on, where there are any.
_VALIDATION = 1000
_TEST = 200
_SELECTION = 200
# How many training instances are taken where there are enough; large families learn from fewer in the same time.
_TRAIN = 100
_TRAIN_LARGE = 20
LARGE = 300
# Where an instance takes seconds, fewer of all.
_SPARSE = {"validation": 0, "test": 20, "selection": 8}
_UNCERTIFIED = (
    "No certificate: instances of this family take long. One that holds for 97.5% of instances is made of some "
    'hundreds: sizes={"validation": 500}.'
)


def divide_samples(
    family: Family, samples: Any, sizes: Mapping[str, int] | None, iid: bool | None, seed: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of every split, and what is to be said of them."""
    unknown = sorted(set(sizes or ()) - {"train", "validation", "test"})
    if unknown:
        raise ValueError(f"sizes has {', '.join(unknown)}; the splits are train, validation and test")
    sizes = sizes or {}
    most = _TRAIN
    if family.n > LARGE:
        most = _TRAIN_LARGE
    if callable(samples):
        if iid is False:
            raise ValueError("a sampler draws independent parameters; pass past data as an array or a file instead")
        return _draw_splits(family, samples, most, sizes, seed)
    values = samples
    notes = []
    if not iid:
        values, notes = _drop_repeated(values)
    count = family.count(values)
    parts, more = share_samples(count, most, sizes, bool(iid))
    # The test is on the newest; training sees all the time before.
    numbers = _spread_numbers(parts, count)
    if iid:
        numbers = _shuffle_numbers(parts, count, seed)
    return {name: family.select(values, index) for name, index in numbers.items()}, notes + more


def _draw_splits(
    family: Family, sampler: Callable[[np.random.Generator], Parameters], most: int, sizes: Mapping[str, int], seed: int
) -> tuple[dict[str, Any], list[str]]:
    """Draw the parameters of every split, at most `most` to train on; return them, and what is to be said of them."""
    wanted = {"train": most, "validation": _VALIDATION, "test": _TEST, "selection": _SELECTION}
    notes = []
    if not family.m:
        wanted["selection"] = 0
    if family.sparse:
        wanted |= _SPARSE
        if "validation" not in sizes:
            notes.append(_UNCERTIFIED)
    wanted |= sizes
    return draw(sampler, {name: size for name, size in wanted.items() if size}, seed), notes


def _shuffle_numbers(parts: Mapping[str, int], count: int, seed: int) -> dict[str, np.ndarray]:
    """Return the numbers of the instances of each split, at random."""
    order = np.random.default_rng([seed, *b"learn"]).permutation(count)
    return dict(zip(parts, np.split(order, np.cumsum([*parts.values()])), strict=False))


def _spread_numbers(parts: Mapping[str, int], count: int) -> dict[str, np.ndarray]:
    """Return the numbers of the instances of each split: the last for the test, training spread over all before."""
    test = count - parts["test"]
    train = np.linspace(0, test - 1, parts["train"]).round().astype(int)
    numbers = {"train": train, "test": np.arange(test, count)}
    others = np.setdiff1d(np.arange(test), train)
    if others.size >= _SELECTION // 4:
        numbers["selection"] = others[-_SELECTION:]
    return numbers


def read_past(family: Family, samples: Any, columns: Columns) -> Any:
    """Return past parameters as arrays; a sampler as it is."""
    if isinstance(samples, str | Path):
        layout = family.layout or _make_layout(family, samples)
        return read_samples(Path(samples), layout, columns)
    if columns is not None:
        raise ValueError("columns says how a file of samples calls its columns, and these samples are no file")
    if callable(samples):
        return samples
    if _is_table(samples):
        samples = np.asarray(samples)
    return family.vectors(samples)


def _is_table(samples: Any) -> bool:
    return isinstance(samples, list | tuple) and bool(samples) and not isinstance(samples[0], Mapping)


def _make_layout(family: Family, path: Any) -> Layout:
    """Return the layout of a family without names: one vector x."""
    parameter = getattr(family, "parameter", None)
    if parameter is None:
        raise ValueError(f"the family has no parameter map, so the columns of {path} mean nothing to it")
    return Layout([Block("x", np.arange(parameter.size))], [])


def _drop_repeated(values: Any) -> tuple[Any, list[str]]:
    """Return parameters without those that repeat others, which would be in two splits at once, and a note of how many.

    Not for independent draws: the rest would not be independent.
    """
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        return values, []
    _, first = np.unique(values, axis=0, return_index=True)
    if len(first) == len(values):
        return values, []
    return values[np.sort(first)], [f"{len(values) - len(first)} of {len(values)} samples repeat others: left out."]


def share_samples(count: int, most: int, sizes: Mapping[str, int], iid: bool) -> tuple[dict[str, int], list[str]]:
    """Return how many of `count` past instances each split takes, in order: train, validation, test; and notes."""
    if count < 4:
        raise ValueError(f"there are {count} samples; learning needs at least 4, and better 20 or more")
    test = sizes.get("test", min(_TEST, max(count // 5, 2)))
    rest = count - test
    if iid:
        # Two thirds are for the certificate.
        trained = sizes.get("train", min(most, max(rest // 3, 2)))
        rest -= trained
        checked = sizes.get("validation", rest)
    else:
        trained = sizes.get("train", min(most, max(rest, 2)))
        rest -= trained
        checked = sizes.get("validation", 0)
    if min(test, trained) < 1 or checked < 0 or checked > rest:
        raise ValueError(
            f"{count} samples do not make {trained} for training, {checked} for validation and {test} for the "
            "test; ask for fewer in sizes"
        )
    if checked and not iid:
        raise ValueError("validation instances are for a certificate, which past data have with iid=True (--iid) only")
    notes = []
    if not iid:
        notes.append(
            "No certificate: past data are rarely independent. With iid=True (--iid) you say that these are, "
            "and one is made."
        )
    elif not checked:
        notes.append("No certificate: no samples are left for validation.")
    parts = {"train": trained, "validation": checked, "test": test}
    return {name: size for name, size in parts.items() if size}, notes
