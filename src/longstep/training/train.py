"""`train`: from a family and instances to a schedule, part after part."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import numpy as np

from .._util import storage
from .._util.processes import require_jax
from .._util.programs import make_room
from .._util.progress import Bar
from .._util.threads import one_blas_thread
from ..algorithms.base import Algorithm
from ..algorithms.registry import default_algorithm
from ..data.dataset import Dataset, Split
from ..engine.finisher import finishes_by_sets
from ..families.base import Family, Parameters
from ..schedules.lengths import block_lengths
from .block import learn_block
from .checkpoint import Checkpoint
from .closed_form.spectrum import Gaussian
from .closed_form.train import closed_form
from .constant import search_constant
from .finish import Trials, learn_finish
from .instances import Instances, Start, gather, training_split
from .joint import learn_jointly
from .learner import Learner, Report
from .losses import Loss, resolve_loss
from .metric import learn_metric
from .recipe import Recipe
from .record import About, Training
from .select import Walk, select
from .settings import Learned, Settings, check_count, check_fixed, check_learn, choose_effort, choose_recipe
from .start import Prediction, fit_start, pays
from .steady import learn_steady

# What hears of every new best loss: the part, the loss, the seconds so far.
Callback: TypeAlias = Callable[[dict[str, str | float]], None]


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
    joint: bool | None = None,
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

    `optimizer` is `lbfgs` or `adam`, with so many `iterations` for a block, from so many `starts`; `candidates` is the
    size of the search for the constant. `joint` adds a pass over all blocks together; by default it is made only where
    the constant is ahead at some block's end. `metric` lets every row have a penalty of its own, the same at all steps:
    that is where most is gained, and it costs nothing at run time. `recipe` holds every other number of training, and
    the defaults of these. `memory_limit` in bytes splits the instances of a gradient. `precision` trains in another
    precision than the family's.

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
    forms = _algorithms(family, algorithm)
    recipe = choose_recipe(family) if recipe is None else recipe
    if not isinstance(recipe, Recipe):
        raise TypeError(f"recipe must be a Recipe, got {recipe!r}")
    if optimizer not in ("lbfgs", "adam"):
        raise ValueError(f"optimizer must be 'lbfgs' or 'adam', got {optimizer!r}")
    source = data if isinstance(data, Gaussian) else training_split(family, data)
    split = source if isinstance(source, Split) else None
    folder = storage.cache_folder(cache, "training")

    def open_course(algorithm: Algorithm) -> "Training | _Course":
        """A training with everything checked and nothing learned yet, but where a closed form has it."""
        begin = perf_counter()
        algorithm.check_family(family)
        hyperparameters = algorithm.hyperparameters(family)
        work = algorithm.prepare_family(family if precision is None else family.astype(precision), training=True)
        usual_iterations, usual_starts = choose_effort(recipe, algorithm, work)
        most_factors = recipe.factorizations
        if factorizations is not None:
            most_factors = check_count("factorizations", factorizations)
        held = check_fixed(hyperparameters, fixed or {})
        length = check_count("horizon", recipe.horizon if horizon is None else horizon)
        settings = Settings(
            horizon=length,
            lengths=block_lengths(length, block),
            block=int(np.ravel(block)[0]),
            loss=resolve_loss(
                "metric" if loss is None else loss,
                0 if split is None else len(split),
                recipe,
                monotone=algorithm.metric(family) is not None,
            ),
            optimizer=optimizer,
            iterations=check_count("iterations", usual_iterations if iterations is None else iterations),
            starts=check_count("starts", usual_starts if starts is None else starts),
            candidates=check_count("candidates", recipe.candidates if candidates is None else candidates),
            learn=check_learn(hyperparameters, learn, held),
            recipe=recipe,
            fixed=held,
            factorizations=most_factors,
            joint=joint,
            metric=bool(metric),
            start=_name_start(start),
            lengthening=horizon is None,
            seed=int(seed),
        )
        about = About(family, algorithm, settings, split)
        if start == "parameter" and not algorithm.starts_from_rows:
            raise ValueError(f'start="parameter" is for QPs in the condensed form, not for {type(algorithm).__name__}')
        with one_blas_thread():
            exact = closed_form(family, algorithm, source, start, settings)
        if exact is not None:
            data_hash = "" if split is None else split.content_hash()
            return about.training(exact, "closed form", perf_counter() - begin, data_hash)
        if split is None:
            raise TypeError(
                f"training {type(algorithm).__name__} on a {type(family).__name__} family needs instances: "
                "a Gaussian is enough for gradient descent on quadratics only"
            )
        instances = gather(work, algorithm, split, start, settings.loss, recipe)
        path = None if folder is None else folder / f"{about.key(instances, memory_limit)}.training"
        learner = Learner(instances.task, instances.start, instances.optimum, settings, memory_limit)
        return _Course(
            about, instances, learner, _Journal(Checkpoint(path), callback, progress), perf_counter() - begin
        )

    courses = list[_Course]()
    for form in forms:
        opened = open_course(form)
        if isinstance(opened, Training):
            return opened
        courses.append(opened)
    return (_better(courses, recipe) if len(courses) > 1 else courses[0]).finish()


def _algorithms(family: Family, given: Algorithm | Sequence[Algorithm] | None) -> list[Algorithm]:
    """The algorithms to try."""
    forms = [given] if isinstance(given, Algorithm | str) else list(given or [default_algorithm(family)])
    for form in forms:
        if not isinstance(form, Algorithm):
            raise TypeError(f"algorithm must be an algorithm such as longstep.OSQP(), or several of them, got {form!r}")
    return forms


def _better(courses: "list[_Course]", recipe: Recipe) -> "_Course":
    """The one to go on with: the first, unless errors fall lower by a margin with another."""
    levels = [course.begin() for course in courses]
    best = int(np.argmin(levels))
    return courses[0] if levels[0] <= levels[best] + recipe.form_margin else courses[best]


class _Course:
    """A training in two halves, so that several may begin and one be finished: the constant and the metric, whose
    level tells what an algorithm is good for, then the schedule."""

    def __init__(self, about: About, instances: Instances, learner: Learner, journal: "_Journal", seconds: float):
        self.about = about
        self.instances = instances
        self.learner = learner
        self.journal = journal
        self.seconds = seconds
        self.begun: tuple[Learned, Learned | None] | None = None

    def begin(self) -> float:
        """Learn the constant and the metric: the level of log errors with them."""
        learner = self.learner
        journal = self.journal
        since = perf_counter()
        with one_blas_thread(), journal.showing(2):
            constant = journal.part("constant", "best constant", lambda report: search_constant(learner, report))
            metric = None
            if learner.settings.metric and learner.has_metric:
                metric = journal.part("metric", "metric", lambda report: learn_metric(learner, constant, report))
                learner.use_metric(metric.theta)
        self.begun = constant, metric
        self.seconds += perf_counter() - since
        return (constant if metric is None else metric).loss

    def finish(self) -> Training:
        """Learn what is left and choose, unless a training before did."""
        about = self.about
        instances = self.instances
        learner = self.learner
        journal = self.journal
        if (result := journal.checkpoint.result) is not None:
            prediction = self._fit_start() if result["record"]["start"] == "parameter" else None
            start = None if prediction is None else prediction.start
            return Training.from_json(result, about.algorithm, about.seen, start)
        if self.begun is None:
            self.begin()
        assert self.begun is not None
        prediction = self._predict(*self.begun)
        since = perf_counter()
        settings = learner.settings
        trials = self._begin_trials()
        with one_blas_thread(), journal.showing(len(settings.lengths) + 1 + bool(settings.joint)):
            walk, joint = _learn(learner, journal, *self.begun, trials)
            journal.say("comparing with the best constant")
            choice = select(walk, joint, warm=instances.start is not None)
        training = about.training(
            choice,
            "progressive",
            journal.seconds_before + self.seconds + perf_counter() - since,
            instances.data_hash,
            journal.parts,
            instances=instances.count,
            dtype=str(instances.task.family.dtype),
            gradient_pieces=learner.memory_pieces,
            start=_record_start(settings.start, prediction),
        )
        if prediction is not None:
            training = replace(training, start=prediction.start)
        journal.say("when to finish")
        assert about.split is not None
        term = None if trials is None else trials.proximal
        training.record.update(learn_finish(about.family, training, about.split.parameters, settings.recipe, term))
        journal.checkpoint.finish(training.to_json())
        return training

    def _begin_trials(self) -> Trials | None:
        """Return what tells how many blocks pay; None where all are wanted, or where there is no finish by sets."""
        family = self.about.family
        split = self.about.split
        if split is None or not self.learner.settings.lengthening or not finishes_by_sets(family):
            return None
        if self.instances.count < family.count(split.parameters):
            return None
        return Trials.of(family, self.instances.task.family, split.parameters, self.learner.recipe)

    def _fit_start(self) -> Prediction | None:
        """Return the start that the optima predict."""
        split = self.about.split
        assert split is not None
        return fit_start(self.instances, split, self.learner.recipe)

    def _predict(self, constant: Learned, metric: Learned | None) -> Prediction | None:
        """Let solves begin where the parameter says, if that is wanted or pays."""
        wanted = self.learner.settings.start
        if wanted not in ("parameter", "best"):
            return None
        prediction = self._fit_start()
        if prediction is None:
            if wanted == "parameter":
                raise ValueError(
                    'start="parameter" is for QPs with a parameter map and inequalities, in the condensed form, with '
                    f"optima of at least {2 * self.learner.recipe.start_folds} instances"
                )
            return None
        theta = (constant if metric is None else metric).theta
        if wanted == "best" and not pays(self.learner, theta, prediction.points):
            return None
        self.learner.begin = prediction.points
        return prediction


def _name_start(start: Start) -> str:
    """Return what is said of a start in the record: its name, `best` for the default and `given` for a function."""
    if start is None:
        return "best"
    return "given" if callable(start) else str(start)


def _record_start(wanted: str, prediction: Prediction | None) -> str:
    """Return where solves begin, by its name in `train`."""
    if prediction is not None:
        return "parameter"
    return "zero" if wanted == "best" else wanted


def _learn(
    learner: Learner, journal: "_Journal", before: Learned, metric: Learned | None, trials: Trials | None
) -> tuple[Walk, Learned | None]:
    """Learn blocks and the steady state after the constant, and all once more together where that is wanted.

    Blocks end early when the errors are at their floor, or where trials of the finish say that no more pay.
    """
    s = learner.settings
    recipe = learner.recipe
    constant = before if metric is None else metric
    states = learner.start()
    blocks = list[Learned]()
    floor = learner.floor()
    level = np.inf
    if trials is not None:
        trials.add(0, learner.usual.extract(states))
    for number, length in enumerate(s.lengths):
        known = (length, states, level, constant, blocks)
        text = f"block {number + 1} of {len(s.lengths)}"
        blocks.append(journal.part("block", text, lambda report, a=known: learn_block(learner, *a, report)))
        states, errors = learner.advance(blocks[-1].theta, states)
        level = float(np.quantile(errors.metric, recipe.floor_quantile))
        if trials is not None:
            trials.add(sum(map(len, blocks)), learner.usual.extract(states))
        if level <= floor or (trials is not None and not trials.is_falling()):
            break
    steady = journal.part(
        "steady", "steady state", lambda report: learn_steady(learner, states, constant, blocks, report)
    )
    walk = Walk(learner, before, blocks, steady, metric)
    # What follows the steps is the finish's where that decides how many there are.
    behind = recipe.joint_where_behind and trials is None and walk.is_behind()
    if not (s.joint or (s.joint is None and behind)):
        return walk, None
    return walk, journal.part(
        "joint", "all blocks together", lambda report: learn_jointly(learner, blocks, steady, report)
    )


class _Journal:
    """The parts of a training: read where a checkpoint holds them, learned and kept there where it does not."""

    def __init__(self, checkpoint: Checkpoint, callback: Callback | None, progress: bool):
        self.checkpoint = checkpoint
        self.callback = callback
        self.progress = progress
        self.begin = perf_counter()
        self.advance = lambda count, text="": None
        self.parts: list[Learned] = []
        self.waiting = list(checkpoint.parts)
        self.seconds_before = sum(part.seconds for part in self.waiting)

    @contextlib.contextmanager
    def showing(self, parts: int) -> Iterator[None]:
        """Show progress over so many parts."""
        with Bar("training", parts, self.progress) as self.advance:
            yield

    def say(self, text: str) -> None:
        """What is done now."""
        self.advance(0, f"training: {text}")

    def report(self, part: str, value: float) -> None:
        """A new best loss."""
        self.say(f"{part}, loss {value:.2f}")
        if self.callback is not None:
            self.callback({"part": part, "loss": value, "seconds": perf_counter() - self.begin})

    def part(self, kind: str, text: str, learn: Callable[[Report], Learned]) -> Learned:
        """The next part, of this kind."""
        if self.waiting:
            part = self.waiting.pop(0)
            assert part.kind == kind, f"the checkpoint holds {part.kind} where {kind} was expected"
        else:
            part = learn(lambda loss: self.report(text, loss))
            self.checkpoint.append(part)
        self.parts.append(part)
        self.advance(1)
        return part
