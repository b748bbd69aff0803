"""Samples divided: which of them are to learn from, to choose by, to certify with and to compare on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..families.base import Family
from ..families.names import Block, Layout
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
_LARGE = 300
# Where an instance takes seconds, fewer of all.
_SPARSE = {"validation": 0, "test": 20, "selection": 8}
_UNCERTIFIED = (
    "No certificate: instances of this family take long. One that holds for 97.5% of instances is made of some "
    'hundreds: sizes={"validation": 500}.'
)


def divide_samples(
    family: Family, samples: Any, sizes: Mapping[str, int] | None, iid: bool | None, seed: int
) -> tuple[dict[str, Any], list[str]]:
    """The parameters of every split, and what is to be said of them."""
    unknown = sorted(set(sizes or ()) - {"train", "validation", "test"})
    if unknown:
        raise ValueError(f"sizes has {', '.join(unknown)}; the splits are train, validation and test")
    most = _TRAIN if family.n <= _LARGE else _TRAIN_LARGE
    if callable(samples):
        if iid is False:
            raise ValueError("a sampler draws independent parameters; pass past data as an array or a file instead")
        wanted = {"train": most, "validation": _VALIDATION, "test": _TEST, "selection": _SELECTION if family.m else 0}
        notes = []
        if family.sparse:
            wanted |= _SPARSE
            notes = [_UNCERTIFIED] if "validation" not in (sizes or {}) else []
        wanted |= sizes or {}
        return draw(samples, {name: size for name, size in wanted.items() if size}, seed), notes
    values = samples
    notes = []
    if not iid:
        values, notes = _distinct(values)
    parts, more = share_samples(family.count(values), most, sizes or {}, bool(iid))
    count = family.count(values)
    if iid:
        order = np.split(np.random.default_rng([seed, *b"learn"]).permutation(count), np.cumsum([*parts.values()]))
        return {name: family.select(values, index) for name, index in zip(parts, order, strict=False)}, notes + more
    # The test is on the newest; training sees all the time before.
    before = np.linspace(0, count - parts["test"] - 1, parts["train"]).round().astype(int)
    chosen = {"train": before, "test": np.arange(count - parts["test"], count)}
    others = np.setdiff1d(np.arange(count - parts["test"]), before)
    if others.size >= _SELECTION // 4:
        chosen["selection"] = others[-_SELECTION:]
    return {name: family.select(values, index) for name, index in chosen.items()}, notes + more


def read_past(family: Family, samples: Any, columns: Columns) -> Any:
    """Past parameters as arrays; a sampler as it is."""
    if isinstance(samples, str | Path):
        layout = family.layout or _unnamed(family, samples)
        return read_samples(Path(samples), layout, columns)
    if columns is not None:
        raise ValueError("columns says how a file of samples calls its columns, and these samples are no file")
    if callable(samples):
        return samples
    return family.vectors(np.asarray(samples) if _is_table(samples) else samples)


def _is_table(samples: Any) -> bool:
    return isinstance(samples, list | tuple) and bool(samples) and not isinstance(samples[0], Mapping)


def _unnamed(family: Family, path: Any) -> Layout:
    parameter = getattr(family, "parameter", None)
    if parameter is None:
        raise ValueError(f"the family has no parameter map, so the columns of {path} mean nothing to it")
    return Layout([Block("x", np.arange(parameter.size))], [])


def _distinct(values: Any) -> tuple[Any, list[str]]:
    """Without repetitions, which would be in two splits at once. Not for independent draws: the rest would be none."""
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        return values, []
    _, first = np.unique(values, axis=0, return_index=True)
    if len(first) == len(values):
        return values, []
    return values[np.sort(first)], [f"{len(values) - len(first)} of {len(values)} samples repeat others: left out."]


def share_samples(count: int, most: int, sizes: Mapping[str, int], iid: bool) -> tuple[dict[str, int], list[str]]:
    """How many of `count` past instances each split takes, in their order: train, validation, test."""
    if count < 4:
        raise ValueError(f"there are {count} samples; learning needs at least 4, and better 20 or more")
    test = sizes.get("test", min(_TEST, max(count // 5, 2)))
    trained = sizes.get("train", min(most, max((count - test) // (3 if iid else 1), 2)))
    rest = count - test - trained
    checked = sizes.get("validation", rest if iid else 0)
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
