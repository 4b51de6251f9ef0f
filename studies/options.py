"""The settings of the studies. Each is a row of a table, as in the runner. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness import devices
from harness.settings import (
    COUNT,
    DURATION,
    WHOLE,
    Group,
    Kind,
    by_flag,
    choice,
    flag,
    setting,
    whole,
    within,
)
from runner.errors import UsageError
from studies.implementations.addition import LEFT_DIGITS, OPERATIONS
from studies.training_time.published import MODES, PRECISIONS

row = partial(by_flag, group=Group.SELECTION)
one_flag = partial(flag, group=Group.SELECTION)
FOLDER = Kind(Path)
RATE = Kind(within(lambda rate: 0 < rate <= 1, "a learning rate; give a number between 0 and 1, as 1e-3"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The settings that all studies have. ``device``: "" for the GPU, or the CPU if there is none."""

    device: str = row(
        "",
        "--device=DEVICE",
        kind=choice("device", devices.TRIED),
        help=f"{' or '.join(devices.TRIED)} (default: the GPU if there is one)",
    )
    threads: int | None = row(None, "--threads=N", kind=COUNT, help="CPU threads (default: torch's choice)")
    output_dir: Path | None = setting(
        None,
        one_flag("--output-dir=DIR", kind=FOLDER, help="a new folder for the run (default: under logs/)"),
    )
    quick: bool = row(False, "--quick", help="a trial of a few minutes; its numbers have no meaning")


DATA_DIR = one_flag(
    "--data-dir=DIR",
    kind=FOLDER,
    help="folder with tinyshakespeare.txt (default: the cache folder, else a download)",
)


def usable_device(given: str) -> str:
    """The requested device, or the best device of this machine. ``UsageError`` if torch cannot use it."""
    if not given:
        return devices.best()
    device = devices.of(given)
    if not device.count():
        raise UsageError(f"--device: torch can use no {device.label} device here; use --device={devices.CPU}")
    return given


# -- study A ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimeOptions(StudyOptions):
    """None in steps, batch, block, seeds or every: the default for the device."""

    precisions: tuple[str, ...] = row(
        (),
        "--precisions=NAME",
        listed=True,
        kind=choice("precision", PRECISIONS),
        help=f"comma-separated, of {', '.join(PRECISIONS)} (default: all that the device has)",
    )
    modes: tuple[str, ...] = row(
        MODES,
        "--modes=NAME",
        listed=True,
        kind=choice("mode", MODES),
        help=f"comma-separated, of {', '.join(MODES)} (default: all)",
    )
    steps: int | None = row(
        None, "--steps=N", kind=COUNT, help="training steps (default: 300 on a CPU, 5000 on a GPU)"
    )
    batch: int | None = row(
        None, "--batch-size=N", kind=COUNT, help="windows in a step (default: 8 on a CPU, 64 on a GPU)"
    )
    block: int | None = row(None, "--block-size=N", kind=COUNT, help="characters in a window (default: 256)")
    seeds: int | None = row(None, "--seeds=N", kind=COUNT, help="training runs of each variant (default: 3)")
    chunk: int = row(
        20,
        "--chunk=N",
        kind=COUNT,
        help="steps of one variant before the next variant runs (default: 20)",
    )
    every: int | None = row(
        None,
        "--evaluate-every=N",
        kind=COUNT,
        help="steps between evaluations (default: a tenth of --steps)",
    )
    learning_rate: float = row(
        1e-3, "--learning-rate=RATE", kind=RATE, help="learning rate of AdamW (default: 1e-3)"
    )
    data_dir: Path | None = setting(None, DATA_DIR)
    records_only: bool = row(
        False,
        "--records-only",
        help="write no report, for an interpreter that has only torch; `studies report` writes it later",
    )

    def checked(self) -> TrainingTimeOptions:
        """With the defaults for the device. ``UsageError`` for settings that exclude each other."""
        device = usable_device(self.device)
        usable = tuple(name for name in PRECISIONS if devices.of(device).has_tf32 or "tf32" not in name)
        precisions = self.precisions or usable
        for name in precisions:
            if name not in usable:
                raise UsageError(f"--precisions: {name} exists on CUDA only; with --device=cpu leave it out")
        if "eager" not in self.modes:
            raise UsageError("--modes: eager is the baseline of the other modes; name it too")
        if "float32" not in precisions:
            raise UsageError("--precisions: all ratios are relative to float32; name it too")
        return replace(
            self,
            device=device,
            precisions=tuple(name for name in PRECISIONS if name in precisions),
            modes=tuple(name for name in MODES if name in self.modes),
        )


# -- study B ----------------------------------------------------------------------------

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
class ImplementationsOptions(StudyOptions):
    """Budgets: seconds of training for each model and learning rate. 0 or () until ``checked``: a default."""

    tasks: tuple[str, ...] = row(
        (),
        "--tasks=NAME",
        listed=True,
        kind=choice("task", TASKS),
        help=f"comma-separated, of {', '.join(TASKS)} (default: both)",
    )
    only_asked: bool = False  # the user named the tasks, so a task that cannot run is an error
    models: tuple[str, ...] = row(
        MODELS,
        "--models=NAME",
        listed=True,
        kind=choice("model", MODELS),
        help=f"comma-separated, of {', '.join(MODELS)} (default: all)",
    )
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
    text_batch: int | None = row(
        None,
        "--text-batch-size=N",
        kind=COUNT,
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
    data_dir: Path | None = setting(None, DATA_DIR)

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
