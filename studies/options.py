"""The settings of the studies. Each is a row of a table, as in the runner; ``words.toml`` has its help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness import devices
from harness.loading.toml_file import read_toml
from harness.settings import COUNT, DURATION, WHOLE, Group, Kind, by_flag, choice, within
from runner.errors import UsageError


@cache
def tables(name: str) -> Mapping[str, Any]:
    """The tables of ``words.toml``, or of ``published.toml``: what the sources published."""
    return read_toml(Path(__file__).with_name(f"{name}.toml"))


PRECISIONS, MODES = (tuple(tables("words")[name]) for name in ("precisions", "modes"))
MODELS = ("HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer")
TASKS = ("addition", "shakespeare")
PARTS, OPERATIONS = ("images", "text"), ("+", "-")
LEFT_DIGITS = 3
LEARNING_RATES = (1e-3, 1e-4, 1e-2)
RATE = Kind(within(lambda rate: 0 < rate <= 1, "a learning rate; give a number between 0 and 1, as 1e-3"))
FOLDER = Kind(Path)
DIGITS = choice("number of digits", "23456789")  # with one there are fewer questions than are held out


def option(default: Any, name: str, kind: Kind = COUNT, *, listed: bool = False) -> Any:
    """A setting: ``--steps=N``."""
    text = tables("words")["flags"][name.partition("=")[0].lstrip("-")].format(", ".join(kind.words))
    return by_flag(default, name, group=Group.SELECTION, kind=kind, listed=listed, help=text)


several = partial(option, listed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The settings that all studies have. ``device``: "" for the GPU, or the CPU if there is none."""

    device: str = option("", "--device=DEVICE", choice("device", devices.TRIED))
    threads: int | None = option(None, "--threads=N")
    output_dir: Path | None = option(None, "--output-dir=DIR", FOLDER)
    quick: bool = option(False, "--quick")

    def checked(self) -> StudyOptions:
        """With all defaults. ``UsageError`` for settings that exclude each other."""
        return replace(self, device=usable_device(self.device))


def usable_device(given: str) -> str:
    """The requested device, or the best device of this machine. ``UsageError`` if torch cannot use it."""
    if not given:
        return devices.best()
    device = devices.of(given)
    if not device.count():
        raise UsageError(f"--device: torch can use no {device.label} device here; use --device={devices.CPU}")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimeOptions(StudyOptions):
    """Study A. None in steps, batch, block, seeds or every: the default for the device."""

    data_dir: Path | None = option(None, "--data-dir=DIR", FOLDER)
    precisions: tuple[str, ...] = several((), "--precisions=NAME", choice("precision", PRECISIONS))
    modes: tuple[str, ...] = several(MODES, "--modes=NAME", choice("mode", MODES))
    steps: int | None = option(None, "--steps=N")
    batch: int | None = option(None, "--batch-size=N")
    block: int | None = option(None, "--block-size=N")
    seeds: int | None = option(None, "--seeds=N")
    chunk: int = option(20, "--chunk=N")
    every: int | None = option(None, "--evaluate-every=N")
    learning_rate: float = option(1e-3, "--learning-rate=RATE", RATE)
    records_only: bool = option(False, "--records-only")

    def checked(self) -> TrainingTimeOptions:
        device = usable_device(self.device)
        usable = [name for name in PRECISIONS if devices.of(device).has_tf32 or "tf32" not in name]
        precisions = self.precisions or usable
        for name in precisions:
            if name not in usable:
                raise UsageError(f"--precisions: {name} exists on CUDA only; with --device=cpu leave it out")
        if "eager" not in self.modes:
            raise UsageError("--modes: eager is the baseline of the other modes; name it too")
        if "float32" not in precisions:
            raise UsageError("--precisions: all ratios are relative to float32; name it too")
        known = tuple(name for name in PRECISIONS if name in precisions)
        modes = tuple(name for name in MODES if name in self.modes)
        return replace(self, device=device, precisions=known, modes=modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationsOptions(StudyOptions):
    """Study B. Budgets: seconds of training for each model and learning rate. 0 or (): a default."""

    data_dir: Path | None = option(None, "--data-dir=DIR", FOLDER)
    tasks: tuple[str, ...] = several((), "--tasks=NAME", choice("task", TASKS))
    only_asked: bool = False  # the user named the tasks, so a task that cannot run is an error
    models: tuple[str, ...] = several(MODELS, "--models=NAME", choice("model", MODELS))
    learning_rates: tuple[float, ...] = several((), "--learning-rates=RATE", RATE)
    budget_s: float = option(0.0, "--budget=TIME", DURATION)
    text_budget_s: float = option(0.0, "--text-budget=TIME", DURATION)
    text_batch: int | None = option(None, "--text-batch-size=N")
    text_learning_rate: float = option(1e-2, "--text-learning-rate=RATE", RATE)
    operations: tuple[str, ...] = several(("+",), "--operations=SIGN", choice("operation", OPERATIONS))
    digits: int = option(LEFT_DIGITS, "--number-digits=N", Kind(lambda text: int(DIGITS.read(text))))
    seed: int = option(0, "--seed=N", WHOLE)

    def checked(self) -> ImplementationsOptions:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileModesOptions(StudyOptions):
    """Study C. All other flags of its command line are those of ``runner.py``, and go to its runs."""

    parts: tuple[str, ...] = several(PARTS, "--parts=NAME", choice("part", PARTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCoreOptions(StudyOptions):
    """Study F. All other flags of its command line are those of ``runner.py``."""

    part_s: float = option(9000.0, "--part=TIME", DURATION)

    def checked(self) -> OneCoreOptions:
        if self.device not in ("", devices.CPU):
            raise UsageError("--device: the published numbers are those of a CPU; leave it out")
        return self
