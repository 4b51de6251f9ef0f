"""Results of study B from its records: final numbers, and when an accuracy was reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any, TypeVar

from studies.journal import PASS, Line, of_kind
from studies.options import tables

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
