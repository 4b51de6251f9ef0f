"""Study B's flags and options. Imports nothing heavy."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.flag_types import count, duration, whole
from studies.options import add_common, device_of, rate, words

MODELS = ("HuggingFaceGPT", "MLP", "NanoGPT", "TLTransformer")
TASKS = ("addition", "shakespeare")
LEARNING_RATES = "1e-3,1e-4,1e-2"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplementationsOptions:
    """Study B. Budgets in seconds of training for each model and learning rate."""

    device: str
    tasks: tuple[str, ...]
    only_asked: bool  # the tasks were named, so that one that cannot run is an error
    models: tuple[str, ...]
    learning_rates: tuple[float, ...]
    budget_s: float
    text_budget_s: float
    text_batch: int | None
    text_learning_rate: float
    reverse: bool
    seed: int
    threads: int | None
    data_dir: Path | None
    output_dir: Path | None
    quick: bool


def add_implementations(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    known = ", ".join(TASKS)
    parser.add_argument(
        "--tasks", action=words("--tasks", "task", TASKS), help=f"comma-separated, of {known} (default: both)"
    )
    parser.add_argument(
        "--models",
        action=words("--models", "model", MODELS),
        default=MODELS,
        help=f"comma-separated, of {', '.join(MODELS)} (default: all)",
    )
    parser.add_argument(
        "--learning-rates", help=f"AdamW's, for addition, comma-separated (default: {LEARNING_RATES})"
    )
    parser.add_argument(
        "--budget", type=duration("--budget"), help="training time of each on addition (default: 60s)"
    )
    parser.add_argument(
        "--text-budget",
        type=duration("--text-budget"),
        help="of each on Shakespeare; the third MLP has twice as much (default: five times --budget)",
    )
    parser.add_argument(
        "--text-batch-size",
        type=count("--text-batch-size"),
        help="windows in a transformer's step (default: as published on CUDA, a 32nd of it on a CPU)",
    )
    parser.add_argument(
        "--text-learning-rate",
        default="1e-2",
        help="of the transformers on Shakespeare (default: 1e-2, as published, for a published step; a "
        "hundredth of its windows wants about a tenth)",
    )
    parser.add_argument(
        "--digits",
        choices=("reversed", "plain"),
        default="reversed",
        help="how numbers are written in additions (default: reversed)",
    )
    parser.add_argument("--seed", type=whole("--seed"), default=0, help="of data and weights (default: 0)")


def implementations_options(given: argparse.Namespace) -> ImplementationsOptions:
    """``UsageError`` for anything that cannot be meant."""
    quick = bool(given.quick)
    budget = given.budget or (4.0 if quick else 60.0)
    text = given.learning_rates or ("1e-2" if quick else LEARNING_RATES)
    rates = tuple(dict.fromkeys(rate("--learning-rates", word) for word in text.split(",") if word))
    if not rates:
        raise UsageError("--learning-rates: give at least one number, as 1e-3")
    return ImplementationsOptions(
        device=device_of(given.device),
        tasks=given.tasks or TASKS,
        only_asked=given.tasks is not None,
        models=tuple(name for name in MODELS if name in given.models),
        learning_rates=rates,
        budget_s=budget,
        text_budget_s=given.text_budget or (budget if quick else 5 * budget),
        text_batch=given.text_batch_size,
        text_learning_rate=rate("--text-learning-rate", given.text_learning_rate),
        reverse=given.digits == "reversed",
        seed=given.seed,
        threads=given.threads,
        data_dir=given.data_dir,
        output_dir=given.output_dir,
        quick=quick,
    )
