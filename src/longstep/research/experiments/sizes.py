"""What can be chosen of an experiment: how large it is, and what a user says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Size:
    """How large an experiment is: of the problem, of the splits, and of what slow methods get.

    `few` test instances are for methods beside the main ones, `slow` ones for methods that factor for every instance,
    `package` ones for the C packages, which solve anew for every iterate; `timed` is the batch in which times are
    taken (0: none), `chunk` how many instances run at once. Networks are trained on the first `networks` training
    instances, the nearest neighbour is sought among `neighbours`. `more` are training instances for a second schedule
    of the main kind; 0 where there is none.
    """

    problem: Mapping[str, Any] = field(default_factory=dict)
    train: int = 10
    more: int = 0
    validation: int = 1000
    test: int = 1000
    few: int = 200
    slow: int = 50
    timed: int = 100
    chunk: int = 512
    steps: int = 200
    horizon: int = 50
    block: int | tuple[int, ...] = 10
    certified: tuple[int, ...] = tuple(range(5, 61, 5))
    neighbours: int = 10
    networks: tuple[int, ...] = (10,)
    hidden: tuple[int, ...] = (500, 500)
    l2ws: int = 1000
    lm: int = 200
    package: int = 10
    package_steps: int = 200
    training: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """What a user chooses: the size by name, the seed, a part of the methods, and where things are."""

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] | None = None
    regularization: float | None = None
    data: Path | None = None
    cache: "Path | bool" = True
    progress: bool = True
