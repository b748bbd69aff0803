"""`Recipe`: every number of training in one place, each with its reason."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Between:
    """A number from `least` to `most`, which is whole where `whole` says so."""

    least: float
    most: float = math.inf
    whole: bool = False

    def check(self, value: Any) -> int | float:
        """Return the number itself, as an int or a float; a ValueError says what is wrong with others."""
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not self.least <= value <= self.most or (self.whole and value != int(value)):
            kind = "a whole number" if self.whole else "a finite number"
            to = "at least" if self.most == math.inf else f"at most {self.most:g} and at least"
            raise ValueError(f"must be {kind}, {to} {self.least:g}, got {value!r}")
        return int(value) if self.whole else float(value)


Count = Annotated[int, Between(1, whole=True)]
WholeNumber = Annotated[int, Between(0, whole=True)]
Share = Annotated[float, Between(0, 1)]
Amount = Annotated[float, Between(0)]
PositiveNumber = Annotated[float, Between(1e-300)]
# Iterations for a block, and starts.
Effort = tuple[Count, Count]


@dataclass(frozen=True)
class Recipe:
    """Every number of training: `train(…, recipe=Recipe(stress=0.0))` learns without the stress test.

    The defaults are what measurements on many families favoured (`benchmarks/ablation.py`). Tolerances that belong to
    the arithmetic of a closed form stand in `closed_form/`.

    >>> Recipe(searched=0)
    Traceback (most recent call last):
    ...
    ValueError: Recipe: searched must be a whole number, at least 1, got 0
    >>> Recipe.from_json(Recipe(near=3).to_json()).near
    3
    """

    # ── Effort: L-BFGS iterations for a block, and starts ──
    # Steps without a linear system are cheap, and the loss in their sizes has many local minima: of three starts the
    # best is 5 to 8% ahead on lassos.
    effort_without_factors: Effort = (100, 3)
    # Every new penalty is a factorization, and the first iterations bring the most; a second start brought nothing.
    effort_with_factors: Effort = (40, 1)
    # How many distinct factorizations a schedule may need where nobody says; None: one for every step.
    factorizations: Count | None = None

    # ── The length ──
    # Steps that are learned at most where nobody says how many. Where there is a finish by active sets, blocks follow
    # each other only while the last one brought the cost of a solve, the finish included, below this part of the least.
    horizon: Count = 50
    lengthening: Share = 0.97

    # ── The loss ──
    # What log mean φ² weighs in the loss, where the worst instances decide, beside the mean of log φ², which is what
    # tables show.
    tail: Share = 0.75
    # The weight of the stress test, which methods do without that converge whatever their penalties are.
    stress: Amount = 4.0
    # By how much log φ² should fall in a stress test before nothing more is asked.
    fall: Amount = 2.0
    # What log‖z − z*‖² weighs beside log φ² in the loss `both`.
    distance_in_both: PositiveNumber = 0.5
    # With identification the residuals have this weight beside the rows on a wrong side, which ought to be beyond their
    # bounds by this part of what they vary by.
    metric_in_identification: Amount = 0.1
    side_margin: PositiveNumber = 0.1
    # Distances below so many times the rounding of their numbers are all alike.
    rounding: PositiveNumber = 10.0

    # ── The search for the best constant ──
    # So many candidates for each hyperparameter that is searched: with twice as many nothing changes.
    candidates: Count = 30
    # It looks at so many instances at most: it needs the mean, not the tail.
    searched: Count = 25
    # A constant is for good: one that is best for ten steps may be the worst for a hundred. So many steps at least.
    settled: Count = 60
    # Levels of log errors, by which constants and metrics are judged, are their mean, and with the weight `tail` this
    # quantile and the worst, half of each: where most instances are easy, the mean alone forgets the rest.
    judged_quantile: Share = 0.9
    # Errors below this part of what they are at the start are all alike there: nobody asks for more digits, and a
    # constant that gives the easy instances even more of them is slower on the others.
    judged_depth: PositiveNumber = 1e-6
    # This part of the candidates is drawn around the defaults, the others around the best ones so far.
    drawn: Share = 0.5
    # One standard deviation around the defaults: decades of positive numbers, logits of those in an interval.
    decades: PositiveNumber = 1.0
    logits: PositiveNumber = 1.5
    # Later candidates are drawn around one of so many best, from this part of the spread down to this part of that.
    elite: Count = 3
    closer: PositiveNumber = 0.5
    closest: PositiveNumber = 0.1
    # A candidate whose mean log error is behind the leader's by so much is not run to the end.
    hopeless: PositiveNumber = 4.0
    # Factors in the search are taken to be good to this part of the digits: it can do without the exact count.
    searched_digits: Share = 0.5
    # Stands for a logarithm that overflowed: worse than any that did not, and finite, as a line search wants it.
    overflow: PositiveNumber = 1e4

    # ── The start from the parameter ──
    # Ridges that are tried, for each instance and features of variance 1, on so many folds in the order of the data: in
    # data of one time neighbours are alike, and would tell on each other.
    start_ridges: tuple[PositiveNumber, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
    start_folds: Count = 5
    # Multipliers below this part of the largest, and values that vary by less, are noise of the references.
    start_active: Share = 1e-5
    # One instance of so many begins at zero in training, for those of which nothing good is predicted.
    start_zero: Count = 5
    # The map may have so many entries, and is kept where a solve with the constant then costs less than this part; the
    # finish comes after so many steps at most.
    start_entries: Count = 10_000_000
    start_gain: Share = 0.97
    start_steps: Count = 30

    # ── The finish ──
    # It is tried after each of these numbers of steps on a few instances. The cheapest are tried on more, because a
    # few do not tell the tail, and one of those is taken where it succeeds on this share.
    finish_marks: tuple[WholeNumber, ...] = (0, 1, 3, 5, 10, 15, 20, 30, 50)
    finish_finalists: Count = 3
    finish_trial: Count = 8
    finish_few: Count = 32
    finish_instances: Count = 64
    finish_share: Share = 0.9
    # Proximal terms that are tried where P is singular, as parts of its largest eigenvalue, the usual one first; of
    # those with which as many instances are exact another is taken where it costs less than this part.
    finish_proximal: tuple[PositiveNumber, ...] = (1e-4, 1e-5, 1e-3, 1e-2, 1e-1, 1.0)
    finish_gain: Share = 0.8
    # What costs so many times the least on some instances is not tried on more.
    finish_likely: PositiveNumber = 2.0
    # What these cost counts at the mean and at this quantile.
    finish_quantile: Share = 0.95

    # ── The algorithm, where there are several ──
    # Mean log errors that differ by less are alike.
    form_margin: Amount = 0.5

    # ── The metric: a penalty for every row ──
    # It is learned over so many steps, whose errors count every so many of them.
    metric_steps: Count = 40
    metric_every: Count = 10
    metric_iterations: Count = 30
    # The weight of mean((log r)²): the usual one is tried on halves of so many instances at most, with so many
    # iterations, and judged on the other half over so many steps: what is best for a few steps may be slow in the end.
    # Where it is better than no metric the lighter is tried too, else the heavier. The iterations on all of them begin
    # between what the halves found.
    metric_weights: tuple[Amount, Amount, Amount] = (0.3, 0.1, 1.0)
    # It begins at ones, or where rows and multipliers are in like units at the optima of training: at powers of what
    # these say, times each of these, if errors fall lower from there. Where a row has no value or no multiplier, the
    # product of both is taken to be this part of the usual one; below that part of the largest all is noise of the
    # references.
    metric_powers: tuple[PositiveNumber, ...] = (0.5, 0.7)
    metric_multiples: tuple[PositiveNumber, ...] = (0.001, 0.01, 0.1, 1.0, 10.0)
    metric_weak: PositiveNumber = 0.3
    metric_noise: PositiveNumber = 1e-8
    metric_few: Count = 60
    metric_trial: Count = 20
    metric_lasting: Count = 200
    # Whether it is learned once, on half of the instances, and only judged on the others, instead of with all weights
    # on both halves and then on all.
    metric_by_half: bool = False
    # Whether steps are taken again on the way back, instead of being kept: a third more time, a fraction of the memory.
    metric_again: bool = False
    # ── A block ──
    # The first start is the constant, the second the block before, repeated; further starts are so far from the
    # constant, in unconstrained units.
    scattered: PositiveNumber = 1.0
    # A trial that tells which start is worth going on from takes this part of the iterations.
    trial: Share = 1 / 3
    # Blocks end where this quantile of errors is at the floor: what is learned on rounding would only add danger.
    floor_quantile: Share = 0.25

    # ── The steady state ──
    # The learned one, the best constant, and both with all penalties scaled are compared over so many blocks: one block
    # is too short to see a rate. On deblurring 0.3 leaves a fifth of the error after 600 steps.
    scales: tuple[PositiveNumber, ...] = (0.3, 3.0)
    lasting: Count = 30
    # By how much of log φ² what is kept may be behind the best constant where a block ends: a tenth of the error, or so
    # many of the constant's steps there. Schedules that are ahead by decades would be given up for one block's end.
    behind: Amount = 0.2
    behind_steps: Amount = 1.0
    # It is looked at after all blocks and after so many of the steady state.
    near: WholeNumber = 5

    # ── The optimisers ──
    # Evaluations to an iteration, at most: line searches rarely need a second one.
    evaluations: Annotated[float, Between(1)] = 1.5
    # Pairs that L-BFGS remembers: blocks have 10 to 50 unknowns.
    memory: Count = 20
    # The loss is a logarithm: smaller relative changes and gradients are not worth an evaluation.
    least_change: Amount = 1e-5
    least_gradient: Amount = 1e-4
    # Adam's rate, which decays as a cosine.
    rate: PositiveNumber = 0.1
    # With a limit of memory, pieces of instances are made so much smaller than the proportion says.
    memory_margin: Share = 0.9

    # ── Closed forms ──
    # Up to so many steps their best order is found by looking at all sets of them.
    ordered: WholeNumber = 10
    # The constant step is looked for between these multiples of 1/L.
    exact_steps: tuple[PositiveNumber, PositiveNumber] = (1e-3, 1.998)
    # The steady step: errors after so many of them, on a grid of so many steps from this part of the longest on, and
    # then within this part of the best.
    later: tuple[Count, ...] = (10, 20, 50, 100, 200, 500, 1000)
    steady_grid: Count = 200
    steady_least: PositiveNumber = 1e-3
    steady_near: Share = 0.03
    # Single steps on smooth functions: constants at so many multiples of 1/L between these.
    single_grid: Count = 12
    single_steps: tuple[PositiveNumber, PositiveNumber] = (0.1, 1.99)
    # Blocks of at least so many steps for the safeguard: single exact steps may raise the objective on the way.
    watched: Count = 10

    def __post_init__(self):
        kinds = get_type_hints(Recipe, include_extras=True)
        for field in fields(self):
            try:
                object.__setattr__(self, field.name, _check_value(kinds[field.name], getattr(self, field.name)))
            except ValueError as error:
                raise ValueError(f"Recipe: {field.name} {error}") from None
        if self.exact_steps[0] >= self.exact_steps[1] or self.single_steps[0] >= self.single_steps[1]:
            raise ValueError(
                f"Recipe: steps are looked for from less to more, got {self.exact_steps} and {self.single_steps}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain data; `from_json` gives an equal one."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_json(document: dict[str, Any]) -> "Recipe":
        """Read what `to_json` gave; a ValueError where it is another version's."""
        names = {field.name for field in fields(Recipe)}
        if odd := names ^ set(document):
            raise ValueError(f"this is no recipe of this version: {', '.join(sorted(odd))} unknown or missing")
        return Recipe(**document)


def _check_value(kind: Any, value: Any) -> Any:
    """Return the value as its kind has it."""
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be True or False, got {value!r}")
        return value
    if get_origin(kind) is Annotated:
        return get_args(kind)[1].check(value)
    options = get_args(kind)
    if get_origin(kind) is not tuple:
        return None if value is None else _check_value(options[0], value)
    if not isinstance(value, tuple | list):
        raise ValueError(f"must be several numbers, got {value!r}")
    if options[-1] is not Ellipsis and len(value) != len(options):
        raise ValueError(f"must be {len(options)} numbers, got {value!r}")
    return tuple(_check_value(options[0], entry) for entry in value)


DEFAULT = Recipe()
# For families with sparse factors, thousands of unknowns: a gradient takes seconds, a factor for every step would fill
# the memory, and few instances tell enough of so many rows.
SPARSE = Recipe(
    effort_with_factors=(12, 1),
    factorizations=4,
    candidates=6,
    searched=6,
    metric_by_half=True,
    metric_again=True,
    metric_iterations=20,
    metric_lasting=100,
    lasting=15,
)
