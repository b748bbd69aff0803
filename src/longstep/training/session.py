"""The session of a training: constant, metric, blocks, steady state, and what is kept of them."""

import functools
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from .._util.storage import JsonObject
from .._util.threads import one_blas_thread
from ..engine.aside import begin_aside
from ..engine.finisher import finishes_by_sets
from .block import learn_block
from .constant import search_constant
from .finish import Trials, learn_finish
from .instances import Instances
from .journal import Journal
from .learner import Learner
from .metric import learn_metric
from .record import About, Training
from .select import Walk, select
from .settings import LearnedPart
from .start import Prediction, fit_start, pays
from .steady import learn_steady


class Session:
    """A training in two halves, so that several may begin and one be finished: the constant and the metric, whose
    level tells what an algorithm is good for, then the schedule."""

    def __init__(self, about: About, instances: Instances, learner: Learner, journal: Journal, seconds: float):
        self.about = about
        self.instances = instances
        self.learner = learner
        self.journal = journal
        self.seconds = seconds
        self.begun: tuple[LearnedPart, LearnedPart | None] | None = None
        self.ready: Callable[[], None] | None = None

    def prepare(self) -> None:
        """Compile on another core what is needed after the constant and the metric, while these are looked for."""
        program = self.learner.usual
        trials = self._begin_trials()

        def work() -> None:
            with one_blas_thread():
                program.compile()
                if trials is not None:
                    trials.add(0, program.extract(self.learner.start()))
                    trials.compile()

        if self.journal.checkpoint.result is None:
            self.ready = begin_aside(work)

    def begin(self) -> float:
        """Learn the constant and the metric; return the level of log errors with them."""
        learner = self.learner
        journal = self.journal
        since = perf_counter()
        with one_blas_thread(), journal.show_progress(2):
            constant = journal.learn_part("constant", "best constant", lambda report: search_constant(learner, report))
            metric = None
            if learner.settings.metric and learner.has_metric:
                metric = journal.learn_part("metric", "metric", lambda report: learn_metric(learner, constant, report))
                learner.use_metric(metric.theta)
        self.begun = constant, metric
        self.seconds += perf_counter() - since
        return constant.loss if metric is None else metric.loss

    def finish(self) -> Training:
        """Learn what is left and choose, unless a training before did."""
        about = self.about
        instances = self.instances
        learner = self.learner
        journal = self.journal
        if (result := journal.checkpoint.result) is not None:
            return self._read(result)
        if self.begun is None:
            self.begin()
        assert self.begun is not None
        constant, metric = self.begun
        prediction = self._predict(constant, metric)
        since = perf_counter()
        if self.ready is not None:
            self.ready()
        settings = learner.settings
        trials = self._begin_trials()
        with one_blas_thread(), journal.show_progress(len(settings.lengths) + 1):
            walk = self._learn_steps(constant, metric, trials)
            journal.say("comparing with the best constant")
            choice = select(walk, warm=instances.start is not None)
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
        proximal = None
        if prediction is not None:
            training = replace(training, start=prediction.start)
        if trials is not None:
            proximal = trials.proximal
        journal.say("when to finish")
        assert about.split is not None
        found = learn_finish(about.family, training, about.split.parameters, settings.recipe, proximal)
        training.record.update(found)
        journal.checkpoint.finish(training.to_json())
        return training

    def _read(self, result: JsonObject) -> Training:
        """Return what a training before found."""
        about = self.about
        training = Training.from_json(result, about.algorithm, about.seen)
        prediction = self._fit_start() if result["record"]["start"] == "parameter" else None
        return training if prediction is None else replace(training, start=prediction.start)

    def _learn_steps(self, constant: LearnedPart, metric: LearnedPart | None, trials: Trials | None) -> Walk:
        """Learn blocks and the steady state after the constant.

        Blocks end early when the errors are at their floor, or where trials of the finish say that no more pay.
        """
        learner = self.learner
        journal = self.journal
        s = learner.settings
        held = constant if metric is None else metric
        states = learner.start()
        blocks = list[LearnedPart]()
        floor = learner.floor()
        if trials is not None:
            trials.add(0, learner.usual.extract(states))
        for number, length in enumerate(s.lengths):
            learn = functools.partial(learn_block, learner, length, states, held, blocks)
            blocks.append(journal.learn_part("block", f"block {number + 1} of {len(s.lengths)}", learn))
            states, errors = learner.advance(blocks[-1].theta, states)
            if trials is not None:
                trials.add(sum(map(len, blocks)), learner.usual.extract(states))
            if np.quantile(errors.metric, learner.recipe.floor_quantile) <= floor:
                break
            if trials is not None and not trials.is_falling():
                break
        steady = journal.learn_part("steady", "steady state", functools.partial(learn_steady, learner, states, held))
        return Walk(learner, constant, blocks, steady, metric)

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

    def _predict(self, constant: LearnedPart, metric: LearnedPart | None) -> Prediction | None:
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


def _record_start(wanted: str, prediction: Prediction | None) -> str:
    """Return where solves begin, by its name in `train`."""
    if prediction is not None:
        return "parameter"
    return "zero" if wanted == "best" else wanted
