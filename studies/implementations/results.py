"""Results of study B from its records, and whether the claims of its source hold (``published.toml``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, TypeVar

from runner.analysis.digits import significant
from studies.journal import PASS, Line, of_kind
from studies.options import tables
from studies.report import FAILS, HOLDS, NOT_SHOWN, OPEN, Expectation, Judged, published

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
    train_accuracy: float | None
    inference_micros: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One training. ``num_parameters`` is None if the model could not be built."""

    name: str
    task: str
    case: str
    model: str
    learning_rate: float
    batch: int
    num_parameters: int | None
    status: str
    message: str | None
    points: tuple[Point, ...]

    @property
    def last(self) -> Point | None:
        return self.points[-1] if self.points else None

    @property
    def trained(self) -> bool:
        return self.status == PASS and self.last is not None

    @property
    def loss(self) -> float:
        """At the end, on held-out data."""
        return self.last.test_loss if self.last else math.nan

    @property
    def accuracy(self) -> float:
        """At the end; 0 without an evaluation."""
        return self.last.test_accuracy if self.last else 0.0

    @property
    def micros(self) -> float | None:
        """Microseconds per example, averaged over the training."""
        return 1e6 * self.last.seconds / (self.last.step * self.batch) if self.last else None

    @property
    def inference_micros(self) -> float | None:
        """Microseconds per held-out example, without gradients: the median of the evaluations."""
        times = [p.inference_micros for p in self.points if p.inference_micros is not None]
        return median(times) if times else None

    @property
    def best_accuracy(self) -> float:
        """The best of all evaluations, which is not always the last."""
        return self.accuracy_at(math.inf)

    def reached(self, accuracy: float) -> Point | None:
        """The first evaluation that reached this accuracy on held-out examples."""
        return next((point for point in self.points if point.test_accuracy >= accuracy), None)

    def accuracy_at(self, seconds: float) -> float:
        """The best accuracy of the evaluations up to the first after ``seconds``; 0 if there are none."""
        later = [place for place, point in enumerate(self.points) if point.seconds >= seconds]
        seen = self.points[: later[0] + 1] if later else self.points
        return max((point.test_accuracy for point in seen), default=0.0)

    def numbers(self) -> dict[str, Any]:
        """A line of results.csv."""
        last = asdict(self.last) if self.last else {}
        facts = {field.name: getattr(self, field.name) for field in fields(self)} | last
        facts |= {"inference_micros": self.inference_micros, "time_per_example_in_micros": self.micros}
        facts |= {"steps": last.get("step"), "train_time_in_seconds": last.get("seconds")}
        reached = {
            f"{what}_to_{level:g}": getattr(self.reached(level), name, None)
            for level in LEVELS
            for what, name in (("steps", "step"), ("seconds", "seconds"))
        }
        return {
            **{name: facts.get(name) for name in tables("words")["results"]["columns"]},
            **reached,
            "status": self.status,
        }


T = TypeVar("T", Point, Fitted)


def fitted(lines: Sequence[Line]) -> list[Fitted]:
    """The trainings with an outcome, in the order of the published tables. A killed training has none."""
    points: dict[str, list[Point]] = {}
    for line in of_kind(lines, "point"):
        points.setdefault(line["variant"], []).append(_recorded(Point, line))
    fits = [
        _recorded(Fitted, {**line, "name": line["variant"], "points": tuple(points.get(line["variant"], ()))})
        for line in of_kind(lines, "outcome")
    ]
    return sorted(fits, key=lambda f: place(f.task, f.model))


def _recorded(kind: type[T], line: Line) -> T:
    """From its fields; older records lack those that may be None. ``KeyError`` for another one.

    Losses that were not finite are null in the records.
    """
    missing = dict.fromkeys(("train_accuracy", "inference_micros", "num_parameters"))
    facts: dict[str, Any] = {field.name: {**missing, **line}[field.name] for field in fields(kind)}
    lost = {name: math.nan for name, value in facts.items() if value is None and name.endswith("loss")}
    return kind(**{**facts, **lost})


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
        for task in ("addition", "shakespeare")
        if (members := [f for f in fits if f.task == task])
        for name, claim in tables("published")[task]["claims"].items()
        for text, holds in (JUDGES[name](members),)
    ]


def _verdict(holds: bool) -> str:
    return HOLDS if holds else FAILS


def _mlps_and_others(members: Fits) -> tuple[Fits, Fits]:
    """Of the trained models, the MLPs and the transformers."""
    trained = [f for f in members if f.trained]
    return [f for f in trained if f.model == "MLP"], [f for f in trained if f.model != "MLP"]


def _taught_and_others(members: Fits) -> tuple[Fits, Fits]:
    """TLTransformer, and the other transformers."""
    _, both = _mlps_and_others(members)
    return [f for f in both if f.model == TAUGHT], [f for f in both if f.model != TAUGHT]


def _lower(
    groups: tuple[Fits, Fits], quantity: Callable[[Fitted], float | None], text: str, factor: float = 1.0
) -> Judged:
    """Whether every training of the first group is lower than every one of the second, by this factor."""
    ours, theirs = ([value for f in group if (value := quantity(f))] for group in groups)
    if not ours or not theirs:
        return NOTHING
    times = min(theirs) / max(ours)
    spans = (
        " to ".join(dict.fromkeys(significant(end, 3) for end in (min(values), max(values))))
        for values in (ours, theirs)
    )
    return text.format(*spans, significant(times, 2)), _verdict(times >= factor if factor > 1 else times > 1)


def _named(f: Fitted) -> str:
    return f"{f.model} {f.learning_rate:g}"


def _times_to(level: float, members: Fits) -> list[float]:
    return [point.seconds for f in members if (point := f.reached(level))]


def _mlp_solves(members: Fits) -> Judged:
    mlps = [f for f in members if f.model == "MLP"]
    solved = [f"{f.learning_rate:g} after {s:.1f} s" for f in mlps for s in _times_to(SOLVED, [f])]
    text = f"at {len(solved)} of {len(mlps)}{': ' if solved else ''}{', '.join(solved)}"
    return text, _verdict(len(solved) >= 2) if len(mlps) >= 3 else OPEN


def _transformers_behind(members: Fits) -> Judged:
    mlps, others = _mlps_and_others(members)
    times = _times_to(SOLVED, mlps)
    if not times or not others:
        return NOTHING
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=lambda f: f.best_accuracy)
    text = (
        f"when the last MLP had solved it ({max(times):.1f} s), no transformer was above {then:.1%}; their "
        f"best evaluation of all is {best.best_accuracy:.1%} ({_named(best)})"
    )
    return text, _verdict(then < BEHIND and best.best_accuracy < SOLVED)


def _taught_is_best(members: Fits) -> Judged:
    """That the source trained longer is no excuse once a run has taken as many steps."""
    ours, others = _taught_and_others(members)
    if not ours or not others:
        return NOTHING
    best, other = (max(group, key=lambda f: f.accuracy) for group in (ours, others))
    text = ", ".join(f"{_named(f)} ends at {f.accuracy:.1%}" for f in (best, other))
    if best.accuracy >= NEAR_PERFECT:
        return text, _verdict(best.accuracy >= other.accuracy)
    theirs, seen = published_examples(), min(f.batch * f.last.step for f in ours if f.last)
    if seen >= theirs:
        return text, FAILS
    takes = significant(theirs * max(f.micros or 0.0 for f in ours) / 1e6, 2)
    text += f", after {seen / 1e6:.1f} million examples or more; the published budget held "
    return f"{text}{theirs / 1e6:.1f} million, which take {takes} s here", NOT_SHOWN


def published_examples() -> float:
    """How many examples TLTransformer's published training saw."""
    (row,) = (row for row in published("addition") if row["model, learning rate"].startswith(TAUGHT))
    return 1e6 * float(row["seconds"]) / float(row["µs per example"])


def _taught_is_sooner(members: Fits) -> Judged:
    groups = _taught_and_others(members)
    if not all(groups):
        return NOTHING
    for level in reversed(LEVELS):
        first, second = (min(_times_to(level, group), default=None) for group in groups)
        if first is not None or second is not None:
            ours, others = ("never" if t is None else f"after {t:.1f} s" for t in (first, second))
            sooner = first is not None and (second is None or first < second)
            return f"{level:.1%} {ours}, the others {others}", _verdict(sooner)
    return f"no transformer reached {LEVELS[0]:.0%}", NOT_SHOWN


def _taught_and_nano_equal(members: Fits) -> Judged:
    """By the size in the name of the case."""
    taught, others = _taught_and_others(members)
    nano = [f for f in others if f.model == "NanoGPT"]
    ours, theirs = ({f.case.rpartition("_")[2]: f.loss for f in group} for group in (taught, nano))
    both = [size for size in ours if size in theirs]
    if not both:
        return NOTHING
    text = "; ".join(f"{size} wide: {ours[size]:.2f} and {theirs[size]:.2f}" for size in both)
    return text, _verdict(all(abs(ours[size] - theirs[size]) <= ABOUT_EQUAL for size in both))


def _mlp_infers(members: Fits) -> Judged:
    text = "µs per example: MLP {}, transformers {}: {} times or more"
    return _lower(_mlps_and_others(members), lambda f: f.inference_micros, text, MUCH_FASTER)


def _taught_is_cheap(members: Fits) -> Judged:
    return _lower(_taught_and_others(members), lambda f: f.micros, "µs per example: {}, the others {}")


def _mlp_fails(members: Fits) -> Judged:
    return _lower(_mlps_and_others(members)[::-1], lambda f: f.loss, "MLPs {1}, transformers {0}")


JUDGES: Mapping[str, Callable[[Fits], Judged]] = {
    "mlp_solves": _mlp_solves,
    "mlp_infers": _mlp_infers,
    "transformers_behind": _transformers_behind,
    "taught_is_best": _taught_is_best,
    "taught_is_cheap": _taught_is_cheap,
    "taught_is_sooner": _taught_is_sooner,
    "mlp_fails": _mlp_fails,
    "taught_and_nano_equal": _taught_and_nano_equal,
}
