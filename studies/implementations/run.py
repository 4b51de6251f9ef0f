"""Study B: four implementations of a small language model, on addition and on Shakespeare."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError, words_of
from studies.corpus import Corpus, shakespeare, synthetic
from studies.implementations.addition import input_length
from studies.implementations.options import ImplementationsOptions
from studies.implementations.results import place
from studies.journal import Journal, begin, say
from suites.tiny_gpt import Entry, entries

if TYPE_CHECKING:
    import torch

    from studies.implementations.fitting import Rule
    from studies.implementations.tasks import Task

STOP_ABOVE = 0.995
EVERY, EVERY_MLP = 50, 500
EVERY_TEXT = 50
EVERY_TEXT_MLP = {"MLP_shakespeare_16x256": 200, "MLP_shakespeare_8x128": 200, "MLP_shakespeare_16x64": 25}
TEXT_RATE = 1e-2  # of the MLPs, which have the published batch size on every device
DOUBLE = "MLP_shakespeare_16x64"
"""The third MLP, which the study trained twice as long as the others."""
NOT_PUBLISHED = "HuggingFaceGPT_shakespeare_64"
CPU_SHARE = 32  # on a CPU, a transformer's batch on text is the published batch / 32
QUICK_DRAWN, QUICK_HELD_OUT = 5000, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One planned training of a case of suite tiny_gpt."""

    case: str
    task: str
    entry: Entry
    learning_rate: float
    budget_s: float
    batch: int

    @property
    def name(self) -> str:
        return f"{self.case} lr {self.learning_rate:g}"


def plans(options: ImplementationsOptions, tasks: Sequence[str]) -> list[Plan]:
    """All trainings, in the order of the published tables."""
    found = []
    for case, entry in entries().items():
        task = next((task for task in tasks if f"_{task}" in case), None)
        if task is None or entry.implementation not in options.models or case == NOT_PUBLISHED:
            continue
        on_text = task == "shakespeare"
        budget = options.text_budget_s * (2 if case == DOUBLE else 1) if on_text else options.budget_s
        found += [
            Plan(
                case=case,
                task=task,
                entry=entry,
                learning_rate=rate,
                budget_s=budget,
                batch=_batch(entry, options, on_text),
            )
            for rate in _rates(entry, options, on_text)
        ]
    return sorted(found, key=lambda plan: place(plan.task, plan.entry.implementation))


def _rates(entry: Entry, options: ImplementationsOptions, on_text: bool) -> tuple[float, ...]:
    if not on_text:
        return options.learning_rates
    return (TEXT_RATE if entry.implementation == "MLP" else options.text_learning_rate,)


def _batch(entry: Entry, options: ImplementationsOptions, on_text: bool) -> int:
    if on_text and entry.implementation != "MLP":
        if options.text_batch:
            return options.text_batch
        if options.device == "cpu":
            return 4 if options.quick else entry.published_batch // CPU_SHARE
    return entry.published_batch


def run(options: ImplementationsOptions, command: Sequence[str]) -> int:
    """Trains all models, one after another, and reports. ``UsageError`` before anything is written."""
    corpus, refused = _corpus(options)
    tasks = [task for task in options.tasks if task != "shakespeare" or corpus is not None]
    todo = plans(options, tasks)
    if not todo:
        raise UsageError(f"--tasks, --models: there is nothing to train{f'; {refused}' if refused else ''}")
    if refused:
        say(f"task shakespeare is left out: {refused}")
    journal = Journal(options.output_dir, "implementations")
    with closing(journal):
        _train(options, todo, corpus, journal, command, refused)
    from studies.report import report

    return report(journal.path)


def _corpus(options: ImplementationsOptions) -> tuple[Corpus | None, str | None]:
    """The text, or why it is missing. ``UsageError`` if the user asked for the missing text."""
    if "shakespeare" not in options.tasks:
        return None, None
    if options.quick and options.data_dir is None:
        return synthetic(), None
    try:
        return shakespeare(options.data_dir), None
    except UsageError as error:
        if options.only_asked or options.data_dir is not None:
            raise
        return None, str(error)


def _train(
    options: ImplementationsOptions,
    todo: Sequence[Plan],
    corpus: Corpus | None,
    journal: Journal,
    command: Sequence[str],
    refused: str | None,
) -> None:
    from studies.implementations.tasks import addition_task, text_task

    device = begin(
        journal,
        "implementations",
        options,
        command,
        text=corpus.name if corpus else None,
        text_sizes=corpus.sizes if corpus else None,
        refused=refused,
    )

    @cache
    def task_of(task: str, last_only: bool) -> Task:
        if task == "shakespeare":
            assert corpus is not None
            return text_task(corpus, block=128, last_only=last_only)
        sizes = {"drawn": QUICK_DRAWN, "held_out": QUICK_HELD_OUT} if options.quick else {}
        return addition_task(
            seed=options.seed,
            reverse=options.reverse,
            operations=options.operations,
            digits=options.digits,
            device=device,
            **sizes,
        )

    for plan in todo:
        say(f"{plan.name}: {plan.budget_s:g} s at most, {plan.batch} examples in a step")
        _fit(plan, options, task_of(plan.task, plan.entry.loss == "last_symbol"), device, journal)


def _fit(
    plan: Plan, options: ImplementationsOptions, task: Task, device: torch.device, journal: Journal
) -> None:
    from harness.timing.step import seed_everything
    from studies.implementations.fitting import fit
    from suites.tiny_gpt import make_model

    facts: dict[str, Any] = {
        "variant": plan.name,
        "task": plan.task,
        "case": plan.case,
        "model": plan.entry.implementation,
        "learning_rate": plan.learning_rate,
        "batch": plan.batch,
        "budget_s": plan.budget_s,
    }
    status, message = "PASS", None
    try:
        seed_everything(options.seed)
        model = make_model(plan.entry.implementation, config_of(plan, options.digits))
        facts["num_parameters"] = sum(p.numel() for p in model.parameters() if p.requires_grad)
        for point in fit(
            model,
            task,
            _rule(plan),
            learning_rate=plan.learning_rate,
            batch=plan.batch,
            seed=options.seed,
            device=device,
        ):
            journal.write("point", variant=plan.name, **asdict(point))
            say(
                f"step {point.step:6d}  {point.seconds:6.1f} s  train={point.train_loss:.4f} "
                f"test={point.test_loss:.4f} accuracy={point.test_accuracy:.4f}  {plan.name}"
            )
    except Exception as error:  # a model library may raise anything; the others still train
        status, message = "FAIL", words_of(error)
        say(f"{plan.name}: failed: {message}")
    journal.write("outcome", status=status, message=message, **facts)


def config_of(plan: Plan, digits: int) -> dict[str, Any]:
    """The configuration of the case. On addition, the model reads as many symbols as the numbers need."""
    config = dict(plan.entry.config)
    if plan.task == "addition":
        config["input_len" if "input_len" in config else "block_size"] = input_length(digits)
    return config


def _rule(plan: Plan) -> Rule:
    from studies.implementations.fitting import Rule

    mlp = plan.entry.implementation == "MLP"
    if plan.task == "addition":
        return Rule(budget_s=plan.budget_s, every=EVERY_MLP if mlp else EVERY, stop_above=STOP_ABOVE)
    return Rule(
        budget_s=plan.budget_s, every=EVERY_TEXT_MLP[plan.case] if mlp else EVERY_TEXT, stop_above=None
    )
