"""`train`: from a family and instances to a schedule, part after part."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from .._util import storage
from .._util.processes import require_jax
from .._util.programs import make_room
from .._util.threads import one_blas_thread
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..data.dataset import Dataset, Split
from ..families.base import Family
from ..families.reading import Parameters
from .checkpoint import Checkpoint
from .closed_form.spectrum import Gaussian
from .closed_form.train import closed_form
from .instances import Start, gather, training_split
from .journal import Callback, Journal
from .learner import Learner
from .losses import Loss
from .recipe import Recipe
from .record import About, Training
from .session import Session
from .settings import Wanted, choose_recipe


def train(
    family: Family,
    data: Dataset | Split | Gaussian | Parameters,
    *,
    algorithm: Algorithm | Sequence[Algorithm] | None = None,
    horizon: int | None = 50,
    block: int | Sequence[int] = 10,
    loss: "str | Loss | None" = None,
    start: Start = None,
    learn: Iterable[str] | None = None,
    fixed: Mapping[str, float] | None = None,
    factorizations: int | None = None,
    optimizer: str = "lbfgs",
    iterations: int | None = None,
    starts: int | None = None,
    candidates: int | None = None,
    metric: bool = True,
    recipe: Recipe | None = None,
    seed: int = 0,
    precision: str | None = None,
    memory_limit: float | None = None,
    cache: "str | Path | bool" = True,
    callback: Callback | None = None,
    progress: bool = True,
) -> Training:
    """Learn a schedule of `horizon` steps and a steady state for a family from training instances.

    `data` is a Dataset (its split `train` is used), a Split, or bare parameters; for quadratics also a `Gaussian`,
    which needs no instances. Quadratics are solved in closed form, and so is gradient descent in blocks of one step;
    everything else is learned block by block: the best constant first, then `block` steps at a time from where the
    last ones left each instance, then the steady state inside its convergent range, which also has to last. Longer
    blocks end lower and are of no use before their end; `block=(10, 20)` learns 10 steps, then 20 at a time. With
    `horizon=None` there are as many blocks as pay, up to 50 steps: where a finish by active sets follows, often one.

    `loss` is `distance` (needs optima), `metric` (needs none for constrained problems), `both`, `identification` (of
    QPs: that the active set is right, for the finish; needs optima), or a `Loss`. By default it is `metric`.

    `start` is where solves will begin: `"zero"`; `"parameter"` for what an affine map of the parameter
    predicts, learned from the optima, with which solves then begin by themselves; `"previous"` for the optimum of the
    instance before (a controller's warm start), or a function from the parameters to a Point (leading axis: instances),
    and the schedule is then marked `warm`. By default it is the parameter where that is known to pay, or zero.
    `learn` names the hyperparameters to learn, the others stay at the best constant; `fixed` gives some a value. Of
    several algorithms, each gets its best constant and metric, and the schedule is learned for the one whose errors
    fall lowest, the first where they are alike. `factorizations` limits how many distinct ones a schedule
    needs, the steady state's included; a family with sparse factors has four.

    `optimizer` is `lbfgs` or `adam`, with `iterations` for a block, from `starts` points; `candidates` is the
    size of the search for the constant, 30 for each of its hyperparameters. `metric` lets every row have a penalty
    of its own, the same at all steps: that is where most is gained, and it costs nothing at run time. `recipe` holds
    every other number of training, and the defaults of these. `memory_limit` in bytes splits the instances of a
    gradient. `precision` trains in another precision than the family's.

    After every part a checkpoint is written into `cache` (True, False or a folder, as for `solve_references`): the same
    call goes on where an interrupted one was and ends with the same schedule, bit for bit; a finished one is read from
    there. `callback` gets a dict (part, loss, seconds) at every new best loss.

    >>> import numpy as np
    >>> from longstep import Affine, Dataset, Quadratic, train
    >>> family = Quadratic(np.diag([1.0, 2.0, 10.0]), parameter=Affine(q=np.eye(3)))
    >>> data = Dataset.sample(family, lambda rng: rng.normal(size=3), {"train": 5}, cache=False, progress=False)
    >>> trained = train(family, data, horizon=3, block=3, cache=False, progress=False)
    >>> np.sort(1 / trained.schedule.step).round(6)  # three steps solve a problem with three eigenvalues
    array([ 1.,  2., 10.])
    """
    require_jax(family.dtype)
    make_room()
    forms = _list_algorithms(family, algorithm)
    recipe = choose_recipe(family) if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be a Recipe, got {recipe!r}")
    if optimizer not in ("lbfgs", "adam"):
        raise ValueError(f"optimizer must be 'lbfgs' or 'adam', got {optimizer!r}")
    wanted = Wanted(
        recipe=recipe,
        horizon=horizon,
        block=block,
        loss=loss,
        learn=learn,
        fixed=fixed,
        factorizations=factorizations,
        optimizer=optimizer,
        iterations=iterations,
        starts=starts,
        candidates=candidates,
        metric=bool(metric),
        start=_name_start(start),
        seed=int(seed),
    )
    source = data if isinstance(data, Gaussian) else training_split(family, data)
    folder = storage.cache_folder(cache, "training")
    sessions = list[Session]()
    for form in forms:
        begin = perf_counter()
        form.check_family(family)
        work = form.prepare_family(family if precision is None else family.astype(precision), training=True)
        settings = wanted.settle(family, form, work)
        split = source if isinstance(source, Split) else None
        about = About(family, form, settings, split)
        if start == "parameter" and not form.starts_from_rows:
            raise ValueError(f'start="parameter" is for QPs in the condensed form, not for {type(form).__name__}')
        with one_blas_thread():
            exact = closed_form(family, form, source, start, settings)
        if exact is not None:
            data_hash = "" if split is None else split.content_hash()
            return about.training(exact, "closed form", perf_counter() - begin, data_hash)
        if split is None:
            raise TypeError(
                f"training {type(form).__name__} on a {type(family).__name__} family needs instances: "
                "a Gaussian is enough for gradient descent on quadratics only"
            )
        instances = gather(work, form, split, start, settings.loss, recipe)
        path = None if folder is None else folder / f"{about.key(instances, memory_limit)}.training"
        learner = Learner(instances.task, instances.start, instances.optimum, settings, memory_limit)
        journal = Journal(Checkpoint(path), callback, progress)
        sessions.append(Session(about, instances, learner, journal, perf_counter() - begin))
    if not family.sparse:
        # The first is most likely to be the one that is gone on with.
        sessions[0].prepare()
    if len(sessions) > 1:
        return _choose_session(sessions, recipe).finish()
    return sessions[0].finish()


def _list_algorithms(family: Family, given: Algorithm | Sequence[Algorithm] | None) -> list[Algorithm]:
    """Return the algorithms to try."""
    forms = [given] if isinstance(given, Algorithm | str) else list(given or [default_algorithm(family)])
    for form in forms:
        if not isinstance(form, Algorithm):
            raise TypeError(f"algorithm must be an algorithm such as longstep.OSQP(), or several of them, got {form!r}")
    return forms


def _choose_session(sessions: list[Session], recipe: Recipe) -> Session:
    """Begin all; return the one to go on with: the first, unless errors fall lower by a margin with another."""
    levels = [session.begin() for session in sessions]
    best = int(np.argmin(levels))
    if levels[0] <= levels[best] + recipe.form_margin:
        return sessions[0]
    return sessions[best]


def _name_start(start: Start) -> str:
    """Return what is said of a start in the record: its name, `best` for the default and `given` for a function."""
    if start is None:
        return "best"
    return "given" if callable(start) else str(start)
