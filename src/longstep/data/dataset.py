"""Parameters with their reference optima, in named, disjoint splits."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from typing_extensions import override

from .._util.hashing import content_hash
from ..families.base import Family
from ..families.reading import Parameters, convert_lists
from ..linalg.real import check_real
from .optima import Optima
from .references import solve_references


@dataclass(frozen=True)
class Split:
    """Some parameters of a family (leading axis = instances), with optima where they were asked for.

    `independent` says that each was drawn on its own: then equal ones may occur, and nothing may be left out.
    """

    name: str
    family: Family
    parameters: Parameters
    optima: Optima | None
    independent: bool = False

    def __post_init__(self):
        object.__setattr__(self, "parameters", self.family.vectors(self.parameters))

    def __len__(self) -> int:
        return self.family.count(self.parameters)

    def select(self, index: Sequence[int] | np.ndarray) -> "Split":
        """Return some of the instances, by their numbers; `split.select(range(10))` are the first ten."""
        numbers = np.asarray(index, int)
        optima = self.optima
        if optima is not None:
            optima = optima.select(numbers)
        return replace(self, parameters=self.family.select(self.parameters, numbers), optima=optima)

    def content_hash(self) -> str:
        """Return a SHA-256 of the problem and the parameters, for certificates and training records."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.parameters)]
        return content_hash(self.family.problem_hash(), leaves)

    def instance_hashes(self) -> list[str]:
        """Return a hash of every instance's parameter, to tell whether two sets of instances overlap."""
        each = (self.family.select(self.parameters, np.array([k])) for k in range(len(self)))
        return [content_hash([np.asarray(leaf) for leaf in jax.tree.leaves(one)])[:32] for one in each]

    @override
    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self)} instances, {'with' if self.optima else 'without'} optima)"


class Dataset:
    """Named splits of a family's instances: `dataset.train`, `dataset["test"]`.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic
    >>> family = Quadratic(np.diag([1.0, 2.0]), parameter=Affine(q=np.eye(2)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=2), {"train": 3, "test": 2}, cache=False)
    >>> data
    Dataset(train: 3, test: 2)
    >>> bool(np.allclose(data.train.optima.x, -data.train.parameters / [1.0, 2.0]))
    True
    """

    def __init__(self, splits: Iterable[Split]):
        self._splits = {split.name: split for split in splits}
        _check_disjoint(self._splits)

    @staticmethod
    def sample(
        family: Family,
        sampler: Callable[[np.random.Generator], Parameters],
        sizes: Mapping[str, int],
        *,
        seed: int = 0,
        references: bool | Iterable[str] = True,
        accuracy: float = 1e-8,
        cache: "str | Path | bool" = True,
        jobs: int = -1,
        progress: bool = True,
    ) -> "Dataset":
        """Draw every split from its own stream of random numbers, made of the seed and the split's name.

        So a split does not change when another is added or resized, and a larger one begins with the smaller one's
        instances. `references` says which splits get optima; the rest of the options are `solve_references`'s.
        """
        return Dataset.from_parameters(
            family,
            draw(sampler, sizes, seed),
            iid=True,
            references=references,
            accuracy=accuracy,
            cache=cache,
            jobs=jobs,
            progress=progress,
        )

    @staticmethod
    def from_parameters(
        family: Family,
        splits: Mapping[str, Parameters],
        *,
        iid: bool = False,
        references: bool | Iterable[str] = True,
        **options: Any,
    ) -> "Dataset":
        """Return the splits of parameters that are already there, such as past data.

        `iid` says that they were drawn independently from one distribution. Otherwise an instance that is in two splits
        is refused, because it may be the same one used twice.
        """
        wanted = set(splits)
        if references is not True:
            wanted = set(references or ())
        if unknown := wanted - set(splits):
            raise ValueError(f"references are asked for {', '.join(sorted(unknown))}, which is no split")
        bare = Dataset(Split(name, family, parameters, None, iid) for name, parameters in splits.items())
        done = []
        for split in bare:
            family.encode(split.parameters)  # refuse bad data before the long work
            optima = None
            if split.name in wanted:
                optima = solve_references(family, split.parameters, **options)
            done.append(replace(split, optima=optima))
        return Dataset(done)

    def __getitem__(self, name: str) -> Split:
        if name not in self._splits:
            raise KeyError(f"there is no split {name!r}; there are {', '.join(self._splits)}")
        return self._splits[name]

    def __getattr__(self, name: str) -> Split:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __iter__(self):
        return iter(self._splits.values())

    @override
    def __repr__(self) -> str:
        return f"Dataset({', '.join(f'{s.name}: {len(s)}' for s in self)})"


def draw(
    sampler: Callable[[np.random.Generator], Parameters], sizes: Mapping[str, int], seed: int
) -> dict[str, Parameters]:
    """Draw the parameters of every split, each from its own stream of random numbers, and return them by name."""
    _check_sampler(sampler)
    drawn = {}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"split {name!r} needs at least one instance, got {size}")
        rng = np.random.default_rng([seed, *name.encode()])
        parameters = [convert_lists(sampler(rng)) for _ in range(size)]
        for parameter in parameters:
            check_real("what the sampler returned", parameter)
        drawn[name] = jax.tree.map(lambda *leaves: np.stack([np.asarray(a) for a in leaves]), *parameters)
    return drawn


def _check_sampler(sampler: Callable[[np.random.Generator], Parameters]) -> None:
    """Refuse a function that cannot be called with a random generator and nothing else."""
    try:
        signature = inspect.signature(sampler)
    except ValueError:  # some functions in C have none
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(sampler, "__name__", type(sampler).__name__)
        raise ValueError(
            f"the sampler {name}{signature} cannot be called with a random generator alone. Write "
            "`def sample(rng): …` with rng a numpy.random.Generator, draw from it (rng.normal(size=3)), and return the "
            "parameters of one instance: a vector, or a dict of values by name"
        ) from None


def _check_disjoint(splits: Mapping[str, Split]) -> None:
    """Refuse splits with an instance in common: what is tested must not have been trained on.

    Independent draws may coincide.
    """
    owner: dict[str, tuple[str, int]] = {}
    for split in splits.values():
        for k, key in enumerate(split.instance_hashes()):
            name, index = owner.setdefault(key, (split.name, k))
            if name != split.name and not (split.independent and splits[name].independent):
                raise ValueError(
                    f"instance {k} of split {split.name!r} is also instance {index} of split {name!r}: splits must be "
                    "disjoint. Take it out of one of them; or, if all were drawn independently from a distribution "
                    "that repeats itself, take out nothing and say iid=True"
                )
