"""Results of study B from its records: final numbers, when an accuracy was reached, and the expectations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.journal import Line, of_kind

LEVELS = (0.5, 0.9, 0.995)
SOLVED = 0.995
NEAR = 0.9
"""A transformer is well behind if its accuracy is lower than this when the MLPs have solved addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An evaluation during training. ``seconds``: time of the steps so far, without evaluations.

    ``train_loss``: mean over the batches since the last point, with dropout.
    """

    step: int
    seconds: float
    train_loss: float
    test_loss: float
    test_accuracy: float


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
    def micros(self) -> float | None:
        """Microseconds per example, averaged over the training."""
        return 1e6 * self.last.seconds / (self.last.step * self.batch) if self.last else None

    def reached(self, accuracy: float) -> Point | None:
        """The first evaluation that reached this accuracy on held-out examples."""
        return next((point for point in self.points if point.test_accuracy >= accuracy), None)

    def accuracy_at(self, seconds: float) -> float:
        """The best accuracy of the evaluations up to the first after ``seconds``; 0 if there are none."""
        later = [place for place, point in enumerate(self.points) if point.seconds >= seconds]
        seen = self.points[: later[0] + 1] if later else self.points
        return max((point.test_accuracy for point in seen), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """An expectation from the published study, and the result of this run."""

    expected: str
    found: str
    holds: bool | None  # None: the run cannot tell


def fitted(lines: Sequence[Line]) -> list[Fitted]:
    """The trainings with an outcome, in order. A training that was killed has none."""
    points: dict[str, list[Point]] = {}
    for line in of_kind(lines, "point"):
        points.setdefault(line["variant"], []).append(
            Point(
                step=line["step"],
                seconds=line["seconds"],
                train_loss=_number(line["train_loss"]),
                test_loss=_number(line["test_loss"]),
                test_accuracy=line["test_accuracy"],
            )
        )
    return [
        Fitted(
            name=line["variant"],
            task=line["task"],
            case=line["case"],
            model=line["model"],
            learning_rate=line["learning_rate"],
            batch=line["batch"],
            num_parameters=line.get("num_parameters"),
            status=line["status"],
            message=line["message"],
            points=tuple(points.get(line["variant"], ())),
        )
        for line in of_kind(lines, "outcome")
    ]


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def expectations(found: Sequence[Fitted]) -> list[Expectation]:
    return [_mlp_solves(found), _transformers_behind(found), _mlp_fails(found)]


def _mlp_solves(found: Sequence[Fitted]) -> Expectation:
    mlps = [f for f in found if (f.task, f.model) == ("addition", "MLP")]
    solved = [f for f in mlps if f.reached(SOLVED)]
    named = ", ".join(f"{f.learning_rate:g} after {f.reached(SOLVED).seconds:.1f} s" for f in solved)  # type: ignore[union-attr]
    return Expectation(
        expected="the MLP solves addition almost at once: 99.5 % at two of three learning rates or more",
        found=f"at {len(solved)} of {len(mlps)}{f': {named}' if named else ''}",
        holds=len(solved) >= 2 if len(mlps) >= 3 else None,
    )


def _transformers_behind(found: Sequence[Fitted]) -> Expectation:
    expected = "in that time the transformers are well behind: below 90 %, and none solves it in its budget"
    on_addition = [f for f in found if f.task == "addition" and f.status == "PASS"]
    times = [p.seconds for f in on_addition if f.model == "MLP" and (p := f.reached(SOLVED))]
    others = [f for f in on_addition if f.model != "MLP"]
    if not times or not others:
        return Expectation(expected=expected, found="nothing to compare", holds=None)
    then = max(f.accuracy_at(max(times)) for f in others)
    best = max(others, key=lambda f: f.accuracy_at(float("inf")))
    final = best.accuracy_at(float("inf"))
    return Expectation(
        expected=expected,
        found=(
            f"when the last MLP had solved it ({max(times):.1f} s) the best transformer had at most "
            f"{then:.1%}; at the end {best.name} has {final:.1%}"
        ),
        holds=then < NEAR and final < SOLVED,
    )


def _mlp_fails(found: Sequence[Fitted]) -> Expectation:
    expected = "the MLP fails on Shakespeare: every transformer's loss is lower than any MLP's"
    on_text = [f for f in found if f.task == "shakespeare" and f.status == "PASS" and f.last]
    mlps = [f.last.test_loss for f in on_text if f.model == "MLP" and f.last]
    others = [f.last.test_loss for f in on_text if f.model != "MLP" and f.last]
    if not mlps or not others:
        return Expectation(expected=expected, found="nothing to compare", holds=None)
    return Expectation(
        expected=expected,
        found=f"MLPs {min(mlps):.2f} to {max(mlps):.2f}, transformers {min(others):.2f} to {max(others):.2f}",
        holds=max(others) < min(mlps),
    )
