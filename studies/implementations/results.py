"""Results of study B from its records, and whether the claims of its source hold (``published.toml``)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from harness.codec import from_json
from runner.analysis.digits import significant
from studies.journal import PASS, Line, of_kind
from studies.options import tables
from studies.report import NOT_SHOWN, OPEN, Expectation, Judged, published, span, verdict

LEVELS = (0.5, 0.9, 0.995)
SOLVED = 0.995
TASKS = {
    "addition": ("HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer"),
    "shakespeare": ("MLP", "TLTransformer", "NanoGPT"),
}
"""The models of each published table, in its order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An evaluation during training. ``seconds``: time of the steps so far, without evaluations.

    ``train_loss``: mean over the batches since the last point, with dropout. ``train_accuracy``: of the
    last of these batches. ``inference_micros``: time of the evaluation for each held-out example. Records
    made before these were measured have None.
    """

    step: int
    seconds: float
    train_loss: float
    test_loss: float
    test_accuracy: float
    train_accuracy: float | None = None
    inference_micros: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One training. ``num_parameters`` is None if the model could not be built."""

    variant: str
    task: str
    case: str
    model: str
    learning_rate: float
    batch: int
    num_parameters: int | None = None
    status: str
    message: str | None
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        return f"{self.model} {self.learning_rate:g}"

    @property
    def micros(self) -> float | None:
        """Microseconds per example, averaged over the training."""
        return 1e6 * self.points[-1].seconds / (self.points[-1].step * self.batch) if self.points else None

    @property
    def inference_micros(self) -> float | None:
        """Microseconds per held-out example, without gradients: the median of the evaluations."""
        times = [p.inference_micros for p in self.points if p.inference_micros is not None]
        return median(times) if times else None

    def reached(self, accuracy: float) -> Point | None:
        """The first evaluation that reached this accuracy on held-out examples."""
        return next((point for point in self.points if point.test_accuracy >= accuracy), None)

    def accuracy_at(self, seconds: float = math.inf) -> float:
        """The best accuracy of the evaluations up to the first after ``seconds``."""
        later = (place for place, point in enumerate(self.points) if point.seconds >= seconds)
        return max(point.test_accuracy for point in self.points[: next(later, len(self.points)) + 1])

    def numbers(self) -> dict[str, Any]:
        """A line of results.csv."""
        facts = asdict(self) | (asdict(self.points[-1]) if self.points else {})
        facts |= {"steps": facts.get("step"), "train_time_in_seconds": facts.get("seconds")}
        facts |= {"inference_micros": self.inference_micros, "time_per_example_in_micros": self.micros}
        reached = {
            f"{what}_to_{level:g}": getattr(self.reached(level), name, None)
            for level in LEVELS
            for what, name in (("steps", "step"), ("seconds", "seconds"))
        }
        columns = tables("words")["results"]["columns"]
        return {**{name: facts.get(name) for name in columns}, **reached, "status": self.status}


def fitted(lines: Sequence[Line]) -> list[Fitted]:
    """The trainings with an outcome, in the order of the published tables. A killed training has none."""
    points = defaultdict[str, list[Line]](list)
    for line in of_kind(lines, "point"):  # a loss that was not finite is null there
        points[line["variant"]].append(
            {n: "nan" if v is None and "loss" in n else v for n, v in line.items()}
        )
    ends = of_kind(lines, "outcome")
    fits = [from_json(Fitted, {**line, "points": points[line["variant"]]}) for line in ends]
    return sorted(fits, key=lambda f: place(f.task, f.model))


def place(task: str, model: str) -> tuple[int, int]:
    """The place of a task and a model in the published tables. Others are last."""
    models = TASKS.get(task, ())
    return list(TASKS).index(task), models.index(model) if model in models else len(models)


# -- claims ------------------------------------------------------------------------------

BEHIND = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""
NEAR_PERFECT = 0.99
MUCH_FASTER = 5.0
ABOUT_EQUAL = 0.2
"""Nats. The published losses of TLTransformer and NanoGPT differ by as much at equal width."""
TAUGHT = "TLTransformer"
NOTHING: Judged = ("nothing to compare", OPEN)
Fits = Sequence[Fitted]


def claims(fits: Fits) -> list[Expectation]:
    """The claims on addition, then those on text, for the tasks that the run has."""
    return [
        Expectation(expected=claim, seen=text, holds=holds)
        for task in TASKS
        if (members := [f for f in fits if f.task == task])
        for name, claim in tables("published")[task]["claims"].items()
        for text, holds in (JUDGES[name](members),)
    ]


def _parted(members: Fits, model: str = TAUGHT) -> tuple[Fits, Fits]:
    """Of the trained models those of this name, and the transformers that have another."""
    trained = [f for f in members if f.status == PASS and f.points]
    return [f for f in trained if f.model == model], [f for f in trained if f.model not in ("MLP", model)]


def _lower(groups: Iterable[Sequence[float | None]], text: str, factor: float = 1.0) -> Judged:
    """Whether each value of the first group is lower than each of the second, by this factor."""
    low, high = ([value for value in values if value is not None] for values in groups)
    if not low or not high:
        return NOTHING
    times = min(high) / max(low)
    holds = times >= factor if factor > 1 else times > 1
    return text.format(span(low, 3), span(high, 3), significant(times, 2)), verdict(holds)


def _times_to(level: float, members: Fits) -> list[float]:
    return [point.seconds for f in members if (point := f.reached(level))]


def _mlp_solves(members: Fits) -> Judged:
    mlps = [f for f in members if f.model == "MLP"]
    solved = [f"{f.learning_rate:g} after {s:.1f} s" for f in mlps for s in _times_to(SOLVED, [f])]
    text = f"at {len(solved)} of {len(mlps)}{': ' if solved else ''}{', '.join(solved)}"
    return text, verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN


def _mlp_infers(members: Fits) -> Judged:
    groups = ([f.inference_micros for f in group] for group in _parted(members, "MLP"))
    return _lower(groups, "µs per example: MLP {}, transformers {}: {} times or more", MUCH_FASTER)


def _transformers_behind(members: Fits) -> Judged:
    mlps, others = _parted(members, "MLP")
    times = _times_to(SOLVED, mlps)
    if not times or not others:
        return NOTHING
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=Fitted.accuracy_at)
    text = (
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.accuracy_at():.1%} ({best.name})"
    )
    return text, verdict(then < BEHIND and best.accuracy_at() < SOLVED)


def _taught_is_best(members: Fits) -> Judged:
    """That the source trained longer is no excuse once a run has taken as many steps."""
    ours, others = _parted(members)
    if not ours or not others:
        return NOTHING
    best, other = (max(group, key=lambda f: f.points[-1].test_accuracy) for group in (ours, others))
    accuracies = [f.points[-1].test_accuracy for f in (best, other)]
    text = ", ".join(f"{f.name} ends at {end:.1%}" for f, end in zip((best, other), accuracies, strict=True))
    if accuracies[0] >= NEAR_PERFECT:
        return text, verdict(accuracies[0] >= accuracies[1])
    theirs, seen = published_examples(), min(f.batch * f.points[-1].step for f in ours)
    if seen >= theirs:
        return text, verdict(False)
    takes = significant(theirs * max(f.micros or 0.0 for f in ours) / 1e6, 2)
    text += f", after {seen / 1e6:.1f} million examples or more; the published budget held "
    return f"{text}{theirs / 1e6:.1f} million, which take {takes} s here", NOT_SHOWN


def published_examples() -> float:
    """How many examples TLTransformer's published training saw."""
    (row,) = (row for row in published("addition") if row["model, learning rate"].startswith(TAUGHT))
    return 1e6 * float(row["seconds"]) / float(row["µs per example"])


def _taught_is_cheap(members: Fits) -> Judged:
    groups = ([f.micros for f in group] for group in _parted(members))
    return _lower(groups, "µs per example: {}, the others {}")


def _taught_is_sooner(members: Fits) -> Judged:
    groups = _parted(members)
    if not all(groups):
        return NOTHING
    for level in reversed(LEVELS):
        first, second = (min(_times_to(level, group), default=math.inf) for group in groups)
        if min(first, second) < math.inf:
            ours, others = ("never" if t == math.inf else f"after {t:.1f} s" for t in (first, second))
            return f"{level:.1%} {ours}, the others {others}", verdict(first < second)
    return f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN


def _mlp_fails(members: Fits) -> Judged:
    groups = ([f.points[-1].test_loss for f in group] for group in _parted(members, "MLP")[::-1])
    return _lower(groups, "MLPs {1}, transformers {0}")


def _taught_and_nano_equal(members: Fits) -> Judged:
    """By the size in the name of the case."""
    ours, others = (
        {f.case.rpartition("_")[2]: f.points[-1].test_loss for f in group if f.model in (TAUGHT, "NanoGPT")}
        for group in _parted(members)
    )
    both = {size: (loss, others[size]) for size, loss in ours.items() if size in others}
    if not both:
        return NOTHING
    text = "; ".join(f"{size} wide: {a:.2f} and {b:.2f}" for size, (a, b) in both.items())
    return text, verdict(all(abs(a - b) <= ABOUT_EQUAL for a, b in both.values()))


JUDGES: Mapping[str, Callable[[Fits], Judged]] = {
    judge.__name__.lstrip("_"): judge
    for judge in (
        *(_mlp_solves, _mlp_infers, _transformers_behind, _taught_is_best, _taught_is_cheap),
        *(_taught_is_sooner, _mlp_fails, _taught_and_nano_equal),
    )
}
