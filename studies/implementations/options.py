"""The settings of study B. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.settings import DURATION, WHOLE, Kind, choice, whole
from studies.implementations.addition import LEFT_DIGITS, OPERATIONS
from studies.options import RATE, TextStudyOptions, count, row, several, usable_device

MODELS = ("HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer")
TASKS = ("addition", "shakespeare")
LEARNING_RATES = (1e-3, 1e-4, 1e-2)
DIGITS = choice("order of digits", ("reversed", "plain"))
FEWEST_DIGITS, MOST_DIGITS = 2, 9


def number_digits(text: str) -> int:
    """With one digit there are fewer questions than the study holds out."""
    value = whole(text)
    if not FEWEST_DIGITS <= value <= MOST_DIGITS:
        raise ValueError(f"{text!r} is not possible; give {FEWEST_DIGITS} to {MOST_DIGITS} digits")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationsOptions(TextStudyOptions):
    """Budgets: seconds of training for each model and learning rate. 0 or () until ``checked``: a default."""

    tasks: tuple[str, ...] = several((), "--tasks=NAME", "task", TASKS, "both")
    only_asked: bool = False  # the user named the tasks, so a task that cannot run is an error
    models: tuple[str, ...] = several(MODELS, "--models=NAME", "model", MODELS)
    learning_rates: tuple[float, ...] = row(
        (),
        "--learning-rates=RATE",
        listed=True,
        kind=RATE,
        help="learning rates of AdamW for addition, comma-separated (default: 1e-3,1e-4,1e-2)",
    )
    budget_s: float = row(
        0.0, "--budget=TIME", kind=DURATION, help="training time of each model on addition (default: 60s)"
    )
    text_budget_s: float = row(
        0.0,
        "--text-budget=TIME",
        kind=DURATION,
        help="training time of each model on Shakespeare; the third MLP has twice this time (default: five "
        "times --budget)",
    )
    text_batch: int | None = count(
        None,
        "--text-batch-size=N",
        help="windows in a step of a transformer (default: as published on CUDA, 1/32 of it on a CPU)",
    )
    text_learning_rate: float = row(
        1e-2,
        "--text-learning-rate=RATE",
        kind=RATE,
        help="learning rate of the transformers on Shakespeare (default: 1e-2, published for the published "
        "batch size; for 1/100 of the windows, use about 1e-3)",
    )
    reverse: bool = row(
        True,
        "--digits=ORDER",
        kind=Kind(lambda text: DIGITS.read(text) == "reversed"),
        help="how numbers are written in additions: reversed or plain (default: reversed)",
    )
    operations: tuple[str, ...] = row(
        ("+",),
        "--operations=SIGN",
        listed=True,
        kind=choice("operation", OPERATIONS),
        help="signs of the questions, comma-separated: --operations=+,- also draws subtractions (default: +)",
    )
    digits: int = row(
        LEFT_DIGITS,
        "--number-digits=N",
        kind=Kind(number_digits),
        help=f"digits of both numbers of a question; the result has one more (default: {LEFT_DIGITS})",
    )
    seed: int = row(0, "--seed=N", kind=WHOLE, help="seed of the data and the weights (default: 0)")

    def checked(self) -> ImplementationsOptions:
        """With all defaults. ``UsageError`` for a device that torch cannot use."""
        budget = self.budget_s or (4.0 if self.quick else 60.0)
        return replace(
            self,
            device=usable_device(self.device),
            tasks=self.tasks or TASKS,
            only_asked=bool(self.tasks),
            models=tuple(name for name in MODELS if name in self.models),
            operations=tuple(sign for sign in OPERATIONS if sign in self.operations),
            learning_rates=self.learning_rates or ((1e-2,) if self.quick else LEARNING_RATES),
            budget_s=budget,
            text_budget_s=self.text_budget_s or (budget if self.quick else 5 * budget),
        )
